"""Neighbour slots: values that the two agents of a link exchange with each other, and with nobody else.

Each hosted agent has as many slots as any agent has neighbours; slot s of agent k is its endpoint of the link to its
s-th neighbour, in the order of their numbers. Arrays have a row for every slot [hosted, slots, ...], so that all links
are computed at once; slots without a neighbour have weight 0.
"""

from collections.abc import Callable, Generator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from gossamer.agents.consensus.method import HostedCombination
from gossamer.agents.exchange import Inbox, Outbox, Phase
from gossamer.agents.links import Link, endpoints


@dataclass(frozen=True)
class NeighbourSlots:
    weight: Tensor  # C_kz [hosted, slots]
    sign: Tensor  # 1 at the agent with the smaller number, -1 at the other [hosted, slots]
    pairs: tuple[tuple[int, int, int, int], ...]  # position of k, slot, k and z for each slot with a neighbour
    mirror: Tensor  # int64: flat slots of both endpoints of links within the host
    sent: Tensor  # int64: flat slots whose values leave the host, link by link, in the same order at both endpoints
    filled: Tensor  # int64: the other endpoints of `mirror`, then the flat slots whose other endpoints' values arrive
    outgoing: tuple[tuple[Link, int], ...]  # links, and how many slots' values each carries
    incoming: tuple[tuple[Link, int], ...]
    in_order: bool  # the values of all slots leave and arrive in the order of the slots, as those of a single agent do

    def swap(
        self,
        values: Tensor,
        index: int,
        dtype: torch.dtype | None = None,
        bound_magnitude: Callable[[Tensor], float] | None = None,
    ) -> Generator[Outbox, Inbox, Tensor]:
        """Send the values [hosted, slots, width] of every slot; return those of the other endpoint, in one exchange."""
        flat = values.flatten(0, 1)
        width = flat.shape[1]
        leaving = flat if self.in_order else flat.index_select(0, self.sent)
        parts = leaving.split_with_sizes([count for _, count in self.outgoing])
        inbox = yield Outbox(
            Phase.CONSENSUS,
            index,
            {link: rows for (link, _), rows in zip(self.outgoing, parts, strict=True)},
            {link: (count, width) for link, count in self.incoming},
            dtype,
            bound_magnitude,
        )
        arrived = [inbox[link] for link, _ in self.incoming]
        if self.in_order:
            return torch.cat(arrived).view(values.shape)
        joined = torch.cat([flat.index_select(0, self.mirror), *arrived])
        return torch.zeros_like(flat).index_copy_(0, self.filled, joined).view(values.shape)


def make_slots(C: HostedCombination, dtype: torch.dtype) -> NeighbourSlots:
    """The slots of a host's agents from their rows of C: `C.slots`, or as many as needed.

    With `hosting`, what goes from one host to another is one message.
    """
    rows, slots = C.rows, C.slots
    here = np.asarray(C.agents, dtype=np.int64)
    endpoint = endpoints(C.hosting, rows.shape[1])
    links = rows != 0
    links[np.arange(len(here)), here] = False
    position, z = np.nonzero(links)
    k = here[position]
    slot = (np.cumsum(links, axis=1) - 1)[position, z]
    width = max(int(links.sum(1).max(initial=0)), 1 if slots is None else slots)
    flat = position * width + slot
    weight, sign = np.zeros(len(here) * width), np.ones(len(here) * width)
    weight[flat], sign[flat] = rows[position, z], np.where(k < z, 1.0, -1.0)
    # The other endpoint of (k, z) is (z, k); both lists are sorted by number, so that one is found in the other.
    m = rows.shape[1]
    hosted = np.isin(z, here)
    order = np.argsort(k * m + z)
    mirrored = order[np.searchsorted((k * m + z)[order], (z * m + k)[hosted])]
    remote = np.flatnonzero(~hosted)
    to, of = endpoint[z[remote]], endpoint[k[remote]]
    sent = remote[np.lexsort((z[remote], k[remote], of, to))]  # by link, then by sender and receiver
    received = remote[np.lexsort((k[remote], z[remote], of, to))]
    hosts, counts = np.unique(np.stack([to, of]), axis=1, return_counts=True)
    between = list(zip(*hosts.tolist(), counts.tolist(), strict=True))
    shape = (len(here), width)
    filled = np.concatenate([flat[hosted], flat[received]])
    all_slots = np.arange(len(here) * width)
    return NeighbourSlots(
        weight=torch.tensor(weight, dtype=dtype).view(shape),
        sign=torch.tensor(sign, dtype=dtype).view(shape),
        pairs=tuple(zip(position.tolist(), slot.tolist(), k.tolist(), z.tolist(), strict=True)),
        mirror=torch.from_numpy(flat[mirrored]),
        sent=torch.from_numpy(flat[sent]),
        filled=torch.from_numpy(filled),
        outgoing=tuple((Link(mine, other), count) for other, mine, count in between),
        incoming=tuple((Link(other, mine), count) for other, mine, count in between),
        in_order=np.array_equal(flat[sent], all_slots) and np.array_equal(filled, all_slots),
    )


def pad_slots(part: Tensor, like: Tensor) -> Tensor:
    """State of one agent's links with empty neighbour slots behind it, for as many neighbours as any agent has."""
    if part.ndim < 2 or part.ndim != like.ndim or part.shape[2:] != like.shape[2:] or len(part) != 1:
        return part
    missing = like.shape[1] - part.shape[1]
    return part if missing <= 0 else torch.cat([part, part.new_zeros(1, missing, *part.shape[2:])], dim=1)
