"""Initial weights from a model file or a state dict: all agents start from the same ones.

Weights belong to the features that they were trained on: those of a model file to standardised ones as the file beside
it says, those of a state dict to the features as they are. A run directory and the shards keep a copy, so that a run
goes on without the file that it began with.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gossamer.agents.host import Host
from gossamer.data.standardisation import Transform
from gossamer.errors import GossamerError
from gossamer.layer_specs import NetworkOptions, PygNetwork
from gossamer.model import Network
from gossamer.model.encoder import has_encoder
from gossamer.model.state_dicts import from_state_dict, to_state_dict
from gossamer.runs.options import Options
from gossamer.runs.settings import Settings
from gossamer.runs.tensors import read_tensors
from gossamer.runs.transforms import read_transform_beside


@dataclass(frozen=True)
class InitialWeights:
    """One agent's weights, and the transform of the features and targets that they belong to."""

    params: dict[str, NDArray[Any]]  # `layer.0.weight` and so on
    transform: Transform | None


DROPOUTS = ("dropout", "input_dropout", "attention_dropout")
# A state dict, a model of PyTorch Geometric, a model file, or those of another run
GivenWeights = Mapping[str, Any] | PygNetwork | Path | InitialWeights


def split_initial(options: Options) -> tuple[Options, GivenWeights | None]:
    """Options that settings take, and initial weights from memory. A model of PyTorch Geometric brings the settings of
    its network, of which given ones may change dropout."""
    initial = options.get("initial")
    rest = cast(Options, {name: value for name, value in options.items() if name != "initial"})
    if isinstance(initial, PygNetwork):
        _check_overrides(initial, rest)
        return cast(Options, {**initial.settings, **rest}), initial
    if initial is None or isinstance(initial, Mapping):
        return rest, initial
    if not isinstance(initial, str | Path):
        raise GossamerError(
            "initial should be a .safetensors file, a run directory, a state dict or what gossamer.from_pyg_module "
            f"makes of a module of PyTorch Geometric, got {type(initial).__name__}"
        )
    rest["initial"] = str(initial)
    return rest, None


def _check_overrides(network: PygNetwork, given: Options) -> None:
    """Refuse settings of the network that a module of PyTorch Geometric has already, but for dropout."""
    for one in fields(NetworkOptions):
        theirs = network.settings.get(one.name, one.default)
        if one.name in given and one.name not in DROPOUTS and given[one.name] != theirs:  # type: ignore[literal-required]
            raise GossamerError(
                f"{one.name} is that of the module which gossamer.from_pyg_module has read, {theirs!r}, got "
                f"{given[one.name]!r}; leave it out, or build another module ({', '.join(DROPOUTS)} may be given)"  # type: ignore[literal-required]
            )


def take_initial(given: GivenWeights | None, settings: Settings, network: Network) -> InitialWeights | None:
    """Initial weights from a state dict in the names of model/modules.py, or from a file: that of the settings where
    none is given."""
    if given is None and settings.initial is not None:
        given = Path(settings.initial)
    if given is None or isinstance(given, InitialWeights):
        return given
    if settings.encodes:
        raise GossamerError(
            "initial weights are for networks without an encoder; leave out initial, or encoder and privacy"
        )
    transform: Transform | None = None
    if isinstance(given, PygNetwork):
        widths = network.layers[0].inputs, network.layers[-1].outputs
        if widths != (given.inputs, given.outputs):
            raise GossamerError(
                f"expected a module of {widths[0]} features and {widths[1]} outputs, as the data has them, got one of "
                f"{given.inputs} and {given.outputs}; build it with in_channels={widths[0]}, out_channels={widths[1]}"
            )
        transform = given.transform
    if isinstance(given, Path) and given.is_dir():
        return _take_trained(given, settings, network)
    if isinstance(given, Path):
        source, state = str(given), dict[str, Any](read_tensors(given))
    else:
        source, state = "the initial state dict", dict(given.weights if isinstance(given, PygNetwork) else given)
    if has_encoder(state):
        raise GossamerError(
            f"{source} is of a model with an encoder, and initial weights are for networks of the features themselves; "
            "start from a model that was trained without --encoder"
        )
    if isinstance(given, Path):
        transform = read_transform_beside(given, network.layers[0].inputs, network.layers[-1].outputs)
    wrong = [name for name, part in state.items() if not isinstance(part, Tensor)]
    if wrong:
        raise GossamerError(f"{source}: expected tensors by name, got {type(state[wrong[0]]).__name__} {wrong[0]!r}")
    params = from_state_dict(network, {name: part.cpu() for name, part in state.items()}, source)
    initial = {name: part.to(settings.torch_dtype).numpy() for name, part in params.items()}
    wrong = [name for name, part in initial.items() if not np.isfinite(part).all()]
    if wrong:
        raise GossamerError(f"{source}: {wrong[0]} has numbers beyond {settings.dtype}")
    return InitialWeights(initial, transform)


def _take_trained(folder: Path, settings: Settings, network: Network) -> InitialWeights:
    """The mean weights of a run directory, or of an agent's folder."""
    from gossamer.runs.trained import read_trained  # which reads runs, and these may start from weights

    trained = read_trained(folder)
    if trained.encoder is not None:
        raise GossamerError(
            f"{folder} is of a network with an encoder, and initial weights are for networks of the features "
            "themselves; start from a run without --encoder"
        )
    state = to_state_dict(trained.network, trained.select())
    params = from_state_dict(network, state, str(folder))
    found = {name: part.to(settings.torch_dtype).numpy() for name, part in params.items()}
    return InitialWeights(found, trained.transform)


def start_from(host: Host, initial: Mapping[str, NDArray[Any]] | None) -> Host:
    """The host at step 0 with these weights at all its agents; the state of updates and consensus starts from zeros or
    random numbers, whatever the weights."""
    if initial is None:
        return host
    params = {
        name: torch.from_numpy(initial[name]).to(own.dtype).expand_as(own).contiguous()
        for name, own in host.params.items()
    }
    return host.with_params(params)
