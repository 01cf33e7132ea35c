"""Weights of examples: how they come in, what is refused, and what they are together with those of classes."""

import warnings
from pathlib import Path
from typing import Any

import networkx
import numpy as np
import pytest
import torch
from data.test_interop import to_networkx, to_pyg
from data.test_multilabel import write_npz
from data.test_tables import TABLES
from oracles.graphs import path_graph
from sklearn.utils.class_weight import compute_sample_weight

from gossamer.data import DataGraph, from_networkx, from_pyg, load
from gossamer.data.example_weights import make_example_weights, sum_weights
from gossamer.errors import GossamerError

WEIGHTS = [0.5, 2.0, 0.0, 1.0]
TIMED: dict[str, Any] = {"features": np.ones((4, 3, 2)), "targets": np.ones((4, 3))}


def test_weights_are_those_of_the_vertices_and_none_without_them() -> None:
    graph = path_graph(sample_weights=WEIGHTS)
    assert graph.sample_weights is not None
    assert graph.sample_weights.dtype == np.float64
    np.testing.assert_array_equal(graph.sample_weights, WEIGHTS)
    assert path_graph().sample_weights is None
    assert path_graph(sample_weights=torch.tensor([1, 2, 0, 1])).sample_weights is not None


def test_weights_of_vertices_hold_at_all_time_steps() -> None:
    np.testing.assert_array_equal(
        path_graph(**TIMED, sample_weights=WEIGHTS).sample_weights, np.tile(WEIGHTS, (3, 1)).T
    )
    given = np.arange(12.0).reshape(4, 3)
    np.testing.assert_array_equal(path_graph(**TIMED, sample_weights=given).sample_weights, given)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([1.0, 2.0], r"sample weights must have shape \(4,\), got \(2,\)"),
        (np.ones((4, 2)), r"sample weights must have shape \(4,\), got \(4, 2\)"),
        ([1, 1, -0.5, 1], r"at least 0 .*, got -0.5 for vertex 2 \(1 such weights\)"),
        ([1, np.nan, 1, np.inf], r"at least 0 .*, got nan for vertex 1 \(2 such weights\)"),
        ([1, 1e39, 1, 1], "got 1e[+]39 for vertex 1"),
        (["a", "b", "c", "d"], "sample weights must be a table of numbers"),
        ([[1], [1, 2], [1], [1]], "sample weights must be numbers, one for each vertex"),
        ([0, 0, 1, 1], "all training examples have the sample weight 0"),
    ],
)
def test_other_weights_are_refused(weights: Any, message: str) -> None:
    with pytest.raises(GossamerError, match=message):
        path_graph(sample_weights=weights)


def test_the_fingerprint_has_them_only_where_they_are() -> None:
    plain = path_graph().fingerprint()
    assert plain == path_graph(sample_weights=None).fingerprint()
    assert len({plain, *(path_graph(sample_weights=w).fingerprint() for w in (WEIGHTS, np.ones(4)))}) == 3


def test_they_come_with_graphs_of_other_libraries() -> None:
    graph = path_graph()
    for data in (to_pyg(graph, sample_weight=torch.tensor(WEIGHTS)), to_networkx(graph)):
        if isinstance(data, networkx.Graph):
            for v, w in zip(data, WEIGHTS, strict=True):
                if w != 1.0:  # which it is where a vertex has none
                    data.nodes[v]["sample_weight"] = w
        np.testing.assert_array_equal(load(data).sample_weights, WEIGHTS)
    assert from_pyg(to_pyg(graph)).sample_weights is None
    assert from_networkx(to_networkx(graph)).sample_weights is None
    wrong = to_networkx(graph)
    wrong.nodes["v0"]["sample_weight"] = "heavy"
    with pytest.raises(GossamerError, match="'sample_weight' of vertices"):
        from_networkx(wrong)


def test_they_come_with_files(tmp_path: Path) -> None:
    for graph in (path_graph(sample_weights=WEIGHTS), path_graph(**TIMED, sample_weights=np.arange(12).reshape(4, 3))):
        found = load(graph.save(tmp_path / "saved.npz"))
        np.testing.assert_array_equal(found.sample_weights, graph.sample_weights)
        assert found.fingerprint() == graph.fingerprint()
    path = write_npz(tmp_path / "mine.npz", np.array([0, 1, 0, 1]))
    assert load(path).sample_weights is None
    with np.load(path) as file:
        arrays = dict(file)
    np.savez(path, **arrays, sample_weights=WEIGHTS)
    np.testing.assert_array_equal(load(path).sample_weights, WEIGHTS)


def read(folder: Path, labels: str) -> DataGraph:
    for name, text in {**TABLES, "labels": labels}.items():
        (folder / f"{name}.csv").write_text(text)
    return load(folder)


