"""Agent graphs and their combination matrices: (A1)-(A3) hold, and a violation is seen."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracles.graphs import adjacencies, cycles, is_connected

from gossamer.topology import carried_edges, check_assumptions, complete, line, metropolis, needed, ring, uniform

SIZES = st.integers(1, 12)
FAMILIES = pytest.mark.parametrize("family", [complete, ring, line])
WEIGHTS = pytest.mark.parametrize("weigh", [metropolis, uniform])
Family = Callable[[int], np.ndarray]
Weigh = Callable[[np.ndarray], np.ndarray]


@FAMILIES
@given(SIZES)
def test_links_are_symmetric_connected_and_without_self_links(family: Family, m: int) -> None:
    links = family(m)
    assert links.dtype == np.bool_
    assert links.shape == (m, m)
    np.testing.assert_array_equal(links, links.T)
    assert not links.diagonal().any()
    assert is_connected(links)


@given(SIZES)
def test_families_by_their_pairs(m: int) -> None:
    pairs = {(k, z) for k in range(m) for z in range(m) if k != z}
    expected = {
        complete: pairs,
        line: {(k, z) for k, z in pairs if abs(k - z) == 1},
        ring: {(k, z) for k, z in pairs if (k - z) % m in (1, m - 1)},
    }
    for family, wanted in expected.items():
        assert set(zip(*map(np.ndarray.tolist, np.nonzero(family(m))), strict=True)) == wanted


@given(adjacencies())
def test_needed_links_are_where_edges_are_shared(weights: np.ndarray) -> None:
    shared = (10 * weights).astype(int)
    with_own = shared + np.diag(np.arange(len(shared)))
    np.testing.assert_array_equal(needed(with_own), shared > 0)
    np.testing.assert_array_equal(with_own.diagonal(), np.arange(len(shared)))


@WEIGHTS
@given(adjacencies(connected=True))
def test_weights_satisfy_the_assumptions_on_connected_links(weigh: Weigh, adjacency: np.ndarray) -> None:
    links = adjacency > 0
    C = weigh(links)
    m = len(C)
    np.testing.assert_array_equal(C, C.T)
    np.testing.assert_allclose(C.sum(0), np.ones(m), atol=1e-14)
    np.testing.assert_array_equal(C[~np.eye(m, dtype=bool)] > 0, links[~np.eye(m, dtype=bool)])
    assert (C.diagonal() > 0).all()
    assert abs(np.linalg.eigvals(C - 1 / m)).max() < 1
    assert check_assumptions(C, links).holds == {"A1": True, "A2": True, "A3": True}


@FAMILIES
@WEIGHTS
@given(SIZES)
def test_weights_satisfy_the_assumptions_on_the_families(weigh: Weigh, family: Family, m: int) -> None:
    assert all(check_assumptions(weigh(family(m)), family(m)).holds.values())


def test_metropolis_and_uniform_by_hand() -> None:
    star = np.array([[0, 1, 1], [1, 0, 0], [1, 0, 0]], dtype=bool)
    third = np.array([[1, 1, 1], [1, 2, 0], [1, 0, 2]]) / 3
    np.testing.assert_allclose(metropolis(star), third, atol=1e-15)
    np.testing.assert_allclose(uniform(star), third, atol=1e-15)
    path = line(4)
    np.testing.assert_allclose(metropolis(path), uniform(path), atol=1e-15)
    kite = np.array([[0, 1, 1, 1], [1, 0, 1, 0], [1, 1, 0, 0], [1, 0, 0, 0]], dtype=bool)
    expected = np.array(
        [[1 / 4, 1 / 4, 1 / 4, 1 / 4], [1 / 4, 5 / 12, 1 / 3, 0], [1 / 4, 1 / 3, 5 / 12, 0], [1 / 4, 0, 0, 3 / 4]]
    )
    np.testing.assert_allclose(metropolis(kite), expected, atol=1e-15)
    np.testing.assert_allclose(uniform(kite), np.eye(4) - (np.diag(kite.sum(1)) - kite) / 4, atol=1e-15)


@WEIGHTS
def test_weights_on_a_disconnected_graph_fail_a2_only(weigh: Weigh) -> None:
    links = cycles(3, 4) > 0
    found = check_assumptions(weigh(links), links)
    assert found.holds == {"A1": True, "A2": False, "A3": True}
    assert found.components == 2
    assert found.spectral_radius == pytest.approx(1.0)


def test_an_asymmetric_matrix_fails_a1() -> None:
    C = np.roll(np.eye(3), 1, axis=1) / 2 + np.eye(3) / 2  # doubly stochastic all the same
    found = check_assumptions(C, complete(3))
    assert found.asymmetry == 0.5
    assert found.row_error == 0.0
    assert found.holds == {"A1": False, "A2": True, "A3": True}


def test_wrong_row_sums_fail_a1() -> None:
    found = check_assumptions(metropolis(ring(5)) * 0.99, ring(5))
    assert found.row_error == pytest.approx(0.01)
    assert found.holds == {"A1": False, "A2": True, "A3": True}


def test_a_spectral_radius_of_one_fails_a2_on_connected_links() -> None:
    swap = np.array([[0.0, 1.0], [1.0, 0.0]])
    found = check_assumptions(swap, line(2))
    assert found.components == 1
    assert found.spectral_radius == pytest.approx(1.0)
    assert found.holds == {"A1": True, "A2": False, "A3": True}


def test_an_unstable_matrix_fails_a2() -> None:
    C = np.array([[-1.0, 2.0], [2.0, -1.0]])
    assert check_assumptions(C, line(2)).holds == {"A1": True, "A2": False, "A3": True}
    assert check_assumptions(C, line(2)).spectral_radius == pytest.approx(3.0)


def test_a_weight_without_a_link_fails_a3() -> None:
    found = check_assumptions(metropolis(complete(4)), ring(4))
    assert found.off_links == 0.25
    assert found.holds == {"A1": True, "A2": True, "A3": False}


@given(adjacencies(), adjacencies(max_vertices=5), st.integers(0, 10**6))
def test_carried_edges_stay_inside_an_agent_or_cross_a_link(
    adjacency: np.ndarray, agents: np.ndarray, seed: int
) -> None:
    links = agents > 0
    owner = np.random.default_rng(seed).integers(0, len(links), len(adjacency))
    edges = np.argwhere(np.triu(adjacency, 1))
    expected = [owner[i] == owner[j] or links[owner[i], owner[j]] for i, j in edges]
    np.testing.assert_array_equal(carried_edges(edges, owner, links), np.array(expected, dtype=bool))
