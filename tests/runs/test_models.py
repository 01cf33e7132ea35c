"""The model afterwards: files and cards, initial weights, predictions for other graphs."""

import csv
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from commands.inside import run
from engines.forked import run_jobs
from safetensors.torch import load_file, save_file
from scipy import sparse
from torch import Tensor

import gossamer
from gossamer import DataGraph, GossamerError, make_graph
from gossamer.runs.inference import score_labelled
from gossamer.runs.manifests import RunManifest
from gossamer.runs.run_json import read_run_settings
from gossamer.runs.trained import trained_of_run

SHORT: dict[str, Any] = {"preset": "paper", "agents": 4, "steps": 12, "baselines": False, "hidden": 8, "bias": True,
                         "step_size": 0.1}  # fmt: skip


@pytest.fixture(scope="module")
def digits() -> DataGraph:
    return gossamer.load("digits")


@pytest.fixture(scope="module")
def folder(digits: DataGraph, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("trained") / "run"
    named = replace(digits, class_names=tuple(f"digit <{c}>" for c in range(10)))
    gossamer.train(named, out=path, consensus_every=5, initial_deviation=0.3, **SHORT)  # agents disagree at the end
    return path


def induced(graph: DataGraph, keep: Any) -> DataGraph:
    """The graph on some of the vertices."""
    number = np.full(graph.num_vertices, -1)
    number[keep] = np.arange(len(keep))
    pairs = number[graph.edges]
    inside = (pairs >= 0).all(1)
    return replace(
        graph,
        edges=pairs[inside],
        weights=graph.weights[inside],
        features=graph.features[keep],
        targets=graph.targets[keep],
        train=graph.train[keep],
        validation=graph.validation[keep],
        test=graph.test[keep],
    )


def by_hand(graph: DataGraph, state: dict[str, Tensor]) -> Tensor:
    """Two layers of gcn, dense."""
    A = graph.adjacency.toarray() + np.eye(graph.num_vertices)
    scale = A.sum(1) ** -0.5
    D = torch.from_numpy(scale[:, None] * A * scale).float()
    x = torch.as_tensor(graph.features).float()
    hidden = torch.relu(D @ x @ state["convs.0.lin.weight"].T + state["convs.0.bias"])
    return D @ hidden @ state["convs.1.lin.weight"].T + state["convs.1.bias"]


def test_export_writes_the_mean_or_an_agents_weights(folder: Path, tmp_path: Path) -> None:
    done = run("export", str(folder), "--to", "new/mean.safetensors", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found == {
        "model": "new/mean.safetensors",
        "card": "new/mean.md",
        "weights": "mean of 4 agents",
        "pyg": "GCNConv",
    }
    done = run("export", str(folder), "--agent", "2", "--to", "agent.safetensors", cwd=tmp_path)
    assert "agent 2 of 4; loads into PyTorch Geometric's GCNConv" in done.stdout
    stored = load_file(folder / "weights.safetensors")
    assert (stored["layer.0.weight"][0] - stored["layer.0.weight"][2]).abs().max() > 1e-6
    mean, agent = load_file(tmp_path / "new/mean.safetensors"), load_file(tmp_path / "agent.safetensors")
    for layer in (0, 1):
        weight, bias = stored[f"layer.{layer}.weight"], stored[f"layer.{layer}.bias"]
        torch.testing.assert_close(mean[f"convs.{layer}.lin.weight"], weight.mean(0).T)
        torch.testing.assert_close(mean[f"convs.{layer}.bias"], bias.mean(0))
        assert torch.equal(agent[f"convs.{layer}.lin.weight"], weight[2].T)
        assert torch.equal(agent[f"convs.{layer}.bias"], bias[2])
    done = run("export", str(folder), "--json", cwd=tmp_path)
    assert json.loads(done.stdout)["model"] == str(folder / "model.safetensors")


def test_the_card_says_what_the_model_is(folder: Path, tmp_path: Path) -> None:
    assert run("export", str(folder), "--to", "model.safetensors", cwd=tmp_path).returncode == 0
    card = (tmp_path / "model.md").read_text()
    manifest = json.loads((folder / "run.json").read_text())
    for words in (
        "trained by 4 agents on digits for 12 steps",
        f"`{manifest['data']['fingerprint']}`",
        "digit &#60;3&#62;",
        "| consensus_every | 5 |",
        "| hidden | &#91;8&#93; |",
        "| model | mask | loss | accuracy | macro_f1 | micro_f1 | roc_auc | average_precision |",
        f"| distributed | train | {manifest['summary']['distributed']['train']['loss']:.4g} |",
        f"- torch {torch.__version__}",
        "- gossamer ",
        "| `convs.0.lin.weight` | [8, 64] | float32 |",
        "gossamer.load_model('model.safetensors')",
        "GCNConv(64, 8, bias=True)",
    ):
        assert words in card
    assert "<" not in card.replace("<br>", "").split("```")[0]


def test_what_pytorch_geometric_lacks_is_said_so(digits: DataGraph, tmp_path: Path) -> None:
    result = gossamer.train(digits, layers="polynomial", order=2, out=tmp_path / "run", **SHORT)
    done = run("export", "run", "--to", "model.safetensors", cwd=tmp_path)
    assert "PyTorch Geometric has no layer like it; load it with gossamer.load_model" in done.stdout
    card = (tmp_path / "model.md").read_text()
    assert "has no layer that computes the same" in card
    assert "torch_geometric" not in card
    model = gossamer.load_model(tmp_path / "model.safetensors")
    expected = result.model().state_dict()
    assert model.state_dict().keys() == expected.keys()
    assert all(torch.equal(part, expected[name]) for name, part in model.state_dict().items())
    assert not model.training


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--agent", "4"], "expected an agent from 0 to 3, got 4"),
        (["--agent", "-1"], "expected an agent from 0 to 3, got -1"),
        (["--to", "model.pt"], "expected a file name that ends in .safetensors, got 'model.pt'"),
        (["--to", "README.safetensors"], "README.md would be the model's card, and it is another file"),
    ],
)
def test_export_refuses(arguments: list[str], message: str, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("# Mine\n")
    done = run("export", str(folder), *arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert message in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["README.md"]


def test_export_needs_weights(folder: Path, tmp_path: Path) -> None:
    assert "is not a run directory" in run("export", ".", cwd=tmp_path).stderr
    (tmp_path / "run.json").write_bytes((folder / "run.json").read_bytes())
    assert "holds no weights yet: finish it" in run("export", ".", cwd=tmp_path).stderr
    save_file({"layer.0.weight": torch.zeros(4, 64)}, tmp_path / "weights.safetensors")
    assert "expected layer.0.weight [agents, in, out]" in run("export", ".", cwd=tmp_path).stderr
    weights = load_file(folder / "weights.safetensors")
    save_file(weights | {"layer.0.bias": torch.zeros(4, 9)}, tmp_path / "weights.safetensors")
    assert "layer.0.bias should be float32 [4, 8], found float32 [4, 9]" in run("export", ".", cwd=tmp_path).stderr
    save_file(weights | {"layer.0.bias": torch.full((4, 8), torch.nan)}, tmp_path / "weights.safetensors")
    assert "holds NaN or infinite numbers" in run("export", ".", cwd=tmp_path).stderr


def test_a_model_file_is_checked(folder: Path, tmp_path: Path) -> None:
    state = load_file(gossamer_export(folder, tmp_path))
    save_file(state, tmp_path / "foreign.safetensors")
    with pytest.raises(GossamerError, match="does not say of which network it is"):
        gossamer.load_model(tmp_path / "foreign.safetensors")
    header = {
        "layers": "gcn", "order": 1, "hidden": [8], "activation": "relu", "bias": True, "dropout": 0.5,
        "input_dropout": None, "shift": "normalized", "inputs": 64, "outputs": 10, "weights": "mean", "pyg": None,
        "class_names": None,
    }  # fmt: skip
    for changes, message in (
        ({"layers": "gat"}, "has no convs.0.att_dst"),
        ({"layers": "none"}, "layers = 'none': .*gcn"),
        ({"shift": "none"}, "shift should be among normalized"),
        ({"activation": "gelu"}, "activation should be among relu"),
        ({"order": 99}, "order: "),
        ({"more": 1}, "unknown key more"),
        ({"hidden": [9]}, r"convs.0.lin.weight should be \[9, 64\] \(out, in\), found \[8, 64\]"),
    ):
        save_file(state, tmp_path / "bad.safetensors", {"model": json.dumps(header | changes)})
        with pytest.raises(GossamerError, match=message):
            gossamer.load_model(tmp_path / "bad.safetensors")
    mixed = state | {"convs.0.bias": state["convs.0.bias"].double()}
    save_file(mixed, tmp_path / "bad.safetensors", {"model": json.dumps(header)})
    with pytest.raises(GossamerError, match="numbers of several types"):
        gossamer.load_model(tmp_path / "bad.safetensors")


def gossamer_export(folder: Path, to: Path) -> Path:
    done = run("export", str(folder), "--to", "model.safetensors", cwd=to)
    assert done.returncode == 0, done.stderr
    return to / "model.safetensors"


def test_an_old_runs_classes_are_known_by_its_scores(folder: Path, tmp_path: Path) -> None:
    content = json.loads((folder / "run.json").read_text())
    del content["data"]["class_names"]
    RunManifest.model_validate(content)
    (tmp_path / "run.json").write_text(json.dumps(content))
    (tmp_path / "weights.safetensors").write_bytes((folder / "weights.safetensors").read_bytes())
    gossamer_export(tmp_path, tmp_path)
    assert "by the column of the output: 0, 1, 2" in (tmp_path / "model.md").read_text()


# Initial weights


def test_all_agents_start_from_a_model_file(folder: Path, digits: DataGraph, tmp_path: Path) -> None:
    path = gossamer_export(folder, tmp_path)
    state = load_file(path)
    result = gossamer.train(digits, **{**SHORT, "agents": 3, "steps": 0, "initial": path})
    assert result.run.host.params["layer.0.weight"].shape == (3, 64, 8)
    for k in range(3):
        found = result.model(k).state_dict()
        assert all(torch.equal(found[name], state[name]) for name in state)
    again = gossamer.train(digits, **{**SHORT, "agents": 3, "initial": state})
    other = gossamer.train(digits, **{**SHORT, "agents": 3, "initial": path})
    assert all(torch.equal(w, other.run.host.params[name]) for name, w in again.run.host.params.items())
    random = gossamer.train(digits, **{**SHORT, "agents": 3})
    assert (random.model().state_dict()["convs.0.lin.weight"] - state["convs.0.lin.weight"]).abs().max() > 1e-3


@pytest.mark.parametrize(
    "options",
    [
        {"update": "adam", "step_size": 0.01},
        {"compress": "choco:bits=8"},
        {"compress": "power:1"},
        {"dtype": "float64"},
        {"layers": "chebyshev", "order": 2},
        {"layers": "linear", "hidden": 64},
    ],
    ids=str,
)
def test_any_rule_goes_on_from_initial_weights(options: dict[str, Any], digits: DataGraph) -> None:
    first = gossamer.train(digits, **{**SHORT, "steps": 30, **options})
    more = gossamer.train(digits, **{**SHORT, **options, "initial": first.model().state_dict()})
    losses = [record["train"]["loss"] for record in more.run.history]
    assert losses[0] == pytest.approx(first.run.history[-1]["train"]["loss"], rel=0.2)
    assert losses[-1] < losses[0]


def test_the_centralised_reference_starts_from_them_too(digits: DataGraph) -> None:
    first = gossamer.train(digits, **SHORT)
    result = gossamer.train(digits, **{**SHORT, "baselines": True, "initial": first.model().state_dict()})
    start = {name: history[0]["train"]["loss"] for name, history in result.baseline_histories.items()}
    assert start["centralised"] == pytest.approx(result.run.history[0]["train"]["loss"], rel=1e-3)
    drawn = gossamer.train(digits, **{**SHORT, "baselines": True})
    assert start["graphless"] == drawn.baseline_histories["graphless"][0]["train"]["loss"]
    assert start["centralised"] != drawn.baseline_histories["centralised"][0]["train"]["loss"]


def test_a_run_keeps_them_for_resume(folder: Path, tmp_path: Path) -> None:
    path = gossamer_export(folder, tmp_path)
    common = ["--preset", "paper", "--agents", "4", "--hidden", "8", "--bias", "--no-baselines", "--initial", path.name]
    done = run("train", "digits", *common, "--steps", "6", "--out", "whole", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert read_run_settings(tmp_path / "whole").initial == str(path)
    done = run("train", "digits", *common, "--steps", "0", "--out", "run", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    path.unlink()
    (tmp_path / "run" / "checkpoint.safetensors").unlink()  # as if it was killed before the first
    done = run("train", "--resume", "run", "--steps", "6", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    one, other = (load_file(tmp_path / name / "weights.safetensors") for name in ("whole", "run"))
    assert all(torch.equal(one[name], other[name]) for name in one)
    (tmp_path / "run" / "initial.safetensors").write_bytes(b"damaged")
    done = run("train", "--resume", "run", "--steps", "8", cwd=tmp_path)
    assert done.returncode == 2
    assert "initial.safetensors" in done.stderr


@pytest.mark.slow
def test_agents_on_their_own_and_ranks_start_from_them(folder: Path, tmp_path: Path) -> None:
    gossamer_export(folder, tmp_path)
    (tmp_path / "start.toml").write_text(
        'dataset = "digits"\npreset = "paper"\nagents = 2\nhidden = 8\nbias = true\nbaselines = false\nsteps = 4\n'
        'initial = "model.safetensors"\npublic_randomness = true\n'
    )
    for command in (["train"], ["launch"]):
        done = run(*command, "start.toml", "--out", command[0], cwd=tmp_path)
        assert done.returncode == 0, done.stderr
    done = run("shard", "start.toml", "--ranks", "2", "--out", "cut", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    run_jobs([(2, ["cluster", "start.toml", "--out", "cluster"]), (2, ["cluster", "cut"])], tmp_path)
    expected = load_file(tmp_path / "train" / "weights.safetensors")
    drawn = gossamer.train("digits", **{**SHORT, "agents": 2, "steps": 4, "step_size": 0.5}).run.host.params
    assert (drawn["layer.0.weight"] - expected["layer.0.weight"]).abs().max() > 0.01
    for name in ("launch", "cluster", "cut"):
        found = load_file(tmp_path / name / "weights.safetensors")
        for key, part in expected.items():
            torch.testing.assert_close(found[key], part, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"hidden": 16}, r"convs.0.lin.weight should be \[16, 64\] \(out, in\), found \[8, 64\]; set --layers"),
        ({"bias": False}, r"has an unknown convs.0.bias; the settings want convs.0.lin.weight \[8, 64\]"),
        ({"layers": "chebyshev", "order": 2}, "has no convs.0.lins.0.weight"),
        ({"hidden": (8, 8)}, "has no convs.2.bias"),
    ],
)
def test_initial_weights_that_do_not_fit_are_refused(
    options: dict[str, Any], message: str, folder: Path, digits: DataGraph, tmp_path: Path
) -> None:
    path = gossamer_export(folder, tmp_path)
    for initial in (path, load_file(path)):
        with pytest.raises(GossamerError, match=message):
            gossamer.train(digits, **{**SHORT, **options, "initial": initial})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (torch.full((8,), torch.nan), "convs.0.bias should hold finite real numbers"),
        (torch.zeros(8, dtype=torch.int64), "convs.0.bias should hold finite real numbers"),
        (torch.full((8,), 1e300, dtype=torch.float64), "layer.0.bias has numbers beyond float32"),
        ([0.0] * 8, "expected tensors by name, got list 'convs.0.bias'"),
    ],
    ids=["nan", "integers", "too large", "list"],
)
def test_a_state_dict_of_other_things_is_refused(change: Any, message: str, folder: Path, digits: DataGraph) -> None:
    state = dict(gossamer.train(digits, **{**SHORT, "steps": 0}).model().state_dict())
    with pytest.raises(GossamerError, match=message):
        gossamer.train(digits, **{**SHORT, "initial": state | {"convs.0.bias": change}})


def test_a_missing_initial_file_is_named(tmp_path: Path) -> None:
    done = run("train", "--initial", "none.safetensors", cwd=tmp_path)
    assert done.returncode == 2
    assert "cannot read none.safetensors: there is no such file" in done.stderr


def test_a_site_cannot_start_from_a_file(tmp_path: Path) -> None:
    from gossamer.peers.shards.sites import make_site_shard

    (tmp_path / "site.toml").write_text(
        'run = "r"\nagent = 0\naddress = "127.0.0.1:5000"\ndata = "data"\n[settings]\nagents = 2\n'
        'initial = "model.safetensors"\n[neighbours]\n1 = {address = "127.0.0.1:5001"}\n'
    )
    with pytest.raises(GossamerError, match="initial weights come with the shards that gossamer shard DATASET cuts"):
        make_site_shard(tmp_path / "site.toml")


# Predictions for other graphs


def read_rows(path: Path) -> list[dict[str, str]]:
    with path.open() as file:
        return list(csv.DictReader(file))


def test_a_subgraph_is_predicted_centrally_with_the_mean_weights(
    folder: Path, digits: DataGraph, tmp_path: Path
) -> None:
    part = induced(digits, np.arange(300, 900))
    expected = by_hand(part, load_file(gossamer_export(folder, tmp_path)))
    found = gossamer.predict(folder, data=part)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
    part.save(tmp_path / "new.npz")
    done = run("predict", str(folder), "--data", "new.npz", "--out", "new.csv", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    right = float((expected.argmax(1).numpy() == part.targets).mean())
    about = {"predictions": "new.csv", "vertices": 600, "agents": False, "accuracy": pytest.approx(right, abs=2e-3)}
    assert json.loads(done.stdout) == about
    rows = read_rows(tmp_path / "new.csv")
    names = [f"digit <{c}>" for c in range(10)]
    assert list(rows[0]) == ["vertex", "class", "probability", *(f"probability_{name}" for name in names)]
    assert [row["class"] for row in rows] == [names[c] for c in expected.argmax(1).tolist()]
    chances = torch.tensor([[float(row[f"probability_{name}"]) for name in names] for row in rows])
    torch.testing.assert_close(chances, expected.softmax(1), rtol=0, atol=1e-5)
    assert [row["probability"] for row in rows] == [max(list(row.values())[3:], key=float) for row in rows]


def test_over_the_agents_each_vertex_has_its_agents_weights(folder: Path, digits: DataGraph, tmp_path: Path) -> None:
    part = induced(digits, np.arange(900))
    done = run("predict", str(folder), "--data", str(part.save(tmp_path / "new.npz")), "--agents", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    rows = read_rows(folder / "predictions-new.csv")
    assert list(rows[0])[:4] == ["vertex", "agent", "class", "probability"]
    owner = gossamer_assign(part)
    assert [int(row["agent"]) for row in rows] == owner.tolist()
    found, central = gossamer.predict(folder, data=part, over_agents=True), gossamer.predict(folder, data=part)
    assert not torch.allclose(found, central, atol=1e-5)  # the agents' weights differ
    inside = sparse.csr_array(part.adjacency)
    alone = [i for i in range(900) if (owner[reach(inside, i)] == owner[i]).all()]
    stored = load_file(folder / "weights.safetensors")
    for k in range(4):
        state = {
            f"convs.{layer}.lin.weight": stored[f"layer.{layer}.weight"][k].T for layer in (0, 1)
        } | {f"convs.{layer}.bias": stored[f"layer.{layer}.bias"][k] for layer in (0, 1)}  # fmt: skip
        mine = [i for i in alone if owner[i] == k]
        torch.testing.assert_close(found[mine], by_hand(part, state)[mine], rtol=1e-5, atol=1e-5)


def gossamer_assign(graph: DataGraph) -> Any:
    from gossamer.assignment import assign

    return assign(graph, "bfs", 4, 0)


def reach(adjacency: Any, i: int) -> Any:
    """Vertices within two hops."""
    first = adjacency[[i]].indices
    return np.unique(np.concatenate([[i], first, *(adjacency[[j]].indices for j in first)]))


def test_no_labels_are_needed(folder: Path, digits: DataGraph, tmp_path: Path) -> None:
    geometric = pytest.importorskip("torch_geometric.data")
    part = induced(digits, np.arange(50))
    expected = gossamer.predict(folder, data=part)
    path = part.save(tmp_path / "new.npz")
    with np.load(path) as file:
        arrays = {key: file[key] for key in file if key.startswith(("adj", "features"))}
    np.savez(path, **arrays)
    A = part.adjacency.tocoo()
    tables = tmp_path / "tables"
    tables.mkdir()
    (tables / "edges.csv").write_text("a,b\n" + "".join(f"v{i},v{j}\n" for i, j in part.edges.tolist()))
    rows = "".join(f"v{i},{','.join(map(repr, row))}\n" for i, row in enumerate(part.features.tolist()))
    (tables / "features.csv").write_text("v," + ",".join(f"f{c}" for c in range(64)) + "\n" + rows)
    pyg = geometric.Data(
        x=torch.as_tensor(part.features), edge_index=torch.from_numpy(np.stack([A.row, A.col]).astype(np.int64))
    )
    for data in (path, str(path), tables, pyg):
        torch.testing.assert_close(gossamer.predict(folder, data=data), expected, rtol=1e-5, atol=1e-6)
    one_way = geometric.Data(x=pyg.x, edge_index=torch.from_numpy(part.edges.T.copy()))
    with pytest.raises(GossamerError, match="is given without its reverse"):
        gossamer.predict(folder, data=one_way)
    undirected = gossamer.train(digits, symmetrise=True, **{**SHORT, "steps": 0})
    torch.testing.assert_close(undirected.predict(one_way), undirected.predict(part), rtol=1e-5, atol=1e-6)
    with pytest.raises(GossamerError, match=r"edge_index must be whole numbers \[2, edges\]"):
        gossamer.predict(folder, data=geometric.Data(x=pyg.x, edge_index=pyg.edge_index.T))
    with pytest.raises(GossamerError, match="expected one weight for each edge, got shape"):
        gossamer.predict(folder, data=geometric.Data(x=pyg.x, edge_index=pyg.edge_index, edge_attr=torch.ones(7, 3)))
    networkx = pytest.importorskip("networkx").Graph(part.edges.tolist())
    for i in networkx.nodes:
        networkx.nodes[i].update(x=part.features[i], y=int(part.targets[i]), split="train")
    numbers = list(networkx.nodes)
    with pytest.warns(gossamer.GossamerWarning):  # of components and empty masks, as for training
        found = gossamer.predict(folder, data=networkx)
    torch.testing.assert_close(found, expected[numbers], rtol=1e-5, atol=1e-6)
    weighted = geometric.Data(x=pyg.x, edge_index=pyg.edge_index, edge_attr=torch.full((A.nnz, 1), 2.0))
    assert not torch.allclose(gossamer.predict(folder, data=weighted), expected)
    done = run("predict", str(folder), "--data", "tables", "--out", "t.csv", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert read_rows(tmp_path / "t.csv")[7]["vertex"] == "v7"
    assert "On the labels" not in done.stdout  # the folder has none


def test_several_labels_a_vertex_are_scored_where_they_are_known(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    edges, labels = [(i, (i + 1) % 30) for i in range(30)], rng.random((30, 3)) < 0.5
    masks: dict[str, Any] = {"train": np.arange(15), "validation": np.arange(15, 20), "test": np.arange(20, 25)}
    graph = make_graph("ring", edges, rng.normal(size=(30, 4)), labels, **masks, task="multilabel")
    result = gossamer.train(graph, agents=2, steps=3, baselines=False, topology="complete")
    graph.save(tmp_path / "ring.npz")
    trained = trained_of_run(result.run, result.summary)
    outputs = result.predict(graph)
    found, actual = outputs[:25].numpy() > 0, labels[:25]
    expected = 2 * (found & actual).sum() / (found.sum() + actual.sum())
    scores = score_labelled(trained, tmp_path / "ring.npz", outputs)
    assert scores is not None
    assert scores["micro_f1"] == pytest.approx(expected)


def test_real_values_over_time(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    edges = [(i, (i + 1) % 20) for i in range(20)]
    x, y = rng.normal(size=(20, 9, 3)).astype(np.float32), rng.normal(size=(20, 9, 2)).astype(np.float32)
    steps = np.broadcast_to(np.arange(9), (20, 9))
    graph = make_graph("ring", edges, x, y, train=steps < 6, validation=steps == 6, test=steps > 6)
    result = gossamer.train(graph, agents=3, steps=8, batch=4, baselines=False, out=tmp_path / "run", step_size=0.01)
    other = make_graph("other", edges, x[:, :2], y[:, :2], train=steps[:, :2] < 1, validation=[], test=[])
    other.save(tmp_path / "other.npz")
    done = run("predict", "run", "--data", "other.npz", "--agents", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    rows = read_rows(tmp_path / "run" / "predictions-other.csv")
    assert list(rows[0]) == ["vertex", "agent", "time", "value_0", "value_1"]
    assert len(rows) == 40
    predicted = result.predict(other)[:, 0].numpy()  # the training time steps are those with a target
    assert f"On the labels of other: MSE {np.square(predicted - y[:, 0]).mean():.4g}" in done.stdout
    torch.testing.assert_close(result.predict(other), result.predict(graph)[:, :2])
    classes = gossamer.load("digits")
    with pytest.raises(GossamerError, match="has 3 features as input, and digits has 64; give the same columns"):
        result.predict(classes)
    wide = make_graph("wide", edges, np.ones((20, 4, 64)), y[:, :4], train=steps[:, :4] < 1, validation=[], test=[])
    with pytest.raises(GossamerError, match="predicts classes, and wide has a time axis"):
        gossamer.train(classes, **{**SHORT, "steps": 0}).predict(wide)


def test_predict_refuses(folder: Path, digits: DataGraph, tmp_path: Path) -> None:
    done = run("predict", str(folder), "--agents", cwd=tmp_path)
    assert (done.returncode, "--agents goes with --data" in done.stderr) == (2, True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RANK", "0")
        patch.setenv("WORLD_SIZE", "1")
        done = run("predict", str(folder), "--data", "digits", cwd=tmp_path)
    assert (done.returncode, "start it without torchrun" in done.stderr) == (2, True)
    done = run("predict", str(folder), "--data", "nothing", cwd=tmp_path)
    assert (done.returncode, "called 'nothing'" in done.stderr) == (2, True)
    with pytest.raises(GossamerError, match="or a PyTorch Geometric graph with x and edge_index, got int"):
        gossamer.predict(folder, data=7)
    path = induced(digits, np.arange(50)).save(tmp_path / "new.npz")
    with np.load(path) as file:
        arrays = dict(file)
    for changes, message in (
        ({"adj_matrix.data": np.arange(1.0, 1 + len(arrays["adj_matrix.data"]))}, "asymmetric .* store both"),
        ({"features": np.ones((49, 64))}, "expected a symmetric adjacency matrix of the 49 vertices"),
        ({"names": np.array(["a"])}, "expected 50 names, one for each vertex, found 1"),
        ({"positions": np.ones((3, 2))}, "expected 50 positions, one for each vertex, found 3"),
        ({"features": np.full((50, 64), np.inf)}, "NaN or infinite"),
        ({"features": np.array(3.0)}, "expected a symmetric adjacency matrix of the 0 vertices"),
    ):
        np.savez(path, **(arrays | changes))
        with pytest.raises(GossamerError, match=message):
            gossamer.predict(folder, data=path)
    np.savez(path, features=arrays["features"])
    with pytest.raises(GossamerError, match=r"is not a graph in the npz layout.*no array adj_matrix\.data"):
        gossamer.predict(folder, data=path)


def test_probabilities_are_added_on_demand(digits: DataGraph, tmp_path: Path) -> None:
    gossamer.train("digits", out=tmp_path / "run", **SHORT)
    assert run("predict", "run", cwd=tmp_path).returncode == 0
    plain = read_rows(tmp_path / "run" / "predictions.csv")
    assert list(plain[0]) == ["vertex", "agent", "class", "probability"]
    assert run("predict", "run", "--probabilities", cwd=tmp_path).returncode == 0
    rows = read_rows(tmp_path / "run" / "predictions.csv")
    assert list(rows[0]) == [*plain[0], *(f"probability_{c}" for c in range(10))]
    assert all(row[f"probability_{row['class']}"] == row["probability"] for row in rows)


# A result in a shell and in a notebook


def test_a_result_is_shown_in_a_few_lines(digits: DataGraph, tmp_path: Path) -> None:
    graph = replace(digits, name="<b>mine</b>")
    result = gossamer.train(graph, **{**SHORT, "baselines": True})
    lines = repr(result).splitlines()
    assert lines[0] == "<b>mine</b>: 1797 vertices, 4 agents, 12 steps"
    assert lines[1].split() == [
        "model",
        "training",
        "loss",
        "train",
        "accuracy",
        "validation",
        "accuracy",
        "test",
        "accuracy",
    ]
    assert [line.split()[0] for line in lines[2:5]] == ["distributed", "centralised", "graphless"]
    assert f"{result.summary['distributed']['test']['accuracy']:.1%}" in lines[2]
    assert lines[5].split() == ["test", "loss", "macro", "F1", "micro", "F1", "ROC", "AUC", "average", "precision"]
    assert [line.split()[0] for line in lines[6:9]] == ["distributed", "centralised", "graphless"]
    assert lines[6].split()[-1] == f"{result.summary['distributed']['test']['average_precision']:.4f}"
    assert "sent between agents, which disagree by" in lines[9]
    assert lines[10:] == ["not saved: result.save(folder) writes a run directory"]
    result.save(tmp_path / "<run>")
    assert repr(result).splitlines()[-1] == f"saved in {tmp_path / '<run>'}"
    html = result._repr_html_()
    assert html.count("<tr>") == 8
    assert "&lt;b&gt;mine&lt;/b&gt;" in html
    assert "&lt;run&gt;" in html
    assert "<b>" not in html
    stopped = gossamer.train(graph, should_stop=lambda: True, **SHORT)
    assert "stopped at step 0 of 12" in repr(stopped)
    assert "saved in" in repr(gossamer.resume(tmp_path / "<run>", 13, graph=graph))


def test_real_values_are_shown(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    edges = [(i, (i + 1) % 20) for i in range(20)]
    masks: dict[str, Any] = {"train": np.arange(10), "validation": [10, 11], "test": [12, 13]}
    graph = make_graph("ring", edges, rng.normal(size=(20, 3)), rng.normal(size=(20, 1)), **masks)
    assert "test mse" in repr(gossamer.train(graph, agents=2, steps=2, step_size=0.01))
