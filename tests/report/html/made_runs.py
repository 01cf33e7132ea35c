"""Run directories made as fast as they can be: small runs, and one with many evaluations written by hand."""

import json
import math
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import gossamer
from gossamer.experiments import verdicts
from gossamer.experiments.reproduction import Claim, Outcome
from gossamer.report.style import save_figure

HOSTILE = "</script><img src=x onerror=alert(1)><!-- & \"quoted\" 'names'"
SMALL = {"agents": 3, "hidden": 8, "steps": 6, "evaluate_every": 2}


def train_small(folder: Path, **options: object) -> Path:
    """A finished run on the digits."""
    gossamer.train("digits", out=folder, **{**SMALL, **options})  # type: ignore[arg-type]
    return folder


def train_values(folder: Path) -> Path:
    """A finished run on a small graph with real values, kept as a file beside it."""
    random = np.random.default_rng(0)
    features = random.normal(size=(40, 3))
    edges = np.array([(i, i + 1) for i in range(39)])
    masks = {name: np.arange(40) % 3 == k for k, name in enumerate(("train", "validation", "test"))}
    targets = features[:, :1] + 0.1 * random.normal(size=(40, 1))
    graph = gossamer.make_graph("line", edges, features, targets, **masks)
    graph.save(folder.parent / "line.npz")
    gossamer.train(str(folder.parent / "line.npz"), out=folder, **{**SMALL, "baselines": False})  # type: ignore[arg-type]
    return folder


def train_labels(folder: Path) -> Path:
    """A finished run on a small graph with several labels a vertex, kept as a file beside it."""
    random = np.random.default_rng(0)
    features = random.normal(size=(40, 3))
    edges = np.array([(i, i + 1) for i in range(39)])
    masks = {name: np.arange(40) % 3 == k for k, name in enumerate(("train", "validation", "test"))}
    names = ("red", HOSTILE)
    graph = gossamer.make_graph("labels", edges, features, features[:, :2] > 0, class_names=names, **masks)
    graph.save(folder.parent / "labels.npz")
    gossamer.train(str(folder.parent / "labels.npz"), out=folder, **{**SMALL, "baselines": False})  # type: ignore[arg-type]
    return folder


def train_classes(folder: Path, names: Sequence[str]) -> Path:
    """A finished run on a small graph with classes of such names, kept as a file beside it."""
    random = np.random.default_rng(0)
    labels = np.arange(20 * len(names)) // 3 % len(names)
    features = labels[:, None] + random.normal(size=(len(labels), 3))
    edges = np.array([(i, i + 1) for i in range(len(labels) - 1)])
    masks = {name: np.arange(len(labels)) % 3 == k for k, name in enumerate(("train", "validation", "test"))}
    graph = gossamer.make_graph("classes", edges, features, labels, class_names=tuple(names), **masks)
    graph.save(folder.parent / "classes.npz")
    gossamer.train(str(folder.parent / "classes.npz"), out=folder, **{**SMALL, "baselines": False})  # type: ignore[arg-type]
    return folder


def lengthen(source: Path, folder: Path, evaluations: int) -> Path:
    """A copy of a run directory with so many evaluations of it and of its references."""
    shutil.copytree(source, folder)
    for name in ("metrics.jsonl", "references.jsonl"):
        records = [json.loads(line) for line in (folder / name).read_text().splitlines()]
        models = list(dict.fromkeys(record.get("model") for record in records))
        with (folder / name).open("w") as file:
            for model in models:
                record = next(one for one in records if one.get("model") == model)
                for step in range(evaluations):
                    record["step"] = step
                    for mask in ("train", "validation", "test"):
                        record[mask]["loss"] = 1 + math.sin(step / 7) / 2 + 1 / (1 + step)
                    file.write(json.dumps(record) + "\n")
    return folder


def reproduce_fake(folder: Path, **made: Any) -> Path:
    """A folder as `gossamer reproduce` writes it, with two parts that were never measured."""
    from matplotlib.figure import Figure

    outcomes = []
    for name, holds in (("fig2", True), ("fig6", False)):
        (folder / name).mkdir(parents=True)
        figure = Figure(figsize=(2, 1))
        figure.subplots().plot([0, 1])
        save_figure(figure, folder / name / f"{name}.png")
        claims = [
            Claim(f"the paper's number of {name} is {HOSTILE}", "17.5 %", holds),
            Claim("more", "1", True, ours=True),
        ]
        outcomes.append(Outcome(name, claims, [f"{name}.png"], **made))
    verdicts.save(folder, outcomes)
    return folder
