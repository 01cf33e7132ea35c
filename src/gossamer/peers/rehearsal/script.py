"""The script of a rehearsal: events of a run by step, in a TOML file.

[[event]]
at = 100       # the step of the run, the largest that a member reports
kill = 3       # or restart = 3, leave = 3, join = 6, or cut = [0, 1] with seconds = 20
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from gossamer.errors import GossamerError, shown
from gossamer.peers.progress import join_numbers
from gossamer.runs.settings import Settings
from gossamer.runs.toml_files import read_toml

KINDS = ("kill", "restart", "join", "leave", "cut")
MAX_EVENTS = 1000
MAX_CUT_SECONDS = 86400.0
FORM = "an event has at = STEP and one of kill = AGENT, restart = AGENT, join = AGENT, leave = AGENT, cut = [AGENTS]"
AgentId = Annotated[int, Field(ge=0, lt=1 << 31)]


class _EventTable(BaseModel):
    """A table [[event]] as users write it."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    at: Annotated[int, Field(ge=1)]
    kill: AgentId | None = None
    restart: AgentId | None = None
    join: AgentId | None = None
    leave: AgentId | None = None
    cut: Annotated[list[AgentId], Field(min_length=1)] | None = None
    seconds: Annotated[float, Field(gt=0, le=MAX_CUT_SECONDS, strict=False)] | None = None


