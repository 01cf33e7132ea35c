"""Every layer and block is trained exactly: gradients equal autograd of an independent whole-graph reference."""

from dataclasses import asdict, replace
from typing import Any

import numpy as np
import pytest
import torch
from agents.cases import Case, M, make_case
from agents.test_hosting import GROUPINGS, assert_same_outputs, stacked
from oracles.layers import gradients, outputs
from torch import Tensor

from gossamer.agents import Host, loss_gradient, training_step
from gossamer.agents.measures import evaluate
from gossamer.engines.simulation import run, run_together
from gossamer.experiments.theory import draw_block_graph
from gossamer.model import Network, make_shift, selected_product
from gossamer.model.gather import Monomial, PageRank
from gossamer.model.layers import Block, Convolution
from gossamer.runs.deployment import make_deployment
from gossamer.runs.hosts import build_host
from gossamer.runs.settings import make_settings

HEADS = {"hidden": (6, 4), "heads": 2}
KEPT = {"residual": True, "norm": "layer"}
CASES: dict[str, dict[str, Any]] = {
    "gat": {"kind": "gat", "bias": True, **HEADS},
    "gat slope": {"kind": "gat", "hidden": (6,), "heads": 3, "negative_slope": 0.7, "sparse_features": False},
    "gat times": {"kind": "gat", "batch": 3, "bias": True, **HEADS},
    "gat dropout": {"kind": "gat", "dropout": 0.3, "attention_dropout": 0.4, **HEADS},
    "gat dropout times": {"kind": "gat", "batch": 3, "dropout": 0.3, "attention_dropout": 0.4, **HEADS},
    "gat list": {"kind": "gat:heads=2,width=6,concat=false/sage:width=4/gat:heads=3,concat=true", "shift": "mean"},
    "gatv2": {"kind": "gatv2", "bias": True, **HEADS},
    "gatv2 times": {"kind": "gatv2", "batch": 3, "negative_slope": 0.5, **HEADS},
    "gatv2 dropout": {"kind": "gatv2", "bias": True, "dropout": 0.3, "attention_dropout": 0.4, **HEADS},
    "sage mean": {"kind": "sage", "shift": "mean", "bias": True},
    "sage sum": {"kind": "sage", "aggregate": "sum", "shift": "sum", "normalise": True, "sparse_features": False},
    "sage max": {"kind": "sage", "aggregate": "max", "bias": True, "num_layers": 3},
    "sage max alone": {"kind": "sage", "aggregate": "max", "root_weight": False, "batch": 3},
    "sage alone": {"kind": "sage", "root_weight": False, "shift": "mean", "batch": 3, "normalise": True, "bias": True},
    "sage dropout": {"kind": "sage", "dropout": 0.4, "shift": "mean", "num_layers": 3},
    "gin": {"kind": "gin", "shift": "sum", "bias": True, "epsilon": 0.3},
    "gin learnt": {"kind": "gin", "shift": "sum", "bias": True, "learn_epsilon": True, "epsilon": 0.1, "num_layers": 3},
    "gin times": {"kind": "gin", "shift": "sum", "learn_epsilon": True, "batch": 3, "dropout": 0.3},
    "gated": {"kind": "gated", "bias": True},
    "gated alone": {"kind": "gated", "bias": True, "root_weight": False, "sparse_features": False, "dropout": 0.3},
    "gated times": {"kind": "gated", "batch": 3, "dropout": 0.3},
    "sgc": {"kind": "sgc", "order": 3, "bias": True},
    "appnp": {"kind": "appnp", "order": 3, "teleport": 0.2, "bias": True, "dropout": 0.3},
    "appnp times": {"kind": "appnp", "order": 2, "teleport": 0.3, "batch": 3},
    "blocks gcn": {"kind": "gcn", "hidden": (5, 5, 5), "bias": True, **KEPT},
    "blocks gat": {"kind": "gat", "hidden": (4, 4), "heads": 2, "dropout": 0.3, "attention_dropout": 0.3, **KEPT},
    "blocks sage": {"kind": "sage", "shift": "mean", "hidden": (5, 5), "dropout": 0.3, "batch": 3, **KEPT},
    "blocks gin": {"kind": "gin", "shift": "sum", "hidden": (5, 5), "activation": "elu", **KEPT},
    "blocks gated": {"kind": "gated", "hidden": (5, 4), "residual": True, "bias": True},
    "blocks gatv2": {"kind": "gatv2", "hidden": (6,), "heads": 2, "norm": "layer", "bias": True},
    "blocks appnp": {"kind": "appnp", "order": 2, "hidden": (5, 5), **KEPT},
    "jump cat": {"kind": "gat", "hidden": (8, 4, 4), "heads": 2, "jump": "cat", "dropout": 0.3, **KEPT},
    "jump max": {"kind": "sage", "shift": "mean", "hidden": (5, 5, 5), "jump": "max", "bias": True, "batch": 2},
    "jump max only": {"kind": "gin", "shift": "sum", "hidden": (5, 5), "jump": "max", "after": (4,), "dropout": 0.3},
    "before after": {"kind": "gated", "hidden": (5,), "before": (4, 5), "after": (4,), "bias": True, **KEPT},
    "before max": {"kind": "sage", "aggregate": "max", "hidden": (5,), "before": (5,), "residual": True},
}


