"""Standardisation against scikit-learn's, merged over parts; zeros of sparse features stay zeros."""

from dataclasses import replace
from functools import reduce
from typing import Any

import numpy as np
import pytest
import torch
from agents.cases import make_case
from scipy import sparse
from sklearn.preprocessing import StandardScaler

from gossamer.data.moments import BLOCK_NUMBERS, Moments, measure_moments, unpack_moments
from gossamer.data.standardisation import measure_transform


def table(rows: int, columns: int = 6) -> Any:
    random = np.random.default_rng(rows)
    return random.normal(random.normal(size=columns) * 1e3, 10.0 ** np.arange(-3, columns - 3), (rows, columns))


@pytest.mark.parametrize("cuts", [[], [1], [7, 7, 30], [50, 199]])
def test_moments_merge_to_those_of_the_whole(cuts: list[int]) -> None:
    rows = table(200)
    rows[:, 2] = 5.0
    rows[::3, 1] = 0.0
    parts = [measure_moments(part) for part in np.split(rows, cuts)]
    found = reduce(Moments.merge, parts)
    assert found.count == 200
    np.testing.assert_allclose(found.mean, rows.mean(0), rtol=1e-13)
    np.testing.assert_allclose(found.spread, ((rows - rows.mean(0)) ** 2).sum(0), rtol=1e-10, atol=1e-18)
    np.testing.assert_allclose(found.squares, (rows**2).sum(0), rtol=1e-12)
    np.testing.assert_array_equal(found.nonzeros, (rows != 0).sum(0))
    again = unpack_moments(found.pack())
    for name, part in vars(found).items():
        np.testing.assert_array_equal(getattr(again, name), part)


