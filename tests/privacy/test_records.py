"""Messages that peers record are those of the simulation with the same secrets, also after a death, and an audit reads
them; files that do not fit are refused."""

import shutil
import stat
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from peers.harness import M, deployed, in_threads, over, state_folder
from peers.memory import Hub
from peers.processes import Agents
from peers.test_sites import RUN, shards_of, write_sites
from peers.test_sites import over as over_sites
from peers.traps import STEP, Action, Moment, Trap
from runs.damage import damaged_bytes

from gossamer.auditing import AuditOptions, audit, audit_agent
from gossamer.engines.simulation import run_together
from gossamer.errors import GossamerError
from gossamer.peers import recorder
from gossamer.peers.local_processes import write_local_shards
from gossamer.peers.process import PeerOptions
from gossamer.privacy.audit import attack_run, audit_deployment
from gossamer.privacy.recording import record_run
from gossamer.runs.deployment import Deployment
from gossamer.runs.recordings import (
    RECORD_FOLDER,
    RecordedMessage,
    Recording,
    is_audited,
    list_message_files,
    read_recording,
)
from gossamer.runs.secret_files import make_secrets
from gossamer.runs.settings import Settings
from gossamer.runs.tensors import read_file, write_tensors

RECORDS = PeerOptions(give_up=60, record=True)
SMALL: dict[str, Any] = {"steps": 5, "evaluate_every": 2, "checkpoint_every": 3, "public_randomness": False}


def recorded(folder: Path) -> Path:
    return state_folder(folder) / RECORD_FOLDER


def read(folder: Path, agent: int) -> Recording:
    return read_recording(recorded(folder), recorded(folder).parent.name.removeprefix("run-"), agent)


def keys(message: RecordedMessage) -> Any:
    return message.plan, message.step, message.phase, message.index, message.link


def check_equal(found: Recording, expected: Recording) -> None:
    """The same messages, each once, to the same bits."""
    ours, theirs = ({keys(m): m.content for m in one.received} for one in (found, expected))
    assert len(found.received) == len(ours)
    assert sorted(ours) == sorted(theirs)
    assert len(ours) > 10
    for key, content in ours.items():
        assert torch.equal(content, theirs[key]), key
    assert {(m.step, m.index) for m in found.sent} == {
        (m.step, m.index) for m in expected.sent if m.phase == "consensus"
    }
    for one in found.sent:
        assert any(torch.equal(one.content, m.content) for m in expected.sent if keys(m)[:4] == keys(one)[:4])
    assert not found.own  # consensus shows the weights of others
    assert found.steps == expected.steps


def simulate(deployment: Deployment, settings: Settings, agent: int, secrets: Any) -> Recording:
    keep = partial(is_audited, settings)
    return record_run(deployment, settings, (agent,), settings.steps, run_together, keep, secrets)


@pytest.mark.parametrize(
    "changes",
    [
        {"update": "momentum", "dropout": 0.5},
        {"update": "adam", "keep": "best", "boundary_bits": 8, "dropout": 0.5},
        {"consensus": "masked", "dropout": 0.5},
    ],
    ids=str,
)
def test_recorded_over_sockets_are_the_simulations_for_the_same_secrets(
    tmp_path: Path, changes: dict[str, Any]
) -> None:
    deployment, settings = deployed(**SMALL, **changes)
    secrets = make_secrets(range(M))
    folders = write_local_shards(tmp_path, deployment, settings, secrets)
    assert in_threads(folders, RECORDS) == []
    masked = settings.masks
    for k in (0, 2):
        expected = simulate(deployment, settings, k, secrets)
        found = read(folders[k], k)
        if masked:  # sums of masked weights are rounded to a grid, in the same way but for the order of pads
            assert max((part - expected.own[key][name]).abs().max() for key, params in found.own.items()
                       for name, part in params.items()) < 1e-8  # fmt: skip
            assert {key[1] for key in found.own} == set(range(settings.steps + 1))
            assert "consensus" not in {m.phase for m in found.received}
        else:
            check_equal(found, expected)
        files = list_message_files(recorded(folders[k]))
        assert list(files) == [0, 3, 5]  # one for each checkpoint, and the last evaluation
        assert {stat.S_IMODE(path.stat().st_mode) for path in files.values()} == {0o600}


def test_nothing_is_recorded_unless_asked_for(tmp_path: Path) -> None:
    deployment, settings = deployed(**SMALL)
    folders = write_local_shards(tmp_path, deployment, settings)
    assert in_threads(folders, run=over(Hub())) == []
    assert not list(tmp_path.rglob(RECORD_FOLDER))
    found = audit(folders[0])
    assert found.feature_attack is None
    assert found.boundary_vertices > 0


