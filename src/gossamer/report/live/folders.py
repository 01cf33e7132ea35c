"""The source of runs on disk: `gossamer watch`, and the agents of `gossamer launch` beside the run directory.

A run directory of `gossamer train` has evaluations and checkpoints; folders of agents have what each reports as well.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from gossamer.errors import GossamerError
from gossamer.files import LOCK
from gossamer.report.live.agents import SeenNeighbours, WatchedAgent
from gossamer.report.live.evaluations import EvaluationFile, name_activity, view_evaluation, view_logged
from gossamer.report.live.feed import Feed
from gossamer.report.live.happenings import Happenings
from gossamer.report.live.layout import place_agents
from gossamer.report.live.log_lines import LogLines
from gossamer.report.live.memberships import WatchedMemberships
from gossamer.report.live.pace import BESIDE_SHARE
from gossamer.report.live.publisher import Publisher
from gossamer.report.live.run_directory import WatchedDirectory
from gossamer.report.live.summed import SummedEvaluations
from gossamer.report.live.view import AgentView, EvaluationView, RunView
from gossamer.runs.directory import AGENTS_FOLDER
from gossamer.runs.documents import read_json
from gossamer.runs.observers import Observer
from gossamer.runs.records import Record
from gossamer.runs.shares import MANIFEST, MAX_MANIFEST_BYTES, find_agent_folder, is_agent_folder

ENDED = ("finished", "serving", "left", "outside")


def find_watched_agents(folder: Path) -> list[Path]:
    """The folders of agents in a folder: those of a launch, those that lie in it, or itself."""
    if _is_of_agent(folder):
        return [folder]
    inside = folder / AGENTS_FOLDER if (folder / AGENTS_FOLDER).is_dir() else folder
    return [path.parent for path in sorted(inside.glob(f"*/{MANIFEST}")) if _is_of_agent(path.parent)]


def _is_of_agent(folder: Path) -> bool:
    """Return whether a folder is an agent's, and not that of a rank of a cluster."""
    return is_agent_folder(folder) and "agent" in read_json(find_agent_folder(folder) / MANIFEST, MAX_MANIFEST_BYTES)


def require_run(folder: Path) -> None:
    """Refuse a folder in which there is nothing to watch."""
    if not (folder / "run.json").is_file() and not find_watched_agents(folder):
        found = "no such folder" if not folder.exists() else "neither"
        raise GossamerError(
            f"{folder} holds no run: expected run.json, as gossamer train, launch and cluster leave it, or folders of "
            f"agents with {MANIFEST}, found {found}; give the run directory, the folder around agents' folders, or one "
            "of them"
        )


