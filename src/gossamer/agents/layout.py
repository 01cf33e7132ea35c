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

from gossamer.agents.links import LinkFactors, factor
from gossamer.array_types import Ints
from gossamer.model.gather import VertexMask
from gossamer.model.sparse import Operator, make_operator

ShiftEntries = tuple[NDArray[Any], NDArray[Any], NDArray[Any]]  # i, j, D_ij


@dataclass(frozen=True)
class Layout:
    vertices: Ints  # hosted, in row order
    agent: Ints  # of each row: its agent's position on this host
    inside: Any  # D between hosted vertices, CSR [rows, rows], sorted
    transposed: Any
    leaving: ShiftEntries  # D_ij with j hosted and i elsewhere, and the other way round
    arriving: ShiftEntries
    endpoint: Ints  # link endpoint of each known vertex: its agent, or that agent's host

    def block(self, to: Ints, at: Ints, dtype: torch.dtype) -> Operator:
        """D[to, at] for two selections of rows, ascending."""
        return make_operator(_select(self.inside, to, at), dtype, _select(self.transposed, at, to))

    def outgoing(self, to: VertexMask, at: VertexMask, aggregate: bool = True) -> LinkFactors:
        """The links that leave the host on the way from the vertices `at` to the vertices `to`."""
        return factor_links(self.leaving, to, at, self.endpoint, aggregate)

    def incoming(self, to: VertexMask, at: VertexMask, aggregate: bool = True) -> LinkFactors:
        return factor_links(self.arriving, to, at, self.endpoint, aggregate)

    def edges(self, to: Ints, at: Ints) -> ShiftEntries:
        """The entries of D[to, at] for two selections of rows, by position in them."""
        entries = _select(self.inside, to, at).tocoo()
        return entries.row.astype(np.int64), entries.col.astype(np.int64), entries.data


def make_layout(
    entries: ShiftEntries,
    owner: Ints,
    agents: Sequence[int],
    dtype: torch.dtype,
    hosting: Ints | None = None,
    separate: bool = False,
) -> Layout:
    """The layout of the hosted `agents` from the entries (i, j, D_ij) that touch them.

    With `hosting`, the host of each agent, links join hosts: a row that several agents of a host need goes there once.
    With `separate`, links join agents also on the same host: only an agent's own block is inside.
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
    if separate or not here.all():
        within = agent[i] == agent[j] if separate else here[i] & here[j]
        leaving, arriving = _filter(entries, here[j] & ~within), _filter(entries, here[i] & ~within)
        i, j, w = _filter((i, j, w), within & here[i])
    inside, transposed = _arrange(i, j, w, vertices, len(owner))
    endpoint = owner if hosting is None or separate else hosting[owner]
    return Layout(vertices, agent[vertices], inside, transposed, leaving, arriving, endpoint)


def factor_links(
    entries: ShiftEntries, to: VertexMask, at: VertexMask, endpoint: Ints, aggregate: bool = True
) -> LinkFactors:
    """The links of the cross edges D[to, at] among `entries`, between the vertices' endpoints."""
    i, j, w = _filter(entries, to[entries[0]] & at[entries[1]])
    return factor(i, j, w, endpoint[i], endpoint[j], aggregate)


def positions(vertices: Ints, n: int) -> Ints:
    """Position of each of n vertices in `vertices`, or -1."""
    found = np.full(n, -1, dtype=np.int64)
    found[vertices] = np.arange(len(vertices))
    return found


def _arrange(i: Any, j: Any, w: Any, vertices: Ints, n: int) -> tuple[Any, Any]:
    """M and M^T of the entries in the order of `vertices`. CSR to CSC and back sorts by counting, which is linear."""
    if (i[1:] < i[:-1]).any():
        order = np.argsort(i, kind="stable")
        i, j, w = i[order], j[order], w[order]
    size = len(vertices)
    kind = np.int32 if max(n, len(i)) < 2**31 else np.int64
    starts = np.concatenate([[0], np.cumsum(np.bincount(i, minlength=n))]).astype(kind)
    position = positions(vertices, n).astype(kind)
    by_row = sparse.csr_array((w, position[j], starts), shape=(n, size))[vertices]
    by_column = by_row.tocsc()
    inside = by_column.tocsr()
    return inside, sparse.csr_array((by_column.data, by_column.indices, by_column.indptr), shape=(size, size))


def _select(matrix: Any, rows: Ints, columns: Ints) -> Any:
    part = matrix if len(rows) == matrix.shape[0] else matrix[rows]
    return part if len(columns) == matrix.shape[1] else part[:, columns]


def _filter(entries: ShiftEntries, mask: NDArray[np.bool_]) -> ShiftEntries:
    i, j, w = entries
    return i[mask], j[mask], w[mask]
