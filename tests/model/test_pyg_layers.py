"""With equal weights a layer computes what PyTorch Geometric's module does, with its state dict loaded; and sums over
edges are differentiated exactly."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from oracles.graphs import csr, random_adjacency
from torch import Tensor, nn

from gossamer.agents import TrainingOptions, loss_gradient, make_host, make_rule
from gossamer.data import make_graph
from gossamer.engines.simulation import run
from gossamer.model import make_network, make_shift
from gossamer.model.edge_sums import (
    additive_scores,
    gated_sum,
    joint_scores,
    neighbour_max,
    softmax_sum,
    view_products,
)
from gossamer.model.layers import Edges
from gossamer.model.losses import losses
from gossamer.model.modules import GraphNetwork
from gossamer.model.state_dicts import from_state_dict

pyg = pytest.importorskip("torch_geometric.nn")
N, D, OUT = 14, 5, 6
ADJACENCY = (random_adjacency(N, 0.3, seed=1) != 0).astype(np.float64)
EDGES = torch.from_numpy(np.stack(np.nonzero(ADJACENCY.T)))


def gin(**options: Any) -> nn.Module:
    made: nn.Module = pyg.GINConv(pyg.MLP([D, 7, OUT], norm=None, act="relu"), **options)
    return made


CASES: dict[str, tuple[str, dict[str, Any], Callable[[], nn.Module], str]] = {
    "gcn": ("gcn", {}, lambda: pyg.GCNConv(D, OUT), "normalized"),
    "gat concat": ("gat:heads=3,concat=true", {}, lambda: pyg.GATConv(D, 2, heads=3), "normalized"),
    "gat mean": ("gat:heads=3", {}, lambda: pyg.GATConv(D, OUT, heads=3, concat=False), "normalized"),
    "gat slope": (
        "gat:heads=2",
        {"negative_slope": 0.05},
        lambda: pyg.GATConv(D, OUT, heads=2, concat=False, negative_slope=0.05),
        "normalized",
    ),
    "gatv2 concat": ("gatv2:heads=2,concat=true", {}, lambda: pyg.GATv2Conv(D, 3, heads=2), "normalized"),
    "gatv2 mean": ("gatv2:heads=2", {}, lambda: pyg.GATv2Conv(D, OUT, heads=2, concat=False), "normalized"),
    "sage mean": ("sage", {}, lambda: pyg.SAGEConv(D, OUT), "mean"),
    "sage sum": ("sage", {"aggregate": "sum"}, lambda: pyg.SAGEConv(D, OUT, aggr="sum"), "sum"),
    "sage normalised": ("sage", {"normalise": True}, lambda: pyg.SAGEConv(D, OUT, normalize=True), "mean"),
    "sage without root": ("sage", {"root_weight": False}, lambda: pyg.SAGEConv(D, OUT, root_weight=False), "mean"),
    "gin": ("gin:inner=7", {"epsilon": 0.25}, lambda: gin(eps=0.25), "sum"),
    "gin learnt": ("gin:inner=7", {"learn_epsilon": True, "epsilon": 0.5}, lambda: gin(eps=0.5, train_eps=True), "sum"),
    "gated": ("gated", {}, lambda: pyg.ResGatedGraphConv(D, OUT), "normalized"),
    "gated without root": (
        "gated",
        {"root_weight": False},
        lambda: pyg.ResGatedGraphConv(D, OUT, root_weight=False),
        "normalized",
    ),
}


def features() -> Tensor:
    return torch.randn(N, D, generator=torch.Generator().manual_seed(4), dtype=torch.float64)


def build(layers: str, options: dict[str, Any], bias: bool = True) -> Any:
    return make_network(layers, D, OUT, hidden=(), bias=bias, activation="relu", **options)


@pytest.mark.parametrize("name", CASES)
def test_outputs_and_gradients_are_those_of_pytorch_geometric(name: str) -> None:
    layers, options, make, shift = CASES[name]
    torch.manual_seed(0)
    theirs = make().double()
    for part in theirs.parameters():  # biases start at 0
        nn.init.normal_(part, std=0.5)
    network = build(layers, options)
    ours = GraphNetwork(network, shift).double()
    assert {f"convs.0.{key}" for key in theirs.state_dict()} == set(ours.state_dict())
    ours.load_state_dict({f"convs.0.{key}": part for key, part in theirs.state_dict().items()})
    x, other = features().requires_grad_(), features().requires_grad_()
    found, wanted = ours(x, EDGES), theirs(other, EDGES)
    torch.testing.assert_close(found, wanted, rtol=1e-10, atol=1e-12)
    g = torch.randn(found.shape, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    found.backward(g), wanted.backward(g)
    torch.testing.assert_close(x.grad, other.grad, rtol=1e-10, atol=1e-12)
    parts = dict(ours.named_parameters())
    for key, part in theirs.named_parameters():
        torch.testing.assert_close(parts[f"convs.0.{key}"].grad, part.grad, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", CASES)
def test_the_sum_of_agents_gradients_is_pytorch_geometrics(name: str) -> None:
    """Agents with the same weights: L of all of them differentiated in these weights."""
    layers, options, make, shift = CASES[name]
    torch.manual_seed(1)
    theirs, network = make().double(), build(layers, options)
    random = np.random.default_rng(0)
    train = random.random(N) < 0.5
    train[:2] = True
    pairs = np.argwhere(np.triu(ADJACENCY))
    targets = random.integers(0, OUT, N)
    targets[:OUT] = np.arange(OUT)
    graph = make_graph("small", pairs, features().numpy(), targets, train=train, validation=~train, test=~train)
    how = TrainingOptions(make_rule("gd"), 0.1, seed=0)
    owner = np.arange(N) % 4
    D_shift = make_shift(csr(ADJACENCY), shift)
    host = make_host(graph, [(D_shift, np.full((4, 4), 0.25))], network, owner, range(4), how, dtype=torch.float64)
    state = {f"convs.0.{key}": part for key, part in theirs.state_dict().items()}
    for key, part in from_state_dict(network, state, "test").items():
        host.params[key].copy_(part.expand_as(host.params[key]))
    loss = losses(theirs(features(), EDGES), torch.from_numpy(graph.targets))[torch.from_numpy(graph.train)].mean()
    loss.backward()
    for key, part in theirs.named_parameters():
        state[f"convs.0.{key}"] = part.grad
    _, found = run(loss_gradient(host))
    wanted = from_state_dict(network, state, "test")
    for key, part in wanted.items():
        torch.testing.assert_close(found[key].sum(0), part, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(
    ("layers", "order", "make"),
    [
        ("sgc", 3, lambda: pyg.SGConv(D, OUT, K=3)),
        ("sgc", 2, lambda: pyg.SGConv(D, OUT, K=2)),
        ("appnp", 4, lambda: nn.Sequential(nn.Linear(D, OUT), pyg.APPNP(K=4, alpha=0.2))),
    ],
)
def test_filters_are_those_of_pytorch_geometric(layers: str, order: int, make: Callable[[], nn.Module]) -> None:
    torch.manual_seed(2)
    theirs = make().double()
    ours = GraphNetwork(build(layers, {"order": order, "teleport": 0.2}), "normalized").double()
    matrix, bias = sorted((nn.init.normal_(part).detach() for part in theirs.parameters()), key=lambda p: -p.ndim)
    ours.load_state_dict({"convs.0.lin.weight": matrix, "convs.0.bias": bias})
    alone = isinstance(theirs, nn.Sequential)
    wanted = theirs[1](theirs[0](features()), EDGES) if alone else theirs(features(), EDGES)  # type: ignore[index]
    torch.testing.assert_close(ours(features(), EDGES), wanted, rtol=1e-10, atol=1e-12)


def edges() -> Edges:
    """Three agents, an output row without edges, an offer that nobody takes, and one that two agents take."""
    target = torch.tensor([0, 0, 0, 1, 3, 3, 4])
    source = torch.tensor([0, 2, 5, 2, 2, 4, 1])
    agent = torch.tensor([0, 0, 1, 2, 2])
    return Edges(target, source, torch.ones(7, dtype=torch.float64), torch.arange(5), agent, 7, 3)


def draw(*shape: int, seed: int = 0) -> Tensor:
    made = torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return made.requires_grad_()


FUNCTIONS: dict[str, tuple[Callable[..., Tensor], tuple[Tensor, ...]]] = {
    "softmax_sum": (lambda s, z: softmax_sum(s, z, edges()), (draw(2, 7), draw(7, 2, 3, seed=1))),
    "softmax_sum, masked": (
        lambda s, z: softmax_sum(s, z, edges(), torch.tensor([[2.0, 0, 2, 2, 0, 2, 0]] * 2, dtype=torch.float64)),
        (draw(2, 7), draw(7, 2, 3, seed=1)),
    ),
    "view_products": (lambda z, v: view_products(z, v, edges()), (draw(7, 2, 3), draw(3, 2, 3, seed=1))),
    "additive_scores": (
        lambda seen, own: additive_scores(seen, own, edges(), 0.2),
        (draw(2, len(edges().views.row)), draw(2, 5, seed=1)),
    ),
    "joint_scores": (
        lambda z, own, v: joint_scores(z, own, v, edges(), 0.3),
        (draw(7, 2, 3), draw(5, 2, 3, seed=1), draw(3, 2, 3, seed=2)),
    ),
    "gated_sum": (lambda q, k, v: gated_sum(q, k, v, edges()), (draw(7, 3), draw(5, 3, seed=1), draw(7, 3, seed=2))),
    "gated_sum, times": (
        lambda q, k, v: gated_sum(q, k, v, edges()),
        (draw(7, 2, 3), draw(5, 2, 3, seed=1), draw(7, 2, 3, seed=2)),
    ),
    "neighbour_max": (lambda z: neighbour_max(z, edges()), (draw(7, 3),)),
    "neighbour_max, times": (lambda z: neighbour_max(z, edges()), (draw(7, 2, 3),)),
}


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("block", [1 << 18, 4])
def test_sums_over_edges_are_differentiated_exactly(name: str, block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Against finite differences, in one block of edges and in many."""
    monkeypatch.setattr("gossamer.model.edge_sums.CACHED_NUMBERS", block)
    function, inputs = FUNCTIONS[name]
    assert torch.autograd.gradcheck(function, inputs, atol=1e-7)


