"""Graph isomorphism network (Xu, Hu, Leskovec and Jegelka 2019, "How powerful are graph neural networks?").

    h_i = activation(W2_{a(i)}^T act((1 + eps_{a(i)}) W1_{a(i)}^T x_i + sum_j W1_{a(j)}^T x_j + b1_{a(i)}) + b2_{a(i)})

j on i's edges, without i. The inner network's first linear map is applied before the sum and its bias at the receiver:
the layer stays linear in the offers, and a link carries as few rows as its structural rank. eps is fixed or learnt.
Edge weights are not used, as in PyTorch Geometric's GINConv.
"""

from dataclasses import dataclass

from torch import Tensor

from gossamer.model.gather import Monomial
from gossamer.model.layers.activations import ACTIVATIONS
from gossamer.model.layers.layer import Input, Outputs, Parameter, Weights
from gossamer.model.layers.names import Alias, linear


@dataclass(frozen=True)
class Gin:
    """A sum through an inner network of two linear maps, with `inner` numbers and an activation between them."""

    inputs: int
    outputs: int
    inner: int
    inner_activation: str
    epsilon: float
    learn_epsilon: bool
    activation: str
    bias: bool
    dropout: float

    gather = Monomial((1,), own=True)

    @property
    def width(self) -> int:
        return self.inner

    def parameters(self) -> dict[str, Parameter]:
        """W1 `weight` [in, inner], W2 `second` [inner, out], `inner_bias`, `bias`, `epsilon` [1] if it is learnt."""
        parameters = {
            "weight": Parameter((self.inputs, self.inner)),
            "second": Parameter((self.inner, self.outputs)),
        }
        if self.bias:
            parameters["inner_bias"] = Parameter((self.inner,), random=False)
            parameters["bias"] = Parameter((self.outputs,), random=False)
        if self.learn_epsilon:
            parameters["epsilon"] = Parameter((1,), random=False, start=self.epsilon)
        return parameters

    def offer(self, x: Input, weights: Weights) -> Tensor:
        return x.linear(weights["weight"])

    def keep(self, x: Input, weights: Weights) -> Tensor:
        return x.linear(weights["weight"])

    def finish(self, z: Tensor, at: Outputs, weights: Weights) -> Tensor:
        epsilon = at.spread(weights["epsilon"], z.ndim) if self.learn_epsilon else self.epsilon
        summed = z + (1 + epsilon) * at.require_kept()
        if self.bias:
            summed = summed + at.spread(weights["inner_bias"], z.ndim)
        out = at.linear(ACTIVATIONS[self.inner_activation](summed), weights["second"])
        if self.bias:
            out = out + at.spread(weights["bias"], out.ndim)
        return ACTIVATIONS[self.activation](out)

    def aliases(self) -> list[Alias]:
        named = [
            Alias("eps", "epsilon") if self.learn_epsilon else Alias("eps", None, constant=self.epsilon),
            linear("nn.lins.0", "weight"),
            linear("nn.lins.1", "second"),
        ]
        return [*named, Alias("nn.lins.0.bias", "inner_bias"), Alias("nn.lins.1.bias", "bias")] if self.bias else named