@pytest.mark.parametrize("moment", [Moment.DURING_CONSENSUS, Moment.WHILE_CHECKPOINTING])
def test_a_death_leaves_a_record_without_a_gap(tmp_path: Path, moment: Moment) -> None:
    """All go back, and what was recorded of the steps that come again is replaced."""
    deployment, settings = deployed(
        steps=STEP + 4, checkpoint_every=8 if moment is Moment.DURING_CONSENSUS else STEP // 2, evaluate_every=STEP,
        dropout=0.5, public_randomness=False,
    )  # fmt: skip
    secrets = make_secrets(range(M))
    folders = write_local_shards(tmp_path, deployment, settings, secrets)
    with Agents(folders, record=True) as agents:
        agents.start_all({2: Trap(moment, Action.DIE, folders[2])})
        agents.wait_killed(2)
        agents.start(2)
        agents.wait_finished()
    for k in (1, 2):
        check_equal(read(folders[k], k), simulate(deployment, settings, k, secrets))
        assert not [path for path in recorded(folders[k]).iterdir() if path.name.startswith(".")]


@pytest.fixture(scope="module")
def launched(tmp_path_factory: pytest.TempPathFactory) -> tuple[Deployment, Settings, list[Path]]:
    """Agents that have recorded a run with public randomness."""
    deployment, settings = deployed(steps=5, evaluate_every=2, checkpoint_every=3, hidden=4, dropout=0.5)
    folders = write_local_shards(tmp_path_factory.mktemp("launched"), deployment, settings)
    assert in_threads(folders, RECORDS, over(Hub())) == []
    return deployment, settings, folders


def test_an_audit_of_the_record_finds_what_the_simulation_finds(
    launched: tuple[Deployment, Settings, list[Path]],
) -> None:
    deployment, settings, folders = launched
    one, other = (read(folders[k], k) for k in (0, 2))
    for curious, recording in (((0,), one), ((0, 2), one.join(other))):
        for steps in (None, 3):
            found, seen = audit_deployment(deployment, settings, curious)
            real = attack_run(found, seen, deployment, run_together, steps, 30, recording).to_dict()
            found, seen = audit_deployment(deployment, settings, curious)
            simulated = attack_run(found, seen, deployment, run_together, steps, 30).to_dict()
            assert (real.pop("recorded"), simulated.pop("recorded")) == (True, False)
            assert real == simulated
            assert real["attacked_steps"] == (steps or 5)


def test_an_agents_folder_says_what_it_received_without_a_rate(
    launched: tuple[Deployment, Settings, list[Path]],
) -> None:
    deployment, settings, folders = launched
    expected, _ = audit_deployment(deployment, settings, (1,))
    found = audit(folders[1], sample=20)
    assert [one.agent for one in found.neighbours] == [one.agent for one in expected.neighbours]
    for ours, theirs in zip(found.neighbours, expected.neighbours, strict=True):
        assert ours.ranks.vertices.tolist() == theirs.ranks.vertices.tolist()
        assert ours.ranks.alone.tolist() == theirs.ranks.alone.tolist()
        assert (ours.num_labels, ours.labels_alone) == (theirs.num_labels, theirs.labels_alone)
        assert (ours.ranks.rank <= theirs.ranks.rank).all()
    stated = found.to_dict()
    assert stated["recorded"]
    for attack in ("features", "labels"):
        assert stated["attacks"][attack]["rate"] is None
        assert stated["attacks"][attack]["baseline"] is None
    assert found.label_attack is not None
    for z, labels in found.label_attack.senders.items():
        assert (deployment.assignment[labels.vertices] == z).all()
        right = labels.guess == deployment.graph.targets[labels.vertices]
        assert right.sum() >= next(one.labels_alone for one in found.neighbours if one.agent == z)
    with pytest.raises(GossamerError, match="holds one agent's share"):
        audit(folders[1], curious=2)
    with pytest.raises(GossamerError, match="its own settings and data"):
        audit(folders[1], steps=3)


