"""Links: which rows agent z sends to agent k so that k can add D_kz u_z, and as few of them as possible (eq. (6)).

The block of a link is factored as D_kz = R_kz S_kz. A row of S either pre-aggregates for a destination vertex of k
(z does the weighting, eq. (6)) or picks a source vertex of z (k does the weighting). The rows are a minimum vertex
cover of the link's bipartite graph, so that their number is the structural rank of D_kz. The cover is Konig's, the
set that no choice of matching changes: a link's two ends compute it alone and agree.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

Ints = NDArray[np.int64]


class Link(NamedTuple):
    """A direction in which messages go; the backward pass uses the same pair reversed."""

    sender: int
    receiver: int


@dataclass(frozen=True)
class Factored:
    """Message rows of one or many links, sorted by sender, receiver, kind of row and vertex.

    links [links] and rows [links + 1]: link l's messages are the rows rows[l] to rows[l + 1].
    S: entries (message row, source vertex j, value); R: entries (destination vertex i, message row, value).
    """

    links: tuple[Link, ...]
    rows: Ints
    send: tuple[Ints, Ints, NDArray[np.float64]]
    receive: tuple[Ints, Ints, NDArray[np.float64]]

    @property
    def counts(self) -> tuple[tuple[Link, int], ...]:
        """The links with their numbers of rows."""
        return tuple(zip(self.links, np.diff(self.rows).tolist(), strict=True))


def factor(i: Ints, j: Ints, weights: NDArray[np.float64], receiver: Ints, sender: Ints) -> Factored:
    """Factor the blocks of all links at once from their cross edges D_ij: i at `receiver`, j at `sender`.

    Links share no edges, so the cover of their union is the union of their covers: one call for a thousand links
    gives what a call for each would.
    """
    base = int(max(sender.max(initial=0), receiver.max(initial=0))) + 1
    size = int(max(i.max(initial=0), j.max(initial=0))) + 1
    code = sender * base + receiver
    codes, link = np.unique(code, return_inverse=True)
    destinations, to = np.unique(link * size + i, return_inverse=True)
    sources, at = np.unique(link * size + j, return_inverse=True)
    blocks = sparse.csr_array((np.ones(len(i), dtype=np.int8), (to, at)), shape=(len(destinations), len(sources)))
    aggregate = _cover(blocks)
    # An edge goes over its destination's pre-aggregated row if there is one, else over its source's picked row.
    over = aggregate[to]
    label = np.where(over, link * 2 * size + i, (link * 2 + 1) * size + j)
    labels, row = np.unique(label, return_inverse=True)
    rows = np.searchsorted(labels // (2 * size), np.arange(len(codes) + 1))
    picked = labels // size % 2 == 1
    picked_row = np.flatnonzero(picked)
    aggregated_row = np.flatnonzero(~picked)
    one = np.ones_like
    return Factored(
        links=tuple(Link(int(c) // base, int(c) % base) for c in codes),
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
    """Which destinations [rows of `blocks`] stand in Konig's minimum vertex cover.

    From the unmatched destinations walk along any edge to a source and back along its matching edge. The cover
    holds the destinations that are not reached and the sources that are; every edge of a destination outside the
    cover then ends at a covered source.
    """
    partner = sparse.csgraph.maximum_bipartite_matching(blocks, perm_type="column")  # of each destination, or -1
    of_source = np.full(blocks.shape[1], -1, dtype=np.int64)
    of_source[partner[partner >= 0]] = np.flatnonzero(partner >= 0)
    reached = partner < 0
    frontier = np.flatnonzero(reached)
    while len(frontier):
        sources = np.unique(blocks[frontier].indices)
        back = of_source[sources]
        frontier = np.unique(back[back >= 0])
        frontier = frontier[~reached[frontier]]
        reached[frontier] = True
    return np.asarray(~reached)
