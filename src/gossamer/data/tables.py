"""A user's graph from three CSV tables in one folder: edges.csv, features.csv and labels.csv."""

import math
from array import array
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gossamer.data.graph import DataGraph, make_graph
from gossamer.data.label_tables import parse_targets, read_labels
from gossamer.data.labels import find_known
from gossamer.data.rows import parse_numbers, read_rows
from gossamer.data.splits import Masks, split_by_class, split_uniformly
from gossamer.errors import GossamerError, naming, shown


def read_tables(
    folder: Path, seed: int, per_class: int = 20, symmetrise: bool = False, task: str = "auto"
) -> DataGraph:
    """Read a graph whose vertices are named freely (`gossamer docs data` shows the tables).

    edges.csv     source,target[,weight]
    features.csv  vertex,<one column a feature>
    labels.csv    vertex,label[,split][,weight]: a class name, names of labels joined by ;, or a number for
                  regression; split is train, validation, test; weight is that of the vertex in the loss

    With `symmetrise`, an edge that is given with different weights has their mean.
    """
    names, features = read_features(folder / "features.csv")
    number = {name: i for i, name in enumerate(names)}
    edges, weights = read_edges(folder / "edges.csv", number)
    table = read_labels(folder / "labels.csv", number)
    masks: Masks
    num_validation = min(500, len(names) // 4)
    with naming(table.path):
        targets, class_names, chosen = parse_targets(table, task)
        if any(table.splits):
            masks = table.masks
        elif class_names is None:
            raise GossamerError("real-valued labels need a split column with train, validation or test")
        elif chosen == "multilabel":
            masks = split_uniformly(find_known(targets), per_class * len(class_names), num_validation, seed)
        else:
            masks = split_by_class(targets, per_class, num_validation, seed)
    with naming(folder):
        return make_graph(
            folder.name,
            edges,
            features,
            targets,
            weights=weights,
            names=names,
            class_names=class_names,
            sample_weights=table.weights,
            symmetrise=symmetrise,
            task=chosen,
            **masks,
        )


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
        numbers.extend(parse_numbers(path, line, row[1:]))
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
        for weight in parse_numbers(path, line, row[2:3]):
            if not 0 < weight < math.inf:
                edge = f"({shown(row[0])}, {shown(row[1])})"
                raise GossamerError(
                    f"{path}, line {line}: edge weights must be positive and finite, got {weight} on edge {edge}"
                )
            weights.append(weight)
        pairs.extend((number[row[0]], number[row[1]]))
    edges = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    return edges, np.array(weights) if len(header) > 2 else None


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
