"""Labels become classes 0 to C-1 with their names, or values to predict; what is neither is refused with a remedy."""

import warnings
from typing import Any

import numpy as np
import pytest
import torch
from oracles.graphs import path_graph

from gossamer.data import make_graph
from gossamer.data.splits import split_by_class
from gossamer.errors import GossamerError, GossamerWarning


def ring(targets: Any, **changes: Any) -> Any:
    """A ring of vertices with one feature, a third of them in each mask."""
    n = len(targets)
    part = np.arange(n) % 3
    return make_graph(
        "ring",
        np.stack([np.arange(n), (np.arange(n) + 1) % n], axis=1),
        np.ones((n, 1)),
        targets,
        **{"train": part == 0, "validation": part == 1, "test": part == 2, **changes},
    )


@pytest.mark.parametrize(
    ("labels", "names", "text"),
    [
        ([1, 2, 3] * 3, ("1", "2", "3"), "the labels 1, 2, 3 are now classes 0 to 2"),
        ([10000, 20000] * 6, ("10000", "20000"), "the labels 10000, 20000 are now classes 0 to 1"),
        ([0, 2, 5] * 3, ("0", "2", "5"), "the labels 0, 2, 5 are now"),
        (list(range(7, 14)) * 3, tuple(map(str, range(7, 14))), r"the labels 7, 8, 9, 10, \.\.\., 13 are now"),
    ],
)
@pytest.mark.parametrize("dtype", [np.int64, np.uint16, np.uint64])
def test_other_numbers_are_mapped_in_their_order_with_one_line(
    labels: list[int], names: tuple[str, ...], text: str, dtype: type
) -> None:
    shuffled: Any = np.random.default_rng(0).permutation(labels).astype(dtype)
    with pytest.warns(GossamerWarning, match=text) as caught:
        graph = ring(shuffled)
    assert len(caught) == 1
    assert (graph.num_classes, graph.class_names) == (len(names), names)
    assert [int(graph.class_names[c]) for c in graph.targets] == shuffled.tolist()


def test_numbers_from_zero_stay_without_a_line_and_without_names() -> None:
    graph = ring([0, 1, 2, 0, 1, 2, 2, 1, 0])
    assert (graph.num_classes, graph.class_names) == (3, None)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", [(-1,), (-1, 1)])
def test_whole_numbers_of_a_real_type_are_doubted_in_one_line(shape: tuple[int, ...], dtype: type) -> None:
    """As classes with missing ones are written by a data frame, or for a binary cross-entropy."""
    labels: Any = np.array([1, 0, np.nan, 1, 0, 2] * 6, dtype=dtype).reshape(shape)
    masks = {"train": [0, 1, 5], "validation": [3], "test": [4]}
    text = r"targets 0, 1, 2 are real .*y\.long\(\) .*--task regression"
    with pytest.warns(GossamerWarning, match=text) as caught:
        assert ring(labels, **masks).task == "regression"
    assert len(caught) == 1
    assert ring(labels, **masks, task="regression").num_outputs == 1
    for values in (labels + 0.5, np.arange(36.0), np.stack([labels.reshape(-1), 2 + labels.reshape(-1)], axis=1)):
        assert ring(values.astype(dtype), **masks).task == "regression"


def test_unknown_classes_stay_unknown() -> None:
    with pytest.warns(GossamerWarning, match="labels 1, 2 are now"):
        graph = ring([1, 2, -1, 2, 1, -1, 1, 2, -7], test=[])
    np.testing.assert_array_equal(graph.targets, [0, 1, -1, 1, 0, -1, 0, 1, -1])
    with pytest.raises(GossamerError, match=r"vertex 0 is in a mask but has no class .*negative class numbers"):
        ring([-1, 1] * 6)


def test_names_that_are_given_number_the_classes() -> None:
    graph = path_graph(class_names=("a", "b", "c"))  # of which the last has no vertex
    assert (graph.num_classes, graph.class_names) == (3, ("a", "b", "c"))
    with pytest.raises(GossamerError, match="expected 2 class names, one for each class from 0 on, got 1"):
        path_graph(class_names=("a",))
    with pytest.raises(GossamerError, match="class names need class numbers"):
        path_graph(targets=[0.5, 1.0, 1.5, 2.0], class_names=("a", "b"))


def test_values_stored_as_whole_numbers_are_refused_with_the_remedy() -> None:
    values = np.random.default_rng(0).integers(0, 5000, 300)
    with pytest.raises(GossamerError, match=r"different labels on 300 vertices are no classes.*give real numbers"):
        ring(values)
    assert ring(values.astype(np.float32)).num_classes is None
    with pytest.raises(GossamerError, match="are no classes"):  # and not that a class has too few vertices
        split_by_class(values, 20, 50, 0)


def test_many_classes_are_warned_of_and_few_are_not() -> None:
    with pytest.warns(GossamerWarning, match="100 different labels on 300 vertices are taken for classes; .*give real"):
        ring(np.repeat(np.arange(100), 3))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ring(np.arange(300) % 50)
        ring([0, 1, 2, 3, 4, 5, 6, 7, 8])


@pytest.mark.parametrize("kind", [int, float, bool])
def test_one_hot_classes_are_refused_with_both_remedies(kind: type) -> None:
    with pytest.raises(GossamerError, match=r"one-hot; give their numbers, y.argmax\(1\), or choose --task multilabel"):
        ring(np.eye(12, dtype=kind))


def test_tables_of_other_values_are_values_to_predict() -> None:
    table = np.array([[0, 1], [1, 0], [0.5, 1]] * 3)
    assert ring(table).targets.shape == (9, 2)
    unknown = np.where(np.arange(9)[:, None] % 3 == 2, np.nan, table)
    with pytest.raises(GossamerError, match="one-hot"):
        ring(unknown, test=[])
    assert ring(np.zeros((9, 1)) + np.arange(9)[:, None] % 2).num_classes is None  # one column is one value


def test_make_graph_takes_tensors() -> None:
    given, graph = path_graph(), path_graph(features=torch.ones(4, 2, requires_grad=True).bfloat16())
    np.testing.assert_array_equal(graph.features, np.ones((4, 2)))
    np.testing.assert_array_equal(path_graph(targets=torch.tensor([[0], [1], [0], [1]])).targets, given.targets)
    with pytest.raises(GossamerError, match=r"must be a dense tensor or a sparse matrix, got shape \(4, 1, 2\)"):
        path_graph(features=torch.ones(4, 1, 2).to_sparse())
