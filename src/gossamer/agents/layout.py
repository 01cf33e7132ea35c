"""A host's part of the shift operator in the order of its rows, sorted once; every plan is cut out of it.

Rows of hosted vertices are ordered by agent, then by vertex. D between them is kept beside its transpose, both sorted,
so that a propagation's block is a selection of rows and columns and nothing is sorted again.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse

from gossamer.agents.links import Factored, Ints, factor
from gossamer.model.gather import Rows
from gossamer.model.sparse import Operator, make_operator

Entries = tuple[NDArray[Any], NDArray[Any], NDArray[Any]]  # i, j, D_ij


@dataclass(frozen=True)
class Layout:
    vertices: Ints  # hosted, in row order
    agent: Ints  # of each row: its agent's position on this host
    inside: Any  # D between hosted vertices, CSR [rows, rows], sorted
    transposed: Any
    leaving: Entries  # D_ij with j hosted and i elsewhere, and the other way round
    arriving: Entries
    place: Ints  # of all known vertices: the agent, or the host of agents, that links name

    def block(self, to: Ints, at: Ints, dtype: torch.dtype) -> Operator:
        """D[to, at] for two selections of rows, ascending."""
        return make_operator(_selected(self.inside, to, at), dtype, _selected(self.transposed, at, to))

    def outgoing(self, to: Rows, at: Rows, aggregate: bool = True) -> Factored:
        """The links that leave the host on the way from the vertices `at` to the vertices `to`."""
        return factored(self.leaving, to, at, self.place, aggregate)

    def incoming(self, to: Rows, at: Rows, aggregate: bool = True) -> Factored:
        return factored(self.arriving, to, at, self.place, aggregate)

    def edges(self, to: Ints, at: Ints) -> Entries:
        """The entries of D[to, at] for two selections of rows, by position in them."""
        entries = _selected(self.inside, to, at).tocoo()
        return entries.row.astype(np.int64), entries.col.astype(np.int64), entries.data


def make_layout(
    entries: Entries,
    owner: Ints,
    agents: Sequence[int],
    dtype: torch.dtype,
    hosting: Ints | None = None,
    apart: bool = False,
) -> Layout:
    """The layout of the hosted `agents` from the entries (i, j, D_ij) that touch them.

    With `hosting`, the host of each agent, links join hosts: a row that several agents of a host need goes there once.
    With `apart`, links join agents also on the same host: only an agent's own block is inside.
    """
    i, j, w = entries
    w = w.astype(np.float64 if dtype == torch.float64 else np.float32, copy=False)
    position = np.full(int(max(owner.max(initial=0), *agents)) + 1, -1, dtype=np.int64)
    position[list(agents)] = np.arange(len(agents))
    agent = position[owner]  # of each known vertex, or -1
    here = agent >= 0
    vertices = np.argsort(np.where(here, agent, len(agents)), kind="stable")[: int(here.sum())]
    none = (np.empty(0, np.int64), np.empty(0, np.int64), w[:0])
    leaving = arriving = none
    if apart or not here.all():
        within = agent[i] == agent[j] if apart else here[i] & here[j]
        leaving, arriving = _chosen(entries, here[j] & ~within), _chosen(entries, here[i] & ~within)
        i, j, w = _chosen((i, j, w), within & here[i])
    inside, transposed = _laid_out(i, j, w, vertices, len(owner))
    place = owner if hosting is None or apart else hosting[owner]
    return Layout(vertices, agent[vertices], inside, transposed, leaving, arriving, place)


def factored(entries: Entries, to: Rows, at: Rows, place: Ints, aggregate: bool = True) -> Factored:
    """The links of the cross edges D[to, at] among `entries`, between the vertices' places."""
    i, j, w = _chosen(entries, to[entries[0]] & at[entries[1]])
    return factor(i, j, w, place[i], place[j], aggregate)


def positions(vertices: Ints, n: int) -> Ints:
    """Where each of n vertices stands in `vertices`, or -1."""
    found = np.full(n, -1, dtype=np.int64)
    found[vertices] = np.arange(len(vertices))
    return found


def _laid_out(i: Any, j: Any, w: Any, vertices: Ints, n: int) -> tuple[Any, Any]:
    """M and M^T of the entries in the order of `vertices`. CSR to CSC and back sorts by counting, which is linear."""
    if (i[1:] < i[:-1]).any():
        order = np.argsort(i, kind="stable")
        i, j, w = i[order], j[order], w[order]
    size = len(vertices)
    kind = np.int32 if max(n, len(i)) < 2**31 else np.int64
    starts = np.concatenate([[0], np.cumsum(np.bincount(i, minlength=n))]).astype(kind)
    place = positions(vertices, n).astype(kind)
    by_row = sparse.csr_array((w, place[j], starts), shape=(n, size))[vertices]
    by_column = by_row.tocsc()
    inside = by_column.tocsr()
    return inside, sparse.csr_array((by_column.data, by_column.indices, by_column.indptr), shape=(size, size))


def _selected(matrix: Any, rows: Ints, columns: Ints) -> Any:
    part = matrix if len(rows) == matrix.shape[0] else matrix[rows]
    return part if len(columns) == matrix.shape[1] else part[:, columns]


def _chosen(entries: Entries, mask: NDArray[np.bool_]) -> Entries:
    i, j, w = entries
    return i[mask], j[mask], w[mask]
