"""Exchanges of one agent in one epoch: which one is current, what has arrived for it, and what may be sent again.

Every exchange of Algorithm 1 has a position (step, number within the step), the same for all agents. The header of a
frame is checked against the plan first, its numbers last, against the bounds of magnitudes.py once it is their turn.
"""

from collections import Counter
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from gossamer.agents import Inbox, Outbox, Phase
from gossamer.agents.exchange import join_parts
from gossamer.agents.relays import Route
from gossamer.errors import DivergedError, GossamerError
from gossamer.generators import Returned, advance
from gossamer.peers.protocol import wire
from gossamer.peers.protocol.config import ProtocolConfig
from gossamer.peers.protocol.magnitudes import MagnitudeBounds
from gossamer.peers.protocol.resending import ResendBuffer
from gossamer.peers.protocol.wire import PAYLOAD_OFFSET, Buffer, Frame, FrameHeader, Position, RefusedError

TRAFFIC_KINDS = ("forward", "backward", "consensus", "evaluation", "protocol")
SUSPICIOUS = 1e6  # a received number that is reported when a run diverges


class PlannedExchange(NamedTuple):
    """An exchange with the plan (one of wire.PLANS) and the step that it belongs to."""

    plan: str
    step: int
    outbox: Outbox


Program = Generator[PlannedExchange, Inbox, None]  # a training run from some step on; its result is then on disk


@dataclass(frozen=True, slots=True)
class ExpectedMessages:
    """The messages that an agent expects in one exchange."""

    plan: str
    phase: str
    index: int
    dtype: torch.dtype | None  # None: the run's
    shapes: Mapping[int, tuple[int, ...]]  # by sender


Expectations = Callable[[Position], ExpectedMessages | None]  # None where a run has no such position


def name_traffic(plan: str, phase: Phase) -> str:
    """Kind of the bytes of an exchange, one of TRAFFIC_KINDS: those of a training step by phase, of evaluations, and
    of the protocol around them."""
    if phase in (Phase.PLANNING, Phase.SCORES, Phase.MEASURES):
        return "protocol"
    return str(phase) if plan == "train" else "evaluation"


