"""Sums, maxima and attention over the edges of a host's output rows, differentiable, in blocks of edges.

Layers that see each offer by itself (Edgewise) would gather a row for every edge: edges x heads x width numbers, for
the forward pass and again for the backward one. Here a number for each edge and head is all that is stored; rows are
read where they lie, by sparse products, or gathered for a block of edges that fits into the cache.

A vertex signal z [rows(, time), heads * width] is taken as [rows, groups, width], a group being a head (at a time
step). Numbers by edge are [groups, edges].
"""

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gossamer.model.layers.layer import Edges

CACHED_NUMBERS = 1 << 18  # numbers of gathered rows at once: a megabyte


def softmax_sum(scores: Tensor, z: Tensor, edges: Edges, mask: Tensor | None = None) -> Tensor:
    """sum_j alpha_ij z_j [outputs, groups, width] with alpha_ij = exp(s_ij) / sum_l exp(s_il) over i's edges.

    scores [groups, edges]; z [rows, groups, width]; `mask` [groups, edges] multiplies alpha after the softmax.
    """
    out: Tensor = _SoftmaxSum.apply(scores, z, edges, mask)  # type: ignore[no-untyped-call]
    return out


def additive_scores(seen: Tensor, own: Tensor, edges: Edges, slope: float) -> Tensor:
    """LeakyReLU(seen_v + own_i) [groups, edges] for edge (i, j), of which v is the view.

    seen [groups, views], own [groups, outputs].
    """
    out: Tensor = _AdditiveScores.apply(seen, own, edges, slope)  # type: ignore[no-untyped-call]
    return out


def view_products(z: Tensor, vector: Tensor, edges: Edges) -> Tensor:
    """<vector_k, z_j> [groups, views] of every offer j with each agent k that receives it.

    z [rows, groups, width], vector [agents, groups, width].
    """
    out: Tensor = _ViewProducts.apply(z, vector, edges)  # type: ignore[no-untyped-call]
    return out


def joint_scores(z: Tensor, own: Tensor, vector: Tensor, edges: Edges, slope: float) -> Tensor:
    """vector_{a(i)}^T LeakyReLU(own_i + z_j) [groups, edges].

    z [rows, groups, width], own [outputs, groups, width], vector [agents, groups, width].
    """
    out: Tensor = _JointScores.apply(z, own, vector, edges, slope)  # type: ignore[no-untyped-call]
    return out


def gated_sum(gate: Tensor, own: Tensor, value: Tensor, edges: Edges) -> Tensor:
    """sum_j sigmoid(own_i + gate_j) * value_j [outputs, width]; gate and value [rows, width], own [outputs, width]."""
    out: Tensor = _GatedSum.apply(gate, own, value, edges)  # type: ignore[no-untyped-call]
    return out


def neighbour_max(z: Tensor, edges: Edges) -> Tensor:
    """max_j z_j [outputs, width], 0 where a vertex has no edge; ties share the gradient. z [rows, width]."""
    out: Tensor = _NeighbourMax.apply(z, edges)  # type: ignore[no-untyped-call]
    return out


def sum_by_target(numbers: Tensor, edges: Edges) -> Tensor:
    """Sum over each output row's edges of numbers [groups, edges]."""
    return _reduce(np.add, numbers, edges, 0.0)


def _reduce(operation: Any, numbers: Tensor, edges: Edges, empty: float) -> Tensor:
    """A reduction over each output row's edges, which are consecutive; `empty` where there are none."""
    starts = edges.starts.numpy()
    there = np.flatnonzero(np.diff(starts))
    result = np.full((len(numbers), len(starts) - 1), empty, dtype=numbers.numpy().dtype)
    if len(there):
        result[:, there] = operation.reduceat(numbers.numpy(), starts[there], axis=1)
    return torch.from_numpy(result)


def _softmax(scores: Tensor, edges: Edges) -> Tensor:
    """alpha [groups, edges], in the memory of the scores."""
    largest = _reduce(np.maximum, scores, edges, 0.0)
    alpha = scores.sub_(largest.index_select(1, edges.target)).exp_()
    return alpha.div_(sum_by_target(alpha, edges).index_select(1, edges.target))


def _sum_groups(weights: Tensor, z: Tensor, edges: Edges) -> Tensor:
    """sum_j weights_ij z_j, group by group as sparse products."""
    by_group = z.transpose(0, 1).contiguous()
    parts = [edges.by_target.times(w, part) for w, part in zip(weights, by_group, strict=True)]
    return torch.stack(parts, 1)


