"""The local half of a first layer with sparse features: one sparse matrix with columns (slab, feature), as in product.

Features are multiplied as sparse or as dense rows, whichever is faster at their density.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor

from gossamer.array_types import Ints
from gossamer.model.sparse import Pattern, make_pattern

SPARSE_DENSITY = 0.7  # non-zero part of the features up to which the sparse product is faster (benchmarks/step.py)
MOST_ENTRIES = 1 << 23  # entries of dense features that become sparse: near 24 bytes each
MANY_ENTRIES = 64  # entries for each row of weights from which on multiplying the weights is faster


class Kept(NamedTuple):
    """Entries that dropout keeps, by their positions in ascending order, and the factor that scales them up."""

    entries: Tensor  # int64
    scale: float


Keep = Callable[[int], Kept]  # for each of the two orders of a SparseProduct


@dataclass(frozen=True)
class SparseProduct:
    """Plan of y = X^ W for sparse features; X^ [rows, slabs * features] has x_i's entries in its slab's columns.

    Entries that dropout zeroes are left out. Where all entries of a feature are equal, as binary features' are, scaled
    or not, and there are many, W is multiplied by them instead: X^ = B^ diag(s) with entries 1 in B^.
    """

    patterns: tuple[Pattern, Pattern]  # of X^ and of X^T
    values: Tensor  # [2, entries]: in the order of X^, and in that of X^T
    uniform: Tensor | None  # [features, 1]: s, if there is one
    width: int  # number of features

    def __call__(self, weight: Tensor, keep: Keep | None = None) -> Tensor:
        """weight [slabs, in, out] -> [rows, out]. `keep` draws dropout's entries, forwards and backwards."""
        out: Tensor = _SparseProduct.apply(weight, self, keep)  # type: ignore[no-untyped-call]
        return out

    def rows(self, keep: Keep | None = None) -> Tensor:
        """The rows x_i themselves [rows, features]."""
        pattern, values, factor = self.drop(0, keep)
        row = torch.arange(len(pattern.offsets) - 1).repeat_interleave(pattern.offsets.diff())
        feature = pattern.columns % self.width
        dense = self.values.new_zeros(len(pattern.offsets) - 1, self.width)
        if values is None:
            values = torch.ones(len(feature), dtype=dense.dtype)
        dense.index_put_((row, feature), values, accumulate=True)
        return dense if factor is None else dense.mul_(factor.T)

    def drop(self, order: int, keep: Keep | None) -> tuple[Pattern, Tensor | None, Tensor | None]:
        """Pattern, values and s after dropout; there are either values or s."""
        pattern, values = self.patterns[order], self.values[order]
        if keep is None:
            return (pattern, values, None) if self.uniform is None else (pattern, None, self.uniform)
        entries, scale = keep(order)
        pattern = pattern.select(entries)
        if self.uniform is not None:
            return pattern, None, self.uniform * scale
        return pattern, values.index_select(0, entries).mul_(scale), None


def convert_features(features: Any) -> Any:
    """Features [n, d] in the form, CSR or dense, whose product is faster; with a batch axis they stay dense.

    The form is a function of the density alone, so that it does not depend on the machine. Dense rows take less
    memory than a plan of entries wherever they are chosen; the other way round MOST_ENTRIES bounds what is added.
    """
    if sparse.issparse(features):
        return features.toarray() if features.nnz > SPARSE_DENSITY * math.prod(features.shape) else features
    if features.ndim == 2 and 0 < np.count_nonzero(features) <= min(SPARSE_DENSITY * features.size, MOST_ENTRIES):
        return sparse.csr_array(features)
    return features


@dataclass(frozen=True)
class EntryPositions:
    """Row of the product and feature of each entry [2, entries], in the orders of `SparseProduct.values`."""

    row: Ints
    feature: Ints


def plan_sparse(
    features: Any, input_row: Ints, slab: Ints, num_slabs: int, dtype: torch.dtype
) -> tuple[SparseProduct, EntryPositions]:
    """Lay the rows of CSR `features` [inputs, d] out over the slabs' columns."""
    picked = sparse.csr_array(features[input_row])
    rows, d = picked.shape
    entry_row = np.repeat(np.arange(rows), np.diff(picked.indptr))
    columns = picked.indices.astype(np.int64) + slab[entry_row] * d
    laid_out = sparse.csr_array((np.arange(picked.nnz), columns, picked.indptr), shape=(rows, num_slabs * d))
    transposed = sparse.csr_array(laid_out.T)
    order = transposed.data  # the entry of X^ at each entry of X^T
    values, feature = np.asarray(picked.data), picked.indices.astype(np.int64)
    product = SparseProduct(
        (make_pattern(laid_out), make_pattern(transposed)),
        torch.from_numpy(np.stack([values, values[order]])).to(dtype),
        _find_uniform(values, feature, d, dtype) if len(values) >= MANY_ENTRIES * num_slabs * d else None,
        d,
    )
    return product, EntryPositions(np.stack([entry_row, entry_row[order]]), np.stack([feature, feature[order]]))


def _find_uniform(values: NDArray[Any], feature: Ints, d: int, dtype: torch.dtype) -> Tensor | None:
    found = np.zeros(d, dtype=values.dtype)
    found[feature] = values
    return torch.from_numpy(found)[:, None].to(dtype) if np.array_equal(found[feature], values) else None


class _SparseProduct(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, weight: Tensor, plan: SparseProduct, keep: Keep | None) -> Tensor:
        ctx.plan, ctx.keep, ctx.shape = plan, keep, weight.shape
        pattern, values, factor = plan.drop(0, keep)
        table = weight.detach() if factor is None else weight.detach() * factor
        return pattern.times(values, table.reshape(-1, weight.shape[-1]))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        (g,) = gradients
        # Drawing dropout again in the other order is faster than permuting what was drawn for the forward pass.
        pattern, values, factor = ctx.plan.drop(1, ctx.keep)
        g_weight = pattern.times(values, g).view(ctx.shape)
        return g_weight if factor is None else g_weight.mul_(factor), None, None
