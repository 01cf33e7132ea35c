"""Restriction of a data graph to fewer links than it needs (Sec. III-A, footnote 2, and Sec. V-C)."""

import math

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from gossamer.errors import GossamerError
from gossamer.topology.families import Links, components


def carried_edges(edges: NDArray[np.int64], assignment: NDArray[np.int64], links: Links) -> NDArray[np.bool_]:
    """Marks the data edges [edges] that stay inside an agent or cross a link; the others must be removed."""
    i, j = edges.T
    carries = links | np.eye(len(links), dtype=bool)
    return np.asarray(carries.reshape(-1)[assignment[i] * len(links) + assignment[j]])


def drop_links(links: Links, kept: float, seed: int = 0) -> Links:
    """Keep a random share of the links, and of these enough that what was connected stays connected.

    Links in a random order: first those of the spanning forest that this order gives, then as many more as asked.
    """
    if not 0.0 <= kept <= 1.0:
        raise GossamerError(f"the share of links to keep must be between 0 and 1, got {kept:g}")
    m = len(links)
    k, z = np.nonzero(np.triu(links, 1))
    order = np.random.default_rng(seed).permutation(len(k)) + 1.0
    forest = sparse.csgraph.minimum_spanning_tree(sparse.csr_array((order, (k, z)), shape=(m, m))).toarray()[k, z] > 0
    number = max(math.floor(kept * len(k) + 0.5), m - components(links))
    chosen = np.argsort(np.where(forest, 0.0, order), kind="stable")[:number]
    fewer = np.zeros_like(links)
    fewer[k[chosen], z[chosen]] = True
    return fewer | fewer.T
