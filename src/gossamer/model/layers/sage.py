"""GraphSAGE (Hamilton, Ying and Leskovec 2017, "Inductive representation learning on large graphs").

    h_i = activation(aggregate over j of  W_{a(j)}^T x_j  +  V_{a(i)}^T x_i + b_{a(i)})       j on i's edges, without i

The mean (D = S^-1 A) and the sum (D = A) are linear, so that W is applied before them and a link carries as few rows as
its structural rank. The maximum is taken over W_{a(j)}^T x_j, whose rows travel one by one: PyTorch Geometric's
SAGEConv takes it over x_j, which would send raw features. With `normalise` the sum above becomes a unit vector. Edge
weights are not used, as in SAGEConv.
"""

from dataclasses import dataclass

from torch import Tensor
from torch.nn.functional import normalize

from gossamer.model.edge_sums import neighbour_max
from gossamer.model.gather import Edgewise, Gather, Monomial
from gossamer.model.layers.activations import ACTIVATIONS
from gossamer.model.layers.layer import Input, Outputs, Parameter, Weights
from gossamer.model.layers.names import Alias, linear


@dataclass(frozen=True)
class Sage:
    """`aggregate` is mean, sum (which D decides) or max; `root` adds a vertex's own V^T x_i."""

    inputs: int
    outputs: int
    aggregate: str
    root: bool
    normalise: bool
    activation: str
    bias: bool
    dropout: float

    @property
    def gather(self) -> Gather:
        return Edgewise(loops=False, own=self.root) if self.aggregate == "max" else Monomial((1,), own=self.root)

    @property
    def width(self) -> int:
        return self.outputs

    def parameters(self) -> dict[str, Parameter]:
        """W `weight` and V `root` [in, out], b `bias` [out]."""
        parameters = {"weight": Parameter((self.inputs, self.outputs))}
        if self.root:
            parameters["root"] = Parameter((self.inputs, self.outputs))
        if self.bias:
            parameters["bias"] = Parameter((self.outputs,), random=False)
        return parameters

    def offer(self, x: Input, weights: Weights) -> Tensor:
        return x.linear(weights["weight"])

    def keep(self, x: Input, weights: Weights) -> Tensor:
        return x.linear(weights["root"])

    def finish(self, z: Tensor, at: Outputs, weights: Weights) -> Tensor:
        out = neighbour_max(z, at.require_edges()) if self.aggregate == "max" else z
        if self.root:
            out = out + at.require_kept()
        if self.bias:
            out = out + at.spread(weights["bias"], out.ndim)
        if self.normalise:
            out = normalize(out, dim=-1)
        return ACTIVATIONS[self.activation](out)

    def aliases(self) -> list[Alias]:
        named = [linear("lin_l", "weight"), *([Alias("lin_l.bias", "bias")] if self.bias else [])]
        return [*named, linear("lin_r", "root")] if self.root else named
