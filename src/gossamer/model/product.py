"""The local half of a layer, x~_{p,i} = W_{p,a(i)}^T x_i (Sec. III-E): every vertex with its own agent's weights.

The weights of all hosted agents and powers are one stack of slabs [slabs, in, out]; each row of the product names
an input row and a slab. Dense inputs are multiplied in a few batches of slabs with similar numbers of rows, so
that the cost grows with rows and weights and not with a Python loop over agents. Sparse inputs become one sparse
matrix whose columns are (slab, feature).
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor

from gossamer.model.sparse import Pattern, make_pattern


@dataclass(frozen=True)
class Batch:
    """Slabs with similar numbers of rows, padded to the largest; what the padding computes is never read."""

    slabs: Tensor  # int64 [slabs here]
    inputs: Tensor  # int64 [slabs here * rows each]: the input row
    outputs: Tensor  # int64, as inputs: the row of the product
    padding: Tensor  # int64: which of these are padding
    place: slice  # where they lie when all batches stand one after the other


@dataclass(frozen=True)
class DenseProduct:
    """Plan of y[r] = x[input_row[r]] @ W[slab[r]] for dense x."""

    batches: tuple[Batch, ...]
    size: int  # rows of all batches, with padding
    collect: Tensor  # int64 [rows]: where each row of y lies in the batches
    spread: Pattern  # [input rows, batch rows]: which batch rows each input row went to
    ones: Tensor

    def __call__(self, x: Tensor, weight: Tensor) -> Tensor:
        """x [inputs(, batch), in], weight [slabs, in, out] -> [rows(, batch), out]."""
        out: Tensor = _DenseProduct.apply(x, weight, self)  # type: ignore[no-untyped-call]
        return out


def plan_dense(
    input_row: NDArray[np.int64], slab: NDArray[np.int64], num_inputs: int, dtype: torch.dtype, times: int = 1
) -> DenseProduct:
    """Sort the slabs that occur into batches by size: few batches, few padded rows, each of `times` vectors."""
    order = np.argsort(slab, kind="stable")
    used, starts, counts = np.unique(slab[order], return_index=True, return_counts=True)
    batches: list[Batch] = []
    collect = np.empty(len(slab), dtype=np.int64)
    size = 0
    for members in _similar(counts, times):
        within = np.arange(counts[members].max())
        there = (within[None, :] < counts[members][:, None]).reshape(-1)
        rows = order[(starts[members][:, None] + within[None, :]).reshape(-1) * there]
        collect[rows[there]] = size + np.flatnonzero(there)
        batches.append(
            Batch(
                torch.from_numpy(used[members]),
                torch.from_numpy(input_row[rows]),
                torch.from_numpy(rows),
                torch.from_numpy(np.flatnonzero(~there)),
                slice(size, size + len(rows)),
            )
        )
        size += len(rows)
    spread = sparse.csr_array((np.ones(len(slab)), (input_row, collect)), shape=(num_inputs, size))
    return DenseProduct(
        tuple(batches), size, torch.from_numpy(collect), make_pattern(spread), torch.ones(len(slab), dtype=dtype)
    )


def _similar(counts: NDArray[np.int64], times: int = 1) -> list[NDArray[np.int64]]:
    """Groups of similar counts: padding to a group's largest at most doubles the rows, or adds 2048 vectors in all."""
    descending = np.argsort(-counts, kind="stable")
    groups: list[list[int]] = []
    for c in descending.tolist():
        if groups and counts[groups[-1][0]] - counts[c] <= max(counts[c], 2048 // (len(counts) * times)):
            groups[-1].append(c)
        else:
            groups.append([c])
    return [np.sort(group) for group in groups]


class _DenseProduct(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, plan: DenseProduct) -> Tensor:
        result = x.new_empty(plan.size, *x.shape[1:-1], weight.shape[2])
        for batch in plan.batches:
            slabs = len(batch.slabs)
            torch.bmm(
                _by_slab(x.index_select(0, batch.inputs), slabs),
                weight.index_select(0, batch.slabs),
                out=_by_slab(result[batch.place], slabs),
            )
        ctx.save_for_backward(x, weight)
        ctx.plan = plan
        return result.index_select(0, plan.collect)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor, None]:
        (g,) = gradients
        x, weight = ctx.saved_tensors
        plan: DenseProduct = ctx.plan
        g_weight = torch.zeros_like(weight)
        g_rows = x.new_empty(plan.size, *x.shape[1:]) if ctx.needs_input_grad[0] else None
        for batch in plan.batches:
            slabs = len(batch.slabs)
            g_here = _by_slab(g.index_select(0, batch.outputs).index_fill_(0, batch.padding, 0.0), slabs)
            x_here = _by_slab(x.index_select(0, batch.inputs), slabs)
            g_weight.index_copy_(0, batch.slabs, torch.bmm(x_here.transpose(1, 2), g_here))
            if g_rows is not None:
                torch.bmm(
                    g_here,
                    weight.index_select(0, batch.slabs).transpose(1, 2),
                    out=_by_slab(g_rows[batch.place], slabs),
                )
        return None if g_rows is None else plan.spread.times(plan.ones, g_rows), g_weight, None


def _by_slab(rows: Tensor, num_slabs: int) -> Tensor:
    """Rows [slabs * each, (batch,) width] as [slabs, each (* batch), width]."""
    return rows.view(num_slabs, -1, rows.shape[-1])


@dataclass(frozen=True)
class SparseProduct:
    """Plan of y = X^ W for sparse features; X^ [rows, slabs * features] has x_i's entries in its slab's columns."""

    pattern: Pattern
    values: Tensor
    transposed_pattern: Pattern
    to_transposed: Tensor  # int64: the entry of X^ at each entry of X^T
    entry_row: NDArray[np.int64]  # row of the product and feature of each entry, for dropout
    entry_feature: NDArray[np.int64]

    def __call__(self, values: Tensor, weight: Tensor) -> Tensor:
        """values [entries] (after dropout), weight [slabs, in, out] -> [rows, out]."""
        out: Tensor = _SparseProduct.apply(values, weight, self)  # type: ignore[no-untyped-call]
        return out


def plan_sparse(
    features: Any, input_row: NDArray[np.int64], slab: NDArray[np.int64], num_slabs: int, dtype: torch.dtype
) -> SparseProduct:
    """Lay the rows of CSR `features` [inputs, d] out over the slabs' columns."""
    picked = sparse.csr_array(features[input_row])
    rows, d = picked.shape
    entry_row = np.repeat(np.arange(rows), np.diff(picked.indptr))
    columns = picked.indices.astype(np.int64) + slab[entry_row] * d
    laid_out = sparse.csr_array((np.arange(picked.nnz), columns, picked.indptr), shape=(rows, num_slabs * d))
    transposed = sparse.csr_array(laid_out.T)
    return SparseProduct(
        make_pattern(laid_out),
        torch.from_numpy(picked.data).to(dtype),
        make_pattern(transposed),
        torch.from_numpy(transposed.data.astype(np.int64)),
        entry_row,
        picked.indices.astype(np.int64),
    )


class _SparseProduct(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor, weight: Tensor, plan: SparseProduct) -> Tensor:
        ctx.save_for_backward(values)
        ctx.plan, ctx.shape = plan, weight.shape
        return plan.pattern.times(values, weight.detach().reshape(-1, weight.shape[-1]))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[None, Tensor, None]:
        (g,) = gradients
        (values,) = ctx.saved_tensors
        plan: SparseProduct = ctx.plan
        g_weight = plan.transposed_pattern.times(values.index_select(0, plan.to_transposed), g)
        return None, g_weight.view(ctx.shape), None
