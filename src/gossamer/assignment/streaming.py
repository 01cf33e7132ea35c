"""A fast partitioner for large graphs: vertices stream by in chunks, each to the agent that holds most of its
neighbours, less the fuller that agent is (linear deterministic greedy, streamed several times).

A chunk's neighbours are counted by agent all at once, so that a pass is linear in the edges and runs over arrays. Every
pass sees where the one before left everybody, which is what makes the parts good.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

PASSES = 10
SETTLED = 1e-3  # share of the vertices: a pass that moves fewer is the last
SLACK = 0.03  # by which a part may be larger or smaller than the mean
CHUNKS = 64  # in a pass; the vertices of a chunk do not see each other move

Ints = NDArray[np.int64]


def partition_stream(adjacency: Any, num_agents: int, seed: int, passes: int = PASSES) -> Ints:
    """a(i) with few edges between agents and parts of about equal size, none empty."""
    n, m = adjacency.shape[0], num_agents
    random = np.random.default_rng(seed)
    owner = _in_stretches(adjacency, m, random)
    size = np.bincount(owner, minlength=m)
    bounds = max(1, int(n / m * (1 - SLACK))), int(np.ceil(n / m * (1 + SLACK)))
    chunk = -(-n // CHUNKS)
    for _ in range(passes):
        order = random.permutation(n)
        moved = sum(
            _restream(adjacency, owner, size, order[first : first + chunk], bounds) for first in range(0, n, chunk)
        )
        if moved < SETTLED * n:
            break
    return owner


def _in_stretches(adjacency: Any, m: int, random: np.random.Generator) -> Ints:
    """Equal stretches of a breadth-first order, in which neighbours are near each other; component by component."""
    n = adjacency.shape[0]
    _, component = sparse.csgraph.connected_components(adjacency, directed=False)
    reached = sparse.csgraph.breadth_first_order(
        adjacency, random.integers(n), directed=False, return_predecessors=False
    )
    place = np.full(n, n)
    place[reached] = np.arange(len(reached))
    owner = np.empty(n, dtype=np.int64)
    owner[np.lexsort((place, component))] = np.arange(n) * m // n
    return owner


def _restream(adjacency: Any, owner: Ints, size: Ints, vertices: Ints, bounds: tuple[int, int]) -> int:
    """Let the vertices of a chunk choose again, in place; returns how many moved."""
    m, (least, most) = len(size), bounds
    rows = adjacency[vertices]
    counts = sparse.csr_array((rows.data, owner[rows.indices], rows.indptr), shape=(len(vertices), m))
    counts.sum_duplicates()  # of each vertex, its neighbours by agent
    vertex = np.repeat(np.arange(len(vertices)), np.diff(counts.indptr))
    before = owner[vertices]
    stays = counts.indices == before[vertex]
    stay = np.zeros(len(vertices))
    stay[vertex[stays]] = counts.data[stays] * (1.0 - (size[before[vertex[stays]]] - 1) / most)
    score = counts.data * np.maximum(0.0, 1.0 - size / most)[counts.indices]
    best, top = _best(score, counts.indices, vertex, before)
    gain = top - stay
    moves = np.flatnonzero((gain > 0) & (best != before))
    # Those who gain most go first, until the part that they choose is full or the one that they leave too small.
    moves = moves[np.argsort(-gain[moves], kind="stable")]
    moves = moves[_rank(best[moves]) < (most - size)[best[moves]]]
    moves = moves[_rank(before[moves]) < (size - least)[before[moves]]]
    owner[vertices[moves]] = best[moves]
    size += np.bincount(best[moves], minlength=m) - np.bincount(before[moves], minlength=m)
    return len(moves)


def _best(score: NDArray[np.float64], agent: Ints, vertex: Ints, before: Ints) -> tuple[Ints, NDArray[np.float64]]:
    """Each vertex's agent with the highest score, and that score; `vertex` ascends. Without any it stays."""
    best, top = before.copy(), np.zeros(len(before))
    if len(vertex):
        first = np.flatnonzero(np.diff(vertex, prepend=-1))
        top[vertex[first]] = np.maximum.reduceat(score, first)
        winners = np.flatnonzero(score == top[vertex])[::-1]  # of equals the first stands
        best[vertex[winners]] = agent[winners]
    return best, top


def _rank(groups: Ints) -> Ints:
    """How many before each entry are of its group."""
    order = np.argsort(groups, kind="stable")
    ascending = groups[order]
    rank = np.empty(len(groups), dtype=np.int64)
    rank[order] = np.arange(len(groups)) - np.searchsorted(ascending, ascending)
    return rank
