"""The local half of a first layer whose features have many entries: those that dropout zeroes are left out.

Selecting entries takes time for each row of weights. It pays where there are many entries for each, as in binary
features that are a third full; features with few, such as bags of words, take the whole product (product).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from gossamer.model.product import SparseProduct
from gossamer.model.sparse import Pattern

SPARSE_DENSITY = 0.7  # non-zero part of the features up to which the sparse product is faster
MANY_ENTRIES = 64  # for each row of weights: from there on selecting is faster
MAX_ENTRIES = 1 << 23  # of dense features that become sparse: near 24 bytes each


class Kept(NamedTuple):
    """Entries that dropout keeps, by their positions in ascending order, and the factor that scales them up."""

    entries: Tensor  # int64
    scale: float


Keep = Callable[[int], Kept]  # for each of the two orders of a SelectedProduct


@dataclass(frozen=True)
class SelectedProduct:
    """Plan of y = X^ W as SparseProduct's, in the order of X^ and in that of X^T.

    Where all entries of a feature are equal, as binary features' are, scaled or not, W is multiplied by them instead:
    X^ = B^ diag(s) with entries 1 in B^.
    """

    patterns: tuple[Pattern, Pattern]  # of X^ and of X^T
    values: Tensor  # [2, entries], or [2, 0] if there is an s
    uniform: Tensor | None  # [features, 1]: s
    width: int  # number of features

    def __call__(self, weight: Tensor, keep: Keep | None = None) -> Tensor:
        """weight [slabs, in, out] -> [rows, out]. `keep` draws dropout's entries, forwards and backwards."""
        out: Tensor = _SelectedProduct.apply(weight, self, keep)  # type: ignore[no-untyped-call]
        return out

    def rows(self, keep: Keep | None = None) -> Tensor:
        """The rows x_i themselves [rows, features]."""
        pattern, values, factor = self.select(0, keep)
        row = torch.arange(len(pattern.offsets) - 1).repeat_interleave(pattern.offsets.diff())
        feature = pattern.columns % self.width
        dense = self.values.new_zeros(len(pattern.offsets) - 1, self.width)
        if values is None:
            values = torch.ones(len(feature), dtype=dense.dtype)
        dense.index_put_((row, feature), values, accumulate=True)
        return dense if factor is None else dense.mul_(factor.T)

    def select(self, order: int, keep: Keep | None) -> tuple[Pattern, Tensor | None, Tensor | None]:
        """Pattern, values and s after dropout; there are either values or s."""
        pattern, values = self.patterns[order], self.values[order]
        if keep is None:
            return (pattern, values, None) if self.uniform is None else (pattern, None, self.uniform)
        entries, scale = keep(order)
        pattern = pattern.select(entries)
        if self.uniform is not None:
            return pattern, None, self.uniform * scale
        return pattern, values.index_select(0, entries).mul_(scale), None


class _SelectedProduct(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, weight: Tensor, plan: SelectedProduct, keep: Keep | None) -> Tensor:
        ctx.plan, ctx.keep, ctx.shape = plan, keep, weight.shape
        pattern, values, factor = plan.select(0, keep)
        table = weight.detach() if factor is None else weight.detach() * factor
        return pattern.times(values, table.reshape(-1, weight.shape[-1]))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        (g,) = gradients
        # Drawing dropout again in the other order is faster than permuting what was drawn for the forward pass.
        pattern, values, factor = ctx.plan.select(1, ctx.keep)
        g_weight = pattern.times(values, g).view(ctx.shape)
        return g_weight if factor is None else g_weight.mul_(factor), None, None


def has_many_entries(entries: int, num_slabs: int, width: int) -> bool:
    """Selecting entries is faster than multiplying all of them."""
    return entries >= max(1, MANY_ENTRIES * num_slabs * width)


def plan_selected(product: SparseProduct, width: int) -> SelectedProduct:
    """The same product, by selected entries."""
    found = torch.zeros(width, dtype=product.values.dtype)
    feature = torch.from_numpy(product.entry_feature)
    found[feature] = product.values
    uniform = torch.equal(found.index_select(0, feature), product.values)
    values = product.values[:0] if uniform else product.values
    entries = product.to_transposed[: len(values)]
    return SelectedProduct(
        (product.pattern, product.transposed_pattern),
        torch.stack([values, values.index_select(0, entries)]),
        found[:, None] if uniform else None,
        width,
    )


def convert_features(features: Any, num_slabs: int) -> Any:
    """Features [n, d] in the form, CSR or dense, whose product is faster; with a batch axis they stay dense.

    The form is a function of shape and density alone, so that it does not depend on the machine. Dense rows take less
    memory than a plan of entries wherever they are chosen; the other way round MAX_ENTRIES bounds what is added.
    """
    if sparse.issparse(features):
        return features.toarray() if features.nnz > SPARSE_DENSITY * math.prod(features.shape) else features
    if features.ndim != 2:
        return features
    entries = int(np.count_nonzero(features))
    if entries > min(SPARSE_DENSITY * features.size, MAX_ENTRIES):
        return features
    return sparse.csr_array(features) if has_many_entries(entries, num_slabs, features.shape[1]) else features
