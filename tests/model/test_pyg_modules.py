"""PyTorch Geometric's models in and out: nothing changes on the way, and what cannot be carried over is refused."""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import gossamer
from gossamer import DataGraph, GossamerError, make_graph
from gossamer.model import make_network
from gossamer.model.layers import edge_dropout
from gossamer.model.pyg_layers import describe_model, find_pyg_layer

pyg = pytest.importorskip("torch_geometric.nn")
N, FEATURES, CLASSES, WIDTH = 40, 6, 4, 12
NODE: dict[str, Any] = {"norm": "layer_norm", "norm_kwargs": {"mode": "node"}}
MASKS: dict[str, Any] = {"train": np.arange(20), "validation": np.arange(20, 30), "test": np.arange(30, N)}
FAST: dict[str, Any] = {"agents": 3, "topology": "complete", "baselines": False}


def draw_graph(scale: float = 1.0) -> DataGraph:
    rng = np.random.default_rng(5)
    edges = {tuple(sorted(pair)) for pair in rng.integers(0, N, size=(70, 2)).tolist() if pair[0] != pair[1]}
    edges |= {(i, i + 1) for i in range(N - 1)}
    x = rng.normal(size=(N, FEATURES)).astype(np.float32) * scale + (scale - 1)
    return make_graph("random", sorted(edges), x, rng.integers(0, CLASSES, N), **MASKS)


