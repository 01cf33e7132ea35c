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
    """Slabs with similar numbers of rows, padded to the largest."""

    slabs: Tensor  # int64 [slabs here]
    inputs: Tensor  # int64 [slabs here * rows each]: the input row; the padding names the zero row after the last
    outputs: Tensor  # int64, as inputs: the row of the product


@dataclass(frozen=True)
class DenseProduct:
    """Plan of y[r] = x[input_row[r]] @ W[slab[r]] for dense x."""

    batches: tuple[Batch, ...]
    collect: Tensor  # int64 [rows]: where each row of y lies in the batches' results put one after the other
    spread: Pattern  # [input rows, batch rows]: which batch rows each input row went to
    ones: Tensor

    def __call__(self, x: Tensor, weight: Tensor) -> Tensor:
        """x [inputs(, batch), in], weight [slabs, in, out] -> [rows(, batch), out]."""
        out: Tensor = _DenseProduct.apply(x, weight, self)  # type: ignore[no-untyped-call]
        return out


def plan_dense(input_row: NDArray[np.int64], slab: NDArray[np.int64], num_inputs: int) -> DenseProduct:
    """Sort the slabs that occur into batches by size, at most twice the rows that are there."""
    order = np.argsort(slab, kind="stable")
    used, starts, counts = np.unique(slab[order], return_index=True, return_counts=True)
    batches, flat_inputs = [], []
    collect = np.empty(len(slab), dtype=np.int64)
    base = 0
    size_class = np.ceil(np.log2(counts)).astype(int)
    for c in np.unique(size_class):
        members = np.flatnonzero(size_class == c)
        width = counts[members].max()
        within = np.arange(width)
        there = within[None, :] < counts[members][:, None]
        rows = order[np.where(there, starts[members][:, None] + within[None, :], 0)]
        inputs = np.where(there, input_row[rows], num_inputs).reshape(-1)
        outputs = np.where(there, rows, len(slab)).reshape(-1)
        collect[outputs[outputs < len(slab)]] = base + np.flatnonzero(outputs < len(slab))
        base += len(outputs)
        flat_inputs.append(inputs)
        batches.append(Batch(torch.from_numpy(used[members]), torch.from_numpy(inputs), torch.from_numpy(outputs)))
    all_inputs = np.concatenate(flat_inputs) if flat_inputs else np.empty(0, dtype=np.int64)
    there = np.flatnonzero(all_inputs < num_inputs)
    spread = sparse.csr_array((np.ones(len(there)), (all_inputs[there], there)), shape=(num_inputs, base))
    return DenseProduct(tuple(batches), torch.from_numpy(collect), make_pattern(spread),
                        torch.ones(len(there)))


class _DenseProduct(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, plan: DenseProduct) -> Tensor:
        padded = torch.cat([x, x.new_zeros(1, *x.shape[1:])])
        parts = []
        for batch in plan.batches:
            rows = _rows_by_slab(padded, batch.inputs, len(batch.slabs))
            parts.append(torch.bmm(rows, weight[batch.slabs]).view(len(batch.inputs), *x.shape[1:-1], -1))
        ctx.save_for_backward(padded, weight)
        ctx.plan = plan
        if not parts:
            return x.new_zeros(0, *x.shape[1:-1], weight.shape[2])
        return torch.cat(parts).index_select(0, plan.collect)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor, None]:
        (g,) = gradients
        padded, weight = ctx.saved_tensors
        plan: DenseProduct = ctx.plan
        g_padded = torch.cat([g, g.new_zeros(1, *g.shape[1:])])
        g_weight = torch.zeros_like(weight)
        parts = []
        for batch in plan.batches:
            g_rows = _rows_by_slab(g_padded, batch.outputs, len(batch.slabs))
            rows = _rows_by_slab(padded, batch.inputs, len(batch.slabs))
            g_weight[batch.slabs] = torch.bmm(rows.transpose(1, 2), g_rows)
            if ctx.needs_input_grad[0]:
                g_x = torch.bmm(g_rows, weight[batch.slabs].transpose(1, 2))
                parts.append(g_x.view(len(batch.inputs), *padded.shape[1:]))
        if not ctx.needs_input_grad[0]:
            return None, g_weight, None
        if not parts:
            return padded.new_zeros(len(padded) - 1, *padded.shape[1:]), g_weight, None
        return plan.spread.times(plan.ones.to(g.dtype), torch.cat(parts)), g_weight, None


def _rows_by_slab(rows: Tensor, index: Tensor, num_slabs: int) -> Tensor:
    """Rows [*, (batch,) width] picked by slab: [slabs, rows each (* batch), width]."""
    return rows.index_select(0, index).reshape(num_slabs, -1, rows.shape[-1])


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


def plan_sparse(features: Any, input_row: NDArray[np.int64], slab: NDArray[np.int64], num_slabs: int,
                dtype: torch.dtype) -> SparseProduct:
    """Lay the rows of CSR `features` [inputs, d] out over the slabs' columns."""
    picked = sparse.csr_array(features[input_row])
    rows, d = picked.shape
    entry_row = np.repeat(np.arange(rows), np.diff(picked.indptr))
    columns = picked.indices.astype(np.int64) + slab[entry_row] * d
    laid_out = sparse.csr_array((np.arange(picked.nnz), columns, picked.indptr), shape=(rows, num_slabs * d))
    transposed = sparse.csr_array(laid_out.T)
    return SparseProduct(make_pattern(laid_out), torch.from_numpy(picked.data).to(dtype), make_pattern(transposed),
                         torch.from_numpy(transposed.data.astype(np.int64)), entry_row,
                         picked.indices.astype(np.int64))


class _SparseProduct(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor, weight: Tensor, plan: SparseProduct) -> Tensor:
        ctx.save_for_backward(values)
        ctx.plan, ctx.shape = plan, weight.shape
        return plan.pattern.times(values, weight.reshape(-1, weight.shape[-1]))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[None, Tensor, None]:
        (g,) = gradients
        (values,) = ctx.saved_tensors
        plan: SparseProduct = ctx.plan
        g_weight = plan.transposed_pattern.times(values.index_select(0, plan.to_transposed), g)
        return None, g_weight.view(ctx.shape), None