class FolderSource:
    """Looks at a run directory, a folder with the folders of agents, or the folder of one agent."""

    def __init__(self, feed: Feed, log: LogLines, folder: Path) -> None:
        self._log, self._happenings = log, Happenings(log)
        self._agents = sorted(map(WatchedAgent, find_watched_agents(folder)), key=lambda one: one.agent)
        self._directory = WatchedDirectory(folder) if (folder / "run.json").is_file() else None
        require_run(folder)
        runs = {one.run for one in self._agents}
        if len(runs) > 1:
            raise GossamerError(f"{folder} holds agents of {len(runs)} runs; give a folder with those of one run")
        self._evaluations = EvaluationFile(self._view_logged)
        private = any(one.settings.privacy_spec is not None for one in self._agents)
        whole = bool(self._agents) and len(self._agents) == self._agents[0].num_agents
        self._summed = SummedEvaluations(self._agents) if private and whole else None
        self._evaluating: WatchedAgent | None = None  # whose evaluations are shown
        self.memberships = WatchedMemberships()
        self._references: dict[str, list[EvaluationView]] = {}
        self.clock: Callable[[], float] | None = None  # seconds of training, where the process of the run is this one
        self._neighbours = SeenNeighbours()
        self._activity = self._ended = ""
        links = [(one.agent, z) for one in self._agents for z in one.neighbours]
        known = {one.agent for one in self._agents} | {z for _, z in links}
        self._positions = place_agents(sorted(known), links)
        self.publisher = Publisher(feed, log, self._build, always=True, share=BESIDE_SHARE)

    def follow(self, name: str, first: int, last: int) -> Observer:
        """The observer of a reference that is trained when the agents have finished."""
        found: list[EvaluationView] = []
        if name != "distributed":
            self._references, self._activity = {**self._references, name: found}, name_activity(name)
            self._log.add("info", f"{name}: training from step {first} of {last}")
        return Observer(on_record=partial(self._add, found))

    def add_event(self, text: str) -> None:
        """Add a line to the log: an event of a script."""
        self._log.add("warning", text)

    def end(self, complete: bool) -> None:
        """Note how the run has ended."""
        self._ended, self._activity = "finished" if complete else "stopped", ""

    def _add(self, found: list[EvaluationView], record: Record) -> None:
        found.append(view_evaluation(record))
        self.publisher.hurry()

    def _view_logged(self, metrics: object) -> EvaluationView:
        assert isinstance(metrics, dict)
        return view_logged(metrics, self._agents[0].score)

    def _build(self) -> RunView:
        now = time.time()
        if self._directory is not None:
            self._directory.read()
        view = self._view_agents(now) if self._agents else self._view_directory(now)
        if self._agents:  # simulated ones have nothing happen to them but to the run
            self._happenings.note(view["agents"], view["memberships"])
        self._happenings.note_run(view["state"])
        view["log"] = self._log.last()
        return view

    def _view_directory(self, now: float) -> RunView:
        folder = self._directory
        assert folder is not None
        evaluations = folder.evaluations
        step = max(folder.manifest.step, evaluations[-1]["step"] if evaluations else 0)
        return {
            "title": f"{folder.manifest.data.name}, {folder.settings.agents} agents",
            "own": None,
            "state": folder.state,
            "activity": folder.activity,
            "step": step,
            "steps": folder.steps,
            "seconds": folder.count_seconds(now),
            "score": folder.score,
            "agents": folder.view_agents(step, now),
            "positions": folder.positions,
            "evaluations": evaluations,
            "references": folder.references,
            "memberships": folder.manifest.summary.get("memberships") or [],
            "certificate": folder.certificate,
            "log": [],
        }

    def _view_agents(self, now: float) -> RunView:
        folder, agents = self._directory, self._agents
        for one in agents:
            one.read()
        states = self._name_states(now)
        shown = [one.view(states[one.agent], now) for one in agents]
        memberships = [] if folder is None else folder.manifest.summary.get("memberships") or []
        gathered = [] if folder is None else folder.evaluations
        evaluations = gathered or self._read_evaluations(states)
        steps = [evaluations[-1]["step"]] if evaluations else []  # an agent that plans has none
        steps += [one["step"] for one in shown if one["step"] is not None and one["state"] not in ("missing", "left")]
        return {
            "title": self._title,
            "own": agents[0].agent if len(agents) == 1 and agents[0].neighbours else None,
            "state": self._name_run(states),
            "activity": self._activity,
            "step": max(steps, default=0),
            "steps": max((int((one.report or {}).get("steps") or one.settings.steps) for one in agents), default=0),
            "seconds": self._count_seconds(),
            "score": agents[0].score,
            "agents": [*shown, *self._view_others(shown, now)],
            "positions": self._positions,
            "evaluations": evaluations,
            "references": self._references or ({} if folder is None else folder.references),
            "memberships": memberships or self.memberships.read(agents, None if folder is None else folder.began),
            "certificate": None if folder is None else folder.certificate,
            "log": [],
        }

    @property
    def _title(self) -> str:
        first, count = self._agents[0], len(self._agents)
        known = max(first.num_agents, count)
        return f"{first.name}, {known} agents" + (f", {count} of them here" if count < first.num_agents else "")

    def _name_states(self, now: float) -> dict[int, str]:
        """The agents' states: one whose process has ended, or is silent, is missing where others go on or have
        finished."""
        found = {one.agent: one.name_state(now) for one in self._agents}
        go_on = any(one.done or (one.running and found[one.agent] != "silent") for one in self._agents)
        lost = {"silent": "missing", "stopped": "missing" if go_on else "stopped"}
        return {agent: lost.get(state, state) for agent, state in found.items()}

    def _name_run(self, states: dict[int, str]) -> str:
        if self._ended or (self._directory is not None and self._directory.state == "finished"):
            return self._ended or "finished"
        if self._directory is not None and self._directory.running:
            return "training" if set(states.values()) - {"not started", "starting"} else "starting"
        left = [state for state in states.values() if state not in ENDED]
        if not left:
            return "finished"
        if all(state in ("not started", "starting") for state in left):
            return "starting"
        return "stopped" if all(state in ("stopped", "missing", "not started") for state in left) else "training"

    def _view_others(self, shown: Sequence[AgentView], now: float) -> list[AgentView]:
        """Agents whose folders are elsewhere, by what those at hand see of them."""
        seen = dict[int, list[tuple[AgentView, Mapping[str, Any] | None]]]()
        for one, agent in zip(shown, self._agents, strict=True):
            for link in one["neighbours"]:
                seen.setdefault(link["neighbour"], []).append((one, agent.report))
        own = {one.agent for one in self._agents}
        return [self._neighbours.view(z, seen[z], now) for z in sorted(seen) if z not in own]

    def _read_evaluations(self, states: dict[int, str]) -> list[EvaluationView]:
        """Evaluations as one agent of the last membership has them, the same one as long as it is there."""
        if self._summed is not None:
            return self._summed.read()
        last = max(one.membership for one in self._agents)
        able = [
            one
            for one in self._agents
            if one.membership == last and states[one.agent] not in ("missing", "left") and one.evaluations.is_file()
        ]
        if able and self._evaluating not in able:
            self._evaluating = able[0]
        return (
            self._evaluations.found
            if self._evaluating is None
            else self._evaluations.read(self._evaluating.evaluations)
        )

    def _count_seconds(self) -> float:
        """Seconds of the agents' training: those that their launch counts or has counted, or else from the first start
        of an agent, or the last of their launch, to the last report."""
        if self.clock is not None:
            return self.clock()
        folder = self._directory
        if folder is not None and (known := folder.manifest.summary.get("seconds")) is not None:
            return float(known)
        spans = [span for one in self._agents if (span := one.find_span()) is not None]
        if not spans:
            return 0.0
        began, end = min(start for start, _ in spans), max(end for _, end in spans)
        if folder is not None:
            with suppress(OSError):
                began = (folder.folder / LOCK).stat().st_mtime
        return max(0.0, end - began)
