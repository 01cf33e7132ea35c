"""(A1)-(A3) are measured, and a violation of each is seen by itself."""

from collections.abc import Callable

import numpy as np
import pytest
from oracles.graphs import cycles
from topology.cases import radius_of

from gossamer.topology import check_assumptions, complete, line, max_degree_weights, metropolis_weights, ring
from gossamer.topology.fastest import make_deployable


@pytest.mark.parametrize("weigh", [metropolis_weights, max_degree_weights])
def test_weights_on_a_disconnected_graph_fail_a2_only(weigh: Callable[[np.ndarray], np.ndarray]) -> None:
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
    found = check_assumptions(metropolis_weights(ring(5)) * 0.99, ring(5))
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


def test_agents_that_never_talk_fail_a2_whatever_their_spectrum() -> None:
    found = check_assumptions(np.eye(3) / 2, line(3))
    assert found.spectral_radius == pytest.approx(0.5)
    assert found.components == 3
    assert found.holds == {"A1": False, "A2": False, "A3": True}


def test_a_radius_that_was_asked_for_decides_a2() -> None:
    C = metropolis_weights(ring(5))
    radius = radius_of(C)
    assert check_assumptions(C, ring(5), radius + 1e-9).holds == {"A1": True, "A2": True, "A3": True}
    assert check_assumptions(C, ring(5), radius - 1e-9).holds == {"A1": True, "A2": False, "A3": True}
    assert check_assumptions(C, ring(5)).radius == 1.0


def test_a_weight_without_a_link_fails_a3() -> None:
    found = check_assumptions(metropolis_weights(complete(4)), ring(4))
    assert found.off_links == 0.25
    assert found.holds == {"A1": True, "A2": True, "A3": False}


def test_a_weight_however_small_without_a_link_fails_a3() -> None:
    C = metropolis_weights(ring(4))
    C[[0, 2], [2, 0]] = -1e-300
    assert check_assumptions(C, ring(4)).a3 is False


def test_the_least_own_weight_is_measured_whatever_its_sign() -> None:
    C = metropolis_weights(ring(4))
    assert check_assumptions(C, ring(4)).own_weight == pytest.approx(1 / 3)
    assert check_assumptions(C, ring(4)).keeps_own
    C = np.array([[-0.25, 1.25], [1.25, -0.25]])
    assert check_assumptions(C, line(2)).own_weight == 0.25
    assert not check_assumptions((complete(4) + 0.0) / 3, complete(4)).keeps_own


def test_made_weights_never_vanish_on_the_diagonal() -> None:
    Z = np.array([[0.5, 0.5, 0.0], [0.5, 0.0, 0.5], [0.0, 0.5, 0.5]])  # the fastest on a line of three
    C = make_deployable(Z, nonnegative=False)
    found = check_assumptions(C, line(3))
    assert found.holds == {"A1": True, "A2": True, "A3": True}
    assert found.keeps_own
