"""Predictions as CSV: every vertex with its agent and its class or value."""

import csv
import io
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from gossamer.data import DataGraph
from gossamer.files import write_atomically


def write_predictions(path: Path, graph: DataGraph, assignment: NDArray[np.int64], outputs: Tensor) -> None:
    """Write columns vertex, agent, class, probability; or vertex, agent(, time), value_0, ... for real values."""
    names = graph.names or [str(i) for i in range(graph.num_vertices)]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    if graph.num_classes is not None:
        class_names = graph.class_names or [str(c) for c in range(graph.num_classes)]
        chance, classes = (t.tolist() for t in outputs.softmax(-1).max(-1))
        writer.writerow(["vertex", "agent", "class", "probability"])
        writer.writerows(
            (name, k, class_names[c], f"{p:.6f}")
            for name, k, c, p in zip(names, assignment.tolist(), classes, chance, strict=True)
        )
    else:
        timed = outputs.ndim == 3
        values = outputs if timed else outputs[:, None]
        writer.writerow(
            ["vertex", "agent", *(["time"] if timed else []), *(f"value_{q}" for q in range(outputs.shape[-1]))]
        )
        for name, k, rows in zip(names, assignment.tolist(), values.tolist(), strict=True):
            writer.writerows([name, k, *([t] if timed else []), *row] for t, row in enumerate(rows))
    write_atomically(path, text.getvalue().encode())
