"""A user's graph from three CSV tables in one folder: edges.csv, features.csv and labels.csv."""

import math
from array import array
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gossamer.data.graph import DataGraph, make_graph
from gossamer.data.rows import read_rows
from gossamer.data.splits import split_by_class
from gossamer.errors import GossamerError, naming, one_line, shown

SPLITS = ("train", "validation", "test")


def read_tables(folder: Path, seed: int, per_class: int = 20, symmetrise: bool = False) -> DataGraph:
    """Read a graph whose vertices are named freely (docs/data.md shows the tables).

    edges.csv     source,target[,weight]
    features.csv  vertex,<one column a feature>
    labels.csv    vertex,label[,split]: a class name, or a number for regression; split is train, validation, test

    With `symmetrise`, an edge that is given with different weights has their mean.
    """
    names, features = read_features(folder / "features.csv")
    number = {name: i for i, name in enumerate(names)}
    edges, weights = read_edges(folder / "edges.csv", number)
    labels, splits, lines = read_labels(folder / "labels.csv", number)
    targets, class_names = _targets(folder / "labels.csv", labels, splits, lines)
    if any(splits):
        masks = {split: np.array([s == split for s in splits]) for split in SPLITS}
    elif class_names is None:
        raise GossamerError(
            f"{folder / 'labels.csv'}: real-valued labels need a split column with train, validation or test"
        )
    else:
        with naming(folder / "labels.csv"):
            masks = split_by_class(targets, per_class, min(500, len(names) // 4), seed)
    with naming(folder):
        return make_graph(
            folder.name,
            edges,
            features,
            targets,
            weights=weights,
            names=names,
            class_names=class_names,
            symmetrise=symmetrise,
            **masks,
        )


def _numbers(path: Path, line: int, cells: list[str]) -> list[float]:
    try:
        return [float(cell) for cell in cells]
    except ValueError as error:
        raise GossamerError(f"{path}, line {line}: expected numbers: {one_line(error)}") from None


def read_features(path: Path) -> tuple[tuple[str, ...], NDArray[np.float32]]:
    """Read the names of the vertices and their features [n, d]."""
    _, rows = read_rows(path, 2)
    lines: dict[str, int] = {}
    numbers = array("d")
    for line, row in rows:
        if row[0] in lines:
            raise GossamerError(
                f"{path}, line {line}: vertex {shown(row[0])} stands in more than one row, before in line "
                f"{lines[row[0]]}"
            )
        lines[row[0]] = line
        numbers.extend(_numbers(path, line, row[1:]))
    names = tuple(lines)
    if not names:
        raise GossamerError(f"{path} holds no vertices: the graph is empty")
    with np.errstate(over="ignore"):  # overflow becomes infinite, which is refused below
        features = np.frombuffer(numbers).astype(np.float32).reshape(len(names), -1)
    finite = np.isfinite(features).all(1)
    if not finite.all():
        i = int(finite.argmin())
        raise GossamerError(
            f"{path}, line {lines[names[i]]}: features hold NaN, infinite values or ones beyond float32, the first at "
            f"vertex {i} ({shown(names[i])}); fill or drop them first"
        )
    return names, features


def read_edges(
    path: Path, number: dict[str, int], known: str = "features.csv"
) -> tuple[NDArray[np.int64], NDArray[np.float64] | None]:
    """Read edges [edges, 2] as vertex numbers, and their weights if there is a third column."""
    header, rows = read_rows(path, 2)
    if set(header[:2]) <= set(number):
        raise GossamerError(
            f"{path} needs a header such as source,target; its first line is an edge: {shown(header[:2])}"
        )
    pairs, weights = array("q"), array("d")
    for line, row in rows:
        for name in row[:2]:
            if name not in number:
                raise GossamerError(f"{path}, line {line}: vertex {shown(name)} does not exist in {known}")
        i, j = number[row[0]], number[row[1]]
        for weight in _numbers(path, line, row[2:3]):
            if not 0 < weight < math.inf:
                raise GossamerError(
                    f"{path}, line {line}: edge weights must be positive and finite, got {weight} on edge ({i}, {j})"
                )
            weights.append(weight)
        pairs.extend((i, j))
    edges = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    return edges, np.array(weights) if len(header) > 2 else None


def read_labels(path: Path, number: dict[str, int]) -> tuple[list[str], list[str], list[int]]:
    """Read the label, the split and the line of each vertex; empty and 0 where the table has none."""
    _, rows = read_rows(path, 2)
    labels, splits, lines = [""] * len(number), [""] * len(number), [0] * len(number)
    for line, row in rows:
        if row[0] not in number:
            raise GossamerError(f"{path}, line {line}: vertex {shown(row[0])} does not exist in features.csv")
        i = number[row[0]]
        if labels[i] or splits[i]:
            raise GossamerError(f"{path}, line {line}: vertex {shown(row[0])} stands in more than one row")
        split = row[2] if len(row) > 2 else ""
        if split not in ("", *SPLITS):
            raise GossamerError(
                f"{path}, line {line}: the split must be one of {', '.join(SPLITS)}, got {shown(split)}"
            )
        labels[i], splits[i], lines[i] = row[1], split, line
    return labels, splits, lines


def parse_real_labels(path: Path, labels: list[str], splits: list[str], lines: list[int]) -> NDArray[np.float64]:
    """Parse labels as numbers, NaN where there is none; finite where a split needs them."""
    values = np.full(len(labels), np.nan)
    for i, label in enumerate(labels):
        if label:
            (values[i],) = _numbers(path, lines[i], [label])
            if splits[i] and not math.isfinite(values[i]):
                raise GossamerError(
                    f"{path}, line {lines[i]}: targets hold NaN or infinite values inside the masks, got {shown(label)}"
                )
    return values


def read_owners(path: Path) -> dict[str, int]:
    """Read the agent of each vertex from a table vertex,agent."""
    _, rows = read_rows(path, 2)
    owners: dict[str, int] = {}
    for line, row in rows:
        if not (row[1].isascii() and row[1].isdigit() and len(row[1]) < 10) or row[0] in owners:
            raise GossamerError(
                f"{path}, line {line}: expected a vertex not named before and its agent, got {shown(row)}"
            )
        owners[row[0]] = int(row[1])
    return owners


def _targets(
    path: Path, labels: list[str], splits: list[str], lines: list[int]
) -> tuple[NDArray[Any], tuple[str, ...] | None]:
    """Return real values if all labels are numbers and one has a decimal point, classes and their names otherwise."""
    known = [label for label in labels if label]
    try:
        values = [float(label) for label in known]
    except ValueError:
        values = []
    if values and any("." in label or "e" in label.lower() for label in known):
        return parse_real_labels(path, labels, splits, lines), None
    if values:
        known = [label for label, value in zip(known, values, strict=True) if value >= 0]  # -1: unknown, as in arrays
    order = sorted(set(known), key=lambda label: (len(label), label) if values else (0, label))
    classes = {label: c for c, label in enumerate(order)}
    return np.array([classes.get(label, -1) for label in labels], dtype=np.int64), tuple(order)
