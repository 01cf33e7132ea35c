"""Layers, one file and one equation each, joined by name in one table.

The code is organised as follows:
    layer         the layer seam: offer, gather, finish
    convolution   graph convolutions: gcn, polynomial, chebyshev, linear, mlp

A new layer is one file here and one line in LAYERS (docs/extending.md).
"""

from collections.abc import Callable
from dataclasses import dataclass

from gossamer.model.gather import Chebyshev, Gather, Monomial
from gossamer.model.layers.convolution import ACTIVATIONS, Convolution
from gossamer.model.layers.layer import Edges, Input, Layer, Outputs, Parameter, Weights


@dataclass(frozen=True)
class LayerOptions:
    """The settings of one layer."""

    inputs: int
    outputs: int
    order: int
    activation: str
    bias: bool
    dropout: float


@dataclass(frozen=True)
class LayerKind:
    """An entry of the table of layers: networks of this kind, with or without hidden layers, and their usual shift."""

    make: Callable[[LayerOptions], Layer]
    hidden: bool = True
    shift: str = "normalized"


def _convolution(gather: Callable[[int], Gather]) -> Callable[[LayerOptions], Layer]:
    """A graph convolution by the filter of an order."""

    def make(options: LayerOptions) -> Layer:
        return Convolution(
            gather(options.order),
            options.inputs,
            options.outputs,
            options.activation,
            options.bias,
            options.dropout,
        )

    return make


def _gcn(order: int) -> Gather:
    """D alone (eq. (5)), and from order 2 on all powers up to it (eq. (25))."""
    return Monomial((1,) if order == 1 else tuple(range(order + 1)))


LAYERS: dict[str, LayerKind] = {
    "gcn": LayerKind(_convolution(_gcn)),
    "polynomial": LayerKind(_convolution(lambda order: Monomial(tuple(range(order + 1))))),
    "chebyshev": LayerKind(_convolution(Chebyshev), shift="scaled-laplacian"),
    "linear": LayerKind(_convolution(_gcn), hidden=False),
    "mlp": LayerKind(_convolution(lambda order: Monomial((0,)))),
}

__all__ = [
    "ACTIVATIONS",
    "LAYERS",
    "Convolution",
    "Edges",
    "Input",
    "Layer",
    "LayerKind",
    "LayerOptions",
    "Outputs",
    "Parameter",
    "Weights",
]
