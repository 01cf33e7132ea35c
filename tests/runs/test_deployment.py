"""Data, assignment and topology joined: what is dropped, what is refused, what is sent."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from agents.cases import make_case, watched

from gossamer import topology
from gossamer.agents import Outbox, training_step
from gossamer.agents.exchange import join_parts
from gossamer.engines.simulation import run_together
from gossamer.errors import GossamerError
from gossamer.runs.deployment import Deployment, make_deployment
from gossamer.runs.hosts import build_host
from gossamer.runs.message_counts import between_hosts, count_messages
from gossamer.runs.settings import Settings, make_settings


def settings(**options: Any) -> Settings:
    return make_settings({"preset": "paper", "dataset": "case", "agents": 4, "hidden": 5, **options})


@pytest.mark.parametrize("kind", ["ring", "line"])
def test_edges_that_no_link_carries_are_dropped_and_the_shift_renormalised(kind: str) -> None:
    case = make_case(n=40)
    d = make_deployment(case.graph, settings(topology=kind), assignment=case.owner)
    k, z = case.owner[d.graph.edges].T
    assert ((k == z) | d.links[k, z]).all()
    assert 0 < d.edges_kept < 1
    assert d.graph.num_edges == round(d.edges_kept * case.graph.num_edges)
    looped = d.graph.adjacency.toarray() + np.eye(40)
    scale = looped.sum(1) ** -0.5
    np.testing.assert_allclose(d.shift.toarray(), scale[:, None] * looped * scale[None, :], rtol=1e-12)


def test_agents_that_share_no_edge_are_refused_with_a_remedy() -> None:
    case = make_case(n=40)
    with pytest.raises(GossamerError, match=r"2 groups that share no data edge.*--topology admm, ring or complete"):
        make_deployment(case.graph, settings(agents=5, topology="needed"), assignment=case.owner)
    make_deployment(case.graph, settings(agents=5, topology="needed", consensus_every=0), assignment=case.owner)
    make_deployment(case.graph, settings(agents=5, topology="complete"), assignment=case.owner)


def test_the_default_topology_is_designed_and_joins_agents_that_share_no_edge() -> None:
    case = make_case(n=40)
    d = make_deployment(case.graph, settings(agents=5, gap=0.4), assignment=case.owner)
    needed = d.shared_edges > 0
    assert d.certificate.design is not None
    assert d.certificate.design.gap == pytest.approx(0.4)
    assert d.edges_kept == 1.0
    assert (d.links & ~needed)[4].any()
    np.testing.assert_array_equal(d.links & needed, needed)
    assert abs(np.linalg.eigvals(d.combination - 1 / 5)).max() <= 0.6 + 1e-12


@pytest.mark.parametrize("kind", ["star", "grid", "torus", "exponential", "random", "complete"])
@pytest.mark.parametrize("mixing", ["metropolis", "uniform", "fastest"])
def test_families_and_weights_by_name(kind: str, mixing: str) -> None:
    case = make_case(n=40)
    d = make_deployment(case.graph, settings(topology=kind, mixing=mixing, seed=3), assignment=case.owner)
    np.testing.assert_array_equal(d.links, topology.TOPOLOGIES[kind].links(d.shared_edges.astype(np.float64), 3))
    np.testing.assert_array_equal(d.combination, topology.MIXING_WEIGHTS[mixing](d.links, False))
    assert all(d.certificate.assumptions.holds.values())


@pytest.mark.parametrize("kind", ["admm", "needed", "complete"])
def test_a_share_of_the_links_is_kept_and_both_graphs_renormalised(kind: str) -> None:
    graph = make_case(n=60).graph
    owner = np.arange(60) * 8 // 60
    whole = make_deployment(graph, settings(agents=8, topology=kind), assignment=owner)
    d = make_deployment(graph, settings(agents=8, topology=kind, keep_links=0.5, seed=2), assignment=owner)
    assert not (d.links & ~whole.links).any()
    assert d.links.sum() // 2 == max(7, np.floor(whole.links.sum() / 4 + 0.5))
    np.testing.assert_array_equal(d.combination, topology.metropolis_weights(d.links))
    k, z = owner[graph.edges].T
    carried = (k == z) | d.links[k, z]
    assert d.edges_kept == carried.mean() < 1
    looped = d.graph.adjacency.toarray() + np.eye(60)
    np.testing.assert_array_equal(looped != 0, d.shift.toarray() != 0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda C: C[:3], "C must be 4 x 4"),
        (lambda C: C + np.triu(np.full((4, 4), 0.1), 1), "symmetric and doubly stochastic"),
        (lambda C: np.where(C > 0, np.nan, C), "NaN"),
        (lambda C: 1.1 * C, "row sums"),
        (lambda C: np.eye(4), "groups that share no data edge"),
        (lambda C: 3 * C - 2 * np.eye(4), "does not contract"),
    ],
)
def test_a_wrong_combination_matrix_is_refused(change: Callable[[np.ndarray], np.ndarray], message: str) -> None:
    case = make_case(n=40)
    with pytest.raises(GossamerError, match=message):
        make_deployment(
            case.graph, settings(topology="complete"), assignment=case.owner, combination=change(np.full((4, 4), 0.25))
        )


def test_a_given_matrix_is_held_to_the_links_that_the_topology_allows() -> None:
    case = make_case(n=40)
    complete, ring = topology.metropolis_weights(topology.complete(4)), topology.metropolis_weights(topology.ring(4))
    for name in ("ring", "line", "star"):
        with pytest.raises(GossamerError, match=rf"without a link \(A3\).*--topology {name} has none"):
            make_deployment(case.graph, settings(topology=name), assignment=case.owner, combination=complete)
    made = make_deployment(case.graph, settings(topology="ring"), assignment=case.owner, combination=ring)
    np.testing.assert_array_equal(made.links, topology.ring(4))
    anyone = make_deployment(case.graph, settings(topology="admm"), assignment=case.owner, combination=complete)
    np.testing.assert_array_equal(anyone.links, topology.complete(4))


def test_a_link_without_weight_still_carries_data_edges() -> None:
    case = make_case(n=40)
    C = topology.metropolis_weights(topology.line(4))  # on a ring, whose last link has weight 0
    made = make_deployment(case.graph, settings(topology="ring"), assignment=case.owner, combination=C)
    np.testing.assert_array_equal(made.links, topology.ring(4))


def test_a_zero_on_the_diagonal_is_refused_unless_nothing_is_mixed() -> None:
    case = make_case(n=40)
    C = (np.ones((4, 4)) - np.eye(4)) / 3  # (A1)-(A3) hold: its other eigenvalues are -1/3
    given: dict[str, Any] = {"assignment": case.owner, "combination": C}
    with pytest.raises(GossamerError, match=r"zero on its diagonal.*\(28\)"):
        make_deployment(case.graph, settings(topology="complete"), **given)
    make_deployment(case.graph, settings(topology="complete", consensus_every=0), **given)


def test_a_users_own_shift_is_used_and_checked() -> None:
    case = make_case(n=40)
    D = case.shift.copy()
    D.data = D.data * 2
    d = make_deployment(case.graph, settings(topology="complete"), assignment=case.owner, shift=D)
    np.testing.assert_array_equal(d.shift.toarray(), D.toarray())
    with pytest.raises(GossamerError, match="which do not talk"):
        make_deployment(case.graph, settings(topology="line"), assignment=case.owner, shift=D)
    with pytest.raises(GossamerError, match="must be 40 x 40"):
        make_deployment(case.graph, settings(topology="line"), assignment=case.owner, shift=D[:5])


def test_an_assignment_from_a_file(tmp_path: Path) -> None:
    case = make_case(n=40)
    path = tmp_path / "who.csv"
    path.write_text("vertex,agent\n" + "".join(f"{i},{k}\n" for i, k in enumerate(case.owner)))
    d = make_deployment(case.graph, settings(topology="complete", assignment=str(path)))
    np.testing.assert_array_equal(d.assignment, case.owner)
    path.write_text("vertex,agent\n0,1\n")
    with pytest.raises(GossamerError, match="gives no agent to 39 vertices"):
        make_deployment(case.graph, settings(assignment=str(path)))
    path.write_text("vertex,agent\n99,1\n")
    with pytest.raises(GossamerError, match="does not fit"):
        make_deployment(case.graph, settings(assignment=str(path)))
    with pytest.raises(GossamerError, match="got 'bsf'"):
        make_deployment(case.graph, settings(assignment="bsf"))


@pytest.mark.parametrize(
    ("options", "alike"),
    [
        ({}, False),
        ({"same_initial": True}, True),
        ({"update": "adam"}, True),
        ({"update": "adam", "same_initial": False}, False),
        ({"update": "adam", "track": False}, False),
        ({"update": "gd", "track": True}, True),
    ],
    ids=str,
)
def test_agents_that_track_start_alike_unless_told_otherwise(options: dict[str, Any], alike: bool) -> None:
    case = make_case(n=40)
    s = settings(**options)
    host = build_host(make_deployment(case.graph, s, assignment=case.owner), s)
    assert all(torch.equal(w, w[:1].expand_as(w)) == alike for w in host.params.values())


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"layers": "chebyshev", "order": 2, "dtype": "float64"},
        {"compress": "power:1", "update": "adam", "bias": True},
        {"compress": "power:2,bits=8", "dtype": "float64"},
        {"compress": "power:9", "track": True},
        {"compress": "choco:bits=8", "track": True},
        {"compress": "choco:bits=4", "bias": True},
        {"compress": "choco:topk=0.1", "dtype": "float64"},
        {"compress": "choco:randk=0.3"},
        {"consensus": "masked", "track": True, "bias": True},
        {"boundary_bits": 8},
        {"boundary_bits": 16, "layers": "chebyshev", "order": 2, "compress": "choco:bits=8"},
    ],
    ids=str,
)
def test_counted_messages_are_those_that_are_sent(options: dict[str, Any]) -> None:
    """Every agent on its own host: the bytes in the outboxes equal the plan's, by phase and link."""
    case = make_case(n=40)
    s = settings(topology="complete", **options)
    d = make_deployment(case.graph, s, assignment=case.owner)
    counted = {(link["sender"], link["receiver"]): link for link in count_messages(d, s)["links"]}
    seen: dict[tuple[int, int, str], int] = {}

    def note(outbox: Outbox) -> None:
        for link, message in outbox.messages.items():
            place = (*link, str(outbox.phase))
            seen[place] = seen.get(place, 0) + join_parts(message).nbytes

    run_together([watched(training_step(build_host(d, s, [k])), note) for k in range(4)])
    for pair, link in counted.items():
        for phase in ("forward", "backward", "consensus"):
            assert seen.get((*pair, phase), 0) == link[f"{phase}_bytes"], (pair, phase)
    assert {place[:2] for place in seen} <= set(counted)
    totals = count_messages(d, s)
    assert totals["paper"]["rows"] == 2 * sum(case.owner[i] != case.owner[j] for i, j in case.graph.edges) * (
        2 * options.get("order", 1)
    )
    assert totals["forward"]["rows"] <= totals["evaluation"]["rows"] <= totals["paper"]["rows"]