def test_moments_of_sparse_and_of_many_rows_are_those_of_dense_ones() -> None:
    rows = np.random.default_rng(0).normal(size=(BLOCK_NUMBERS // 3 + 17, 4)).astype(np.float32)  # several blocks
    rows[rows < 0.5] = 0
    dense, alike = measure_moments(rows), measure_moments(sparse.csr_array(rows))
    for name, part in vars(dense).items():
        np.testing.assert_allclose(getattr(alike, name), part, rtol=1e-9)
    np.testing.assert_allclose(dense.mean, rows.mean(0, dtype=np.float64), rtol=1e-12)


def with_features(features: Any, **changes: Any) -> Any:
    return replace(make_case(sparse_features=False).graph, features=features, **changes)


def test_dense_features_are_centred_and_scaled_as_scikit_learn_does() -> None:
    features = table(24)
    features[:, 3] = 7.0  # constant
    graph = with_features(features)
    transform = measure_transform(graph)
    found = transform.apply(graph, "float64")
    expected = StandardScaler().fit_transform(features)
    expected[:, 3] = 7.0  # as it is: D times a constant has the degrees in it
    np.testing.assert_allclose(found.features, expected, rtol=1e-9, atol=1e-9)
    np.testing.assert_array_equal(found.targets, graph.targets)
    assert transform.apply(graph, "float32").features.dtype == np.float32


@pytest.mark.parametrize("kind", ["csr", "dense"])
@pytest.mark.parametrize("size", [1e-6, 0.009, 0.011, 1, 3, 9.9, 11, 1e6])
def test_features_with_many_zeros_are_scaled_only_if_their_size_is_unusual(kind: str, size: float) -> None:
    words = (np.random.default_rng(3).random((24, 40)) < 0.2) * size
    graph = with_features(sparse.csr_array(words) if kind == "csr" else words.astype(np.float32))
    found = measure_transform(graph).apply(graph, "float64").features
    assert sparse.issparse(found) == (kind == "csr")
    rows = found.toarray() if kind == "csr" else found
    np.testing.assert_allclose(rows, words if 0.01 <= size <= 10 else words / size, rtol=1e-6)


def test_large_columns_beside_categories_are_scaled_alone() -> None:
    random = np.random.default_rng(3)
    categories = np.eye(30)[random.integers(30, size=24)]
    people = np.stack([random.normal(45, 10, 24), random.normal(5e4, 1e4, 24)], axis=1)
    graph = with_features(np.concatenate([categories, people], axis=1))
    found = measure_transform(graph).apply(graph, "float64").features
    np.testing.assert_array_equal(found[:, :30], categories)
    np.testing.assert_allclose(found[:, 30:], people / np.sqrt((people**2).mean(0)))


def test_an_outlier_among_sparse_counts_changes_its_column_alone() -> None:
    counts = np.random.default_rng(3).poisson(0.2, (24, 40)).astype(float)
    counts[3, 5] = 1e9
    graph = with_features(sparse.csr_array(counts))
    found = measure_transform(graph).apply(graph, "float64").features.toarray()
    others = np.arange(40) != 5
    np.testing.assert_array_equal(found[:, others], counts[:, others])
    assert found[3, 5] < 5


def test_columns_with_many_zeros_of_dense_features_are_not_centred() -> None:
    random = np.random.default_rng(3)
    rare = (random.random((24, 1)) < 0.1) * 1.0
    rare[0] = 1.0
    graph = with_features(np.concatenate([random.normal(3, 2, (24, 4)), rare], axis=1))
    found = measure_transform(graph).apply(graph, "float64").features
    np.testing.assert_allclose(found[:, :4].mean(0), 0, atol=1e-9)
    np.testing.assert_array_equal(found[:, 4:], rare)


@pytest.mark.parametrize("kind", ["csr", "dense"])
def test_small_deviations_from_a_large_mean_are_kept(kind: str) -> None:
    """Time stamps in milliseconds."""
    stamps = 1.7e12 + np.random.default_rng(3).normal(0, 1e3, (24, 2))
    graph = with_features(sparse.csr_array(stamps) if kind == "csr" else stamps)
    found = measure_transform(graph).apply(graph, "float64").features
    np.testing.assert_allclose(found, StandardScaler().fit_transform(stamps), rtol=1e-5)


@pytest.mark.parametrize("value", [1.0, 1e-5, 0.1, 300.0])
def test_a_constant_feature_is_not_centred(value: float) -> None:
    """The usual feature of a graph that has none: its propagation has the degrees in it."""
    graph = with_features(np.full((24, 1), value, dtype=np.float32))
    found = measure_transform(graph).apply(graph, "float64").features
    np.testing.assert_allclose(found, np.float32(value) if 0.01 <= value <= 10 else 1.0, rtol=1e-6)


def test_sparse_features_that_are_full_are_centred() -> None:
    graph = with_features(sparse.csr_array(table(24)))
    found = measure_transform(graph).apply(graph, "float64").features
    np.testing.assert_allclose(found.mean(0), 0, atol=1e-9)


def test_targets_are_standardised_by_training_examples_and_restored() -> None:
    targets = np.random.default_rng(1).normal(1e4, 300, (24, 2))
    graph = with_features(table(24), targets=targets, num_classes=None)
    transform = measure_transform(graph)
    found = transform.apply(graph, "float64")
    np.testing.assert_allclose(found.targets[graph.train].mean(0), 0, atol=1e-9)
    np.testing.assert_allclose(found.targets[graph.train].std(0), 1)
    assert abs(found.targets.mean()) > 1e-3  # the others take no part
    restored = transform.restore_outputs(torch.from_numpy(found.targets).float())
    np.testing.assert_allclose(restored.numpy(), targets, rtol=0, atol=1e-4)  # float32 has 1e-3 near 1e4


def test_of_a_time_axis_the_training_times_count() -> None:
    features = np.random.default_rng(1).normal(5, 2, (24, 4, 3))
    features[:, 3] = 1e6  # of the test alone
    train = np.zeros((24, 4), dtype=bool)
    train[:, :2] = True
    graph = with_features(features, targets=features[..., :1], num_classes=None, train=train)
    found = measure_transform(graph).apply(graph, "float64").features
    np.testing.assert_allclose(found[:, :2].mean((0, 1)), 0, atol=1e-9)
    np.testing.assert_allclose(found[:, :2].std((0, 1)), 1)
