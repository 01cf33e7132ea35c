"""The timeline of a run whose agents may leave and join: events, memberships, standings of agents, and scores.

It is stored as timeline.json in the run directory:

    events       step, seconds since the start, kind, agents; kind "heal" is the end of a cut
    memberships  number, members, the step that training went on from, the seconds at which it did, and for how many
                 seconds nobody had made a step before (null: not seen)
    standings    seconds, agent, and how the agent stands from then on
    scores       seconds, membership, step, and the validation score of all its vertices
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from gossamer.files import write_atomically
from gossamer.peers.progress import PeerReport
from gossamer.peers.rehearsal.script import Event, name_agents
from gossamer.peers.run_history import RunHistory, list_memberships
from gossamer.runs.documents import FORMAT, to_json
from gossamer.runs.records import MembershipRecord

TIMELINE_FILE = "timeline.json"
WAITING_AFTER = 1.0  # seconds after which a member that waits for others is shown to wait


@dataclass(frozen=True)
class PlayedEvent:
    """An event that has happened."""

    seconds: float
    step: int
    kind: str
    agents: tuple[int, ...]
    text: str


@dataclass(frozen=True)
class Standing:
    """How an agent stands from some moment on."""

    seconds: float
    agent: int
    standing: str


@dataclass(frozen=True)
class ScorePoint:
    """The validation score of an evaluation, when it was first reported."""

    seconds: float
    membership: int
    step: int
    score: float


@dataclass
class Timeline:
    """What has happened in a run so far; `score` is the name of the one that is validated on."""

    score: str
    steps: int
    agents: int
    began: float
    on_membership: Callable[[str], None] = lambda text: None
    events: list[PlayedEvent] = field(default_factory=list)
    standings: list[Standing] = field(default_factory=list)
    scores: list[ScorePoint] = field(default_factory=list)
    memberships: list[MembershipRecord] = field(default_factory=list)
    missed: list[Event] = field(default_factory=list)  # events whose step the run has not reached
    seconds: float = 0.0
    step: int = 0  # the largest that a member has reported last
    num_members: int = 1
    went_on: dict[int, tuple[float, float]] = field(default_factory=dict)  # by membership: the seconds at which it went
    # on, and those without a step before that
    _progress: tuple[int, int] = (-1, 0)  # the membership and the step of the latest training
    _progress_at: float = 0.0

    def follow(self, members: Mapping[int, PeerReport], standings: Mapping[int, str], now: float) -> None:
        """Note what the agents' last reports say: those of the members of the last membership, and all standings."""
        self.seconds = now - self.began
        for agent, standing in standings.items():
            report = members.get(agent)  # None: it does not know the last membership yet
            waits = standing == "member" and (report is None or report["waited"] > WAITING_AFTER)
            self._note_standing(agent, "waiting" if waits else standing)
        self.step = max((report["step"] for report in members.values()), default=self.step)
        self.num_members = max((len(report.get("members", members)) for report in members.values()), default=1)
        for report in members.values():
            self._note_progress(report)

    def add_event(self, event: Event) -> None:
        """Note an event of the script."""
        self._add(event.kind, event.agents, event.describe())

    def add_heal(self, agents: tuple[int, ...]) -> None:
        """Note the end of a cut."""
        self._add("heal", agents, f"{name_agents(agents)} linked again")

    def finish(self, history: RunHistory) -> None:
        """Take over the memberships as the agents have stored them; an evaluation that an agent reports from before its
        membership began is of other vertices."""
        first = {number: begin.step for number, begin in history.begins.items()}
        self.scores = [one for one in self.scores if one.step >= first.get(one.membership, 0)]
        self.memberships = list_memberships(history, self.went_on)

    def save(self, folder: Path) -> None:
        """Write the file of the timeline."""
        content: dict[str, Any] = {
            "format": FORMAT,
            "score": self.score,
            "steps": self.steps,
            "agents": self.agents,
            "seconds": round(self.seconds, 3),
            "events": [asdict(one) for one in self.events],
            "missed": [one.describe() for one in self.missed],
            "memberships": self.memberships,
            "standings": [asdict(one) for one in self.standings],
            "scores": [asdict(one) for one in self.scores],
        }
        write_atomically(folder / TIMELINE_FILE, (to_json(content) + "\n").encode())

    def find_score(self, membership: int) -> float | None:
        """The last score that was reported of a membership."""
        return next((one.score for one in reversed(self.scores) if one.membership == membership), None)

    def describe_memberships(self) -> list[str]:
        """Each membership as text: who has gone, and who has come."""
        found, before = [], set[int]()
        for one in self.memberships:
            members = set(one["members"])
            gone, new = sorted(before - members), sorted(members - before)
            parts = [f"{word} {', '.join(map(str, some))}" for word, some in (("without", gone), ("with", new)) if some]
            found.append(f"membership {one['number']}" + f" {', '.join(parts)}" * bool(before))
            before = members
        return found

    def _add(self, kind: str, agents: tuple[int, ...], text: str) -> None:
        self.events.append(PlayedEvent(round(self.seconds, 3), self.step, kind, agents, text))

    def _note_standing(self, agent: int, standing: str) -> None:
        last = next((one for one in reversed(self.standings) if one.agent == agent), None)
        if last is None or last.standing != standing:
            self.standings.append(Standing(round(self.seconds, 3), agent, standing))

    def _note_progress(self, report: PeerReport) -> None:
        number, step, metrics = report.get("membership", 0), report["step"], report["metrics"]
        if not report["planning"] and (number, step) > self._progress:
            if number > self._progress[0]:
                stopped = self.seconds - self._progress_at if self.went_on else 0.0
                self.went_on[number] = round(self.seconds, 3), round(stopped, 3)
                if number:
                    agents = name_agents(report.get("members", []))
                    self.on_membership(f"membership {number}: {agents} went on after {stopped:.1f} s")
            self._progress, self._progress_at = (number, step), self.seconds
        found = ((metrics or {}).get("network") or {}).get("validation", {}).get(self.score)
        if metrics is None or found is None:
            return
        last = (self.scores[-1].membership, self.scores[-1].step) if self.scores else (-1, -1)
        if (number, metrics["step"]) > last:
            self.scores.append(ScorePoint(round(self.seconds, 3), number, metrics["step"], found))
