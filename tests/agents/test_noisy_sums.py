"""Noisy sums against dense matrices; how far one vertex or one edge moves them; any hosting of the agents."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from agents.cases import M, make_case, watched

from gossamer.agents.noisy_sums import SumPlan, hide_degrees, normalise_rows, plan_sums, run_hops
from gossamer.agents.secret_streams import derive_secrets, number_key, stream_normal
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
    return plan.operator @ normalise_rows(rows)


def hops_of(plan: SumPlan, rows: torch.Tensor, noise: float, seed: int = 0, hops: int = 1) -> list[torch.Tensor]:
    return run(run_hops(plan, rows, hops, noise, SECRETS, seed))


def dense_adjacency() -> torch.Tensor:
    return torch.from_numpy((CASE.graph.adjacency != 0).toarray().astype(np.float64))


def test_without_noise_an_edge_level_hop_is_the_sum_over_neighbours() -> None:
    expected = ROWS / ROWS.norm(dim=1, keepdim=True)
    for found in hops_of(plan_sums(shared(), weighted=False), ROWS, 0.0, hops=3):
        expected = dense_adjacency() @ expected
        expected = expected / expected.norm(dim=1, keepdim=True)
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


def test_a_node_level_hop_is_the_best_linear_estimate() -> None:
    """One vertex after the other from the formula, with noise that is the same in both."""
    noise, h, plan = 0.4, 2, plan_sums(shared(), weighted=True)
    (found,) = hops_of(plan, ROWS, noise)
    A, a, unit = dense_adjacency(), torch.from_numpy(CASE.owner), ROWS / ROWS.norm(dim=1, keepdim=True)
    degree = A.sum(1)
    for i in range(40):
        total, scale = torch.zeros(3, dtype=torch.float64), float(h)
        for z in range(M):
            own = torch.where((a == z), A[i], 0.0)
            if not own.any() and a[i] != z:
                continue
            order = _pair_order()
            place = order[z].index(i)
            drawn = stream_normal(SECRETS.by_agent[z], "sums", (0, 0, number_key(noise)), 3 * len(order[z])).reshape(
                -1, 3
            )[place]
            s = (own[:, None] * unit / degree.sqrt()[:, None]).sum(0) + noise * torch.from_numpy(drawn)
            n, c = float(own.sum()), float(degree[i]) ** -0.5
            u = c * n / (c * c * n / h + noise**2)
            total += u * s
            scale += u * c * n
        expected = total / scale
        expected = expected / max(1.0, float(expected.norm()))
        torch.testing.assert_close(found[i], expected, rtol=0, atol=1e-12)


def _pair_order() -> list[list[int]]:
    """Destinations of each agent's sums, in the order of its noise."""
    A = dense_adjacency()
    return [[i for i in range(40) if CASE.owner[i] == z or bool(A[i, CASE.owner == z].any())] for z in range(M)]


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("context", [None, 5])
def test_any_hosting_has_the_same_hops(weighted: bool, context: int | None) -> None:
    expected = run(run_hops(plan_sums(shared(), weighted), ROWS, 2, 0.5, SECRETS, 7, context))
    hostings: list[list[tuple[int, ...]]] = [[(0,), (1,), (2,), (3,), (4,)], [(3, 0), (1, 2, 4)]]
    for groups in hostings:
        host = np.empty(M, dtype=np.int64)
        for number, agents in enumerate(groups):
            host[list(agents)] = number
        shares = [shared(agents, hosting=None if len(groups) == M else host) for agents in groups]
        found = run_together(
            [run_hops(plan_sums(one, weighted), rows_of(one), 2, 0.5, SECRETS, 7, context) for one in shares]
        )
        for one, hops in zip(shares, found, strict=True):
            own = torch.from_numpy(one.vertices[one.hosted])
            for hop in range(2 if context is None else 1):  # such noise hangs on the last bit of what an agent has
                torch.testing.assert_close(hops[hop], expected[hop][own], rtol=0, atol=1e-10)


