"""The player of a script: makes events happen when the run reaches their steps.

Events of one step happen together. Those of a later step wait until the members go on without an agent that was killed
or leaves, so that a fast run does not mix them up; they wait neither for one that joins, whose process takes seconds to
start, nor for the end of a cut.
"""

from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path

from gossamer.peers.agent_folders import run_folder
from gossamer.peers.departure import ask_to_leave
from gossamer.peers.identity import add_admitted
from gossamer.peers.link_cuts import write_cut
from gossamer.peers.local_processes import LocalProcesses
from gossamer.peers.network.keys import derive_agent_key, read_key
from gossamer.peers.rehearsal.script import Event, name_agents
from gossamer.peers.rehearsal.timeline import Timeline
from gossamer.peers.shards.sites import read_site_shard

PATIENCE = 60.0  # seconds after which the next events no longer wait for a membership


class Player:
    """Plays the events of a script on the processes of agents."""

    def __init__(
        self,
        events: Sequence[Event],
        processes: LocalProcesses,
        folders: Sequence[Path],
        timeline: Timeline,
        on_event: Callable[[str], None] = lambda text: None,
    ) -> None:
        """`folders` are those of the agents, by id; `on_event` takes a line for each event."""
        self._events, self._processes, self._folders = deque(events), processes, folders
        self._timeline, self._on_event = timeline, on_event
        self._cuts: dict[float, tuple[int, ...]] = {}  # agents that are cut off, by the moment at which it ends
        self._awaited = set[int]()  # agents that should soon be no members any more
        self._awaited_since = 0.0

    def play(self, now: float) -> None:
        """Make the events happen that are due."""
        for end in sorted(end for end in self._cuts if end <= now):
            self._heal(self._cuts.pop(end))
        self._forget_awaited(now)
        if self._awaited or not self._events or self._events[0].at > self._timeline.step:
            return
        at = self._events[0].at
        while self._events and self._events[0].at == at:
            if self._events[0].kind == "restart" and self._processes.is_running(self._events[0].agents[0]):
                return  # killed in this moment
            self._play_event(self._events.popleft(), now)

    def finish(self) -> None:
        """Note the events that have not happened."""
        self._timeline.missed = list(self._events)

    def _play_event(self, event: Event, now: float) -> None:
        agent = event.agents[0]
        if event.kind == "kill":
            self._processes.kill(agent)
        elif event.kind == "leave":
            ask_to_leave(self._folders[agent])
        elif event.kind == "cut":
            self._cuts[now + event.seconds] = event.agents
            self._write_cuts()
        else:
            if event.kind == "join":
                self._admit(agent)
            self._processes.start(agent)
        if event.kind in ("kill", "leave"):
            self._awaited.add(agent)
            self._awaited_since = now
        self._timeline.add_event(event)
        self._on_event(f"step {self._timeline.step}: {event.describe()}")

    def _heal(self, agents: tuple[int, ...]) -> None:
        self._write_cuts()
        self._timeline.add_heal(agents)
        self._on_event(f"step {self._timeline.step}: {name_agents(agents)} linked again")

    def _admit(self, agent: int) -> None:
        """Let those that a new agent names as neighbours admit its key."""
        key = derive_agent_key(read_key(self._folders[agent] / "key.secret"))
        for z in read_site_shard(self._folders[agent]).membership.neighbours:
            add_admitted(self._folders[z], key)

    def _write_cuts(self) -> None:
        """Let every agent know to whom it sends nothing; an agent reads the file as its report is made."""
        agents = range(len(self._folders))
        for k, folder in enumerate(self._folders):
            apart = {z for side in self._cuts.values() for z in agents if (z in side) != (k in side)}
            write_cut(run_folder(folder, read_site_shard(folder).membership), apart)

    def _forget_awaited(self, now: float) -> None:
        """Forget the agents without which the members go on by now."""
        known = [set(report.get("members", [])) for report in self._processes.members.values()]
        for agent in list(self._awaited):
            if any(agent not in members for members in known) or now > self._awaited_since + PATIENCE:
                self._awaited.discard(agent)
