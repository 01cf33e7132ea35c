"""Propagations: exchanges of rows between agents in the forward pass and, reversed, in the backward pass.

    forward    k = a(i) adds what its neighbours z send, S_kz u_z, to what it has itself        eq. (5)-(7)
    backward   over the same links reversed, k sends R_kz^T g and z adds S_kz^T of it           eq. (12)

`Propagation` is the product D u, with D_kz = R_kz S_kz factored for every link. `Halo` brings the boundary (halo) rows
themselves, for layers that see every offer alone. Both leave to a RowExchange how rows travel.
"""

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeVar

import torch
from torch import Tensor

from gossamer.agents.exchange import Inbox, Outbox, Phase
from gossamer.agents.links import Link
from gossamer.agents.relays import ForwardedRows
from gossamer.agents.step_links import RowEnds, RowSums, StepLinks, scale_rows, select_edges
from gossamer.array_types import Ints
from gossamer.generators import delegate
from gossamer.model.layers import Edges
from gossamer.model.sparse import Operator

Gathered = TypeVar("Gathered")
Collect = Callable[[], Tensor]  # the rows that arrived, read once, when they are needed
PropagationSteps = Generator[Outbox, Inbox, Tensor]


class ExchangeKey(NamedTuple):
    """What an exchange depends on besides its rows: random numbers on the first three, and links that may be down."""

    seed: int
    step: int
    part: int  # of a long batch
    links: StepLinks | None = None  # of the step; None: all rows arrive


class RowExchange(Protocol):
    """Transport of message rows between the endpoints of links: as they are, or through a row codec."""

    def __call__(self, phase: Phase, rows: Tensor, key: ExchangeKey) -> Generator[Outbox, Inbox, Collect]:
        """Send the rows of this side; return a function that collects those of the other."""
        ...


@dataclass(frozen=True)
class PlainRows:
    """Message rows as they are."""

    index: int  # number of the exchange in its pass, the same at both endpoints of a link
    outgoing: tuple[tuple[Link, int], ...]  # links in sender order, with their numbers of rows
    incoming: tuple[tuple[Link, int], ...]
    forwarded: ForwardedRows = None

    def __call__(self, phase: Phase, rows: Tensor, key: ExchangeKey) -> Generator[Outbox, Inbox, Collect]:
        out, into = self.outgoing, self.incoming
        if phase is Phase.BACKWARD:
            out, into = _reverse(into), _reverse(out)
        parts = rows.split_with_sizes([count for _, count in out]) if out else ()
        messages = {link: part for (link, _), part in zip(out, parts, strict=True)}
        expected = {link: (count, *rows.shape[1:]) for link, count in into}
        forwarded = shape_forwarded(self.forwarded, phase, rows.shape[1:])
        inbox = yield Outbox(phase, self.index, messages, expected, forwarded=forwarded)
        return lambda: torch.cat([inbox[link] for link, _ in into]) if into else rows[:0]


@dataclass(frozen=True)
class Propagation:
    """One product D u over the hosted agents: their own block, and R S for each link to others."""

    rows: RowExchange
    local: Operator  # D between hosted vertices [rows of U_{p-1}, rows of U_p]
    send: Operator  # S of all outgoing links [message rows, rows of U_p]
    receive: Operator  # R of all incoming links [rows of U_{p-1}, message rows]
    sums: RowSums | None = None  # of D, where links change

    def forward(self, u: Tensor, key: ExchangeKey) -> PropagationSteps:
        """D u: send S u, add R times what arrives (eq. (5)-(6))."""
        collect = yield from self.rows(Phase.FORWARD, self.send @ u if self.send.shape[0] else u[:0], key)
        result = self.local @ u  # while messages travel
        if self.receive.shape[1]:
            result += self.receive @ collect()
        return scale_rows(result, self.sums, key.links)

    def backward(self, g: Tensor, key: ExchangeKey) -> PropagationSteps:
        """D^T g: the same links reversed carry R^T g and are added by S^T (eq. (12))."""
        g = scale_rows(g, self.sums, key.links)
        sent = self.receive.transposed_times(g) if self.receive.shape[1] else g[:0]
        collect = yield from self.rows(Phase.BACKWARD, sent, key)
        result = self.local.transposed_times(g)
        if self.send.shape[0]:
            result += self.send.transposed_times(collect())
        return result


@dataclass(frozen=True)
class Halo:
    """The offers of hosted vertices and, behind them, those of the vertices elsewhere that have an edge to one."""

    rows: RowExchange
    hosted: int  # rows of U_1 here
    picked: Tensor  # int64 [message rows]: those of them that are sent
    edges: Edges
    vertices: Ints  # of all rows
    sums: RowSums | None = None  # of D, where links change
    ends: RowEnds | None = None  # of the rows that arrive

    def select_edges(self, links: StepLinks | None) -> tuple[Edges, Tensor | None]:
        """The edges whose offers are known in a step, and their positions among all; None: those of all."""
        if links is None or self.sums is None or self.ends is None:
            return self.edges, None
        return select_edges(self.edges, self.sums, self.ends, self.hosted, links)

    def forward(self, u: Tensor, key: ExchangeKey) -> PropagationSteps:
        """[u; what arrives]: every offer that an edge needs."""
        collect = yield from self.rows(Phase.FORWARD, u.index_select(0, self.picked), key)
        return torch.cat([u, collect()])

    def backward(self, g: Tensor, key: ExchangeKey) -> PropagationSteps:
        """Gradient of the hosted offers: of their use here, and what receivers of a copy send back."""
        collect = yield from self.rows(Phase.BACKWARD, g[self.hosted :], key)
        return g[: self.hosted].index_add(0, self.picked, collect())


def run_propagations(
    steps: Generator[Tensor, Tensor, Gathered],
    propagate: Sequence[Callable[[Tensor, ExchangeKey], PropagationSteps]],
    key: ExchangeKey,
) -> Generator[Outbox, Inbox, Gathered]:
    """Run a gather's generator, answering each u that it yields with the next propagation's result."""
    planned = iter(propagate)
    return (yield from delegate(steps, lambda u: next(planned)(u, key)))


def shape_forwarded(rows: ForwardedRows, phase: Phase, row: tuple[int, ...]) -> dict[Link, tuple[int, ...]] | None:
    """Shapes of the messages between others that pass here, with rows of this shape."""
    if rows is None:
        return None
    return {link: (count, *row) for link, count in (_reverse(rows) if phase is Phase.BACKWARD else rows)}


def _reverse(links: Sequence[tuple[Link, int]]) -> tuple[tuple[Link, int], ...]:
    return tuple((Link(link.receiver, link.sender), count) for link, count in links)
