"""A hosting never changes the result: all agents on one host, one on each, and any mixture."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from agents.cases import COMPRESSIONS, M, make_case, watched

from gossamer.agents import Host, Outbox, Phase, training_step
from gossamer.agents.exchange import join_parts
from gossamer.agents.measures import evaluate
from gossamer.engines.simulation import run, run_together

GROUPINGS = [[[k] for k in range(M)], [[0, 1], [2, 3, 4]], [[0, 4], [1], [2, 3]], [[3, 1, 4], [2, 0]]]


def stacked(hosts: Sequence[Host]) -> dict[str, torch.Tensor]:
    """All hosts' weights in agent order."""
    order = np.argsort([k for host in hosts for k in host.agents])
    return {name: torch.cat([host.params[name] for host in hosts])[order.copy()] for name in hosts[0].params}


def assert_same_outputs(one: Host, many: Sequence[Host]) -> None:
    """Every vertex has the same output on one host as on many."""
    whole, _ = run(evaluate(one))
    by_vertex = torch.empty_like(whole)
    for host, (part, _) in zip(many, run_together([evaluate(host) for host in many]), strict=True):
        by_vertex[torch.from_numpy(host.full_pass.vertices)] = part
    torch.testing.assert_close(by_vertex[torch.from_numpy(one.full_pass.vertices)], whole, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(("rule", "eta"), [("gd", 0.05), ("momentum", 0.02), ("adam", 0.01)])
@pytest.mark.parametrize(
    "options",
    [
        {"dropout": 0.4},
        {"order": 2, "sparse_features": False, "dropout": 0.4},
        {"kind": "chebyshev", "order": 3, "shift": "scaled-laplacian", "bias": True},
        {"shift": "random-walk", "num_layers": 3},
        {"batch": 3, "dropout": 0.2},
        {"task": "multilabel", "balanced": True, "sampled": True, "dropout": 0.4},
        {"balanced": True, "sampled": True, "bias": True},
        {"batch": 3, "sampled": True},
    ],
    ids=str,
)
def test_hosting_parity(rule: str, eta: float, options: dict[str, Any]) -> None:
    case = make_case(**options)
    one, losses = case.host(rule=rule, step_size=eta, consensus_every=2), []
    for _ in range(5):
        one, loss = run(training_step(one))
        losses.append(loss)
    for grouping in GROUPINGS:
        many = [case.host(group, rule=rule, step_size=eta, consensus_every=2) for group in grouping]
        for loss in losses:
            results = run_together([training_step(host) for host in many])
            many = [host for host, _ in results]
            torch.testing.assert_close(sum(part for _, part in results), loss, rtol=1e-10, atol=1e-12)
        for name, part in stacked(many).items():
            torch.testing.assert_close(part, one.params[name], rtol=1e-10, atol=1e-12)
        assert_same_outputs(one, many)


@pytest.mark.parametrize("compress", ["none", *COMPRESSIONS, "power:9"])
@pytest.mark.parametrize(
    ("grouping", "joined"),
    [(GROUPINGS[0], False), (GROUPINGS[2], False), (GROUPINGS[1], True), (GROUPINGS[3], True)],
    ids=["each alone", "links of agents", "links of hosts", "links of hosts in any order"],
)
def test_hosting_parity_of_consensus(grouping: list[list[int]], joined: bool, compress: str) -> None:
    """With links between hosts too, where a host receives once what several of its agents need.

    Agents that start from the same weights have links without a difference.
    """
    case = make_case(dropout=0.4, bias=True)
    hosting = np.empty(M, dtype=np.int64)
    for number, group in enumerate(grouping):
        hosting[group] = number
    options: dict[str, Any] = {
        "rule": "adam",
        "track": True,
        "same_initial": True,
        "consensus_every": 2,
        "compress": compress,
    }
    one = case.host(step_size=0.01, **options)
    many = [case.host(group, step_size=0.01, hosting=hosting if joined else None, **options) for group in grouping]
    for _ in range(6):
        one, _ = run(training_step(one))
        many = [host for host, _ in run_together([training_step(host) for host in many])]
    for name, part in stacked(many).items():
        torch.testing.assert_close(part, one.params[name], rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(("rule", "eta"), [("gd", 0.05), ("momentum", 0.02)])
def test_hosting_parity_in_float32(rule: str, eta: float) -> None:
    """1e-5 in norm, as rounding allows."""
    case = make_case(dropout=0.4)
    one = case.host(rule=rule, step_size=eta, dtype=torch.float32)
    many = [case.host([k], rule=rule, step_size=eta, dtype=torch.float32) for k in range(M)]
    for _ in range(20):
        one, _ = run(training_step(one))
        many = [host for host, _ in run_together([training_step(host) for host in many])]
    for name, part in stacked(many).items():
        assert part.dtype == torch.float32
        assert (part - one.params[name]).norm() <= 1e-5 * one.params[name].norm()


def test_messages_go_where_two_agents_share_an_edge_and_nowhere_else() -> None:
    case = make_case(n=40)
    hosts = [case.host([k]) for k in range(M)]
    seen: dict[Phase, set[tuple[int, int]]] = {phase: set() for phase in Phase}

    def note(outbox: Outbox) -> None:
        seen[outbox.phase] |= {(link.sender, link.receiver) for link in outbox.messages}

    run_together([watched(training_step(host), note) for host in hosts])
    trained = set(seen[Phase.FORWARD])
    run_together([watched(evaluate(case.host([k])), note) for k in range(M)])
    entries = case.shift.tocoo()
    k, z = case.owner[entries.row], case.owner[entries.col]
    shared = {(int(b), int(a)) for a, b in zip(k, z, strict=True) if a != b}
    assert seen[Phase.FORWARD] == shared
    assert seen[Phase.BACKWARD] == {(b, a) for a, b in trained}
    mixing = {(int(a), int(b)) for a, b in zip(*np.nonzero(case.combination), strict=True) if a != b}
    assert seen[Phase.CONSENSUS] == mixing


def test_only_weighted_vectors_leave_an_agent() -> None:
    """A forward message has the layer's output width: raw features never travel."""
    case = make_case()
    generators = [training_step(case.host([k])) for k in range(M)]
    for generator in generators:
        outbox = next(generator)
        assert {join_parts(part).shape[1] for part in outbox.messages.values()} <= {case.network.layers[0].outputs}
        generator.close()


def test_a_lost_message_is_noticed() -> None:
    case = make_case()
    generators = [training_step(case.host([k])) for k in range(M)]
    outboxes = [next(generator) for generator in generators]
    receiver = next(k for k in range(M) if outboxes[k].expected)
    with pytest.raises(KeyError):
        generators[receiver].send({})