def _sum_groups_transposed(weights: Tensor, g: Tensor, edges: Edges) -> Tensor:
    """sum_i weights_ij g_i for every row j."""
    by_group = g.transpose(0, 1).contiguous()
    ordered = weights.index_select(1, edges.source_order)
    parts = [edges.by_source.times(w, part) for w, part in zip(ordered, by_group, strict=True)]
    return torch.stack(parts, 1)


def _dot_edges(g: Tensor, z: Tensor, edges: Edges) -> Tensor:
    """<g_i, z_j> [groups, edges] of every group, in blocks of edges."""
    groups, width = z.shape[1:]
    result = z.new_empty(groups, len(edges.target))
    for block in _blocks(edges, groups * width):
        product = g.index_select(0, edges.target[block]).mul_(z.index_select(0, edges.source[block]))
        result[:, block] = product.sum(-1).T
    return result


def _blocks(edges: Edges, numbers: int) -> Iterator[slice]:
    """Slices of the edges with so many numbers each."""
    size = max(1, CACHED_NUMBERS // max(1, numbers))
    return (slice(first, first + size) for first in range(0, len(edges.target), size))


def _view_blocks(edges: Edges, numbers: int) -> Iterator[tuple[int, slice]]:
    """Agents with slices of their views, so many numbers each."""
    size = max(1, CACHED_NUMBERS // max(1, numbers))
    for agent, (first, end) in enumerate(pairwise(edges.views.starts)):
        for start in range(first, end, size):
            yield agent, slice(start, min(start + size, end))


class _SoftmaxSum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, scores: Tensor, z: Tensor, edges: Edges, mask: Tensor | None) -> Tensor:
        alpha = _softmax(scores.detach().clone(), edges)
        used = alpha if mask is None else alpha * mask
        result = _sum_groups(used, z.detach(), edges)
        ctx.save_for_backward(alpha, z, result, mask)
        ctx.edges = edges
        return result

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None, None]:
        """Scores receive alpha_ij (m_ij <g_i, z_j> - <g_i, out_i>): sum_j alpha_ij m_ij <g_i, z_j> is <g_i, out_i>."""
        (g,) = gradients
        alpha, z, result, mask = ctx.saved_tensors
        edges: Edges = ctx.edges
        products = _dot_edges(g, z.detach(), edges)
        if mask is not None:
            products.mul_(mask)
        means = (g * result).sum(-1).T
        products.sub_(means.index_select(1, edges.target)).mul_(alpha)
        used = alpha if mask is None else alpha * mask
        return products, _sum_groups_transposed(used, g, edges), None, None


class _ViewProducts(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, z: Tensor, vector: Tensor, edges: Edges) -> Tensor:
        ctx.save_for_backward(z, vector)
        ctx.edges = edges
        result = z.new_empty(z.shape[1], len(edges.views.row))
        for agent, block in _view_blocks(edges, z[0].numel() if len(z) else 1):
            rows = z.index_select(0, edges.views.row[block])
            result[:, block] = (rows * vector[agent]).sum(-1).T
        return result

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None]:
        (g,) = gradients
        z, vector = ctx.saved_tensors
        edges: Edges = ctx.edges
        g_z, g_vector = torch.zeros_like(z), torch.zeros_like(vector)
        for agent, block in _view_blocks(edges, z[0].numel() if len(z) else 1):
            here, row = g[:, block].T[..., None], edges.views.row[block]
            g_vector[agent] += (z.index_select(0, row) * here).sum(0)
            g_z.index_add_(0, row, here * vector[agent])
        return g_z, g_vector, None


class _AdditiveScores(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, seen: Tensor, own: Tensor, edges: Edges, slope: float) -> Tensor:
        scores = seen.index_select(1, edges.views.of_edge).add_(own.index_select(1, edges.target))
        ctx.edges, ctx.slope, ctx.negative = edges, slope, scores <= 0
        return torch.nn.functional.leaky_relu_(scores, slope)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None, None]:
        (g,) = gradients
        edges: Edges = ctx.edges
        g = torch.where(ctx.negative, g * ctx.slope, g)
        seen = edges.views.edges.times(None, g.T.contiguous()).T
        return seen, sum_by_target(g, edges), None, None


