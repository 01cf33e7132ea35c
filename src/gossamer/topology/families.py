"""Families of agent graphs: boolean [m, m], symmetric, no self-links.

The exponential graph is that of Assran, Loizou, Ballas and Rabbat 2019, Stochastic gradient push for distributed deep
learning, in its static and here undirected form (Ying et al. 2021, Exponential graph is provably efficient for
decentralized deep training).
"""

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

Links = NDArray[np.bool_]
Matrix = NDArray[np.float64]


def complete(num_agents: int) -> Links:
    """Every agent talks to every other."""
    return ~np.eye(num_agents, dtype=bool)


def ring(num_agents: int) -> Links:
    """Agent k talks to k - 1 and k + 1, the last to the first."""
    return _circulant(num_agents, [1])


def line(num_agents: int) -> Links:
    """Agent k talks to k - 1 and k + 1."""
    k, z = np.indices((num_agents, num_agents))
    return np.asarray(abs(k - z) == 1)


def star(num_agents: int) -> Links:
    """Agent 0 talks to every other."""
    k, z = np.indices((num_agents, num_agents))
    return np.asarray((k == 0) ^ (z == 0))


def grid(num_agents: int) -> Links:
    """Agents in rows and columns talk along both; as square as the divisors of m allow (a line if m is prime)."""
    return _product(line, num_agents)


def torus(num_agents: int) -> Links:
    """Grid whose rows and columns are rings."""
    return _product(ring, num_agents)


def exponential(num_agents: int) -> Links:
    """Exponential graph: agent k talks to k +- 1, 2, 4, 8, ... (modulo m)."""
    return _circulant(num_agents, [2**j for j in range(max(1, math.ceil(math.log2(max(2, num_agents)))))])


def random_connected(num_agents: int, seed: int = 0) -> Links:
    """Random tree with random links added, each with the same probability: log2(m) links per agent on average."""
    random = np.random.default_rng(seed)
    m = num_agents
    links = np.zeros((m, m), dtype=bool)
    order = random.permutation(m)
    for place in range(1, m):
        links[order[place], order[random.integers(place)]] = True
    tree, wanted, possible = m - 1, m * math.log2(max(2, m)) / 2, m * (m - 1) / 2
    share = (wanted - tree) / (possible - tree) if possible > tree else 0.0
    links |= np.triu(random.random((m, m)) < share, 1)
    return links | links.T


def needed_links(shared_edges: ArrayLike) -> Links:
    """Agent graph of the pairs that share data edges, B_kz > 0: the sparsest of the set (28)."""
    links = np.asarray(shared_edges) > 0
    np.fill_diagonal(links, False)
    return links


def links_of(combination: Matrix) -> Links:
    """Agent graph of the nonzero off-diagonal entries of a C."""
    return np.asarray(combination != 0) & ~np.eye(len(combination), dtype=bool)


def count_components(links: NDArray[np.bool_]) -> int:
    """Count the connected components."""
    return int(sparse.csgraph.connected_components(sparse.csr_array(links), directed=False)[0])


def _circulant(m: int, strides: list[int]) -> Links:
    """Circulant graph: agents that are a stride apart, modulo m, talk."""
    k, z = np.indices((m, m))
    apart = (k - z) % m
    links = np.zeros((m, m), dtype=bool)
    for stride in strides:
        links |= (apart == stride % m) | (apart == -stride % m)
    np.fill_diagonal(links, False)
    return links


def _product(side: Callable[[int], Links], m: int) -> Links:
    """Cartesian product of two lines or rings."""
    rows = max(r for r in range(1, math.isqrt(m) + 1) if m % r == 0)
    columns = m // rows
    return np.asarray(
        np.kron(side(rows), np.eye(columns, dtype=bool)) | np.kron(np.eye(rows, dtype=bool), side(columns))
    )
