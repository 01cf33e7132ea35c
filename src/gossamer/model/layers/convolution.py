"""Graph convolutional layers: a filter in D, a bias and an activation (eq. (1), (5), (25)-(26)).

    h_i = activation(sum_p f_p(D) x~_p + b)_i      with  x~_{p,j} = W_{p,a(j)}^T dropout(x)_j

gcn: f_1(D) = D, eq. (5); polynomial: D^p for p = 0 to P, eq. (25); chebyshev: T_p(D); mlp: D = I, no graph at all.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from gossamer.model.gather import Gather
from gossamer.model.layers.layer import Input, Outputs, Parameter, Weights

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": torch.relu,
    "tanh": torch.tanh,
    "elu": torch.nn.functional.elu,
    "identity": lambda z: z,
}


@dataclass(frozen=True)
class Convolution:
    """One layer: `gather` is its filter."""

    gather: Gather
    inputs: int
    outputs: int
    activation: str
    bias: bool
    dropout: float

    @property
    def width(self) -> int:
        return self.outputs

    def parameters(self) -> dict[str, Parameter]:
        """`weight` [in, out], or [P + 1, in, out] for several powers, and `bias` [out]."""
        slabs = len(self.gather.powers)
        shape = (self.inputs, self.outputs) if slabs == 1 else (slabs, self.inputs, self.outputs)
        return {"weight": Parameter(shape)} | ({"bias": Parameter((self.outputs,), random=False)} if self.bias else {})

    def offer(self, x: Input, weights: Weights) -> Tensor:
        return x.linear(weights["weight"])

    def finish(self, z: Tensor, at: Outputs, weights: Weights) -> Tensor:
        if self.bias:
            z = z + at.spread(weights["bias"], z.ndim)
        return ACTIVATIONS[self.activation](z)
