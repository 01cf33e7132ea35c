"""Graph convolutional layers: a filter in D, a bias and an activation (eq. (1), (5), (25)-(26)).

    h_i = activation(sum_p f_p(D) x~_p + b)_i      with  x~_{p,j} = W_{p,a(j)}^T dropout(x)_j

a(j) is the agent that holds vertex j, and W_{p,k} are agent k's weights of power p.

gcn: f_1(D) = D, eq. (5) (Kipf and Welling 2017, "Semi-supervised classification with graph convolutional networks");
polynomial: D^p for p = 0 to P, eq. (25); chebyshev: T_p(D) (Defferrard, Bresson and Vandergheynst 2016, "Convolutional
neural networks on graphs with fast localized spectral filtering"); sgc: D^P alone (Wu et al. 2019, "Simplifying graph
convolutional networks"); appnp: P steps of personalised PageRank (gather.py), of predictions that have their bias
already, x~_j = W_{a(j)}^T x_j + b_{a(j)}; mlp: f(D) = I, without the graph.
"""

from dataclasses import dataclass

from torch import Tensor

from gossamer.model.gather import Gather
from gossamer.model.layers.activations import ACTIVATIONS
from gossamer.model.layers.layer import Input, Outputs, Parameter, Weights, spread
from gossamer.model.layers.names import Alias, linear


@dataclass(frozen=True)
class Convolution:
    """A graph convolution; `gather` is its filter. With `early_bias` the bias is added before the filter, by the
    vertex's own agent."""

    gather: Gather
    inputs: int
    outputs: int
    activation: str
    bias: bool
    dropout: float
    early_bias: bool = False

    @property
    def width(self) -> int:
        return self.outputs

    def parameters(self) -> dict[str, Parameter]:
        """`weight` [in, out], or [P + 1, in, out] for several powers, and `bias` [out]."""
        powers = len(self.gather.powers)
        shape = (self.inputs, self.outputs) if powers == 1 else (powers, self.inputs, self.outputs)
        parameters = {"weight": Parameter(shape)}
        if self.bias:
            parameters["bias"] = Parameter((self.outputs,), random=False)
        return parameters

    def offer(self, x: Input, weights: Weights) -> Tensor:
        u = x.linear(weights["weight"])
        return u + spread(weights["bias"], x.agent(), u.ndim) if self.bias and self.early_bias else u

    def finish(self, z: Tensor, at: Outputs, weights: Weights) -> Tensor:
        if self.bias and not self.early_bias:
            z = z + at.spread(weights["bias"], z.ndim)
        return ACTIVATIONS[self.activation](z)

    def aliases(self) -> list[Alias]:
        powers = len(self.gather.powers)
        named = [linear("lin", "weight")] if powers == 1 else [linear(f"lins.{p}", "weight", p) for p in range(powers)]
        return [*named, Alias("bias", "bias")] if self.bias else named