@pytest.mark.parametrize("weighted", [False, True])
def test_noise_of_the_stated_size_is_in_every_sum_also_of_own_destinations(weighted: bool) -> None:
    sums: list[torch.Tensor] = []

    class Watched:
        """The operator of a plan; what is added to its result is seen afterwards, in place."""

        def __matmul__(self, rows: torch.Tensor) -> torch.Tensor:
            sums.append(torch.zeros(len(pairs), rows.shape[1], dtype=torch.float64))
            return sums[-1]

    plan = plan_sums(shared(), weighted)
    pairs = [(z, i) for z, destinations in enumerate(_pair_order()) for i in destinations]
    watched_plan = replace(plan, operator=Watched())  # type: ignore[arg-type]
    for seed in range(200):
        hops_of(watched_plan, ROWS, 0.7, seed)
    noise = torch.stack(sums)  # [draws, pairs, width]
    assert abs(float(noise.std()) - 0.7) < 0.005
    assert float((noise.std(0) - 0.7).abs().max()) < 0.2
    assert float(noise.mean(0).abs().max()) < 0.25
    correlation = torch.corrcoef(noise.permute(1, 0, 2).flatten(1)) - torch.eye(len(pairs))
    assert float(correlation.abs().max()) < 0.25


def _cross_pairs() -> int:
    i, j = CASE.graph.adjacency.nonzero()
    a = CASE.owner
    return len({(a[s], d) for d, s in zip(i.tolist(), j.tolist(), strict=True) if a[s] != a[d]})


def test_an_agent_sends_a_row_for_every_destination_of_an_edge() -> None:
    shares = [shared([k]) for k in range(M)]
    sent: list[Any] = []
    plans = [plan_sums(one, True) for one in shares]
    run_together(
        [
            watched(run_hops(plan, rows_of(one), 1, 0.5, SECRETS, 0), sent.append)
            for plan, one in zip(plans, shares, strict=True)
        ]
    )
    assert sum(plan.num_sent for plan in plans) == _cross_pairs()
    links = {link for outbox in sent for link in outbox.messages}
    i, j = CASE.graph.adjacency.nonzero()
    pairs = {(CASE.owner[s], CASE.owner[d]) for d, s in zip(i, j, strict=True)}
    assert links == {(z, k) for z, k in pairs if z != k}
    assert sum(len(part) for outbox in sent for part in outbox.messages.values()) == _cross_pairs()


def test_a_vertex_moves_the_sums_by_one_at_most() -> None:
    plan = plan_sums(shared(), weighted=True)
    clean, moved = sums_of(plan, ROWS), []
    for j in range(40):
        without = ROWS.clone()
        without[j] = 0.0  # zero-out: its row is gone wherever it counts
        moved.append(float((sums_of(plan, without) - clean).norm()))
    assert moved == pytest.approx([1.0] * 40, abs=1e-12)


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
    plan = plan_sums(shared(graph=graph), weighted=False)
    hops = torch.zeros(M, 40, 3, dtype=torch.float64)
    i, j = graph.adjacency.nonzero()
    pairs = np.unique(np.concatenate([CASE.owner[j] * 40 + i, CASE.owner * 40 + np.arange(40)]))
    for pair, row in zip(pairs.tolist(), sums_of(plan, ROWS), strict=True):
        hops[pair // 40, pair % 40] = row
    return hops


def test_edge_level_estimates_do_not_use_counts_of_own_edges() -> None:
    """Estimates from the same sums are the same whatever edges an agent has inside."""
    plan = plan_sums(shared(), weighted=False)
    changed = replace(
        plan, degree=plan.degree + 3, inside=(plan.inside[0], replace(plan.inside[1], count=plan.inside[1].count + 5))
    )
    for one, other in zip(hops_of(plan, ROWS, 0.5), hops_of(changed, ROWS, 0.5), strict=True):
        assert torch.equal(one, other)


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
