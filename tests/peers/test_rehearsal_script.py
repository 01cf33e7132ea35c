"""A script of a rehearsal is checked before anything starts: what was expected, what was found, and the remedy."""

from pathlib import Path
from typing import Any

import pytest
from commands.inside import run

from gossamer.errors import GossamerError
from gossamer.peers.rehearsal.script import KINDS, Event, list_joining, read_script
from gossamer.runs.settings import make_settings

KILL = "[[event]]\nat = 10\nkill = 3\n"
JOIN = "[[event]]\nat = 20\njoin = 5\n"


def read(tmp_path: Path, text: str, **changes: Any) -> tuple[Event, ...]:
    path = tmp_path / "rehearsal.toml"
    path.write_text(text)
    return read_script(path, make_settings({"agents": 5, "steps": 100, "evict_after": 3.0, **changes}))


def test_events_are_read_in_the_order_of_their_steps(tmp_path: Path) -> None:
    cut = "[[event]]\nat = 30\ncut = [1, 0]\nseconds = 20\n"
    events = read(tmp_path, cut + KILL + JOIN)
    assert events == (Event(10, "kill", (3,)), Event(20, "join", (5,)), Event(30, "cut", (0, 1), 20.0))
    assert list_joining(events) == (5,)
    assert [event.describe() for event in events] == [
        "agent 3 killed",
        "agent 5 started to join",
        "agents 0, 1 cut for 20 s",
    ]


def test_an_agent_may_be_started_again_after_it_was_killed_and_killed_again(tmp_path: Path) -> None:
    restart = "[[event]]\nat = 30\nrestart = 3\n"
    assert len(read(tmp_path, KILL + restart + KILL.replace("10", "40"))) == 3


@pytest.mark.parametrize(
    ("text", "changes", "message"),
    [
        (KILL, {"evict_after": None}, "needs agents that may leave and join; give --evict-after SECONDS"),
        (KILL, {"evict_after": 0.0}, "event 1: with --evict-after 0 nobody is removed"),
        ("", {}, "expected tables [[event]] and nothing else, at most 1000; found nothing; an event has at"),
        ("[event]\nat = 1\n", {}, "expected tables [[event]] and nothing else"),
        ("steps = 3\n" + KILL, {}, "found 'steps', 'event'"),
        (KILL + "speed = 3\n", {}, "event 1: unknown key 'speed'; an event has at = STEP"),
        ("[[event]]\nkill = 3\n", {}, "event 1 has no at; an event has at = STEP"),
        ("[[event]]\nat = 10\n", {}, "event 1: expected one of kill, restart, join, leave, cut, found none"),
        (KILL + "leave = 2\n", {}, "found kill and leave"),
        ("[[event]]\nat = 10\nkill = '3'\n", {}, "event 1: kill: expected a valid integer, found '3'"),
        ("[[event]]\nat = 0\nkill = 3\n", {}, "event 1: at: expected greater than or equal to 1, found 0"),
        ("[[event]]\nat = 10\ncut = []\nseconds = 3\n", {}, "event 1: cut:"),
        ("[[event]]\nat = 10\ncut = [1]\n", {}, "expected seconds = X, after which the links are whole again"),
        (KILL + "seconds = 3\n", {}, "seconds is for cut, found it beside kill; leave it out"),
        (KILL.replace("10", "100"), {}, "expected a step from 1 to 99, as the run has 100, found 100; give more"),
        (KILL.replace("3", "7"), {}, "there is no agent 7; expected one of 0 to 4 (--agents 5; others need an event"),
        (KILL + KILL.replace("10", "20"), {}, "event 2: only an agent that runs can be killed, and agent 3 has been k"),
        (KILL.replace("kill", "restart"), {}, "only an agent that was killed can be started again, and agent 3 runs"),
        (KILL.replace("kill", "leave") + KILL, {}, "event 2: only an agent that runs can be killed, and agent 3 has l"),
        (KILL.replace("kill", "join"), {}, "expected the agents that join to be numbered from 5 on without a gap"),
        (JOIN.replace("5", "6"), {}, "numbered from 5 on without a gap, as --agents 5 are there from the start; fo"),
        (JOIN + JOIN, {}, "numbered from 5 on without a gap"),
        (
            JOIN + "[[event]]\nat = 10\nkill = 5\n",
            {},
            "event 2: only an agent that runs can be killed, and agent 5 has n",
        ),
        (KILL, {"agents": 4, "evict_after": 1.0, "steps": 11}, None),
        (KILL.replace("3", "1"), {"agents": 2}, "1 of 2 members would be left, which is no majority, and nobody could"),
        (KILL + KILL.replace("3", "2") + KILL.replace("3", "1"), {}, "event 3: 2 of 5 members would be left"),
        ("[[event]]\nat = 9\nleave = 0\n", {"agents": 1}, "agent 0 is the last member and cannot leave"),
        ("[[event]]\nat = 9\ncut = [0, 1]\nseconds = 1\n", {"agents": 2}, "cut names all agents that run"),
        (KILL + "[[event]]\nat = 20\ncut = [3]\nseconds = 1\n", {}, "only agents that run can be cut off, and agent 3"),
    ],
)
def test_what_cannot_happen_is_refused(tmp_path: Path, text: str, changes: dict[str, Any], message: str | None) -> None:
    if message is None:
        assert read(tmp_path, text, **changes)
        return
    with pytest.raises(GossamerError) as refused:
        read(tmp_path, text, **changes)
    assert message in str(refused.value)
    assert str(tmp_path / "rehearsal.toml") in str(refused.value)


def test_the_script_among_the_examples_can_be_played() -> None:
    path = Path(__file__).parents[2] / "examples" / "rehearsal.toml"
    command = next(
        line.removeprefix("#").split() for line in path.read_text().splitlines() if "gossamer launch" in line
    )
    values = dict(zip(command[3::2], command[4::2], strict=True))
    events = read_script(
        path,
        make_settings(
            {
                "agents": int(values["--agents"]),
                "steps": int(values["--steps"]),
                "evict_after": float(values["--evict-after"]),
            }
        ),
    )
    assert {event.kind for event in events} == set(KINDS)


def test_majorities_are_those_of_the_agents_that_are_left(tmp_path: Path) -> None:
    """Of 5, two may be killed at once; later one more of 3, and no other."""
    events = [KILL, KILL.replace("3", "2"), KILL.replace("10", "20").replace("3", "1")]
    assert len(read(tmp_path, "".join(events))) == 3
    with pytest.raises(GossamerError, match="event 4: 1 of 2 members would be left"):
        read(tmp_path, "".join(events) + "[[event]]\nat = 30\nkill = 0\n")


def test_a_wrong_script_ends_the_command_before_anything_is_written(tmp_path: Path) -> None:
    (tmp_path / "rehearsal.toml").write_text(KILL)
    done = run("launch", "digits", "--agents", "5", "--script", "rehearsal.toml", "--out", "run", cwd=tmp_path)
    assert (done.returncode, "give --evict-after SECONDS" in done.stderr) == (2, True)
    assert not (tmp_path / "run").exists()
