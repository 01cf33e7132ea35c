"""Predictions of a run for the vertices of its data set, held against the targets: confusions, errors, agents."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gossamer.agents.share import MASKS
from gossamer.array_types import Floats, Ints
from gossamer.data import DataGraph, name_classes
from gossamer.data.tasks import Task
from gossamer.engines.simulation import start_run
from gossamer.runs.directory import read_weights

HELD_OUT = ("test", "validation")
MOST_POINTS = 600  # of a scatter plot
BINS = 41
TAIL = 0.005  # of the errors at each end, which share the outermost bars


@dataclass(frozen=True)
class Errors:
    """Errors of real values on a mask: prediction minus target, in the units of the targets."""

    count: int
    bias: float
    mae: float
    rmse: float
    edges: list[float]  # of the bars of a histogram [bars + 1]
    heights: list[int]
    points: list[tuple[float, float]]  # target and prediction of some of them


@dataclass(frozen=True)
class AgentScores:
    """An agent's vertices, and how well they are predicted; None without any."""

    vertices: int
    labels: int  # training examples
    scores: dict[str, float | None]  # by mask: accuracy, micro F1 or mean absolute error


@dataclass(frozen=True)
class HeldOut:
    """Counts of a run's predictions, each vertex by its own agent's weights."""

    task: Task
    score: str  # of agents
    classes: list[str]
    confusions: dict[str, Ints]  # by mask: actual class [C] by predicted class [C]
    labels: dict[str, Ints]  # by mask: true positives, false positives, false negatives, true negatives [C, 4]
    errors: dict[str, Errors]  # by mask
    agents: list[AgentScores]
    num_vertices: int
    num_edges: int


def judge_run(folder: Path, graph: DataGraph) -> HeldOut:
    """Predict the data set of a run directory and hold the predictions against the targets."""
    run = read_weights(folder, graph, start_run)
    outputs = run.predict().double().numpy()
    owner, task = run.deployment.assignment, graph.task
    found = outputs.argmax(-1) if task == "multiclass" else outputs > 0 if task == "multilabel" else outputs
    classes = name_classes(graph) or []
    masks = {name: getattr(graph, name) for name in MASKS}
    held = {name: masks[name] for name in HELD_OUT if masks[name].any()}
    targets = graph.targets
    return HeldOut(
        task,
        {"multiclass": "accuracy", "multilabel": "micro_f1", "regression": "mae"}[task],
        classes,
        {n: _confuse(targets[m], found[m], len(classes)) for n, m in held.items() if task == "multiclass"},
        {n: _count_labels(targets[m], found[m]) for n, m in held.items() if task == "multilabel"},
        {n: _measure_errors(targets[m], found[m]) for n, m in held.items() if task == "regression"},
        [_score_agent(task, owner == k, masks, targets, found) for k in range(run.settings.agents)],
        graph.num_vertices,
        graph.num_edges,
    )


def _confuse(actual: Any, found: Any, num_classes: int) -> Ints:
    counts = np.bincount(actual * num_classes + found, minlength=num_classes**2)
    return np.asarray(counts.reshape(num_classes, num_classes), dtype=np.int64)


def _count_labels(actual: Any, found: Any) -> Ints:
    pairs = (actual & found, ~actual & found, actual & ~found, ~actual & ~found)
    return np.stack([part.sum(0) for part in pairs], axis=1).astype(np.int64)


def _measure_errors(actual: Floats, found: Floats) -> Errors:
    y, z = np.asarray(actual, dtype=np.float64).ravel(), np.asarray(found, dtype=np.float64).ravel()
    e = z - y
    low, high = np.quantile(e, [TAIL, 1 - TAIL])
    reach = float(max(abs(low), abs(high))) or 1.0
    heights, edges = np.histogram(np.clip(e, -reach, reach), BINS, (-reach, reach))
    chosen = np.unique(np.linspace(0, len(y) - 1, min(len(y), MOST_POINTS)).round().astype(int))
    return Errors(
        len(e),
        float(e.mean()),
        float(abs(e).mean()),
        float(np.sqrt(np.square(e).mean())),
        edges.tolist(),
        heights.tolist(),
        list(zip(y[chosen].tolist(), z[chosen].tolist(), strict=True)),
    )


def _score_agent(task: Task, own: Any, masks: dict[str, Any], targets: Any, found: Any) -> AgentScores:
    scores = {}
    for name, mask in masks.items():
        chosen = mask & (own if mask.ndim == 1 else own[:, None])
        scores[name] = _score(task, targets[chosen], found[chosen]) if chosen.any() else None
    train = masks["train"]
    return AgentScores(int(own.sum()), int(train[own].sum()), scores)


def _score(task: Task, actual: Any, found: Any) -> float:
    if task == "multiclass":
        return float((actual == found).mean())
    if task == "regression":
        return float(abs(found - actual).mean())
    both = actual.sum() + found.sum()
    return float(2 * (actual & found).sum() / both) if both else 0.0
