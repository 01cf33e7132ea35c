"""Peers log by the standard library: progress, epochs and refusals, and a flood does not flood the log."""

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest
from peers.disks import capture_log
from peers.harness import M, deployed, in_threads, over, state_folder
from peers.memory import Hub

from gossamer.peers import progress
from gossamer.peers.local_processes import write_local_shards
from gossamer.peers.progress import LONG_WAIT, PeerReport, ProgressLog
from gossamer.peers.refusals import RefusalLog


@pytest.fixture(autouse=True)
def _logger_of_the_library(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Undo what a command of an earlier test has set."""
    logger = logging.getLogger("gossamer")
    monkeypatch.setattr(logger, "handlers", [])
    monkeypatch.setattr(logger, "propagate", True)
    level = logger.level
    logger.setLevel(logging.INFO)
    yield
    logger.setLevel(level)


def test_a_flood_of_refusals_takes_few_lines(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    refusals = RefusalLog(tmp_path / "refused.jsonl", 7)
    with caplog.at_level(logging.INFO, "gossamer"):
        for _ in range(1000):
            refusals.add(3, "checksum")
            refusals.add(3, "old", "position")
            refusals.add("10.0.0.1:9", "handshake", "no CurveZMQ")
    written = [json.loads(line) for line in (tmp_path / "refused.jsonl").read_text().splitlines()]
    assert len(caplog.records) == len(written) == 3 * 12
    assert [record.levelname for record in caplog.records[:3]] == ["WARNING", "INFO", "WARNING"]
    assert caplog.records[0].name == "gossamer.peers.refusals"
    assert caplog.records[0].getMessage() == "agent 7 refused a message of agent 3: checksum (1 so far)"
    assert caplog.records[2].getMessage() == (
        "agent 7 refused a message of 10.0.0.1:9: handshake, no CurveZMQ (1 so far)"
    )


def test_a_training_logs_its_epochs_and_its_end_and_prints_nothing(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folders = write_local_shards(tmp_path, *deployed(steps=10))
    with capture_log("gossamer.peers") as lines:
        assert in_threads(folders, run=over(Hub())) == []
    for agent in range(M):
        mine = [line for line in lines if line.startswith(f"agent {agent}: ")]
        assert any(", training from step 0" in line for line in mine)
        assert "step 10" in mine[-1]
        assert "all agents have finished" in mine[-1]
        assert (state_folder(folders[agent]) / "done").is_file()
    assert capfd.readouterr().out == ""


def report(**changes: object) -> PeerReport:
    usual: PeerReport = {
        "agent": 1, "step": 4, "planning": False, "epoch": 2, "metrics": None, "neighbours": [0], "bytes_in": 0,
        "bytes_out": 0, "links": {}, "refused": {}, "refused_from": {}, "dropped": 0,
        "steps": 10, "serving": False, "time": 0.0, "process": 1,
        "cpu_seconds": 0.0,
        "finished": False, "all_done": False, "waiting_for": [0], "waited": 0.0,
    }  # fmt: skip
    return cast(PeerReport, {**usual, **changes})


def test_progress_is_logged_when_it_has_changed_and_waiting_when_it_has_doubled() -> None:
    log = ProgressLog()
    with capture_log(progress.__name__) as lines:
        for tenth in range(1000):
            log.add(report(waited=tenth / 10), tenth / 10)
    assert lines[0] == "agent 1: step 4, epoch 2"
    waits = [float(line.split("waiting ")[1].split()[0]) for line in lines[1:]]
    assert waits == [2, 4, 8, 16, 32, 64]
    assert lines[-1].endswith("waiting 64 s for agent 0")
    with capture_log(progress.__name__) as lines:
        for tenth in range(100):
            log.add(report(step=tenth, refused={"old": 3, "checksum": 2}), 100 + tenth / 10)
        log.add(report(step=100, all_done=True, metrics={"train": [3.0, 2.0, 5, 1, 1, 2]}), 110.0)
    assert len(lines) == 6
    assert lines[0] == "agent 1: step 0, epoch 2, refused 2 checksum"
    assert lines[-1] == "agent 1: step 100, epoch 2, loss 1.5000, all agents have finished"


def test_who_waits_to_join_is_told_where_to_look() -> None:
    with capture_log(progress.__name__) as lines:
        ProgressLog().add(report(waited=LONG_WAIT, standing="joining"), 0.0)
    assert lines[0].endswith("for agent 0 to let it join; the log of one that refuses it says why")


def test_long_waiting_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    log = ProgressLog()
    with caplog.at_level(logging.INFO, "gossamer"):
        log.add(report(waited=LONG_WAIT - 1), 0.0)
        log.add(report(waited=2 * LONG_WAIT), 30.0)
    waits = [record.levelname for record in caplog.records if "waiting" in record.getMessage()]
    assert waits == ["INFO", "WARNING"]
