"""Moments of columns: count, mean, sum of squared deviations, and numbers of nonzero entries, merged over parts.

Parts (blocks of rows, or agents) are merged pairwise in float64 (Chan, Golub and LeVeque 1983, "Algorithms for
computing the sample variance: analysis and recommendations").
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from gossamer.array_types import Floats

MEAN_ERROR = 100 * float(np.finfo(np.float64).eps)  # relative error of a mean, at most
BLOCK_NUMBERS = 1 << 20  # of a dense array that are converted to float64 at once


@dataclass(frozen=True)
class Moments:
    """Moments of the columns of a table with `count` rows."""

    count: float
    mean: Floats  # [columns]
    spread: Floats  # sum of squared deviations from the mean [columns]
    nonzeros: Floats  # number of entries other than 0 [columns]

    @property
    def squares(self) -> Floats:
        """Sum of the squared entries [columns]."""
        return self.spread + self.count * self.mean**2

    @property
    def constant(self) -> NDArray[np.bool_]:
        """Columns whose entries are all the same up to rounding of their mean [columns]."""
        return np.asarray(np.sqrt(self._variance) <= MEAN_ERROR * np.abs(self.mean))

    @property
    def deviation(self) -> Floats:
        """Standard deviation [columns]; 1 for a constant column."""
        return np.where(self.constant, 1.0, np.sqrt(self._variance))

    @property
    def _variance(self) -> Floats:
        return self.spread / max(self.count, 1.0)

    def merge(self, other: "Moments") -> "Moments":
        """Moments of the rows of both."""
        count = self.count + other.count
        if count == 0:
            return self
        between = other.mean - self.mean
        return Moments(
            count,
            self.mean + between * (other.count / count),
            self.spread + other.spread + between**2 * (self.count * other.count / count),
            self.nonzeros + other.nonzeros,
        )

    def pack(self) -> Floats:
        """One vector, for a message."""
        return np.concatenate([[self.count], self.mean, self.spread, self.nonzeros])


def unpack_moments(vector: Floats) -> Moments:
    """Moments of a vector that `Moments.pack` made."""
    mean, spread, nonzeros = vector[1:].reshape(3, -1)
    return Moments(float(vector[0]), mean, spread, nonzeros)


def measure_moments(table: Any) -> Moments:
    """Moments of a CSR matrix or a dense array [..., columns], whose leading axes are rows."""
    if sparse.issparse(table):
        return _measure_sparse(table)
    return reduce(Moments.merge, map(_measure_dense, _split(table)))


def _measure_sparse(table: Any) -> Moments:
    n, columns = table.shape
    values = table.data.astype(np.float64, copy=False)
    count = max(n, 1)
    mean = np.bincount(table.indices, values, minlength=columns) / count
    stored = np.bincount(table.indices, minlength=columns)
    spread = np.bincount(table.indices, (values - mean[table.indices]) ** 2, minlength=columns).astype(np.float64)
    spread += (n - stored) * mean**2
    nonzeros = np.bincount(table.indices[values != 0], minlength=columns).astype(np.float64)
    return Moments(float(n), mean, spread, nonzeros)


def _measure_dense(rows: Floats) -> Moments:
    if not len(rows):
        zeros = np.zeros(rows.shape[1])
        return Moments(0.0, zeros, zeros, zeros)
    mean = rows.mean(0)
    return Moments(float(len(rows)), mean, ((rows - mean) ** 2).sum(0), (rows != 0).sum(0).astype(np.float64))


def _split(table: Any) -> Iterator[Floats]:
    """Blocks of rows [rows, columns] in float64; one empty block of an empty table."""
    columns = table.shape[-1]
    size = max(1, BLOCK_NUMBERS * len(table) // max(table.size, 1))
    for first in range(0, max(len(table), 1), size):
        yield table[first : first + size].reshape(-1, columns).astype(np.float64)
