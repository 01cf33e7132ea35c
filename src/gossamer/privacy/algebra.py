"""Algebra of seen rows: which vertices stand alone in them, and how much is known of each one's features.

A vertex j stands alone if e_j is in the row space of the rows that are sent: a combination of rows is a function of j.
An evaluation multiplies all rows by the same weights, so that a vertex alone gives W_t^T x_j at every evaluation t, and
others give nothing by themselves. In training every vertex has a dropout mask of its own: with known masks a row
that adds up s vertices gives equations sum_j S_qj W_t^T (m_j^t o x_j) in s d unknowns, which come apart once there are
as many of them. The ranks here are those of weights in general position, counted by a maximum flow from equations to
unknowns (the structural rank of Dulmage and Mendelsohn 1958, "Coverings of bipartite graphs"); a vertex is identifiable
if the rank is d.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from gossamer.array_types import Floats, Ints
from gossamer.privacy.knowledge import KnownSteps
from gossamer.privacy.seen_rows import SeenRows

TOLERANCE = 1e-9  # of entries in a reduced matrix, relative to the largest of the row before


@dataclass(frozen=True)
class VertexRanks:
    """One sender's vertices that a curious agent sees: whether alone, and the rank of what is known of each."""

    vertices: Ints
    alone: NDArray[np.bool_]
    rank: Ints  # of the known linear measurements of its features, at most d
    num_features: int

    @property
    def identifiable(self) -> NDArray[np.bool_]:
        return np.asarray(self.rank == self.num_features)


def reduce_rows(matrix: Floats) -> Floats:
    """A basis of the row space in reduced echelon form, by elimination with partial pivoting."""
    M = matrix.astype(np.float64, copy=True)
    scale = max(float(np.abs(M).max(initial=0.0)), 1e-300)
    r = 0
    for column in range(M.shape[1]):
        if r == len(M):
            break
        pivot = r + int(np.argmax(np.abs(M[r:, column])))
        if abs(M[pivot, column]) <= TOLERANCE * scale:
            M[r:, column] = 0.0
            continue
        M[[r, pivot]] = M[[pivot, r]]
        M[r] /= M[r, column]
        others = np.flatnonzero(M[:, column])
        others = others[others != r]
        M[others] -= np.outer(M[others, column], M[r])
        M[others, column] = 0.0
        r += 1
    M[np.abs(M) <= TOLERANCE * scale] = 0.0
    return M[:r]


def reduce_around(S_e: Floats, S_t: Floats) -> Floats:
    """A basis of the rows of evaluations in which vertices of training rows, known from these, are left for last."""
    order = np.argsort((S_t != 0).any(0), kind="stable")
    return reduce_rows(S_e[:, order])[:, np.argsort(order)]


def find_alone(matrix: Floats) -> NDArray[np.bool_]:
    """Columns j with e_j in the row space [columns]."""
    basis = reduce_rows(matrix)
    single = basis[(basis != 0).sum(1) == 1]
    return np.asarray((single != 0).any(0)) if len(single) else np.zeros(matrix.shape[1], dtype=bool)


def align_rows(rows: SeenRows | None, vertices: Ints) -> Floats:
    """The matrix of seen rows with a column for each of the vertices."""
    if rows is None:
        return np.zeros((0, len(vertices)))
    aligned = np.zeros((len(rows.matrix), len(vertices)))
    aligned[:, np.searchsorted(vertices, rows.vertices)] = rows.matrix
    return aligned


def measure_ranks(
    evaluation: SeenRows | None, training: SeenRows | None, known: KnownSteps, width: int, d: int, dropout: float
) -> VertexRanks:
    """Ranks of one sender's vertices over the known steps; with `dropout`, each vertex has masks of its own."""
    seen = [rows.vertices for rows in (evaluation, training) if rows is not None]
    vertices = np.unique(np.concatenate(seen)) if seen else np.empty(0, dtype=np.int64)
    S_e, S_t = align_rows(evaluation, vertices), align_rows(training, vertices)
    alone_e, alone_t = find_alone(S_e), find_alone(S_t)
    alone_both = find_alone(np.concatenate([S_e, S_t]))
    if dropout:
        rank = _count_masked(S_e, S_t, known, width, d, dropout)
        return VertexRanks(vertices, alone_e | alone_t, rank, d)
    E, T = set(known.evaluations), set(known.training)
    steps = np.array(
        [
            len((E if e else set()) | (T if t else set()) | (E & T if b else set()))
            for e, t, b in zip(alone_e, alone_t, alone_both, strict=True)
        ],
        dtype=np.int64,
    )
    return VertexRanks(vertices, alone_both, np.minimum(d, width * steps), d)


