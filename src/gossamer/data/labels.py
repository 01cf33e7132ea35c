"""Labels: a table [n, C] of 0 and 1 that gives a vertex any number of C labels (multi-label classification)."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gossamer.data.tasks import MOST_CLASSES, Task
from gossamer.errors import GossamerError, VertexError


def choose_table_task(y: NDArray[Any], batch: int | None = None) -> Task | None:
    """Return "multilabel" if targets are unmistakably a table of labels, None if they are something else.

    One-hot rows are refused: they may stand for one class a vertex.
    """
    if batch is not None or y.ndim != 2 or y.shape[1] < 2:
        return None
    missing = find_missing(y)
    known = y[~missing.any(1)]
    if not len(known) or not ((y == 0) | (y == 1) | missing).all():
        return None
    if (known.sum(1) == 1).all():
        raise GossamerError(
            f"targets {y.shape} of 0 and 1 are classes one-hot; give their numbers, y.argmax(1), or choose --task "
            'multilabel (task="multilabel" in Python) if a vertex may have several labels or none'
        )
    return "multilabel"


def find_missing(y: NDArray[Any]) -> NDArray[np.bool_]:
    """Mask of the unknown entries: NaN and infinite ones, negative ones of whole numbers."""
    return np.asarray(~np.isfinite(y) if y.dtype.kind == "f" else y < 0)


def find_known(y: NDArray[Any]) -> NDArray[np.bool_]:
    """Mask of the vertices whose labels are known [n]."""
    _check_table(y, None)
    return np.asarray(~find_missing(y).any(1))


def validate_labels(y: NDArray[Any], used: NDArray[np.bool_], batch: int | None = None) -> NDArray[np.bool_]:
    """Return labels [n, C], false where they are unknown; those of the `used` vertices must be known."""
    _check_table(y, batch)
    missing = find_missing(y)
    wrong = ~((y == 0) | (y == 1) | missing)
    if wrong.any():
        i, c = np.argwhere(wrong)[0]
        raise VertexError(f"labels must be 0 or 1, got {y[i, c]} for vertex {{}} ({wrong.sum()} such entries)", int(i))
    unknown = missing.any(1)
    for rows, what in (
        (unknown & ~missing.all(1), "has some labels and others unknown; give all of them, or none"),
        (unknown & used, "is in a mask but its labels are unknown"),
    ):
        if rows.any():
            first = int(np.flatnonzero(rows)[0])
            raise VertexError(f"vertex {{}} {what} ({rows.sum()} such vertices)", first)
    return np.asarray(y == 1)


def _check_table(y: NDArray[Any], batch: int | None) -> None:
    if y.ndim != 2 or batch is not None:
        raise GossamerError(
            f"labels must be a table [vertices, labels] of 0 and 1 without a time axis, got {y.dtype} {y.shape}"
            + (f" with {batch} time steps" if batch is not None else "")
        )
    if not 1 <= y.shape[1] <= MOST_CLASSES:
        raise GossamerError(f"expected 1 to {MOST_CLASSES} labels, got {y.shape[1]}")
