"""The network's architecture as a value: layers one after the other (eq. (1)-(2))."""

import math
from dataclasses import dataclass

from torch import Tensor

from gossamer.errors import GossamerError
from gossamer.model.gather import Gather
from gossamer.model.layers import LAYERS, Layer, LayerOptions

Params = dict[str, Tensor]  # `layer.0.weight` and so on, stacked over the hosted agents


@dataclass(frozen=True)
class Network:
    layers: tuple[Layer, ...]

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """One agent's parameters by name."""
        return {
            f"layer.{index}.{name}": parameter.shape
            for index, layer in enumerate(self.layers)
            for name, parameter in layer.parameters().items()
        }

    @property
    def gathers(self) -> list[Gather]:
        """The gather of each layer."""
        return [layer.gather for layer in self.layers]

    @property
    def num_parameters(self) -> int:
        """p, the length of w_k."""
        return sum(map(math.prod, self.shapes().values()))


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
    """Layers of one kind of LAYERS; the last one has no activation."""
    if kind not in LAYERS:
        raise GossamerError(f"expected layers among {', '.join(LAYERS)}, got {kind!r}")
    layers = LAYERS[kind]
    widths = (inputs, *(hidden if layers.hidden else ()), outputs)
    first = dropout if input_dropout is None else input_dropout
    last = len(widths) - 2
    return Network(
        tuple(
            layers.make(
                LayerOptions(
                    widths[i],
                    widths[i + 1],
                    order,
                    "identity" if i == last else activation,
                    bias,
                    first if i == 0 else dropout,
                )
            )
            for i in range(last + 1)
        )
    )
