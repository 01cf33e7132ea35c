"""One agent's side of the protocol between neighbours, without I/O or a clock: parts in, parts out, time given.

Training. Every exchange of Algorithm 1 has a position (step, slot), the same for all agents. A frame goes out when its
exchange begins and is kept until the neighbour has shown that it has left the step; a neighbour that misses one says in
its status what it waits for and is sent it again. So a lost message costs time only.

Epochs. An agent that starts has lost what it had received, so it opens a new epoch: all agents stop, tell which steps
they can restore, pass on what they are told, and when an agent knows the answer of all m, it goes back to the latest
step that everyone can restore. A message of another epoch is told by its number. A first start, a restart of one agent
and of all are this one rule.
"""

from collections import Counter
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from gossamer.agents import Inbox, Outbox
from gossamer.runtime.wire import Frame, Parts, Position, RefusedError, Status, decode, encode

Planned = tuple[str, int, Outbox]  # "train" or "full", the step, and the exchange
Program = Generator[Planned, Inbox, None]  # a training run from some step on
Shapes = Mapping[int, tuple[int, ...]]  # by sender, what an exchange expects
PATIENCE = (0.05, 5.0)  # seconds to wait before asking again: the least, and the most


class Store(Protocol):
    """What survives a crash."""

    def epoch(self) -> int: ...
    def set_epoch(self, epoch: int) -> None: ...
    def steps(self) -> Sequence[int]: ...


@dataclass(frozen=True)
class Place:
    """Where an agent stands in the network."""

    agent: int
    num_agents: int
    neighbours: tuple[int, ...]
    run: str  # the id of the run, the same for all
    dtype: torch.dtype
    lead: int = 1  # steps that a neighbour can be ahead: those from one exchange with it to the next


