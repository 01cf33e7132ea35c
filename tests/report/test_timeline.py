"""The timeline of a run follows the reports of its agents; the picture and the table show it."""

import json
from pathlib import Path
from typing import Any, cast

import pytest
from rich.console import Console

from gossamer.peers.progress import PeerReport
from gossamer.peers.protocol.terms import make_entries, name_term
from gossamer.peers.rehearsal.script import Event
from gossamer.peers.rehearsal.timeline import Timeline
from gossamer.peers.run_history import RunHistory
from gossamer.peers.term_folders import Begin
from gossamer.report.timeline import draw_timeline
from gossamer.report.timeline_tables import show_timeline


def report(step: int, membership: int, members: list[int], score: float, waited: float = 0.0) -> PeerReport:
    metrics = {"step": step, "network": {"validation": {"accuracy": score}}}
    found: dict[str, Any] = {
        "step": step, "membership": membership, "members": members, "metrics": metrics, "planning": False,
        "waited": waited,
    }  # fmt: skip
    return cast(PeerReport, found)


@pytest.fixture
def timeline() -> Timeline:
    """Three agents of which one is killed at step 20, after 3 seconds; the others wait and go on from step 10."""
    lines: list[str] = []
    found = Timeline("accuracy", 100, 3, began=100.0, on_membership=lines.append)
    everyone, two, inside = [0, 1, 2], [0, 1], dict.fromkeys(range(3), "member")
    found.follow({}, dict.fromkeys(range(3), "starting"), 100.5)
    found.follow({k: report(10, 0, everyone, 0.5) for k in everyone}, inside, 102.0)
    found.follow({k: report(20, 0, everyone, 0.6) for k in everyone}, inside, 103.0)
    found.add_event(Event(20, "kill", (2,)))
    gone = {**inside, 2: "gone"}
    found.follow({k: report(20, 0, everyone, 0.6, waited=2.0) for k in two}, gone, 105.0)
    assert not lines
    late = report(11, 1, two, 0.9)
    assert late["metrics"] is not None
    late["metrics"]["step"] = 9  # of the membership before, as long as there is no other
    found.follow(dict.fromkeys(two, late), gone, 107.5)
    found.follow({k: report(11, 1, two, 0.7) for k in two}, gone, 108.0)
    assert lines == ["membership 1: agents 0, 1 went on after 4.5 s"]
    terms = [name_term("run", 0, make_entries(everyone)), name_term("run", 1, make_entries(two))]
    found.finish(RunHistory(tuple(terms), {0: Begin(), 1: Begin(0, 10)}, True, {}))
    return found


def test_memberships_have_their_step_and_how_long_nobody_made_one(timeline: Timeline) -> None:
    assert timeline.memberships == [
        {"number": 0, "members": [0, 1, 2], "from_step": 0, "seconds": 2.0, "stopped": 0.0},
        {"number": 1, "members": [0, 1], "from_step": 10, "seconds": 7.5, "stopped": 4.5},
    ]
    assert [(one.membership, one.step, one.score) for one in timeline.scores] == [
        (0, 10, 0.5),
        (0, 20, 0.6),
        (1, 11, 0.7),
    ]
    assert [(one.seconds, one.standing) for one in timeline.standings if one.agent == 0] == [
        (0.5, "starting"),
        (2.0, "member"),
        (5.0, "waiting"),
        (7.5, "member"),
    ]
    assert [one.standing for one in timeline.standings if one.agent == 2] == ["starting", "member", "gone"]


def test_a_member_that_does_not_know_the_last_membership_is_shown_to_wait(timeline: Timeline) -> None:
    timeline.follow({k: report(20, 1, [0, 1], 0.7) for k in (0, 1)}, dict.fromkeys(range(3), "member"), 109.0)
    assert [one.standing for one in timeline.standings if one.agent == 2][-1] == "waiting"


def test_the_table_has_events_and_memberships_in_their_order(timeline: Timeline, tmp_path: Path) -> None:
    timeline.missed = [Event(90, "leave", (1,))]
    with (console := Console(width=100)).capture() as captured:
        show_timeline(console, timeline, tmp_path)
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in captured.get().splitlines() if "│" in line]
    assert rows == [
        ["2.0", "0", "membership 0", "0 1 2", "", "60.0%"],
        ["3.0", "20", "agent 2 killed", "", "", ""],
        ["7.5", "10", "membership 1 without 2", "0 1", "4.5 s", "70.0%"],
    ]
    assert "not reached: agent 1 asked to leave at step 90" in captured.get()


def test_a_membership_that_never_trained_stands_before_the_next_one(timeline: Timeline, tmp_path: Path) -> None:
    timeline.memberships[1]["number"] = 2
    timeline.memberships.insert(
        1, {"number": 1, "members": [0, 1, 2, 3], "from_step": None, "seconds": None, "stopped": None}
    )
    with (console := Console(width=100)).capture() as captured:
        show_timeline(console, timeline, tmp_path)
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in captured.get().splitlines() if "│" in line]
    assert rows[2][:4] == ["-", "-", "membership 1 with 3", "0 1 2 3"]
    assert rows[3][:4] == ["7.5", "10", "membership 2 without 2, 3", "0 1"]


def test_the_timeline_is_stored_and_drawn(timeline: Timeline, tmp_path: Path) -> None:
    timeline.save(tmp_path)
    stored = json.loads((tmp_path / "timeline.json").read_text())
    assert stored["memberships"] == timeline.memberships
    assert stored["events"] == [{"seconds": 3.0, "step": 20, "kind": "kill", "agents": [2], "text": "agent 2 killed"}]
    draw_timeline(tmp_path / "memberships.png", timeline, "three agents")
    assert (tmp_path / "memberships.png").read_bytes().startswith(b"\x89PNG")


def test_a_run_without_scores_or_events_is_drawn_too(tmp_path: Path) -> None:
    empty = Timeline("mse", 10, 2, began=0.0)
    empty.follow({}, {0: "starting", 1: "not started"}, 1.0)
    draw_timeline(tmp_path / "memberships.png", empty, "nothing")
    with (console := Console()).capture() as captured:
        show_timeline(console, empty, tmp_path)
    assert captured.get() == ""
