"""The network's architecture as a value: layers, each a filter, widths, an activation and dropout (eq. (1)-(2))."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from gossamer.errors import GossamerError
from gossamer.model.filters import Chebyshev, Filter, Monomial

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": torch.relu,
    "tanh": torch.tanh,
    "elu": torch.nn.functional.elu,
    "identity": lambda z: z,
}
KINDS = ("gcn", "chebyshev", "linear", "mlp")
Params = dict[str, Tensor]  # `layer.0.weight` and so on, stacked over the hosted agents


@dataclass(frozen=True)
class Layer:
    """h_i = activation(sum_p f_p(D) x~_p + b) with x~_{p,i} = W_{p,a(i)}^T dropout(x)_i."""

    filter: Filter
    inputs: int
    outputs: int
    activation: str
    bias: bool
    dropout: float

    @property
    def weight_shape(self) -> tuple[int, ...]:
        """One agent's weights: [in, out], or [P + 1, in, out] for several powers."""
        slabs = len(self.filter.powers)
        return (self.inputs, self.outputs) if slabs == 1 else (slabs, self.inputs, self.outputs)

    def activate(self, z: Tensor) -> Tensor:
        return ACTIVATIONS[self.activation](z)


@dataclass(frozen=True)
class Network:
    layers: tuple[Layer, ...]

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """One agent's parameters by name."""
        shapes: dict[str, tuple[int, ...]] = {}
        for index, layer in enumerate(self.layers):
            shapes[f"layer.{index}.weight"] = layer.weight_shape
            if layer.bias:
                shapes[f"layer.{index}.bias"] = (layer.outputs,)
        return shapes

    @property
    def num_parameters(self) -> int:
        """p, the length of w_k."""
        return sum(torch.Size(shape).numel() for shape in self.shapes().values())


def make_network(
    kind: str,
    inputs: int,
    outputs: int,
    *,
    hidden: tuple[int, ...] = (64,),
    order: int = 1,
    activation: str = "relu",
    bias: bool = False,
    dropout: float = 0.0,
    input_dropout: float | None = None,
) -> Network:
    """gcn: eq. (5), or (25) for order > 1; chebyshev: the same in Chebyshev polynomials; linear: one gcn layer and
    nothing else (Sec. V-F); mlp: the plain network, D = I."""
    chosen: Filter
    match kind:
        case "gcn" | "linear":
            chosen = Monomial((1,) if order == 1 else tuple(range(order + 1)))
        case "chebyshev":
            chosen = Chebyshev(order)
        case "mlp":
            chosen = Monomial((0,))
        case _:
            raise GossamerError(f"expected layers among {', '.join(KINDS)}, got {kind!r}")
    widths = (inputs, *(() if kind == "linear" else hidden), outputs)
    first = dropout if input_dropout is None else input_dropout
    last = len(widths) - 2
    return Network(
        tuple(
            Layer(
                chosen,
                widths[i],
                widths[i + 1],
                "identity" if i == last else activation,
                bias,
                first if i == 0 else dropout,
            )
            for i in range(last + 1)
        )
    )
