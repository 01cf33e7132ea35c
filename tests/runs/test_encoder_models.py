"""The model afterwards, of runs with an encoder and of private runs: files, cards, predictions, refusals."""

import csv
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from commands.inside import run
from safetensors.torch import load_file, save_file
from scipy import sparse
from torch import Tensor

import gossamer
from gossamer import DataGraph, GossamerError, make_graph
from gossamer.engines.cluster.rank_shards import cut_for_ranks
from gossamer.model.encoder import encode_features
from gossamer.runs.settings import make_settings
from gossamer.runs.trained import read_trained

pytestmark = pytest.mark.filterwarnings("ignore:.*training vertices are few")

DATA = "blocks:vertices=150,edges=500,features=12,classes=3,labelled=0.3"
SHORT: dict[str, Any] = {"agents": 3, "steps": 8, "encoder_steps": 12, "baselines": False, "hidden": 6, "bias": True,
                         "dtype": "float64", "threads": 1}  # fmt: skip
WIDTH = 4
PRIVATE = "private .*was computed once, for the run's own graph.*gossamer predict RUN predicts the run's own vertices"


@pytest.fixture(scope="module")
def graph() -> DataGraph:
    return gossamer.load(DATA)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Agents that agree: C of a complete topology is 1/m."""
    path = tmp_path_factory.mktemp("encoded") / "run"
    gossamer.train(DATA, encoder=WIDTH, topology="complete", out=path, **SHORT)
    return path


@pytest.fixture(scope="module")
def apart(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Agents that disagree."""
    path = tmp_path_factory.mktemp("apart") / "run"
    gossamer.train(DATA, encoder=WIDTH, consensus_every=5, initial_deviation=0.3, same_initial=False, out=path, **SHORT)
    return path


