"""A run that agents left is simulated from their folders to the same bits; what the simulation lacks is told."""

import json
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from peers.changing import find_state, wait_for_members, write_changing
from peers.harness import deployed
from peers.processes import Agents, wait_until
from typer.testing import CliRunner

from gossamer import replaying
from gossamer.agents.host import TRACKER
from gossamer.cli import app
from gossamer.errors import GossamerError
from gossamer.peers.checkpoints import find_checkpoints
from gossamer.peers.histories import TermTraining, list_trainings
from gossamer.peers.identity import add_admitted
from gossamer.peers.local_processes import write_local_shards
from gossamer.peers.protocol.terms import Term, make_entries
from gossamer.peers.term_folders import BEGINS, MEMBERSHIP_LOG, Begin, read_begin
from gossamer.runs.tensors import read_tensors, write_tensors

AGENTS = 5
ADAM = {"update": "adam", "step_size": 0.01, "dropout": 0.3}  # with gradient tracking
GCN = {"layers": "gcn", "update": "momentum"}
COMMON: dict[str, Any] = {
    "agents": AGENTS,
    "topology": "complete",
    "evict_after": 1.0,
    "dtype": "float32",
    "public_randomness": False,
    "measure": "none",
    "steps": 150,
    "checkpoint_every": 10,
    "evaluate_every": 50,
}


def cut(folder: Path, changes: dict[str, Any]) -> list[Path]:
    deployment, settings = deployed(**COMMON | changes)
    return write_local_shards(folder, deployment, settings)


def train_with_losses(folders: list[Path]) -> None:
    """Train; agent 4 dies for good in membership 0, agent 3 leaves in membership 1."""
    with Agents(folders) as agents:
        agents.start_all()
        wait_until(lambda: _has_trained(folders[4], 20), "membership 0 trains")
        agents.signal(4, signal.SIGKILL)
        agents.wait_killed(4)
        wait_until(lambda: _has_trained(folders[3], 1, "membership-1"), "membership 1 trains")
        (find_state(folders[3]) / "leave").touch()
        agents.folders = folders[:4]  # of agent 4 nobody hears again
        agents.wait_finished()


def _has_trained(folder: Path, steps: int, membership: str = ".") -> bool:
    found = [step for run in folder.glob("run-*") for step in find_checkpoints(run / membership)]
    return max(found, default=0) >= steps


