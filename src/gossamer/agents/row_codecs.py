"""Row codecs: what happens to boundary (halo) rows on their way from one agent to another (docs/communication.md).

A codec is a value. `Quantised` rounds rows stochastically to 16 or 8 bits, up or down so that the mean is the row. The
random numbers of a codec are counter-based: a hash of seed, step, exchange, link, row and column, the same wherever it
is computed. Rows are those of pairs of agents also where both are on one host, so that every hosting of the agents
sends the same numbers.
"""

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from gossamer.agents.counter_rng import column_entropy, row_entropy, uniform
from gossamer.agents.exchange import Inbox, Outbox, Phase
from gossamer.agents.links import Factored, Ints, Link, places
from gossamer.agents.propagation import Collect, Key
from gossamer.agents.quantisation import Rounding


class RowCodec(Protocol):
    """A way to send rows [rows(, time), width] between agents."""

    @property
    def protects(self) -> bool:
        """Evaluation and prediction go through the codec too, because what it keeps back must not leak there."""
        ...

    @property
    def dtype(self) -> torch.dtype | None:
        """Of the messages; None: that of the rows."""
        ...

    def row_bytes(self, width: int, itemsize: int) -> int:
        """Bytes that a row of so many numbers takes on its way."""
        ...

    def encode(self, rows: Tensor, uniform: Callable[[], Tensor]) -> Tensor:
        """What is sent [rows(, time), length]; `uniform` draws numbers in [0, 1), shaped as the rows."""
        ...

    def decode(self, codes: Tensor, width: int, dtype: torch.dtype) -> Tensor:
        """The rows that arrive."""
        ...

    def largest(self, codes: Tensor) -> float:
        """A bound on the magnitude of the numbers that a message stands for."""
        ...


@dataclass(frozen=True)
class Quantised:
    """Stochastic quantisation, unbiased; while training only, for evaluation has nothing to gain by it."""

    rounding: Rounding

    protects = False
    dtype = torch.uint8

    def row_bytes(self, width: int, itemsize: int) -> int:
        return self.rounding.length(width)

    def encode(self, rows: Tensor, uniform: Callable[[], Tensor]) -> Tensor:
        return self.rounding.encode(rows, uniform())

    def decode(self, codes: Tensor, width: int, dtype: torch.dtype) -> Tensor:
        return self.rounding.decode(codes, width, dtype)

    def largest(self, codes: Tensor) -> float:
        return self.rounding.largest(codes)


ROW_CODECS: dict[int, RowCodec | None] = {0: None, 16: Quantised(Rounding(16)), 8: Quantised(Rounding(8))}  # by bits


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
