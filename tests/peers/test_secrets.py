"""Peers with secrets of their own: the simulation with the same secrets has their bits, also after a death."""

import stat
from pathlib import Path
from typing import Any

import pytest
import torch
from peers.harness import M, check, deployed, in_threads, over, simulated, state_folder, weights
from peers.memory import Hub
from peers.processes import Agents
from peers.test_sites import RUN, shards_of, write_sites
from peers.test_sites import over as over_sites
from peers.traps import STEP, Action, Moment, Trap

from gossamer.agents.salts import Secrets
from gossamer.engines.simulation import SeparateAgents, run
from gossamer.peers.local_processes import write_local_shards
from gossamer.peers.shards.sites import make_site_shard
from gossamer.runs.deployment import Deployment
from gossamer.runs.hosts import build_host
from gossamer.runs.secret_files import SECRETS_FILE, make_secrets, read_secrets, take_own_secret
from gossamer.runs.settings import Settings
from gossamer.runs.tensors import read_tensors

RANDOM = {"dropout": 0.5, "boundary_bits": 8, "public_randomness": False}


def collected(folders: list[Path]) -> Secrets:
    """The secrets that the agents keep, each its own alone, as nobody else can read."""
    found: dict[int, bytes] = {}
    for k, folder in enumerate(folders):
        path = folder / SECRETS_FILE
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        found |= read_secrets(path, [k]).by_agent
    assert len(set(found.values())) == len(folders)
    return Secrets(found)


def simulate(deployment: Deployment, settings: Settings, secrets: Secrets) -> dict[str, torch.Tensor]:
    """The weights of the same training, every agent on a host of its own."""
    host, iterate = build_host(deployment, settings), SeparateAgents(deployment, settings, secrets)
    for _ in range(settings.steps):
        host, _ = run(iterate(host))
    return host.params


def check_bits(found: list[dict[str, torch.Tensor]], expected: dict[str, torch.Tensor]) -> None:
    for k, own in enumerate(found):
        assert all(torch.equal(part[0], expected[name][k]) for name, part in own.items())


@pytest.mark.parametrize(
    "changes",
    [{"update": "adam", "step_size": 0.01}, {"update": "momentum", "step_size": 0.02, "compress": "power:1"}],
    ids=str,
)
def test_given_secrets_are_used_and_simulated_to_the_same_bits(tmp_path: Path, changes: dict[str, Any]) -> None:
    deployment, settings = deployed(steps=12, **changes, **RANDOM)
    secrets = make_secrets(range(M))
    folders = write_local_shards(tmp_path, deployment, settings, secrets)
    assert in_threads(folders, run=over(Hub())) == []
    assert collected([state_folder(folder) for folder in folders]) == secrets
    check_bits([weights(folder) for folder in folders], simulate(deployment, settings, secrets))


def test_a_peer_makes_its_secret_at_its_first_start_and_public_randomness_needs_none(tmp_path: Path) -> None:
    deployment, settings = deployed(steps=6, **RANDOM)
    folders = write_local_shards(tmp_path / "apart", deployment, settings)
    assert not list(tmp_path.rglob(SECRETS_FILE))
    assert in_threads(folders, run=over(Hub())) == []
    secrets = collected([state_folder(folder) for folder in folders])
    found = [weights(folder) for folder in folders]
    check_bits(found, simulate(deployment, settings, secrets))
    former = simulated(deployment, settings)  # from the seed
    assert all((part[0] - former[name][0]).abs().max() > 1e-4 for name, part in found[0].items())
    for folder in folders:  # what an agent gets, and what it leaves behind: its own secret in one file
        for k, secret in secrets.by_agent.items():
            holding = [path for path in folder.rglob("*") if path.is_file() and _holds(path, secret)]
            own = state_folder(folder) / SECRETS_FILE
            assert holding == ([own] if folder.name == f"agent-{k}" else [])

    public = settings.model_copy(update={"public_randomness": True})
    folders = write_local_shards(tmp_path / "public", deployment, public)
    assert in_threads(folders, run=over(Hub())) == []
    assert not list((tmp_path / "public").rglob(SECRETS_FILE))
    check(folders, former)


def _holds(path: Path, secret: bytes) -> bool:
    content = path.read_bytes()
    return secret in content or secret.hex().encode() in content


def test_a_killed_peer_goes_on_with_its_secret(tmp_path: Path) -> None:
    deployment, settings = deployed(steps=2 * STEP, checkpoint_every=STEP // 2, evaluate_every=STEP, **RANDOM)
    folders = write_local_shards(tmp_path, deployment, settings)
    with Agents(folders) as agents:
        agents.start_all({2: Trap(Moment.DURING_CONSENSUS, Action.DIE, folders[2])})
        agents.wait_killed(2)
        kept = (state_folder(folders[2]) / SECRETS_FILE).read_bytes()
        agents.start(2)
        agents.wait_finished()
    assert (state_folder(folders[2]) / SECRETS_FILE).read_bytes() == kept
    secrets = collected([state_folder(folder) for folder in folders])
    check_bits([weights(folder) for folder in folders], simulate(deployment, settings, secrets))
    for folder in folders:
        assert not _holds(folder / "errors.log", secrets.by_agent[0])
        assert not _holds(folder / "errors.log", secrets.by_agent[2])


def test_sites_make_their_own_secrets_and_must_agree_on_public_randomness(tmp_path: Path) -> None:
    deployment, settings = deployed(steps=6, **RANDOM)
    (tmp_path / "public").mkdir()
    paths = write_sites(tmp_path, deployment, settings)
    public = write_sites(tmp_path / "public", deployment, settings.model_copy(update={"public_randomness": True}))
    assert make_site_shard(paths[0])[0].site.terms != make_site_shard(public[0])[0].site.terms
    folders = shards_of(paths, tmp_path / "shards")
    assert in_threads(folders, run=over_sites(Hub())) == []
    secrets = collected([folder / f"run-{RUN}" for folder in folders])
    expected = simulate(deployment, settings, secrets)
    for k, folder in enumerate(folders):
        found = read_tensors(folder / f"run-{RUN}" / "weights.safetensors")
        for name, part in expected.items():
            torch.testing.assert_close(found[name][0], part[k], rtol=0, atol=1e-10)


def test_a_secret_that_is_lost_in_a_run_is_made_anew_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first = take_own_secret(tmp_path, 2)
    assert take_own_secret(tmp_path, 2) == first
    (tmp_path / SECRETS_FILE).unlink()
    take_own_secret(tmp_path, 2)  # before the first checkpoint nothing depends on it
    assert not caplog.text
    (tmp_path / SECRETS_FILE).unlink()
    (tmp_path / "checkpoint-10.safetensors").touch()
    assert take_own_secret(tmp_path, 2) != first
    assert "agent 2 has checkpoints and no secrets.json" in caplog.text
    assert "cannot be simulated to the same bits" in caplog.text
