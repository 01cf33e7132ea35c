"""Agent graphs: each family by its pairs, symmetric, connected and without self-links."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracles.graphs import adjacencies, cycles, is_connected, reachable

from gossamer.topology import (
    TOPOLOGIES,
    complete,
    count_components,
    exponential,
    grid,
    line,
    links_of,
    needed_links,
    random_connected,
    ring,
    star,
    torus,
)

SIZES, SEEDS = st.integers(1, 20), st.integers(0, 10**6)
KINDS = pytest.mark.parametrize("kind", sorted(set(TOPOLOGIES) - {"needed"}))


def pairs_of(links: np.ndarray) -> set[tuple[int, int]]:
    return {(int(k), int(z)) for k, z in np.argwhere(links)}


@KINDS
@given(SIZES, SEEDS)
def test_links_are_symmetric_connected_and_without_self_links(kind: str, m: int, seed: int) -> None:
    links = TOPOLOGIES[kind].links(np.zeros((m, m)), seed)
    assert links.dtype == np.bool_
    assert links.shape == (m, m)
    np.testing.assert_array_equal(links, links.T)
    assert not links.diagonal().any()
    assert is_connected(links)


@given(SIZES)
def test_families_by_their_pairs(m: int) -> None:
    pairs = {(k, z) for k in range(m) for z in range(m) if k != z}
    powers = {2**j for j in range(10) if 2**j < m}
    expected = {
        complete: pairs,
        line: {(k, z) for k, z in pairs if abs(k - z) == 1},
        ring: {(k, z) for k, z in pairs if (k - z) % m in (1, m - 1)},
        star: {(k, z) for k, z in pairs if 0 in (k, z)},
        exponential: {(k, z) for k, z in pairs if (k - z) % m in powers or (z - k) % m in powers},
    }
    for family, wanted in expected.items():
        assert pairs_of(family(m)) == wanted


@given(SIZES)
def test_grids_and_tori_by_rows_and_columns(m: int) -> None:
    rows = max(r for r in range(1, m + 1) if m % r == 0 and r * r <= m)
    columns = m // rows
    flat, closed = set(), set()
    for k in range(m):
        (i, j) = divmod(k, columns)
        flat |= {(k, a * columns + b) for a, b in ((i - 1, j), (i + 1, j)) if 0 <= a < rows}
        flat |= {(k, a * columns + b) for a, b in ((i, j - 1), (i, j + 1)) if 0 <= b < columns}
        closed |= {(k, (i + s) % rows * columns + j) for s in (-1, 1)}
        closed |= {(k, i * columns + (j + s) % columns) for s in (-1, 1)}
    assert pairs_of(grid(m)) == flat
    assert pairs_of(torus(m)) == {(k, z) for k, z in closed if k != z}


def test_a_grid_of_six_and_a_torus_of_nine_by_hand() -> None:
    assert {(k, z) for k, z in pairs_of(grid(6)) if k < z} == {(0, 1), (1, 2), (3, 4), (4, 5), (0, 3), (1, 4), (2, 5)}
    np.testing.assert_array_equal(torus(9).sum(1), np.full(9, 4))
    np.testing.assert_array_equal(np.flatnonzero(torus(9)[0]), [1, 2, 3, 6])


@given(st.integers(2, 20), SEEDS)
def test_the_same_seed_gives_the_same_random_graph(m: int, seed: int) -> None:
    np.testing.assert_array_equal(random_connected(m, seed), random_connected(m, seed))
    np.testing.assert_array_equal(TOPOLOGIES["random"].links(np.zeros((m, m)), seed), random_connected(m, seed))


def test_other_seeds_give_other_random_graphs() -> None:
    assert len({random_connected(12, seed).tobytes() for seed in range(50)}) == 50


@pytest.mark.parametrize("m", [6, 12, 20])
def test_random_graphs_have_log2_m_links_an_agent_in_the_mean(m: int) -> None:
    mean = np.mean([random_connected(m, seed).sum() / m for seed in range(400)])
    assert mean == pytest.approx(math.log2(m), rel=0.03)


def test_the_table_of_topologies_holds_each_family_by_its_name() -> None:
    named = {
        "complete": complete,
        "ring": ring,
        "line": line,
        "star": star,
        "grid": grid,
        "torus": torus,
        "exponential": exponential,
    }
    assert set(TOPOLOGIES) == {*named, "random", "needed", "admm"}
    for name, family in named.items():
        np.testing.assert_array_equal(TOPOLOGIES[name].links(np.zeros((12, 12)), 5), family(12))


@given(adjacencies())
def test_needed_links_are_where_edges_are_shared(weights: np.ndarray) -> None:
    shared = (10 * weights).astype(int)
    with_own = shared + np.diag(np.arange(len(shared)))
    np.testing.assert_array_equal(needed_links(with_own), shared > 0)
    np.testing.assert_array_equal(with_own.diagonal(), np.arange(len(shared)))


def test_the_links_of_a_matrix_are_its_nonzero_entries_off_the_diagonal() -> None:
    C = np.array([[0.5, -1e-300, 0.0], [0.2, 0.0, 1.0], [0.0, 0.0, 3.0]])
    assert pairs_of(links_of(C)) == {(0, 1), (1, 0), (1, 2)}


@given(adjacencies())
def test_components_are_counted_by_walking(adjacency: np.ndarray) -> None:
    groups = {frozenset(reachable(adjacency, k)) for k in range(len(adjacency))}
    assert count_components(adjacency > 0) == len(groups)


def test_components_of_separate_rings() -> None:
    assert count_components(cycles(3, 1, 4, 1) > 0) == 4
