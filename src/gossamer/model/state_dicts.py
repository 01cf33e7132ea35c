"""Weights under the names of PyTorch Geometric's modules, and back (model/modules.py has the names)."""

from collections.abc import Mapping
from typing import cast

import torch
from torch import Tensor

from gossamer.errors import GossamerError
from gossamer.model.encoder import to_encoder_state
from gossamer.model.layers import Layer
from gossamer.model.layers.names import Alias, NamedParameters, their_shape, to_ours, to_theirs
from gossamer.model.network import Network, Params

FIT_REMEDY = (
    "set --layers, --hidden, --heads, --order, --bias and so on as its network has them, or take what "
    "gossamer.from_pyg_module makes of a module of PyTorch Geometric"
)


def list_aliases(layer: Layer) -> list[Alias]:
    """Names of a layer's parameters in the module; those of layers from outside the package stay as they are."""
    if hasattr(layer, "aliases"):
        return list(cast(NamedParameters, layer).aliases())
    return [Alias(name, name) for name in layer.parameters()]


def to_state_dict(network: Network, params: Mapping[str, Tensor], encoder: Params | None = None) -> dict[str, Tensor]:
    """One agent's weights, and of its encoder if there is one, under the module's names."""
    state = {} if encoder is None else to_encoder_state(encoder)
    for index, layer in enumerate(network.layers):
        own = {name: params[f"layer.{index}.{name}"] for name in layer.parameters()}
        state |= {f"convs.{index}.{name}": part for name, part in to_theirs(list_aliases(layer), own).items()}
    return state


def from_state_dict(network: Network, state: Mapping[str, Tensor], source: str) -> Params:
    """One agent's weights from those under the module's names, which must fit the network."""
    expected: dict[str, tuple[int, ...]] = {}
    named: dict[str, Alias] = {}
    for index, layer in enumerate(network.layers):
        shapes = {name: parameter.shape for name, parameter in layer.parameters().items()}
        for alias in list_aliases(layer):
            named[f"convs.{index}.{alias.theirs}"] = alias
            expected[f"convs.{index}.{alias.theirs}"] = their_shape(alias, shapes)
    for what, names in (("has no", set(expected) - set(state)), ("has an unknown", set(state) - set(expected))):
        if names:
            raise GossamerError(
                f"{source} does not fit the network: it {what} {min(names)[:80]}; the settings want "
                f"{', '.join(f'{name} {list(shape)}' for name, shape in expected.items())}; {FIT_REMEDY}"
            )
    for name, shape in expected.items():
        if tuple(state[name].shape) != shape:
            raise GossamerError(
                f"{source} does not fit the network: {name} should be {list(shape)}"
                f"{' (out, in)' if named[name].form == 'transposed' else ''}, found {list(state[name].shape)}; "
                f"{FIT_REMEDY}"
            )
        if not (state[name].is_floating_point() and bool(state[name].isfinite().all())):
            raise GossamerError(f"{source}: {name} should hold finite real numbers")
        constant = torch.full_like(state[name], named[name].constant)
        if named[name].ours is None and not torch.equal(state[name], constant):
            raise GossamerError(
                f"{source} does not fit the network: {name} is {state[name].item()}, and the settings have "
                f"{named[name].constant}; set --epsilon as its network has it, or --learn-epsilon"
            )
    params: Params = {}
    for index, layer in enumerate(network.layers):
        aliases = list_aliases(layer)
        own = {alias.theirs: state[f"convs.{index}.{alias.theirs}"] for alias in aliases}
        params |= {f"layer.{index}.{name}": part for name, part in to_ours(aliases, own).items()}
    return params
