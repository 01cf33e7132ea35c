"""The source of an agent's own page: itself by its reports, its neighbours by what it sees of them."""

import time
from pathlib import Path

from gossamer.peers.progress import PeerReport
from gossamer.peers.status import list_checkpoint_times, name_state
from gossamer.report.live.agents import SeenNeighbours, WatchedAgent, view_agent
from gossamer.report.live.evaluations import EvaluationFile, view_logged
from gossamer.report.live.feed import Feed
from gossamer.report.live.layout import place_around
from gossamer.report.live.log_lines import LogLines
from gossamer.report.live.memberships import WatchedMemberships
from gossamer.report.live.publisher import Publisher
from gossamer.report.live.view import RunView, starting_view

OUTSIDE = ("left", "outside")


class PeerSource:
    """Follows the agent of this process through its reports (`follow`)."""

    def __init__(self, feed: Feed, log: LogLines, folder: Path) -> None:
        """`folder` is the agent's."""
        self._agent, self._log = WatchedAgent(folder), log
        self._title = f"{self._agent.name}, agent {self._agent.agent} of {self._agent.num_agents}"
        score = self._agent.score
        self._evaluations = EvaluationFile(lambda metrics: view_logged(metrics, score))
        self._memberships = WatchedMemberships()
        self._report: PeerReport | None = None
        self._neighbours = SeenNeighbours()
        self._ended = ""
        self.publisher = Publisher(feed, log, self._build, always=True)

    def follow(self, report: PeerReport) -> None:
        """Take the agent's next report."""
        self._report = report
        self.publisher.note()

    def end(self, complete: bool) -> None:
        """Note how the agent has ended."""
        self._ended = "finished" if complete else "stopped"

    def _build(self) -> RunView:
        agent, report, now = self._agent, self._report, time.time()
        if report is None:
            around = place_around(agent.agent, agent.neighbours)
            start = starting_view(self._title)
            state = self._ended or "starting"
            return {**start, "own": agent.agent, "state": state, "positions": around, "log": self._log.last()}
        agent.report = report
        began, end = agent.find_span() or (now, now)
        times = list_checkpoint_times(agent.state_folder)
        age = max(0.0, now - max(times)) if times else None
        state = self._ended or name_state(report, True, report["finished"], 0.0)
        own = view_agent(agent.agent, report, state, agent.vertices, agent.labels, age, now)
        known = [one["neighbour"] for one in own["neighbours"]]
        others = [self._neighbours.view(z, [(own, report)], now) for z in known]
        return {
            "title": self._title,
            "own": agent.agent,
            "state": self._ended or ("finished" if report["all_done"] else "training"),
            "activity": "",
            "step": report["step"],
            "steps": report["steps"],
            "seconds": end - began,
            "score": agent.score,
            "agents": [own, *others],
            "positions": place_around(agent.agent, sorted({*agent.neighbours, *known})),
            "evaluations": self._evaluations.read(agent.evaluations),
            "references": {},
            "memberships": self._memberships.read([agent]),
            "certificate": None,
            "log": self._log.last(),
        }
