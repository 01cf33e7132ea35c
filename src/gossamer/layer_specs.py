"""Layers as settings describe them, without PyTorch: options of a layer, and lists of layers as text or tables.

    gat                                   one entry for all layers, as many as the settings have widths
    gat:heads=4,width=32/gcn              one entry a layer, with options of its own

The same in a settings file is a list of tables, `[{kind = "gat", heads = 4, width = 32}, {kind = "gcn"}]`, in Python a
list of `LayerSpec`, of mappings or of such texts.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from gossamer.choices import ACTIVATION_NAMES, AGGREGATE_NAMES, LAYER_NAMES, NORM_NAMES, suggest
from gossamer.errors import GossamerError

MOST_LAYERS, MOST_WIDTH, MOST_HEADS, MOST_ORDER = 64, 1 << 20, 1024, 16
MOST_FACTOR = 1e30  # of real numbers: their products stay below float32's largest


@dataclass(frozen=True)
class LayerSpec:
    """One layer's kind and options; None leaves an option to the settings.

    `gossamer docs layers` says what each means."""

    kind: str
    width: int | None = None  # of its output; the last layer's is that of the data
    order: int | None = None
    heads: int | None = None
    concat: bool | None = None  # heads side by side, else their mean
    negative_slope: float | None = None
    attention_dropout: float | None = None
    aggregate: str | None = None
    root_weight: bool | None = None
    normalise: bool | None = None
    epsilon: float | None = None
    learn_epsilon: bool | None = None
    inner: int | None = None  # width inside a gin layer
    teleport: float | None = None
    activation: str | None = None
    bias: bool | None = None
    dropout: float | None = None
    residual: bool | None = None
    norm: str | None = None

    def __post_init__(self) -> None:
        for one in fields(self):
            value = getattr(self, one.name)
            if value is not None or one.name == "kind":
                try:
                    object.__setattr__(self, one.name, _check(one.name, value))
                except ValueError as error:
                    raise GossamerError(str(error)) from None

    def __str__(self) -> str:
        options = [
            f"{one.name}={_write(value)}" for one in fields(self)[1:] if (value := getattr(self, one.name)) is not None
        ]
        return f"{self.kind}:{','.join(options)}" if options else self.kind


@dataclass(frozen=True)
class NetworkOptions:
    """A network's description: each is a field of Settings, and of a model file's header."""

    layers: str = "gcn"
    order: int | None = None
    hidden: tuple[int, ...] = (64,)
    heads: int | None = None
    negative_slope: float = 0.2
    attention_dropout: float = 0.0
    aggregate: str = "mean"
    root_weight: bool = True
    normalise: bool = False
    epsilon: float = 0.0
    learn_epsilon: bool = False
    teleport: float = 0.1
    residual: bool = False
    norm: str = "none"
    jump: str = "none"
    before: tuple[int, ...] = ()
    after: tuple[int, ...] = ()
    activation: str = "relu"
    bias: bool = False
    dropout: float = 0.0
    input_dropout: float | None = None


@dataclass(frozen=True)
class PygNetwork:
    """A model of PyTorch Geometric as `gossamer.train(..., initial=...)` takes it: the settings that describe its
    network, its weights under the names of `gossamer docs models`, and how it standardises features, if it does."""

    settings: Mapping[str, Any]
    weights: Mapping[str, Any] = field(repr=False)  # tensors
    inputs: int
    outputs: int
    transform: Any = field(default=None, repr=False)  # a data.standardisation.Transform


def read_options(source: Any) -> NetworkOptions:
    """The network options among the attributes of settings or of a header."""
    options = NetworkOptions(**{one.name: getattr(source, one.name) for one in fields(NetworkOptions)})
    widths: dict[str, Any] = {name: tuple(getattr(options, name)) for name in ("hidden", "before", "after")}
    return replace(options, dropout=options.dropout or 0.0, **widths)


def find_widths(options: NetworkOptions) -> tuple[int, ...]:
    """Widths of the hidden layers: those of the settings, or of a list of layers."""
    specs = parse_layers(options.layers)
    if len(specs) == 1:  # one entry for all layers
        return tuple(specs[0].width or width for width in options.hidden)
    last = len(specs) - (0 if ends_locally(options) else 1)
    given = options.hidden if len(options.hidden) == last else options.hidden[:1] * last
    if len(given) != last or len(options.hidden) > max(1, last):
        raise GossamerError(
            f"layers = {options.layers!r} has {last} hidden layers, and hidden = {list(options.hidden)} "
            f"{len(options.hidden)} widths; give one width for each, or one for all"
        )
    return tuple(spec.width or width for spec, width in zip(specs[:last], given, strict=True))


def ends_locally(options: NetworkOptions) -> bool:
    """Graph layers are all hidden ones, and a linear map of each vertex by itself makes the output."""
    return options.jump != "none" or bool(options.after)


# Least and largest values of numbers; a largest one of a share is not taken itself
_WHOLE = {"width": (1, MOST_WIDTH), "order": (1, MOST_ORDER), "heads": (1, MOST_HEADS), "inner": (1, MOST_WIDTH)}
_REAL = {"negative_slope": (0.0, MOST_FACTOR), "epsilon": (-MOST_FACTOR, MOST_FACTOR)}
_SHARES = ("attention_dropout", "dropout", "teleport")
_NAMES = {
    "kind": LAYER_NAMES,
    "aggregate": AGGREGATE_NAMES,
    "activation": ACTIVATION_NAMES,
    "norm": NORM_NAMES,
}


def check_norm(value: str) -> str:
    """Refuse unknown kinds of normalisation, and those over vertices with a reason."""
    if any(name in value.lower() for name in ("batch", "graph", "instance")):
        raise ValueError(
            "normalisation over vertices (BatchNorm, GraphNorm, InstanceNorm) would need sums over all agents in every "
            "step; take norm = 'layer', LayerNorm, which normalises each vertex by itself"
        )
    return NORM_NAMES.check(value)


def _check_kind(value: str) -> str:
    if value in LAYER_NAMES.names:
        return value
    raise ValueError(
        f"input should be {LAYER_NAMES.list_names()}, or a list of them as in gat:heads=4/gcn, got {value[:80]!r}"
        f"{suggest(value.lower().removesuffix('conv'), LAYER_NAMES.names)}"
    )


def _check(name: str, value: Any) -> Any:
    """An option's value in its own type, from a value or a text."""
    if name in _NAMES:
        if not isinstance(value, str):
            raise ValueError(f"{name} should be a name, got {value!r}")
        return (
            check_norm(value) if name == "norm" else _check_kind(value) if name == "kind" else _NAMES[name].check(value)
        )
    if name in _WHOLE or name in _REAL or name in _SHARES:
        kind: type = int if name in _WHOLE else float
        try:
            if isinstance(value, bool) or (kind is int and isinstance(value, float)):
                raise ValueError
            number = kind(value)
        except (TypeError, ValueError):
            wanted = "a whole number" if kind is int else "a number"
            raise ValueError(f"{name} should be {wanted}, got {str(value)[:80]!r}") from None
        least, most = _WHOLE.get(name) or _REAL.get(name) or (0.0, 1.0)
        if not least <= number <= most or (name in _SHARES and number == most):
            below = "and below" if name in _SHARES else "to"
            raise ValueError(f"{name} should be from {least} {below} {most}, got {number}")
        return number
    if isinstance(value, bool):
        return value
    if value in ("true", "false"):
        return value == "true"
    raise ValueError(f"{name} should be true or false, got {str(value)[:80]!r}")


