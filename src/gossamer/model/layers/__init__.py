"""Layers, one file and one equation each, joined by name in one table.

The code is organised as follows:
    layer         the layer seam: what the training step asks of a layer
    convolution   graph convolutions: gcn, polynomial, chebyshev, linear, mlp

A new layer is one file here and one line in LAYERS (docs/extending.md).
"""

from collections.abc import Callable
from dataclasses import dataclass

from gossamer.model.gather import Chebyshev, Gather, Monomial
from gossamer.model.layers.convolution import ACTIVATIONS, Convolution
from gossamer.model.layers.layer import Edges, Input, Layer, Outputs, Parameter, Weights


@dataclass(frozen=True)
class Choice:
    """What the settings say of one layer."""

    inputs: int
    outputs: int
    order: int
    activation: str
    bias: bool
    dropout: float


@dataclass(frozen=True)
class Kind:
    """A kind of layers: how to make one, whether networks of it have hidden layers, and its usual shift operator."""

    make: Callable[[Choice], Layer]
    hidden: bool = True
    shift: str = "normalized"


def _convolution(gather: Callable[[int], Gather]) -> Callable[[Choice], Layer]:
    """A graph convolution by the filter of an order."""

    def make(how: Choice) -> Layer:
        return Convolution(gather(how.order), how.inputs, how.outputs, how.activation, how.bias, how.dropout)

    return make


def _gcn(order: int) -> Gather:
    """D alone (eq. (5)), and from order 2 on all powers up to it (eq. (25))."""
    return Monomial((1,) if order == 1 else tuple(range(order + 1)))


LAYERS: dict[str, Kind] = {
    "gcn": Kind(_convolution(_gcn)),
    "polynomial": Kind(_convolution(lambda order: Monomial(tuple(range(order + 1))))),
    "chebyshev": Kind(_convolution(Chebyshev), shift="scaled-laplacian"),
    "linear": Kind(_convolution(_gcn), hidden=False),
    "mlp": Kind(_convolution(lambda order: Monomial((0,)))),
}

__all__ = [
    "ACTIVATIONS",
    "LAYERS",
    "Choice",
    "Convolution",
    "Edges",
    "Input",
    "Kind",
    "Layer",
    "Outputs",
    "Parameter",
    "Weights",
]
