"""Noisy sums against dense matrices; how far one vertex or one edge moves them; any hosting of the agents."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from agents.cases import M, make_case, watched

from gossamer.agents.noisy_sums import SumPlan, hide_degrees, normalise_rows, plan_sums, run_hops
from gossamer.agents.secret_streams import derive_secrets
from gossamer.agents.share import Share, make_share, make_whole
from gossamer.array_types import Ints
from gossamer.data import DataGraph
from gossamer.engines.simulation import run, run_together

SECRETS = derive_secrets(5, range(M))
CASE = make_case("mlp", n=40)
ROWS = torch.from_numpy(np.random.default_rng(1).standard_normal((40, 3)))


def shared(agents: Any = range(M), graph: DataGraph = CASE.graph, hosting: Ints | None = None) -> Share:
    pattern = (graph.adjacency != 0).astype(np.float64)
    whole = make_whole(graph, [(pattern, CASE.combination)], CASE.network.gathers, CASE.owner)
    return make_share(whole, agents, hosting)


def rows_of(share: Share) -> torch.Tensor:
    return ROWS[torch.from_numpy(share.vertices[share.hosted])]


def sums_of(plan: SumPlan, rows: torch.Tensor) -> torch.Tensor:
    """All agents' sums, without noise."""
    return plan.pattern.times(None, normalise_rows(rows))


def test_without_noise_hops_are_products_with_the_adjacency() -> None:
    plan = plan_sums(shared(), None, SECRETS, 0)
    hops = run(run_hops(plan, ROWS, 3, 0.0, SECRETS, 0))
    A = torch.from_numpy((CASE.graph.adjacency != 0).toarray().astype(np.float64))
    expected = ROWS / ROWS.norm(dim=1, keepdim=True)
    for found in hops:
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
        expected = A @ expected
        expected = expected / expected.norm(dim=1, keepdim=True).clamp(min=1e-300)
    assert len(hops) == 4


@pytest.mark.parametrize("degree", [None, 2])
@pytest.mark.parametrize("fresh", [False, True])
def test_any_hosting_has_the_same_hops(degree: int | None, fresh: bool) -> None:
    expected = run(run_hops(plan_sums(shared(), degree, SECRETS, 7), ROWS, 2, 0.5, SECRETS, 7, fresh))
    hostings: list[list[tuple[int, ...]]] = [[(0,), (1,), (2,), (3,), (4,)], [(3, 0), (1, 2, 4)]]
    for groups in hostings:
        host = np.empty(M, dtype=np.int64)
        for number, agents in enumerate(groups):
            host[list(agents)] = number
        shares = [shared(agents, hosting=None if len(groups) == M else host) for agents in groups]
        found = run_together(
            [run_hops(plan_sums(one, degree, SECRETS, 7), rows_of(one), 2, 0.5, SECRETS, 7, fresh) for one in shares]
        )
        for one, hops in zip(shares, found, strict=True):
            own = torch.from_numpy(one.vertices[one.hosted])
            for hop in range(2 if fresh else 3):  # fresh noise hangs on the last bit of what an agent has
                torch.testing.assert_close(hops[hop], expected[hop][own], rtol=0, atol=1e-10)


def test_noise_is_added_to_every_sum_also_of_own_destinations() -> None:
    plan = plan_sums(shared(), 3, SECRETS, 0)
    assert len(plan.inside[0]) == sum(len(own) for _, _, own in plan.agents) + _cross_pairs()
    lonely = replace(plan, pattern=plan_sums(shared(), 1, SECRETS, 0).pattern)
    for one in (plan, lonely):
        noisy = [run(run_hops(one, ROWS, 1, 0.7, SECRETS, seed)) for seed in range(300)]
        assert all(bool((hops[1].norm(dim=1) - 1).abs().max() < 1e-9) for hops in noisy)
    drawn = []
    for seed in range(300):
        zeros = run(run_hops(plan, torch.zeros_like(ROWS), 1, 0.7, SECRETS, seed))
        drawn.append(zeros[1])
    directions = torch.stack(drawn)
    assert float(directions.mean(0).abs().max()) < 0.25  # a vertex without any sum has noise in all directions