def describe(network: Network) -> list[dict[str, Any]]:
    """A network's layers as the reference reads them."""
    return [_describe_layer(layer) for layer in network.layers]


def _describe_layer(layer: Any) -> dict[str, Any]:
    if isinstance(layer, Block):
        around = {"norm": layer.norm, "residual": layer.residual, "jump": layer.jump, "last": layer.last}
        return {**_describe_layer(layer.layer), "activation": layer.activation, **around}
    found = {name: value for name, value in asdict(layer).items() if name != "gather"}
    found["attention_dropout"] = found.get("edge_dropout", 0.0)
    if not isinstance(layer, Convolution):
        return {"kind": type(layer).__name__.lower(), **found}
    gather = layer.gather
    assert isinstance(gather, Monomial | PageRank)
    teleport = gather.teleport if isinstance(gather, PageRank) else 0.0
    return {"kind": "filter", "order": gather.powers[-1], "teleport": teleport, **found}


def shake(host: Host) -> Host:
    """The same host with random numbers in parameters that start from constants, different at every agent."""
    for index, layer in enumerate(host.network.layers):
        for name, parameter in layer.parameters().items():
            if not parameter.random:
                part = host.params[f"layer.{index}.{name}"]
                for row, agent in zip(part, host.agents, strict=True):
                    draw = torch.Generator().manual_seed(100 * int(agent) + len(name) + index)
                    row.add_(torch.randn(row.shape, generator=draw, dtype=row.dtype), alpha=0.3)
    return host


def reference(case: Case, host: Host, step: int | None = 0) -> tuple[Tensor, dict[str, Tensor]]:
    adjacency = torch.tensor(case.graph.adjacency.toarray())
    return gradients(case.problem, adjacency, describe(case.network), host.params, step)


def assert_exact(
    hosts: list[Host], results: list[tuple[Tensor, dict[str, Tensor]]], loss: Tensor, expected: dict[str, Tensor]
) -> None:
    torch.testing.assert_close(sum(part for part, _ in results), loss, rtol=1e-12, atol=1e-12)
    order = np.argsort([k for host in hosts for k in host.agents])
    assert list(expected) == list(hosts[0].params)
    for name, wanted in expected.items():
        found = torch.cat([gradient[name] for _, gradient in results])[order.copy()]
        torch.testing.assert_close(found, wanted, rtol=1e-10, atol=1e-13)
        assert wanted[: M - 1].abs().max() > 0, name  # the last agent has no vertex


@pytest.mark.parametrize("name", CASES)
def test_gradients_equal_whole_graph_autograd_at_every_hosting(name: str) -> None:
    """One host, with receptive fields and without, one agent on each, and mixtures."""
    case = make_case(**CASES[name])
    one = shake(case.host())
    loss, expected = reference(case, one)
    assert_exact([one], [run(loss_gradient(one))], loss, expected)
    whole = shake(case.host(receptive_field=False))
    assert_exact([whole], [run(loss_gradient(whole))], loss, expected)
    for grouping in GROUPINGS:
        hosts = [shake(case.host(group)) for group in grouping]
        assert_exact(hosts, run_together([loss_gradient(host) for host in hosts]), loss, expected)


