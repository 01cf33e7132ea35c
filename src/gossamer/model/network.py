"""The network's architecture as a value: layers one after the other (eq. (1)-(2)), from a description of them."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

from gossamer.errors import GossamerError
from gossamer.layer_specs import LayerSpec, NetworkOptions, ends_locally, find_widths, parse_layers
from gossamer.model.gather import Gather
from gossamer.model.layer_options import check_entries, has_option
from gossamer.model.layers import LAYERS, Block, Layer, LayerOptions

Params = dict[str, Tensor]  # `layer.0.weight` and so on, stacked over the hosted agents
MOST_DEFAULT_HEADS = 8


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


def make_network(kind: str, inputs: int, outputs: int, **options: Any) -> Network:
    """The network of a description: one kind of LAYERS or a list of layers, and options of NetworkOptions."""
    return build_layers(NetworkOptions(layers=kind, **options), inputs, outputs)


def build_layers(options: NetworkOptions, inputs: int, outputs: int) -> Network:
    """Build the layers that are described; the last one has no activation."""
    layers: list[Layer] = []
    described = list(_describe(options, outputs))
    carried = 0
    for index, (spec, width, graph) in enumerate(described):
        own = _fit_options(options, spec, inputs, width, index, len(described))
        if has_option(spec.kind, "heads") and own.concat and own.outputs % own.heads:
            raise GossamerError(
                f"a layer of width {own.outputs} cannot be split into {own.heads} heads; take a width that is a "
                f"multiple of {own.heads}, or heads = {_find_heads(own.outputs)}"
            )
        jump = options.jump if graph and options.jump != "none" else ""
        norm, residual = spec.norm == "layer", bool(spec.residual)
        if jump or norm or residual:
            bare = LAYERS[spec.kind].make(replace(own, activation="identity"))
            last = bool(jump) and not (index + 1 < len(described) and described[index + 1][2])
            block = Block(bare, own.activation, norm, residual, jump, carried, last)
            carried = 0 if last or not jump else block.outputs - own.outputs
            layers.append(block)
        else:
            layers.append(LAYERS[spec.kind].make(own))
        inputs = layers[-1].outputs - carried
    return Network(tuple(layers))


def list_widths(options: NetworkOptions) -> tuple[int, ...]:
    """Widths of the hidden graph layers; some kinds have none."""
    specs = parse_layers(options.layers)
    return find_widths(options) if len(specs) > 1 or LAYERS[specs[0].kind].hidden else ()


def find_shift(options: NetworkOptions) -> str:
    """The usual shift operator of the described layers, which must agree on one."""
    wanted = _list_shifts(options)
    names = {name for _, name in wanted}
    if len(names) > 1:
        listed = ", ".join(dict.fromkeys(f"{_name(spec)} takes {name}" for spec, name in wanted))
        alike = len({name for spec, name in wanted if spec.kind == "sage"}) > 1
        remedy = "give all layers of sage the same aggregate" if alike else "choose one for all of them with --shift"
        raise GossamerError(f"layers = {options.layers!r} want several shift operators: {listed}; {remedy}")
    return min(names, default="normalized")


def check_shift(options: NetworkOptions, shift: str) -> str:
    """Refuse the mean for layers of sage that are to sum, and the reverse; other operators decide by themselves."""
    for spec, name in _list_shifts(options):
        if {name, shift} == {"mean", "sum"} and spec.kind == "sage":
            raise GossamerError(
                f"shift = {shift!r} contradicts aggregate = {name!r} of a layer of sage; leave --shift out, or take "
                f"--aggregate {shift}"
            )
    return shift


def sees_weights(options: NetworkOptions) -> bool:
    """Return whether a layer looks at the numbers of the shift operator."""
    return bool(_list_shifts(options))


def _list_shifts(options: NetworkOptions) -> list[tuple[LayerSpec, str]]:
    """Layers that look at D's numbers, each with its usual shift operator."""
    described = list(_describe(options, None))
    fitted = [_fit_options(options, spec, 1, width, i, len(described)) for i, (spec, width, _) in enumerate(described)]
    wanted = [(spec, LAYERS[spec.kind].find_shift(own)) for (spec, *_), own in zip(described, fitted, strict=True)]
    return [(spec, name) for spec, name in wanted if name is not None]


