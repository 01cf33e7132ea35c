"""Agent graphs with given links: boolean [m, m], symmetric, no self-links."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

Links = NDArray[np.bool_]


def complete(num_agents: int) -> Links:
    """Every agent talks to every other."""
    return ~np.eye(num_agents, dtype=bool)


def ring(num_agents: int) -> Links:
    """Agent k talks to k - 1 and k + 1, the last to the first."""
    links = line(num_agents)
    if num_agents > 2:
        links[0, -1] = links[-1, 0] = True
    return links


def line(num_agents: int) -> Links:
    """Agent k talks to k - 1 and k + 1."""
    k, z = np.indices((num_agents, num_agents))
    return np.asarray(abs(k - z) == 1)


def needed(shared_edges: ArrayLike) -> Links:
    """Agents talk where they share data edges, B_kz > 0: the sparsest graph of the set (28)."""
    links = np.asarray(shared_edges) > 0
    np.fill_diagonal(links, False)
    return links