def test_sites_record_too(tmp_path: Path) -> None:
    deployment, settings = deployed(**SMALL | {"steps": 3})
    folders = shards_of(write_sites(tmp_path, deployment, settings), tmp_path / "shards")
    with pytest.raises(GossamerError, match="has not planned its share"):
        audit_agent(folders[0], AuditOptions())
    assert in_threads(folders, RECORDS, over_sites(Hub())) == []
    found = audit_agent(folders[0], AuditOptions(sample=10))
    expected, _ = audit_deployment(deployment, settings, (0,))
    assert found.recorded
    assert found.boundary_vertices == expected.boundary_vertices
    assert found.feature_attack is not None
    assert len(found.feature_attack.reconstructions) == 10
    assert read_recording(folders[0] / f"run-{RUN}" / RECORD_FOLDER, RUN, 0).steps == 3


def test_a_record_ends_before_the_first_step_that_would_exceed_its_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    deployment, settings = deployed(steps=6, evaluate_every=6, checkpoint_every=4, hidden=4)
    monkeypatch.setattr(recorder, "MAX_BUFFER_BYTES", 1)  # a file for each step
    made = recorder.Recorder
    monkeypatch.setattr("gossamer.peers.shard_work.Recorder", partial(made, most=4_000))
    folders = write_local_shards(tmp_path, deployment, settings)
    assert in_threads(folders, RECORDS, over(Hub())) == []
    for k, folder in enumerate(folders):
        steps = read(folder, k).steps
        assert 0 < steps < 6
        sizes = [path.stat().st_size for path in list_message_files(recorded(folder)).values()]
        assert len(sizes) == steps
        assert sum(sizes) < 4_000 + steps * 2_000  # headers come on top
        assert f"agent {k}: recorded messages reach 4.0 kB" in caplog.text
        found = audit(folder, sample=4)
        assert found.attacked_steps == steps


def test_damaged_records_are_refused(tmp_path: Path, launched: tuple[Deployment, Settings, list[Path]]) -> None:
    folder = recorded(launched[2][0])
    run = folder.parent.name.removeprefix("run-")
    copy = tmp_path / RECORD_FOLDER
    shutil.copytree(folder, copy)
    path = copy / "messages-3.safetensors"
    content = path.read_bytes()
    for changed in damaged_bytes(content, 150, seed=1):
        path.write_bytes(changed)
        if changed != content:
            with pytest.raises(GossamerError, match="messages-3"):
                read_recording(copy, run, 0)
    path.write_bytes(content)
    tensors, about = read_file(path)

    def rewrite(arrays: dict[str, Any], changes: dict[str, str]) -> None:
        write_tensors(path, arrays, 0o600, None, **{"run": run, "agent": "0"} | changes)

    one = next(name for name in tensors if ".forward." in name)
    for arrays, changes, message in (
        (tensors, {"agent": "1"}, "messages of agent 0"),
        (tensors, {"run": "other"}, "found those of agent 0 in 'other'"),
        (tensors | {"x": torch.zeros(1)}, {}, "unknown array 'x'"),
        (tensors | {"span": torch.tensor([4, 5])}, {}, "span should begin at step 3"),
        (tensors | {one: torch.full_like(tensors[one], torch.nan)}, {}, "NaN"),
    ):
        rewrite(arrays, changes)
        with pytest.raises(GossamerError, match=message):
            read_recording(copy, run, 0)
    rewrite(tensors, {})
    assert read_recording(copy, run, 0).steps == 5
    (copy / "messages-0.safetensors").unlink()
    with pytest.raises(GossamerError, match="no messages of step 0"):
        read_recording(copy, run, 0)
    assert about["agent"] == "0"


def test_a_record_that_does_not_fit_the_plan_is_refused(launched: tuple[Deployment, Settings, list[Path]]) -> None:
    deployment, settings, folders = launched
    lost: list[tuple[Callable[[RecordedMessage], bool], str]] = [
        (lambda m: m.plan == "train" and m.phase == "forward" and m.step == 2, "has no message of agent"),
        (lambda m: m.plan == "full" and m.step == 4, "plan full, step 4, has no message"),
        (lambda m: m.phase == "backward" and m.index == 1, "plan train, step 0, has no message"),
    ]
    for is_lost, message in lost:
        recording = read(folders[0], 0)
        recording.received = [one for one in recording.received if not is_lost(one)]
        found, seen = audit_deployment(deployment, settings, (0,))
        with pytest.raises(GossamerError, match=message):
            attack_run(found, seen, deployment, run_together, None, 4, recording)
    recording = read(folders[0], 0)
    recording.sent[0] = replace(recording.sent[0], content=torch.zeros(3))
    found, seen = audit_deployment(deployment, settings, (0,))
    with pytest.raises(GossamerError, match="weights, found 3"):
        attack_run(found, seen, deployment, run_together, None, 4, recording)
