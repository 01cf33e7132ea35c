"""Agents with a process each, as a view has them: from the reports that their processes leave in their folders."""

import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gossamer.agents.scores import choose_score
from gossamer.errors import GossamerError
from gossamer.files import is_in_use
from gossamer.peers.agent_folders import EVALUATIONS_FILE, find_last_membership, read_first_start, run_folder
from gossamer.peers.progress import STATUS_FILE
from gossamer.peers.refusals import RECOVERY_REASONS
from gossamer.peers.shards.shard import Shard, read_shard
from gossamer.peers.shards.sites import is_site, read_site_shard
from gossamer.peers.status import list_checkpoint_times, name_state, read_report
from gossamer.peers.term_folders import term_folder
from gossamer.report.live.view import AgentView, NeighbourView
from gossamer.runs.shares import find_agent_folder

GONE = ("missing", "stopped")  # states of agents whose last reports no longer hold
UNKNOWN = "unknown"  # state of an agent that is seen by those alone whose last reports no longer hold
WAITS = 1.0  # seconds from which on an agent is shown to wait
MISSING_AFTER = 5.0  # seconds without a byte of a neighbour that an agent waits for


class WatchedAgent:
    """An agent's folder: what does not change is read once, its report when there is a new one."""

    def __init__(self, folder: Path) -> None:
        inside = find_agent_folder(folder)
        shard = read_site_shard(inside) if is_site(inside) else read_shard(inside)
        own, data = shard.membership, shard.local_data
        self.agent, self.run, self.num_agents = own.agent, own.run, shard.settings.agents
        self.neighbours = tuple(sorted(own.neighbours))
        self.settings, self.changes = shard.settings, shard.settings.evict_after is not None
        self.name = shard.settings.dataset if shard.identity is None else shard.identity.name
        self.task, self.num_outputs = data.task, data.num_classes or int(data.targets.shape[-1])
        self.transform = shard.share.transform if isinstance(shard, Shard) else None
        self.score = choose_score(shard.settings.score, data.task).key(binned=True)
        self.vertices = len(data.targets)
        self.labels = int(data.masks["train"].reshape(self.vertices, -1).any(axis=1).sum())
        self.state_folder = run_folder(inside, own)
        self.report: Mapping[str, Any] | None = None
        self.running = self.done = False
        self._started: float | None = None
        self._read_at: tuple[int, int] | None = None

    def read(self) -> None:
        """Read the agent's last report, and whether its process runs."""
        with contextlib.suppress(OSError, GossamerError):  # one that is being replaced is read the next time
            about = (self.state_folder / STATUS_FILE).stat()
            if (about.st_mtime_ns, about.st_ino) != self._read_at:
                self.report = read_report(self.state_folder)
                self._read_at = about.st_mtime_ns, about.st_ino
        self.running = is_in_use(self.state_folder)
        if not self.running or (self.report or {}).get("finished"):
            self.done = (find_last_membership(self.state_folder) / "done").is_file()
        else:
            self.done = False

    @property
    def membership(self) -> int:
        """Number of the last membership that the agent knows."""
        return int((self.report or {}).get("membership") or 0)

    @property
    def evaluations(self) -> Path:
        """The file of its evaluations."""
        return term_folder(self.state_folder, self.membership) / EVALUATIONS_FILE

    def find_span(self) -> tuple[float, float] | None:
        """The agent's first start, and the end of its training or its last report; None before the first report."""
        if self._started is None:
            self._started = read_first_start(self.state_folder)
        if self.report is None:
            return None
        end = float(self.report["time"])
        if self.report.get("finished"):
            with contextlib.suppress(OSError):
                end = min(end, (find_last_membership(self.state_folder) / "done").stat().st_mtime)
        start = end if self._started is None else self._started
        return start, max(start, end)

    def name_state(self, now: float) -> str:
        """The agent's state, as `gossamer status` says it."""
        age = None if self.report is None else max(0.0, now - float(self.report["time"]))
        return name_state(self.report, self.running, self.done, age)

    def view(self, state: str, now: float) -> AgentView:
        """The agent as a view has it."""
        times = list_checkpoint_times(self.state_folder)
        age = max(0.0, now - max(times)) if times else None
        return view_agent(self.agent, self.report, state, self.vertices, self.labels, age, now)


def view_agent(
    agent: int,
    report: Mapping[str, Any] | None,
    state: str,
    vertices: int | None,
    labels: int | None,
    checkpoint_age: float | None,
    now: float,
) -> AgentView:
    """An agent by its last report, if it has made one. Waiting that belongs to every exchange is left out, and so are
    refusals that belong to every recovery."""
    about = report or {}
    loss, weight, *_ = (about.get("metrics") or {}).get("train") or (None, 0.0)
    waited = float(about.get("waited") or 0.0)
    waits = list(map(int, about.get("waiting_for", []))) if waited >= WAITS and state not in GONE else []
    refused = about.get("refused") or {}
    return {
        "agent": agent,
        "state": state,
        "step": int(about["step"]) if about else None,
        "epoch": int(about["epoch"]) if about else None,
        "loss": loss / weight if weight and loss is not None else None,
        "vertices": vertices,
        "labels": labels,
        "waiting_for": waits,
        "waited": waited if waits else 0.0,
        "refused": {str(why): int(n) for why, n in refused.items() if n and why not in RECOVERY_REASONS},
        "checkpoint_age": checkpoint_age,
        "report_age": max(0.0, now - float(about["time"])) if about else None,
        "neighbours": view_neighbours(about),
    }


class SeenNeighbours:
    """Agents whose reports are elsewhere, by what their neighbours at hand see of them."""

    def __init__(self) -> None:
        self._last: dict[tuple[int, int], tuple[int, float]] = {}  # bytes by link, and when the last of them came

    def view(self, z: int, seen: Sequence[tuple[AgentView, Mapping[str, Any] | None]], now: float) -> AgentView:
        """Agent `z`, as the agents at hand see it, by their views and reports."""
        found = {self._name_state(z, own, report or {}, now) for own, report in seen}
        state = next((one for one in ("missing", "finished", "training", "not started") if one in found), UNKNOWN)
        return view_agent(z, None, state, None, None, None, now)

    def _name_state(self, z: int, own: AgentView, report: Mapping[str, Any], now: float) -> str:
        links: Mapping[str, Mapping[str, Any]] = report.get("links") or {}
        received, waits = int((links.get(str(z)) or {}).get("received") or 0), z in own["waiting_for"]
        key = own["agent"], z
        before, last = self._last.get(key, (received, now - own["waited"] if waits else now))
        if received != before:
            last = now
        self._last[key] = received, last
        if report.get("all_done"):
            return "finished"
        if own["state"] in GONE:
            return UNKNOWN
        if waits and now - last >= MISSING_AFTER:
            return "missing"
        return "training" if received else "not started"


def view_neighbours(report: Mapping[str, Any]) -> list[NeighbourView]:
    """An agent's links: those to its neighbours, and to others that it has exchanged bytes with."""
    links: Mapping[str, Mapping[str, Any]] = report.get("links") or {}
    known = {*map(int, report.get("neighbours") or ()), *(int(z) for z, one in links.items() if one.get("received"))}
    found: list[NeighbourView] = []
    for z in sorted(known):
        link = links.get(str(z)) or {}
        found.append(
            {
                "neighbour": z,
                "sent": {str(kind): int(size) for kind, size in (link.get("sent") or {}).items()},
                "received": int(link.get("received") or 0),
                "waited": float(link.get("waited") or 0.0),
            }
        )
    return found
