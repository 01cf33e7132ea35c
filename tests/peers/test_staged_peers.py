"""Peers and sites whose runs have stages: the simulation's bits, also where one of them fails in any stage."""

from collections.abc import Generator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from peers.harness import M, deployed, in_threads, state_folder, weights
from peers.test_secrets import check_bits, collected
from peers.test_sites import RUN, shards_of, write_sites

from gossamer.agents.planning_exchanges import list_planning_exchanges
from gossamer.agents.salts import Secrets
from gossamer.engines.simulation import start_run
from gossamer.peers import shard_work
from gossamer.peers.local_processes import write_local_shards
from gossamer.peers.process import PeerOptions
from gossamer.peers.program import train_from
from gossamer.peers.shards.sites import make_site_shard
from gossamer.peers.staged_work import HANDED_FILE
from gossamer.runs.deployment import Deployment
from gossamer.runs.handover import train_stages
from gossamer.runs.observers import Observer
from gossamer.runs.secret_files import make_secrets
from gossamer.runs.settings import Settings
from gossamer.runs.tensors import read_tensors
from gossamer.runs.training import measure_scores, run_training

ENCODER = {"encoder": 3, "update": "adam", "step_size": 0.01}
PRIVATE = {"privacy": "node:epsilon=8,delta=1e-5,hops=2,noise=0.7", "step_size": 1.0}
EDGE = {"privacy": "edge:epsilon=9,delta=1e-5,noise=0.9", "update": "adam", "step_size": 0.01}
RELAYED = {**ENCODER, "topology": "ring", "lost_edges": "relay"}
SHORT: dict[str, Any] = {
    "steps": 8,
    "encoder_steps": 6,
    "evaluate_every": 4,
    "checkpoint_every": 3,
    "public_randomness": False,
}


def simulate(deployment: Deployment, settings: Settings, secrets: Secrets) -> tuple[Any, dict[str, torch.Tensor]]:
    """What the last stage before the graph network hands over, and the final weights."""
    given: dict[str, Any] = {"assignment": deployment.assignment, "combination": deployment.combination}
    run = train_stages(start_run(deployment.graph, settings, **given, secrets=secrets), lambda name, steps: Observer())
    return run.deployment.handed, run_training(run, measure=measure_scores).host.params


@pytest.mark.parametrize("changes", [ENCODER, PRIVATE, EDGE, RELAYED], ids=str)
def test_peers_have_the_simulations_bits_in_every_stage(tmp_path: Path, changes: dict[str, Any]) -> None:
    deployment, settings = deployed(**SHORT, **changes)
    secrets = make_secrets(range(M))
    folders = write_local_shards(tmp_path, deployment, settings, secrets)
    assert in_threads(folders) == []
    handed, expected = simulate(deployment, settings, secrets)
    check_bits([weights(folder) for folder in folders], expected)
    for k, folder in enumerate(folders):
        own = read_tensors(state_folder(folder) / "encoder" / HANDED_FILE)["handed"]
        assert np.array_equal(own.numpy(), handed[deployment.assignment == k])
    repeated = in_threads(folders)  # done already: nothing is trained again
    assert repeated == []


@pytest.mark.parametrize(("changes", "stage"), [(ENCODER, 0), (ENCODER, 1), (PRIVATE, 0), (PRIVATE, 1)], ids=str)
def test_a_peer_that_fails_in_a_stage_rejoins(
    tmp_path: Path, changes: dict[str, Any], stage: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    deployment, settings = deployed(**SHORT, **changes)
    secrets = make_secrets(range(M))
    folders = write_local_shards(tmp_path, deployment, settings, secrets)
    begun: list[int] = []

    def fail(host: Any, *rest: Any) -> Generator[Any, Any, Any]:
        """Agent 2 fails in the fifth exchange of a stage, or when it hands over, once."""
        inbox: Any = None
        program = train_from(host, *rest)
        if host.agents == (2,):
            begun.append(0)
        for number in range(10_000):
            try:
                planned = program.send(inbox)
            except StopIteration as done:
                return done.value
            if host.agents == (2,) and len(begun) == stage + 1 and number == 9:
                begun.append(0)
                raise RuntimeError("the power is gone")
            inbox = yield planned

    monkeypatch.setattr(shard_work, "train_from", fail)
    failures = in_threads(folders, PeerOptions(give_up=3))
    assert "the power is gone" in "".join(map(str, failures))
    assert in_threads(folders) == []
    _handed, expected = simulate(deployment, settings, secrets)
    check_bits([weights(folder) for folder in folders], expected)


# Sites round C otherwise than a cutter: without noise, which such a difference would draw anew, results are equal.
@pytest.mark.parametrize("changes", [ENCODER, {**PRIVATE, "privacy": "node:epsilon=inf,delta=1e-5"}], ids=str)
def test_sites_that_pool_nothing_have_the_same_stages(tmp_path: Path, changes: dict[str, Any]) -> None:
    deployment, settings = deployed(**SHORT, **changes)
    paths = write_sites(tmp_path, deployment, settings)
    site = make_site_shard(paths[0])[0].site
    plain, _ = deployed(**SHORT)
    (tmp_path / "plain").mkdir()
    other = make_site_shard(write_sites(tmp_path / "plain", plain, deployed(**SHORT)[1])[0])[0].site
    private = "privacy" in changes
    assert site.private == private
    halo = [one for one in list_planning_exchanges(site) if one.expected == list_planning_exchanges(other)[1].expected]
    assert bool(halo) != private  # neither degrees nor marks of boundary vertices are sent
    check_stages(shards_of(paths, tmp_path / "shards"), deployment, settings)


def test_sites_relay_rows_of_the_last_stage(tmp_path: Path) -> None:
    deployment, settings = deployed(**SHORT, **RELAYED)
    check_stages(shards_of(write_sites(tmp_path, deployment, settings), tmp_path / "shards"), deployment, settings)


def check_stages(folders: list[Path], deployment: Deployment, settings: Settings) -> None:
    """Sites end with the weights of the simulation that has their secrets."""
    assert in_threads(folders) == []
    secrets = collected([folder / f"run-{RUN}" for folder in folders])
    _, expected = simulate(deployment, settings, secrets)
    for k, folder in enumerate(folders):
        for name, part in read_tensors(folder / f"run-{RUN}" / "weights.safetensors").items():
            torch.testing.assert_close(part[0], expected[name][k], rtol=0, atol=1e-9)


def test_a_private_shard_says_nothing_of_its_neighbours_vertices(tmp_path: Path) -> None:
    from gossamer.peers.shards.shard import read_shard

    deployment, settings = deployed(**SHORT, **PRIVATE)
    folders = write_local_shards(tmp_path, deployment, settings)
    for folder in folders:
        share = read_shard(folder).share
        (topology,) = share.topologies
        assert set(topology.entries[2].tolist()) == {1.0}
        assert not any(rows[~share.hosted].any() for sets in topology.train_fields for rows in sets)