def _write(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else f"{value}"


def parse_layers(value: Any) -> tuple[LayerSpec, ...]:
    """The layers of a text, a table or a LayerSpec, or of a list of these; ValueError for anything else."""
    if isinstance(value, LayerSpec | Mapping):
        value = [value]
    if isinstance(value, str):
        value = value.replace(" ", "").split("/")
    if not isinstance(value, Sequence) or not value:
        raise ValueError("expected the name of a kind of layers, or a list of layers")
    if len(value) > MOST_LAYERS:
        raise ValueError(f"expected at most {MOST_LAYERS} layers, got {len(value)}")
    return tuple(map(_parse_layer, value))


def _parse_layer(value: Any) -> LayerSpec:
    if isinstance(value, LayerSpec):
        return value
    if isinstance(value, str):
        kind, colon, rest = value.partition(":")
        options: dict[str, Any] = {"kind": kind}
        for part in rest.split(",") if colon else ():
            name, equals, text = part.partition("=")
            name = name.replace("-", "_")
            if not equals or name in options:
                raise ValueError(f"expected options as in gat:heads=4,width=32, got {value[:80]!r}")
            options[name] = text
    elif isinstance(value, Mapping):
        options = dict(value)
    else:
        raise ValueError(f"expected a layer as a text or a table, got {str(value)[:80]!r}")
    known = [one.name for one in fields(LayerSpec)]
    unknown = [str(name) for name in options if name not in known]
    if unknown:
        raise ValueError(
            f"a layer has no option {unknown[0][:80]!r}, known: {', '.join(known)}{suggest(unknown[0], known)}"
        )
    if "kind" not in options:
        raise ValueError(f"a layer needs a kind, as in {{kind = 'gat'}}: {LAYER_NAMES.list_names()}")
    return LayerSpec(**options)


def normalise_layers(value: Any) -> str:
    """The text of one or several layers, as it stands in settings."""
    return "/".join(map(str, parse_layers(value)))
