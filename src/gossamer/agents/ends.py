"""The ends of links at hosted agents: what the two agents of a link tell each other, and nobody else.

Each hosted agent has as many slots as any agent has neighbours; slot s of agent k is its end of the link to its s-th
neighbour, in the order of their numbers. Arrays have a row for every slot [hosted, slots, ...], so that all links are
computed at once; slots without a neighbour have weight 0.
"""

from collections.abc import Generator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gossamer.agents.exchange import Inbox, Outbox, Phase
from gossamer.agents.links import Ints, Link, places


@dataclass(frozen=True)
class Ends:
    weight: Tensor  # C_kz [hosted, slots]
    sign: Tensor  # 1 at the agent with the smaller number, -1 at the other [hosted, slots]
    pairs: tuple[tuple[int, int, int, int], ...]  # position of k, slot, k and z for each end
    inside: Tensor  # int64: flat slots whose other end is hosted
    mirror: Tensor  # int64: and the flat slots of these other ends
    outgoing: tuple[tuple[Link, Tensor], ...]  # flat slots whose values a link carries, in the same order at both ends
    incoming: tuple[tuple[Link, Tensor], ...]

    def swap(
        self, values: Sequence[Tensor], index: int, dtype: torch.dtype | None = None
    ) -> Generator[Outbox, Inbox, list[Tensor]]:
        """For values [hosted, slots, ...] of every end, those of its other end, in one exchange."""
        flat = [value.flatten(0, 1).flatten(1) for value in values]
        widths = [value.shape[1] for value in flat]
        inbox = yield Outbox(
            Phase.CONSENSUS,
            index,
            {link: tuple(value[ends] for value in flat) for link, ends in self.outgoing},
            {link: (len(ends) * sum(widths),) for link, ends in self.incoming},
            dtype,
        )
        others = [torch.zeros_like(value) for value in flat]
        for other, value in zip(others, flat, strict=True):
            other[self.inside] = value[self.mirror]
        for link, ends in self.incoming:
            pieces = inbox[link].split([len(ends) * width for width in widths])
            for other, piece in zip(others, pieces, strict=True):
                other[ends] = piece.view(len(ends), -1)
        return [other.view(value.shape) for other, value in zip(others, values, strict=True)]


def make_ends(
    rows: NDArray[np.float64], agents: Sequence[int], dtype: torch.dtype, hosting: Ints | None, slots: int | None
) -> Ends:
    """The ends of the hosted agents' links from their rows of C [hosted, m], with so many slots, or as many as needed.

    With `hosting`, what goes from one host to another is one message.
    """
    here = np.asarray(agents, dtype=np.int64)
    place = places(hosting, rows.shape[1])
    links = rows != 0
    links[np.arange(len(here)), here] = False
    position, z = np.nonzero(links)
    k = here[position]
    slot = (np.cumsum(links, axis=1) - 1)[position, z]
    width = max(int(links.sum(1).max(initial=0)), 1 if slots is None else slots)
    flat = position * width + slot
    weight, sign = np.zeros(len(here) * width), np.ones(len(here) * width)
    weight[flat], sign[flat] = rows[position, z], np.where(k < z, 1.0, -1.0)
    # The other end of (k, z) is (z, k); both lists are sorted by code, so that one is found in the other.
    m = rows.shape[1]
    hosted = np.isin(z, here)
    order = np.argsort(k * m + z)
    mirrored = order[np.searchsorted((k * m + z)[order], (z * m + k)[hosted])]
    outgoing, incoming = [], []
    for other in np.unique(place[z[~hosted]]).tolist():
        for mine in np.unique(place[here]).tolist():
            between = ~hosted & (place[z] == other) & (place[k] == mine)
            if between.any():
                ends = np.flatnonzero(between)
                sent = ends[np.lexsort((z[ends], k[ends]))]  # by sender, then receiver
                heard = ends[np.lexsort((k[ends], z[ends]))]
                outgoing.append((Link(mine, other), torch.from_numpy(flat[sent])))
                incoming.append((Link(other, mine), torch.from_numpy(flat[heard])))
    shape = (len(here), width)
    return Ends(
        weight=torch.tensor(weight, dtype=dtype).view(shape),
        sign=torch.tensor(sign, dtype=dtype).view(shape),
        pairs=tuple(zip(position.tolist(), slot.tolist(), k.tolist(), z.tolist(), strict=True)),
        inside=torch.from_numpy(flat[hosted]),
        mirror=torch.from_numpy(flat[mirrored]),
        outgoing=tuple(outgoing),
        incoming=tuple(incoming),
    )