def _count_masked(S_e: Floats, S_t: Floats, known: KnownSteps, width: int, d: int, dropout: float) -> Ints:
    """Ranks where every training step has masks of its own: a maximum flow from equations to unknowns.

    Of T masks, d (1 - dropout^T) features are expected to be in one at least. Vertices that no flow can fill, and those
    that share equations with them, are not determined; what is left of theirs is counted row by row, a lower bound.
    """
    n, steps = S_e.shape[1], len(known.training)
    from_evaluation = min(d, width * len(known.evaluations))
    covered = round(d * (1 - dropout**steps))
    supports, supply, most = [], [], []  # of each row of a basis: vertices, equations, and those for one vertex
    for row in reduce_around(S_e, S_t) if from_evaluation else ():
        supports.append(np.flatnonzero(row))
        supply.append(from_evaluation)
        most.append(from_evaluation)
    for row in reduce_rows(S_t) if covered else ():
        supports.append(np.flatnonzero(row))
        supply.append(steps * min(width, round((1 - dropout) * d * len(supports[-1]))))
        most.append(covered)
    rank = np.zeros(n, dtype=np.int64)
    if not supports:
        return rank
    filled, flow = _maximise_flow(supports, supply, most, n, d)
    under = _spread(np.flatnonzero(filled < d), supports, flow, n)
    rank[~under] = d
    for support, count, largest in zip(supports, supply, most, strict=True):
        open_ = support[under[support]]
        left = min(count - (len(open_) - 1) * d, largest)
        if len(open_) == 1 and left > 0:
            rank[open_] = np.minimum(d, rank[open_] + left)
        elif left > 0:
            rank[open_] = np.maximum(rank[open_], left)
    rank[under] = np.minimum(rank[under], np.maximum(filled[under], 0))
    return rank


def _maximise_flow(
    supports: list[Ints], supply: list[int], most: list[int], n: int, d: int
) -> tuple[Ints, NDArray[np.int64]]:
    """Share of each of n vertices' d unknowns that the equations fill, and the flow from each row to each vertex."""
    rows = len(supports)
    source, sink = rows + n, rows + n + 1
    vertices = rows + np.arange(n)
    tails = [np.full(rows, source), *(np.full(len(s), q) for q, s in enumerate(supports)), vertices]
    heads = [np.arange(rows), *(rows + s for s in supports), np.full(n, sink)]
    bounds = [np.minimum(count, d * len(s)) for count, s in zip(supply, supports, strict=True)]
    sizes = [np.array(bounds), *(np.full(len(s), c) for s, c in zip(supports, most, strict=True)), np.full(n, d)]
    tail, head, size = (np.concatenate(parts).astype(np.int32) for parts in (tails, heads, sizes))
    graph = sparse.csr_matrix((size, (tail, head)), shape=(sink + 1, sink + 1))
    flow = sparse.csgraph.maximum_flow(graph, source, sink).flow.toarray()
    return flow[rows : rows + n, sink].astype(np.int64), flow[:rows, rows : rows + n].astype(np.int64)


def _spread(unfilled: Ints, supports: list[Ints], flow: Ints, n: int) -> NDArray[np.bool_]:
    """Vertices that are not determined: the unfilled ones, and those whose equations could fill one of them."""
    under = np.zeros(n, dtype=bool)
    by_vertex: list[list[int]] = [[] for _ in range(n)]
    for q, support in enumerate(supports):
        for j in support.tolist():
            by_vertex[j].append(q)
    to_do, seen = unfilled.tolist(), set()
    under[unfilled] = True
    while to_do:
        for q in by_vertex[to_do.pop()]:
            if q in seen:
                continue
            seen.add(q)
            for j in np.flatnonzero(flow[q] > 0).tolist():
                if not under[j]:
                    under[j] = True
                    to_do.append(j)
    return under