def send_between(d: Deployment, s: Settings, grouping: list[list[int]]) -> tuple[dict[str, int], np.ndarray]:
    """Bytes of a step between hosts of groups of agents by phase, as they are sent, and the host of each agent."""
    hosting = np.empty(d.num_agents, dtype=np.int64)
    for number, group in enumerate(grouping):
        hosting[group] = number
    seen = dict.fromkeys(("forward", "backward", "consensus"), 0)

    def note(outbox: Outbox) -> None:
        seen[str(outbox.phase)] += sum(join_parts(message).nbytes for message in outbox.messages.values())

    run_together([watched(training_step(build_host(d, s, group, hosting)), note) for group in grouping])
    return seen, hosting


@pytest.mark.parametrize("grouping", [[[0, 1, 2, 3]], [[0, 1], [2, 3]], [[0], [1, 3], [2]]], ids=str)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"update": "adam"},
        {"compress": "power:1", "update": "adam"},
        {"compress": "choco:bits=8", "track": True},
        {"consensus": "masked", "track": True},
        {"boundary_bits": 8},
    ],
    ids=str,
)
def test_bytes_between_hosts_are_those_that_are_sent(grouping: list[list[int]], options: dict[str, Any]) -> None:
    case = make_case(n=40)
    s = settings(topology="ring", **options)
    d = make_deployment(case.graph, s, assignment=case.owner)
    seen, hosting = send_between(d, s, grouping)
    assert seen == between_hosts(d, s, hosting)
    assert (seen["consensus"] > 0) == (len(grouping) > 1)
