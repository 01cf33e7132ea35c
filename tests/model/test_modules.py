"""A network as a plain PyTorch module: its outputs are those of the agents' arithmetic and of PyTorch Geometric."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import gossamer
from gossamer import DataGraph, GossamerError, make_graph
from gossamer.model import make_network
from gossamer.model.modules import GraphNetwork, make_module
from gossamer.model.pyg_layers import find_pyg_layer
from gossamer.model.state_dicts import from_state_dict, to_state_dict

N = 40
SHIFTS = ("normalized", "random-walk", "laplacian", "scaled-laplacian", "identity")
KINDS = [("gcn", 1), ("gcn", 3), ("polynomial", 2), ("chebyshev", 1), ("chebyshev", 3), ("linear", 1), ("mlp", 1)]


def draw_graph(weighted: bool = True, times: int | None = None) -> DataGraph:
    """A random graph with weights, an isolated vertex and, with `times`, a time axis."""
    rng = np.random.default_rng(5)
    edges = {tuple(sorted(pair)) for pair in rng.integers(0, N - 1, size=(90, 2)).tolist() if pair[0] != pair[1]}
    edges |= {(i, i + 1) for i in range(N - 2)}
    x = rng.normal(size=(N, 6) if times is None else (N, times, 6)).astype(np.float32)
    y: Any = rng.integers(0, 3, N) if times is None else rng.normal(size=(N, times, 2)).astype(np.float32)
    with pytest.warns(gossamer.GossamerWarning, match="disconnected"):
        return make_graph(
            "random",
            sorted(edges),
            x,
            y,
            train=np.arange(20),
            validation=np.arange(20, 30),
            test=np.arange(30, N),
            weights=rng.uniform(0.5, 2, len(edges)) if weighted else None,
        )


def both_directions(graph: DataGraph) -> tuple[Tensor, Tensor]:
    entries = graph.adjacency.tocoo()
    index = torch.from_numpy(np.stack([entries.row, entries.col]).astype(np.int64))
    return index, torch.from_numpy(entries.data).float()


def train_some(graph: DataGraph, **options: Any) -> gossamer.Result:
    common: dict[str, Any] = {
        "preset": "paper",
        "agents": 4,
        "steps": 15,
        "hidden": (8, 5),
        "baselines": False,
        "dropout": 0.2,
        "initial_deviation": 0.5,
    }
    return gossamer.train(graph, **{**common, "step_size": 0.01, "initial_deviation": 0.5, **options})


@pytest.mark.filterwarnings("ignore::gossamer.GossamerWarning")
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(("layers", "order"), KINDS)
def test_the_module_computes_what_the_run_predicts_centrally(layers: str, order: int, bias: bool) -> None:
    graph = draw_graph()
    result = train_some(graph, layers=layers, order=order, bias=bias)
    index, weight = both_directions(graph)
    with torch.no_grad():
        found = result.model()(torch.from_numpy(graph.features), index, weight)
    expected = result.predict(graph)
    assert found.abs().max() > 0.01
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.filterwarnings("ignore::gossamer.GossamerWarning")
@pytest.mark.parametrize("shift", SHIFTS)
def test_every_shift_and_a_time_axis(shift: str) -> None:
    graph = draw_graph(times=7)
    result = train_some(graph, layers="polynomial", order=2, shift=shift, steps=0)
    index, weight = both_directions(graph)
    with torch.no_grad():
        found = result.model()(torch.from_numpy(graph.features), index, weight)
    torch.testing.assert_close(found, result.predict(graph), rtol=1e-4, atol=1e-5)


@pytest.mark.filterwarnings("ignore::gossamer.GossamerWarning")
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(("layers", "order"), [("gcn", 1), ("linear", 1), ("chebyshev", 1), ("chebyshev", 3)])
def test_the_cards_code_gives_the_same_outputs_in_pytorch_geometric(
    layers: str, order: int, bias: bool, weighted: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch_geometric")
    graph = draw_graph(weighted)
    result = train_some(graph, layers=layers, order=order, bias=bias, activation="tanh")
    monkeypatch.chdir(tmp_path)
    result.export("model.safetensors")
    plain, pyg = [part.split("```")[0] for part in Path("model.md").read_text().split("```python\n")[1:]]
    index, weight = both_directions(graph)
    names: dict[str, Any] = {"x": torch.from_numpy(graph.features), "edge_index": index}
    exec(pyg, names)
    with torch.no_grad():
        found = names["network"](names["x"], index, weight if weighted else None)
    expected = result.predict(graph)
    assert expected.std() > 0.01
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
    if layers == "chebyshev":  # what PyTorch Geometric takes for lambda_max by itself is the same
        x = names["x"]
        for conv in names["network"].convs[:-1]:
            x = conv(x, index, weight if weighted else None).tanh()
        default = names["network"].convs[-1](x, index, weight if weighted else None)
        torch.testing.assert_close(default, expected, rtol=1e-5, atol=1e-5)
    exec(plain, names)
    if not weighted:
        torch.testing.assert_close(names["outputs"], expected, rtol=1e-5, atol=1e-5)


def test_the_usual_network_of_pytorch_geometric_takes_the_names_as_they_are() -> None:
    models = pytest.importorskip("torch_geometric.nn.models")
    result = gossamer.train("digits", agents=2, steps=3, bias=True, standardise=False, baselines=False)
    network = models.GCN(64, 64, num_layers=2, out_channels=10)
    network.load_state_dict(result.model().state_dict())
    index, _ = both_directions(result.run.deployment.graph)
    x = torch.from_numpy(result.run.deployment.graph.features).float()
    torch.testing.assert_close(network.eval()(x, index), result.model()(x, index), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("layers", "order", "shift", "pyg"),
    [
        ("gcn", 1, "normalized", "GCNConv"),
        ("linear", 1, "normalized", "GCNConv"),
        ("chebyshev", 2, "scaled-laplacian", "ChebConv"),
        ("gcn", 2, "normalized", None),
        ("gcn", 1, "random-walk", None),
        ("polynomial", 1, "normalized", None),
        ("chebyshev", 2, "normalized", None),
        ("linear", 2, "normalized", None),
        ("mlp", 1, "normalized", None),
    ],
)
def test_only_equal_layers_are_called_so(layers: str, order: int, shift: str, pyg: str | None) -> None:
    assert find_pyg_layer(make_network(layers, 3, 2, order=order), shift) == pyg


def test_names_and_shapes_and_back() -> None:
    network = make_network("chebyshev", 3, 2, hidden=(4,), order=2, bias=True)
    params = {name: torch.randn(shape) for name, shape in network.shapes().items()}
    state = to_state_dict(network, params)
    assert {name: tuple(part.shape) for name, part in state.items()} == {
        **{f"convs.0.lins.{p}.weight": (4, 3) for p in range(3)},
        "convs.0.bias": (4,),
        **{f"convs.1.lins.{p}.weight": (2, 4) for p in range(3)},
        "convs.1.bias": (2,),
    }
    assert all(torch.equal(params[name], part) for name, part in from_state_dict(network, state, "it").items())
    assert list(make_module(network, params, "identity").state_dict()) == [
        "convs.0.bias",
        "convs.0.lins.0.weight",
        "convs.0.lins.1.weight",
        "convs.0.lins.2.weight",
        "convs.1.bias",
        "convs.1.lins.0.weight",
        "convs.1.lins.1.weight",
        "convs.1.lins.2.weight",
    ]


def test_a_module_trains_with_dropout_and_gradients() -> None:
    network = make_network("gcn", 3, 2, hidden=(4,), dropout=0.5)
    module = GraphNetwork(network, "normalized")
    index, x = torch.tensor([[0, 1], [1, 0]]), torch.ones(2, 3)
    assert module.training
    torch.manual_seed(0)
    assert len({float(module(x, index).detach().sum()) for _ in range(5)}) > 1
    module(x, index).sum().backward()
    assert all(part.grad is not None for part in module.parameters())


def test_self_loops_are_dropped_and_sparse_features_taken() -> None:
    network = make_network("gcn", 3, 2, hidden=(4,))
    module = GraphNetwork(network, "normalized").eval()
    x = torch.randn(3, 3)
    index = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    looped = torch.cat([index, torch.tensor([[0, 2], [0, 2]])], 1)
    torch.testing.assert_close(module(x, index), module(x, looped))
    torch.testing.assert_close(module(x, index), module(x.to_sparse(), index))


@pytest.mark.parametrize(
    ("index", "weight", "message"),
    [
        ([[0], [1]], None, "each edge in both directions"),
        ([[0, 1], [1, 0]], [1.0, 2.0], "each edge in both directions"),
        (
            [[0, 3], [3, 0]],
            None,
            "between the vertices 0 to 2 and one weight each, got 2 edges and 2 weights betw",
        ),
        ([[0, -1], [-1, 0]], None, "between the vertices 0 to 2"),
        ([[0, 1], [1, 0]], [1.0], "got 2 edges and 1 weights"),
    ],
)
def test_edges_that_do_not_fit_are_refused(index: Any, weight: Any, message: str) -> None:
    module = GraphNetwork(make_network("gcn", 3, 2), "normalized")
    with pytest.raises(GossamerError, match=message):
        module(torch.ones(3, 3), torch.tensor(index), None if weight is None else torch.tensor(weight))


def test_a_graph_without_edges() -> None:
    module = GraphNetwork(make_network("gcn", 3, 2), "normalized").eval()
    assert module(torch.ones(3, 3), torch.empty(2, 0, dtype=torch.int64)).shape == (3, 2)


@pytest.mark.filterwarnings("ignore::gossamer.GossamerWarning")
def test_a_given_shift_is_taken_as_edges() -> None:
    graph = draw_graph()
    D = graph.adjacency * 0.1
    D[3, 4] = 0.7  # not symmetric
    result = gossamer.train(graph, agents=1, steps=3, baselines=False, given={"shift": D})
    entries = D.tocoo()
    index = torch.from_numpy(np.stack([entries.col, entries.row]).astype(np.int64))
    found = result.model()(torch.from_numpy(graph.features), index, torch.from_numpy(entries.data))
    torch.testing.assert_close(found, result.predict(), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(result.predict(graph, shift=D), result.predict(), rtol=1e-5, atol=1e-6)
    with pytest.raises(GossamerError, match="trained with a D that was given: give shift="):
        result.predict(graph)
