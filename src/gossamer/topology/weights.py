"""Combination matrices C [m, m] on a given agent graph: symmetric and doubly stochastic, (A1).

Metropolis-Hastings and maximum-degree weights as in Xiao, Boyd and Kim 2007, Distributed average consensus with
least-mean-square deviation.
"""

import numpy as np
from numpy.typing import NDArray

from gossamer.topology.families import Links


def metropolis_weights(links: Links) -> NDArray[np.float64]:
    """Metropolis-Hastings: C_kz = 1 / (1 + max(d_k, d_z)) on a link, the rest of the row on the diagonal."""
    degree = links.sum(1)
    return complete_diagonal(links / (1.0 + np.maximum(degree[:, None], degree[None, :])))


def max_degree_weights(links: Links) -> NDArray[np.float64]:
    """Maximum degree: the same weight on every link, C = I - L / (1 + max_k d_k), L the Laplacian."""
    return complete_diagonal(links / (1.0 + links.sum(1).max(initial=0)))


def complete_diagonal(off_diagonal: NDArray[np.float64]) -> NDArray[np.float64]:
    """Set the diagonal so that row sums are 1."""
    return np.asarray(off_diagonal + np.diag(1.0 - off_diagonal.sum(1)))