class EpochExchanges:
    """State of an agent's program and of its messages in one epoch, once the program has begun."""

    def __init__(
        self,
        config: ProtocolConfig,
        epoch: int,
        expectations: Expectations,
        send: Callable[[int, bytes], None],
        on_refused: Callable[[int, RefusedError], None],
        sent_bytes: Counter[tuple[int, str]],
    ) -> None:
        self._config, self._epoch, self._expectations, self._send = config, epoch, expectations, send
        self._on_refused, self._sent_bytes = on_refused, sent_bytes
        self._program: Program | None = None
        self.position: Position = (0, 0)
        self.start = 0  # the step that the program began at
        self.inbox: dict[Position, dict[int, tuple[Tensor, float]]] = {}  # rows and their largest magnitude, by sender
        self._planned: dict[Position, ExpectedMessages] = {}  # of the positions in the inbox
        self.resend_buffer = ResendBuffer(config.membership.neighbours)
        self._bounds = MagnitudeBounds()
        self._violations: dict[int, tuple[Position, RefusedError]] = {}  # the last one of each neighbour
        self._demanded = False  # of a run on demand, whose steps begin with an exchange without messages

    @property
    def running(self) -> bool:
        return self._program is not None

    @property
    def waiting_for(self) -> tuple[int, ...]:
        """The neighbours whose messages of the current exchange have not arrived."""
        if self._program is None:
            return ()
        arrived = self.inbox.get(self.position, {})
        return tuple(link.sender for link in self.current.expected if link.sender not in arrived)

    @property
    def missing_routes(self) -> list[Route]:
        """The routes of the rows that neighbours pass on, and that the agent waits for."""
        missing = self.waiting_for
        relayed = self.current.relayed.items() if missing else ()
        return [route for link, routes in relayed if link.sender in missing for route in routes]

    def begin(self, program: Program, step: int) -> bool:
        """Start a program at a step, and return whether it has ended."""
        self._program, self.position, self.start = program, (step, -1), step
        return self._resume(None)

    def accept(self, header: FrameHeader, message: Buffer) -> None:
        """Store a neighbour's frame for its exchange, or refuse it."""
        if header.position < self.position:
            raise RefusedError("old", "position")
        expected = self._planned.get(header.position) or self._expectations(header.position)
        if expected is None:
            raise RefusedError("unplanned", "position")
        planned = expected.plan, expected.phase, expected.index, expected.dtype or self._config.dtype
        if (header.plan, header.phase, header.index, header.dtype) != planned:
            raise RefusedError("unplanned", "phase or type")
        if expected.shapes.get(header.sender) != header.shape:
            raise RefusedError("unplanned", "shape")
        ahead = header.position[0] > self.position[0] + self._config.max_step_gap
        if ahead and header.position[0] <= self._config.steps:  # a neighbour may end a run before its last step
            raise RefusedError("early", "position")  # bounds what is held for later
        self._planned[header.position] = expected
        arrived = self.inbox.setdefault(header.position, {})
        if header.sender in arrived:
            raise RefusedError("duplicate")
        try:
            arrived[header.sender] = wire.read_payload(header, message, self._config.encrypted)
        except RefusedError as refused:
            if refused.reason == "not finite":
                self._violations[header.sender] = header.position, refused
            raise

    def complete_inbox(self) -> Inbox | None:
        """The messages of the current exchange if all have arrived. Those beyond the bounds are refused then."""
        if self._program is None:
            return None
        if self._is_idle():
            return None
        arrived, exchange = self.inbox.get(self.position, {}), self.current
        if len(arrived) < len(exchange.expected):  # only messages of the plan are held
            return None
        for sender, (rows, size) in list(arrived.items()) if exchange.phase is not Phase.PLANNING else ():
            try:
                bounded = exchange.bound_magnitude(rows) if exchange.bound_magnitude else size
                self._bounds.check_incoming(exchange, sender, bounded)
            except RefusedError as refused:
                del arrived[sender]
                self._violations[sender] = self.position, refused
                self._on_refused(sender, refused)
        if len(arrived) < len(exchange.expected):
            return None
        return {link: arrived[link.sender][0] for link in exchange.expected}

    def demand(self) -> None:
        """Begin the next step of a run on demand, unless one is under way."""
        self._demanded = self.running and self.position[1] == 0

    def _is_idle(self) -> bool:
        """Return whether a run on demand is between two steps, and neither this agent nor a neighbour begins one."""
        if not self._config.on_demand or self.position[1] > 0 or self._demanded:
            return False
        return not any(position > self.position for position in self.inbox)

    def advance(self, inbox: Inbox) -> bool:
        """Go to the next exchange, whose messages are sent at once, or to the end; return whether it has ended."""
        self.inbox.pop(self.position, None)
        self._demanded = False
        self._planned.pop(self.position, None)
        for link in inbox:
            self.resend_buffer.release(link.sender, self.position[0])  # the neighbour has left earlier steps
        return self._resume(inbox)

    def find_violation(self, sender: int) -> RefusedError | None:
        """The last refusal of a neighbour's message of the current exchange, if no honest agent would have sent it."""
        position, refused = self._violations.get(sender, (None, None))
        return refused if position == self.position else None

    def _resume(self, inbox: Inbox | None) -> bool:
        program, before = self._program, self.position
        assert program is not None
        reached = advance(program, inbox)
        if isinstance(reached, Returned):
            self._program = None
            return True
        plan, step, self.current = reached
        self.position = (step, before[1] + 1 if step == before[0] else 0)
        self._send_all(plan)
        return False

    def _send_all(self, plan: str) -> None:
        """Send the messages of the current exchange. Each of encoding, checking and sending runs over all of them in
        turn: code that has just run is in the caches, and the thread that sends them wakes up less often."""
        exchange, membership = self.current, self._config.membership
        phase, index = str(exchange.phase), exchange.index
        # Neighbours that are sent the same share one encoding.
        distinct = {id(message): join_parts(message).contiguous() for message in exchange.messages.values()}
        bound = exchange.bound_magnitude or wire.max_magnitude
        sizes = {key: bound(rows) for key, rows in distinct.items()}
        encoded = {
            key: wire.encode(
                Frame(membership.agent, self._epoch, self.position, plan, phase, index, rows),
                membership.run,
                self._config.encrypted,
            )
            for key, rows in distinct.items()
        }
        frames = [(link.receiver, id(message)) for link, message in exchange.messages.items()]
        kind = name_traffic(plan, exchange.phase)
        if exchange.phase is not Phase.PLANNING:
            for receiver, key in frames:
                self._bounds.check_outgoing(exchange, receiver, sizes[key])
        for receiver, key in frames:
            frame = encoded[key]
            self.resend_buffer.add(receiver, self.position, frame)
            self._send(receiver, frame)
            self._sent_bytes[receiver, kind] += len(frame) - PAYLOAD_OFFSET

    def describe_divergence(self, diverged: DivergedError) -> GossamerError:
        """The error that ends a diverged run. It names the sender of the largest number that arrived, if that is
        suspicious: a neighbour may be the cause."""
        agent = self._config.membership.agent
        size, sender, phase = self._bounds.greatest
        cause = f"; the largest number that it was sent, {size:.0e}, came from agent {sender} ({phase})"
        return GossamerError(
            f"agent {agent} has {diverged.found} at step {self.position[0]}: the run has diverged; cut the shards "
            f"again with a smaller --step-size, or scale features and targets{cause if size > SUSPICIOUS else ''}"
        )
