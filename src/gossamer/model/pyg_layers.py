"""Layers and networks as PyTorch Geometric has them, described without it: names of its classes and their arguments.

A layer may have a convolution there that computes the same with the same parameters. A network of one kind of layers
with equal activations may be one of its models (torch_geometric.nn.models.basic_gnn): GCN, GraphSAGE, GIN, GAT.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn

from gossamer.errors import GossamerError
from gossamer.model.gather import Chebyshev, Monomial
from gossamer.model.layers import Block, Convolution, Gat, Gated, GatV2, Gin, Layer, Sage
from gossamer.model.network import Network

PYG_MODELS = {"GCNConv": "GCN", "SAGEConv": "GraphSAGE", "GINConv": "GIN", "GATConv": "GAT", "GATv2Conv": "GAT"}
WEIGHTED_CONVS = ("GCNConv", "ChebConv")  # take the weights of edges
PYG_ACTIVATIONS = {"relu": "relu", "tanh": "tanh", "elu": "elu", "identity": None}  # as their models name them
_ALONE = Monomial((0,))  # a linear map of each vertex by itself


@dataclass(frozen=True)
class PygPart:
    """A call of one of PyTorch Geometric's classes; an argument may be such a part itself."""

    name: str
    arguments: tuple[Any, ...]
    options: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        options = (f"{name}={value!r}" for name, value in self.options.items())
        return f"{self.name}({', '.join([*map(str, self.arguments), *options])})"

    def list_classes(self) -> set[str]:
        """Names of the classes that the call needs."""
        inner = [part.list_classes() for part in self.arguments if isinstance(part, PygPart)]
        return {self.name}.union(*inner)


@dataclass(frozen=True)
class PygModel:
    """One of PyTorch Geometric's models. `jump` is None, last, cat or max; without it the last convolution makes the
    outputs, with it a linear map does."""

    name: str
    convs: tuple[PygPart, ...]
    widths: tuple[int, ...]  # of the convolutions' outputs
    inputs: int
    outputs: int
    activation: str | None
    norm: bool
    jump: str | None
    final: Convolution | None
    dropout: float


def describe_layer(layer: Layer, shift: str) -> PygPart | None:
    """The convolution of PyTorch Geometric that computes the same with the same parameters, or None."""
    match layer:
        case Convolution(gather=Monomial((1,))) if shift == "normalized":
            return PygPart("GCNConv", (layer.inputs, layer.outputs), {"bias": layer.bias})
        case Convolution(gather=Chebyshev() as filtered) if shift == "scaled-laplacian":
            options = {"K": filtered.order + 1, "normalization": "sym", "bias": layer.bias}
            return PygPart("ChebConv", (layer.inputs, layer.outputs), options)
        case Gat() | GatV2() if shift != "identity":
            options = {
                "heads": layer.heads,
                "concat": layer.concat,
                "negative_slope": layer.negative_slope,
                "dropout": layer.edge_dropout,
                "bias": layer.bias,
            }
            name = "GATConv" if isinstance(layer, Gat) else "GATv2Conv"
            return PygPart(name, (layer.inputs, layer.head_width), options)
        case Sage() if shift == layer.aggregate:  # never max, which PyTorch Geometric takes before its weights
            options = {
                "aggr": layer.aggregate,
                "normalize": layer.normalise,
                "root_weight": layer.root,
                "bias": layer.bias,
            }
            return PygPart("SAGEConv", (layer.inputs, layer.outputs), options)
        case Gin() if shift == "sum" and layer.inner_activation in PYG_ACTIVATIONS:
            act = PYG_ACTIVATIONS[layer.inner_activation]
            inner = ([layer.inputs, layer.inner, layer.outputs],)
            within = PygPart("MLP", inner, {"act": act, "norm": None, "bias": layer.bias})
            return PygPart("GINConv", (within,), {"eps": layer.epsilon, "train_eps": layer.learn_epsilon})
        case Gated() if shift != "identity" and layer.bias:
            return PygPart("ResGatedGraphConv", (layer.inputs, layer.outputs), {"root_weight": layer.skip})
    return None


def find_pyg_layer(network: Network, shift: str) -> str | None:
    """Convolution of PyTorch Geometric of which a network like this one consists, parameter by parameter; of a network
    with blocks the model; or None."""
    convs = [describe_layer(layer, shift) for layer in network.layers]
    acts = [getattr(layer, "activation", None) for layer in network.layers]
    names = {None if conv is None else conv.name for conv in convs}
    if len(names) == 1 and None not in names and len(set(acts[:-1])) <= 1 and acts[-1] == "identity":
        return min(name for name in names if name is not None)
    try:
        return describe_model(network, shift).name
    except GossamerError:
        return None


def describe_model(network: Network, shift: str) -> PygModel:
    """The model of PyTorch Geometric that computes the same; GossamerError where there is none."""
    end, final = network.layers[-1], None
    if isinstance(end, Convolution) and end.gather == _ALONE and end.activation == "identity":
        final = end
    graph = network.layers if final is None or len(network.layers) == 1 else network.layers[:-1]
    bare = [layer.layer if isinstance(layer, Block) else layer for layer in graph]
    parts: list[PygPart] = []
    for index, layer in enumerate(bare):
        part = describe_layer(layer, shift)
        if part is None or part.name not in PYG_MODELS:
            _refuse(f"layer {index}, {_name(layer)}, with the shift {shift!r}, is no convolution of its models")
        parts.append(part)
    kinds = sorted({part.name for part in parts})
    if len(kinds) > 1:
        _refuse(f"its models have one kind of layers, and this network {' and '.join(kinds)}")
    hidden, last = (graph, None) if final is not None else (graph[:-1], graph[-1])
    blocks = [layer for layer in graph if isinstance(layer, Block)]
    if any(block.residual for block in blocks):
        _refuse("its models have no residual connections")
    norms = {isinstance(layer, Block) and layer.norm for layer in hidden}
    acts = {str(getattr(layer, "activation", "none")) for layer in hidden}
    if len(norms) > 1 or len(acts) > 1 or not acts <= set(PYG_ACTIVATIONS):
        _refuse("its models normalise all hidden layers alike and have one activation after them")
    if last is not None and (isinstance(last, Block) or getattr(last, "activation", None) != "identity"):
        _refuse("its models end in a layer without normalisation and activation")
    rates = {layer.dropout for layer in network.layers[1:]}
    if len(rates) > 1:
        _refuse("its models have one dropout between layers")
    jumps = {layer.jump if isinstance(layer, Block) else "" for layer in hidden}
    jump = None if final is None else (min(jumps) or "last")
    return PygModel(
        PYG_MODELS[kinds[0]],
        tuple(parts),
        tuple(layer.outputs for layer in bare),
        network.layers[0].inputs,
        network.layers[-1].outputs,
        PYG_ACTIVATIONS[min(acts, default="relu")],
        norms == {True},
        jump,
        final,
        min(rates, default=0.0),
    )


def _name(layer: Layer) -> str:
    if isinstance(layer, Convolution):
        powers = layer.gather.powers
        return "a layer without the graph" if powers == (0,) else f"a filter with the powers {powers} of D"
    return f"{type(layer).__name__} of max" if getattr(layer, "aggregate", "") == "max" else type(layer).__name__


def _refuse(reason: str) -> NoReturn:
    raise GossamerError(
        f"expected a network that is one of PyTorch Geometric's models, GCN, GraphSAGE, GIN or GAT, and {reason}; "
        "result.model() is the same network in plain PyTorch"
    )
