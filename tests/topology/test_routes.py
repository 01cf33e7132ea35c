"""Routes between agents without a link: shortest paths along links, evenly loaded, the same for all who plan them."""

import time
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracles.graphs import adjacencies, cycles
from scipy import sparse

from gossamer.errors import GossamerError
from gossamer.topology import (
    TOPOLOGIES,
    Routes,
    connected_pairs,
    count_hops,
    grid,
    line,
    link_load,
    plan_routes,
    random_connected,
    ring,
    star,
)

SEEDS = st.integers(0, 10**6)


def random_demand(m: int, seed: int, share: float = 0.7) -> np.ndarray:
    random = np.random.default_rng(seed)
    half = np.triu(random.integers(1, 50, (m, m)) * (random.random((m, m)) < share), 1)
    return half + half.T


def distances(links: np.ndarray) -> np.ndarray:
    return np.asarray(sparse.csgraph.dijkstra(sparse.csr_array(links.astype(float)), unweighted=True, directed=False))


def naive_routes(links: np.ndarray, demand: np.ndarray) -> Routes:
    """Breadth-first search from the smaller end, the first path that it finds."""
    paths = {}
    for k, z in np.argwhere(np.triu((demand > 0) & ~links, 1)).tolist():
        parent, queue = {k: k}, [k]
        while queue:
            a = queue.pop(0)
            for b in np.flatnonzero(links[a]).tolist():
                if b not in parent:
                    parent[b] = a
                    queue.append(b)
        path = [z]
        while path[-1] != k:
            path.append(parent[path[-1]])
        paths[k, z] = tuple(reversed(path))
    return Routes(paths)


@given(adjacencies(connected=True), SEEDS)
def test_routes_are_shortest_simple_paths_along_links(adjacency: np.ndarray, seed: int) -> None:
    links = adjacency > 0
    demand = random_demand(len(links), seed)
    routes = plan_routes(links, demand)
    assert set(routes.paths) == {(k, z) for k, z in np.argwhere(np.triu((demand > 0) & ~links, 1)).tolist()}
    hops = distances(links)
    for (k, z), path in routes.paths.items():
        assert path[0] == k
        assert path[-1] == z
        assert all(links[a, b] for a, b in pairwise(path))
        assert len(set(path)) == len(path) == hops[k, z] + 1
        assert routes.path(k, z) == path
        assert routes.path(z, k) == path[::-1]
    assert routes.longest == max((hops[pair] for pair in routes.paths), default=1)


@given(adjacencies(connected=True), SEEDS)
def test_the_load_counts_every_link_and_is_at_most_that_of_breadth_first_search(
    adjacency: np.ndarray, seed: int
) -> None:
    links = adjacency > 0
    demand = random_demand(len(links), seed)
    routes, naive = plan_routes(links, demand), naive_routes(links, demand)
    load = link_load(routes, demand)
    np.testing.assert_array_equal(load, load.T)
    assert not load[~links].any()
    assert load.sum() == (demand * distances(links)).sum()
    assert load.max(initial=0) <= link_load(naive, demand).max(initial=0)
    by_hops = count_hops(routes, demand)
    assert sum(hops * number for hops, number in by_hops.items()) == np.triu(load).sum()
    assert sum(by_hops.values()) == np.triu(demand).sum()


def test_the_load_of_each_direction_follows_its_route() -> None:
    demand = np.array([[0, 1, 2], [3, 0, 4], [5, 6, 0]])
    routes = plan_routes(line(3), demand + demand.T)
    np.testing.assert_array_equal(link_load(routes, demand), [[0, 3, 0], [8, 0, 6], [0, 11, 0]])


@given(adjacencies(connected=True), SEEDS)
def test_every_agent_plans_the_same(adjacency: np.ndarray, seed: int) -> None:
    """Kinds of numbers and of memory order do not matter, nor does a second call."""
    links = adjacency > 0
    demand = random_demand(len(links), seed)
    routes = plan_routes(links, demand)
    again = plan_routes(np.asfortranarray(links), demand.astype(np.float32).tolist())
    assert routes == again
    assert list(routes.paths) == list(again.paths)


