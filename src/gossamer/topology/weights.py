"""Combination matrices C [m, m] on a given agent graph: symmetric and doubly stochastic, (A1)."""

import numpy as np
from numpy.typing import NDArray

from gossamer.topology.families import Links


def metropolis(links: Links) -> NDArray[np.float64]:
    """Metropolis-Hastings: C_kz = 1 / (1 + max(d_k, d_z)) on a link, the rest of the row on the diagonal."""
    degree = links.sum(1)
    return with_diagonal(links / (1.0 + np.maximum(degree[:, None], degree[None, :])))


def uniform(links: Links) -> NDArray[np.float64]:
    """The same weight on every link: C = I - L / (1 + max_k d_k)."""
    return with_diagonal(links / (1.0 + links.sum(1).max(initial=0)))


def with_diagonal(off_diagonal: NDArray[np.float64]) -> NDArray[np.float64]:
    """Row sums of 1 by the diagonal."""
    return np.asarray(off_diagonal + np.diag(1.0 - off_diagonal.sum(1)))
