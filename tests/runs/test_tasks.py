"""Labels and weights on their way through a run: training, resuming, files, predictions, the command line."""

import csv
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from agents.cases import make_case
from commands.inside import run
from oracles.graphs import path_graph
from safetensors.torch import save_file

import gossamer
from gossamer import DataGraph, GossamerError
from gossamer.engines.cluster.rank_shards import cut_for_ranks, read_rank_shard
from gossamer.report.predictions import write_predictions
from gossamer.runs.advice import measure_guessing
from gossamer.runs.model_files import read_model
from gossamer.runs.settings import make_settings
from gossamer.runs.tensors import read_file
from gossamer.runs.trained import read_trained

SHORT: dict[str, Any] = {"agents": 4, "topology": "complete", "steps": 12, "hidden": 5, "baselines": False}
NAMES = ("a", "b", "c")


def labelled(**options: Any) -> DataGraph:
    return replace(make_case(n=40, sparse_features=False, task="multilabel", **options).graph, class_names=NAMES)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on a file of labels."""
    path = tmp_path_factory.mktemp("labels")
    labelled().save(path / "data.npz")
    gossamer.train(path / "data.npz", out=path / "run", dropout=0.0, **SHORT)
    return path


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("data", [(), ("--data", "data.npz"), ("--data", "data.npz", "--agents")], ids=str)
def test_predictions_have_the_labels_above_one_half(folder: Path, data: tuple[str, ...]) -> None:
    done = run("predict", "run", *data, "--out", "found.csv", cwd=folder)
    assert done.returncode == 0, done.stderr
    found = rows(folder / "found.csv")
    agent = ["agent"] if data != ("--data", "data.npz") else []
    assert list(found[0]) == ["vertex", *agent, "labels", *(f"probability_{name}" for name in NAMES)]
    assert len(found) == 40
    assert len({row["labels"] for row in found}) > 1
    for row in found:
        chances = {name: float(row[f"probability_{name}"]) for name in NAMES}
        assert row["labels"] == (";".join(name for name in NAMES if chances[name] > 0.5) or "-")
    if not data:
        chance = gossamer.predict(folder / "run").sigmoid()
        np.testing.assert_allclose(
            [[float(row[f"probability_{n}"]) for n in NAMES] for row in found], chance, atol=1e-6
        )


def test_a_vertex_may_be_predicted_to_have_no_label(tmp_path: Path) -> None:
    graph = path_graph(targets=[[0, 1], [1, 1], [0, 0], [1, 0]], names=("v", "w", "x", "y"))
    outputs = torch.tensor([[-1.0, -2.0], [0.0, 3.0], [9.0, 0.1], [-9.0, 2.0]])
    write_predictions(tmp_path / "new" / "found.csv", graph, np.array([0, 1, 1, 0]), outputs)
    found = rows(tmp_path / "new" / "found.csv")
    assert [row["labels"] for row in found] == ["-", "1", "0;1", "1"]
    assert [row["vertex"] + row["agent"] for row in found] == ["v0", "w1", "x1", "y0"]
    assert found[1]["probability_0"] == "0.500000"


def test_a_model_file_says_that_its_outputs_are_labels(folder: Path, tmp_path: Path) -> None:
    assert run("export", str(folder / "run"), "--to", "model.safetensors", cwd=tmp_path).returncode == 0
    card = (tmp_path / "model.md").read_text()
    assert "6 features in, 3 labels out" in card
    assert "- labels, by the column of the output: a, b, c" in card
    assert "sigmoid" in card
    state, about = read_file(tmp_path / "model.safetensors")
    header = json.loads(about["model"])
    assert header["task"] == "multilabel"
    del header["task"], header["standardised"]  # as in files of before
    save_file(state, tmp_path / "old.safetensors", {"model": json.dumps(header)})
    assert isinstance(read_model(tmp_path / "old.safetensors"), torch.nn.Module)
    more = gossamer.train(folder / "data.npz", initial=tmp_path / "model.safetensors", **{**SHORT, "steps": 0})
    mean = {name: part.mean(0) for name, part in read_trained(folder / "run").params.items()}
    for name, part in more.run.host.params.items():
        torch.testing.assert_close(part, mean[name].expand_as(part))


def test_a_run_of_before_has_classes_or_values(folder: Path, tmp_path: Path) -> None:
    assert read_trained(folder / "run").task == "multilabel"
    for graph, task in ((make_case().graph, "multiclass"), (make_case(task="regression").graph, "regression")):
        gossamer.train(graph, out=tmp_path / task, **{**SHORT, "steps": 2})
        content = json.loads((tmp_path / task / "run.json").read_text())
        assert content["data"].pop("task") == task
        (tmp_path / task / "run.json").write_text(json.dumps(content))
        assert read_trained(tmp_path / task).task == task


WEIGHTED: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "labels": ({"task": "multilabel"}, {"class_weights": "balanced"}),
    "sampled labels": ({"task": "multilabel", "sampled": True}, {"class_weights": "balanced"}),
    "classes": ({"sampled": True}, {"class_weights": "balanced"}),
    "values over time": ({"batch": 6, "sampled": True}, {"batch": 2}),
}


@pytest.mark.parametrize("kind", WEIGHTED)
def test_a_weighted_run_is_resumed_to_the_same_bits(kind: str, tmp_path: Path) -> None:
    case, options = WEIGHTED[kind]
    graph = make_case(n=30, **case).graph
    whole = gossamer.train(graph, **{**SHORT, **options}).run.host.params
    plain = gossamer.train(
        replace(graph, sample_weights=None), **{**SHORT, **options, "class_weights": "none"}
    ).run.host.params
    gossamer.train(graph, out=tmp_path / "run", **{**SHORT, **options, "steps": 5})
    resumed = gossamer.resume(tmp_path / "run", 12, graph=graph).run.host.params
    for name, part in whole.items():
        assert torch.equal(part, resumed[name])
        assert not torch.equal(part, plain[name])
    if "sampled" in case:
        with pytest.raises(GossamerError, match="is not the one that"):
            gossamer.resume(tmp_path / "run", 14, graph=replace(graph, sample_weights=None))
    unlabelled = gossamer.predict(tmp_path / "run", data=graph)
    assert len(unlabelled) == 30


@pytest.mark.parametrize("kind", WEIGHTED)
def test_the_loss_of_guessing_is_weighted_too(kind: str) -> None:
    """By plain descent on a constant output."""
    case, options = WEIGHTED[kind]
    plain = {"steps": 0, "standardise": False}
    problem = make_case(n=30, **case, balanced=bool(options.get("class_weights"))).problem
    found = measure_guessing(gossamer.train(make_case(n=30, **case).graph, **{**SHORT, **options, **plain}).run)
    assert problem.weights is not None
    weights, targets = problem.weights[problem.labelled], problem.targets[problem.labelled]
    constant = torch.zeros(3, dtype=torch.float64, requires_grad=True)
    rule = torch.optim.LBFGS([constant], max_iter=200, tolerance_grad=1e-12, tolerance_change=1e-15)

    def loss() -> torch.Tensor:
        outputs = constant.expand(len(targets), 3)
        if targets.dtype == torch.int64:
            each = torch.nn.functional.cross_entropy(outputs, targets, reduction="none")
        elif targets.dtype == torch.bool:
            pos_weight, y = problem.positive_weight, targets.double()
            bce = torch.nn.functional.binary_cross_entropy_with_logits
            each = bce(outputs, y, pos_weight=pos_weight, reduction="none").mean(-1)
        else:
            each = (outputs - targets).square().mean(-1)
        return (weights * each).sum() / weights.sum()

    def closure() -> torch.Tensor:
        rule.zero_grad()
        value = loss()
        value.backward()
        return value

    rule.step(closure)
    assert found == pytest.approx(float(loss().detach()), rel=1e-6)


def test_class_weights_of_real_values_are_refused(tmp_path: Path) -> None:
    graph = make_case(task="regression").graph
    with pytest.raises(GossamerError, match="class weights are for classes or labels"):
        gossamer.train(graph, class_weights="balanced", **SHORT)
    graph.save(tmp_path / "values.npz")
    done = run("train", "values.npz", "--class-weights", "balanced", "--agents", "2", cwd=tmp_path)
    assert done.returncode == 2
    assert "leave --class-weights at none" in done.stderr
    with pytest.raises(GossamerError, match="class_weights = 'some': input should be 'none' or 'balanced'"):
        make_settings({"class_weights": "some"})


def test_the_task_is_an_option_and_kept_for_resume(tmp_path: Path) -> None:
    one_hot = np.eye(3)[np.arange(40) % 3]
    graph = replace(labelled(), targets=one_hot == 1)
    graph.save(tmp_path / "hot.npz")
    with np.load(tmp_path / "hot.npz") as file:
        arrays = {key: value for key, value in dict(file).items() if key != "format"}
    split = {f"{name}_idx": np.flatnonzero(arrays[f"{name}_mask"]) for name in ("train", "val", "test")}
    np.savez(tmp_path / "hot.npz", **{**arrays, **split})
    short = ("--agents", "2", "--steps", "2", "--hidden", "4", "--no-baselines")
    refused = run("train", "hot.npz", *short, "--out", "run", cwd=tmp_path)
    assert refused.returncode == 2
    assert "--task multilabel" in refused.stderr
    assert run("train", "hot.npz", "--task", "multilabel", *short, "--out", "run", cwd=tmp_path).returncode == 0
    done = run("train", "--resume", "run", "--steps", "4", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert read_trained(tmp_path / "run").task == "multilabel"


def test_ranks_have_the_weights_of_their_vertices(tmp_path: Path) -> None:
    settings = make_settings({**SHORT, "class_weights": "balanced", "dtype": "float64"})
    graph = labelled(sampled=True)
    cut_for_ranks(tmp_path / "cut", graph, settings, 2)
    shares = [read_rank_shard(tmp_path / "cut" / f"rank-{rank}", rank, 2, settings) for rank in (0, 1)]
    weights = np.zeros(40)
    for share in shares:
        weights[share.vertices[share.hosted]] = share.example_weights
        np.testing.assert_array_equal(share.positive_weight, shares[0].positive_weight)
    assert weights[graph.train].sum() == pytest.approx(graph.train.sum())
    assert graph.sample_weights is not None
    scale = graph.train.sum() / graph.sample_weights[graph.train].sum()
    np.testing.assert_allclose(weights, graph.sample_weights * scale, rtol=1e-12)