class _ScriptFile(BaseModel):
    """The keys of a script."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    event: Annotated[list[dict[str, Any]], Field(min_length=1, max_length=MAX_EVENTS)]


@dataclass(frozen=True)
class Event:
    """One event: its kind, the agents that it concerns, and how long a cut lasts."""

    at: int
    kind: str  # of KINDS
    agents: tuple[int, ...]
    seconds: float = 0.0

    def describe(self) -> str:
        """The event as text."""
        texts = {"kill": "killed", "restart": "started again", "join": "started to join", "leave": "asked to leave"}
        text = texts.get(self.kind, f"cut for {self.seconds:g} s")
        return f"{name_agents(self.agents)} {text}"


def name_agents(agents: Sequence[int]) -> str:
    """Agents by their ids, as text."""
    return f"agent{'s' * (len(agents) != 1)} {join_numbers(agents)}"


def read_script(path: Path, settings: Settings) -> tuple[Event, ...]:
    """The events of a script by ascending steps, checked against the settings of the run."""
    given = read_toml(path)
    try:
        tables = _ScriptFile.model_validate(given).event
    except ValidationError:
        raise GossamerError(
            f"{path}: expected tables [[event]] and nothing else, at most {MAX_EVENTS}; found "
            f"{', '.join(map(shown, given)) or 'nothing'}; {FORM}"
        ) from None
    events = [_read_event(f"{path}, event {number}", table) for number, table in enumerate(tables, 1)]
    order = sorted(range(len(events)), key=lambda index: events[index].at)
    check_script([(f"{path}, event {index + 1}", events[index]) for index in order], settings, str(path))
    return tuple(events[index] for index in order)


def list_joining(events: Iterable[Event]) -> tuple[int, ...]:
    """Ids of the agents that join during a run, in the order of their events."""
    return tuple(event.agents[0] for event in events if event.kind == "join")


def _read_event(where: str, table: dict[str, Any]) -> Event:
    try:
        found = _EventTable.model_validate(table)
    except ValidationError as error:
        problem = error.errors(include_url=False, include_context=False)[0]
        name = str(problem["loc"][0])
        if problem["type"] == "missing":
            raise GossamerError(f"{where} has no {name}; {FORM}") from None
        if problem["type"] == "extra_forbidden":
            raise GossamerError(f"{where}: unknown key {shown(name)}; {FORM}") from None
        said = problem["msg"].removeprefix("Input ").replace("should be", "expected", 1)
        raise GossamerError(f"{where}: {name}: {said}, found {shown(problem['input'])}; {FORM}") from None
    kinds = [kind for kind in KINDS if getattr(found, kind) is not None]
    if len(kinds) != 1:
        raise GossamerError(f"{where}: expected one of {', '.join(KINDS)}, found {' and '.join(kinds) or 'none'}")
    (kind,) = kinds
    if (kind == "cut") != (found.seconds is not None):
        raise GossamerError(
            f"{where}: expected seconds = X, after which the links are whole again, found none"
            if kind == "cut"
            else f"{where}: seconds is for cut, found it beside {kind}; leave it out"
        )
    value = getattr(found, kind)
    return Event(found.at, kind, tuple(sorted(set(value))) if kind == "cut" else (value,), found.seconds or 0.0)


def check_script(events: Sequence[tuple[str, Event]], settings: Settings, source: str) -> None:
    """Refuse events that cannot happen, or after which nobody could go on; each comes with where it stands."""
    m, evict_after = settings.agents, settings.evict_after
    if evict_after is None:
        raise GossamerError(
            f"{source}: a rehearsal needs agents that may leave and join; give --evict-after SECONDS (0 removes nobody "
            "for being silent)"
        )
    joining = sorted(list_joining(event for _, event in events))
    if joining != list(range(m, m + len(joining))):
        raise GossamerError(
            f"{source}: expected the agents that join to be numbered from {m} on without a gap, as --agents {m} are "
            f"there from the start; found {join_numbers(joining)}"
        )
    state = _Expected(m)
    for where, event in events:
        if event.at >= settings.steps:
            raise GossamerError(
                f"{where}: expected a step from 1 to {settings.steps - 1}, as the run has {settings.steps}, found "
                f"{event.at}; give more --steps, or an earlier one"
            )
        strangers = [agent for agent in event.agents if agent >= m + len(joining)]
        if strangers:
            raise GossamerError(
                f"{where}: there is no agent {strangers[0]}; expected one of 0 to {m + len(joining) - 1} (--agents {m}"
                + (f", and {len(joining)} that join)" if joining else "; others need an event with join)")
            )
        if event.kind == "kill" and evict_after == 0:
            raise GossamerError(
                f"{where}: with --evict-after 0 nobody is removed for being silent, so that the others would wait for "
                f"agent {event.agents[0]} for ever; give the seconds after which they go on"
            )
        state.play(where, event)


class _Expected:
    """What is known of agents in advance: who runs, and who is a member."""

    def __init__(self, num_agents: int) -> None:
        self.standing = dict.fromkeys(range(num_agents), "runs")
        self.members, self.at = set(range(num_agents)), 0

    def play(self, where: str, event: Event) -> None:
        """Follow one event; refuse what cannot be."""
        if event.at > self.at:  # those that were killed have been removed meanwhile
            self.members = {agent for agent in self.members if self.standing[agent] == "runs"}
            self.at = event.at
        handle: Callable[[str, int], None]
        if event.kind == "cut":
            return self._cut(where, event.agents)
        handle = {"kill": self._kill, "restart": self._restart, "join": self._join, "leave": self._leave}[event.kind]
        handle(where, event.agents[0])

    def _require(self, where: str, agent: int, expected: str, what: str) -> None:
        found = self.standing.get(agent, "has not joined yet")
        if found != expected:
            raise GossamerError(
                f"{where}: {what}, and agent {agent} {found} at this step; change the event, or its step"
            )

    def _kill(self, where: str, agent: int) -> None:
        self._require(where, agent, "runs", "only an agent that runs can be killed")
        self.standing[agent] = "has been killed"
        alive = [one for one in self.members if self.standing[one] == "runs"]
        if 2 * len(alive) <= len(self.members):
            raise GossamerError(
                f"{where}: {len(alive)} of {len(self.members)} members would be left, which is no majority, and nobody "
                "could go on; kill fewer, or at later steps"
            )

    def _restart(self, where: str, agent: int) -> None:
        self._require(where, agent, "has been killed", "only an agent that was killed can be started again")
        self._add(agent)

    def _join(self, where: str, agent: int) -> None:
        if agent in self.standing:
            raise GossamerError(f"{where}: agent {agent} is there already; join is for agents that were not")
        self._add(agent)

    def _add(self, agent: int) -> None:
        self.standing[agent] = "runs"
        self.members.add(agent)

    def _leave(self, where: str, agent: int) -> None:
        self._require(where, agent, "runs", "only an agent that runs can leave")
        if len(self.members) == 1:
            raise GossamerError(f"{where}: agent {agent} is the last member and cannot leave; remove the event")
        self.standing[agent] = "has left"
        self.members.discard(agent)

    def _cut(self, where: str, agents: Sequence[int]) -> None:
        for agent in agents:
            self._require(where, agent, "runs", "only agents that run can be cut off")
        if {one for one, standing in self.standing.items() if standing == "runs"} <= set(agents):
            raise GossamerError(f"{where}: cut names all agents that run, so that there is no rest; leave some out")
