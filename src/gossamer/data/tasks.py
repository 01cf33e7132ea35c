"""Tasks: one class a vertex, several labels a vertex, or real values; the type of the targets decides."""

from collections.abc import Sequence
from typing import Any, Literal

Task = Literal["multiclass", "multilabel", "regression"]
MOST_CLASSES = 1 << 20  # or labels


def find_task(targets: Any) -> Task:
    """The task of checked targets, an array or a tensor: whole numbers are classes, booleans [n, C] labels, all others
    real values."""
    kind = str(targets.dtype).removeprefix("torch.")
    if kind == "bool":
        return "multilabel"
    return "multiclass" if kind.startswith(("int", "uint")) else "regression"


def infer_stored_task(stored: Task | None, class_names: Sequence[str] | None) -> Task:
    """The task in a file; in those from before tasks were stored, whatever has class names has one class a vertex."""
    if stored is not None:
        return stored
    return "regression" if class_names is None else "multiclass"
