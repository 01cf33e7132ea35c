"""Dynamic graph attention (Brody, Alon and Yahav 2022, "How attentive are graph attention networks?").

    h_i = activation(|| or mean over h of  sum_j alpha^h_ij u^h_j + b_{a(i)}),   u_j = W_{a(j)}^T x_j + c_{a(j)}
    alpha^h_ij = softmax_j(q^h_{a(i)} . LeakyReLU(V^h_{a(i)}^T x_i + d^h_{a(i)} + u^h_j))    j on i's edges, or i itself

A vertex's own agent a(j) offers u_j; the attention vector q and the target's weights V are the receiver's, a(i)'s. So
one exchange of heads * C numbers a vertex is enough, each way. Edge weights are not used, as in PyTorch Geometric's
GATv2Conv.
"""

from dataclasses import dataclass

from torch import Tensor

from gossamer.model.edge_sums import joint_scores, softmax_sum
from gossamer.model.gather import Edgewise
from gossamer.model.layers.activations import ACTIVATIONS
from gossamer.model.layers.heads import group_heads, join_heads, mask_edges
from gossamer.model.layers.layer import Input, Outputs, Parameter, Weights, spread
from gossamer.model.layers.names import Alias, linear


@dataclass(frozen=True)
class GatV2:
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

    gather = Edgewise(loops=True, own=True)

    @property
    def head_width(self) -> int:
        return self.outputs // self.heads if self.concat else self.outputs

    @property
    def width(self) -> int:
        return self.heads * self.head_width

    def parameters(self) -> dict[str, Parameter]:
        """W and V `weight` and `target` [in, heads * C], q `attention` [heads, C], and biases: c `source_bias` and
        d `target_bias` [heads * C], b `bias` [out]."""
        parameters = {
            "weight": Parameter((self.inputs, self.width)),
            "target": Parameter((self.inputs, self.width)),
            "attention": Parameter((self.heads, self.head_width)),
        }
        if self.bias:
            parameters |= {
                "source_bias": Parameter((self.width,), random=False),
                "target_bias": Parameter((self.width,), random=False),
                "bias": Parameter((self.outputs,), random=False),
            }
        return parameters

    def offer(self, x: Input, weights: Weights) -> Tensor:
        u = x.linear(weights["weight"])
        return u + spread(weights["source_bias"], x.agent(), u.ndim) if self.bias else u

    def keep(self, x: Input, weights: Weights) -> Tensor:
        v = x.linear(weights["target"])
        return v + spread(weights["target_bias"], x.agent(), v.ndim) if self.bias else v

    def finish(self, z: Tensor, at: Outputs, weights: Weights) -> Tensor:
        edges = at.require_edges()
        grouped, own = group_heads(z, self.heads), group_heads(at.require_kept(), self.heads)
        attention = weights["attention"].repeat(1, grouped.shape[1] // self.heads, 1)
        scores = joint_scores(grouped, own, attention, edges, self.negative_slope)
        summed = softmax_sum(scores, grouped, edges, mask_edges(at, z, self.heads))
        out = join_heads(summed, z, self.heads, self.concat)
        if self.bias:
            out = out + at.spread(weights["bias"], out.ndim)
        return ACTIVATIONS[self.activation](out)

    def aliases(self) -> list[Alias]:
        named = [linear("lin_l", "weight"), linear("lin_r", "target"), Alias("att", "attention", "leading")]
        if self.bias:
            named += [Alias("lin_l.bias", "source_bias"), Alias("lin_r.bias", "target_bias"), Alias("bias", "bias")]
        return named