def test_routes_avoid_a_loaded_link() -> None:
    """Opposite corners of a square: paths by number pass the link 0 - 1, which carries edges of its own."""
    square, demand = cycles(4) > 0, np.zeros((4, 4), dtype=int)
    demand[0, 2] = demand[2, 0] = 5
    demand[0, 1] = demand[1, 0] = 7
    assert link_load(naive_routes(square, demand), demand).max() == 12
    assert plan_routes(square, demand).paths == {(0, 2): (0, 3, 2)}


def test_paths_by_hand() -> None:
    ones = 1 - np.eye(5, dtype=int)
    assert plan_routes(line(5), ones).path(4, 1) == (4, 3, 2, 1)
    assert plan_routes(star(5), ones).paths[2, 4] == (2, 0, 4)
    assert plan_routes(ring(5), ones).longest == 2
    assert plan_routes(ring(5), ones).path(0, 1) == (0, 1)
    assert count_hops(plan_routes(line(5), ones), ones) == {1: 4, 2: 3, 3: 2, 4: 1}


def test_there_are_no_routes_where_every_pair_has_a_link() -> None:
    routes = plan_routes(~np.eye(4, dtype=bool), np.ones((4, 4)))
    assert routes == Routes()
    assert routes.longest == 1
    assert plan_routes(np.zeros((1, 1), dtype=bool), [[3]]) == Routes()


def test_groups_without_a_path_between_them_are_named() -> None:
    links = cycles(3, 2, 1) > 0
    apart = np.zeros((6, 6), dtype=int)
    apart[2, 4] = apart[4, 2] = 3
    with pytest.raises(GossamerError, match=r"agents 2 and 4, which share data edges.*0, 1, 2 \| 3, 4 apart"):
        plan_routes(links, apart)
    apart[2, 4] = apart[4, 2] = 0
    apart[0, 2] = apart[2, 0] = 3
    assert plan_routes(links, apart) == Routes()
    np.testing.assert_array_equal(connected_pairs(links)[3], [False, False, False, True, True, False])


@pytest.mark.parametrize(
    ("demand", "message"),
    [(np.ones((2, 3)), "3 x 3"), (np.triu(np.ones((3, 3))), "symmetric"), (-np.ones((3, 3)), "nowhere negative")],
)
def test_a_demand_that_is_none_is_refused(demand: np.ndarray, message: str) -> None:
    with pytest.raises(GossamerError, match=message):
        plan_routes(line(3), demand)


def test_a_grid_is_loaded_more_evenly_than_by_breadth_first_search() -> None:
    demand = random_demand(36, 0)
    routes = plan_routes(grid(36), demand)
    assert link_load(routes, demand).max() < 0.8 * link_load(naive_routes(grid(36), demand), demand).max()


@pytest.mark.parametrize("kind", ["line", "grid", "exponential", "random"])
def test_two_hundred_agents_are_planned_in_seconds(kind: str) -> None:
    links = TOPOLOGIES[kind].links(np.zeros((200, 200)), 0)
    start = time.process_time()
    plan_routes(links, random_demand(200, 0))
    assert time.process_time() - start < 20


def test_a_tree_has_one_path_for_each_pair() -> None:
    """Whatever the demand, the routes of a tree are its paths."""
    links = random_connected(2)
    assert plan_routes(links, np.ones((2, 2))) == Routes()
    tree = np.zeros((12, 12), dtype=bool)
    random = np.random.default_rng(3)
    for k in range(1, 12):
        z = random.integers(k)
        tree[k, z] = tree[z, k] = True
    few, many = random_demand(12, 1, 1.0), random_demand(12, 2, 1.0)
    assert plan_routes(tree, few) == plan_routes(tree, many)
