"""Predictions as CSV: every vertex with its agent and its class, labels or values."""

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from gossamer.data import DataGraph, name_classes
from gossamer.data.label_tables import JOINT, NONE_OF_THEM
from gossamer.files import ALL_MAY_READ, PRIVATE, write_atomically

if TYPE_CHECKING:
    from gossamer.peers.prediction import AgentPrediction

CHANCE = 0.5  # above which a label is predicted


def write_predictions(
    path: Path,
    graph: DataGraph,
    assignment: NDArray[np.int64] | None,
    outputs: Tensor,
    probabilities: bool = False,
) -> None:
    """Write columns vertex, agent, class, probability; or vertex, agent(, time), value_0, ... for real values; or
    vertex, agent, labels, probability_NAME, ... for labels, joined as in labels.csv.

    Without an assignment there is no column agent. `probabilities` adds a column probability_NAME for each class.
    """
    names = graph.names or [str(i) for i in range(graph.num_vertices)]
    _write(path, names, assignment, outputs, name_classes(graph), graph.task, probabilities)


def write_agent_predictions(path: Path, found: "AgentPrediction") -> dict[str, tuple[str, float]]:
    """Write the predictions of one agent's vertices, with a column for each class, and return the accuracy or mean
    squared error on each mask of its vertices that have targets."""
    identity, task = found.identity, found.identity.task or "multiclass"
    names = identity.class_names
    if names is None and task != "regression":
        names = [str(c) for c in range(found.outputs.shape[-1])]
    agents = np.full(len(found.vertices), found.share.agents[0])
    _write(
        path,
        found.names,
        agents,
        found.outputs,
        names,
        task,
        probabilities=True,
        mode=PRIVATE,
    )
    return found.score()


def _write(
    path: Path,
    names: Sequence[str],
    assignment: NDArray[np.int64] | None,
    outputs: Tensor,
    class_names: Sequence[str] | None,
    task: str,
    probabilities: bool,
    mode: int = ALL_MAY_READ,
) -> None:
    owners: list[list[int]] = [[]] * len(names) if assignment is None else [[k] for k in assignment.tolist()]
    first = ["vertex"] if assignment is None else ["vertex", "agent"]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    if class_names is not None and task == "multilabel":
        writer.writerow([*first, "labels", *(f"probability_{name}" for name in class_names)])
        for name, k, row in zip(names, owners, outputs.sigmoid().tolist(), strict=True):
            found = [label for label, chance in zip(class_names, row, strict=True) if chance > CHANCE]
            writer.writerow([name, *k, JOINT.join(found) or NONE_OF_THEM, *(f"{chance:.6f}" for chance in row)])
    elif class_names is not None:
        chances = outputs.softmax(-1)
        chance, classes = (t.tolist() for t in chances.max(-1))
        more = [f"probability_{name}" for name in class_names] if probabilities else []
        writer.writerow([*first, "class", "probability", *more])
        all_chances: list[list[float]] = chances.tolist() if probabilities else [[]] * len(names)
        writer.writerows(
            (name, *k, class_names[c], f"{p:.6f}", *(f"{q:.6f}" for q in every))
            for name, k, c, p, every in zip(names, owners, classes, chance, all_chances, strict=True)
        )
    else:
        timed = outputs.ndim == 3
        values = outputs if timed else outputs[:, None]
        writer.writerow([*first, *(["time"] if timed else []), *(f"value_{q}" for q in range(outputs.shape[-1]))])
        for name, k, rows in zip(names, owners, values.tolist(), strict=True):
            writer.writerows([name, *k, *([t] if timed else []), *row] for t, row in enumerate(rows))
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, text.getvalue().encode(), mode)
