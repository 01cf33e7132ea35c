"""Assignments a(i): owners, sizes and connectivity of the parts, and the shared edge counts B."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracles.graphs import adjacencies, csr, cycles, path_csr, path_graph, random_adjacency, reachable, to_graph

from gossamer.assignment import (
    ASSIGNMENTS,
    assign,
    assign_to_nearest,
    assign_uniformly,
    check_assignment,
    grow_balanced,
    grow_breadth_first,
    partition_stream,
    partition_with_metis,
    place_stations,
    shared_edges,
)
from gossamer.errors import GossamerError

SEEDS = st.integers(0, 2**32 - 1)
Growth = Callable[[Any, int, int], np.ndarray]


def parts_are_connected(adjacency: np.ndarray, owner: np.ndarray) -> bool:
    for k in np.unique(owner):
        mine = np.flatnonzero(owner == k)
        if len(reachable(adjacency[np.ix_(mine, mine)], 0)) < len(mine):
            return False
    return True


@given(adjacencies(), st.data(), SEEDS)
@pytest.mark.parametrize("grow", [grow_breadth_first, grow_balanced, partition_stream])
def test_every_vertex_has_an_agent_and_every_agent_a_vertex(
    grow: Growth, adjacency: np.ndarray, data: st.DataObject, seed: int
) -> None:
    m = data.draw(st.integers(1, len(adjacency)))
    owner = grow(csr(adjacency), m, seed)
    assert owner.dtype == np.int64
    assert owner.shape == (len(adjacency),)
    np.testing.assert_array_equal(np.unique(owner), np.arange(m))


@given(adjacencies(connected=True), st.data(), SEEDS)
def test_breadth_first_parts_are_connected(adjacency: np.ndarray, data: st.DataObject, seed: int) -> None:
    owner = grow_breadth_first(csr(adjacency), data.draw(st.integers(1, len(adjacency))), seed)
    assert parts_are_connected(adjacency, owner)


@given(adjacencies(connected=True), st.data(), SEEDS)
def test_breadth_first_gives_a_vertex_to_a_nearest_seed(adjacency: np.ndarray, data: st.DataObject, seed: int) -> None:
    n = len(adjacency)
    m = data.draw(st.integers(1, n))
    owner = grow_breadth_first(csr(adjacency), m, seed)
    hops = np.where(adjacency > 0, 1.0, np.inf)
    np.fill_diagonal(hops, 0.0)
    for via in range(n):
        hops = np.minimum(hops, hops[:, [via]] + hops[[via]])
    seeds = np.random.default_rng(seed).choice(n, size=m, replace=False)
    np.testing.assert_array_equal(owner[seeds], np.arange(m))
    np.testing.assert_array_equal(hops[np.arange(n), seeds[owner]], hops[:, seeds].min(1))


def test_breadth_first_enters_a_component_without_a_seed_whole_and_by_the_smallest_agent() -> None:
    adjacency = cycles(30, 4)
    for seed in range(20):
        owner = grow_breadth_first(csr(adjacency), 2, seed)
        small, large = owner[30:], np.bincount(owner[:30], minlength=2)
        if set(owner[:30]) == {0, 1}:  # both seeds fell into the large component
            assert set(small) == {int(large.argmin())}


@pytest.mark.parametrize("m", [1, 2, 3])
def test_breadth_first_with_more_components_than_agents(m: int) -> None:
    adjacency = cycles(3, 1, 4, 1, 3, 2)
    owner = grow_breadth_first(csr(adjacency), m, seed=5)
    np.testing.assert_array_equal(np.unique(owner), np.arange(m))
    lone = [
        first
        for first, size in ((0, 3), (3, 1), (4, 4), (8, 1), (9, 3), (12, 2))
        if len(set(owner[first : first + size])) == 1
    ]
    assert len(lone) >= 7 - m  # two agents in one component need two of the m seeds


def test_breadth_first_draws_ties_at_random() -> None:
    owners = {
        grow_breadth_first(path_csr(3), 2, seed)[1]
        for seed in range(200)
        if set(np.random.default_rng(seed).choice(3, size=2, replace=False)) == {0, 2}
    }
    assert owners == {0, 1}


@given(adjacencies(), st.data(), SEEDS)
def test_balanced_sizes_differ_by_one_at_most(adjacency: np.ndarray, data: st.DataObject, seed: int) -> None:
    m = data.draw(st.integers(1, len(adjacency)))
    sizes = np.bincount(grow_balanced(csr(adjacency), m, seed), minlength=m)
    assert sizes.max() - sizes.min() <= 1


def test_balanced_grows_along_edges() -> None:
    graph = to_graph(random_adjacency(300, 0.01, seed=1))
    grown, random = grow_balanced(graph.adjacency, 5, 0), assign_uniformly(300, 5, 0)
    assert shared_edges(graph, grown, 5).sum() < 0.7 * shared_edges(graph, random, 5).sum()


@pytest.mark.parametrize(
    "method",
    [
        grow_breadth_first,
        grow_balanced,
        partition_stream,
        partition_with_metis,
        lambda a, m, seed: assign_uniformly(a.shape[0], m, seed),
    ],
)
def test_the_seed_alone_decides(method: Growth) -> None:
    adjacency = csr(random_adjacency(80, 0.05, seed=3))
    np.testing.assert_array_equal(method(adjacency, 4, 7), method(adjacency, 4, 7))
    assert any((method(adjacency, 4, 7) != method(adjacency, 4, other)).any() for other in range(5))


def test_uniform_is_uniform() -> None:
    owner = assign_uniformly(40_000, 4, seed=0)
    np.testing.assert_allclose(np.bincount(owner, minlength=4), 10_000, atol=500)


def test_nearest_is_the_station_at_the_smallest_distance() -> None:
    random = np.random.default_rng(0)
    positions, stations = random.normal(size=(50, 2)), random.normal(size=(7, 2))
    expected = [min(range(7), key=lambda k: np.hypot(*(p - stations[k]))) for p in positions]
    np.testing.assert_array_equal(assign_to_nearest(positions, stations), expected)


def test_stations_stand_equispaced_around_the_centre() -> None:
    stations = place_stations([[0.0, 0.0], [4.0, 8.0], [1.0, 2.0]], 4)
    np.testing.assert_allclose(stations, [[3.5, 4.0], [2.0, 7.0], [0.5, 4.0], [2.0, 1.0]], atol=1e-12)


@pytest.mark.parametrize("m", [1, 4, 12])
def test_metis_parts_are_about_equal_and_share_few_edges(m: int) -> None:
    pytest.importorskip("pymetis")
    graph = to_graph(cycles(240))
    owner = partition_with_metis(graph.adjacency, m, 0)
    assert owner.dtype == np.int64
    np.testing.assert_allclose(np.bincount(owner, minlength=m), 240 / m, rtol=0.1)
    assert shared_edges(graph, owner, m).sum() <= 4 * m


@pytest.mark.parametrize("m", [8, 30])
def test_metis_leaves_no_agent_without_a_vertex(m: int) -> None:
    pytest.importorskip("pymetis")
    owner = partition_with_metis(csr(random_adjacency(60, 0.1, seed=0)), m, 0)
    np.testing.assert_array_equal(np.unique(owner), np.arange(m))


def test_a_good_array_of_the_user_passes() -> None:
    owner = check_assignment([1, 0, 1], num_vertices=3, num_agents=2)
    assert owner.dtype == np.int64
    np.testing.assert_array_equal(owner, [1, 0, 1])


@pytest.mark.parametrize(
    ("array", "message"),
    [
        ([0, 1], r"must be 3 integers, one for each vertex, got int64 \(2,\)"),
        ([[0], [1], [0]], r"must be 3 integers.*got int64 \(3, 1\)"),
        ([0.0, 1.0, 0.0], "must be 3 integers.*got float64"),
        ([0, 1, 2], "agents 0 to 1, got 0 to 2"),
        ([0, -1, 1], "agents 0 to 1, got -1 to 1"),
    ],
)
def test_a_bad_array_of_the_user_is_refused_by_name(array: list[Any], message: str) -> None:
    with pytest.raises(GossamerError, match=message):
        check_assignment(array, num_vertices=3, num_agents=2)


@pytest.mark.parametrize("how", ASSIGNMENTS)
def test_assign_by_name(how: str) -> None:
    graph = path_graph()
    positions = graph.positions
    assert positions is not None
    by_hand = {
        "bfs": lambda: grow_breadth_first(graph.adjacency, 2, 3),
        "balanced": lambda: grow_balanced(graph.adjacency, 2, 3),
        "uniform": lambda: assign_uniformly(4, 2, 3),
        "streaming": lambda: partition_stream(graph.adjacency, 2, 3),
        "metis": lambda: partition_with_metis(graph.adjacency, 2, 3),
        "nearest": lambda: assign_to_nearest(positions, place_stations(positions, 2)),
    }
    np.testing.assert_array_equal(assign(graph, how, 2, 3), by_hand[how]())


@pytest.mark.parametrize(
    ("changes", "how", "m", "message"),
    [
        ({}, "bfs", 0, "expected 1 to 4 agents.*got 0"),
        ({}, "bfs", 5, "expected 1 to 4 agents.*got 5"),
        ({}, "bsf", 2, "assignment among bfs, .*got 'bsf'"),
        ({"positions": None}, "nearest", 2, "needs vertex positions, and path has none"),
    ],
)
def test_assign_refuses_by_name(changes: dict[str, Any], how: str, m: int, message: str) -> None:
    with pytest.raises(GossamerError, match=message):
        assign(path_graph(**changes), how, m, 0)


@given(adjacencies(), st.integers(1, 5), SEEDS)
def test_shared_edges_counts_the_edges_between_agents(adjacency: np.ndarray, m: int, seed: int) -> None:
    owner = assign_uniformly(len(adjacency), m, seed)
    expected = np.zeros((m, m), dtype=np.int64)
    for i in range(len(adjacency)):
        for j in range(i):
            if adjacency[i, j] and owner[i] != owner[j]:
                expected[owner[i], owner[j]] += 1
                expected[owner[j], owner[i]] += 1
    np.testing.assert_array_equal(shared_edges(to_graph(adjacency), owner, m), expected)


def test_a_method_added_from_outside_is_found_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ASSIGNMENTS, "stripes", lambda graph, m, seed: np.arange(graph.num_vertices) % m)
    np.testing.assert_array_equal(assign(path_graph(), "stripes", 2, 0), [0, 1, 0, 1])
    monkeypatch.setitem(ASSIGNMENTS, "wrong", lambda graph, m, seed: np.full(graph.num_vertices, m))
    with pytest.raises(GossamerError, match="must name agents 0 to 1, got 2 to 2"):
        assign(path_graph(), "wrong", 2, 0)
