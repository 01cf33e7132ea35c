"""Exchanges of rows between agents that may have no link, over agents between them, in rounds (relays.py has routes).

Where a run relays rows, every exchange of rows takes as many rounds as the longest route has links. In round r a
message from a to b holds, one after the other, all pieces whose link number r leads from a to b: in round 0 the rows of
a for b itself, which wait for nothing, and boxes (boxes.py) that begin at a; later, boxes that a has just been sent.
Rounds are exchanges of the protocol like all others: resent when they are lost, and repeated after a recovery.
"""

from collections.abc import Generator, Iterator
from dataclasses import dataclass
from math import prod
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from gossamer.agents import Inbox, Link, Outbox, Phase
from gossamer.agents.exchange import Message, join_parts
from gossamer.agents.relays import AgentRoutes, Route
from gossamer.errors import GossamerError
from gossamer.generators import delegate
from gossamer.peers.protocol.boxes import Boxes, BrokenBoxError, Moment
from gossamer.peers.protocol.exchanges import PlannedExchange
from gossamer.peers.protocol.magnitudes import MagnitudeBounds
from gossamer.peers.protocol.wire import RefusedError, max_magnitude

_Value = TypeVar("_Value")


@dataclass(frozen=True)
class Piece:
    """One message between two agents on its way."""

    path: Route
    shape: tuple[int, ...]
    size: int  # bytes, those of its box included

    @property
    def link(self) -> Link:
        return Link(self.path[0], self.path[-1])

    @property
    def is_boxed(self) -> bool:
        """Other agents pass it on."""
        return len(self.path) > 2


class Relays:
    """An agent's part in relayed exchanges, from the start of a program on."""

    def __init__(self, routes: AgentRoutes | None, dtype: torch.dtype, boxes: Boxes) -> None:
        """`dtype` is the run's. Without routes, exchanges stay as they are."""
        self._dtype, self._boxes = dtype, boxes
        self._number = 0  # of relayed exchanges so far: the same at all agents
        self._bounds = MagnitudeBounds()
        self.take(routes)

    def take(self, routes: AgentRoutes | None) -> None:
        """Relay by these routes from now on."""
        self._routes, self._paths = routes, {} if routes is None else routes.by_link

    def relay(self, exchanges: Generator[PlannedExchange, Inbox, _Value]) -> Generator[PlannedExchange, Inbox, _Value]:
        """The same exchanges, with rounds in place of those that lead to agents without a link."""

        def carry(planned: PlannedExchange) -> Generator[PlannedExchange, Inbox, Inbox]:
            if planned.outbox.forwarded is None:
                return (yield planned)
            return (yield from self._carry(planned))

        return delegate(exchanges, carry)

    def _carry(self, planned: PlannedExchange) -> Generator[PlannedExchange, Inbox, Inbox]:
        """One exchange in rounds."""
        routes, outbox = self._routes, planned.outbox
        if routes is None:
            raise AssertionError("rows are relayed by routes")
        moment = Moment(self._number, planned.step, outbox.index, planned.plan, outbox.phase)
        self._number += 1
        pieces = sorted(self._list_pieces(outbox), key=lambda piece: piece.path)
        held = {piece.link: self._enclose(piece, outbox, moment) for piece in pieces if piece.path[0] == routes.agent}
        for number in range(routes.longest):
            sent, expected = dict[Link, list[Piece]](), dict[Link, list[Piece]]()
            for piece in pieces:
                if number + 1 < len(piece.path):
                    link = Link(*piece.path[number : number + 2])
                    if routes.agent in link:
                        (sent if link.sender == routes.agent else expected).setdefault(link, []).append(piece)
            inbox = yield planned._replace(
                outbox=Outbox(
                    outbox.phase,
                    outbox.index * routes.longest + number,
                    {link: _join([held.pop(piece.link) for piece in parts]) for link, parts in sent.items()},
                    {link: (sum(piece.size for piece in parts),) for link, parts in expected.items()},
                    torch.uint8,
                    relayed={link: [one.path for one in parts if one.is_boxed] for link, parts in expected.items()},
                )
            )
            for link, parts in expected.items():
                arrived = inbox[link].split([piece.size for piece in parts])
                held |= {piece.link: part.numpy().tobytes() for piece, part in zip(parts, arrived, strict=True)}
        return {
            piece.link: self._disclose(piece, held[piece.link], outbox, moment)
            for piece in pieces
            if piece.path[-1] == routes.agent
        }

    def _list_pieces(self, outbox: Outbox) -> Iterator[Piece]:
        """The messages of an exchange that begin, end or pass here."""
        assert outbox.forwarded is not None
        itemsize = (outbox.dtype or self._dtype).itemsize
        sent = {link: _find_shape(message) for link, message in outbox.messages.items()}
        for link, shape in (sent | dict(outbox.expected) | dict(outbox.forwarded)).items():
            path = self._paths.get(link, tuple(link))
            yield Piece(path, shape, prod(shape) * itemsize + (self._boxes.overhead if len(path) > 2 else 0))

    def _enclose(self, piece: Piece, outbox: Outbox, moment: Moment) -> bytes:
        """The bytes of this agent's own message."""
        rows = join_parts(outbox.messages[piece.link]).contiguous()
        if outbox.phase is not Phase.PLANNING:
            bound = outbox.bound_magnitude or max_magnitude
            self._bounds.check_outgoing(outbox, piece.path[-1], bound(rows))
        content = rows.detach().numpy().tobytes()
        return self._boxes.close(piece.path, moment, content) if piece.is_boxed else content

    def _disclose(self, piece: Piece, content: bytes, outbox: Outbox, moment: Moment) -> Tensor:
        """The numbers of a message for this agent."""
        sender, agent = piece.link
        where = f"at step {moment.step} ({moment.phase})"
        if piece.is_boxed:
            try:
                content = self._boxes.open(piece.path, moment, content)
            except BrokenBoxError:
                raise GossamerError(
                    f"agent {agent} was sent rows of agent {sender} {where} that agent {sender} has not sealed for it: "
                    f"they were changed or replaced on the route {describe_route(piece.path)}; find out what runs at "
                    f"{', '.join(f'agent {k}' for k in piece.path[1:-1])} and agent {sender}"
                ) from None
        rows = torch.frombuffer(bytearray(content), dtype=outbox.dtype or self._dtype).view(piece.shape)
        if outbox.phase is not Phase.PLANNING:
            try:
                size = (outbox.bound_magnitude or max_magnitude)(rows)
                if not np.isfinite(size):
                    raise RefusedError("not finite")
                self._bounds.check_incoming(outbox, sender, size)
            except RefusedError as refused:
                raise GossamerError(
                    f"agent {sender} has sent agent {agent} rows {where} that no honest agent sends ({refused}); find "
                    f"out what agent {sender} runs"
                ) from None
        return rows


def describe_route(path: Route) -> str:
    """A route in words."""
    return " - ".join(map(str, path))


def _find_shape(message: Message) -> tuple[int, ...]:
    return tuple(message.shape) if isinstance(message, Tensor) else (sum(part.numel() for part in message),)


def _join(parts: list[bytes]) -> Tensor:
    return torch.frombuffer(bytearray(b"".join(parts)), dtype=torch.uint8)
