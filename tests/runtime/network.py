"""A network in one thread, decided by a seed: delays, reorderings, drops, partitions, kills and restarts.

Every agent runs the real training step and the real protocol; only sockets, disks and clocks are pretended.
"""

import heapq
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from gossamer.agents import Host
from gossamer.runtime.member import Member, Place
from gossamer.runtime.program import begin, make_schedule
from gossamer.runtime.settings import Settings
from gossamer.runtime.shards import checkpoints_to_keep, diameter, neighbours_apart

KILLS = ("before handling", "before sending", "after sending", "before saving", "after saving", "around the epoch")


class Killed(Exception):  # noqa: N818
    """The process is gone."""


@dataclass
class Disk:
    """What an agent's disk holds; `dies` may end the agent before or after a write, never within one."""

    keep: int
    first: tuple[dict, dict]
    dies: Callable[[str], None]
    checkpoints: dict[int, tuple[dict, dict]] = field(default_factory=dict)
    number: int = 0
    done: bool = False

    def is_done(self) -> bool:
        return self.done

    def set_done(self) -> None:
        self.dies("before saving")
        self.done = True
        self.dies("after saving")

    def epoch(self) -> int:
        return self.number

    def set_epoch(self, epoch: int) -> None:
        self.dies("around the epoch")
        self.number = epoch
        self.dies("around the epoch")

    def steps(self) -> list[int]:
        return sorted({0, *self.checkpoints})

    def save(self, step: int, params: dict, state: dict) -> None:
        self.dies("before saving")
        self.checkpoints[step] = (_copied(params), _copied(state))
        kept = sorted({0, *(s for s in self.checkpoints if s <= step)})[-self.keep :]
        self.checkpoints = {s: part for s, part in self.checkpoints.items() if s in kept}
        self.dies("after saving")

    def load(self, step: int) -> tuple[dict, dict]:
        params, state = self.checkpoints.get(step, self.first)
        return _copied(params), _copied(state)


def _copied(parts: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: part.clone() for name, part in parts.items()}


@dataclass
class Faults:
    drop: float = 0.0  # probability that a message is lost
    delay: float = 0.01  # mean seconds on the way; exponential, so that messages overtake each other
    steady: bool = False  # or always the same
    kills: int = 0  # in all
    kill: float = 0.0  # probability at each place where an agent may die
    where: tuple[str, ...] = KILLS  # the places
    partition: float = 0.0  # seconds during which one link carries nothing