def _name(spec: LayerSpec) -> str:
    return spec.kind if spec.aggregate is None else f"{spec.kind} with aggregate = {spec.aggregate!r}"


def _repeat(spec: LayerSpec, hidden: int, local: bool) -> Iterator[LayerSpec]:
    """One entry for all layers: the hidden ones, and unless the network ends locally the last, without blocks."""
    before = replace(spec, kind=LAYERS[spec.kind].hidden_kind or spec.kind)
    for index in range(hidden):
        yield spec if local and index == hidden - 1 else before
    if not local:
        yield replace(spec, width=None, residual=None, norm=None) if hidden else spec


def _describe(options: NetworkOptions, outputs: int | None) -> Iterator[tuple[LayerSpec, int, bool]]:
    """Every layer, its width, and whether it is one of the graph layers, which blocks are around.

    `outputs` None: any number, where widths do not matter."""
    try:
        specs = parse_layers(options.layers)
    except ValueError as error:
        raise GossamerError(f"layers = {options.layers!r}: {error}") from None
    check_entries(specs)
    local = ends_locally(options)
    widths = list_widths(options)
    if len(specs) == 1:
        specs = tuple(_repeat(specs[0], len(widths), local))
    if local and not widths:
        raise GossamerError(
            f"--jump and --after follow hidden graph layers, and layers = {options.layers!r} with hidden = "
            f"{list(options.hidden)} has none; leave them out, or take layers with hidden ones"
        )
    if options.jump == "max" and len(set(widths)) > 1:
        raise GossamerError(f"jump = 'max' needs hidden layers of one width, got {list(widths)}; take jump = 'cat'")
    for width in options.before:
        yield LayerSpec("mlp", residual=False, norm="none"), width, False
    for index, spec in enumerate(specs):
        last = index == len(specs) - 1 and not local
        if last and outputs is not None and spec.width not in (None, outputs):
            raise GossamerError(
                f"the last layer makes {outputs} outputs, and {spec} has the width {spec.width}; leave its width out"
            )
        if last and (spec.residual or spec.norm not in (None, "none")):
            raise GossamerError(
                f"the last layer makes the outputs, with neither residual nor norm, and layers = {options.layers!r} "
                "gives it one; leave it out, or let --after follow"
            )
        blocks = {"residual": False, "norm": "none"} if last else _choose_blocks(options, spec)
        yield replace(spec, **blocks), outputs or 1 if last else widths[index], not last
    if local:
        for width in (*options.after, outputs or 1):
            yield LayerSpec("mlp", residual=False, norm="none"), width, False


def _choose_blocks(options: NetworkOptions, spec: LayerSpec) -> dict[str, Any]:
    residual = options.residual if spec.residual is None else spec.residual
    return {"residual": residual, "norm": spec.norm or options.norm}


def _fit_options(
    options: NetworkOptions, spec: LayerSpec, inputs: int, width: int, index: int, count: int
) -> LayerOptions:
    """The options of one layer: its own, else the network's, else the kind's."""
    kind, last = LAYERS[spec.kind], index == count - 1
    dropout = options.dropout if options.input_dropout is None or index else options.input_dropout

    def choose(name: str) -> Any:
        own = getattr(spec, name)
        return getattr(options, name) if own is None else own

    concat = not last if spec.concat is None else spec.concat
    heads = choose("heads") or (_find_heads(width) if concat else 1)
    activation = spec.activation or ("identity" if last else options.activation)
    return LayerOptions(
        inputs=inputs,
        outputs=width,
        order=choose("order") or kind.order,
        activation=activation,
        bias=choose("bias"),
        dropout=dropout if spec.dropout is None else spec.dropout,
        heads=heads,
        concat=concat,
        negative_slope=choose("negative_slope"),
        attention_dropout=choose("attention_dropout"),
        aggregate=choose("aggregate"),
        root_weight=choose("root_weight"),
        normalise=choose("normalise"),
        epsilon=choose("epsilon"),
        learn_epsilon=choose("learn_epsilon"),
        inner=spec.inner or (width if not last or not options.hidden else options.hidden[-1]),
        inner_activation=options.activation,
        teleport=choose("teleport"),
    )


def _find_heads(width: int) -> int:
    """The largest number of heads up to MOST_DEFAULT_HEADS that divides a width."""
    return max(heads for heads in range(1, MOST_DEFAULT_HEADS + 1) if width % heads == 0)
