"""Model files: one agent's weights or their mean as safetensors in PyTorch Geometric's names, with a card beside them.

model.safetensors              `convs.0.lin.weight` and so on (model/modules.py), with those of an encoder if there is
                               one; its header says of which network
model.transform.safetensors    how features and targets were standardised, if they were
model.md                       the card: data, settings, scores, versions, how to load it
"""

import platform
from collections.abc import Collection
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch

from gossamer.choices import AGGREGATE_NAMES, JUMP_NAMES, NORM_NAMES
from gossamer.errors import GossamerError, shown
from gossamer.files import read_bytes, write_atomically
from gossamer.layer_specs import read_options
from gossamer.model import ACTIVATIONS, SHIFTS, Network, build_layers
from gossamer.model.encoder import split_encoder_state
from gossamer.model.modules import (
    GIVEN_SHIFT,
    GraphNetwork,
    make_module,
)
from gossamer.model.pyg_layers import PYG_MODELS, find_pyg_layer
from gossamer.model.state_dicts import from_state_dict, to_state_dict
from gossamer.runs.documents import parse_json, to_json, validate
from gossamer.runs.manifests import ModelHeader
from gossamer.runs.model_cards import CARD_TITLE, write_card
from gossamer.runs.run_json import GOSSAMER_VERSION
from gossamer.runs.tensors import read_file, write_tensors
from gossamer.runs.trained import Trained
from gossamer.runs.transforms import find_transform_beside, read_transform_beside, write_transform

MODEL_SUFFIX = ".safetensors"


def export_model(trained: Trained, path: Path, agent: int | None = None) -> tuple[Path, Path]:
    """Write the model file and its card; return both."""
    trained.require_features()
    if path.suffix != MODEL_SUFFIX:
        raise GossamerError(f"expected a file name that ends in {MODEL_SUFFIX}, got {shown(str(path))}")
    card = path.with_suffix(".md")
    if card.exists() and not read_bytes(card, 1 << 20).startswith(CARD_TITLE.encode()):
        raise GossamerError(f"{card} would be the model's card, and it is another file; choose another name")
    header = make_header(trained, agent)
    state = to_state_dict(trained.network, trained.select(agent), trained.select_encoder(agent))
    path.parent.mkdir(parents=True, exist_ok=True)
    if trained.transform is not None:
        write_transform(find_transform_beside(path), trained.transform)
    else:  # of a model that stood here before
        find_transform_beside(path).unlink(missing_ok=True)
    write_tensors(path, state, model=to_json(header.model_dump()))
    versions = {
        "gossamer": GOSSAMER_VERSION,
        "torch": torch.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
    }
    write_atomically(card, write_card(path.name, header, state, trained, versions).encode())
    return path, card


def make_header(trained: Trained, agent: int | None) -> ModelHeader:
    """Architecture of a trained network, and of whom the weights are."""
    settings = trained.settings
    pyg = find_pyg_layer(trained.network, trained.shift)
    if pyg in PYG_MODELS.values() and trained.encoder is not None:  # none of the models has an encoder
        pyg = None
    described: dict[str, Any] = {
        name: list(part) if isinstance(part, tuple) else part for name, part in asdict(settings.network).items()
    }
    return ModelHeader(
        **described,
        shift=trained.shift,
        inputs=trained.num_features,
        outputs=trained.num_outputs,
        weights=f"mean of {trained.num_agents} agents" if agent is None else f"agent {agent} of {trained.num_agents}",
        pyg=pyg,
        class_names=trained.class_names,
        standardised=trained.transform is not None,
        task=trained.task,
        encoder=0 if trained.encoder is None else trained.network.layers[0].inputs,
    )


def read_model(path: str | Path) -> GraphNetwork:
    """The module of a model file, with its weights, ready for evaluation."""
    source = Path(path)
    state, about = read_file(source)
    if "model" not in about:
        raise GossamerError(f"{source} does not say of which network it is: it was not written by gossamer export")
    header = validate(ModelHeader, parse_json(about["model"].encode(), str(source)), str(source))
    network = _build(header, source)
    dtypes = {part.dtype for part in state.values()}
    if len(dtypes) > 1:
        raise GossamerError(f"{source} holds numbers of several types: {', '.join(sorted(map(str, dtypes)))}")
    transform = read_transform_beside(source, header.inputs, header.outputs) if header.standardised else None
    if header.standardised and transform is None:
        raise GossamerError(
            f"{source} is of a network for standardised features, and {find_transform_beside(source).name} is not "
            "beside it; copy both, or export the model again"
        )
    encoder = None
    if header.encoder:
        encoder, state = split_encoder_state(state, header.inputs, header.encoder, str(source))
    return make_module(network, from_state_dict(network, state, str(source)), header.shift, transform, encoder)


def _build(header: ModelHeader, path: Path) -> Network:
    tables: dict[str, Collection[str]] = {
        "activation": ACTIVATIONS,
        "shift": (*SHIFTS, GIVEN_SHIFT),
        "aggregate": AGGREGATE_NAMES.names,
        "norm": NORM_NAMES.names,
        "jump": JUMP_NAMES.names,
    }
    for name, table in tables.items():
        if getattr(header, name) not in table:
            raise GossamerError(f"{path}: {name} should be among {', '.join(table)}, found {getattr(header, name)!r}")
    try:
        options = read_options(header)
        return build_layers(options, header.encoder or header.inputs, header.outputs)
    except GossamerError as error:
        raise GossamerError(f"{path}: {error}") from None
