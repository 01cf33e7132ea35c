"""Layers, one file and one equation each, joined by name in one table.

The code is organised as follows:
    layer         the layer seam: offer, keep, gather, finish
    activations   element-wise functions after a layer
    convolution   graph convolutions: gcn, polynomial, chebyshev, linear, sgc, appnp, mlp
    gat           graph attention
    gatv2         dynamic graph attention
    heads         heads of attention as groups of columns
    sage          GraphSAGE: mean, sum or maximum of neighbours
    gin           graph isomorphism network
    gated         residual gated graph convolution
    block         layer normalisation, residual connections and jumping knowledge around a layer
    names         parameters under PyTorch Geometric's names

A new layer is one file here and one line in LAYERS (docs/extending.md).
"""

from collections.abc import Callable
from dataclasses import dataclass

from gossamer.model.gather import Chebyshev, Gather, Monomial, PageRank
from gossamer.model.layers.activations import ACTIVATIONS
from gossamer.model.layers.block import Block
from gossamer.model.layers.convolution import Convolution
from gossamer.model.layers.gat import Gat
from gossamer.model.layers.gated import Gated
from gossamer.model.layers.gatv2 import GatV2
from gossamer.model.layers.gin import Gin
from gossamer.model.layers.layer import (
    Edges,
    Input,
    KeepingLayer,
    Layer,
    Outputs,
    Parameter,
    Weights,
    edge_dropout,
    make_outputs,
)
from gossamer.model.layers.sage import Sage


@dataclass(frozen=True)
class LayerOptions:
    """The settings of one layer."""

    inputs: int
    outputs: int
    order: int
    activation: str
    bias: bool
    dropout: float
    heads: int = 1
    concat: bool = True
    negative_slope: float = 0.2
    attention_dropout: float = 0.0
    aggregate: str = "mean"
    root_weight: bool = True
    normalise: bool = False
    epsilon: float = 0.0
    learn_epsilon: bool = False
    inner: int = 64
    inner_activation: str = "relu"
    teleport: float = 0.1


@dataclass(frozen=True)
class LayerKind:
    """An entry of the table of layers: networks of this kind, with or without hidden layers, and their usual shift.

    `shift` may depend on the options; None: the layer does not look at D's numbers. `options` are those of LayerSpec
    that the kind has beside those of all layers; None: any.
    """

    make: Callable[[LayerOptions], Layer]
    hidden: bool = True
    shift: str | Callable[[LayerOptions], str | None] | None = "normalized"
    order: int = 1  # where none is given
    hidden_kind: str | None = None  # of the layers before the last, if it is another
    options: frozenset[str] | None = None

    def find_shift(self, options: LayerOptions) -> str | None:
        return self.shift(options) if callable(self.shift) else self.shift


def _convolution(gather: Callable[[LayerOptions], Gather], early_bias: bool = False) -> Callable[[LayerOptions], Layer]:
    """A graph convolution by the filter of its options."""

    def make(options: LayerOptions) -> Layer:
        return Convolution(
            gather(options),
            options.inputs,
            options.outputs,
            options.activation,
            options.bias,
            options.dropout,
            early_bias,
        )

    return make


def _gcn(options: LayerOptions) -> Gather:
    """D alone (eq. (5)), and from order 2 on all powers up to it (eq. (25))."""
    return Monomial((1,) if options.order == 1 else tuple(range(options.order + 1)))


def _attention(kind: type[Gat] | type[GatV2]) -> Callable[[LayerOptions], Layer]:
    def make(options: LayerOptions) -> Layer:
        return kind(
            options.inputs,
            options.outputs,
            options.heads,
            options.concat,
            options.negative_slope,
            options.attention_dropout,
            options.activation,
            options.bias,
            options.dropout,
        )

    return make


def _sage(options: LayerOptions) -> Layer:
    return Sage(
        options.inputs,
        options.outputs,
        options.aggregate,
        options.root_weight,
        options.normalise,
        options.activation,
        options.bias,
        options.dropout,
    )


def _gin(options: LayerOptions) -> Layer:
    return Gin(
        options.inputs,
        options.outputs,
        options.inner,
        options.inner_activation,
        options.epsilon,
        options.learn_epsilon,
        options.activation,
        options.bias,
        options.dropout,
    )


def _gated(options: LayerOptions) -> Layer:
    return Gated(
        options.inputs, options.outputs, options.root_weight, options.activation, options.bias, options.dropout
    )


_ORDER = frozenset({"order"})
_ATTENTION = frozenset({"heads", "concat", "negative_slope", "attention_dropout"})
LAYERS: dict[str, LayerKind] = {
    "gcn": LayerKind(_convolution(_gcn), options=_ORDER),
    "polynomial": LayerKind(_convolution(lambda of: Monomial(tuple(range(of.order + 1)))), options=_ORDER),
    "chebyshev": LayerKind(_convolution(lambda of: Chebyshev(of.order)), shift="scaled-laplacian", options=_ORDER),
    "linear": LayerKind(_convolution(_gcn), hidden=False, options=_ORDER),
    "mlp": LayerKind(_convolution(lambda of: Monomial((0,))), shift=None, options=frozenset()),
    "gat": LayerKind(_attention(Gat), shift=None, options=_ATTENTION),
    "gatv2": LayerKind(_attention(GatV2), shift=None, options=_ATTENTION),
    "sage": LayerKind(
        _sage,
        shift=lambda of: None if of.aggregate == "max" else of.aggregate,
        options=frozenset({"aggregate", "root_weight", "normalise"}),
    ),
    "gin": LayerKind(_gin, shift="sum", options=frozenset({"epsilon", "learn_epsilon", "inner"})),
    "gated": LayerKind(_gated, shift=None, options=frozenset({"root_weight"})),
    "sgc": LayerKind(_convolution(lambda of: Monomial((of.order,))), hidden=False, order=2, options=_ORDER),
    "appnp": LayerKind(
        _convolution(lambda of: PageRank(of.order, of.teleport), early_bias=True),
        order=10,
        hidden_kind="mlp",
        options=_ORDER | {"teleport"},
    ),
}

__all__ = [
    "ACTIVATIONS",
    "LAYERS",
    "Block",
    "Convolution",
    "Edges",
    "Gat",
    "GatV2",
    "Gated",
    "Gin",
    "Input",
    "KeepingLayer",
    "Layer",
    "LayerKind",
    "LayerOptions",
    "Outputs",
    "Parameter",
    "Sage",
    "Weights",
    "edge_dropout",
    "make_outputs",
]
