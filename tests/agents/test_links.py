"""D_kz = R_kz S_kz with as many rows as the structural rank, computed alike at both endpoints."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse
from scipy.sparse.csgraph import structural_rank

from gossamer.agents import Link, factor
from gossamer.agents.links import _number


def cross_edges(seed: int, n: int, m: int, density: float) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    owner = random.integers(0, m, n)
    D = random.standard_normal((n, n)) * (random.random((n, n)) < density)
    i, j = np.nonzero(D)
    crossing = owner[i] != owner[j]
    i, j = i[crossing], j[crossing]
    return owner, D, i, j


@given(st.integers(0, 10**6), st.integers(2, 40), st.integers(2, 5), st.floats(0.01, 0.5))
def test_rows_are_exact_and_fewest(seed: int, n: int, m: int, density: float) -> None:
    owner, D, i, j = cross_edges(seed, n, m, density)
    found = factor(i, j, D[i, j], owner[i], owner[j])
    total = int(found.rows[-1])
    row, source, value = found.send
    S = sparse.coo_array((value, (row, source)), shape=(total, n)).toarray()
    destination, row, value = found.receive
    R = sparse.coo_array((value, (destination, row)), shape=(n, total)).toarray()
    pairs = {(int(owner[b]), int(owner[a])) for a, b in zip(i, j, strict=True)}
    assert set(found.links) == {Link(*pair) for pair in pairs}
    assert list(found.links) == sorted(found.links)
    for index, link in enumerate(found.links):
        rows = slice(found.rows[index], found.rows[index + 1])
        here, there = owner == link.receiver, owner == link.sender
        block = D[np.ix_(here, there)]
        np.testing.assert_allclose(R[here, rows] @ S[rows][:, there], block, rtol=1e-14, atol=0)
        assert rows.stop - rows.start == structural_rank(sparse.csr_array(block))
        assert not S[rows][:, ~there].any()
        assert not R[~here, rows].any()


@given(st.integers(0, 10**6), st.integers(2, 40), st.integers(2, 5))
def test_each_endpoint_computes_the_same_plan_alone(seed: int, n: int, m: int) -> None:
    """One link at a time, its edges in any order, gives the rows of the joint call."""
    owner, D, i, j = cross_edges(seed, n, m, 0.2)
    joint = factor(i, j, D[i, j], owner[i], owner[j])
    shuffle = np.random.default_rng(seed + 1)
    for index, link in enumerate(joint.links):
        mine = shuffle.permutation(np.flatnonzero((owner[i] == link.receiver) & (owner[j] == link.sender)))
        alone = factor(i[mine], j[mine], D[i[mine], j[mine]], owner[i[mine]], owner[j[mine]])
        first, last = joint.rows[index], joint.rows[index + 1]
        for part, rows_at in (("send", 0), ("receive", 1)):
            entries = np.stack(getattr(joint, part))
            chosen = entries[:, (entries[rows_at] >= first) & (entries[rows_at] < last)]
            chosen[rows_at] -= first
            found = np.stack(getattr(alone, part))
            assert sorted(map(tuple, chosen.T)) == sorted(map(tuple, found.T))


def test_a_star_needs_one_row_in_either_direction() -> None:
    """Ten sources of one vertex are summed by the sender; ten destinations of one vertex share a picked row."""
    hub, leaves = np.zeros(10, dtype=np.int64), np.arange(1, 11)
    weights = np.arange(1.0, 11.0)
    inwards = factor(hub, leaves, weights, np.zeros(10, dtype=np.int64), np.ones(10, dtype=np.int64))
    outwards = factor(leaves, hub, weights, np.ones(10, dtype=np.int64), np.zeros(10, dtype=np.int64))
    assert inwards.counts == ((Link(1, 0), 1),)
    assert outwards.counts == ((Link(0, 1), 1),)
    np.testing.assert_array_equal(np.sort(inwards.send[2]), weights)
    np.testing.assert_array_equal(outwards.send[2], [1.0])


def test_no_cross_edges_give_no_links() -> None:
    none = np.empty(0, dtype=np.int64)
    assert factor(none, none, np.empty(0), none, none).links == ()


@given(st.lists(st.integers(0, 2**62 - 1) | st.integers(0, 5), max_size=30))
def test_keys_are_number_in_ascending_order(keys: list[int]) -> None:
    array = np.array(keys, dtype=np.int64)
    distinct, number, order = _number(array)
    assert distinct.tolist() == sorted(set(keys))
    np.testing.assert_array_equal(distinct[number], array)
    np.testing.assert_array_equal(array[order], np.sort(array))
