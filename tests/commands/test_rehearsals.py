"""Rehearsals with real processes: agents are killed, join, leave and are cut off, and the others go on."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from commands.inside import run

from gossamer.errors import GossamerWarning
from gossamer.peers.run_history import read_history
from gossamer.report.live.feed import Feed
from gossamer.report.live.folders import FolderSource
from gossamer.report.live.log_lines import LogLines
from gossamer.runs.tensors import read_tensors

pytestmark = pytest.mark.slow
LIMIT = 150.0  # seconds for anything that is waited for
OPTIONS = (
    "launch digits --assignment uniform --topology complete --no-baselines --hidden 16 --checkpoint-every 10 "
    "--evaluate-every 5 --evict-after 3"
)
SCRIPT = """
[[event]]
at = 10
join = 4

[[event]]
at = 20
kill = 3

[[event]]
at = 60
leave = 1
"""
CUT = """
[[event]]
at = 20
cut = [0]
seconds = 6
"""


def rehearse(folder: Path, script: str, agents: int, steps: int, *options: str) -> Any:
    (folder / "script.toml").write_text(script)
    more = ["--agents", str(agents), "--steps", str(steps), "--script", "script.toml", "--out", "run", "--json"]
    more += options
    done = run(*OPTIONS.split(), *more, cwd=folder)
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    folders = sorted((folder / "run" / "agents").iterdir())
    return SimpleNamespace(folder=folder / "run", folders=folders, summary=summary, said=done.stderr)


@pytest.fixture(scope="module")
def rehearsed(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Four agents and one that joins; one is killed, one leaves."""
    return rehearse(tmp_path_factory.mktemp("rehearsal"), SCRIPT, 4, 600)


def test_agents_that_are_killed_join_and_leave_change_the_membership(rehearsed: Any) -> None:
    memberships = rehearsed.summary["memberships"]
    assert [one["number"] for one in memberships] == list(range(len(memberships)))
    assert memberships[0]["members"] == [0, 1, 2, 3]
    assert memberships[-1]["members"] == [0, 2, 4]
    assert {"number", "members", "from_step", "seconds", "stopped"} == set(memberships[-1])
    trained = [one for one in memberships if one["from_step"] is not None]  # not one that the next followed at once
    assert {0, memberships[-1]["number"]} <= {one["number"] for one in trained}
    steps = [one["from_step"] for one in trained]
    assert steps == sorted(steps)
    assert [one["seconds"] for one in trained] == sorted(one["seconds"] for one in trained)
    timeline = json.loads((rehearsed.folder / "timeline.json").read_text())
    assert [(one["kind"], one["agents"]) for one in timeline["events"]] == [
        ("join", [4]),
        ("kill", [3]),
        ("leave", [1]),
    ]
    last = {one["agent"]: one["standing"] for one in timeline["standings"]}
    assert last == {0: "finished", 1: "left", 2: "finished", 3: "gone", 4: "finished"}
    assert (rehearsed.folder / "memberships.png").is_file()
    assert "agent 3 killed" in rehearsed.said
    assert "ended with code" not in rehearsed.said


