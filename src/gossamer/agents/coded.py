"""Boundary rows in 16 or 8 bits: a propagation whose rows between agents are rounded (docs/communication.md).

A row is rounded randomly, up or down so that its mean is the row: the noise is a hash of seed, step, exchange, link,
row and column, the same wherever it is computed. Rows are those of pairs of agents also where both are on one host, so
that every hosting of the agents rounds the same numbers.
"""

from collections.abc import Generator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from gossamer.agents.codes import Rounding
from gossamer.agents.exchange import Inbox, Outbox, Phase
from gossamer.agents.keyed import column_entropy, row_entropy, uniform
from gossamer.agents.links import Factored, Ints, Link, places
from gossamer.model.sparse import Operator

Key = tuple[int, int, int]  # seed, step, part of a long batch


@dataclass(frozen=True)
class Coding:
    """How rows are rounded, and who is where."""

    rounding: Rounding
    agents: tuple[int, ...]  # hosted
    num_agents: int
    hosting: Ints | None


@dataclass(frozen=True)
class Side:
    """The message rows at one end: those that leave the hosted agents, or those that come to them."""

    words: Tensor  # int32: of each row, for the noise
    inside: Tensor  # int64: rows whose other end is hosted too, in the same order on both sides
    groups: tuple[tuple[Link, Tensor], ...]  # rows that go from one host to another, as links of the forward pass


@dataclass(frozen=True)
class CodedPropagation:
    """One product D u over the hosted agents: each agent's own block, and R S for each of its links."""

    index: int
    local: Operator
    send: Operator  # S of all links from hosted agents
    receive: Operator  # R of all links to hosted agents
    rounding: Rounding
    leaving: Side
    coming: Side

    def forward(self, u: Tensor, of: Key) -> Generator[Outbox, Inbox, Tensor]:
        """D u (eq. (5)-(6))."""
        rows = yield from self._swapped(Phase.FORWARD, self.send @ u, of)
        return self.local @ u + self.receive @ rows

    def backward(self, g: Tensor, of: Key) -> Generator[Outbox, Inbox, Tensor]:
        """D^T g: the same links reversed (eq. (12))."""
        rows = yield from self._swapped(Phase.BACKWARD, self.receive.transposed_times(g), of)
        return self.local.transposed_times(g) + self.send.transposed_times(rows)

    def _swapped(self, phase: Phase, rows: Tensor, of: Key) -> Generator[Outbox, Inbox, Tensor]:
        """Round the rows of this side and give those of the other."""
        here, there = (self.leaving, self.coming) if phase is Phase.FORWARD else (self.coming, self.leaving)
        codes = self.rounding.encode(rows, self._noise(phase, here.words, rows, of))
        arrived = codes.new_empty(len(there.words), *codes.shape[1:])
        arrived[there.inside] = codes[here.inside]
        inbox = yield Outbox(
            phase,
            self.index,
            {_along(phase, link): codes[chosen] for link, chosen in here.groups},
            {_along(phase, link): (len(chosen), *codes.shape[1:]) for link, chosen in there.groups},
            torch.uint8,
        )
        for link, chosen in there.groups:
            arrived[chosen] = inbox[_along(phase, link)]
        return self.rounding.decode(arrived, rows.shape[-1], rows.dtype)

    def _noise(self, phase: Phase, words: Tensor, rows: Tensor, of: Key) -> Tensor:
        """Uniform in [0, 1), for each number of the rows [rows(, times), columns]."""
        places = words.view(-1, *[1] * (rows.ndim - 1)) + column_entropy(torch.arange(rows.shape[-1]))
        if rows.ndim == 3:
            places = places + row_entropy(column_entropy(torch.arange(rows.shape[1])))[None, :, None]
        return uniform(places, *of, 2 * self.index + (phase is Phase.BACKWARD)).to(rows.dtype)


def _along(phase: Phase, link: Link) -> Link:
    return link if phase is Phase.FORWARD else Link(link.receiver, link.sender)


def make_sides(out: Factored, into: Factored, coding: Coding) -> tuple[Side, Side]:
    """The two sides of a propagation from the links that leave the hosted agents and those that come to them."""
    num_agents, hosted = coding.num_agents, set(coding.agents)
    place = places(coding.hosting, num_agents)
    sides = []
    for factored, far in ((out, 1), (into, 0)):
        counts = np.diff(factored.rows)
        number = np.repeat([link.sender * num_agents + link.receiver for link in factored.links], counts)
        within = np.arange(len(number)) - np.repeat(factored.rows[:-1], counts)
        words = row_entropy(row_entropy(torch.from_numpy(number)) + torch.from_numpy(within.astype(np.int32)))
        near = np.repeat([link[far] in hosted for link in factored.links], counts).astype(bool)
        groups: dict[Link, list[Ints]] = {}
        for link, begin, end in zip(factored.links, factored.rows[:-1], factored.rows[1:], strict=True):
            if link[far] not in hosted:
                between = Link(int(place[link.sender]), int(place[link.receiver]))
                groups.setdefault(between, []).append(np.arange(begin, end))
        gathered = tuple((link, torch.from_numpy(np.concatenate(parts))) for link, parts in sorted(groups.items()))
        sides.append(Side(words, torch.from_numpy(np.flatnonzero(near)), gathered))
    return sides[0], sides[1]
