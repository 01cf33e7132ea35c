"""Tasks: one class a vertex, several labels a vertex, or real values; the type of the targets decides."""

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Task = Literal["multiclass", "multilabel", "regression"]
MOST_CLASSES = 1 << 20  # or labels


def find_task(targets: NDArray[Any]) -> Task:
    """The task of checked targets: whole numbers are classes, booleans [n, C] labels, all others real values."""
    if targets.dtype == np.bool_:
        return "multilabel"
    return "multiclass" if np.issubdtype(targets.dtype, np.integer) else "regression"


def infer_stored_task(stored: Task | None, class_names: Sequence[str] | None) -> Task:
    """The task in a file; in those from before tasks were stored, whatever has class names has one class a vertex."""
    if stored is not None:
        return stored
    return "regression" if class_names is None else "multiclass"
