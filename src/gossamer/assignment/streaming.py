"""Streaming partitioner for large graphs: linear deterministic greedy, in several passes.

A vertex goes to the agent with most of its neighbours, weighted by that agent's free capacity (Stanton and Kliot 2012,
Streaming graph partitioning for large distributed graphs). Later passes start from the partition of the pass before
(Nishimura and Ugander 2013, Restreaming graph partitioning: simple versatile algorithms for advanced balancing).
Vertices come in chunks, whose neighbours are counted by agent with sparse matrices, so that a pass is linear in the
edges.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from gossamer.array_types import Ints

PASSES = 10
MIN_MOVES = 1e-3  # fraction of the vertices: a pass that moves fewer is the last
SLACK = 0.03  # by which a part may be larger or smaller than the mean, relative
CHUNKS = 64  # in a pass; the vertices of a chunk move simultaneously


def partition_stream(adjacency: Any, num_agents: int, seed: int, passes: int = PASSES) -> Ints:
    """a(i) [n] with few edges between agents and parts of about equal size, none empty."""
    n, m = adjacency.shape[0], num_agents
    random = np.random.default_rng(seed)
    owner = _cut_breadth_first_order(adjacency, m, random)
    size = np.bincount(owner, minlength=m)
    bounds = max(1, int(n / m * (1 - SLACK))), int(np.ceil(n / m * (1 + SLACK)))
    chunk = math.ceil(n / CHUNKS)
    for _ in range(passes):
        order = random.permutation(n)
        moved = sum(
            _restream(adjacency, owner, size, order[first : first + chunk], bounds) for first in range(0, n, chunk)
        )
        if moved < MIN_MOVES * n:
            break
    return owner


def _cut_breadth_first_order(adjacency: Any, m: int, random: np.random.Generator) -> Ints:
    """Initial parts: equal stretches of a breadth-first order, component by component."""
    n = adjacency.shape[0]
    _, component = sparse.csgraph.connected_components(adjacency, directed=False)
    reached = sparse.csgraph.breadth_first_order(
        adjacency, random.integers(n), directed=False, return_predecessors=False
    )
    position = np.full(n, n)
    position[reached] = np.arange(len(reached))
    owner = np.empty(n, dtype=np.int64)
    owner[np.lexsort((position, component))] = np.arange(n) * m // n
    return owner


def _restream(adjacency: Any, owner: Ints, size: Ints, vertices: Ints, bounds: tuple[int, int]) -> int:
    """Reassign the vertices of a chunk in place; return the number of moves."""
    m, (min_size, max_size) = len(size), bounds
    rows = adjacency[vertices]
    counts = sparse.csr_array((rows.data, owner[rows.indices], rows.indptr), shape=(len(vertices), m))
    counts.sum_duplicates()  # of each vertex, its neighbours by agent
    vertex = np.repeat(np.arange(len(vertices)), np.diff(counts.indptr))
    before = owner[vertices]
    stays = counts.indices == before[vertex]
    own_score = np.zeros(len(vertices))  # for staying; the vertex itself does not count as a part of the size
    own_score[vertex[stays]] = counts.data[stays] * (1.0 - (size[before[vertex[stays]]] - 1) / max_size)
    score = counts.data * np.maximum(0.0, 1.0 - size / max_size)[counts.indices]
    best, best_score = _find_best_agents(score, counts.indices, vertex, before)
    gain = best_score - own_score
    moves = np.flatnonzero((gain > 0) & (best != before))
    # The largest gains first, until the new part is full or the old one too small.
    moves = moves[np.argsort(-gain[moves], kind="stable")]
    moves = moves[_rank(best[moves]) < (max_size - size)[best[moves]]]
    moves = moves[_rank(before[moves]) < (size - min_size)[before[moves]]]
    owner[vertices[moves]] = best[moves]
    size += np.bincount(best[moves], minlength=m) - np.bincount(before[moves], minlength=m)
    return len(moves)


def _find_best_agents(
    score: NDArray[np.float64], agent: Ints, vertex: Ints, before: Ints
) -> tuple[Ints, NDArray[np.float64]]:
    """Agent with the highest score of each vertex, its own if there is none, and that score; `vertex` ascends."""
    best, top = before.copy(), np.zeros(len(before))
    if len(vertex):
        first = np.flatnonzero(np.diff(vertex, prepend=-1))
        top[vertex[first]] = np.maximum.reduceat(score, first)
        winners = np.flatnonzero(score == top[vertex])[::-1]  # of equals the first wins
        best[vertex[winners]] = agent[winners]
    return best, top


def _rank(groups: Ints) -> Ints:
    """Number of earlier entries in the same group, for each entry."""
    order = np.argsort(groups, kind="stable")
    ascending = groups[order]
    rank = np.empty(len(groups), dtype=np.int64)
    rank[order] = np.arange(len(groups)) - np.searchsorted(ascending, ascending)
    return rank