class Member:
    """Drives one agent's program with its neighbours' messages, and sends its own by `send`."""

    def __init__(
        self,
        place: Place,
        store: Store,
        begin: Callable[[int], Program],
        schedule: Callable[[Position], tuple[str, str, int, Shapes] | None],
        send: Callable[[int, Parts], None],
        now: float = 0.0,
    ) -> None:
        """`begin` starts the program at a restorable step; `schedule` tells what a position expects (plan, phase,
        index, shapes by sender), or None where there is no such position."""
        self.place, self.store = place, store
        self._begin, self._schedule, self._send = begin, schedule, send
        self.refused: Counter[str] = Counter()
        self.sent_bytes: Counter[str] = Counter()  # of payloads, by phase
        self.finished = False
        self._pace = PATIENCE[0]  # how long an exchange takes where nothing is lost, as seen so far
        self._asked = 0  # times in this exchange
        self._ask_at, self._since = now, now
        self._open_epoch(store.epoch() + 1, now)

    # What others may ask.

    @property
    def waiting_for(self) -> tuple[int, ...]:
        """The neighbours without whose message nothing goes on."""
        if self._program is None:
            return () if self.finished else self.place.neighbours
        return tuple(link.sender for link in self._exchange.expected if link.sender not in self._arrived())

    @property
    def waiting_since(self) -> float:
        return self._since

    @property
    def wake_at(self) -> float:
        """When to call `tick`."""
        return self._ask_at

    @property
    def all_done(self) -> bool:
        """Whether every agent has finished, as far as is known here."""
        return len(self.done) == self.place.num_agents

    @property
    def may_leave(self) -> bool:
        """Whether all are done, and all neighbours know it."""
        return self.all_done and self._settled == set(self.place.neighbours)

    # What happens to it.

    def receive(self, sender: int, parts: Sequence[bytes | memoryview], now: float) -> None:
        """A neighbour's message; one that does not belong is counted and forgotten."""
        try:
            message = decode(parts, self.place.run, sender)
            if isinstance(message, Status):
                self._on_status(message, now)
            else:
                self._on_frame(message, now)
        except RefusedError as refused:
            self.refused[refused.reason] += 1

    def tick(self, now: float) -> None:
        """Ask again what has not come."""
        if now < self._ask_at:
            return
        for neighbour in self.waiting_for or self.place.neighbours:
            self._tell(neighbour)
        self._asked += 1
        self._ask_at = now + self._patience()

    # Epochs.

    def _open_epoch(self, epoch: int, now: float) -> None:
        self.store.set_epoch(epoch)  # before anyone hears of it: an agent never says two things in one epoch
        self.epoch = epoch
        self.restorable = {self.place.agent: tuple(self.store.steps())}
        self.done: frozenset[int] = frozenset()
        self.finished = False
        self._settled: set[int] = set()  # neighbours that know that all are done
        self._program: Program | None = None
        self.position: Position = (0, 0)
        self._inbox: dict[Position, dict[int, Tensor]] = {}
        self._kept: dict[int, dict[Position, Parts]] = {z: {} for z in self.place.neighbours}
        self._tell_all()
        self._since, self._asked = now, 0
        self._ask_at = now + self._patience()
        self._maybe_train(now)

    def _on_status(self, status: Status, now: float) -> None:
        if status.epoch > self.epoch:
            self._open_epoch(status.epoch, now)
        elif status.epoch < self.epoch:
            return self._tell(status.sender)
        agents = range(self.place.num_agents)
        if not set(status.restorable) | status.done <= set(agents):
            raise RefusedError("malformed", "an agent that does not exist")
        known = (len(self.restorable), len(self.done))
        self.restorable = {**status.restorable, **self.restorable}
        self.done |= status.done
        if len(status.done) == self.place.num_agents:
            self._settled.add(status.sender)
        if (len(self.restorable), len(self.done)) != known:
            self._tell_all()
        elif len(status.restorable) < known[0] or len(status.done) < known[1]:
            self._tell(status.sender)
        self._maybe_train(now)
        if status.waiting is not None:
            self._send_again(status.sender, status.waiting)

    def _maybe_train(self, now: float) -> None:
        if self._program is None and not self.finished and len(self.restorable) == self.place.num_agents:
            step = max(set.intersection(*(set(steps) for steps in self.restorable.values())))
            self._program, self.position = self._begin(step), (step, -1)
            self._advance(None, now)

    # Training.

    def _on_frame(self, frame: Frame, now: float) -> None:
        if frame.epoch > self.epoch:
            self._tell(frame.sender)  # whoever is behind is told the epoch
        if frame.epoch != self.epoch:
            raise RefusedError("old" if frame.epoch < self.epoch else "early", "epoch")
        if self._program is None:
            raise RefusedError("old" if self.finished else "early", "not training")
        if frame.position < self.position:
            raise RefusedError("old", "position")
        planned = self._schedule(frame.position) if frame.position[0] <= self.position[0] + self.place.lead else None
        if planned is None:
            raise RefusedError("unplanned", "position")
        plan, phase, index, shapes = planned
        if (frame.plan, frame.phase, frame.index) != (plan, phase, index) or frame.rows.dtype != self.place.dtype:
            raise RefusedError("unplanned", "phase or type")
        if shapes.get(frame.sender) != tuple(frame.rows.shape):
            raise RefusedError("unplanned", "shape")
        arrived = self._inbox.setdefault(frame.position, {})
        if frame.sender in arrived:
            raise RefusedError("duplicate")
        arrived[frame.sender] = frame.rows
        kept = self._kept[frame.sender]
        for position in [p for p in kept if p[0] < frame.position[0]]:
            del kept[position]  # the neighbour has left that step
        self._advance_if_ready(now)

    def _advance_if_ready(self, now: float) -> None:
        """Go through as many exchanges as everything has arrived for."""
        while self._program is not None and not self.waiting_for:
            arrived = self._inbox.pop(self.position, {})
            inbox = {link: arrived[link.sender] for link in self._exchange.expected}
            if not self._asked:  # else the time tells of a loss, not of the pace
                self._pace += 0.2 * (now - self._since - self._pace)
            self._advance(inbox, now)

    def _advance(self, inbox: Inbox | None, now: float) -> None:
        """To the next exchange, whose messages go out at once, or to the end."""
        program, before = self._program, self.position
        assert program is not None
        try:
            plan, step, self._exchange = next(program) if inbox is None else program.send(inbox)
        except StopIteration:
            self._program, self.finished = None, True
            self.done |= {self.place.agent}
            self._tell_all()
            return
        self.position = (step, before[1] + 1 if step == before[0] else 0)
        for link, rows in self._exchange.messages.items():
            frame = Frame(
                self.place.agent, self.epoch, self.position, plan, str(self._exchange.phase), self._exchange.index, rows
            )
            parts = encode(frame, self.place.run)
            self._kept[link.receiver][self.position] = parts
            self._send(link.receiver, parts)
            self.sent_bytes[str(self._exchange.phase)] += len(parts[1])
        self._since, self._asked = now, 0
        self._ask_at = now + self._patience()
        if inbox is None:
            self._advance_if_ready(now)

    def _send_again(self, neighbour: int, wanted: Position) -> None:
        """A neighbour waits: send what it misses and everything after it."""
        again = {position: parts for position, parts in self._kept[neighbour].items() if position >= wanted}
        for _, parts in sorted(again.items()):
            self._send(neighbour, parts)

    def _arrived(self) -> Mapping[int, Tensor]:
        return self._inbox.get(self.position, {})

    def _patience(self) -> float:
        """How long to wait before asking again: four times the usual, and twice as long with every time."""
        return min(max(PATIENCE[0], 4 * self._pace) * 2.0**self._asked, PATIENCE[1])

    # What is told.

    def _tell_all(self) -> None:
        for neighbour in self.place.neighbours:
            self._tell(neighbour)

    def _tell(self, neighbour: int) -> None:
        waiting = self.position if neighbour in self.waiting_for and self._program is not None else None
        status = Status(self.place.agent, self.epoch, self.restorable, self.done, waiting)
        self._send(neighbour, encode(status, self.place.run))
