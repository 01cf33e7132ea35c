"""Restriction of a data graph to fewer links than it needs (Sec. III-A, footnote 2, and Sec. V-C)."""

import math

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from gossamer.errors import GossamerError
from gossamer.topology.families import Links, count_components


def carried_edges(edges: NDArray[np.int64], assignment: NDArray[np.int64], links: Links) -> NDArray[np.bool_]:
    """Mask [edges] of the data edges inside an agent or across a link; the others are relayed or dropped."""
    i, j = edges.T
    carries = links | np.eye(len(links), dtype=bool)
    return np.asarray(carries.reshape(-1)[assignment[i] * len(links) + assignment[j]])


def drop_links(links: Links, fraction: float, seed: int = 0) -> Links:
    """Keep a random fraction of the links, at least a spanning forest, so that components stay connected.

    Links are ordered at random; the minimum spanning forest by this order comes first, then the others in order.
    """
    if not 0.0 <= fraction <= 1.0:
        raise GossamerError(f"the share of links to keep must be between 0 and 1, got {fraction:g}")
    m = len(links)
    k, z = np.nonzero(np.triu(links, 1))
    order = np.random.default_rng(seed).permutation(len(k)) + 1.0
    forest = sparse.csgraph.minimum_spanning_tree(sparse.csr_array((order, (k, z)), shape=(m, m))).toarray()[k, z] > 0
    number = max(math.floor(fraction * len(k) + 0.5), m - count_components(links))
    chosen = np.argsort(np.where(forest, 0.0, order), kind="stable")[:number]
    fewer = np.zeros_like(links)
    fewer[k[chosen], z[chosen]] = True
    return fewer | fewer.T