@pytest.fixture(scope="module")
def private(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("private") / "run"
    gossamer.train(DATA, privacy="edge:epsilon=8,delta=1e-4", out=path, **SHORT)
    return path


def as_edges(graph: DataGraph) -> tuple[Tensor, Tensor, Tensor]:
    """Features, edges in both directions and their weights."""
    entries = graph.adjacency.tocoo()
    edges = torch.from_numpy(np.stack([entries.row, entries.col]).astype(np.int64))
    return torch.as_tensor(graph.features).double(), edges, torch.from_numpy(entries.data).double()


def by_hand(graph: DataGraph, folder: Path, agent: int | None = None) -> Tensor:
    """Standardised features, encoder and two layers of gcn, dense, with the mean weights or an agent's."""
    parts = [load_file(folder / name) for name in ("encoder.safetensors", "weights.safetensors")]
    encoder, layers = (
        {name: part.mean(0) if agent is None else part[agent] for name, part in params.items()} for params in parts
    )
    transform = load_file(folder / "transform.safetensors")
    x = (torch.as_tensor(graph.features) - transform["feature_offset"]) / transform["feature_scale"]
    e = (127 * torch.tanh(x @ encoder["layer.0.weight"] + encoder["layer.0.bias"])).round() / 127
    A = graph.adjacency.toarray() + np.eye(graph.num_vertices)
    scale = A.sum(1) ** -0.5
    D = torch.from_numpy(scale[:, None] * A * scale)
    hidden = torch.relu(D @ e @ layers["layer.0.weight"] + layers["layer.0.bias"])
    return D @ hidden @ layers["layer.1.weight"] + layers["layer.1.bias"]


def test_the_module_predicts_as_the_agents_do(folder: Path, graph: DataGraph) -> None:
    expected = gossamer.predict(folder)
    torch.testing.assert_close(by_hand(graph, folder), expected, rtol=0, atol=1e-5)
    result = gossamer.resume(folder)  # which has read the encoder from its file
    model = result.model()
    with torch.no_grad():
        torch.testing.assert_close(model(*as_edges(graph)), expected, rtol=0, atol=1e-5)
    assert {name for name, _ in model.named_parameters()} == {
        f"convs.{layer}.{name}" for layer in (0, 1) for name in ("lin.weight", "bias")
    }  # the encoder is frozen
    trained = result.save(folder.parent / "again")
    assert torch.equal(gossamer.predict(trained, data=graph), gossamer.predict(folder, data=graph))


@pytest.mark.parametrize("agent", [None, 2])
def test_an_exported_model_is_whole(agent: int | None, apart: Path, graph: DataGraph, tmp_path: Path) -> None:
    more = [] if agent is None else ["--agent", str(agent)]
    done = run("export", str(apart), *more, "--to", "model.safetensors", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert f"with an encoder of {WIDTH} numbers a vertex; behind it, loads into" in done.stdout
    state, stored = load_file(tmp_path / "model.safetensors"), load_file(apart / "encoder.safetensors")
    weight, bias = stored["layer.0.weight"], stored["layer.0.bias"]
    assert (weight[0] - weight[2]).abs().max() > 1e-3
    chosen = (weight.mean(0), bias.mean(0)) if agent is None else (weight[agent], bias[agent])
    torch.testing.assert_close(state["encoder.weight"], chosen[0].T)
    torch.testing.assert_close(state["encoder.bias"], chosen[1])
    model = gossamer.load_model(tmp_path / "model.safetensors")
    assert not model.training
    with torch.no_grad():
        torch.testing.assert_close(model(*as_edges(graph)), by_hand(graph, apart, agent), rtol=0, atol=1e-9)


def test_the_card_names_the_encoder_and_its_code_runs(
    folder: Path, graph: DataGraph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run("export", str(folder), "--to", "model.safetensors", cwd=tmp_path).returncode == 0
    card = (tmp_path / "model.md").read_text()
    assert "12 features in, 3 classes out" in card
    assert f"It has an encoder: each vertex's features x become the {WIDTH} numbers tanh(W x + b)" in card
    assert f"| `encoder.weight` | [{WIDTH}, 12] | float64 |" in card
    pytest.importorskip("torch_geometric")
    monkeypatch.chdir(tmp_path)
    x, edge_index, _ = as_edges(graph)  # of weight 1
    names: dict[str, Any] = {"x": x, "edge_index": edge_index}
    code = re.findall(r"```python\n(.*?)```", card, re.DOTALL)[1]
    exec(code.replace("Network().eval()", "Network().double().eval()").replace(".float()", ""), names)
    torch.testing.assert_close(names["outputs"], gossamer.predict(folder), rtol=0, atol=1e-5)


def test_a_model_file_with_an_encoder_is_checked(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    gossamer.resume(folder).export(path)
    state = load_file(path)
    header = {
        "layers": "gcn", "order": 1, "hidden": [6], "activation": "relu", "bias": True, "dropout": 0.5,
        "input_dropout": None, "shift": "normalized", "inputs": 12, "outputs": 3, "weights": "mean", "pyg": None,
        "class_names": None, "encoder": WIDTH,
    }  # fmt: skip
    without = {name: part for name, part in state.items() if name != "encoder.bias"}
    for changed, changes, message in (
        (without, {}, r"encoder.bias should be \[4\], found none; export the model again"),
        (state, {"inputs": 13}, r"encoder.weight should be \[4, 13\], found \[4, 12\]"),
        (state, {"encoder": 0, "inputs": WIDTH}, "has an unknown encoder.bias"),
        (state | {"encoder.more": torch.zeros(4).double()}, {}, "has an unknown encoder.more"),
        (state | {"encoder.bias": state["encoder.bias"] * torch.nan}, {}, "encoder.bias should hold finite real"),
    ):
        save_file(changed, tmp_path / "bad.safetensors", {"model": json.dumps(header | changes)})
        with pytest.raises(GossamerError, match=message):
            gossamer.load_model(tmp_path / "bad.safetensors")


def test_no_run_starts_from_a_model_with_an_encoder(folder: Path, graph: DataGraph, tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    gossamer.resume(folder).export(path)
    for initial in (path, load_file(path)):
        with pytest.raises(GossamerError, match=r"is of a model with an encoder.*trained without --encoder"):
            gossamer.train(graph, initial=initial, **SHORT)


def test_a_damaged_encoder_is_named(folder: Path, tmp_path: Path) -> None:
    for path in folder.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    stored = load_file(folder / "encoder.safetensors")
    for changed, message in (
        ({"layer.0.bias": stored["layer.0.bias"]}, r"expected layer\.0\.weight \[agents, in, out\]"),
        (stored | {"layer.0.bias": torch.zeros(3, 9).double()}, r"layer\.0\.bias should be float64 \[3, 4\]"),
        (stored | {"layer.0.bias": stored["layer.0.bias"] / 0}, "holds NaN or infinite numbers"),
    ):
        save_file(changed, tmp_path / "encoder.safetensors")
        with pytest.raises(GossamerError, match=message):
            read_trained(tmp_path)
    (tmp_path / "encoder.safetensors").unlink()
    with pytest.raises(GossamerError, match=r"cannot read .*encoder\.safetensors"):
        read_trained(tmp_path)
    torch.testing.assert_close(gossamer.predict(tmp_path), gossamer.predict(folder))  # needs encodings alone
    with pytest.raises(GossamerError, match=r"the run directory holds no encoder\.safetensors"):
        gossamer.resume(tmp_path).model()


# Predictions


def test_other_graphs_are_predicted_through_the_mean_encoder(apart: Path, graph: DataGraph, tmp_path: Path) -> None:
    assert read_trained(apart).num_features == 12
    other = replace(graph, features=graph.features[::-1].copy(), name="other")
    expected = by_hand(other, apart)
    torch.testing.assert_close(gossamer.predict(apart, data=other), expected, rtol=0, atol=1e-9)
    other.save(tmp_path / "new.npz")
    done = run("predict", str(apart), "--data", "new.npz", "--out", "new.csv", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    right = float((expected.argmax(1).numpy() == graph.targets).mean())
    assert json.loads(done.stdout)["accuracy"] == pytest.approx(right, abs=2e-2)
    with (tmp_path / "new.csv").open() as file:
        assert [int(row["class"]) for row in csv.DictReader(file)] == expected.argmax(1).tolist()
    with pytest.raises(GossamerError, match="has 12 features as input, and narrow has 4; give the same columns"):
        gossamer.predict(apart, data=replace(graph, features=graph.features[:, :4], name="narrow"))


def test_over_the_agents_the_encoder_is_the_mean_too(folder: Path, apart: Path, graph: DataGraph) -> None:
    central = gossamer.predict(folder, data=graph)
    torch.testing.assert_close(central, gossamer.predict(folder), rtol=0, atol=1e-5)
    over = gossamer.predict(folder, data=graph, over_agents=True)
    torch.testing.assert_close(over, central, rtol=0, atol=1e-5)
    trained = read_trained(apart)
    encoder = trained.select_encoder()
    assert encoder is not None
    assert trained.transform is not None
    encodings = encode_features(trained.transform.apply_to_features(graph.features, "float64"), encoder)
    plain = replace(trained, encoder=None, transform=None, settings=trained.settings.model_copy(update={"encoder": 0}))
    from gossamer.engines.simulation import start_run
    from gossamer.runs.inference import predict_unlabelled

    expected = predict_unlabelled(plain, replace(graph, features=encodings), start_run, over_agents=True).outputs
    found = gossamer.predict(apart, data=graph, over_agents=True)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
    assert not torch.allclose(found, gossamer.predict(apart, data=graph), atol=1e-4)  # the graph networks disagree


def test_sparse_features_are_encoded_as_dense_ones_are() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(20, 7)) * (rng.random((20, 7)) < 0.3)
    encoder = {"layer.0.weight": torch.from_numpy(rng.normal(size=(7, 3))), "layer.0.bias": torch.ones(3).double()}
    dense, found = encode_features(x, encoder), encode_features(sparse.csr_array(x), encoder)
    np.testing.assert_array_equal(dense, found)
    np.testing.assert_allclose(dense * 127, np.round(dense * 127), atol=1e-12)
    exact = np.tanh(x @ encoder["layer.0.weight"].numpy() + 1)
    np.testing.assert_allclose(dense, exact, atol=0.5 / 127 + 1e-12)
    assert encode_features(x, {name: part.float() for name, part in encoder.items()}).dtype == np.float32


def test_real_values_keep_their_units_behind_an_encoder() -> None:
    rng = np.random.default_rng(0)
    edges = [(i, (i + 1) % 20) for i in range(20)]
    masks: dict[str, Any] = {"train": np.arange(10), "validation": [10, 11], "test": [12, 13]}
    y = 100 + 5 * rng.normal(size=(20, 2))
    ring = make_graph("ring", edges, rng.normal(size=(20, 3)), y, **masks)
    result = gossamer.train(ring, encoder=2, topology="complete", **{**SHORT, "step_size": 0.01})
    found = result.predict()
    assert 90 < float(found.mean()) < 110
    with torch.no_grad():
        torch.testing.assert_close(result.model()(*as_edges(ring)), found, rtol=0, atol=1e-5)
    torch.testing.assert_close(result.predict(ring), found, rtol=0, atol=1e-5)
    times = np.broadcast_to(np.arange(4), (20, 4))
    moving = make_graph(
        "moving", edges, rng.normal(size=(20, 4, 3)), rng.normal(size=(20, 4, 2)), train=times < 2,
        validation=times == 2, test=times == 3,
    )  # fmt: skip
    with pytest.raises(GossamerError, match="an encoder takes one row of features a vertex, and moving has a time"):
        result.predict(moving)


@pytest.mark.parametrize("kind", ["folder", "private"])
def test_the_own_graph_is_predicted_by_the_agents(
    kind: str, request: pytest.FixtureRequest, graph: DataGraph, tmp_path: Path
) -> None:
    path: Path = request.getfixturevalue(kind)
    done = run("predict", str(path), "--out", "own.csv", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found, summary = json.loads(done.stdout), json.loads((path / "run.json").read_text())["summary"]
    assert found["predictions"] == "own.csv"
    assert found["test"] == pytest.approx(summary["distributed"]["test"])
    assert run("predict", str(path), "--out", "own.csv", cwd=tmp_path).returncode == 0
    with (tmp_path / "own.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [int(row["class"]) for row in rows] == gossamer.predict(path, graph=graph).argmax(1).tolist()


# Refusals


def test_a_private_run_gives_no_model_and_predicts_its_own_graph_only(
    private: Path, graph: DataGraph, tmp_path: Path
) -> None:
    result = gossamer.resume(private)
    for attempt in (
        result.model,
        lambda: result.export(tmp_path / "model.safetensors"),
        lambda: result.predict(graph),
        lambda: gossamer.predict(private, data=graph, over_agents=True),
    ):
        with pytest.raises(GossamerError, match=PRIVATE):
            attempt()
    graph.save(tmp_path / "new.npz")
    for arguments in (["export", "--to", "model.safetensors"], ["predict", "--data", "new.npz"]):
        done = run(arguments[0], str(private), *arguments[1:], cwd=tmp_path)
        assert done.returncode == 2
        assert re.search(PRIVATE, " ".join(done.stderr.split()))
    assert [path.name for path in tmp_path.iterdir()] == ["new.npz"]


@pytest.mark.parametrize("option", [{"encoder": 4}, {"privacy": "node:epsilon=8,delta=1e-4"}], ids=str)
def test_no_shares_are_cut_for_ranks(option: dict[str, Any], graph: DataGraph, tmp_path: Path) -> None:
    settings = make_settings({**SHORT, **option})
    with pytest.raises(GossamerError, match=r"cut for one stage.*torchrun --nproc-per-node 2 -m gossamer cluster DATA"):
        cut_for_ranks(tmp_path / "cut", graph, settings, 2)
    assert not (tmp_path / "cut").exists()
