"""Fewer links than the data graph needs: which edges they carry, and which links are dropped."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracles.graphs import adjacencies, cycles, reachable

from gossamer.topology import carried_edges, check_assumptions, complete, drop_links, metropolis_weights, ring

SEEDS = st.integers(0, 10**6)
SHARES = st.integers(0, 16).map(lambda k: k / 16)  # exact in binary, so that a half is a half


def groups(links: np.ndarray) -> set[frozenset[int]]:
    return {frozenset(reachable(links, k)) for k in range(len(links))}


@given(adjacencies(), adjacencies(max_vertices=5), SEEDS)
def test_carried_edges_stay_inside_an_agent_or_cross_a_link(
    adjacency: np.ndarray, agents: np.ndarray, seed: int
) -> None:
    links = agents > 0
    owner = np.random.default_rng(seed).integers(0, len(links), len(adjacency))
    edges = np.argwhere(np.triu(adjacency, 1))
    expected = [owner[i] == owner[j] or links[owner[i], owner[j]] for i, j in edges]
    np.testing.assert_array_equal(carried_edges(edges, owner, links), np.array(expected, dtype=bool))


@given(adjacencies(), SHARES, SEEDS)
def test_dropping_keeps_a_subset_that_connects_what_was_connected(
    adjacency: np.ndarray, kept: float, seed: int
) -> None:
    links = adjacency > 0
    fewer = drop_links(links, kept, seed)
    assert fewer.dtype == np.bool_
    np.testing.assert_array_equal(fewer, fewer.T)
    assert not (fewer & ~links).any()
    assert groups(fewer) == groups(links)


@given(adjacencies(), SHARES, SEEDS)
def test_the_share_is_kept_unless_the_forest_needs_more(adjacency: np.ndarray, kept: float, seed: int) -> None:
    links = adjacency > 0
    number, forest = int(links.sum()) // 2, len(links) - len(groups(links))
    wanted = next(n for n in range(number + 1) if n + 0.5 > kept * number)  # the nearest, a half rounds up
    assert drop_links(links, kept, seed).sum() // 2 == max(wanted, forest)


@pytest.mark.parametrize(("m", "kept", "number"), [(6, 0.5, 8), (5, 0.75, 8), (6, 0.4, 6), (6, 0.375, 6), (6, 0.1, 5)])
def test_half_a_link_is_kept_by_hand(m: int, kept: float, number: int) -> None:
    assert drop_links(complete(m), kept).sum() == 2 * number


@given(adjacencies(), SEEDS)
def test_keeping_all_keeps_all(adjacency: np.ndarray, seed: int) -> None:
    np.testing.assert_array_equal(drop_links(adjacency > 0, 1.0, seed), adjacency > 0)


@given(adjacencies(), SHARES, SEEDS)
def test_the_same_seed_drops_the_same_links(adjacency: np.ndarray, kept: float, seed: int) -> None:
    links = adjacency > 0
    before = links.copy()
    np.testing.assert_array_equal(drop_links(links, kept, seed), drop_links(links.copy(), kept, seed))
    np.testing.assert_array_equal(links, before)


def test_other_seeds_drop_other_links_and_every_link_has_its_turn() -> None:
    drawn = [drop_links(complete(8), 0.5, seed) for seed in range(40)]
    assert len({fewer.tobytes() for fewer in drawn}) == 40
    np.testing.assert_array_equal(np.any(drawn, axis=0), complete(8))
    assert not np.all(drawn, axis=0).any()


def test_every_spanning_tree_of_a_ring_is_drawn() -> None:
    assert len({drop_links(ring(5), 0.0, seed).tobytes() for seed in range(60)}) == 5


@given(adjacencies(connected=True), SHARES, SEEDS)
def test_metropolis_on_what_is_left_satisfies_the_assumptions(adjacency: np.ndarray, kept: float, seed: int) -> None:
    fewer = drop_links(adjacency > 0, kept, seed)
    assert check_assumptions(metropolis_weights(fewer), fewer).holds == {"A1": True, "A2": True, "A3": True}


@pytest.mark.parametrize("kept", [0.0, 0.5])
def test_separate_groups_stay_separate_and_whole(kept: float) -> None:
    assert groups(drop_links(cycles(4, 1, 5) > 0, kept)) == {
        frozenset(range(4)),
        frozenset([4]),
        frozenset(range(5, 10)),
    }
