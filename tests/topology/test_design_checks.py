"""Input that a design refuses, with a message that names the fault."""

from typing import Any

import numpy as np
import pytest

from gossamer.errors import GossamerError
from gossamer.topology import check_shared_edges, design, drop_links
from gossamer.topology.admm import initial_state

PATH = np.array([[0, 2, 0], [2, 0, 1], [0, 1, 0]])


def changed(k: int, z: int, value: float) -> np.ndarray:
    B = PATH.astype(float)
    B[k, z] = value
    return B


@pytest.mark.parametrize(
    ("shared", "message"),
    [
        (np.zeros((2, 3)), r"must be square.*got the shape \(2, 3\)"),
        (np.zeros(4), r"must be square.*got the shape \(4,\)"),
        (np.zeros((2, 2, 2)), r"must be square.*got the shape \(2, 2, 2\)"),
        (np.float64(3.0), r"must be square.*got the shape \(\)"),
        (np.zeros((0, 0)), "at least 2 agents"),
        ([[5]], "at least 2 agents"),
        (changed(0, 2, np.nan), "NaN or infinite entries, the first for agents 0 and 2"),
        (changed(2, 1, np.inf), "NaN or infinite entries, the first for agents 2 and 1"),
        (changed(1, 0, -3), "cannot be negative; it is -3 for agents 1 and 0"),
        (changed(0, 2, 4), r"symmetric in its support: it is 4 for agents 0 and 2, but 0 for 2 and 0 \(1 such pairs\)"),
        ([["a", "b"], ["c", "d"]], "matrix of numbers"),
        ([[0, 1], [1]], "matrix of numbers"),
        ([[0, {}], [{}, 0]], "matrix of numbers"),
    ],
)
def test_a_wrong_matrix_of_shared_edges_is_refused(shared: Any, message: str) -> None:
    with pytest.raises(GossamerError, match=message):
        check_shared_edges(shared)
    with pytest.raises(GossamerError, match=message):
        design(shared, 0.5)


@pytest.mark.parametrize(
    "shared",
    [PATH, PATH.tolist(), PATH > 0, PATH.astype(np.float32), changed(0, 1, 7.5), changed(1, 1, 9), changed(2, 2, -1)],
)
def test_counts_of_any_kind_are_accepted(shared: Any) -> None:
    B = check_shared_edges(shared)
    assert B.dtype == np.float64
    expected = np.array(shared, dtype=float)
    np.fill_diagonal(expected, 0.0)
    np.testing.assert_array_equal(B, expected)
    np.testing.assert_array_equal(design(shared, 0.3).needed_links, PATH > 0)


@pytest.mark.parametrize("gap", [0.0, -0.1, 1.0001, 2.0, float("nan"), float("inf")])
def test_a_gap_outside_zero_and_one_is_refused(gap: float) -> None:
    with pytest.raises(GossamerError, match=rf"the gap must be above 0 and at most 1, got {gap:g}"):
        design(PATH, gap)


@pytest.mark.parametrize("floor", [0.0, -0.1, 0.17, float("nan")])
def test_a_floor_outside_zero_and_half_of_one_over_m_is_refused(floor: float) -> None:
    with pytest.raises(
        GossamerError, match=rf"the floor must be above 0 and at most 1/\(2m\) = 0\.166667, got {floor:g}"
    ):
        design(PATH, 0.5, floor=floor)


def test_a_gap_that_rounding_hides_is_refused() -> None:
    with pytest.raises(GossamerError, match="a gap of 1e-12 drowns in rounding"):
        design(PATH, 1e-12)


@pytest.mark.parametrize("tolerance", [0.0, -1e-4, 1.0, float("nan")])
def test_a_tolerance_outside_zero_and_one_is_refused(tolerance: float) -> None:
    with pytest.raises(GossamerError, match=rf"the tolerance must be between 0 and 1, got {tolerance:g}"):
        design(PATH, 0.5, tolerance=tolerance)


def test_the_number_of_one_way_pairs_is_told() -> None:
    with pytest.raises(GossamerError, match=r"3 such pairs.*give both directions"):
        design(np.triu(np.ones((3, 3)), 1), 0.5)


def test_a_warm_start_of_another_size_is_refused() -> None:
    with pytest.raises(GossamerError, match="the warm start is for 4 agents, and B for 3"):
        design(PATH, 0.5, warm_start=initial_state(4))


@pytest.mark.parametrize("kept", [-0.1, 1.1, float("nan")])
def test_a_share_outside_zero_and_one_is_refused(kept: float) -> None:
    with pytest.raises(GossamerError, match=f"share of links to keep must be between 0 and 1, got {kept:g}"):
        drop_links(PATH > 0, kept)