class _JointScores(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, z: Tensor, own: Tensor, vector: Tensor, edges: Edges, slope: float) -> Tensor:
        ctx.save_for_backward(z, own, vector)
        ctx.edges, ctx.slope = edges, slope
        groups, width = z.shape[1:]
        result = z.new_empty(groups, len(edges.target))
        for block in _blocks(edges, groups * width):
            target = edges.target[block]
            joint = z.index_select(0, edges.source[block]).add_(own.index_select(0, target))
            torch.nn.functional.leaky_relu_(joint, slope)
            result[:, block] = joint.mul_(vector.index_select(0, edges.agent[target])).sum(-1).T
        return result

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, Tensor, None, None]:
        (g,) = gradients
        z, own, vector = ctx.saved_tensors
        edges: Edges = ctx.edges
        g_z, g_own, g_vector = torch.zeros_like(z), torch.zeros_like(own), torch.zeros_like(vector)
        for block in _blocks(edges, z[0].numel() if len(z) else 1):
            target, source = edges.target[block], edges.source[block]
            agent = edges.agent[target]
            joint = z.index_select(0, source).add_(own.index_select(0, target))
            g_here = g[:, block].T[..., None]
            slopes = torch.where(joint <= 0, joint.new_tensor(ctx.slope), joint.new_tensor(1.0))
            g_vector.index_add_(0, agent, (joint * slopes).mul_(g_here))
            g_joint = slopes.mul_(vector.index_select(0, agent)).mul_(g_here)
            g_z.index_add_(0, source, g_joint)
            g_own.index_add_(0, target, g_joint)
        return g_z, g_own, g_vector, None, None


class _GatedSum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, gate: Tensor, own: Tensor, value: Tensor, edges: Edges) -> Tensor:
        ctx.save_for_backward(gate, own, value)
        ctx.edges = edges
        result = torch.zeros_like(own)
        for block in _blocks(edges, own[0].numel() if len(own) else 1):
            target, source = edges.target[block], edges.source[block]
            opened = gate.index_select(0, source).add_(own.index_select(0, target)).sigmoid_()
            result.index_add_(0, target, opened.mul_(value.index_select(0, source)))
        return result

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        (g,) = gradients
        gate, own, value = ctx.saved_tensors
        edges: Edges = ctx.edges
        g_gate, g_own, g_value = torch.zeros_like(gate), torch.zeros_like(own), torch.zeros_like(value)
        for block in _blocks(edges, own[0].numel() if len(own) else 1):
            target, source = edges.target[block], edges.source[block]
            opened = gate.index_select(0, source).add_(own.index_select(0, target)).sigmoid_()
            g_here = g.index_select(0, target).mul_(opened)  # g sigmoid
            g_value.index_add_(0, source, g_here)
            g_here.mul_(value.index_select(0, source)).mul_(1 - opened)
            g_gate.index_add_(0, source, g_here)
            g_own.index_add_(0, target, g_here)
        return g_gate, g_own, g_value, None


class _NeighbourMax(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, z: Tensor, edges: Edges) -> Tensor:
        result = z.new_full((len(edges.agent), *z.shape[1:]), -torch.inf)
        for block in _blocks(edges, z[0].numel() if len(z) else 1):
            target = edges.target[block].view(-1, *[1] * (z.ndim - 1))
            rows = z.index_select(0, edges.source[block])
            result.scatter_reduce_(0, target.expand_as(rows), rows, "amax")
        result[edges.starts.diff() == 0] = 0.0
        ctx.save_for_backward(z, result)
        ctx.edges = edges
        return result

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        (g,) = gradients
        z, result = ctx.saved_tensors
        edges: Edges = ctx.edges
        ties = torch.zeros_like(result)
        numbers = z[0].numel() if len(z) else 1
        for block in _blocks(edges, numbers):
            target = edges.target[block]
            ties.index_add_(
                0, target, (z.index_select(0, edges.source[block]) == result.index_select(0, target)).to(z.dtype)
            )
        part = g / ties.clamp_(min=1)
        g_z = torch.zeros_like(z)
        for block in _blocks(edges, numbers):
            target, source = edges.target[block], edges.source[block]
            won = (z.index_select(0, source) == result.index_select(0, target)).to(z.dtype)
            g_z.index_add_(0, source, won.mul_(part.index_select(0, target)))
        return g_z, None
