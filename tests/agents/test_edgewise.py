"""A layer that is not linear in its offers goes through the same training step, exactly."""

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from agents.cases import Case, M, make_case, watched
from agents.maximum import KIND, whole_graph
from agents.test_hosting import GROUPINGS, assert_same_outputs, stacked
from peers.harness import check, deployed, in_threads, simulated

from gossamer.agents import Host, Outbox, loss_gradient, training_step
from gossamer.agents.exchange import join_parts
from gossamer.agents.measures import evaluate
from gossamer.agents.plan import message_rows
from gossamer.engines.simulation import run, run_together
from gossamer.errors import GossamerError
from gossamer.model.layers import LAYERS
from gossamer.model.losses import losses
from gossamer.peers.local_processes import write_local_shards
from gossamer.runs.hosts import build_host
from gossamer.runs.message_counts import count_messages
from gossamer.runs.settings import make_settings

OPTIONS = [
    {"sparse_features": True},
    {"sparse_features": False, "num_layers": 3},
    {"batch": 3, "num_layers": 2},
    {"shift": "random-walk", "num_layers": 1},
]


@pytest.fixture(autouse=True)
def _known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(LAYERS, "maximum", KIND)


def problem(options: dict[str, Any]) -> Case:
    return make_case(kind="maximum", **options)


def reference(case: Case, host: Host) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """L and every agent's gradient by autograd of the whole graph."""
    leaves = {name: part.clone().requires_grad_() for name, part in host.params.items()}
    activations = ["tanh"] * (len(case.network.layers) - 1) + ["identity"]
    whole = case.problem
    outputs = whole_graph(whole.D, whole.X, whole.owner, leaves, activations)
    loss = losses(outputs, whole.targets)[whole.labelled].sum() / whole.labelled.sum()
    return loss.detach(), dict(zip(leaves, torch.autograd.grad(loss, list(leaves.values())), strict=True))


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("grouping", [[list(range(M))], *GROUPINGS], ids=str)
def test_gradients_equal_whole_graph_autograd(grouping: list[list[int]], options: dict[str, Any]) -> None:
    case = problem(options)
    hosts = [case.host(group) for group in grouping]
    loss, expected = reference(case, case.host())
    results = run_together([loss_gradient(host) for host in hosts])
    torch.testing.assert_close(sum(part for part, _ in results), loss, rtol=1e-12, atol=1e-12)
    order = np.argsort([k for host in hosts for k in host.agents])
    for name, wanted in expected.items():
        found = torch.cat([gradient[name] for _, gradient in results])[order.copy()]
        torch.testing.assert_close(found, wanted, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("joined_hosts", [False, True])
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_hosting_changes_nothing(options: dict[str, Any], joined_hosts: bool) -> None:
    case = problem({**options, "dropout": 0.3})
    grouping = GROUPINGS[2]
    hosting = np.empty(M, dtype=np.int64)
    for number, group in enumerate(grouping):
        hosting[group] = number
    one = case.host(step_size=0.05)
    many = [case.host(group, step_size=0.05, hosting=hosting if joined_hosts else None) for group in grouping]
    for _ in range(8):
        one, _ = run(training_step(one))
        many = [host for host, _ in run_together([training_step(host) for host in many])]
    for name, part in stacked(many).items():
        torch.testing.assert_close(part, one.params[name], rtol=1e-10, atol=1e-12)
    assert_same_outputs(one, many)


def test_quantised_rows_are_the_same_at_every_hosting() -> None:
    case = problem({"sparse_features": True})
    one = case.host(step_size=0.05, boundary_bits=16)
    many = [case.host([k], step_size=0.05, boundary_bits=16) for k in range(M)]
    for _ in range(5):
        one, _ = run(training_step(one))
        many = [host for host, _ in run_together([training_step(host) for host in many])]
    for name, part in stacked(many).items():
        torch.testing.assert_close(part, one.params[name], rtol=1e-10, atol=1e-12)


def test_peers_over_encrypted_sockets_end_with_the_simulations_weights(tmp_path: Path) -> None:
    deployment, settings = deployed(layers="maximum", update="momentum", step_size=0.02, dropout=0.3, steps=20)
    folders = write_local_shards(tmp_path, deployment, settings)
    assert in_threads(folders) == []
    check(folders, simulated(deployment, settings))


def test_the_messages_that_are_counted_are_those_that_are_sent(tmp_path: Path) -> None:
    deployment, settings = deployed(layers="maximum", update="gd", steps=3)
    sent: Counter[str] = Counter()

    def note(outbox: Outbox) -> None:
        sent[str(outbox.phase)] += sum(join_parts(m).numel() * 8 for m in outbox.messages.values())

    hosts = [build_host(deployment, settings, [k]) for k in range(deployment.num_agents)]
    run_together([watched(training_step(host), note) for host in hosts])
    counted = count_messages(deployment, settings)
    assert dict(sent) == {phase: counted[phase]["bytes"] for phase in ("forward", "backward", "consensus")}


def test_a_layer_that_is_not_in_the_table_is_refused() -> None:
    with pytest.raises(GossamerError, match=r"layers = 'gatt': input should be 'gcn', .*'maximum'"):
        make_settings({"layers": "gatt"})


def test_a_link_carries_each_needed_source_once() -> None:
    case = problem({"num_layers": 1})
    sent: dict[tuple[int, int], int] = {}

    def note(outbox: Outbox) -> None:
        if outbox.phase == "forward":
            for link, message in outbox.messages.items():
                sent[link.sender, link.receiver] = len(join_parts(message))

    run_together([watched(evaluate(case.host([k])), note) for k in range(M)])
    entries = case.shift.tocoo()
    sources: dict[tuple[int, int], set[int]] = {}
    for i, j in zip(entries.row, entries.col, strict=True):
        if case.owner[i] != case.owner[j]:
            sources.setdefault((int(case.owner[j]), int(case.owner[i])), set()).add(int(j))
    assert sent == {link: len(rows) for link, rows in sources.items()}
    gathers = case.network.gathers
    (counted,) = message_rows(case.shift, gathers, np.ones(len(case.owner), dtype=bool), case.owner)
    assert {tuple(link): count for link, count in counted[0].items()} == sent
