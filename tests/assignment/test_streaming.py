"""The streaming partitioner: balanced parts that keep communities together."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracles.graphs import adjacencies, csr, cycles

from gossamer.assignment import partition_stream
from gossamer.assignment.streaming import SLACK, _find_best_agents, _rank, _restream
from gossamer.data import load

SEEDS = st.integers(0, 2**32 - 1)


@given(adjacencies(), st.data(), SEEDS)
def test_sizes_stay_within_the_slack(adjacency: np.ndarray, data: st.DataObject, seed: int) -> None:
    n = len(adjacency)
    m = data.draw(st.integers(1, n))
    size = np.bincount(partition_stream(csr(adjacency), m, seed), minlength=m)
    assert size.max() <= np.ceil(n / m * (1 + SLACK))
    assert size.min() >= max(1, int(n / m * (1 - SLACK)))


def test_communities_stay_together() -> None:
    """Edges inside blocks are 90 %, so that no partition into 10 parts can cut much less than 9 %."""
    graph = load("blocks:vertices=5000,edges=40000,features=2,classes=4,blocks=50,inside=0.9")
    owner = partition_stream(graph.adjacency, 10, 0)
    i, j = owner[graph.edges].T
    assert (i != j).mean() < 0.15


def test_passes_lower_the_cut() -> None:
    graph = load("blocks:vertices=5000,edges=40000,features=2,classes=4,blocks=50,inside=0.9")
    cuts = []
    for passes in (0, 1, 10):
        i, j = partition_stream(graph.adjacency, 10, 0, passes)[graph.edges].T
        cuts.append((i != j).mean())
    assert cuts[0] > 1.5 * cuts[1] > 1.5 * cuts[2]


def test_two_components_are_not_cut() -> None:
    adjacency = csr(cycles(6, 6))
    for seed in range(5):
        owner = partition_stream(adjacency, 2, seed)
        assert len(set(owner[:6])) == len(set(owner[6:])) == 1


@given(adjacencies(), st.integers(1, 5), SEEDS)
def test_a_chunk_goes_where_a_plain_loop_says(adjacency: np.ndarray, m: int, seed: int) -> None:
    """One vertex at a time is a chunk of one: it moves to the best agent if that is better, and bounds allow it."""
    n = len(adjacency)
    random = np.random.default_rng(seed)
    owner = random.integers(0, m, n)
    size = np.bincount(owner, minlength=m)
    most = int(size.max()) + 1
    i = int(random.integers(n))
    score = [
        sum(adjacency[i, j] for j in range(n) if owner[j] == k) * (1 - (size[k] - (k == owner[i])) / most)
        for k in range(m)
    ]
    size_before = size.copy()
    others = [k for k in range(m) if k != owner[i]]
    target = max(others, key=lambda k: (score[k], -k), default=owner[i])
    found = owner.copy()
    moved = _restream(csr(adjacency), found, size, np.array([i]), (1, most))
    better = score[target] > score[owner[i]] + 1e-12 and size_before[owner[i]] > 1
    if better:
        assert moved == 1
        assert score[found[i]] == pytest.approx(score[target])
    else:
        assert moved == 0 or score[found[i]] == pytest.approx(score[owner[i]])
    np.testing.assert_array_equal(np.delete(found, i), np.delete(owner, i))
    np.testing.assert_array_equal(size, np.bincount(found, minlength=m))


def test_best_and_rank_by_hand() -> None:
    best, top = _find_best_agents(
        np.array([1.0, 3.0, 3.0, 2.0]), np.array([0, 1, 4, 2]), np.array([0, 0, 0, 2]), np.array([7, 8, 9])
    )
    np.testing.assert_array_equal(best, [1, 8, 2])
    np.testing.assert_array_equal(top, [3, 0, 2])
    np.testing.assert_array_equal(_rank(np.array([5, 3, 5, 5, 3])), [0, 0, 1, 2, 1])
