"""Shift operators D [n, n] of a data graph (Sec. II), joined by name in one table.

D_ij is a function of A_ij and the degrees of i and j alone. So an agent that knows its vertices' edges needs no more
than the degrees of their neighbours.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.linalg import eigsh

from gossamer.errors import GossamerError

Degrees = NDArray[np.float64]


def normalized_adjacency(adjacency: Any, degree: Degrees) -> Any:
    """D = S^(-1/2) (A + I) S^(-1/2), S the row sums of A + I.

    Kipf and Welling (2017), "Semi-supervised classification with graph convolutional networks".
    """
    looped = _add_loops(adjacency)
    scale = (degree + 1.0) ** -0.5
    looped.data *= np.repeat(scale, np.diff(looped.indptr))
    looped.data *= scale[looped.indices]
    return looped


def random_walk(adjacency: Any, degree: Degrees) -> Any:
    """D = S^(-1) (A + I): the mean over a vertex and its neighbours. Not symmetric."""
    looped = _add_loops(adjacency)
    looped.data *= np.repeat(1.0 / (degree + 1.0), np.diff(looped.indptr))
    return looped


def _add_loops(adjacency: Any) -> Any:
    """A + I, to be scaled in place: a product with a diagonal matrix takes ten times as long."""
    return sparse.csr_array(adjacency + sparse.eye_array(adjacency.shape[0]))


def scaled_laplacian(adjacency: Any, degree: Degrees, largest: float | None = 2.0) -> Any:
    """D = 2 L / largest - I with L = I - S^(-1/2) A S^(-1/2): spectrum in [-1, 1], as Chebyshev polynomials want.

    2 bounds every eigenvalue of L, so that agents need no common computation; None computes the largest.
    """
    n = adjacency.shape[0]
    scale = sparse.diags_array(np.where(degree > 0, np.maximum(degree, 1e-300) ** -0.5, 0.0))
    normalized = sparse.eye_array(n) - scale @ adjacency @ scale
    if largest is None:
        largest = float(eigsh(normalized, k=1, which="LA", return_eigenvectors=False)[0])
    return sparse.csr_array(2.0 / largest * normalized - sparse.eye_array(n))


def laplacian(adjacency: Any, degree: Degrees) -> Any:
    """D = S - A."""
    return sparse.csr_array(sparse.diags_array(degree) - adjacency)


def identity_shift(adjacency: Any, degree: Degrees) -> Any:
    """D = I."""
    return sparse.csr_array(sparse.eye_array(adjacency.shape[0]))


def neighbour_mean(adjacency: Any, degree: Degrees) -> Any:
    """D = S^(-1) [A_ij != 0]: the mean over a vertex's neighbours, without itself. Not symmetric."""
    mean = sparse.csr_array(adjacency, copy=True)
    mean.data = mean.data / np.repeat(np.maximum(degree, 1.0), np.diff(mean.indptr))
    return mean


def neighbour_sum(adjacency: Any, degree: Degrees) -> Any:
    """D = [A_ij != 0]: the sum over a vertex's neighbours; A has no weights here."""
    return sparse.csr_array(adjacency)


SHIFTS: dict[str, Callable[[Any, Degrees], Any]] = {
    "normalized": normalized_adjacency,
    "random-walk": random_walk,
    "laplacian": laplacian,
    "scaled-laplacian": scaled_laplacian,
    "identity": identity_shift,
    "mean": neighbour_mean,
    "sum": neighbour_sum,
}
UNWEIGHTED = ("mean", "sum")  # take every edge alike, whatever its weight


def make_shift(adjacency: Any, kind: str, degree: Degrees | None = None) -> Any:
    """The shift operator of a name in SHIFTS, CSR [n, n], from a symmetric adjacency A without self-loops.

    `degree` are those of `sum_degrees`, if A lacks edges that count in them.
    """
    if kind not in SHIFTS:
        raise GossamerError(f"expected a shift among {', '.join(SHIFTS)}, got {kind!r}")
    if kind in UNWEIGHTED:
        adjacency = _drop_weights(adjacency)
    return SHIFTS[kind](adjacency, adjacency.sum(1) if degree is None else degree)


def sum_degrees(adjacency: Any, kind: str) -> Degrees:
    """Degrees that a shift operator takes: sums of the edges' weights, or their numbers."""
    degree: Degrees = (_drop_weights(adjacency) if kind in UNWEIGHTED else adjacency).sum(1)
    return degree


def _drop_weights(adjacency: Any) -> Any:
    return sparse.csr_array((adjacency != 0).astype(np.float64))
