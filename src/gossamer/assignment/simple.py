"""Assignments by uniform draws, by the nearest station, by METIS, and the check of a user's array.

METIS: Karypis and Kumar 1998, A fast and high quality multilevel scheme for partitioning irregular graphs.
"""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gossamer.errors import GossamerError


def assign_uniformly(num_vertices: int, num_agents: int, seed: int) -> NDArray[np.int64]:
    """a(i) [n] drawn uniformly; almost every pair of agents then shares an edge (Sec. V-A)."""
    return np.random.default_rng(seed).integers(0, num_agents, num_vertices)


def assign_to_nearest(positions: ArrayLike, stations: ArrayLike) -> NDArray[np.int64]:
    """a(i) [n] = the station nearest to vertex i; positions [n, 2], stations [m, 2]."""
    offsets = np.asarray(positions)[:, None, :] - np.asarray(stations)[None, :, :]
    return np.asarray((offsets**2).sum(-1).argmin(1), dtype=np.int64)


def place_stations(positions: ArrayLike, num_agents: int) -> NDArray[np.float64]:
    """Place m stations at equal angles on an ellipse inside the bounding box of the vertices (Sec. V-F), [m, 2]."""
    places = np.asarray(positions, dtype=np.float64)
    low, high = places.min(0), places.max(0)
    angle = 2 * np.pi * np.arange(num_agents) / num_agents
    return np.asarray((low + high) / 2 + np.stack([np.cos(angle), np.sin(angle)], axis=1) * (high - low) / 4 * 1.5)


def partition_with_metis(adjacency: Any, num_agents: int, seed: int) -> NDArray[np.int64]:
    """a(i) [n] by METIS: few edges between agents, equal sizes. Needs the extra `metis`."""
    try:
        import pymetis
    except ImportError:
        raise GossamerError("--assignment metis needs pymetis: pip install 'gossamer[metis]'") from None
    if num_agents == 1:
        return np.zeros(adjacency.shape[0], dtype=np.int64)
    graph = pymetis.CSRAdjacency(adjacency.indptr, adjacency.indices)
    _, owner = pymetis.part_graph(num_agents, graph, options=pymetis.Options(seed=seed), recursive=True)
    return np.asarray(owner, dtype=np.int64)


def check_assignment(array: ArrayLike, num_vertices: int, num_agents: int) -> NDArray[np.int64]:
    """Require a(i) [n]: one agent number from 0 to m - 1 for each vertex."""
    owner = np.asarray(array)
    if owner.shape != (num_vertices,) or not np.issubdtype(owner.dtype, np.integer):
        raise GossamerError(
            f"the assignment must be {num_vertices} integers, one for each vertex, got {owner.dtype} {owner.shape}"
        )
    if len(owner) and (owner.min() < 0 or owner.max() >= num_agents):
        raise GossamerError(
            f"the assignment must name agents 0 to {num_agents - 1}, got {owner.min()} to {owner.max()}"
        )
    return owner.astype(np.int64)