def test_attention_is_a_softmax_however_large_its_scores() -> None:
    scores = torch.tensor([[1e4, -1e4, 0.0, 5.0, -1e5, -1e5, 3.0]], dtype=torch.float32)
    ones = torch.ones(7, 1, 1)
    found = softmax_sum(scores, ones, edges())
    torch.testing.assert_close(found[:, 0, 0], torch.tensor([1.0, 1.0, 0.0, 1.0, 1.0]))


def test_largest_neighbours_that_tie_share_the_gradient() -> None:
    z = torch.ones(7, 1, dtype=torch.float64, requires_grad=True)
    neighbour_max(z, edges()).sum().backward()
    # offers 0, 2, 5 go to output 0, offer 2 to output 1, offers 2 and 4 to output 3, offer 1 to output 4
    assert z.grad is not None
    torch.testing.assert_close(z.grad[:, 0], torch.tensor([1 / 3, 1, 1 / 3 + 1 + 1 / 2, 0, 1 / 2, 1 / 3, 0]).double())


def test_scores_of_exactly_zero_are_differentiated_as_pytorchs_leaky_relu_is() -> None:
    """A vertex with no features and no bias scores 0: PyTorch takes the slope there."""
    seen = torch.zeros(1, len(edges().views.row), dtype=torch.float64, requires_grad=True)
    additive_scores(seen, torch.zeros(1, 5, dtype=torch.float64), edges(), 0.2).sum().backward()
    per_view = torch.bincount(edges().views.of_edge, minlength=seen.shape[1])
    torch.testing.assert_close(seen.grad, 0.2 * per_view[None].double())
    z, ones = torch.zeros(7, 1, 2, dtype=torch.float64, requires_grad=True), torch.ones(3, 1, 2, dtype=torch.float64)
    joint_scores(z, torch.zeros(5, 1, 2, dtype=torch.float64), ones, edges(), 0.3).sum().backward()
    times_used = torch.bincount(edges().source, minlength=7)
    assert z.grad is not None
    torch.testing.assert_close(z.grad[:, 0, 0], 0.3 * times_used.double())
