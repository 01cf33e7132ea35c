"""Boundary (halo) rows on their way through a row codec, for pairs of agents (docs/communication.md).

Rows go through the codec also where both agents are on one host, so that every hosting of the agents sends the same
numbers. The random numbers of a codec are counter-based: a hash of seed, step, exchange, link, row and column, the same
wherever it is computed. With secrets, a secret of the agent that sends a row, forwards or backwards, takes the place of
the seed (salts).
"""

from collections.abc import Generator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from gossamer.agents.counter_rng import draw_uniform, hash_columns, hash_rows
from gossamer.agents.exchange import Inbox, Outbox, Phase
from gossamer.agents.links import Link, LinkFactors, endpoints
from gossamer.agents.propagation import Collect, ExchangeKey, shape_forwarded
from gossamer.agents.relays import ForwardedRows
from gossamer.agents.row_codecs import RowCodec
from gossamer.agents.salts import OwnedRows, Secrets, own_rows
from gossamer.array_types import Ints


@dataclass(frozen=True)
class HostedCodec:
    """A row codec on a host, and the hosts of the agents."""

    codec: RowCodec
    agents: tuple[int, ...]  # hosted
    num_agents: int
    hosting: Ints | None  # host of each agent [m]; None: links join agents
    secrets: Secrets | None = None  # of the hosted agents, for random numbers; None: the seed


@dataclass(frozen=True)
class Side:
    """The message rows of one direction: those that leave the hosted agents, or those that come to them."""

    counters: Tensor  # int32: of each row, for random numbers
    inside: Tensor  # int64: rows whose other endpoint is hosted too, in the same order on both sides
    groups: tuple[tuple[Link, Tensor], ...]  # rows that go from one host to another, as links of the forward pass
    owned: OwnedRows | None  # with secrets, the rows of each agent that sends them from this side


@dataclass(frozen=True)
class CodedRows:
    """Message rows that go through a codec."""

    index: int
    codec: RowCodec
    leaving: Side
    coming: Side
    forwarded: ForwardedRows = None

    def __call__(self, phase: Phase, rows: Tensor, key: ExchangeKey) -> Generator[Outbox, Inbox, Collect]:
        here, there = (self.leaving, self.coming) if phase is Phase.FORWARD else (self.coming, self.leaving)
        codes = self.codec.encode(rows, lambda: self._uniform(phase, here, rows, key))
        arrived = codes.new_empty(len(there.counters), *codes.shape[1:])
        arrived[there.inside] = codes[here.inside]
        inbox = yield Outbox(
            phase,
            self.index,
            {_direct(phase, link): codes[chosen] for link, chosen in here.groups},
            {_direct(phase, link): (len(chosen), *codes.shape[1:]) for link, chosen in there.groups},
            self.codec.dtype,
            self.codec.bound_magnitude,
            shape_forwarded(self.forwarded, phase, codes.shape[1:]),
        )

        def collect() -> Tensor:
            for link, chosen in there.groups:
                arrived[chosen] = inbox[_direct(phase, link)]
            return self.codec.decode(arrived, rows.shape[-1], rows.dtype)

        return collect

    def _uniform(self, phase: Phase, side: Side, rows: Tensor, key: ExchangeKey) -> Tensor:
        """Random numbers in [0, 1), shaped as the rows [rows(, times), columns]."""
        ones = [1] * (rows.ndim - 1)
        entries = side.counters.view(-1, *ones) + hash_columns(torch.arange(rows.shape[-1]))
        if rows.ndim == 3:
            entries = entries + hash_rows(hash_columns(torch.arange(rows.shape[1])))[None, :, None]
        exchange = key.seed, key.step, key.part, 2 * self.index + (phase is Phase.BACKWARD)
        salts = None if side.owned is None else side.owned.draw_salts("rows", *exchange).view(2, -1, *ones)
        return draw_uniform(entries, *exchange, salts=salts).to(rows.dtype)


def _direct(phase: Phase, link: Link) -> Link:
    """A link of the forward pass in the direction of a phase."""
    return link if phase is Phase.FORWARD else Link(link.receiver, link.sender)


def make_sides(out: LinkFactors, into: LinkFactors, codec: HostedCodec) -> tuple[Side, Side]:
    """The two sides of a propagation from the links that leave the hosted agents and those that come to them."""
    num_agents, hosted = codec.num_agents, set(codec.agents)
    endpoint = endpoints(codec.hosting, num_agents)
    sides = []
    for factors, far in ((out, 1), (into, 0)):
        counts = np.diff(factors.rows)
        number = np.repeat([link.sender * num_agents + link.receiver for link in factors.links], counts)
        within = np.arange(len(number)) - np.repeat(factors.rows[:-1], counts)
        counters = hash_rows(hash_rows(torch.from_numpy(number)) + torch.from_numpy(within.astype(np.int32)))
        near = np.repeat([link[far] in hosted for link in factors.links], counts).astype(bool)
        groups: dict[Link, list[Ints]] = {}
        for link, begin, end in zip(factors.links, factors.rows[:-1], factors.rows[1:], strict=True):
            if link[far] not in hosted:
                between = Link(int(endpoint[link.sender]), int(endpoint[link.receiver]))
                groups.setdefault(between, []).append(np.arange(begin, end))
        gathered = tuple((link, torch.from_numpy(np.concatenate(parts))) for link, parts in sorted(groups.items()))
        owned = None
        if codec.secrets is not None:  # forwards a link's sender sends, backwards its receiver
            owner = np.repeat([link[1 - far] for link in factors.links], counts).astype(np.int64)
            owned = own_rows(codec.secrets, owner, np.lexsort((within, number)))
        sides.append(Side(counters, torch.from_numpy(np.flatnonzero(near)), gathered, owned))
    return sides[0], sides[1]
