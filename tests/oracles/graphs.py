"""Small graphs for tests: dense, plain, and independent of the library's own sparse code."""

from typing import Any

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import sparse

from gossamer.data import DataGraph, make_graph

PATH = np.array([[0, 1], [1, 2], [2, 3]])


def path_arrays() -> dict[str, Any]:
    """The arguments of make_graph for 0 - 1 - 2 - 3 with two classes; a test changes what it is about."""
    return {
        "name": "path",
        "edges": PATH.copy(),
        "features": np.arange(8.0).reshape(4, 2),
        "targets": np.array([0, 1, 0, 1]),
        "train": np.array([True, True, False, False]),
        "validation": np.array([False, False, True, False]),
        "test": np.array([False, False, False, True]),
        "weights": np.array([1.0, 2.0, 3.0]),
        "positions": np.array([[0.0, 0.0], [1.0, 0.0], [2.0, 0.0], [3.0, 0.0]]),
    }


def path_graph(**changes: Any) -> DataGraph:
    return make_graph(**{**path_arrays(), **changes})


def path_csr(n: int) -> Any:
    """The adjacency of a path of n vertices."""
    return csr(np.eye(n, k=1) + np.eye(n, k=-1))


def random_adjacency(n: int, density: float, seed: int, connected: bool = True) -> NDArray[np.float64]:
    """A symmetric dense adjacency with random weights, no self-loops; a path through all vertices connects it."""
    random = np.random.default_rng(seed)
    present = np.triu(random.random((n, n)) < density, 1)
    if connected:
        order = random.permutation(n)
        low, high = np.sort(np.stack([order[:-1], order[1:]]), axis=0)
        present[low, high] = True
    half = np.where(present, random.uniform(0.5, 1.5, (n, n)), 0.0)
    return half + half.T


def csr(dense: NDArray[np.float64]) -> Any:
    return sparse.csr_array(dense)


def reachable(adjacency: NDArray[Any], start: int) -> set[int]:
    """All vertices that a walk from `start` meets, by the plainest search there is."""
    seen, to_do = {start}, [start]
    while to_do:
        for j in np.flatnonzero(adjacency[to_do.pop()]).tolist():
            if j not in seen:
                seen.add(j)
                to_do.append(j)
    return seen


def is_connected(adjacency: NDArray[Any]) -> bool:
    return len(reachable(adjacency, 0)) == len(adjacency)


def cycles(*sizes: int) -> NDArray[np.float64]:
    """A dense adjacency of separate rings (a size of 1 is a lone vertex)."""
    whole = np.zeros((sum(sizes), sum(sizes)))
    first = 0
    for size in sizes:
        for i in range(size if size > 2 else size - 1):
            a, b = first + i, first + (i + 1) % size
            whole[a, b] = whole[b, a] = 1.0
        first += size
    return whole


@st.composite
def adjacencies(draw: st.DrawFn, max_vertices: int = 14, connected: bool | None = None) -> NDArray[np.float64]:
    """Dense weighted adjacencies; `connected` None draws both kinds."""
    n = draw(st.integers(1, max_vertices))
    whole = draw(st.booleans()) if connected is None else connected
    return random_adjacency(n, draw(st.sampled_from([0.0, 0.1, 0.3, 0.8])), draw(st.integers(0, 10**6)), whole)


def to_graph(adjacency: NDArray[np.float64]) -> DataGraph:
    """A DataGraph of this adjacency without make_graph's checks, so that odd graphs can be built."""
    n = len(adjacency)
    edges = np.argwhere(np.triu(adjacency, 1)).astype(np.int64)
    every = np.ones(n, dtype=bool)
    return DataGraph(
        "drawn", edges, adjacency[edges[:, 0], edges[:, 1]], np.eye(n), np.arange(n) % 2, every, ~every, ~every, 2
    )
