"""Targets of a user's graph: classes numbered 0 to C-1 with their names, labels, or real values to predict."""

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gossamer.choices import TASK_NAMES
from gossamer.data.labels import choose_table_task, validate_labels
from gossamer.data.tasks import MOST_CLASSES, Task
from gossamer.errors import GossamerError, GossamerWarning, VertexError

FEW_CLASSES = 20  # up to which as many classes as vertices are no reason for doubt
RARE, DOUBTFUL = 2, 5  # vertices of a class on average below which labels are refused, and warned of
MOST_NAMED = 5  # classes in a message
REAL_VALUES = "if they are values to predict, give real numbers (y.float() or, in a table, 3.0 instead of 3)"
Names = tuple[str, ...]


def validate_targets(
    y: NDArray[Any],
    masks: list[NDArray[np.bool_]],
    batch: int | None,
    class_names: Names | None = None,
    task: str = "auto",
) -> tuple[NDArray[Any], int | None, Names | None]:
    """Return classes [n] or labels [n, C], their number and their names, or real values [n(, batch), outputs] and twice
    None.

    With `class_names` classes are numbered as these; without them they may have any numbers, which become their names
    unless they are 0 to C-1.
    """
    chosen = choose_task(y, batch, task)
    if chosen == "multilabel":
        labels = validate_labels(y, np.logical_or.reduce(masks), batch)
        return _check_learnable(labels, masks[0], class_names), labels.shape[1], class_names
    if chosen == "multiclass":
        return _validate_classes(y, masks, batch, class_names)
    if task == "auto" and batch is None:
        _warn_of_whole_numbers(y)
    if class_names is not None:
        raise GossamerError(f"class names need class numbers as targets, got {y.dtype}")
    return _validate_values(y if y.dtype.kind == "f" else y.astype(np.float64), masks, batch), None, None


def choose_task(y: NDArray[Any], batch: int | None = None, task: str = "auto") -> Task:
    """The task that the user has chosen, or that of the targets: whole numbers are classes, real ones values, and a
    table of 0 and 1 labels.

    One-hot classes are refused: they could also be labels.
    """
    if task not in TASK_NAMES.names:
        raise GossamerError(f"the task should be {TASK_NAMES}, got {task!r}")
    if y.dtype.kind not in "biuf":
        raise GossamerError(f"targets must be class numbers or real values, got {y.dtype}")
    if task == "multilabel":
        return "multilabel"
    if task == "regression":
        return "regression"
    if task == "multiclass" and y.dtype.kind == "f":
        raise GossamerError(f"classes must be whole numbers, got {y.dtype}; give y.astype(int), -1 where unknown")
    table = choose_table_task(y, batch) if task == "auto" else None
    return table or ("regression" if y.dtype.kind == "f" else "multiclass")


def check_num_classes(labels: NDArray[Any]) -> NDArray[Any]:
    """Return the different classes, ascending; refuse so many that the labels must be values to predict.

    Negative numbers are unknown classes.
    """
    known = labels[labels >= 0]
    classes = _count_from_zero(known)
    if classes is None:
        classes = np.unique(known)
    if len(classes) > FEW_CLASSES and len(known) < RARE * len(classes):
        raise GossamerError(
            f"{len(classes)} different labels on {len(known)} vertices are no classes: expected at least {RARE} "
            f"vertices of each on average; {REAL_VALUES}"
        )
    if len(classes) > MOST_CLASSES:
        raise GossamerError(f"expected at most {MOST_CLASSES} classes, got {len(classes)}")
    return classes


def _count_from_zero(known: NDArray[Any]) -> NDArray[Any] | None:
    """0 to C-1 if these are the classes, without sorting, which takes long on large graphs."""
    if not known.size or known.dtype == np.bool_ or int(known.max()) >= len(known):
        return None
    there = np.zeros(int(known.max()) + 1, dtype=bool)
    there[known] = True
    return np.arange(len(there)) if there.all() else None


