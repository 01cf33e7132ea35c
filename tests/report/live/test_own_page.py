"""The source of an agent's own page."""

import os
from pathlib import Path
from typing import Any, cast

import pytest
from report.live.sources import SeenFeed, cut_agents, make_report

from gossamer.peers.progress import PeerReport
from gossamer.report.live import own_page
from gossamer.report.live.agents import MISSING_AFTER
from gossamer.report.live.log_lines import LogLines
from gossamer.report.live.own_page import PeerSource


class Clock:
    """A clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.now = 1e9

    def time(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(own_page, "time", clock)
    return clock


def report(**changes: Any) -> PeerReport:
    links = {str(z): {"sent": {"forward": 5}, "received": 8, "waited": 0.5} for z in (0, 2)}
    return cast(PeerReport, make_report(1, **{"time": 1e9, "links": links, **changes}))


def note_start(source: PeerSource, when: float) -> None:
    """Leave the file by which an agent knows when it was first started."""
    source._agent.state_folder.mkdir(exist_ok=True)
    (source._agent.state_folder / "started").write_text(f"{when}\n")


def test_before_its_first_report_an_agent_is_starting(tmp_path: Path) -> None:
    feed = SeenFeed()
    with PeerSource(feed, LogLines(), cut_agents(tmp_path / "run")[1]).publisher:
        pass
    view = feed.last
    assert (view["title"], view["own"], view["state"]) == ("small, agent 1 of 3", 1, "starting")
    assert view["positions"]["1"] == (0.0, 0.0)
    assert set(view["positions"]) == {"0", "1", "2"}


def test_an_agent_shows_itself_and_what_it_sees_of_its_neighbours(tmp_path: Path, clock: Clock) -> None:
    log = LogLines()
    source = PeerSource(SeenFeed(), log, cut_agents(tmp_path / "run")[1])
    note_start(source, 1e9 - 2)
    source.follow(report(refused={"mac": 1}))
    log.add("warning", "agent 1 refused a message of agent 2: mac")
    clock.now += 2
    view = source._build()
    own, *others = view["agents"]
    assert (own["agent"], own["state"], own["step"], own["epoch"], own["loss"]) == (1, "training", 4, 2, 1.5)
    assert (own["vertices"], own["refused"], own["report_age"]) == (4, {"mac": 1}, 2.0)
    assert own["neighbours"] == [{"neighbour": z, "sent": {"forward": 5}, "received": 8, "waited": 0.5} for z in (0, 2)]
    assert [(one["agent"], one["state"], one["step"]) for one in others] == [
        (0, "training", None),
        (2, "training", None),
    ]
    assert (view["state"], view["step"], view["steps"], view["seconds"]) == ("training", 4, 6, 2.0)
    assert [line["text"] for line in view["log"]] == ["agent 1 refused a message of agent 2: mac"]


def test_a_neighbour_is_missing_that_is_waited_for_and_silent(tmp_path: Path, clock: Clock) -> None:
    source = PeerSource(SeenFeed(), LogLines(), cut_agents(tmp_path / "run")[1])

    def states(**changes: Any) -> list[str]:
        source.follow(report(time=clock.now, **changes))
        return [one["state"] for one in source._build()["agents"][1:]]

    assert states(waiting_for=[2], waited=0.5) == ["training", "training"]
    clock.now += MISSING_AFTER
    assert states(waiting_for=[2], waited=5.5) == ["training", "missing"]
    assert states() == ["training", "training"]  # silent, and nobody waits: all have what they need
    links = {"0": {"sent": {}, "received": 8, "waited": 0}, "2": {"sent": {}, "received": 9, "waited": 0}}
    assert states(waiting_for=[2], waited=6.0, links=links) == ["training", "training"]  # it is heard again
    assert states(links={}) == ["not started", "not started"]
    assert states(all_done=True, finished=True) == ["finished", "finished"]


def test_time_goes_on_when_an_agent_rejoins_and_stands_still_when_it_serves(tmp_path: Path, clock: Clock) -> None:
    folder = cut_agents(tmp_path / "run")[1]
    note_start(PeerSource(SeenFeed(), LogLines(), folder), 1e9 - 100)
    source = PeerSource(SeenFeed(), LogLines(), folder)  # of a process that was started later
    source.follow(report(time=1e9 + 5))
    assert source._build()["seconds"] == 105.0
    done = source._agent.state_folder / "done"
    done.touch()
    os.utime(done, (1e9 + 10, 1e9 + 10))
    source.follow(report(time=1e9 + 60, finished=True, all_done=True, serving=True))
    clock.now += 60
    assert source._build()["seconds"] == 110.0


def test_the_end_of_an_agent(tmp_path: Path, clock: Clock) -> None:
    feed = SeenFeed()
    source = PeerSource(feed, LogLines(), cut_agents(tmp_path / "run")[1])
    with source.publisher:
        source.follow(report(waiting_for=[2], waited=700.0))
        source.end(complete=False)
    assert (feed.last["state"], feed.last["agents"][0]["state"]) == ("stopped", "stopped")
