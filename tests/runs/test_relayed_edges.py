"""Data edges between agents without a link: relayed and counted on every link of their routes, or dropped."""

from collections import Counter
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from agents.cases import Case, make_case, watched
from runs.test_deployment import send_between

from gossamer import topology
from gossamer.agents import Outbox, host, training_step
from gossamer.agents.exchange import join_parts
from gossamer.agents.measures import evaluate
from gossamer.agents.plan import message_rows
from gossamer.agents.relays import BOX_BYTES
from gossamer.agents.share import make_share
from gossamer.engines.simulation import run_together
from gossamer.errors import GossamerError
from gossamer.peers.protocol.boxes import SealedBoxes
from gossamer.peers.shards.shard import plan_agent_routes
from gossamer.runs.deployment import Deployment, make_deployment
from gossamer.runs.hosts import build_host, prepare_cut
from gossamer.runs.joined import join_shares
from gossamer.runs.message_counts import between_hosts, count_messages, describe_deployment
from gossamer.runs.settings import Settings, make_settings


def settings(**options: Any) -> Settings:
    named = {"preset": "paper", "lost_edges": "relay", "dataset": "case", "agents": 4, "hidden": 5, "topology": "line"}
    return make_settings(named | options)


def deploy(case: Case, given: Settings) -> Deployment:
    return make_deployment(case.graph, given, assignment=case.owner)


