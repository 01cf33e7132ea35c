"""The table labels.csv of a folder: names of classes, names of labels joined by ";", or numbers, with the split."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gossamer.data.arrays import COPIES
from gossamer.data.rows import parse_numbers, read_rows
from gossamer.data.tasks import Task
from gossamer.errors import GossamerError, shown
from gossamer.machine import as_size, available_memory

WEIGHT_COLUMN = "weight"
SPLITS = ("train", "validation", "test")
JOINT, NONE_OF_THEM = ";", "-"  # in the labels of a vertex that may have several


@dataclass(frozen=True)
class LabelTable:
    """The rows of labels.csv by vertex; empty and 0 where the table has none."""

    path: Path
    labels: list[str]
    splits: list[str]
    lines: list[int]
    weights: NDArray[np.float64] | None  # in the loss, of all vertices; None without a column weight

    @property
    def masks(self) -> dict[str, NDArray[np.bool_]]:
        return {split: np.array([s == split for s in self.splits]) for split in SPLITS}


def read_labels(path: Path, number: dict[str, int]) -> LabelTable:
    """Read the label, the split, the weight and the line of each vertex.

    A column called weight holds weights, 1 where it is empty; the first other one after the label holds the split.
    """
    header, rows = read_rows(path, 2)
    others = range(2, len(header))
    weight_at = next((place for place in others if header[place] == WEIGHT_COLUMN), None)
    split_at = next((place for place in others if place != weight_at), None)
    labels, splits, lines = [""] * len(number), [""] * len(number), [0] * len(number)
    weights = np.ones(len(number))
    for line, row in rows:
        if row[0] not in number:
            raise GossamerError(f"{path}, line {line}: vertex {shown(row[0])} does not exist in features.csv")
        i = number[row[0]]
        if labels[i] or splits[i]:
            raise GossamerError(f"{path}, line {line}: vertex {shown(row[0])} stands in more than one row")
        split = "" if split_at is None else row[split_at]
        if split not in ("", *SPLITS):
            raise GossamerError(
                f"{path}, line {line}: the split must be one of {', '.join(SPLITS)}, got {shown(split)}"
            )
        labels[i], splits[i], lines[i] = row[1], split, line
        if weight_at is not None and row[weight_at]:
            (weights[i],) = parse_numbers(path, line, [row[weight_at]])
            if not 0 <= weights[i] < math.inf:
                raise GossamerError(
                    f"{path}, line {line}: the weight must be finite and at least 0, got {shown(row[weight_at])}"
                )
    return LabelTable(path, labels, splits, lines, None if weight_at is None else weights)


def parse_real_labels(table: LabelTable) -> NDArray[np.float64]:
    """Parse labels as numbers, NaN where there is none; finite where a split needs them."""
    values = np.full(len(table.labels), np.nan)
    for i, label in enumerate(table.labels):
        if label:
            (values[i],) = parse_numbers(table.path, table.lines[i], [label])
            if table.splits[i] and not math.isfinite(values[i]):
                raise GossamerError(
                    f"{table.path}, line {table.lines[i]}: targets hold NaN or infinite values inside the masks, got "
                    f"{shown(label)}"
                )
    return values


def is_multilabel(table: LabelTable) -> bool:
    """True if some field holds several names, or none of them."""
    return any(label == NONE_OF_THEM or JOINT in label for label in table.labels)


def parse_label_names(table: LabelTable) -> list[tuple[str, ...] | None]:
    """Names of the labels of each vertex; None where they are unknown.

    As among classes, an empty field is unknown, and where all names are numbers a negative one is.
    """
    found: list[tuple[str, ...] | None] = []
    for label, line in zip(table.labels, table.lines, strict=True):
        names = () if label == NONE_OF_THEM else tuple(name.strip() for name in label.split(JOINT))
        if label and not all(names):
            raise GossamerError(
                f"{table.path}, line {line}: expected names joined by {JOINT!r}, or {NONE_OF_THEM!r} for none of them, "
                f"got {shown(label)}"
            )
        found.append(names if label else None)
    try:
        negative = {name for names in found if names for name in names if float(name) < 0}
    except ValueError:
        return found
    return [None if names and negative.intersection(names) else names for names in found]


def tabulate_labels(names: Sequence[tuple[str, ...] | None], order: Sequence[str]) -> NDArray[np.int8]:
    """Labels [n, C] of 0 and 1, columns in this order; -1 where they are unknown."""
    needed, available = COPIES * len(names) * len(order), available_memory()
    if needed > available:  # a file of few bytes may have as many names as vertices
        raise GossamerError(
            f"{len(order)} labels of {len(names)} vertices take about {as_size(needed)} of memory, and "
            f"{as_size(available)} are available"
        )
    column = {name: c for c, name in enumerate(order)}
    table = np.zeros((len(names), len(order)), dtype=np.int8)
    for i, given in enumerate(names):
        if given is None:
            table[i] = -1
        else:
            table[i, [column[name] for name in given]] = 1
    return table


def parse_targets(table: LabelTable, task: str) -> tuple[NDArray[Any], tuple[str, ...] | None, Task]:
    """Return labels and their names if a field holds several, real values if all labels are numbers and one has a
    decimal point, classes and their names otherwise, unless the task is chosen."""
    if task == "multilabel" or (task == "auto" and is_multilabel(table)):
        names = parse_label_names(table)
        order = _sort_names({name for given in names if given for name in given})
        return tabulate_labels(names, order), tuple(order), "multilabel"
    known = [label for label in table.labels if label]
    try:
        values = [float(label) for label in known]
    except ValueError:
        values = []
    decimal = bool(values) and any("." in label or "e" in label.lower() for label in known)
    if task == "regression" or (task == "auto" and decimal):
        return parse_real_labels(table), None, "regression"
    if values:
        known = [label for label, value in zip(known, values, strict=True) if value >= 0]  # -1: unknown, as in arrays
    order = _sort_names(set(known))
    classes = {label: c for c, label in enumerate(order)}
    return np.array([classes.get(label, -1) for label in table.labels], dtype=np.int64), tuple(order), "multiclass"


def _sort_names(names: set[str]) -> list[str]:
    """Numbers by length first, so that 2 stands before 10; other names by their letters."""
    try:
        list(map(float, names))
    except ValueError:
        return sorted(names)
    return sorted(names, key=lambda name: (len(name), name))
