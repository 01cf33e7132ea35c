"""Assignment a(i) of vertices to agents (Sec. III-A, V-A); the pipeline's second stage.

The code is organised as follows:
    growth     breadth-first growth from random seed vertices, plain and balanced
    streaming  a streaming partitioner for large graphs
    simple     uniform draws, nearest stations, METIS, the check of a user's array
Here stand the table of methods by name, and the shared edge counts B_kz.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from gossamer.assignment.growth import grow_balanced, grow_breadth_first
from gossamer.assignment.simple import (
    assign_to_nearest,
    assign_uniformly,
    check_assignment,
    partition_with_metis,
    place_stations,
)
from gossamer.assignment.streaming import partition_stream
from gossamer.data import DataGraph
from gossamer.errors import GossamerError

__all__ = [
    "ASSIGNMENTS",
    "assign",
    "assign_to_nearest",
    "assign_uniformly",
    "check_assignment",
    "grow_balanced",
    "grow_breadth_first",
    "partition_stream",
    "partition_with_metis",
    "place_stations",
    "shared_edges",
]


def _assign_to_stations(graph: DataGraph, num_agents: int, seed: int) -> NDArray[np.int64]:
    """a(i) = the nearest of m stations on an ellipse (Sec. V-F); nothing is random."""
    if graph.positions is None:
        raise GossamerError(f"--assignment nearest needs vertex positions, and {graph.name} has none")
    return assign_to_nearest(graph.positions, place_stations(graph.positions, num_agents))


# Choices of `--assignment`: a(i) [n] from the graph, the number of agents and a seed. A new one is a line here.
ASSIGNMENTS: dict[str, Callable[[DataGraph, int, int], NDArray[np.int64]]] = {
    "bfs": lambda graph, m, seed: grow_breadth_first(graph.adjacency, m, seed),
    "balanced": lambda graph, m, seed: grow_balanced(graph.adjacency, m, seed),
    "uniform": lambda graph, m, seed: assign_uniformly(graph.num_vertices, m, seed),
    "streaming": lambda graph, m, seed: partition_stream(graph.adjacency, m, seed),
    "metis": lambda graph, m, seed: partition_with_metis(graph.adjacency, m, seed),
    "nearest": _assign_to_stations,
}


def assign(graph: DataGraph, how: str, num_agents: int, seed: int) -> NDArray[np.int64]:
    """a(i) [n] by the name of a method in ASSIGNMENTS."""
    if not 1 <= num_agents <= graph.num_vertices:
        raise GossamerError(f"expected 1 to {graph.num_vertices} agents, one vertex each at the most, got {num_agents}")
    if how not in ASSIGNMENTS:
        raise GossamerError(f"expected an assignment among {', '.join(ASSIGNMENTS)}, got {how!r}")
    return check_assignment(ASSIGNMENTS[how](graph, num_agents, seed), graph.num_vertices, num_agents)


def shared_edges(graph: DataGraph, assignment: NDArray[np.int64], num_agents: int) -> NDArray[np.int64]:
    """B [m, m]: B_kz = number of data edges between agents k and z (Sec. III-B), 0 on the diagonal."""
    i, j = graph.edges.T
    pair = assignment[i] * num_agents + assignment[j]
    counts = np.bincount(pair, minlength=num_agents**2).reshape(num_agents, num_agents)
    counts = counts + counts.T
    np.fill_diagonal(counts, 0)
    return np.asarray(counts)
