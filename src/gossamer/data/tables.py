"""A user's graph from three CSV tables in one folder: edges.csv, features.csv and labels.csv."""

import csv
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gossamer.data.graph import DataGraph, make_graph
from gossamer.data.splits import split_by_class
from gossamer.errors import GossamerError

SPLITS = ("train", "validation", "test")
Table = list[tuple[int, list[str]]]  # line number and cells


def tables(folder: Path, seed: int, per_class: int = 20) -> DataGraph:
    """Read a graph whose vertices are named freely (docs/data.md shows the tables).

    edges.csv     source,target[,weight]
    features.csv  vertex,<one column a feature>
    labels.csv    vertex,label[,split]: a class name, or a number for regression; split is train, validation, test
    """
    names, features = feature_rows(folder / "features.csv")
    number = {name: i for i, name in enumerate(names)}
    edges, weights = edge_rows(folder / "edges.csv", number)
    labels, splits = label_rows(folder / "labels.csv", number)
    targets, class_names = _targets(labels)
    if any(splits):
        masks = {split: np.array([s == split for s in splits]) for split in SPLITS}
    elif class_names is None:
        raise GossamerError(
            f"{folder / 'labels.csv'}: real-valued labels need a split column with train, validation or test"
        )
    else:
        masks = split_by_class(targets, per_class, min(500, len(names) // 4), seed)
    return make_graph(
        folder.name, edges, features, targets, weights=weights, names=names, class_names=class_names, **masks
    )


def _rows(path: Path, columns: int) -> tuple[list[str], Table]:
    """The header and the rows with their line numbers, each with as many cells as the header."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.reader(file)
            header = next(reader, [])
            rows = [(reader.line_num, [cell.strip() for cell in row]) for row in reader if row]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise GossamerError(f"cannot read {path}: {error}") from None
    if len(header) < columns:
        raise GossamerError(f"{path} needs a header with at least {columns} columns, got {header}")
    for line, row in rows:
        if len(row) != len(header):
            raise GossamerError(f"{path}, line {line}: expected {len(header)} cells as in the header, got {len(row)}")
    return header, rows


def _numbers(path: Path, line: int, cells: list[str]) -> list[float]:
    try:
        return [float(cell) for cell in cells]
    except ValueError as error:
        raise GossamerError(f"{path}, line {line}: expected numbers: {error}") from None


def feature_rows(path: Path) -> tuple[tuple[str, ...], NDArray[np.float32]]:
    """The vertices' names and their features [n, d]."""
    _, rows = _rows(path, 2)
    names = tuple(row[0] for _, row in rows)
    if not names:
        raise GossamerError(f"{path} holds no vertices: the graph is empty")
    if len(set(names)) != len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise GossamerError(f"{path}: vertex {twice!r} stands in more than one row")
    values = [_numbers(path, line, row[1:]) for line, row in rows]
    return names, np.array(values, dtype=np.float32).reshape(len(names), -1)


def edge_rows(
    path: Path, number: dict[str, int], known: str = "features.csv"
) -> tuple[NDArray[np.int64], NDArray[np.float64] | None]:
    """Pairs of vertices by their numbers, and their weights if there is a third column."""
    header, rows = _rows(path, 2)
    if {cell.strip() for cell in header[:2]} <= set(number):
        raise GossamerError(f"{path} needs a header such as source,target; its first line is an edge: {header[:2]}")
    pairs, weights = [], []
    for line, row in rows:
        for name in row[:2]:
            if name not in number:
                raise GossamerError(f"{path}, line {line}: vertex {name!r} does not exist in {known}")
        pairs.append((number[row[0]], number[row[1]]))
        weights += _numbers(path, line, row[2:3])
    return np.array(pairs, dtype=np.int64), np.array(weights) if len(header) > 2 else None


def label_rows(path: Path, number: dict[str, int]) -> tuple[list[str], list[str]]:
    """The label and the split of each vertex; empty where the table says nothing."""
    _, rows = _rows(path, 2)
    labels, splits = [""] * len(number), [""] * len(number)
    for line, row in rows:
        if row[0] not in number:
            raise GossamerError(f"{path}, line {line}: vertex {row[0]!r} does not exist in features.csv")
        if labels[number[row[0]]] or splits[number[row[0]]]:
            raise GossamerError(f"{path}, line {line}: vertex {row[0]!r} stands in more than one row")
        split = row[2] if len(row) > 2 else ""
        if split not in ("", *SPLITS):
            raise GossamerError(f"{path}, line {line}: the split must be one of {', '.join(SPLITS)}, got {split!r}")
        labels[number[row[0]]], splits[number[row[0]]] = row[1], split
    return labels, splits


def owner_rows(path: Path) -> dict[str, int]:
    """The agent of each vertex in a table vertex,agent."""
    _, rows = _rows(path, 2)
    owners: dict[str, int] = {}
    for line, row in rows:
        if not (row[1].isascii() and row[1].isdigit() and len(row[1]) < 10) or row[0] in owners:
            raise GossamerError(f"{path}, line {line}: expected a vertex not named before and its agent, got {row}")
        owners[row[0]] = int(row[1])
    return owners


def _targets(labels: list[str]) -> tuple[NDArray[np.int64] | NDArray[np.float64], tuple[str, ...] | None]:
    """Real values if every label is a number and one of them has a decimal point, classes otherwise."""
    known = [label for label in labels if label]
    try:
        values = [float(label) for label in known]
    except ValueError:
        values = []
    if values and any("." in label or "e" in label.lower() for label in known):
        return np.array([float(label) if label else np.nan for label in labels]), None
    order = sorted(set(known), key=lambda label: (len(label), label) if values else (0, label))
    classes = {label: c for c, label in enumerate(order)}
    return np.array([classes.get(label, -1) for label in labels], dtype=np.int64), tuple(order)
