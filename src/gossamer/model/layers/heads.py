"""Heads of attention: vertex signals [rows(, time), heads * C] as groups [rows, (time *) heads, C], and back."""

import torch
from torch import Tensor

from gossamer.model.layers.layer import Outputs


def group_heads(z: Tensor, heads: int) -> Tensor:
    """z [rows(, time), heads * C] as [rows, groups, C], a group being a head (at a time step)."""
    times = 1 if z.ndim == 2 else z.shape[1]
    return z.reshape(len(z), times * heads, z.shape[-1] // heads)


def join_heads(out: Tensor, like: Tensor, heads: int, concat: bool) -> Tensor:
    """[outputs, groups, C] as [outputs(, time), heads * C], or without `concat` the mean over heads [..., C]."""
    lead = [len(out)] if like.ndim == 2 else [len(out), like.shape[1]]
    by_head = out.reshape(*lead, heads, out.shape[-1])
    return by_head.flatten(-2) if concat else by_head.mean(-2)


def mask_edges(at: Outputs, z: Tensor, heads: int) -> Tensor | None:
    """Dropout of attention as factors [groups, edges]; None for none. z [rows(, time), ...] has the time axis."""
    if at.drop_edges is None:
        return None
    edges = at.require_edges()
    lead = [len(edges.target)] if z.ndim == 2 else [len(edges.target), z.shape[1]]
    return at.drop_edges(torch.ones(*lead, heads, dtype=z.dtype)).flatten(1).T.contiguous()
