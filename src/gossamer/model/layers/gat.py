"""Graph attention (Velickovic et al. 2018, "Graph attention networks"): heads h of C numbers each.

    h_i = activation(|| or mean over h of  sum_j alpha^h_ij W^h_{a(j)}^T x_j + b_{a(i)})    j on i's edges, or i itself
    alpha^h_ij = softmax_j(LeakyReLU(s^h_{a(i)} . W^h_{a(j)}^T x_j  +  t^h_{a(i)} . W^h_{a(i)}^T x_i))

A vertex's own agent a(j) maps it by its own weights; the attention vectors s and t are the receiver's, a(i)'s. So one
exchange of heads * C numbers a vertex is enough, each way. Edge weights are not used, as in PyTorch Geometric's
GATConv.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from gossamer.model.edge_sums import additive_scores, softmax_sum, view_products
from gossamer.model.gather import Edgewise
from gossamer.model.layers.activations import ACTIVATIONS
from gossamer.model.layers.heads import group_heads, join_heads, mask_edges
from gossamer.model.layers.layer import Input, Outputs, Parameter, Weights
from gossamer.model.layers.names import Alias, linear


@dataclass(frozen=True)
class Gat:
    """Attention of `heads` heads, concatenated, or averaged without `concat`."""

    inputs: int
    outputs: int
    heads: int
    concat: bool
    negative_slope: float
    edge_dropout: float  # of attention
    activation: str
    bias: bool
    dropout: float

    gather = Edgewise(loops=True)

    @property
    def head_width(self) -> int:
        return self.outputs // self.heads if self.concat else self.outputs

    @property
    def width(self) -> int:
        return self.heads * self.head_width

    def parameters(self) -> dict[str, Parameter]:
        """`weight` [in, heads * C], the attention vectors `source` s and `target` t [heads, C], `bias` [out]."""
        parameters = {
            "weight": Parameter((self.inputs, self.width)),
            "source": Parameter((self.heads, self.head_width)),
            "target": Parameter((self.heads, self.head_width)),
        }
        if self.bias:
            parameters["bias"] = Parameter((self.outputs,), random=False)
        return parameters

    def offer(self, x: Input, weights: Weights) -> Tensor:
        return x.linear(weights["weight"])

    def finish(self, z: Tensor, at: Outputs, weights: Weights) -> Tensor:
        edges = at.require_edges()
        grouped = group_heads(z, self.heads)
        times = grouped.shape[1] // self.heads
        seen = view_products(grouped, weights["source"].repeat(1, times, 1), edges)
        target = weights["target"].repeat(1, times, 1).index_select(0, at.agent)
        own = torch.einsum("rgc,rgc->gr", grouped.index_select(0, edges.own), target)
        scores = additive_scores(seen, own, edges, self.negative_slope)
        summed = softmax_sum(scores, grouped, edges, mask_edges(at, z, self.heads))
        out = join_heads(summed, z, self.heads, self.concat)
        if self.bias:
            out = out + at.spread(weights["bias"], out.ndim)
        return ACTIVATIONS[self.activation](out)

    def aliases(self) -> list[Alias]:
        named = [linear("lin", "weight"), Alias("att_src", "source", "leading"), Alias("att_dst", "target", "leading")]
        return [*named, Alias("bias", "bias")] if self.bias else named
