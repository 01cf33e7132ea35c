"""Inductive prediction: a trained network on another graph with the same features, centrally or over the agents."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gossamer.data import DATASETS, DataGraph, from_networkx, load
from gossamer.data.unlabelled import convert_unlabelled, drop_labels, read_unlabelled
from gossamer.errors import GossamerError
from gossamer.runs.run import StartRun, restore_weights
from gossamer.runs.settings import Settings
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
    D of the new graph.
    """
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
    graph = drop_labels(given, trained.num_outputs, names, trained.task)
    settings = trained.settings.model_copy(update=_prediction_settings(trained.settings, over_agents))
    transform, standardised = trained.transform, graph
    if transform is not None:
        standardised = replace(graph, features=transform.apply_to_features(graph.features, settings.dtype))
    params = trained.params
    if not over_agents:
        params = {name: part[None] for name, part in trained.select().items()}
    with torch.inference_mode():
        run = restore_weights(start(standardised, settings, shift=shift), params, trained.step)
        outputs = run.predict() if transform is None else transform.restore_outputs(run.predict())
        return Prediction(graph, outputs, run.deployment.assignment if over_agents else None)


def _prediction_settings(settings: Settings, over_agents: bool) -> dict[str, Any]:
    """Changed settings: nothing is trained, so that agents need the links of the data alone."""
    common: dict[str, Any] = {
        "standardise": False,  # by the network's own transform
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
    designed = TOPOLOGIES[settings.topology].design is not None
    return common | ({"topology": "needed"} if designed else {})