class Network:
    """Agents on one pretended clock."""

    def __init__(
        self, hosts: dict[int, Host], links: np.ndarray, settings: Settings, faults: Faults, seed: int
    ) -> None:
        self.random, self.faults, self.settings = random.Random(seed), faults, settings
        self.hosts, self.now, self.count = hosts, 0.0, 0
        self.events: list[tuple[float, int, str, Any]] = []
        self.neighbours = {k: tuple(int(z) for z in np.flatnonzero(links[k]) if z != k) for k in hosts}
        self.records: dict[int, dict[int, Any]] = {k: {} for k in hosts}
        self.killed: Counter[str] = Counter()
        self.overhear: Callable[[int, int, list[bytes]], None] | None = None
        keep = checkpoints_to_keep(diameter(links), settings)
        self.disks = {
            k: Disk(keep, (_copied(h.params), _copied(h.state)), lambda where, k=k: self._maybe_die(where))
            for k, h in hosts.items()
        }
        self.schedules = {k: make_schedule(h, settings) for k, h in hosts.items()}
        self.members: dict[int, Member] = {}
        self.gone: set[int] = set()
        self.isolated = (-1, 0.0)
        self.last: dict[int, Member] = {}
        self.finals: dict[int, dict[str, torch.Tensor]] = {}
        self.cut = (self.random.choice([(k, z) for k in hosts for z in self.neighbours[k]]), 0.0, 0.0)
        if faults.partition:
            start = self.random.uniform(0, 0.5)
            self.cut = (self.cut[0], start, start + faults.partition)
        for k in hosts:
            self._at(self.random.uniform(0, 0.05), "start", k)

    def run(self, limit: float = 600.0) -> None:
        """Until every agent has left, or the pretended time is over."""
        while len(self.gone) < len(self.hosts):
            self.step()
            assert self.now < limit, f"no progress: {self.told()}"

    def step(self) -> None:
        """The next event."""
        assert self.events, f"nothing more happens: {self.told()}"
        self.now, _, kind, what = heapq.heappop(self.events)
        agent = what if kind in ("start", "tick") else what[1]
        try:
            self._handle(kind, what)
        except Killed:
            self.kill(agent)

    def kill(self, agent: int) -> None:
        """End an agent as it is; it is started again a little later."""
        self.members.pop(agent, None)
        self.gone.discard(agent)
        self._at(self.now + self.random.uniform(0.01, 0.3), "start", agent)

    def isolate(self, agent: int, until: float) -> None:
        """Cut an agent off from everyone."""
        self.isolated = (agent, until)

    def deliver(self, sender: int, receiver: int, parts: list[bytes]) -> None:
        """Bring a message now, whoever sent it."""
        self._at(self.now, "message", (sender, receiver, parts))

    def told(self) -> str:
        return "; ".join(
            f"{k}: epoch {m.epoch} at {m.position} waits for {m.waiting_for}, {len(m.done)} done"
            for k, m in sorted(self.members.items())
        )

    def _handle(self, kind: str, what: Any) -> None:
        if kind == "start":
            k = what
            place = Place(
                k,
                len(self.hosts),
                self.neighbours[k],
                "run",
                torch.float64,
                self.settings.steps,
                self.disks[k].keep,
                self.count,  # grows with every event
                neighbours_apart(self.settings),
            )
            self.members[k] = Member(
                place,
                self.disks[k],
                lambda step: self._program(k, step),
                self.schedules[k],
                lambda receiver, parts: self._sends(k, receiver, parts),
                self.now,
            )
        elif kind == "tick":
            k = what
            if k not in self.members or self.members[k].wake_at > self.now:
                return
            self.members[k].tick(self.now)
        else:
            sender, k, parts = what
            if k not in self.members:
                return
            self._maybe_die("before handling")
            self.members[k].receive(sender, parts, self.now)
        member = self.last[k] = self.members[k]
        if member.leaves(self.now):
            self.members.pop(k)
            self.gone.add(k)
        else:
            self._at(max(member.wake_at, self.now + 1e-4), "tick", k)

    def _sends(self, sender: int, receiver: int, parts: list[Any]) -> None:
        assert receiver in self.neighbours[sender], "a message to someone who is not a neighbour"
        self._maybe_die("before sending")
        self._send(sender, receiver, [bytes(part) for part in parts])
        self._maybe_die("after sending")

    def _program(self, k: int, step: int) -> Any:
        host = self.hosts[k]

        def program() -> Any:
            yield from begin(
                host, self.settings, self.disks[k], step, lambda t, sums: self.records[k].update({t: sums})
            )
            self.finals[k] = _copied(self.disks[k].load(self.settings.steps)[0])

        return program()

    def _send(self, sender: int, receiver: int, parts: list[bytes]) -> None:
        if self.overhear is not None:
            self.overhear(sender, receiver, parts)
        if self.now < self.isolated[1] and self.isolated[0] in (sender, receiver):
            return
        link, start, end = self.cut
        if {sender, receiver} == set(link) and start <= self.now < end:
            return
        if self.random.random() < self.faults.drop:
            return
        delay = self.faults.delay if self.faults.steady else self.random.expovariate(1 / self.faults.delay)
        self._at(self.now + delay, "message", (sender, receiver, parts))

    def _maybe_die(self, where: str) -> None:
        if where not in self.faults.where:
            return
        if sum(self.killed.values()) < self.faults.kills and self.random.random() < self.faults.kill:
            self.killed[where] += 1
            raise Killed(where)

    def _at(self, when: float, kind: str, what: Any) -> None:
        self.count += 1
        heapq.heappush(self.events, (when, self.count, kind, what))
