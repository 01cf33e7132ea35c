"""Weights of examples in the loss: those that a user gives (sample weights), and balanced ones of classes or labels.

L = sum_i e_i l_i / sum_i e_i over the training examples i, with e_i = s_i w_c: s_i the sample weight, w_c that of the
class c of i. Balanced classes have w_c = |T_D| / (C' n_c), n_c the training examples of class c and C' the number of
classes with one, as in scikit-learn (after King and Zeng 2001, "Logistic regression in rare events data"). Balanced
labels have, within l_i, the losses of positive entries weighted by negative over positive training examples, as by the
pos_weight of PyTorch's BCEWithLogitsLoss.

Both depend on all agents' examples through sums alone (`sum_weights`), so that each agent makes its own weights.
"""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gossamer.array_types import Floats
from gossamer.data.checks import check_real
from gossamer.data.tasks import find_task
from gossamer.errors import GossamerError, VertexError

LARGEST_WEIGHT = float(np.finfo(np.float32).max)


def validate_sample_weights(given: ArrayLike, n: int, batch: int | None) -> Floats:
    """Require finite weights of at least 0, [n] or [n, batch]; with a time axis [n] are those of all time steps."""
    try:
        weights = np.asarray(given)
    except ValueError as error:
        raise GossamerError(f"sample weights must be numbers, one for each vertex: {error}") from None
    check_real(weights, "sample weights")
    if batch is not None and weights.shape == (n,):
        weights = np.repeat(weights[:, None], batch, axis=1)
    expected = (n,) if batch is None else (n, batch)
    if weights.shape != expected:
        raise GossamerError(f"sample weights must have shape {expected}, got {weights.shape}")
    wrong = ~((weights >= 0) & (weights <= LARGEST_WEIGHT))
    if wrong.any():
        place = tuple(np.argwhere(wrong)[0].tolist())
        raise VertexError(
            f"sample weights must be at least 0 and at most {LARGEST_WEIGHT:.1g}, float32's largest, got "
            f"{weights[place]} for vertex {{}} ({wrong.sum()} such weights)",
            place[0],
        )
    return weights.astype(np.float64)


def check_training_weight(weights: Floats | None, train: NDArray[np.bool_]) -> None:
    """Require a training example with a positive weight."""
    if weights is not None and not weights[train].any():
        raise GossamerError("all training examples have the sample weight 0; give at least one a positive weight")


def sum_weights(
    targets: NDArray[Any],
    train: NDArray[np.bool_],
    sample_weights: Floats | None,
    balanced: bool,
    num_classes: int | None,
) -> Floats:
    """Sums over the training examples of some vertices, to be added over agents: their number and their sample weights;
    for balanced classes also both for each class [2 C], for balanced labels the number with each label [C]."""
    task, chosen = find_task(targets), targets[train]
    if balanced and num_classes is None:
        raise GossamerError(
            "class weights are for classes or labels, and these targets are real values; leave --class-weights at none"
        )
    weights = np.ones(int(train.sum())) if sample_weights is None else sample_weights[train]
    parts = [np.array([len(weights), weights.sum()])]
    if balanced and task == "multiclass":
        parts += [np.bincount(chosen, given, minlength=num_classes or 0) for given in (None, weights)]
    elif balanced:
        parts.append(chosen.sum(0))
    return np.concatenate(parts).astype(np.float64)


def make_example_weights(
    targets: NDArray[Any], sample_weights: Floats | None, balanced: bool, totals: Floats
) -> tuple[Floats | None, Floats | None]:
    """Weights e_i of some vertices' examples, which sum to |T_D| over all training examples, and weights of positive
    labels [C]; None where all are 1. `totals` are the sums of all agents (`sum_weights`).

    Classes and labels without a training example, and labels that all have, weigh 1.
    """
    (examples, total), counts = totals[:2], totals[2:]
    weights, positive = sample_weights, None
    if balanced and find_task(targets) == "multilabel":
        mixed = (counts > 0) & (counts < examples)
        positive = np.where(mixed, (examples - counts) / np.where(mixed, counts, 1.0), 1.0)
    elif balanced:
        number, sums = counts.reshape(2, -1)
        by_class = np.where(number > 0, examples / ((number > 0).sum() * np.maximum(number, 1.0)), 1.0)
        total = by_class @ sums
        each = np.where(targets >= 0, by_class[targets], 1.0)
        weights = each if sample_weights is None else sample_weights * each
    if weights is not None:
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            weights = weights / total * examples
        if not (weights <= LARGEST_WEIGHT).all():
            raise GossamerError(
                f"sample weights differ too much: some are beyond {LARGEST_WEIGHT:.1g} times the mean of the training "
                "examples'"
            )
    return weights, positive