@pytest.mark.parametrize("kind", ["line", "ring", "star", "random"])
def test_no_data_edge_is_lost(kind: str) -> None:
    case = make_case(n=40)
    d = deploy(case, settings(topology=kind))
    k, z = case.owner[case.graph.edges].T
    np.testing.assert_array_equal(d.shift.toarray(), case.shift.toarray())
    assert d.graph.num_edges == case.graph.num_edges
    assert d.edges_kept == 1.0
    assert d.edges_relayed == pytest.approx(((k != z) & ~d.links[k, z]).mean())
    found = describe_deployment(d)
    assert (found["edges_kept"], found["edges_relayed"]) == (1.0, d.edges_relayed)
    assert describe_deployment(deploy(case, settings(topology=kind, lost_edges="drop")))["edges_relayed"] == 0.0


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"batch": 2},
        {"batch": 0, "layers": "gat", "heads": 5},
        {"layers": "gat", "heads": 5},
        {"layers": "chebyshev", "order": 2, "boundary_bits": 8, "topology": "star"},
        {"dtype": "float64", "topology": "ring"},
        {"consensus_every": 0},
    ],
    ids=str,
)
def test_messages_are_counted_on_every_link_of_their_route(
    options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every agent on its own host: the bytes in the outboxes, followed along their routes with a box for each. Time
    steps go one by one."""
    monkeypatch.setattr(host, "CHUNK_NUMBERS", 1)
    case, s = make_case(n=40, batch=3 if "batch" in options else None), settings(**options)
    d = deploy(case, s)
    routes = d.topologies[0].routes
    assert routes.paths
    seen: Counter[tuple[int, int, str]] = Counter()

    def note(outbox: Outbox) -> None:
        for link, message in outbox.messages.items():
            path = routes.path(*link)
            box = 16 if len(path) > 2 else 0
            for a, b in pairwise(path):
                seen[a, b, str(outbox.phase)] += join_parts(message).nbytes + box

    run_together([watched(training_step(build_host(d, s, [k])), note) for k in range(4)])
    counts = count_messages(d, s)
    counted = {
        (link["sender"], link["receiver"], phase): link[f"{phase}_bytes"]
        for link in counts["links"]
        for phase in ("forward", "backward", "consensus")
    }
    assert +Counter(counted) == seen
    seen.clear()
    run_together([watched(evaluate(build_host(d, s, [k])), note) for k in range(4)])
    if "boundary_bits" not in options:
        assert counts["evaluation"]["bytes"] == seen.total()


def test_rows_and_their_hops_are_those_of_the_routes() -> None:
    case, s = make_case(n=40), settings()
    d = deploy(case, s)
    routes = d.topologies[0].routes
    rows = np.zeros((4, 4))
    for rounds in message_rows(d.shift, d.network.gathers, d.graph.labelled, d.assignment):
        for one in rounds:
            for link, count in one.items():
                rows[link.sender, link.receiver] += count
    load, counts = topology.link_load(routes, rows), count_messages(d, s)
    for counted in counts["links"]:
        k, z = counted["sender"], counted["receiver"]
        assert (counted["forward_rows"], counted["backward_rows"]) == (load[k, z], load[z, k])
    far = np.where(d.links, 0, rows)
    relayed = counts["relayed"]
    assert relayed["rows"] == 2 * far.sum() > 0
    assert relayed["row_hops"] == 2 * (load.sum() - rows[d.links].sum())
    direct = count_messages(deploy(case, settings(topology="complete")), s)
    assert counts["paper"] == direct["paper"]
    assert direct["relayed"] == {"rows": 0, "row_hops": 0, "bytes": 0}
    assert counts["forward"]["rows"] - direct["forward"]["rows"] == (relayed["row_hops"] - relayed["rows"]) / 2


@pytest.mark.parametrize("grouping", [[[0, 1], [2, 3]], [[0], [1, 3], [2]]], ids=str)
def test_hosts_send_directly_what_peers_relay(grouping: list[list[int]]) -> None:
    case, s = make_case(n=40), settings()
    d = deploy(case, s)
    seen, hosting = send_between(d, s, grouping)
    assert seen == between_hosts(d, s, hosting)


def test_boxes_are_as_large_as_they_are_counted() -> None:
    assert SealedBoxes.overhead == BOX_BYTES


def test_a_given_shift_is_relayed_where_it_joins_agents_without_a_link() -> None:
    """Also those that share no data edge."""
    case = make_case(n=40)
    owner = np.arange(40) // 10  # a path of agents, but for what D joins
    graph = case.graph.restrict_to(np.abs(np.diff(owner[case.graph.edges])).reshape(-1) <= 1)
    shift = graph.adjacency.tolil()
    shift[0, 39] = 0.5  # agent 0 hears agent 3, and not the reverse
    given: dict[str, Any] = {"assignment": owner, "shift": shift.tocsr()}
    d = make_deployment(graph, settings(), **given)
    assert d.topologies[0].routes.paths == {(0, 3): (0, 1, 2, 3)}
    np.testing.assert_array_equal(d.shift.toarray(), shift.toarray())
    counts = {(one["sender"], one["receiver"]): one for one in count_messages(d, settings())["links"]}
    without = count_messages(make_deployment(graph, settings(), assignment=owner, shift=graph.adjacency), settings())
    for one in without["links"]:
        more = counts[one["sender"], one["receiver"]]["forward_rows"] - one["forward_rows"]
        assert (more > 0) == (one["sender"] == one["receiver"] + 1)
    with pytest.raises(GossamerError, match=r"vertices 0 and 39 of agents 0 and 3, which do not talk \(1 such"):
        make_deployment(graph, settings(lost_edges="drop"), **given)


def test_groups_that_no_path_joins_are_named() -> None:
    """A given C need not connect all agents, if nothing is mixed."""
    case = make_case(n=40)
    C = np.kron(np.eye(2), np.full((2, 2), 0.5))
    given: dict[str, Any] = {"assignment": case.owner, "combination": C, "shift": case.shift}
    apart = case.graph.restrict_to(np.zeros(case.graph.num_edges, dtype=bool))
    s = settings(topology="admm", consensus_every=0)
    with pytest.raises(GossamerError, match=r"groups 0, 1 \| 2, 3 apart; add a link.*--lost-edges drop"):
        make_deployment(apart, s, **given)


def test_shares_of_relaying_agents_join_into_their_deployment() -> None:
    case, s = make_case(n=40), settings()
    d = deploy(case, s)
    whole = prepare_cut(d, s)
    routes = plan_agent_routes(d, s)
    shares = [replace(make_share(whole, [k]), routes=routes[k]) for k in range(4)]
    found = join_shares(shares, s, "case", None)
    assert found.topologies[0].routes == d.topologies[0].routes
    np.testing.assert_array_equal(found.links, d.links)
    np.testing.assert_array_equal(found.exchanging, d.exchanging)
    assert found.edges_kept == 1.0
    assert found.edges_relayed == pytest.approx(d.edges_relayed)
    assert count_messages(found, s) == count_messages(d, s)


def test_shares_of_a_sequence_of_topologies_are_not_relayed() -> None:
    case, s = make_case(n=40), settings(topology="admm")
    weights = [topology.metropolis_weights(links) for links in (topology.line(4), topology.star(4))]
    d = make_deployment(case.graph, s, assignment=case.owner, combination=np.stack(weights))
    assert [bool(one.routes.paths) for one in d.topologies] == [True, True]
    with pytest.raises(GossamerError, match=r"takes 2 in turn.*give one combination matrix, or --lost-edges drop"):
        plan_agent_routes(d, s)


def test_a_sequence_of_topologies_has_routes_for_each() -> None:
    """Of every topology the whole D, whichever links it has: the gradient of a step is that of one host."""
    case, s = make_case(n=40), settings(topology="admm", update="gd", track=False, dtype="float64", dropout=0.0)
    weights = [topology.metropolis_weights(links) for links in (topology.line(4), topology.star(4))]
    d = make_deployment(case.graph, s, assignment=case.owner, combination=np.stack(weights))
    for one, links in zip(d.topologies, (topology.line(4), topology.star(4)), strict=True):
        np.testing.assert_array_equal(one.shift.toarray(), case.shift.toarray())
        assert set(one.routes.paths) == {
            (k, z) for k, z in np.argwhere(np.triu(~links & (d.shared_edges > 0), 1)).tolist()
        }
    counts = [count_messages(d.at(number), s) for number in range(2)]
    assert count_messages(d, s)["relayed"]["rows"] == round(sum(one["relayed"]["rows"] for one in counts) / 2)
    together, alone = build_host(d, s), [build_host(d, s, [k]) for k in range(4)]
    for _ in range(3):
        together, _ = run_together([training_step(together)])[0]
        alone = [one for one, _ in run_together([training_step(one) for one in alone])]
    for name, part in together.params.items():
        torch.testing.assert_close(torch.cat([one.params[name] for one in alone]), part, rtol=1e-10, atol=1e-12)
