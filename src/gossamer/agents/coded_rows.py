"""Boundary (halo) rows on their way through a row codec, for pairs of agents (docs/communication.md).

Rows go through the codec also where both agents are on one host, so that every hosting of the agents sends the same
numbers. The random numbers of a codec are counter-based: a hash of seed, step, exchange, link, row and column, the same
wherever it is computed.
"""

from collections.abc import Generator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from gossamer.agents.counter_rng import column_entropy, row_entropy, uniform
from gossamer.agents.exchange import Inbox, Outbox, Phase
from gossamer.agents.links import Factored, Ints, Link, places
from gossamer.agents.propagation import Collect, Key
from gossamer.agents.row_codecs import RowCodec


@dataclass(frozen=True)
class Coding:
    """A codec, and which agents are where."""

    codec: RowCodec
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
class CodedRows:
    """Message rows that go through a codec."""

    index: int
    codec: RowCodec
    leaving: Side
    coming: Side

    def __call__(self, phase: Phase, rows: Tensor, of: Key) -> Generator[Outbox, Inbox, Collect]:
        """Encode the rows of this side; what comes back collects and decodes those of the other."""
        here, there = (self.leaving, self.coming) if phase is Phase.FORWARD else (self.coming, self.leaving)
        codes = self.codec.encode(rows, lambda: self._uniform(phase, here.words, rows, of))
        arrived = codes.new_empty(len(there.words), *codes.shape[1:])
        arrived[there.inside] = codes[here.inside]
        inbox = yield Outbox(
            phase,
            self.index,
            {_along(phase, link): codes[chosen] for link, chosen in here.groups},
            {_along(phase, link): (len(chosen), *codes.shape[1:]) for link, chosen in there.groups},
            self.codec.dtype,
            self.codec.largest,
        )

        def collect() -> Tensor:
            for link, chosen in there.groups:
                arrived[chosen] = inbox[_along(phase, link)]
            return self.codec.decode(arrived, rows.shape[-1], rows.dtype)

        return collect

    def _uniform(self, phase: Phase, words: Tensor, rows: Tensor, of: Key) -> Tensor:
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
