"""The exchanges of one agent in one epoch: which is next, what has arrived for it, and what is kept to be sent again.

Every exchange of Algorithm 1 has a position (step, slot), the same for all agents. What a frame's header announces is
held against the plan; its numbers are looked at last, and against the bounds of magnitudes.py when their turn comes.
"""

from collections import Counter
from collections.abc import Callable, Generator, Mapping

import torch
from torch import Tensor

from gossamer.agents import Inbox, Outbox, Phase
from gossamer.agents.exchange import joined
from gossamer.errors import DivergedError, GossamerError
from gossamer.generators import Returned, advance
from gossamer.peers.protocol import wire
from gossamer.peers.protocol.config import ProtocolConfig
from gossamer.peers.protocol.magnitudes import Magnitudes
from gossamer.peers.protocol.resending import Kept
from gossamer.peers.protocol.wire import START, Announced, Bytes, Frame, Position, RefusedError

Planned = tuple[str, int, Outbox]  # "train" or "full", the step, and the exchange
Program = Generator[Planned, Inbox, None]  # a training run from some step on; its result is on the disk when it ends
Shapes = Mapping[int, tuple[int, ...]]  # by sender, what an exchange expects
Slot = tuple[str, str, int, torch.dtype | None, Shapes]  # plan, phase, index, type of numbers, shapes by sender
Schedule = Callable[[Position], Slot | None]  # what a position expects; None where there is no such position
Arrived = tuple[Tensor, float]  # rows, and the magnitude of their largest number
SUSPICIOUS = 1e6  # a number that is mentioned when a run diverges


class Exchanges:
    """What an agent's program exchanges with its neighbours, once it has begun."""

    def __init__(
        self,
        config: ProtocolConfig,
        epoch: int,
        schedule: Schedule,
        send: Callable[[int, bytes], None],
        on_refused: Callable[[int, RefusedError], None],
        sent_bytes: Counter[str],
    ) -> None:
        self._config, self._epoch, self._schedule, self._send = config, epoch, schedule, send
        self._on_refused, self._sent_bytes = on_refused, sent_bytes
        self._program: Program | None = None
        self.position: Position = (0, 0)
        self.begun = 0  # the step that the program began at
        self.inbox: dict[Position, dict[int, Arrived]] = {}
        self.kept, self._magnitudes = Kept(config.membership.neighbours), Magnitudes()
        self._impossible: dict[int, tuple[Position, RefusedError]] = {}  # the last such message of each neighbour

    @property
    def running(self) -> bool:
        return self._program is not None

    @property
    def waiting_for(self) -> tuple[int, ...]:
        """The neighbours whose messages of this exchange have not come."""
        if self._program is None:
            return ()
        arrived = self.inbox.get(self.position, {})
        return tuple(link.sender for link in self.current.expected if link.sender not in arrived)

    def begin(self, program: Program, step: int) -> bool:
        """Start a program that begins at a step; tells whether it has ended."""
        self._program, self.position, self.begun = program, (step, -1), step
        return self._advance(None)

    def take(self, frame: Announced, whole: Bytes) -> None:
        """Put a neighbour's message where it belongs. First what the header announces is held against the plan."""
        if frame.position < self.position:
            raise RefusedError("old", "position")
        planned = self._schedule(frame.position)
        if planned is None:
            raise RefusedError("unplanned", "position")
        plan, phase, index, dtype, shapes = planned
        if (frame.plan, frame.phase, frame.index, frame.dtype) != (plan, phase, index, dtype or self._config.dtype):
            raise RefusedError("unplanned", "phase or type")
        if shapes.get(frame.sender) != frame.shape:
            raise RefusedError("unplanned", "shape")
        if frame.position[0] > self.position[0] + self._config.max_step_gap:
            raise RefusedError("early", "position")  # bounds what is held for later
        arrived = self.inbox.setdefault(frame.position, {})
        if frame.sender in arrived:
            raise RefusedError("duplicate")
        try:
            arrived[frame.sender] = wire.payload(frame, whole, self._config.encrypted)
        except RefusedError as refused:
            if refused.reason == "not finite":
                self._impossible[frame.sender] = frame.position, refused
            raise

    def ready(self) -> Inbox | None:
        """The messages of this exchange if all have arrived; those with numbers that no honest agent sends are
        refused."""
        if self._program is None:
            return None
        arrived, exchange = self.inbox.get(self.position, {}), self.current
        for sender, (rows, size) in list(arrived.items()) if exchange.phase is not Phase.PLANNING else ():
            try:
                self._magnitudes.check(exchange, sender, exchange.largest(rows) if exchange.largest else size)
            except RefusedError as refused:
                del arrived[sender]
                self._impossible[sender] = self.position, refused
                self._on_refused(sender, refused)
        if len(arrived) < len(exchange.expected):  # only messages of the plan are held
            return None
        return {link: arrived[link.sender][0] for link in exchange.expected}

    def advance(self, inbox: Inbox) -> bool:
        """To the next exchange, whose messages go out at once, or to the end: tells whether the program has ended."""
        self.inbox.pop(self.position, None)
        for link in inbox:
            self.kept.release(link.sender, self.position[0])  # the neighbour has left earlier steps
        return self._advance(inbox)

    def impossible(self, sender: int) -> RefusedError | None:
        """The last refusal of this exchange's message from a neighbour, if no honest agent would have sent it."""
        position, refused = self._impossible.get(sender, (None, None))
        return refused if position == self.position else None

    def _advance(self, inbox: Inbox | None) -> bool:
        program, before = self._program, self.position
        assert program is not None
        reached = advance(program, inbox)
        if isinstance(reached, Returned):
            self._program = None
            return True
        plan, step, self.current = reached
        self.position = (step, before[1] + 1 if step == before[0] else 0)
        encoded: dict[int, tuple[bytes, float]] = {}  # neighbours that are sent the same share one encoding
        for link, message in self.current.messages.items():
            if id(message) not in encoded:
                encoded[id(message)] = self._encoded(plan, joined(message))
            out, size = encoded[id(message)]
            if self.current.phase is not Phase.PLANNING:
                self._magnitudes.check_own(self.current, link.receiver, size)
            self.kept.add(link.receiver, self.position, out)
            self._send(link.receiver, out)
            self._sent_bytes[str(self.current.phase)] += len(out) - START
        return False

    def _encoded(self, plan: str, rows: Tensor) -> tuple[bytes, float]:
        exchange, config = self.current, self._config
        what = str(exchange.phase), exchange.index
        frame = Frame(config.membership.agent, self._epoch, self.position, plan, *what, rows)
        size = exchange.largest(rows) if exchange.largest else wire.largest(rows)
        return wire.encode(frame, config.membership.run, config.encrypted), size

    def explain(self, diverged: DivergedError) -> GossamerError:
        """Why a run ends, with the largest number that arrived, if that is large: a neighbour may be the cause."""
        size, sender, phase = self._magnitudes.greatest
        told = f"; the largest number that it was sent, {size:.0e}, came from agent {sender} ({phase})"
        agent = self._config.membership.agent
        return GossamerError(
            f"agent {agent} has {diverged.found} at step {self.position[0]}: the run has diverged; cut the "
            f"shards again with a smaller --step-size, or scale features and targets{told if size > SUSPICIOUS else ''}"
        )
