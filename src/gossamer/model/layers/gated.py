"""Residual gated graph convolution (Bresson and Laurent 2017, "Residual gated graph ConvNets").

    h_i = activation(sum_j sigmoid(k_i + q_j) * v_j + S_{a(i)}^T x_i + b_{a(i)})       j on i's edges, without i
    q_j = Q_{a(j)}^T x_j + c_{a(j)},  v_j = V_{a(j)}^T x_j + d_{a(j)},  k_i = K_{a(i)}^T x_i + e_{a(i)}

A vertex's own agent offers q_j and v_j, twice the width of a graph convolution; the gate's other side k_i and the skip
S^T x_i stay with the receiver. As in PyTorch Geometric's ResGatedGraphConv there are no edge weights and no self-loops.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from gossamer.model.edge_sums import gated_sum
from gossamer.model.gather import Edgewise
from gossamer.model.layers.activations import ACTIVATIONS
from gossamer.model.layers.layer import Input, Outputs, Parameter, Weights, spread
from gossamer.model.layers.names import Alias, linear

LINEAR = ("query", "value", "key")  # maps with a bias of their own


@dataclass(frozen=True)
class Gated:
    """A sum of gated offers; `skip` adds a vertex's own S^T x_i."""

    inputs: int
    outputs: int
    skip: bool
    activation: str
    bias: bool
    dropout: float

    gather = Edgewise(loops=False, own=True)

    @property
    def width(self) -> int:
        return 2 * self.outputs

    def parameters(self) -> dict[str, Parameter]:
        """Q, V, K, S `query`, `value`, `key`, `skip` [in, out]; c, d, e `query_bias` and so on, b `bias` [out]."""
        names = (*LINEAR, "skip") if self.skip else LINEAR
        parameters = {name: Parameter((self.inputs, self.outputs)) for name in names}
        biases = (*(f"{name}_bias" for name in LINEAR), "bias") if self.bias else ()
        return parameters | {name: Parameter((self.outputs,), random=False) for name in biases}

    def offer(self, x: Input, weights: Weights) -> Tensor:
        z = x.linear(torch.cat([weights["query"], weights["value"]], -1))
        if not self.bias:
            return z
        return z + spread(torch.cat([weights["query_bias"], weights["value_bias"]], -1), x.agent(), z.ndim)

    def keep(self, x: Input, weights: Weights) -> Tensor:
        z = x.linear(torch.cat([weights["key"], weights["skip"]], -1) if self.skip else weights["key"])
        if not self.bias:
            return z
        bias = torch.cat([weights["key_bias"], weights["bias"]], -1) if self.skip else weights["key_bias"]
        return z + spread(bias, x.agent(), z.ndim)

    def finish(self, z: Tensor, at: Outputs, weights: Weights) -> Tensor:
        kept = at.require_kept()
        gate, value = z.split(self.outputs, -1)
        out = gated_sum(gate, kept[..., : self.outputs], value, at.require_edges())
        if self.skip:
            out = out + kept[..., self.outputs :]
        elif self.bias:
            out = out + at.spread(weights["bias"], out.ndim)
        return ACTIVATIONS[self.activation](out)

    def aliases(self) -> list[Alias]:
        names = (*LINEAR, "skip") if self.skip else LINEAR
        named = [linear(f"lin_{name}", name) for name in names]
        if self.bias:
            named += [*(Alias(f"lin_{name}.bias", f"{name}_bias") for name in LINEAR), Alias("bias", "bias")]
        return named
