"""Boundary rows over links that may be down in a step: which rows arrive, and which stand in for others.

    forward    a row that does not arrive is the last one that did, a constant, or 0
    backward   nothing goes back over what did not arrive

A wrapper around any exchange of rows. Links join agents, also on one host: a pair's rows arrive together or not at all.
A pair has the same rows in every step, so that the last ones are kept by receiver, in the host's state.
"""

from collections.abc import Generator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from gossamer.agents.exchange import Inbox, Outbox, Phase
from gossamer.agents.layout import positions
from gossamer.agents.links import LinkFactors
from gossamer.agents.propagation import Collect, ExchangeKey, RowExchange
from gossamer.agents.step_links import RowEnds, StepLinks


@dataclass(frozen=True)
class ChangingRows:
    """Message rows, of which some do not arrive in a step."""

    inner: RowExchange
    index: int
    outgoing: RowEnds
    incoming: RowEnds
    place: Tensor  # int64 [incoming rows]: among its receiver's rows
    receiver: Tensor  # int64 [incoming rows]: position among the hosted agents

    @property
    def most_rows(self) -> int:
        """The most rows of an agent."""
        return int(self.place.max()) + 1 if len(self.place) else 0

    def __call__(self, phase: Phase, rows: Tensor, key: ExchangeKey) -> Generator[Outbox, Inbox, Collect]:
        collect = yield from self.inner(phase, rows, key)
        links = key.links
        if links is None:
            return collect
        return lambda: self._take(phase, collect(), links)

    def _take(self, phase: Phase, rows: Tensor, links: StepLinks) -> Tensor:
        """The rows of a step in place of all rows [rows, ...]."""
        if phase is Phase.BACKWARD:
            return _zero(rows, self.outgoing.select(links.arriving))
        arrives, known = self.incoming.select(links.arriving), self.incoming.select(links.known)
        if self.index in links.last:
            last, old = links.last[self.index], known & ~arrives
            last[self.receiver[arrives], self.place[arrives]] = rows[arrives]
            rows = rows.clone()
            rows[old] = last[self.receiver[old], self.place[old]]
        return _zero(rows, known)


def wrap_rows(
    inner: RowExchange, index: int, out: LinkFactors, into: LinkFactors, agents: Sequence[int]
) -> ChangingRows:
    """An exchange whose rows may not arrive, between the hosted `agents` and all others."""
    incoming = find_ends(into)
    receiver = incoming.receiver.numpy()
    position = positions(np.asarray(agents), int(max(receiver.max(initial=0), *agents)) + 1)[receiver]
    order = np.argsort(receiver, kind="stable")
    place = np.empty(len(receiver), dtype=np.int64)
    ascending = receiver[order]
    place[order] = np.arange(len(order)) - np.searchsorted(ascending, ascending)
    return ChangingRows(inner, index, find_ends(out), incoming, torch.from_numpy(place), torch.from_numpy(position))


def find_ends(factors: LinkFactors) -> RowEnds:
    """The agents of each message row."""
    counts = np.diff(factors.rows)
    ends = np.array([(link.receiver, link.sender) for link in factors.links], dtype=np.int64).reshape(-1, 2)
    receiver, sender = np.repeat(ends, counts, axis=0).T
    return RowEnds(torch.from_numpy(receiver.copy()), torch.from_numpy(sender.copy()))


def _zero(rows: Tensor, kept: Tensor) -> Tensor:
    """The rows that are kept, and 0 for the others."""
    return rows if bool(kept.all()) else rows * kept.view(-1, *[1] * (rows.ndim - 1))
