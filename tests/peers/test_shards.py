"""A shard holds what its agent may know and no more; damage and wrong keys are told."""

import fcntl
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from agents.cases import make_case
from peers.harness import deployed, state_folder

from gossamer.errors import GossamerError
from gossamer.peers.driving import MissingNeighbourError
from gossamer.peers.local_processes import write_local_shards
from gossamer.peers.network.curve import make_curve_keys
from gossamer.peers.network.keys import write_secret
from gossamer.peers.process import PeerOptions, run_peer
from gossamer.peers.shards.shard import read_shard
from gossamer.runs.deployment import Deployment, make_deployment
from gossamer.runs.hosts import build_host, build_share_host
from gossamer.runs.settings import Settings, make_settings
from gossamer.runs.tensors import read_tensors


def test_a_shard_holds_nothing_of_another_agent(tmp_path: Path) -> None:
    deployment, settings = deployed()
    graph, owner = deployment.graph, deployment.assignment
    for k, folder in enumerate(write_local_shards(tmp_path, deployment, settings)):
        share = read_shard(folder).share
        mine = owner == k
        np.testing.assert_array_equal(share.features, graph.features[mine])
        np.testing.assert_array_equal(share.targets, graph.targets[mine])
        # No number on the disk is a feature of another agent.
        stored = np.concatenate([t.numpy().reshape(-1) for t in read_tensors(folder / "share.safetensors").values()])
        assert not np.isin(graph.features[~mine].reshape(-1), stored).any()
        assert {path.name for path in folder.iterdir()} == {"shard.json", "share.safetensors", "key.secret"}
        assert stat.S_IMODE((folder / "key.secret").stat().st_mode) == 0o600
        others = {contact.key for z, contact in read_shard(folder).membership.neighbours.items()}
        assert len(others) == 2  # the keys of its neighbours on the ring, and no more


def test_a_host_from_a_shard_is_the_host_of_the_deployment(tmp_path: Path) -> None:
    assert_same_hosts(tmp_path, *deployed())


@pytest.mark.parametrize(
    "options",
    [
        {"task": "multilabel"},
        {"task": "multilabel", "sampled": True, "balanced": True},
        {"balanced": True},
        {"sampled": True},
        {"batch": 3, "sampled": True},
    ],
    ids=str,
)
def test_weights_of_examples_are_in_the_shard(tmp_path: Path, options: dict[str, Any]) -> None:
    case = make_case(**options)
    chosen = make_settings({"agents": 4, "topology": "complete", "hidden": 5, "dtype": "float64"})
    settings = chosen.model_copy(update={"class_weights": "balanced" if case.balanced else "none"})
    deployment = make_deployment(case.graph, settings, assignment=case.owner)
    assert_same_hosts(tmp_path, deployment, settings)
    shares = [read_shard(tmp_path / f"agent-{k}").share for k in range(4)]
    assert (shares[0].example_weights is None) == ("sampled" not in options and options != {"balanced": True})
    total = sum(float(s.example_weights[s.masks["train"]].sum()) for s in shares if s.example_weights is not None)
    assert total in (0, pytest.approx(case.graph.train.sum()))


def assert_same_hosts(folder: Path, deployment: Deployment, settings: Settings) -> None:
    for k, shard in enumerate(write_local_shards(folder, deployment, settings)):
        found, expected = build_share_host(read_shard(shard).share, settings), build_host(deployment, settings, [k])
        for name, part in expected.params.items():
            assert torch.equal(found.params[name], part)
        for one, other in ((found.train_pass, expected.train_pass), (found.full_pass, expected.full_pass)):
            for name in ("features", "targets", "weights", "positive_weight"):
                part, same = getattr(one, name), getattr(other, name)
                assert (part is None and same is None) or torch.equal(part, same)
            rows: list[Any] = [on.plan.layers[0].propagations[0].rows for on in (one, other)]
            assert rows[0].outgoing == rows[1].outgoing


def test_a_damaged_shard_is_refused(tmp_path: Path) -> None:
    folder = write_local_shards(tmp_path, *deployed())[0]
    whole = (folder / "share.safetensors").read_bytes()
    (folder / "share.safetensors").write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    with pytest.raises(GossamerError, match="copy the shard again"):
        read_shard(folder)
    (folder / "share.safetensors").unlink()
    with pytest.raises(GossamerError, match="missing"):
        read_shard(folder)
    (folder / "shard.json").write_text("{")
    with pytest.raises(GossamerError, match="not valid JSON"):
        read_shard(folder)
    (folder / "shard.json").unlink()
    with pytest.raises(GossamerError, match="not a shard"):
        read_shard(folder)


def test_a_secret_key_that_others_can_read_or_that_is_another_one_is_refused(tmp_path: Path) -> None:
    folder = write_local_shards(tmp_path, *deployed())[0]
    (folder / "key.secret").chmod(0o644)
    with pytest.raises(GossamerError, match="chmod 600"):
        run_peer(folder, PeerOptions())
    (folder / "key.secret").unlink()
    with pytest.raises(GossamerError, match="cannot read the secret key"):
        run_peer(folder, PeerOptions())
    write_secret(folder / "key.secret", make_curve_keys()[1])
    with pytest.raises(GossamerError, match="not the key"):
        run_peer(folder, PeerOptions())
    with pytest.raises(GossamerError, match="exists"):
        write_secret(folder / "key.secret", "other")


def test_a_second_process_of_the_same_agent_is_kept_out(tmp_path: Path) -> None:
    folder = write_local_shards(tmp_path, *deployed())[0]
    with _held(folder), pytest.raises(GossamerError, match="another process trains the agent of"):
        run_peer(folder, PeerOptions(give_up=0.0))
    with pytest.raises(MissingNeighbourError):  # and let in when the first has gone
        run_peer(folder, PeerOptions(give_up=0.0))


@contextmanager
def _held(folder: Path) -> Iterator[None]:
    state_folder(folder).mkdir()
    with (state_folder(folder) / ".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