def test_a_rehearsal_leaves_the_run_directory_of_its_last_members(rehearsed: Any) -> None:
    assert rehearsed.summary["steps"] == 600
    assert "total_bytes" not in rehearsed.summary["messages"]  # of earlier memberships nobody has counted them
    assert rehearsed.summary["distributed"]["test"]["accuracy"] > 0.8
    weights = read_tensors(rehearsed.folder / "weights.safetensors")
    assert {len(part) for part in weights.values()} == {3}
    lines = [json.loads(line) for line in (rehearsed.folder / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [*range(0, 601, 5)]  # of all memberships
    (state,) = rehearsed.folders[0].glob("run-*")  # of an agent that was a member all the time
    assert (state / "run.json").is_file()
    logged: dict[int, Any] = {}  # by steps, what all members of that moment had
    measured: dict[tuple[int, int], float] = {}  # by memberships, too: the next one may have gone back
    begins = {one["number"]: one["from_step"] for one in rehearsed.summary["memberships"]}
    for number, begin in begins.items():
        if begin is None:
            continue
        folder = state / f"membership-{number}" if number else state
        entries = [json.loads(line) for line in (folder / "evaluations.jsonl").read_text().splitlines()]
        new = {one["step"]: one["network"] for one in entries if one["step"] >= begin}
        measured |= {(number, step): scores["validation"]["accuracy"] for step, scores in new.items()}
        logged |= new
    for line in lines:
        for mask in ("train", "validation", "test"):
            assert line[mask]["accuracy"] == pytest.approx(logged[line["step"]][mask]["accuracy"]), line["step"]
            assert line[mask]["loss"] == pytest.approx(logged[line["step"]][mask]["loss"]), line["step"]
    points = json.loads((rehearsed.folder / "timeline.json").read_text())["scores"]
    assert points
    for one in points:
        assert one["score"] == pytest.approx(measured[one["membership"], one["step"]]), one
    done = run("predict", str(rehearsed.folder), cwd=rehearsed.folder)
    assert (done.returncode, "predict with each of them: gossamer predict AGENT" in done.stderr) == (2, True)
    again = run("launch", "--resume", str(rehearsed.folder), cwd=rehearsed.folder)
    assert (again.returncode, "is of a rehearsal" in again.stderr) == (2, True)


def test_a_rehearsal_can_be_watched_afterwards(rehearsed: Any) -> None:
    feed = Feed()
    with FolderSource(feed, LogLines(), rehearsed.folder).publisher:
        pass
    _, view = feed.latest()
    assert view is not None
    assert view["state"] == "finished"
    assert {one["agent"]: one["state"] for one in view["agents"]} == {
        0: "finished",
        1: "left",
        2: "finished",
        3: "missing",
        4: "finished",
    }
    assert view["memberships"] == rehearsed.summary["memberships"]
    assert [one["step"] for one in view["evaluations"]] == [*range(0, 601, 5)]
    assert set(view["positions"]) == {"0", "1", "2", "3", "4"}


def test_a_rehearsal_is_reported_with_its_memberships(rehearsed: Any) -> None:
    done = run("report", "run", "--json", cwd=rehearsed.folder.parent)
    assert done.returncode == 0, done.stderr
    assert "Memberships and timeline" in json.loads(done.stdout)["sections"]
    text = (rehearsed.folder / "report.html").read_text()
    assert "agent 3 killed" in text
    assert 'alt="Validation score above a row for each agent' in text
    assert "--agents 4" in text  # that it began with
    assert "come and gone, which no data set holds" in text
    peer = run("report", str(rehearsed.folders[0]), "--out", "peer.html", cwd=rehearsed.folder.parent)
    assert peer.returncode == 0, peer.stderr
    assert "agent 0 of 3" in (rehearsed.folder.parent / "peer.html").read_text()


def test_gather_takes_the_members_and_names_the_others(rehearsed: Any, tmp_path: Path) -> None:
    named = "agent 1, 3 was no member .* holds the agents 0, 2, 4, numbered 0 to 2 in this order"
    with pytest.warns(GossamerWarning, match=named):
        done = run("gather", *map(str, rehearsed.folders), "--out", "whole", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    found = summary["distributed"]
    ours, theirs = (
        [[one[name] for name in ("number", "members", "from_step")] for one in whole["memberships"]]
        for whole in (summary, rehearsed.summary)
    )
    assert ours == theirs
    assert "total_bytes" not in summary["messages"]
    for mask, scores in rehearsed.summary["distributed"].items():
        assert found[mask] == pytest.approx(scores, nan_ok=True)
    members = [rehearsed.folders[agent] for agent in (4, 0, 2)]
    alone = run("gather", *map(str, members), "--out", "members", cwd=tmp_path)
    assert alone.returncode == 0, alone.stderr  # without a warning
    assert (tmp_path / "members" / "metrics.jsonl").read_text() == (tmp_path / "whole" / "metrics.jsonl").read_text()
    missing = run("gather", *map(str, rehearsed.folders[:4]), "--out", "missing", cwd=tmp_path)
    assert missing.returncode == 2
    assert "the members of the run's last membership" in missing.stderr
    assert "missing: 4. Copy them here" in missing.stderr
    twice = run("gather", *map(str, [*members, members[0]]), "--out", "twice", cwd=tmp_path)
    assert "agent 4 is given twice" in twice.stderr


def test_an_agent_that_is_cut_off_comes_back(tmp_path: Path) -> None:
    found = rehearse(tmp_path, CUT, 3, 600, "--evaluate-every", "1")  # slow steps: 6 s are over before them
    members = [one["members"] for one in found.summary["memberships"]]
    assert members[0] == [0, 1, 2]
    assert [1, 2] in members, found.said
    back = members[-1] == [0, 1, 2]
    assert back or members[-1] == [1, 2]  # on a fast machine the others have finished by then
    timeline = json.loads((found.folder / "timeline.json").read_text())
    assert [one["kind"] for one in timeline["events"]] == ["cut", "heal"]
    assert "split" in [one["standing"] for one in timeline["standings"] if one["agent"] == 0]
    assert not list(found.folder.glob("agents/agent-*/run-*/cut"))
    history = read_history(found.folders)
    assert (history.is_whole, history.others) == ((True, ()) if back else (False, (0,)))
    done = run("predict", "run", cwd=tmp_path)
    assert (done.returncode == 0) == back, done.stderr  # all vertices are there


def test_a_launch_goes_on_without_an_agent_and_after_an_interruption(tmp_path: Path) -> None:
    """Without a script: an agent dies, the launch is stopped and resumed, and the agent comes back."""
    command = [sys.executable, "-m", "gossamer", *OPTIONS.split(), "--agents", "3", "--steps", "400", "--out", "run"]
    with (tmp_path / "errors").open("wb") as errors:
        launched = subprocess.Popen(command, cwd=tmp_path, stderr=errors)
    try:
        wait_for(tmp_path, launched, "agents/agent-1/run-*/checkpoint-20.*")
        os.kill(agent_of(launched.pid, 1), signal.SIGKILL)
        wait_for(tmp_path, launched, "agents/agent-0/run-*/membership-1/checkpoint-*")
        launched.send_signal(signal.SIGINT)
        assert launched.wait(LIMIT) == 130
    finally:
        launched.kill()
        launched.wait()
    said = (tmp_path / "errors").read_text()
    assert "agent 1 ended with code -9: it said nothing; the others go on without it" in said
    assert "go on with gossamer launch --resume run" in " ".join(said.split())
    simulated = run("train", "--resume", "run", cwd=tmp_path)
    assert (simulated.returncode, "go on with gossamer launch --resume run" in simulated.stderr) == (2, True)
    done = run("launch", "--resume", "run", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    members = [one["members"] for one in json.loads(done.stdout)["memberships"]]
    assert members[0] == [0, 1, 2]
    assert [0, 2] in members
    assert members[-1] in ([0, 1, 2], [0, 2])  # or the others have finished before it is back


def test_a_launch_ends_when_no_majority_is_left(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "gossamer", *OPTIONS.split(), "--agents", "2", "--steps", "100000", "--out", "run"]
    with (tmp_path / "errors").open("wb") as errors:
        launched = subprocess.Popen(command, cwd=tmp_path, stderr=errors)
    try:
        wait_for(tmp_path, launched, "agents/agent-1/run-*/checkpoint-10.*")
        os.kill(agent_of(launched.pid, 1), signal.SIGKILL)
        assert launched.wait(LIMIT) == 2
    finally:
        launched.kill()
        launched.wait()
    said = " ".join((tmp_path / "errors").read_text().split())
    assert "agent 1 ended with code -9" in said
    assert "1 of 2 members are left, no majority that could decide to go on" in said


def wait_for(folder: Path, launched: "subprocess.Popen[bytes]", pattern: str) -> None:
    deadline = time.monotonic() + LIMIT
    while not list((folder / "run").glob(pattern)):
        assert time.monotonic() < deadline, (folder / "errors").read_text()
        assert launched.poll() is None, (folder / "errors").read_text()
        time.sleep(0.02)


def agent_of(parent: int, agent: int) -> int:
    """The process of an agent, a child of a launch, found by its command line."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):  # one that has just ended
            stat = (path.parent / "stat").read_text().rpartition(")")[2].split()
            if int(stat[1]) == parent and f"agents/agent-{agent}\0" in path.read_text():
                return int(path.parent.name)
    raise AssertionError(f"agent {agent} does not run")
