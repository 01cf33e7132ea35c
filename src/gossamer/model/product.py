"""The local half of a layer, x~_{p,i} = W_{p,a(i)}^T x_i (Sec. III-E): every vertex with its own agent's weights.

The weights of all hosted agents and powers are one stack of slabs [slabs, in, out]; each row of the product names
an input row and a slab. Slabs with many consecutive rows are multiplied one by one, without a copy of the rows. The
others are multiplied in a few batches of slabs with similar numbers of rows, so that the cost grows with rows and
weights and not with a Python loop over agents. Sparse inputs become one sparse matrix with columns (slab, feature).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor

from gossamer.array_types import Ints
from gossamer.errors import GossamerError
from gossamer.model.sparse import Pattern, make_pattern

Take = Callable[[Tensor, slice | Tensor], Tensor]  # some rows of an input, a slice or by number
LONG_STRETCH = 1024  # vectors of a slab from which on it is multiplied without a copy


@dataclass(frozen=True)
class Stretch:
    """A slab with many rows, consecutive in the input as in the product."""

    slab: int
    inputs: slice
    outputs: slice


@dataclass(frozen=True)
class Batch:
    """Slabs with similar numbers of rows, padded to the largest; the results of the padding are never read."""

    slabs: Tensor  # int64 [slabs here]
    inputs: Tensor  # int64 [slabs here * rows each]: the input row
    outputs: Tensor  # int64, as inputs: the row of the product
    padding: Tensor  # int64: which of these are padding
    position: slice  # of these rows among those of all batches


@dataclass(frozen=True)
class DenseProduct:
    """Plan of y[r] = x[input_row[r]] @ W[slab[r]] for dense x."""

    stretches: tuple[Stretch, ...]
    batches: tuple[Batch, ...]
    size: int  # rows of all batches, with padding
    rows: Tensor  # int64: the rows of the product that the batches make
    collect: Tensor  # int64, as rows: position of each of them in the batches
    num_rows: int
    spread: Pattern  # [input rows, batch rows]: which batch rows each input row went to
    ones: Tensor

    def __call__(self, x: Tensor, weight: Tensor, take: Take | None = None) -> Tensor:
        """x [inputs(, batch), in], weight [slabs, in, out] -> [rows(, batch), out].

        `take` gives rows of x that are made when they are needed, forwards and backwards; then x has no gradient.
        """
        out: Tensor = _DenseProduct.apply(x, weight, self, take)  # type: ignore[no-untyped-call]
        return out


def plan_dense(input_row: Ints, slab: Ints, num_inputs: int, dtype: torch.dtype, times: int = 1) -> DenseProduct:
    """Sort the slabs that occur into stretches and batches by size: few batches, few padded rows, each of `times`
    vectors."""
    order = np.argsort(slab, kind="stable")
    counts = np.bincount(slab, minlength=1)
    used = np.flatnonzero(counts)
    starts, counts = np.cumsum(counts)[used] - counts[used], counts[used]
    long = _are_consecutive(order, starts, counts) & _are_consecutive(input_row[order], starts, counts)
    long &= counts * times >= LONG_STRETCH
    stretches = [
        Stretch(k, slice(first, first + count), slice(row, row + count))
        for k, first, row, count in zip(
            used[long].tolist(),
            input_row[order[starts[long]]].tolist(),
            order[starts[long]].tolist(),
            counts[long].tolist(),
            strict=True,
        )
    ]
    used, starts, counts = used[~long], starts[~long], counts[~long]
    batches: list[Batch] = []
    made: list[Ints] = []
    collect: list[Ints] = []
    size = 0
    for members in _group_by_size(counts, times):
        within = np.arange(counts[members].max())
        there = (within[None, :] < counts[members][:, None]).reshape(-1)
        rows = order[(starts[members][:, None] + within[None, :]).reshape(-1) * there]
        made.append(rows[there])
        collect.append(size + np.flatnonzero(there))
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
    none = np.empty(0, dtype=np.int64)
    of_rows, position = np.concatenate([none, *made]), np.concatenate([none, *collect])
    ascending = np.argsort(of_rows)
    of_rows, position = of_rows[ascending], position[ascending]
    spread = sparse.csr_array(
        (np.ones(len(position), dtype=np.int8), (input_row[of_rows], position)), shape=(num_inputs, size)
    )
    return DenseProduct(
        tuple(stretches),
        tuple(batches),
        size,
        torch.from_numpy(of_rows),
        torch.from_numpy(position),
        len(slab),
        make_pattern(spread),
        torch.ones(len(position), dtype=dtype),
    )


def _are_consecutive(rows: Ints, starts: Ints, counts: Ints) -> NDArray[np.bool_]:
    """Mask of the groups rows[start : start + count] that are consecutive numbers."""
    breaks = np.concatenate([[0], np.cumsum(np.diff(rows) != 1)])
    return np.asarray(breaks[starts + counts - 1] == breaks[starts])


def _group_by_size(counts: Ints, times: int = 1) -> list[Ints]:
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
    def forward(ctx: Any, x: Tensor, weight: Tensor, plan: DenseProduct, take: Take | None) -> Tensor:
        take = take or select_rows
        gathered = x.new_empty(plan.size, *x.shape[1:-1], weight.shape[2])
        for batch in plan.batches:
            slabs = len(batch.slabs)
            torch.bmm(
                _by_slab(take(x, batch.inputs), slabs),
                weight.index_select(0, batch.slabs),
                out=_by_slab(gathered[batch.position], slabs),
            )
        ctx.save_for_backward(x, weight)
        ctx.plan, ctx.take = plan, take
        gathered = gathered.index_select(0, plan.collect)
        if not plan.stretches:
            return gathered
        result = x.new_empty(plan.num_rows, *x.shape[1:-1], weight.shape[2])
        result.index_copy_(0, plan.rows, gathered)
        for stretch in plan.stretches:
            torch.mm(_flat(take(x, stretch.inputs)), weight[stretch.slab], out=_flat(result[stretch.outputs]))
        return result

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor, None, None]:
        (g,) = gradients
        x, weight = ctx.saved_tensors
        plan: DenseProduct = ctx.plan
        take: Take = ctx.take
        g_weight = torch.zeros_like(weight)
        g_rows = x.new_empty(plan.size, *x.shape[1:]) if ctx.needs_input_grad[0] else None
        for batch in plan.batches:
            slabs = len(batch.slabs)
            g_here = _by_slab(g.index_select(0, batch.outputs).index_fill_(0, batch.padding, 0.0), slabs)
            x_here = _by_slab(take(x, batch.inputs), slabs)
            g_weight.index_copy_(0, batch.slabs, torch.bmm(x_here.transpose(1, 2), g_here))
            if g_rows is not None:
                torch.bmm(
                    g_here,
                    weight.index_select(0, batch.slabs).transpose(1, 2),
                    out=_by_slab(g_rows[batch.position], slabs),
                )
        g_x = None if g_rows is None else plan.spread.times(plan.ones, g_rows)
        for stretch in plan.stretches:
            g_here = _flat(g[stretch.outputs])
            torch.mm(_flat(take(x, stretch.inputs)).T, g_here, out=g_weight[stretch.slab])
            if g_x is not None:
                _flat(g_x[stretch.inputs]).addmm_(g_here, weight[stretch.slab].T)
        return g_x, g_weight, None, None


def select_rows(x: Tensor, rows: slice | Tensor) -> Tensor:
    """Some rows as they are."""
    return x[rows] if isinstance(rows, slice) else x.index_select(0, rows)


def _flat(rows: Tensor) -> Tensor:
    """Rows [each, (batch,) width] as [each (* batch), width]."""
    return rows.reshape(-1, rows.shape[-1])


def _by_slab(rows: Tensor, num_slabs: int) -> Tensor:
    """Rows [slabs * each, (batch,) width] as [slabs, each (* batch), width]."""
    return rows.view(num_slabs, -1, rows.shape[-1])


@dataclass(frozen=True)
class SparseProduct:
    """Plan of y = X^ W for sparse features; X^ [rows, slabs * features] has x_i's entries in its slab's columns."""

    pattern: Pattern
    values: Tensor
    transposed_pattern: Pattern
    to_transposed: Tensor  # int32: the entry of X^ at each entry of X^T
    entry_row: NDArray[np.int32]  # row of the product and feature of each entry, for dropout
    entry_feature: NDArray[np.int32]
    num_features: int

    def __call__(self, values: Tensor, weight: Tensor) -> Tensor:
        """values [entries] (after dropout), weight [slabs, in, out] -> [rows, out]."""
        out: Tensor = _SparseProduct.apply(values, weight, self)  # type: ignore[no-untyped-call]
        return out

    def rows(self, values: Tensor) -> Tensor:
        """x_i itself, dense [rows, in]."""
        dense = values.new_zeros(self.pattern.offsets.numel() - 1, self.num_features)
        dense[torch.from_numpy(self.entry_row), torch.from_numpy(self.entry_feature)] = values
        return dense


def plan_sparse(features: Any, input_row: Ints, slab: Ints, num_slabs: int, dtype: torch.dtype) -> SparseProduct:
    """Lay the rows of CSR `features` [inputs, d] out over the slabs' columns."""
    picked = sparse.csr_array(features[input_row])
    rows, d = picked.shape
    if num_slabs * d > np.iinfo(np.int32).max:
        raise GossamerError(
            f"{num_slabs} matrices of weights of {d} features each on one host are more columns than sparse products "
            "take, 2^31; spread the agents over more processes, or give fewer features"
        )
    entry_row = np.repeat(np.arange(rows, dtype=np.int32), np.diff(picked.indptr))
    columns = (slab * d).astype(np.int32)[entry_row]
    columns += picked.indices
    number = np.arange(picked.nnz, dtype=np.int32)
    laid_out = sparse.csr_array((number, columns, picked.indptr), shape=(rows, num_slabs * d))
    transposed = sparse.csr_array(laid_out.T)
    return SparseProduct(
        make_pattern(laid_out),
        torch.from_numpy(picked.data).to(dtype),
        make_pattern(transposed),
        torch.from_numpy(transposed.data),
        entry_row,
        picked.indices.astype(np.int32, copy=False),
        d,
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
