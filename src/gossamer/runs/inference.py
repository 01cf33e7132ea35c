"""Inductive prediction: a trained network on another graph with the same features, centrally or over the agents."""

import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gossamer.data import DATASETS, DataGraph, from_networkx, load
from gossamer.data.unlabelled import convert_unlabelled, drop_labels, read_unlabelled
from gossamer.errors import GossamerError, GossamerWarning
from gossamer.model.encoder import encode_features
from gossamer.runs.link_sequences import find_base
from gossamer.runs.run import StartRun, restore_weights
from gossamer.runs.settings import Settings
from gossamer.runs.stages import check_encoded_data
from gossamer.runs.trained import Trained
from gossamer.topology import TOPOLOGIES


@dataclass(frozen=True)
class Prediction:
    """Outputs of a network for each vertex of a graph: logits of the classes or labels, or values [n(, time),
    outputs]."""

    graph: DataGraph  # without labels, with the class names of the network
    outputs: Tensor
    assignment: NDArray[np.int64] | None  # a(i) [n]; None: central


def load_unlabelled(data: Any, settings: Settings) -> DataGraph:
    """The graph of what `load` takes; labels are not needed, but in a NetworkX graph."""
    if isinstance(data, DataGraph):
        return data
    if hasattr(data, "is_directed") and hasattr(data, "nodes"):
        return from_networkx(data, symmetrise=settings.symmetrise, task=settings.task)
    if not isinstance(data, str | Path):
        return convert_unlabelled(data, settings.symmetrise)
    path = Path(data)
    named = str(data).partition(":")[0] in DATASETS
    if not named and (path.is_dir() or (path.suffix == ".npz" and path.is_file())):
        return read_unlabelled(path, settings.symmetrise)
    return load(data, settings.seed)  # a name, or the error for what is none


def predict_unlabelled(
    trained: Trained, data: Any, start: StartRun, over_agents: bool = False, shift: Any = None
) -> Prediction:
    """Predict for every vertex of a graph that the network was not trained on.

    Centrally, with the mean of the agents' weights; or `over_agents`, to which the vertices are assigned by the run's
    method, each vertex with its own agent's weights. `start` makes the run. A run with a D that the user gave needs the
    D of the new graph. An encoder is the mean of the agents' in both cases: they differ by the agents' disagreement
    only, and the new vertices were with no agent when it was trained.
    """
    trained.require_features()
    given = load_unlabelled(data, trained.settings)
    if given.num_features != trained.num_features:
        raise GossamerError(
            f"the network has {trained.num_features} features as input, and {given.name} has {given.num_features}; "
            "give the same columns in the same order"
        )
    if trained.own_shift and shift is None:
        raise GossamerError("the network was trained with a D that was given: give shift=, the D of this graph")
    names = None if trained.class_names is None else tuple(trained.class_names)
    if names is not None and given.batch is not None:
        raise GossamerError(f"the network predicts classes, and {given.name} has a time axis: expected features [n, d]")
    if trained.encoder is not None:
        check_encoded_data(trained.settings, trained.task, given.batch, False, given.name)
    graph = drop_labels(given, trained.num_outputs, names, trained.task)
    settings = trained.settings.model_copy(update=_prediction_settings(trained.settings, over_agents))
    transform, encoder, features = trained.transform, trained.select_encoder(), graph.features
    if transform is not None:
        features = transform.apply_to_features(features, settings.dtype)
    if encoder is not None:
        features = encode_features(features, encoder)
    params = trained.params
    if not over_agents:
        params = {name: part[None] for name, part in trained.select().items()}
    with torch.inference_mode():
        run = restore_weights(start(replace(graph, features=features), settings, shift=shift), params, trained.step)
        outputs = run.predict() if transform is None else transform.restore_outputs(run.predict())
        return Prediction(graph, outputs, run.deployment.assignment if over_agents else None)


def score_labelled(trained: Trained, data: str | Path, outputs: Tensor) -> dict[str, float] | None:
    """Score of predictions for data that has labels: accuracy, the micro F1 of several labels a vertex, or the mean
    squared error; None if it has none that are as training takes them. Classes are compared by name, or by number where
    the data has no names, and those that the network does not know are never right."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", GossamerWarning)  # the graph was read, and warned of, before
            graph = load(data, trained.settings.seed, symmetrise=trained.settings.symmetrise, task=trained.task)
    except GossamerError:
        return None
    found, actual = outputs.numpy(), graph.targets
    used = graph.train | graph.validation | graph.test
    if trained.task == "regression":
        if actual.shape != found.shape or not used.any():
            return None
        return {"mse": float(np.square(found[used] - actual[used]).mean())}
    known = trained.class_names or []
    order = known[: graph.num_classes] if graph.class_names is None else list(graph.class_names)
    if trained.task == "multilabel":
        if order != known or actual.shape != found.shape:
            return None
        decided, actual = found[used] > 0, actual[used]
        right, both = (decided & actual).sum(), decided.sum() + actual.sum()
        return {"micro_f1": float(2 * right / both) if both else 0.0}
    position = {name: number for number, name in enumerate(known)}
    numbers = np.full(max(graph.num_outputs, len(order)), -1)  # of classes that the network does not know
    numbers[: len(order)] = [position.get(name, -1) for name in order]
    labelled = actual >= 0
    if not labelled.any():
        return None
    return {"accuracy": float((found.argmax(1)[labelled] == numbers[actual[labelled]]).mean())}


def _prediction_settings(settings: Settings, over_agents: bool) -> dict[str, Any]:
    """Changed settings: nothing is trained, so that agents need the links of the data alone."""
    common: dict[str, Any] = {
        "standardise": False,  # by the network's own transform
        "encoder": 0,  # likewise
        "batch": 0,
        "consensus_every": 0,
        "consensus": "plain",
        "compress": "none",
        "initial": None,
        "score": "auto",
        "class_weights": "none",
    }
    if not over_agents:
        return common | {"agents": 1, "assignment": "bfs", "topology": "complete", "keep_links": 1.0}
    base = find_base(settings.topology)
    designed = TOPOLOGIES[base].design is not None
    return common | {"topology": "needed" if designed else base}
