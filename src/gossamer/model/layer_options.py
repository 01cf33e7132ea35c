"""Options that a kind of layers has: others are refused on a layer of their own, and have no effect on a network."""

from collections.abc import Iterator, Sequence
from dataclasses import fields

from gossamer.errors import GossamerError
from gossamer.layer_specs import LayerSpec, NetworkOptions, find_widths, parse_layers
from gossamer.model.layers import LAYERS

COMMON_OPTIONS = frozenset({"width", "activation", "bias", "dropout", "residual", "norm"})
KIND_OPTIONS = tuple(one.name for one in fields(LayerSpec) if one.name not in COMMON_OPTIONS | {"kind"})


def has_option(kind: str, name: str) -> bool:
    """Return whether layers of a kind have an option of some kinds."""
    options = LAYERS[kind].options
    return options is None or name in options


def check_entries(specs: Sequence[LayerSpec]) -> None:
    """Refuse options that a layer does not have."""
    for spec in specs:
        for name in KIND_OPTIONS:
            if getattr(spec, name) is not None and not has_option(spec.kind, name):
                having = [kind for kind in LAYERS if has_option(kind, name)]
                own = ", ".join(sorted(LAYERS[spec.kind].options or ())) or "none"
                raise GossamerError(
                    f"{spec}: layers of the kind {spec.kind!r} have no option {name!r}, which is one of "
                    f"{', '.join(having)}; leave it out (its own options: {own})"
                )


def find_unused(options: NetworkOptions) -> Iterator[str]:
    """Names of options that differ from their defaults and that no layer of the network has."""
    specs = parse_layers(options.layers)
    for one in fields(NetworkOptions):
        given = one.name in KIND_OPTIONS and getattr(options, one.name) != one.default
        if given and not any(has_option(spec.kind, one.name) for spec in specs):
            yield one.name
    hidden = len(specs) > 1 or (LAYERS[specs[0].kind].hidden and bool(options.hidden))
    if not hidden:
        yield from (name for name, off in (("residual", False), ("norm", "none")) if getattr(options, name) != off)
    widths = find_widths(options) if hidden else ()
    if options.hidden != NetworkOptions.hidden and len(options.hidden) > 0 and not set(options.hidden) <= set(widths):
        yield "hidden"
