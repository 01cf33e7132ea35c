"""Combination matrices on given links: (A1)-(A3) hold on every family and every connected graph."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from oracles.graphs import adjacencies
from topology.cases import hub, radius_of

from gossamer.topology import (
    MIXING_WEIGHTS,
    TOPOLOGIES,
    check_assumptions,
    fastest_weights,
    line,
    max_degree_weights,
    metropolis_weights,
)

Weigh = Callable[[np.ndarray], np.ndarray]


@pytest.mark.parametrize("weigh", [metropolis_weights, max_degree_weights])
@given(adjacencies(connected=True))
def test_weights_satisfy_the_assumptions_on_connected_links(weigh: Weigh, adjacency: np.ndarray) -> None:
    links = adjacency > 0
    C = weigh(links)
    m = len(C)
    np.testing.assert_array_equal(C, C.T)
    np.testing.assert_allclose(C.sum(0), np.ones(m), atol=1e-14)
    np.testing.assert_array_equal(C[~np.eye(m, dtype=bool)] > 0, links[~np.eye(m, dtype=bool)])
    assert (C.diagonal() > 0).all()
    assert radius_of(C) < 1
    assert check_assumptions(C, links).holds == {"A1": True, "A2": True, "A3": True}


@pytest.mark.parametrize("kind", sorted(set(TOPOLOGIES) - {"needed"}))
@pytest.mark.parametrize("name", MIXING_WEIGHTS)
def test_weights_satisfy_the_assumptions_on_the_families(name: str, kind: str) -> None:
    for m in (1, 2, 3, 4, 6, 9, 13, 20):
        links = TOPOLOGIES[kind].links(np.zeros((m, m)), m)
        C = MIXING_WEIGHTS[name](links, False)
        assert check_assumptions(C, links).holds == {"A1": True, "A2": True, "A3": True}
        np.testing.assert_array_equal(C, C.T)
        np.testing.assert_allclose(C.sum(1), np.ones(m), atol=1e-14 * m)
        assert radius_of(C) < 1


def test_metropolis_and_uniform_by_hand() -> None:
    third = np.array([[1, 1, 1], [1, 2, 0], [1, 0, 2]]) / 3
    np.testing.assert_allclose(metropolis_weights(hub(3)), third, atol=1e-15)
    np.testing.assert_allclose(max_degree_weights(hub(3)), third, atol=1e-15)
    path = line(4)
    np.testing.assert_allclose(metropolis_weights(path), max_degree_weights(path), atol=1e-15)
    kite = np.array([[0, 1, 1, 1], [1, 0, 1, 0], [1, 1, 0, 0], [1, 0, 0, 0]], dtype=bool)
    expected = np.array(
        [[1 / 4, 1 / 4, 1 / 4, 1 / 4], [1 / 4, 5 / 12, 1 / 3, 0], [1 / 4, 1 / 3, 5 / 12, 0], [1 / 4, 0, 0, 3 / 4]]
    )
    np.testing.assert_allclose(metropolis_weights(kite), expected, atol=1e-15)
    np.testing.assert_allclose(max_degree_weights(kite), np.eye(4) - (np.diag(kite.sum(1)) - kite) / 4, atol=1e-15)


def test_the_table_of_weights_holds_each_by_its_name() -> None:
    named: dict[str, Weigh] = {
        "metropolis": metropolis_weights,
        "uniform": max_degree_weights,
        "fastest": fastest_weights,
    }
    assert set(named) == set(MIXING_WEIGHTS)
    for name, weigh in named.items():
        np.testing.assert_array_equal(MIXING_WEIGHTS[name](line(5), False), weigh(line(5)))
