"""Breadth-first growth of the agents' parts from random seed vertices (Sec. V-A)."""

import heapq
from collections import deque
from typing import Any

import numpy as np
from numpy.typing import NDArray


def grow_breadth_first(adjacency: Any, num_agents: int, seed: int) -> NDArray[np.int64]:
    """a(i) [n]: every agent starts at a random vertex and all grow by one ring of neighbours at a time.

    A vertex that several agents reach in the same round goes to one of them at random. A component without a seed is
    entered at a random vertex by the agent with the fewest vertices. Linear in the edges.
    """
    random = np.random.default_rng(seed)
    n = adjacency.shape[0]
    owner = np.full(n, -1, dtype=np.int64)
    frontier = random.choice(n, size=min(num_agents, n), replace=False)
    owner[frontier] = np.arange(len(frontier))
    degrees = np.diff(adjacency.indptr)
    while True:
        while len(frontier):
            i, j = _edges_from(adjacency, degrees, frontier)
            i, j = i[owner[j] < 0], j[owner[j] < 0]
            order = random.permutation(len(j))
            frontier, first = np.unique(j[order], return_index=True)
            owner[frontier] = owner[i[order][first]]
        unreached = np.flatnonzero(owner < 0)
        if not len(unreached):
            return owner
        frontier = random.choice(unreached, size=1)
        owner[frontier] = np.bincount(owner[owner >= 0], minlength=num_agents).argmin()


def grow_balanced(adjacency: Any, num_agents: int, seed: int) -> NDArray[np.int64]:
    """a(i) [n] by breadth-first growth in turn: the agent with the fewest vertices takes the next one.

    An agent without free neighbours continues at a random free vertex, so that sizes differ by one at most.
    """
    random = np.random.default_rng(seed)
    n = adjacency.shape[0]
    owner = np.full(n, -1, dtype=np.int64)
    spare = iter(random.permutation(n))
    queues: list[deque[int]] = [deque() for _ in range(num_agents)]
    turns = [(0, k) for k in range(num_agents)]
    for _ in range(n):
        size, k = heapq.heappop(turns)
        i = _first_free(owner, queues[k])
        if i is None:
            i = next(v for v in spare if owner[v] < 0)
        owner[i] = k
        near = adjacency.indices[adjacency.indptr[i] : adjacency.indptr[i + 1]]
        queues[k].extend(random.permutation(near[owner[near] < 0]).tolist())
        heapq.heappush(turns, (size + 1, k))
    return owner


def _first_free(owner: NDArray[np.int64], queue: deque[int]) -> int | None:
    """Next vertex of a queue that has no owner, or None."""
    while queue:
        i = queue.popleft()
        if owner[i] < 0:
            return i
    return None


def _edges_from(adjacency: Any, degrees: NDArray[Any], vertices: NDArray[np.int64]) -> tuple[Any, Any]:
    """All edges (i, j) with i in `vertices`, as two arrays."""
    counts = degrees[vertices]
    starts = np.repeat(adjacency.indptr[vertices] - np.concatenate([[0], np.cumsum(counts)[:-1]]), counts)
    return np.repeat(vertices, counts), adjacency.indices[starts + np.arange(counts.sum())]