@pytest.fixture(scope="module", params=[GCN, ADAM], ids=["gcn", "adam"])
def folders(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    found = cut(tmp_path_factory.mktemp("shards"), request.param)
    train_with_losses(found)
    return found


@pytest.fixture
def copies(folders: list[Path], tmp_path: Path) -> list[Path]:
    """The same folders, to be damaged."""
    return [Path(shutil.copytree(folder, tmp_path / folder.name)) for folder in folders]


def test_a_replay_ends_with_the_same_bits(folders: list[Path], tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["replay", str(folders[0]), "--json", "--out", str(tmp_path / "out")])
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert found["finished"]
    assert [one["agents"] for one in found["memberships"]] == [[0, 1, 2, 3, 4], [0, 1, 2, 3], [0, 1, 2]]
    assert found["memberships"][-1]["to"] == COMMON["steps"]
    assert found["agents"] == [{"agent": k, "same": True, "difference": 0.0} for k in range(3)]
    stacked = read_tensors(tmp_path / "out" / "weights.safetensors")
    for k in range(3):
        for name, part in read_tensors(find_state(folders[k]) / "weights.safetensors").items():
            assert torch.equal(stacked[name][k : k + 1], part)
        scores = json.loads((find_state(folders[k]) / "run.json").read_text())["summary"]
        assert (scores["distributed"], scores["best_step"]) == (found["distributed"], found["step"])


def test_statistics_that_begin_anew_with_a_membership_decide_the_bits(
    folders: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Trackers that a replay keeps, or adam's statistics that it forgets, are found out."""
    tracked = any(name.startswith(f"state.{TRACKER}") for name in _read_checkpoint(folders[0]))
    kinds = {"keep all": lambda params, state, settings: (params, state),
             "keep none": lambda params, state, settings: (params, {})}  # fmt: skip
    for kind, select in kinds.items():
        monkeypatch.setattr(replaying, "select_statistics", select)
        same = replaying.replay_folders(folders[1]).same
        assert same == (kind == "keep all" and not tracked), kind


def _read_checkpoint(folder: Path) -> dict[str, torch.Tensor]:
    return read_tensors(next(find_state(folder).rglob("checkpoint-*.safetensors")))


def test_other_bits_are_shown_and_end_with_an_exit_code(copies: list[Path]) -> None:
    path = find_state(copies[1]) / "membership-2" / "weights.safetensors"
    weights = read_tensors(path)
    weights["layer.0.weight"][0, 0, 0] += 1
    write_tensors(path, weights)
    (find_state(copies[2]) / "membership-2" / "weights.safetensors").unlink()
    done = CliRunner().invoke(app, ["replay", str(find_state(copies[0]) / MEMBERSHIP_LOG)], env={"COLUMNS": "200"})
    assert done.exit_code == 1, done.output
    for words in ("the same bits", "other bits, by up to 1", "no weights to compare with"):
        assert words in done.stdout


def test_what_a_replay_lacks_is_told(copies: list[Path], tmp_path: Path) -> None:
    away = tmp_path / "elsewhere"
    away.mkdir()
    shutil.move(copies[4], away / "agent-4")
    with pytest.raises(GossamerError, match="agent 4 is missing; copy it beside the others, or give it with --agents"):
        replaying.replay_folders(copies[0])
    assert replaying.replay_folders(copies[0], [away]).same
    shutil.copytree(copies[1], away / "agent-1")
    with pytest.raises(GossamerError, match="agent 1 is given twice"):
        replaying.replay_folders(copies[0], [away])
    with pytest.raises(GossamerError, match=r"expected an agent's folder, or a folder with folders agent-\*"):
        replaying.replay_folders(copies[0], [tmp_path / "nowhere"])
    with pytest.raises(GossamerError, match=r"expected memberships\.jsonl of an agent"):
        replaying.replay_folders(tmp_path)
    (find_state(copies[2]) / "membership-1" / "secrets.json").unlink()
    with pytest.raises(GossamerError, match=r"agent 2 has no secret of membership 1 .*put the file back from a copy"):
        replaying.replay_folders(copies[0], [away / "agent-4"])


def test_a_damaged_log_is_told(copies: list[Path]) -> None:
    log = find_state(copies[0]) / MEMBERSHIP_LOG
    whole = log.read_text()
    log.write_text(whole.replace('"membership": 0', '"membership": 7'))
    with pytest.raises(GossamerError, match=r"memberships\.jsonl is damaged"):
        replaying.replay_folders(log)
    log.write_text(whole.replace('{"agent": 2, "profile": ""}', '{"agent": 1, "profile": ""}'))
    with pytest.raises(GossamerError, match="have logged different memberships after 0"):
        replaying.replay_folders(log)
    log.unlink()
    assert replaying.replay_folders(copies[0]).same  # the longest log counts


def test_who_left_is_replayed_by_the_logs_of_the_others(folders: list[Path]) -> None:
    assert len((find_state(folders[3]) / MEMBERSHIP_LOG).read_text().splitlines()) == 2
    assert replaying.replay_folders(folders[3]).history.finished


def test_notes_of_a_beginning_that_differ_are_told(copies: list[Path]) -> None:
    path = find_state(copies[1]) / "membership-1" / BEGINS
    begin = read_begin(path.parent)
    assert begin is not None
    path.write_text(path.read_text().replace(f'"step": {begin.step}', f'"step": {begin.step + 10}'))
    with pytest.raises(GossamerError, match=f"membership 1: agent 0 has noted step {begin.step} of membership 0, and"):
        replaying.replay_folders(copies[0])


def test_a_run_that_never_changed_is_replayed(tmp_path: Path) -> None:
    folders = cut(tmp_path, {"steps": 20, "agents": 3, "topology": "line", **ADAM})
    with Agents(folders) as agents:
        agents.start_all()
        agents.wait_finished()
    replayed = replaying.replay_folders(folders[2])
    assert replayed.same
    assert all(one.difference == 0 for one in replayed.agents)
    assert [one.until for one in replayed.history.trainings] == [None]


def test_an_agent_that_joins_is_replayed(tmp_path: Path) -> None:
    """It declares its edges, and takes over a neighbour's weights."""
    folders, keys = write_changing(tmp_path, 3, 1, steps=800, measure="none", evaluate_every=60)
    with Agents(folders) as agents:
        for folder in folders[:3]:
            add_admitted(folder, keys[3])
        for k in range(3):
            agents.start(k)
        wait_for_members(folders[0], range(3), step=20)
        agents.start(3)
        agents.wait_finished()
    replayed = replaying.replay_folders(folders[3])
    assert [one.term.ids for one in replayed.history.trainings] == [(0, 1, 2), (0, 1, 2, 3)]
    assert replayed.history.trainings[1].begin.adopters == (3,)
    assert [(one.agent, one.same, one.difference) for one in replayed.agents] == [(k, True, 0.0) for k in range(4)]


def test_a_run_whose_agents_cannot_leave_is_refused(tmp_path: Path) -> None:
    folders = cut(tmp_path, {"evict_after": None})
    with pytest.raises(GossamerError, match=r"expected memberships\.jsonl of an agent.*gossamer train --secrets"):
        replaying.replay_folders(folders[0])


def name(number: int, *ids: int) -> Term:
    return Term(number, make_entries(ids), f"membership-{number}")


def test_only_the_trainings_count_that_the_end_follows_from() -> None:
    """Membership 1 never got to a checkpoint; an agent that took over weights later may have noted something else."""
    terms = [name(0, 0, 1, 2, 3), name(1, 0, 1, 2), name(2, 0, 1, 2, 3)]
    begins = {
        **{(k, 0): Begin() for k in (1, 2, 3)},
        (0, 0): Begin(0, 3),  # stale: agent 0 takes over weights in membership 2
        **{(k, 1): Begin(0, 20) for k in range(3)},
        **{(k, 2): Begin(0, 10, (0,)) for k in range(4)},
    }
    found = list_trainings(terms, lambda agent, number: begins.get((agent, number)), range(4))
    assert found == (TermTraining(terms[0], Begin(), 10), TermTraining(terms[2], Begin(0, 10, (0,))))


@pytest.mark.parametrize(
    ("begin", "message"),
    [
        (None, "no agent of membership 1 has noted where its training began"),
        (Begin(1, 3), "agent 0 has noted step 3 of membership 1, which cannot be"),
        (Begin(0, 3, (7,)), "which cannot be"),
    ],
)
def test_beginnings_that_cannot_be_are_told(begin: Begin | None, message: str) -> None:
    terms = [name(0, 0, 1, 2), name(1, 0, 1)]
    with pytest.raises(GossamerError, match=message):
        list_trainings(terms, lambda agent, number: begin, range(2))