@pytest.mark.parametrize("name", CASES)
def test_outputs_equal_the_whole_graphs_without_dropout(name: str) -> None:
    case = make_case(**CASES[name], seed=1)
    hosts = [shake(case.host(group)) for group in GROUPINGS[2]]
    adjacency = torch.tensor(case.graph.adjacency.toarray())
    wanted = outputs(case.problem, adjacency, describe(case.network), shake(case.host()).params, None)
    for host, (found, _) in zip(hosts, run_together([evaluate(host) for host in hosts]), strict=True):
        torch.testing.assert_close(found, wanted[host.full_pass.vertices], rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", ["gat dropout times", "gatv2 dropout", "sage dropout", "jump cat"])
def test_hosting_changes_no_training_step(name: str) -> None:
    """With links between hosts, too; every step draws other numbers for dropout."""
    case = make_case(**CASES[name])
    grouping = GROUPINGS[3]
    hosting = np.empty(M, dtype=np.int64)
    for number, group in enumerate(grouping):
        hosting[group] = number
    one = case.host(step_size=0.05)
    many = [case.host(group, step_size=0.05, hosting=hosting) for group in grouping]
    for step in range(4):
        if step == 3:
            loss, expected = reference(case, one, step)
            assert_exact([one], [run(loss_gradient(one))], loss, expected)
        one, _ = run(training_step(one))
        many = [host for host, _ in run_together([training_step(host) for host in many])]
    for key, part in stacked(many).items():
        torch.testing.assert_close(part, one.params[key], rtol=1e-10, atol=1e-12)
    assert_same_outputs(one, many)


@pytest.mark.parametrize("name", ["gat dropout", "gatv2 dropout", "sage mean", "gin", "blocks gat"])
def test_gradients_of_selected_entries_are_exact(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As above, for features with many entries."""
    monkeypatch.setattr(selected_product, "MANY_ENTRIES", 0)
    case = make_case(**CASES[name])
    host = shake(case.host())
    assert isinstance(host.train_pass.products[0], selected_product.SelectedProduct)
    assert_exact([host], [run(loss_gradient(host))], *reference(case, host))


def test_dropout_of_attention_differs_by_step_layer_head_and_time() -> None:
    """Masks that one draw was shared by would agree far more often than independent ones."""
    case = make_case(kind="gat", batch=2, attention_dropout=0.5, hidden=(6, 6), heads=2)
    host = case.host(receptive_field=False)
    masks = []
    for step in (0, 1):
        for layer in (0, 1):
            at = host.train_pass.outputs(layer, None, (3, step))
            assert at.drop_edges is not None
            drawn = at.drop_edges(torch.ones(len(at.require_edges().target), 2, 2, dtype=torch.float64))
            masks += [drawn[:, t, head] > 0 for t in (0, 1) for head in (0, 1)]
    same = [(a == b).double().mean() for k, a in enumerate(masks) for b in masks[:k]]
    assert 0.25 < min(same) <= max(same) < 0.75
    assert 0.4 < torch.stack(masks).double().mean() < 0.6


@pytest.mark.parametrize("layers", ["gat", "sage", "gin", "gated"])
def test_edges_that_no_link_carries_are_left_out(layers: str) -> None:
    """On a line of agents the reference sees the edges that are left, some vertices without any."""
    settings = make_settings(
        {"preset": "paper", "dataset": "blocks", "agents": 4, "topology": "line", "hidden": 6, "layers": layers,
         "dtype": "float64", "initial_deviation": 0.5, "residual": True, "assignment": "uniform"}
    )  # fmt: skip
    graph = draw_block_graph()
    deployment = make_deployment(graph, settings)
    assert deployment.edges_kept < 1
    owner = deployment.assignment
    kept = np.abs(owner[graph.edges[:, 0]] - owner[graph.edges[:, 1]]) <= 1
    adjacency = torch.zeros(graph.num_vertices, graph.num_vertices, dtype=torch.float64)
    for (i, j), weight in zip(graph.edges[kept].tolist(), graph.weights[kept].tolist(), strict=True):
        adjacency[i, j] = adjacency[j, i] = weight
    hosts = [build_host(deployment, settings, [k]) for k in range(4)]
    problem = replace(
        make_case().problem,
        X=torch.tensor(graph.features.toarray() if hasattr(graph.features, "toarray") else graph.features).double(),
        targets=torch.tensor(graph.targets),
        labelled=torch.tensor(graph.train),
        owner=torch.tensor(owner),
        weights=None,
    )
    params = {name: torch.cat([host.params[name] for host in hosts]) for name in hosts[0].params}
    loss, expected = gradients(problem, adjacency, describe(deployment.network), params, None)
    results = run_together([loss_gradient(host, dropout=False) for host in hosts])
    torch.testing.assert_close(sum(part for part, _ in results), loss, rtol=1e-12, atol=1e-12)
    for name, wanted in expected.items():
        found = torch.cat([gradient[name] for _, gradient in results])
        torch.testing.assert_close(found, wanted, rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize("sparse_features", [True, False])
def test_a_residual_connection_of_the_features_as_they_are(sparse_features: bool) -> None:
    """The first layer of the width of the features: their rows themselves are wanted."""
    case = make_case(kind="gcn", hidden=(6,), residual=True, sparse_features=sparse_features)
    host = case.host()
    assert_exact([host], [run(loss_gradient(host))], *reference(case, host))


def test_isolated_vertices_have_themselves_alone() -> None:
    """Attention of a vertex without edges is its own offer; sums, means and maxima of nothing are 0."""
    for name in ("gat", "gatv2", "sage mean", "sage max", "gin", "gated", "appnp"):
        options = CASES[name]
        case = make_case(**options, seed=2)
        alone = np.array([3, 4, 10, 23])
        apart = ~np.isin(case.graph.edges, alone).any(1)
        graph = replace(case.graph, edges=case.graph.edges[apart], weights=case.graph.weights[apart])
        shift = make_shift(graph.adjacency, options.get("shift", "normalized"))
        case = replace(case, graph=graph, shift=shift)
        hosts = [shake(case.host(group)) for group in GROUPINGS[1]]
        loss, expected = reference(case, shake(case.host()))
        results = run_together([loss_gradient(host) for host in hosts])
        assert_exact(hosts, results, loss, expected)
