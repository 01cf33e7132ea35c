"""a(i): which agent holds which vertex (Sec. III-A, V-A); the pipeline's second stage.

The code is organised as follows:
    growth     breadth-first growth from random seeds, plain and balanced
    streaming  a fast partition of large graphs
    simple     uniform, nearest station, METIS, a given array
Here stand the choice by name and the shared edge counts B_kz.
"""

import numpy as np
from numpy.typing import NDArray

from gossamer.assignment.growth import balanced, breadth_first
from gossamer.assignment.simple import given, metis, nearest, ring_of_stations, uniform
from gossamer.assignment.streaming import streaming
from gossamer.data import DataGraph
from gossamer.errors import GossamerError

__all__ = [
    "ASSIGNMENTS",
    "assign",
    "balanced",
    "breadth_first",
    "given",
    "metis",
    "nearest",
    "ring_of_stations",
    "shared_edges",
    "streaming",
    "uniform",
]

ASSIGNMENTS = ("bfs", "balanced", "uniform", "streaming", "metis", "nearest")


def assign(graph: DataGraph, how: str, num_agents: int, seed: int) -> NDArray[np.int64]:
    """a(i) by the name of the method."""
    if not 1 <= num_agents <= graph.num_vertices:
        raise GossamerError(f"expected 1 to {graph.num_vertices} agents, one vertex each at the most, got {num_agents}")
    match how:
        case "bfs":
            return breadth_first(graph.adjacency, num_agents, seed)
        case "balanced":
            return balanced(graph.adjacency, num_agents, seed)
        case "uniform":
            return uniform(graph.num_vertices, num_agents, seed)
        case "streaming":
            return streaming(graph.adjacency, num_agents, seed)
        case "metis":
            return metis(graph.adjacency, num_agents, seed)
        case "nearest":
            if graph.positions is None:
                raise GossamerError(f"--assignment nearest needs vertex positions, and {graph.name} has none")
            return nearest(graph.positions, ring_of_stations(graph.positions, num_agents))
    raise GossamerError(f"expected an assignment among {', '.join(ASSIGNMENTS)}, got {how!r}")


def shared_edges(graph: DataGraph, assignment: NDArray[np.int64], num_agents: int) -> NDArray[np.int64]:
    """B [m, m]: B_kz = number of data edges between agents k and z (Sec. III-B), 0 on the diagonal."""
    i, j = graph.edges.T
    pair = assignment[i] * num_agents + assignment[j]
    counts = np.bincount(pair, minlength=num_agents**2).reshape(num_agents, num_agents)
    counts = counts + counts.T
    np.fill_diagonal(counts, 0)
    return np.asarray(counts)
