"""Masks for semi-supervised learning: a few vertices for training, some for validation, the rest for test; and the
choice among splits that come with the data."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gossamer.data.targets import check_num_classes
from gossamer.errors import GossamerError

Masks = dict[str, Any]  # train, validation, test: bool [n], or the numbers of the vertices
SPLIT = "--split (split= in Python)"


def check_split(split: int, count: int, name: str) -> int:
    """Return the number of one of the `count` fixed splits of a data set."""
    if not 0 <= split < count:
        raise GossamerError(f"{name} has the splits 0 to {count - 1}; got {split}, choose one of them with {SPLIT}")
    return split


def refuse_split(split: int | None, name: str) -> None:
    """Refuse the number of a split for data that has no several fixed ones."""
    if split is not None:
        raise GossamerError(
            f"{name} has no fixed splits to choose number {split} from: it has one of its own, or the seed draws one; "
            f"leave {SPLIT} out"
        )


def split_by_class(labels: NDArray[Any], per_class: int, num_validation: int, seed: int) -> Masks:
    """Draw `per_class` training vertices of every class, `num_validation` others, and leave the rest for test.

    Vertices whose label is negative (unknown) are in no mask.
    """
    random = np.random.default_rng(seed)
    known = labels >= 0
    check_num_classes(labels)
    train = np.zeros(len(labels), dtype=bool)
    order = np.argsort(labels, kind="stable")  # the vertices of each class in turn, ascending
    classes, first = np.unique(labels[order], return_index=True)
    for c, members in zip(classes, np.split(order, first[1:]), strict=True):
        if c < 0:
            continue
        if len(members) <= per_class:
            raise GossamerError(
                f"class {c} has {len(members)} vertices, too few to train on {per_class} of them; "
                "give the masks yourself"
            )
        train[random.choice(members, per_class, replace=False)] = True
    rest = np.flatnonzero(known & ~train)
    if len(rest) <= num_validation:
        raise GossamerError(
            f"{len(rest)} labelled vertices are left for validation and test, expected more than {num_validation}"
        )
    validation = np.zeros(len(labels), dtype=bool)
    validation[random.choice(rest, num_validation, replace=False)] = True
    return {"train": train, "validation": validation, "test": known & ~train & ~validation}


def split_uniformly(known: NDArray[np.bool_], num_train: int, num_validation: int, seed: int) -> Masks:
    """Draw training vertices of the `known` ones, at most half of them, `num_validation` others, and leave the rest for
    test: where a vertex has several labels there is no class to draw from."""
    vertices = np.random.default_rng(seed).permutation(np.flatnonzero(known))
    first = min(num_train, len(vertices) // 2)
    last = first + num_validation
    if not first or len(vertices) <= last:
        raise GossamerError(
            f"{len(vertices)} vertices with known labels are too few to draw {max(first, 1)} for training, "
            f"{num_validation} for validation and some for test; give the masks yourself"
        )
    return {"train": vertices[:first], "validation": vertices[first:last], "test": vertices[last:]}
