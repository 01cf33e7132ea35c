"""One agent's side of the protocol between neighbours, without I/O or a clock: bytes in, bytes out, time given.

Training. Every exchange of Algorithm 1 has a position (step, slot), the same for all agents. A frame goes out when its
exchange begins and is kept until the neighbour has shown that it has left the step; a neighbour that misses one says in
its status what it waits for and is sent it again. So a lost message costs time only.

Epochs. An agent that starts has lost what it had received, so it opens a new epoch: all agents stop, tell which steps
they can restore, pass on what they are told, and when an agent knows the answer of all m, it goes back to the latest
step that everyone can restore. A message of another epoch is told by its number. A first start, a restart of one agent
and of all are this one rule.

The end. An agent is done when its result is on its disk, whatever the epoch; that all are done is passed on like the
steps. Who knows it leaves as soon as its neighbours know it too, or after a while without them.
"""

from collections import Counter
from collections.abc import Callable, Generator, Mapping
from itertools import pairwise

import torch
from torch import Tensor

from gossamer.agents import Inbox, Outbox
from gossamer.agents.exchange import joined
from gossamer.errors import GossamerError
from gossamer.runtime import wire
from gossamer.runtime.place import Place, Store
from gossamer.runtime.wire import START, Announced, Bytes, Frame, Position, RefusedError, Status

Planned = tuple[str, int, Outbox]  # "train" or "full", the step, and the exchange
Program = Generator[Planned, Inbox, None]  # a training run from some step on; its result is on the disk when it ends
Shapes = Mapping[int, tuple[int, ...]]  # by sender, what an exchange expects
PATIENCE = (1.0, 10.0)  # seconds to wait before asking again: the least, and the most; TCP seldom loses anything
GRACE = 30.0  # seconds that an agent stays for neighbours that have not said that they know that all are done
SILENCE = 120.0  # seconds after which an agent that is done leaves if it hears of nobody
LEAP = 1 << 20  # epochs that one message can skip


