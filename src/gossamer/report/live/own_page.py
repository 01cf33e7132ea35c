"""The source of an agent's own page: itself by its reports, its neighbours by what it sees of them."""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gossamer.peers.progress import PeerReport
from gossamer.peers.status import list_checkpoint_times, name_state
from gossamer.report.live.agents import WatchedAgent, view_agent
from gossamer.report.live.evaluations import EvaluationFile, view_logged
from gossamer.report.live.feed import Feed
from gossamer.report.live.layout import place_around
from gossamer.report.live.log_lines import LogLines
from gossamer.report.live.memberships import WatchedMemberships
from gossamer.report.live.publisher import Publisher
from gossamer.report.live.view import AgentView, RunView, starting_view

MISSING_AFTER = 5.0  # seconds without a byte of a neighbour that the agent waits for
OUTSIDE = ("left", "outside")


class PeerSource:
    """Follows the agent of this process through its reports (`follow`)."""

    def __init__(self, feed: Feed, log: LogLines, folder: Path) -> None:
        """`folder` is the agent's."""
        self._agent, self._log, self._began = WatchedAgent(folder), log, time.time()
        self._title = f"{self._agent.name}, agent {self._agent.agent} of {self._agent.num_agents}"
        score = self._agent.score
        self._evaluations = EvaluationFile(lambda metrics: view_logged(metrics, score))
        self._memberships = WatchedMemberships()
        self._report: PeerReport | None = None
        self._heard: dict[int, tuple[int, float]] = {}  # bytes of a neighbour, and when the last of them came
        self._ended = ""
        self.publisher = Publisher(feed, self._build, always=True)
        log.on_line = self.publisher.hurry

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
        times = list_checkpoint_times(agent.state_folder)
        age = max(0.0, now - max(times)) if times else None
        state = self._ended or name_state(report, True, report["finished"], 0.0)
        own = view_agent(agent.agent, report, state, agent.vertices, agent.labels, age, now)
        known = [one["neighbour"] for one in own["neighbours"]]
        others = [self._view_neighbour(z, report, now) for z in known]
        return {
            "title": self._title,
            "own": agent.agent,
            "state": self._ended or ("finished" if report["all_done"] else "training"),
            "step": report["step"],
            "steps": report["steps"],
            "seconds": now - self._began,
            "score": agent.score,
            "agents": [own, *others],
            "positions": place_around(agent.agent, sorted({*agent.neighbours, *known})),
            "evaluations": self._evaluations.read(agent.evaluations),
            "references": {},
            "memberships": self._memberships.read([agent]),
            "certificate": None,
            "log": self._log.last(),
        }

    def _view_neighbour(self, z: int, report: PeerReport, now: float) -> AgentView:
        links: Mapping[str, Mapping[str, Any]] = report["links"]
        received = int((links.get(str(z)) or {}).get("received") or 0)
        before, heard = self._heard.get(z, (-1, now))
        if received != before:
            self._heard[z] = received, (heard := now)
        if report["all_done"]:
            state = "finished"
        elif z in report["waiting_for"] and now - heard >= MISSING_AFTER:
            state = "missing"
        else:
            state = "training" if received else "not started"
        return view_agent(z, None, state, None, None, None, now)