def inputs(graph: DataGraph, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    entries = graph.adjacency.tocoo()
    index = torch.from_numpy(np.stack([entries.row, entries.col]).astype(np.int64))
    return torch.from_numpy(np.asarray(graph.features)).to(dtype), index


def build(model: str, layers: int = 2, outputs: int | None = CLASSES, **options: Any) -> Any:
    """A model with random numbers for all parameters, biases and normalisation too."""
    torch.manual_seed(3)
    module = getattr(pyg, model)(FEATURES, WIDTH, layers, outputs, **options)
    for part in module.parameters():
        nn.init.normal_(part, 0.1, 0.5)
    return module.eval()


def around() -> Any:
    return pyg.LayerNorm(WIDTH, mode="node")


MODELS: dict[str, Callable[[], Any]] = {
    "gcn": lambda: build("GCN", 3, dropout=0.3, bias=False),
    "gcn, last": lambda: build("GCN", jk="last", act="tanh"),
    "sage": lambda: build("GraphSAGE", 3, act="elu", **NODE),
    "sage, sum": lambda: build("GraphSAGE", aggr="add", normalize=True, root_weight=False, jk="max"),
    "gin": lambda: build("GIN", eps=0.3, norm=around()),
    "gin, learnt": lambda: build("GIN", train_eps=True, jk="max", act=None),
    "gat": lambda: build("GAT", heads=4, dropout=0.4, negative_slope=0.1),
    "gat, cat": lambda: build("GAT", 3, heads=2, jk="cat", bias=False, norm=nn.LayerNorm(WIDTH)),
    "gat, mean": lambda: build("GAT", heads=3, concat=False, act=torch.tanh),
    "gat, one": lambda: build("GAT", 1, heads=2),
    "gat, no outputs": lambda: pyg.GAT(FEATURES, CLASSES, 2, heads=2).eval(),
    "gatv2": lambda: build("GAT", 3, v2=True, heads=2, act_first=True),
    "gatv2, one": lambda: build("GAT", 1, v2=True, jk="cat", **NODE),
}


def assert_same_state(found: nn.Module, expected: nn.Module) -> None:
    assert list(found.state_dict()) == list(expected.state_dict())
    for name, part in expected.state_dict().items():
        assert found.state_dict()[name].dtype == part.dtype
        assert torch.equal(found.state_dict()[name], part), name


@pytest.mark.parametrize(
    ("name", "dtype"),
    [*((name, torch.float64) for name in MODELS), *((name, torch.float32) for name in [*MODELS][::4])],
)
def test_a_round_trip_changes_nothing(name: str, dtype: torch.dtype) -> None:
    graph, module = draw_graph(), MODELS[name]().to(dtype)
    result = gossamer.train(graph, initial=gossamer.from_pyg_module(module), steps=0, **FAST)
    back: Any = result.to_pyg()
    assert type(back) is type(module)
    assert not back.training
    assert_same_state(back, module)
    assert back.jk_mode == module.jk_mode
    if len(module.convs) > 1:
        assert back.dropout.p == module.dropout.p
    for own, theirs in zip(back.convs, module.convs, strict=True):
        assert repr(own).replace("sum", "add") == repr(theirs)
        assert getattr(own, "dropout", None) == getattr(theirs, "dropout", None)
    again = gossamer.from_pyg_module(back)
    assert again.settings == gossamer.from_pyg_module(module).settings
    close: dict[str, Any] = {"rtol": 1e-10, "atol": 1e-10} if dtype == torch.float64 else {"rtol": 1e-5, "atol": 1e-5}
    x, index = inputs(graph, dtype)
    with torch.no_grad():
        expected = module(x, index)
        assert expected.std() > 0.01
        for found in (back(x, index), result.model()(x, index), result.run.predict(), result.predict(graph)):
            torch.testing.assert_close(found, expected, **close)


@pytest.mark.parametrize("name", ["gcn", "sage", "gin, learnt", "gat, cat", "gatv2"])
def test_a_trained_network_goes_on_in_pytorch_geometric(name: str, tmp_path: Path) -> None:
    graph, start = draw_graph(), gossamer.from_pyg_module(MODELS[name]())
    result = gossamer.train(graph, initial=start, steps=5, dropout=0.0, out=tmp_path / "run", **FAST)
    assert result.run.settings.dropout == 0.0  # a setting that is given comes before the module's
    assert result.run.transform is None  # the module's weights belong to the features as they are
    back, (x, index) = result.to_pyg(), inputs(graph)
    before = MODELS[name]().parameters()
    assert max(float((a - b).detach().abs().max()) for a, b in zip(back.parameters(), before, strict=True)) > 1e-3
    result.export(tmp_path / "model.safetensors")
    with torch.no_grad():
        expected = result.model()(x, index)
        torch.testing.assert_close(back(x, index), expected, rtol=1e-5, atol=1e-5)
        stored = gossamer.load_model(tmp_path / "model.safetensors").to_pyg()
        assert torch.equal(stored(x, index), back(x, index))
        torch.testing.assert_close(gossamer.predict(tmp_path / "run", data=graph), expected, rtol=1e-5, atol=1e-5)
    assert_same_state(result.to_pyg(1), result.model(1).to_pyg())
    more = gossamer.train(graph, steps=0, initial=tmp_path / "model.safetensors", **{**start.settings, **FAST})
    assert_same_state(more.to_pyg(), back)
    (more.to_pyg().train()(x, index).sum()).backward()


@pytest.mark.parametrize("layers", ["gat", "sage", "gin", "gatv2", "gcn"])
def test_a_model_standardises_as_its_run_did(layers: str) -> None:
    graph = draw_graph(scale=7.0)
    result = gossamer.train(graph, layers=layers, hidden=WIDTH, steps=3, **FAST)
    assert result.run.transform is not None
    (x, index), model = inputs(graph), result.to_pyg()
    assert "standardisation" in dict(model.named_children())
    assert not any("standard" in name for name in model.state_dict())
    with torch.no_grad():
        expected = result.model()(x, index)
        torch.testing.assert_close(result.predict(graph), expected, rtol=1e-4, atol=1e-4)
        for module in (model, copy.deepcopy(model)):
            torch.testing.assert_close(module(x, index), expected, rtol=1e-5, atol=1e-5)
            torch.testing.assert_close(module(x=x, edge_index=index), expected, rtol=1e-5, atol=1e-5)
    again = gossamer.train(graph, initial=gossamer.from_pyg_module(model), steps=0, **FAST)
    assert_same_state(again.to_pyg(), model)
    torch.testing.assert_close(again.predict(graph), result.predict(graph), rtol=1e-5, atol=1e-5)


def test_real_values_come_back_in_their_units() -> None:
    given = draw_graph(scale=3.0)
    graph = make_graph("values", given.edges, given.features, 100.0 + np.arange(N, dtype=np.float64), **MASKS)
    result = gossamer.train(graph, layers="sage", hidden=WIDTH, steps=2, **FAST)
    (x, index), model = inputs(graph), result.to_pyg()
    with torch.no_grad():
        assert model(x, index).mean() > 50
        torch.testing.assert_close(model(x, index), result.model()(x, index), rtol=1e-5, atol=1e-5)


def with_changes(module: Any, change: Callable[[Any], Any]) -> Any:
    change(module)
    return module


def swap_aggregation(module: Any) -> None:
    module.convs[0].aggr_module = pyg.aggr.MaxAggregation()


REFUSED: list[tuple[Callable[[], Any], str]] = [
    (lambda: pyg.PNA(6, 8, 2, 3, aggregators=["sum"], scalers=["linear"], deg=torch.ones(4)), "or GAT, got .*PNA"),
    (lambda: pyg.GATConv(6, 8), "got .*GATConv; weights of other networks can be given as a state dict"),
    (lambda: nn.Linear(6, 8), "got torch.nn.modules.linear.Linear"),
    (lambda: "gat", "got builtins.str"),
    (lambda: build("GCN", norm="batch_norm"), "norm=BatchNorm of the module cannot be carried over: .* take LayerNorm"),
    (lambda: build("GAT", norm="graph_norm"), "norm=GraphNorm of the module cannot be carried over: .* take LayerNorm"),
    (lambda: build("GCN", norm="layer_norm"), r"norm=LayerNorm\(mode='graph'\) .*'mode': 'node'"),
    (lambda: build("GCN", norm=pyg.LayerNorm(WIDTH, eps=1e-3, mode="node")), r"LayerNorm\(eps=0.001\)"),
    (lambda: build("GCN", norm=pyg.LayerNorm(WIDTH, affine=False, mode="node")), r"LayerNorm\(affine=False\)"),
    (lambda: build("GCN", act_first=True, **NODE), "act_first=True"),
    (lambda: build("GCN", act="prelu"), "act=PReLU.* take one of these"),
    (lambda: build("GCN", act="elu", act_kwargs={"alpha": 0.5}), r"act=ELU\(alpha=0.5\)"),
    (lambda: build("GCN", act=torch.sigmoid), "act=sigmoid"),
    (lambda: build("GCN", jk="lstm"), "jk='lstm' .* take jk='cat' or jk='max'"),
    (lambda: build("GCN", improved=True), r"GCNConv\(improved=True\)"),
    (lambda: build("GCN", add_self_loops=False), r"GCNConv\(add_self_loops=False\)"),
    (lambda: build("GCN", normalize=False), r"GCNConv\((add_self_loops|normalize)=False\)"),
    (lambda: build("GCN", flow="target_to_source"), r"GCNConv\(flow='target_to_source'\)"),
    (lambda: build("GCN", aggr="mean"), r"GCNConv\(aggr='mean'\)"),
    (lambda: build("GraphSAGE", aggr="max"), r"SAGEConv\(aggr='max'\) .* would send raw features"),
    (lambda: build("GraphSAGE", aggr=["mean", "max"]), r"SAGEConv\(aggr=\['mean', 'max'\]\)"),
    (lambda: build("GraphSAGE", project=True), r"SAGEConv\(project=True\)"),
    (lambda: pyg.GraphSAGE((6, 6), 8, 2, 3), r"in_channels=\(6, 6\) .* not bipartite"),
    (lambda: pyg.GraphSAGE(-1, 8, 2, 3), "without a shape .* in_channels=-1"),
    (lambda: build("GIN", aggr="mean"), r"GINConv\(aggr='mean'\)"),
    (lambda: build("GIN", norm="batch_norm"), "norm=BatchNorm .* take LayerNorm"),
    (lambda: build("GIN", **NODE), "a LayerNorm inside GINConv's MLP .* not its name"),
    (lambda: build("GAT", edge_dim=3), r"GATConv\(edge_dim=3\) .* take edge_dim=None"),
    (lambda: build("GAT", residual=True), r"GATConv\(residual=True\)"),
    (lambda: build("GAT", add_self_loops=False), r"GATConv\(add_self_loops=False\)"),
    (lambda: build("GAT", v2=True, share_weights=True), r"GATv2Conv\(share_weights=True\)"),
    (lambda: build("GAT", negative_slope=-0.1), "GATConv: negative_slope should be from 0.0"),
    (lambda: build("GCN").half(), "the type float16 .* module.float"),
    (lambda: with_changes(build("GCN"), lambda m: m.register_forward_hook(lambda *a: None)), "a forward hook"),
    (lambda: with_changes(build("GAT"), lambda m: m.convs[0].register_message_forward_hook(abs)), "hook of convs.0"),
    (lambda: with_changes(build("GIN"), lambda m: m.convs[1].nn.register_forward_pre_hook(abs)), "hook of convs.1.nn"),
    (lambda: with_changes(build("GCN"), lambda m: m.convs[0].requires_grad_(False)), "convs.0.bias with requires_grad"),
    (lambda: with_changes(build("GCN"), swap_aggregation), "a part .* something else than its options say"),
    (lambda: with_changes(build("GCN"), lambda m: setattr(m.convs[0], "forward", abs)), "a part .* fails on a small"),
    (lambda: build("GCN", normalize=False), r"GCNConv\(normalize=False\) .* take normalize=True"),
    (lambda: with_changes(build("GCN"), lambda m: m.convs.__setitem__(0, pyg.GATConv(6, WIDTH))), "convolution GAT"),
    (lambda: build("GCN", norm=type("LayerNorm", (nn.LayerNorm,), {})(WIDTH)), r"norm=\w*test_pyg_modules.LayerNorm"),
    (lambda: type("Mine", (pyg.GCN,), {"forward": lambda self, x: x})(6, 8, 2, 3), "Mine.forward"),
]  # fmt: skip


@pytest.mark.parametrize(("make", "message"), REFUSED, ids=[message[:40] for _, message in REFUSED])
def test_what_cannot_be_carried_over_is_refused_by_name(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(GossamerError, match=message):
        gossamer.from_pyg_module(make())


def test_a_module_keeps_its_network_but_for_dropout() -> None:
    start = gossamer.from_pyg_module(build("GAT", heads=2, dropout=0.5))
    result = gossamer.train(draw_graph(), initial=start, steps=0, dropout=0.2, attention_dropout=0.1, **FAST)
    assert [(layer.dropout, edge_dropout(layer)) for layer in result.run.deployment.network.layers] == [
        (0.0, 0.1),
        (0.2, 0.1),
    ]
    for options in ({"hidden": 8}, {"heads": 4}, {"bias": False}, {"activation": "elu"}, {"jump": "cat"}):
        with pytest.raises(GossamerError, match=f"{next(iter(options))} is that of the module"):
            gossamer.train(draw_graph(), initial=start, steps=0, **options, **FAST)


def test_a_convolution_that_has_cached_another_graph_is_taken() -> None:
    module = build("GCN", cached=True)
    module(torch.ones(3, FEATURES), torch.tensor([[0, 1], [1, 0]]))
    assert gossamer.from_pyg_module(module).settings["layers"].startswith("gcn")
    assert module.convs[0]._cached_edge_index is not None


def test_a_derived_model_with_the_same_forward_is_taken() -> None:
    mine = type("Mine", (pyg.GCN,), {})(FEATURES, WIDTH, 2, CLASSES)
    assert gossamer.from_pyg_module(mine).settings["layers"].startswith("gcn:width=12")


def test_the_data_must_have_the_modules_widths() -> None:
    start = gossamer.from_pyg_module(build("GAT", outputs=7))
    with pytest.raises(GossamerError, match="6 features and 4 outputs, as the data has them, got one of 6 and 7"):
        gossamer.train(draw_graph(), initial=start, **FAST)


def test_a_module_or_state_dict_is_for_networks_without_an_encoder() -> None:
    """Though its widths may be those of the encoded features."""
    module = pyg.GCN(3, WIDTH, 2, CLASSES)
    options = {"encoder": 3, "encoder_steps": 2, "steps": 1, **FAST}
    with pytest.raises(GossamerError, match="initial weights are for networks without an encoder"):
        gossamer.train(draw_graph(), initial=gossamer.from_pyg_module(module), **options)
    with pytest.raises(GossamerError, match="initial weights are for networks without an encoder"):
        gossamer.train(draw_graph(), initial=module.state_dict(), hidden=WIDTH, bias=True, **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"layers": "chebyshev"},
            r"layer 0, a filter with the powers \(0, 1\) of D, with the shift 'scaled-laplacian'",
        ),
        ({"layers": "gcn", "shift": "random-walk"}, r"powers \(1,\) of D, with the shift 'random-walk'"),
        ({"layers": "sage", "aggregate": "max"}, "layer 0, Sage of max"),
        ({"layers": "gated"}, "layer 0, Gated"),
        ({"layers": "mlp"}, "layer 0, a layer without the graph"),
        ({"layers": "gat:width=12/gcn"}, "one kind of layers, and this network GATConv and GCNConv"),
        ({"layers": "gat", "residual": True}, "no residual connections"),
        ({"layers": "gat", "before": 8}, "layer 0, a layer without the graph"),
        ({"layers": "gcn", "encoder": 4, "encoder_steps": 1}, "has an encoder"),
    ],
)
def test_networks_that_are_no_model_are_refused(options: dict[str, Any], message: str) -> None:
    result = gossamer.train(draw_graph(), hidden=WIDTH, steps=0, **{**FAST, **options})
    with pytest.raises(GossamerError, match=message):
        result.to_pyg()


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"layers": "gat"}, "GATConv"),
        ({"layers": "gatv2", "heads": 2, "bias": False}, "GATv2Conv"),
        ({"layers": "sage", "aggregate": "sum"}, "SAGEConv"),
        ({"layers": "gin", "learn_epsilon": True, "activation": "elu"}, "GINConv"),
        ({"layers": "gated"}, "ResGatedGraphConv"),
        ({"layers": "gat", "norm": "layer"}, "GAT"),
        ({"layers": "sage", "hidden": (12, 8), "jump": "cat", "norm": "layer"}, "GraphSAGE"),
        ({"layers": "gin:width=12/gin:width=9/mlp"}, "GIN"),
        ({"layers": "sage", "aggregate": "max"}, None),
        ({"layers": "gat", "residual": True}, None),
        ({"layers": "sgc", "hidden": ()}, None),
        ({"layers": "appnp"}, None),
        ({"layers": "gated", "bias": False}, None),
        ({"layers": "gcn:width=12,activation=tanh/gcn:width=9,activation=relu/gcn"}, None),
    ],
)
def test_the_cards_code_of_every_kind_of_layers_runs(
    options: dict[str, Any], name: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = draw_graph()
    result = gossamer.train(graph, steps=2, standardise=False, **{"hidden": WIDTH, **FAST, **options})
    monkeypatch.chdir(tmp_path)
    result.export("model.safetensors")
    code = [part.split("```")[0] for part in Path("model.md").read_text().split("```python\n")[1:]]
    (x, index), expected = inputs(graph), result.predict(graph)
    names: dict[str, Any] = {"x": x, "edge_index": index}
    exec(code[0], names)
    torch.testing.assert_close(names["outputs"], expected, rtol=1e-5, atol=1e-5)
    assert find_pyg_layer(result.run.host.network, result.model().shift) == name
    assert len(code) == (1 if name is None else 2)
    if name is not None:
        assert name in code[1]
        exec(code[1], names)
        with torch.no_grad():
            torch.testing.assert_close(names["network"](x, index), expected, rtol=1e-5, atol=1e-5)


def test_dropout_between_layers_is_one_number() -> None:
    network = make_network("gcn:width=4,dropout=0.1/gcn:width=4,dropout=0.2/gcn:dropout=0.3", 3, 2)
    with pytest.raises(GossamerError, match="one dropout between layers"):
        describe_model(network, "normalized")