def _validate_classes(
    y: NDArray[Any], masks: list[NDArray[np.bool_]], batch: int | None, class_names: Names | None
) -> tuple[NDArray[np.int64], int, Names | None]:
    n = len(y)
    if y.shape == (n, 1):
        y = y[:, 0]
    if y.shape != (n,) or batch is not None:
        raise GossamerError(f"classes must have shape ({n},) and no batch axis, got {y.shape}")
    y = y.astype(np.int64) if y.dtype == np.bool_ else y
    unknown = np.flatnonzero((y < 0) & np.logical_or.reduce(masks))
    if len(unknown):
        raise VertexError(
            f"vertex {{}} is in a mask but has no class ({len(unknown)} such vertices); negative class numbers stand "
            "for unknown ones",
            int(unknown[0]),
        )
    classes = check_num_classes(y)
    known = int((y >= 0).sum())
    if len(classes) > FEW_CLASSES and known < DOUBTFUL * len(classes):
        warnings.warn(
            f"{len(classes)} different labels on {known} vertices are taken for classes; {REAL_VALUES}",
            GossamerWarning,
            stacklevel=5,
        )
    if class_names is not None:
        highest = int(classes[-1]) if len(classes) else -1
        if highest >= len(class_names):
            raise GossamerError(
                f"expected {highest + 1} class names, one for each class from 0 on, got {len(class_names)}"
            )
        num_classes = len(class_names)
    else:
        num_classes = len(classes)
        if num_classes and int(classes[-1]) != num_classes - 1:
            class_names = tuple(str(c) for c in classes.tolist())
            y = np.where(y < 0, -1, np.searchsorted(classes, y))
            warnings.warn(
                f"the labels {list_names(class_names)} are now classes 0 to {num_classes - 1}; results name them as "
                "they were",
                GossamerWarning,
                stacklevel=5,
            )
    y = y.astype(np.int64)
    if num_classes < 2 or len(np.unique(y[masks[0]])) < 2:
        raise GossamerError("the training vertices hold one class only; classification needs at least two")
    return y, num_classes, class_names


def _check_learnable(
    labels: NDArray[np.bool_], train: NDArray[np.bool_], class_names: Names | None
) -> NDArray[np.bool_]:
    """Require a name for each label, if there are any, and training vertices that differ in some label."""
    if class_names is not None and len(class_names) != labels.shape[1]:
        raise GossamerError(f"expected {labels.shape[1]} class names, one for each label, got {len(class_names)}")
    seen = labels[train]
    if (seen == seen[:1]).all():
        raise GossamerError(
            "the training vertices all have the same labels; learning needs a label that some of them have and others "
            "have not"
        )
    return labels


def _warn_of_whole_numbers(y: NDArray[Any]) -> None:
    """Warn of one real value a vertex that takes few whole numbers alone: these may be classes in the wrong type."""
    known = y[np.isfinite(y)]
    if y.size != len(y) or not len(known) or (known != np.floor(known)).any():
        return
    values = np.unique(known)
    if 2 <= len(values) <= FEW_CLASSES and len(known) >= DOUBTFUL * len(values):
        warnings.warn(
            f"the targets {list_names([f'{value:g}' for value in values])} are real numbers, and so values to predict; "
            "if they are classes, give whole numbers (y.long() or, in a table, 3 instead of 3.0), and if not, --task "
            'regression (task="regression" in Python)',
            GossamerWarning,
            stacklevel=4,
        )


def list_names(names: Sequence[str]) -> str:
    """Names as a part of a sentence, at most five of them."""
    if len(names) <= MOST_NAMED:
        return ", ".join(names)
    return f"{', '.join(names[: MOST_NAMED - 1])}, ..., {names[-1]}"


def _validate_values(y: NDArray[Any], masks: list[NDArray[np.bool_]], batch: int | None) -> NDArray[Any]:
    full = 2 if batch is None else 3
    if y.ndim == full - 1:
        y = y[..., None]
    if y.ndim != full or (batch is not None and y.shape[1] != batch):
        raise GossamerError(f"real targets must be [vertices{', batch' if batch else ''}, outputs], got {y.shape}")
    unknown = ~np.isfinite(y) & np.logical_or.reduce(masks)[..., None]
    if unknown.any():
        raise VertexError(
            f"targets hold {unknown.sum()} NaN or infinite values inside the masks, the first at vertex {{}}; fill "
            "them, or take these vertices out of the masks",
            int(np.argwhere(unknown)[0, 0]),
        )
    return np.asarray(np.nan_to_num(y, posinf=0.0, neginf=0.0))
