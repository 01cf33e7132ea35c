"""Layouts, plans and shares against plain definitions of what they select."""

import numpy as np
import pytest
import torch
from agents.cases import M, make_case
from scipy import sparse

from gossamer.agents import plan as plans
from gossamer.agents.layout import make_layout
from gossamer.agents.plan import receptive_fields
from gossamer.agents.share import make_share, make_whole
from gossamer.model.gather import Monomial
from gossamer.model.sparse import Operator


def dense(operator: Operator) -> np.ndarray:
    parts = (operator.values.numpy(), operator.pattern.columns.numpy(), operator.pattern.offsets.numpy())
    found: np.ndarray = sparse.csr_array(parts, shape=operator.shape).toarray()
    return found


def test_fields_follow_the_nonzero_entries_backwards() -> None:
    D = np.array([[0, 2.0, 0], [0, 0, 3.0], [0, 0, 0]])
    stored = sparse.csr_array(D)
    stored.data[0] = 0.0  # an entry that is stored and zero needs nothing
    outputs = np.array([True, True, False])
    (sets,) = receptive_fields(stored, [Monomial((1,))], outputs)
    np.testing.assert_array_equal(sets[1], [False, False, True])
    (sets,) = receptive_fields(sparse.csr_array(D), [Monomial((0, 1, 2))], outputs)
    np.testing.assert_array_equal(sets, [outputs, [False, True, True], [False, False, True]])


@pytest.mark.parametrize("agents", [list(range(M)), [0, 2], [1]])
@pytest.mark.parametrize("shuffled", [False, True])
def test_a_layout_is_the_operator_in_row_order(agents: list[int], shuffled: bool) -> None:
    case = make_case(shift="random-walk")
    share = make_share(make_whole(case.graph, [(case.shift, case.combination)], [], case.owner), agents)
    entries = share.topologies[0].entries
    if shuffled:
        order = np.random.default_rng(0).permutation(len(entries[0]))
        i, j, values = entries
        entries = i[order], j[order], values[order]
    layout = make_layout(entries, share.owner, agents, torch.float64)
    rows = share.vertices[layout.vertices]
    expected = [i for k in agents for i in range(len(case.owner)) if case.owner[i] == k]
    np.testing.assert_array_equal(rows, expected)
    D = case.shift.toarray()
    np.testing.assert_array_equal(layout.inside.toarray(), D[np.ix_(rows, rows)])
    np.testing.assert_array_equal(layout.transposed.toarray(), D[np.ix_(rows, rows)].T)
    half, third = np.arange(0, len(rows), 2), np.arange(0, len(rows), 3)
    block = layout.block(half, third, torch.float64)
    np.testing.assert_array_equal(dense(block), D[np.ix_(rows[half], rows[third])])


@pytest.mark.parametrize("agents", [list(range(M)), [0, 2], [3], [4]])
def test_a_share_holds_the_entries_that_touch_its_agents(agents: list[int]) -> None:
    case = make_case(shift="random-walk")
    filters = [layer.gather for layer in case.network.layers]
    whole = make_whole(case.graph, [(case.shift, case.combination)], filters, case.owner)
    share = make_share(whole, agents)
    here = np.isin(case.owner, agents)
    touching = np.where(here[:, None] | here[None, :], case.shift.toarray(), 0.0)
    known = np.flatnonzero(here | touching.any(0) | touching.any(1))
    np.testing.assert_array_equal(share.vertices, known)
    np.testing.assert_array_equal(share.owner, case.owner[known])
    i, j, values = share.topologies[0].entries
    found = np.zeros_like(touching)
    np.add.at(found, (share.vertices[i], share.vertices[j]), values)
    np.testing.assert_array_equal(found, touching)
    np.testing.assert_array_equal(share.targets, case.graph.targets[here])
    np.testing.assert_array_equal(share.features.toarray(), case.graph.features[here].toarray())
    for mine, all_of_them in zip(share.topologies[0].train_fields, whole.topologies[0].train_fields, strict=True):
        np.testing.assert_array_equal(mine, [rows[known] for rows in all_of_them])


@pytest.mark.parametrize("kind", ["gcn", "chebyshev"])
def test_rounding_a_first_layer_up_changes_no_gradient(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from gossamer.agents import loss_gradient
    from gossamer.engines.simulation import run

    case = make_case(kind, 1, 1, sparse_features=False, dropout=0.3, n=200)
    found = []
    for almost_all in (2.0, 0.0):
        monkeypatch.setattr(plans, "ALMOST_ALL", almost_all)
        host = case.host()
        found.append(run(loss_gradient(host)))
        shared = host.train_pass.features.data_ptr() == host.full_pass.features.data_ptr()
        assert shared == (almost_all == 0.0)
    torch.testing.assert_close(found[0], found[1], rtol=1e-12, atol=1e-14)