@pytest.mark.parametrize(
    ("header", "row"), [("split,weight", "{0},{1}"), ("weight,split", "{1},{0}"), ("weight,x", "{1},{0}")]
)
def test_a_table_has_them_in_a_column_of_that_name(tmp_path: Path, header: str, row: str) -> None:
    rows = [
        ("ann", "red", "train", "0.5"),
        ("bob", "blue", "train", "2"),
        ("cyd", "red", "test", "0"),
        ("dan", "", "", ""),
    ]
    lines = [f"{v},{label},{row.format(split, w)}\n" for v, label, split, w in rows]
    graph = read(tmp_path, f"vertex,label,{header}\n{''.join(lines)}")
    np.testing.assert_array_equal(graph.sample_weights, [0.5, 2, 0, 1])
    np.testing.assert_array_equal(graph.train, [True, True, False, False])
    with pytest.raises(GossamerError, match=r"labels.csv, line 2: the weight must be finite and at least 0, got '-1'"):
        read(tmp_path, f"vertex,label,{header}\nann,red,{row.format('train', '-1')}\n")
    with pytest.raises(GossamerError, match=r"labels.csv, line 2: expected numbers: .*heavy"):
        read(tmp_path, f"vertex,label,{header}\nann,red,{row.format('train', 'heavy')}\n")


def problem(seed: int, classes: int = 4) -> tuple[Any, Any, Any]:
    """Classes, some unknown and the last without a training example; a training mask; sample weights."""
    random = np.random.default_rng(seed)
    targets = random.integers(-1, classes, 60)
    train = (random.random(60) < 0.5) & (targets >= 0) & (targets < classes - 1)
    return targets, train, random.uniform(0, 2, 60)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("sampled", [False, True])
def test_balanced_classes_are_those_of_scikit_learn(seed: int, sampled: bool) -> None:
    targets, train, sample_weights = problem(seed)
    given = sample_weights if sampled else None
    totals = sum_weights(targets, train, given, True, 4)
    weights, positive = make_example_weights(targets, given, True, totals)
    assert weights is not None
    assert positive is None
    expected = compute_sample_weight("balanced", targets[train]) * (sample_weights[train] if sampled else 1.0)
    np.testing.assert_allclose(weights[train], expected * train.sum() / expected.sum(), rtol=1e-12)
    assert weights[train].sum() == pytest.approx(train.sum(), rel=1e-12)
    alike = targets == 3  # no training example: the weight of a class is 1
    scale = (weights[train] / expected)[0]
    np.testing.assert_allclose(weights[alike], scale * (sample_weights[alike] if sampled else 1.0), rtol=1e-12)


@pytest.mark.parametrize("balanced", [False, True])
@pytest.mark.parametrize("labels", [False, True])
def test_sums_of_parts_add_to_those_of_the_whole(balanced: bool, labels: bool) -> None:
    targets, train, sample_weights = problem(0)
    if labels:
        targets = np.random.default_rng(1).random((60, 4)) < 0.3
    parts = np.arange(60) % 3
    whole = sum_weights(targets, train, sample_weights, balanced, 4)
    each = [
        sum_weights(targets[parts == k], train[parts == k], sample_weights[parts == k], balanced, 4) for k in range(3)
    ]
    np.testing.assert_allclose(np.sum(each, axis=0), whole, rtol=1e-12)
    together, positive = make_example_weights(targets, sample_weights, balanced, whole)
    assert together is not None
    for k in range(3):
        mine, same = make_example_weights(
            targets[parts == k], sample_weights[parts == k], balanced, np.sum(each, axis=0)
        )
        assert mine is not None
        np.testing.assert_allclose(mine, together[parts == k], rtol=1e-12)
        assert (positive is None) == (same is None) == (not (labels and balanced))


def test_positive_labels_weigh_as_many_as_there_are_negative_ones() -> None:
    targets = np.array([[1, 0, 1], [0, 0, 1], [0, 0, 1], [0, 1, 1], [1, 1, 0]]) == 1
    train = np.array([True, True, True, True, False])
    totals = sum_weights(targets, train, None, True, 3)
    weights, positive = make_example_weights(targets, None, True, totals)
    assert weights is None
    np.testing.assert_array_equal(positive, [3.0, 3.0, 1.0])  # all have the last one
    seldom = make_example_weights(targets, None, True, sum_weights(targets, train & ~targets[:, 1], None, True, 3))
    np.testing.assert_array_equal(seldom[1], [2.0, 1.0, 1.0])  # none has the second one


def test_nothing_is_weighted_unless_asked_for() -> None:
    targets, train, _ = problem(0)
    assert make_example_weights(targets, None, False, sum_weights(targets, train, None, False, 4)) == (None, None)


def test_real_values_have_no_class_weights() -> None:
    with pytest.raises(GossamerError, match=r"class weights are for classes or labels, .*--class-weights at none"):
        sum_weights(np.ones((4, 1)), np.ones(4, dtype=bool), None, True, None)


def test_weights_beyond_float32_are_refused() -> None:
    weights = np.array([1e-30, 1e-30, 1e20, 1.0])
    targets, train = np.array([0, 1, 0, 1]), np.arange(4) < 2
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(GossamerError, match="sample weights differ too much"):
            make_example_weights(targets, weights, False, sum_weights(targets, train, weights, False, 2))
