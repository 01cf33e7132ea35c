"""The weights of the best validation score are kept, reported, stored and predicted with; patience ends a run."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import gossamer
from gossamer.errors import GossamerError
from gossamer.experiments.theory import draw_block_graph
from gossamer.runs.settings import make_settings
from gossamer.runs.tensors import read_tensors, write_tensors

FEW: dict[str, Any] = {
    "agents": 3,
    "topology": "complete",
    "hidden": 6,
    "baselines": False,
    "dtype": "float64",
    "evaluate_every": 1,
}


def train(**changes: Any) -> gossamer.Result:
    return gossamer.train(draw_block_graph(), **{**FEW, "step_size": 0.05, "steps": 25, "seed": 4, **changes})


def best_of(history: list[Any]) -> int:
    """The step with the highest validation accuracy and, of equal ones, the lowest loss."""
    best = max(history, key=lambda record: (record["validation"]["accuracy"], -record["validation"]["loss"]))
    return int(best["step"])


def test_the_best_evaluation_is_the_result(tmp_path: Path) -> None:
    result = train(out=tmp_path / "run")
    history, best = result.run.history, result.summary["best_step"]
    assert best == best_of(history) == history[-1]["best_step"]
    assert 0 < best < 25
    record = next(one for one in history if one["step"] == best)
    final = result.summary["distributed"]["test"]
    assert record["test"].items() <= final.items()
    assert {"roc_auc", "average_precision"} <= final.keys()
    assert result.summary["disagreement"] == record["disagreement"]
    until = train(steps=best, keep="last")
    assert "best_step" not in until.run.history[-1]
    stored = read_tensors(tmp_path / "run" / "weights.safetensors")
    for name, part in until.run.host.params.items():
        torch.testing.assert_close(stored[name], part, rtol=0, atol=0)
    expected = until.run.predict()
    torch.testing.assert_close(result.run.predict(), expected, rtol=0, atol=0)
    torch.testing.assert_close(gossamer.predict(tmp_path / "run", graph=draw_block_graph()), expected, rtol=0, atol=0)
    for name, part in result.model().state_dict().items():
        torch.testing.assert_close(part, until.model().state_dict()[name], rtol=0, atol=0)
    assert json.loads((tmp_path / "run" / "run.json").read_text())["summary"]["best_step"] == best


@pytest.mark.parametrize("stop", [1, 9, 20])
def test_a_resumed_run_keeps_what_it_would_have_kept(tmp_path: Path, stop: int) -> None:
    calls = iter(range(1000))
    train(out=tmp_path, checkpoint_every=4, should_stop=lambda: next(calls) >= stop)
    resumed, whole = gossamer.resume(tmp_path, graph=draw_block_graph()), train()
    assert resumed.summary["best_step"] == whole.summary["best_step"]
    for name, part in whole.run.kept.params.items():
        torch.testing.assert_close(resumed.run.kept.params[name], part, rtol=0, atol=0)


def test_patience_ends_runs_and_references_for_good(tmp_path: Path) -> None:
    result = train(out=tmp_path, steps=200, patience=6, baselines=True)
    best, steps = result.summary["best_step"], result.summary["steps"]
    assert steps == best + 6 < 200
    assert result.complete
    for history in result.baseline_histories.values():
        assert history[-1]["step"] == history[-1]["best_step"] + 6
    again = gossamer.resume(tmp_path, graph=draw_block_graph())
    assert again.complete
    for one in ("distributed", "centralised", "graphless"):
        assert again.summary[one] == result.summary[one]
    with pytest.raises(GossamerError, match=r"patience = 3 counts steps from the best .* take keep = 'best'"):
        make_settings({"patience": 3, "keep": "last"})


def test_patience_ends_at_an_evaluation(tmp_path: Path) -> None:
    result = train(out=tmp_path, steps=200, patience=3, evaluate_every=5, baselines=True)
    best, steps = result.summary["best_step"], result.summary["steps"]
    assert 0 < best == steps - 5  # the first steps had their chance, and the score at the end is known
    assert result.run.history[-1]["step"] == steps
    again = gossamer.resume(tmp_path, graph=draw_block_graph())
    assert again.baseline_histories == result.baseline_histories


def test_without_validation_the_last_weights_are_kept() -> None:
    graph = draw_block_graph()
    none = np.zeros(graph.num_vertices, dtype=bool)
    empty = gossamer.make_graph(
        "empty", graph.edges, graph.features, graph.targets, train=graph.train, validation=none, test=graph.test
    )
    with pytest.warns(gossamer.GossamerWarning, match="validation"):
        result = gossamer.train(empty, **FEW, steps=5)
    assert result.summary["best_step"] == 5
    assert "best_step" not in result.run.history[-1]


def test_values_are_reported_and_predicted_in_the_users_units() -> None:
    graph = draw_block_graph()
    random = np.random.default_rng(0)
    values = 5e4 + 3e3 * graph.features @ random.normal(size=(graph.num_features, 2))
    masks = {name: getattr(graph, name) for name in ("train", "validation", "test")}
    data = gossamer.make_graph(
        "values", graph.edges, graph.features * [1e5, *[1.0] * (graph.num_features - 1)], values, **masks
    )
    result = gossamer.train(data, **{**FEW, "steps": 150, "step_size": 0.03, "dropout": 0.0})
    outputs = result.predict().numpy()
    for mask, rows in masks.items():
        expected = ((outputs - values)[rows] ** 2).mean()
        assert result.summary["distributed"][mask]["mse"] == pytest.approx(expected, rel=1e-9)
    assert result.summary["distributed"]["test"]["mse"] < 0.6 * values[graph.test].var()
    assert result.summary["distributed"]["train"]["loss"] < 1  # of standardised targets


def test_checkpoints_from_before_losses_broke_ties_go_on(tmp_path: Path) -> None:
    train(out=tmp_path / "run")
    path = tmp_path / "run" / "checkpoint.safetensors"
    tensors = read_tensors(path)
    best = int(tensors["state.best-step"][0])
    del tensors["state.best-loss"]
    write_tensors(path, tensors, step="25", seconds="1.0")
    resumed = gossamer.resume(tmp_path / "run", 26, graph=draw_block_graph())
    better = resumed.run.history[-1]["validation"]["accuracy"] > resumed.run.history[best]["validation"]["accuracy"]
    assert resumed.summary["best_step"] == (26 if better else best)