class Member:
    """Drives one agent's program with its neighbours' messages, and sends its own by `send`."""

    def __init__(
        self,
        place: Place,
        store: Store,
        begin: Callable[[int], Program],
        schedule: Callable[[Position], tuple[str, str, int, torch.dtype | None, Shapes] | None],
        send: Callable[[int, bytes], None],
        now: float = 0.0,
        on_refused: Callable[[int, RefusedError], None] = lambda sender, refused: None,
    ) -> None:
        """`begin` starts the program at a restorable step; `schedule` tells what a position expects (plan, phase,
        index, shapes by sender), or None where there is no such position."""
        self.place, self.store = place, store
        self._begin, self._schedule, self._send, self._on_refused = begin, schedule, send, on_refused
        self._longest = wire.largest_status(place.num_agents, place.keep)
        self.refused: Counter[str] = Counter()
        self.sent_bytes: Counter[str] = Counter()  # of payloads, by phase, without what is sent again
        mine = (place.agent,) if store.is_done() else ()
        self.done = frozenset(range(place.num_agents) if store.are_all_done() else mine)
        self._settled: set[int] = set()  # neighbours that know that all are done
        self._pace = 0.0  # how long the longest of the last exchanges took
        self._heard = now  # from any neighbour
        self.waiting_since, self._asked = now, 0
        self.wake_at = now  # when to call `tick`
        self._open_epoch(store.epoch() + 1, now)

    @property
    def finished(self) -> bool:
        """Whether this agent's result is on its disk."""
        return self.place.agent in self.done

    @property
    def all_done(self) -> bool:
        """Whether every agent has finished, as far as is known here."""
        return len(self.done) == self.place.num_agents

    @property
    def waiting_for(self) -> tuple[int, ...]:
        """The agents without whose message nothing goes on: neighbours in training, any while an epoch opens."""
        if self._program is not None:
            arrived = self._inbox.get(self.position, {})
            return tuple(link.sender for link in self._exchange.expected if link.sender not in arrived)
        known = self.done if self.finished else self.restorable
        return tuple(k for k in range(self.place.num_agents) if k not in known)

    def leaves(self, now: float) -> bool:
        """Whether this agent's work is over: all are done and the neighbours know it or stay away, or it is done
        itself and has been alone for long."""
        if self.all_done:
            return self._settled >= set(self.place.neighbours) or now > self.waiting_since + GRACE
        return self.finished and now > self._heard + SILENCE

    def receive(self, sender: int, arrived: Bytes, now: float) -> None:
        """A neighbour's message; one that does not belong is counted and forgotten."""
        try:
            message = wire.decode(arrived, self.place.run, sender, self._longest)
            self._heard = now
            if isinstance(message, Status):
                self._on_status(message, now)
            else:
                self._on_frame(message, arrived, now)
        except RefusedError as refused:
            self.refused[refused.reason] += 1
            self._on_refused(sender, refused)

    def tick(self, now: float) -> None:
        """Ask again what has not come."""
        if now < self.wake_at:
            return
        waiting = set(self.waiting_for) & set(self.place.neighbours) if self._program is not None else set()
        for neighbour in sorted(waiting or self.place.neighbours):
            self._tell(neighbour)
        self._asked += 1
        self.wake_at = now + self._patience()

    def _open_epoch(self, epoch: int, now: float) -> None:
        self.store.set_epoch(epoch)  # before anyone hears of it: an agent never says two things in one epoch
        self.epoch = epoch
        self.restorable = {self.place.agent: (self.place.life, *self.store.steps())}  # by agent: its life, and steps
        self._program: Program | None = None
        self._ended = self.all_done  # whether the program of this epoch has run; when all are done, none is needed
        self.position: Position = (0, 0)
        self._inbox: dict[Position, dict[int, Tensor]] = {}
        self._kept: dict[int, dict[Position, bytes]] = {z: {} for z in self.place.neighbours}
        self._turned(now)
        self._tell_all()
        self._maybe_train(now)

    def _on_status(self, status: Status, now: float) -> None:
        self._check(status)
        mine = status.restorable.get(self.place.agent)
        if self.all_done:
            status = Status(status.sender, status.epoch, {}, status.done)  # who comes late is told, and joined no more
        elif status.epoch > self.epoch:
            # If this agent has spoken there already, it was in an earlier life, and its disk forgot the epoch.
            self._open_epoch(status.epoch + (mine is not None), now)
        elif status.epoch == self.epoch and mine is not None and mine != self.restorable[self.place.agent]:
            self._open_epoch(self.epoch + 1, now)
        same = status.epoch == self.epoch
        known = (len(self.restorable), len(self.done))
        if same:
            self.restorable = {**status.restorable, **self.restorable}
        self.done |= status.done
        if len(status.done) == self.place.num_agents:
            self._settled.add(status.sender)
        behind = status.epoch < self.epoch or len(status.restorable) < known[0]
        ahead = status.sender in status.done
        if (len(self.restorable), len(self.done)) != known:
            if len(self.done) != known[1]:
                self._turned(now)
            self._tell_all()
        elif len(status.done) < known[1] or (behind and not self.all_done) or (ahead and not self.finished):
            self._tell(status.sender)  # to one that is ahead, lest it think that it is alone and leave
        self._maybe_train(now)
        if same and status.waiting is not None:
            self._send_again(status.sender, status.waiting)

    def _check(self, status: Status) -> None:
        """Refuse what no agent of this run would say, before anything is done with it."""
        if not set(status.restorable) | status.done <= set(range(self.place.num_agents)):
            raise RefusedError("malformed", "an agent that does not exist")
        for _, *steps in status.restorable.values():
            rising = all(a < b for a, b in pairwise(steps))
            if not rising or steps[:1] != [0] or len(steps) > self.place.keep + 1 or steps[-1] > self.place.steps:
                raise RefusedError("malformed", "steps that nobody can restore")
        if status.epoch > self.epoch + LEAP:
            raise RefusedError("malformed", "an epoch far away")
        if self.place.agent in status.done and not self.store.is_done():
            raise GossamerError(
                f"the others say that agent {self.place.agent} has finished, but its folder holds no result. "
                "Put it back, or let all agents start anew from fresh shards"
            )

    def _maybe_train(self, now: float) -> None:
        if self._program is None and not self._ended and len(self.restorable) == self.place.num_agents:
            step = max(set.intersection(*(set(steps) for _, *steps in self.restorable.values())))
            self._program, self.position = self._begin(step), (step, -1)
            self._advance(None, now)

    def _on_frame(self, frame: Announced, whole: Bytes, now: float) -> None:
        """First what the header announces is held against the plan; the numbers are looked at last."""
        if frame.epoch > self.epoch:
            self._tell(frame.sender)  # whoever is behind is told the epoch
        if frame.epoch != self.epoch:
            raise RefusedError("old" if frame.epoch < self.epoch else "early", "epoch")
        if self._program is None:
            raise RefusedError("old" if self.finished else "early", "not training")
        if frame.position < self.position:
            raise RefusedError("old", "position")
        planned = self._schedule(frame.position)
        if planned is None:
            raise RefusedError("unplanned", "position")
        plan, phase, index, dtype, shapes = planned
        if (frame.plan, frame.phase, frame.index, frame.dtype) != (plan, phase, index, dtype or self.place.dtype):
            raise RefusedError("unplanned", "phase or type")
        if shapes.get(frame.sender) != frame.shape:
            raise RefusedError("unplanned", "shape")
        if frame.position[0] > self.position[0] + self.place.lead:
            raise RefusedError("early", "position")  # bounds what is held for later
        arrived = self._inbox.setdefault(frame.position, {})
        if frame.sender in arrived:
            raise RefusedError("duplicate")
        arrived[frame.sender] = wire.payload(frame, whole, self.place.sealed)
        kept = self._kept[frame.sender]
        for position in [p for p in kept if p[0] < frame.position[0]]:
            del kept[position]  # the neighbour has left that step
        self._advance_if_ready(now)

    def _advance_if_ready(self, now: float) -> None:
        """Go through as many exchanges as everything has arrived for."""
        while self._program is not None:
            arrived = self._inbox.get(self.position, {})
            if len(arrived) < len(self._exchange.expected):  # only messages of the plan are held
                return
            self._inbox.pop(self.position, None)
            inbox = {link: arrived[link.sender] for link in self._exchange.expected}
            taken = now - self.waiting_since
            # A time with a loss in it tells less of the pace; but if all are long, they are the pace.
            self._pace = max(0.95 * self._pace, min(taken, 2 * self._pace + 0.1) if self._asked else taken)
            self._advance(inbox, now)

    def _advance(self, inbox: Inbox | None, now: float) -> None:
        """To the next exchange, whose messages go out at once, or to the end."""
        program, before = self._program, self.position
        assert program is not None
        self._turned(now)
        try:
            plan, step, self._exchange = next(program) if inbox is None else program.send(inbox)
        except StopIteration:
            self.store.set_done()
            self._program, self._ended = None, True
            self.done |= {self.place.agent}
            self._tell_all()
            return
        self.position = (step, before[1] + 1 if step == before[0] else 0)
        phase = str(self._exchange.phase)
        encoded: dict[int, bytes] = {}  # neighbours that are sent the same share one encoding
        for link, message in self._exchange.messages.items():
            if id(message) not in encoded:
                encoded[id(message)] = self._encoded(plan, joined(message))
            out = self._kept[link.receiver][self.position] = encoded[id(message)]
            self._send(link.receiver, out)
            self.sent_bytes[phase] += len(out) - START
        if inbox is None:
            self._advance_if_ready(now)

    def _encoded(self, plan: str, rows: Tensor) -> bytes:
        if not wire.is_finite(rows):
            raise GossamerError(
                f"agent {self.place.agent} has numbers that are not finite at step {self.position[0]}: the run has "
                "diverged; cut the shards again with a smaller --step-size"
            )
        what = str(self._exchange.phase), self._exchange.index
        frame = Frame(self.place.agent, self.epoch, self.position, plan, *what, rows)
        return wire.encode(frame, self.place.run, self.place.sealed)

    def _send_again(self, neighbour: int, wanted: Position) -> None:
        """A neighbour waits: send what it misses and everything after it."""
        for position, message in sorted(self._kept[neighbour].items()):
            if position >= wanted:
                self._send(neighbour, message)

    def _turned(self, now: float) -> None:
        """Something has changed: waiting begins anew."""
        self.waiting_since, self._asked = now, 0
        self.wake_at = now + self._patience()

    def _patience(self) -> float:
        """How long to wait before asking again: four times the usual, and twice as long with every time."""
        return min(max(PATIENCE[0], 4 * self._pace) * 2.0**self._asked, PATIENCE[1])

    def _tell_all(self) -> None:
        if self.all_done:
            self.store.set_all_done()  # before anyone hears of it: they may leave, and nobody could say it again
        for neighbour in self.place.neighbours:
            self._tell(neighbour)

    def _tell(self, neighbour: int) -> None:
        waiting = self.position if self._program is not None and neighbour in self.waiting_for else None
        status = Status(self.place.agent, self.epoch, self.restorable, self.done, waiting)
        self._send(neighbour, wire.encode(status, self.place.run))