def _cross_pairs() -> int:
    i, j = CASE.graph.adjacency.nonzero()
    a = CASE.owner
    return len({(a[s], d) for d, s in zip(i.tolist(), j.tolist(), strict=True) if a[s] != a[d]})


def test_an_agent_sends_a_row_for_every_destination_whatever_counts() -> None:
    counts = []
    for degree in (1, None):
        shares = [shared([k]) for k in range(M)]
        sent: list[Any] = []
        plans = [plan_sums(one, degree, SECRETS, 0) for one in shares]
        run_together(
            [
                watched(run_hops(plan, rows_of(one), 1, 0.5, SECRETS, 0), sent.append)
                for plan, one in zip(plans, shares, strict=True)
            ]
        )
        counts.append([{link: len(part) for link, part in outbox.messages.items()} for outbox in sent])
        assert sum(plan.num_sent for plan in plans) == _cross_pairs()
    assert counts[0] == counts[1]
    links = {link for outbox in counts[0] for link in outbox}
    i, j = CASE.graph.adjacency.nonzero()
    pairs = {(CASE.owner[s], CASE.owner[d]) for d, s in zip(i, j, strict=True)}
    assert links == {(z, k) for z, k in pairs if z != k}


@pytest.mark.parametrize("degree", [1, 2, 5])
def test_out_edges_are_bounded_and_so_is_what_a_vertex_moves(degree: int) -> None:
    plan = plan_sums(shared(), degree, SECRETS, 0)
    out = torch.bincount(plan.pattern.columns.long(), minlength=40)
    degrees = np.diff(CASE.graph.adjacency.indptr)
    assert out.tolist() == np.minimum(degrees, degree).tolist()
    clean = sums_of(plan, ROWS)
    moved = []
    for j in range(40):
        without = ROWS.clone()
        without[j] = 0.0  # zero-out: its row is gone wherever it counts
        moved.append(float((sums_of(plan, without) - clean).norm()))
    assert max(moved) == pytest.approx(math.sqrt(degree), abs=1e-12)
    other = plan_sums(shared(), degree, derive_secrets(6, range(M)), 0)
    assert degree == 5 or not torch.equal(plan.pattern.columns, other.pattern.columns)


def test_an_edge_moves_the_sums_by_the_root_of_two() -> None:
    clean = _dense_sums(CASE.graph)
    inside = CASE.owner[CASE.graph.edges[:, 0]] == CASE.owner[CASE.graph.edges[:, 1]]
    assert inside.any()
    for number in np.flatnonzero(inside):
        kept = np.arange(CASE.graph.num_edges) != number
        without = CASE.graph.restrict_to(kept)
        assert float((_dense_sums(without) - clean).norm()) == pytest.approx(math.sqrt(2), abs=1e-12)


def _dense_sums(graph: DataGraph) -> torch.Tensor:
    """Sums [agents, n, width], 0 where there is none."""
    plan = plan_sums(shared(graph=graph), None, SECRETS, 0)
    hops = torch.zeros(M, 40, 3, dtype=torch.float64)
    sums = sums_of(plan, ROWS)
    i, j = graph.adjacency.nonzero()
    pairs = np.unique(np.concatenate([CASE.owner[j] * 40 + i, CASE.owner * 40 + np.arange(40)]))
    for pair, row in zip(pairs.tolist(), sums, strict=True):
        hops[pair // 40, pair % 40] = row
    return hops


def test_a_private_share_holds_no_degrees_and_no_marks_of_others() -> None:
    whole = make_whole(CASE.graph, [(CASE.shift, CASE.combination)], CASE.network.gathers, CASE.owner)
    share = make_share(whole, [0])
    hidden = hide_degrees(share)
    (before,), (after,) = share.topologies, hidden.topologies
    i, j, values = after.entries
    assert set(values.tolist()) == {1.0}
    assert (i != j).all()
    assert len(set(before.entries[2].tolist())) > 10
    assert not any(rows[~share.hosted].any() for sets in after.train_fields for rows in sets)
    assert any(rows[~share.hosted].any() for sets in before.train_fields for rows in sets)
    for found, expected in zip(after.train_fields, before.train_fields, strict=True):
        for one, other in zip(found, expected, strict=True):
            assert np.array_equal(one[share.hosted], other[share.hosted])
