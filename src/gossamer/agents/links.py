"""Links: which rows agent z sends to agent k so that k can add D_kz u_z, and as few of them as possible (eq. (6)).

The block of a link is factored as D_kz = R_kz S_kz. A row of S either pre-aggregates for a destination vertex of k
(z does the weighting, eq. (6)) or picks a source vertex of z (k does the weighting). The rows are a minimum vertex
cover of the link's bipartite graph, whose size is that of a maximum matching (Konig 1931, "Graphs and matrices"): the
structural rank of D_kz. The cover is built from the vertices that alternating paths reach, a set that no choice of
matching changes, so that the two endpoints of a link compute it alone and agree.
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from gossamer.array_types import Floats, Ints


class Link(NamedTuple):
    """A direction in which messages go; the backward pass uses the same pair reversed."""

    sender: int
    receiver: int


def endpoints(hosting: Ints | None, num_agents: int) -> Ints:
    """Link endpoint of each agent [m]: its host, or the agent itself if agents are hosted separately."""
    return np.arange(num_agents) if hosting is None else hosting


def group_by_link(senders: Ints, receivers: Ints) -> list[tuple[Link, slice]]:
    """Group vectors that are sorted by sender and receiver: each link with the slice of its vectors."""
    changes = np.flatnonzero((np.diff(senders) != 0) | (np.diff(receivers) != 0)) + 1
    bounds = np.unique([0, *changes, len(senders)]).tolist()
    return [(Link(int(senders[a]), int(receivers[a])), slice(a, b)) for a, b in pairwise(bounds)]


@dataclass(frozen=True)
class LinkFactors:
    """Message rows of one or many links, sorted by sender, receiver, kind of row and vertex.

    links [links] and rows [links + 1]: link l's messages are the rows rows[l] to rows[l + 1].
    S: entries (message row, source vertex j, value); R: entries (destination vertex i, message row, value).
    """

    links: tuple[Link, ...]
    rows: Ints
    send: tuple[Ints, Ints, Floats]
    receive: tuple[Ints, Ints, Floats]

    @property
    def counts(self) -> tuple[tuple[Link, int], ...]:
        """Links with their numbers of rows."""
        return tuple(zip(self.links, np.diff(self.rows).tolist(), strict=True))


def factor(i: Ints, j: Ints, weights: Floats, receiver: Ints, sender: Ints, aggregate: bool = True) -> LinkFactors:
    """Factor the blocks of all links at once from their cross edges D_ij: i at `receiver`, j at `sender`.

    Without `aggregate` every row picks a source vertex, for layers that need each offer by itself.
    Links share no edges, so the cover of their union is the union of their covers: one call for a thousand links
    gives what a call for each would.
    """
    base = int(max(sender.max(initial=0), receiver.max(initial=0))) + 1
    size = int(max(i.max(initial=0), j.max(initial=0))) + 1
    pairs, link, _ = _number(sender * base + receiver)
    destinations, to, by_destination = _number(i * base + sender)  # of each link its own: i knows its receiver
    sources, at, _ = _number(j * base + receiver)
    starts = np.concatenate([[0], np.cumsum(np.bincount(to, minlength=len(destinations)))])
    blocks = sparse.csr_array(
        (np.ones(len(i), dtype=np.int8), at[by_destination], starts), shape=(len(destinations), len(sources))
    )
    # An edge goes over its destination's pre-aggregated row if there is one, else over its source's picked row.
    over = _cover(blocks)[to] if aggregate else np.zeros(len(to), dtype=bool)
    label = np.where(over, link * 2 * size + i, (link * 2 + 1) * size + j)
    labels, row, _ = _number(label)
    rows = np.searchsorted(labels // (2 * size), np.arange(len(pairs) + 1))
    picked = labels // size % 2 == 1
    picked_row = np.flatnonzero(picked)
    aggregated_row = np.flatnonzero(~picked)
    one = np.ones_like
    return LinkFactors(
        links=tuple(Link(int(c) // base, int(c) % base) for c in pairs),
        rows=rows,
        send=(
            np.concatenate([row[over], picked_row]),
            np.concatenate([j[over], labels[picked] % size]),
            np.concatenate([weights[over], one(picked_row, dtype=np.float64)]),
        ),
        receive=(
            np.concatenate([labels[~picked] % size, i[~over]]),
            np.concatenate([aggregated_row, row[~over]]),
            np.concatenate([one(aggregated_row, dtype=np.float64), weights[~over]]),
        ),
    )


def _cover(blocks: Any) -> NDArray[np.bool_]:
    """Destinations [rows of `blocks`] in the minimum vertex cover of Konig's theorem.

    From the unmatched destinations walk along any edge to a source and back along its matching edge. The cover
    holds the destinations that are not reached and the sources that are; every edge of a destination outside the
    cover then ends at a covered source.
    """
    partner = sparse.csgraph.maximum_bipartite_matching(blocks, perm_type="column")  # of each destination, or -1
    of_source = np.full(blocks.shape[1], -1, dtype=np.int64)
    of_source[partner[partner >= 0]] = np.flatnonzero(partner >= 0)
    reached = partner < 0
    seen = np.zeros(blocks.shape[1], dtype=bool)
    last = np.empty(blocks.shape[1], dtype=np.int64)
    frontier = np.flatnonzero(reached)
    while len(frontier):
        sources = blocks[frontier].indices
        sources = sources[~seen[sources]]
        last[sources] = np.arange(len(sources))
        sources = sources[last[sources] == np.arange(len(sources))]  # each once
        seen[sources] = True
        back = of_source[sources]
        back = back[back >= 0]
        frontier = back[~reached[back]]
        reached[frontier] = True
    return np.asarray(~reached)


def _number(keys: Ints) -> tuple[Ints, Ints, Ints]:
    """The distinct keys, ascending; the number of each key among them; and an order that sorts the keys.

    A key and its index are packed into one integer where they fit, because values sort many times faster than indices.
    """
    bits = len(keys).bit_length()
    if int(keys.max(initial=0)) >> (62 - bits) == 0:
        packed = keys << bits
        packed |= np.arange(len(keys))
        packed.sort()
        order, ascending = packed & ((1 << bits) - 1), packed >> bits
    else:
        order = np.argsort(keys, kind="stable")
        ascending = keys[order]
    first = np.diff(ascending, prepend=-1) != 0
    number = np.empty(len(keys), dtype=np.int64)
    number[order] = np.cumsum(first) - 1
    return ascending[first], number, order
