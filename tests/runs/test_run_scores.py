"""Scores of a run: those of its records and its summary, the one that it is validated on, and older versions' files."""

import json
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
from agents.cases import make_case
from sklearn import metrics

import gossamer
from gossamer.agents.scores import list_scores
from gossamer.agents.share import make_share
from gossamer.data import DataGraph
from gossamer.data.tasks import Task
from gossamer.engines.simulation import start_run
from gossamer.errors import GossamerError
from gossamer.report import curves
from gossamer.report.style import COLOURS
from gossamer.runs.hosts import build_share_host, prepare_cut
from gossamer.runs.records import Mask, ModelName
from gossamer.runs.settings import make_settings

RANKING = {"roc_auc", "average_precision"}
OPTIONS: dict[str, Any] = {"agents": 4, "topology": "complete", "hidden": 5, "steps": 6, "evaluate_every": 3}
OPTIONS["keep"] = "last"
MASKS: tuple[Mask, ...] = get_args(Mask)
MODELS: tuple[ModelName, ...] = get_args(ModelName)


@pytest.fixture(params=["classes", "values"])
def graph(request: pytest.FixtureRequest) -> DataGraph:
    return make_case(n=40, batch=None if request.param == "classes" else 3).graph


def test_records_have_the_cheap_scores_and_the_summary_has_all(graph: DataGraph) -> None:
    result = gossamer.train(graph, **OPTIONS)
    task: Task = "regression" if graph.num_classes is None else "multiclass"
    every = set(list_scores(task))
    for history in (result.run.history, *result.baseline_histories.values()):
        for record in history:
            assert record["score"] == ("mse" if task == "regression" else "accuracy")
            assert all(set(record[mask]) == every - RANKING for mask in MASKS)
    for model in MODELS:
        assert all(set(result.summary[model][mask]) == every for mask in MASKS)
    assert result.summary["score"] == record["score"]


@pytest.mark.parametrize("score", sorted(RANKING))
def test_a_ranking_score_that_is_validated_on_is_in_every_record(score: str) -> None:
    graph = make_case(n=40).graph
    result = gossamer.train(graph, score=score, **OPTIONS)
    histories = (result.run.history, *result.baseline_histories.values())
    assert all(record["score"] == score for history in histories for record in history)
    assert all(set(record["test"]) >= RANKING for history in histories for record in history)
    p = result.run.predict().softmax(1).numpy()
    compute = metrics.roc_auc_score if score == "roc_auc" else metrics.average_precision_score
    for mask in MASKS:
        chosen = getattr(graph, mask)
        expected = np.mean([compute(graph.targets[chosen] == c, p[chosen, c]) for c in range(3)])
        assert result.run.history[-1][mask][score] == pytest.approx(expected, rel=1e-6)
    assert result.summary["distributed"] == {mask: result.run.history[-1][mask] for mask in MASKS}


def test_final_scores_are_of_the_final_weights(graph: DataGraph) -> None:
    """A run that ends between two evaluations has no record of its end."""
    stopping = iter([False] * 5 + [True] * 9)
    result = gossamer.train(graph, should_stop=lambda: next(stopping), **OPTIONS)
    assert (result.run.host.step, result.run.history[-1]["step"]) == (5, 3)
    assert result.summary["distributed"] == result.run.scores(ranking=True)
    assert result.summary["distributed"]["train"]["loss"] != result.run.history[-1]["train"]["loss"]


@pytest.mark.parametrize(("task", "score"), [("classes", "r2"), ("classes", "mse"), ("values", "macro_f1")])
def test_a_score_that_does_not_fit_is_refused_when_the_run_starts(task: str, score: str) -> None:
    graph = make_case(n=40, batch=None if task == "classes" else 3).graph
    fitting = ", ".join(list_scores("multiclass" if task == "classes" else "regression"))
    message = f"the score '{score}' does not fit the targets.* take --score auto, {fitting}$"
    with pytest.raises(GossamerError, match=message):
        start_run(graph, make_settings({"score": score, **OPTIONS}))
    settings = make_settings(OPTIONS)
    share = make_share(prepare_cut(start_run(graph, settings).deployment, settings), [0])
    with pytest.raises(GossamerError, match=message):
        build_share_host(share, settings.model_copy(update={"score": score}))


def test_lines_of_older_versions_are_read_and_drawn(graph: DataGraph, tmp_path: Path) -> None:
    """They have loss and accuracy or mse, and no name of the validated score."""
    usual = "mse" if graph.num_classes is None else "accuracy"
    gossamer.train(graph, out=tmp_path / "run", **OPTIONS)
    for name in ("metrics.jsonl", "references.jsonl"):
        path = tmp_path / "run" / name
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        for line in lines:
            del line["score"]
            line |= {mask: {key: line[mask][key] for key in ("loss", usual)} for mask in MASKS}
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    content = json.loads((tmp_path / "run" / "run.json").read_text())
    del content["settings"]["score"], content["summary"]["score"]
    (tmp_path / "run" / "run.json").write_text(json.dumps(content))
    again = gossamer.resume(tmp_path / "run", 9, graph=graph)
    assert [record["score"] for record in again.run.history] == [usual] * 4
    assert [len(record["test"]) for record in again.run.history] == [2, 2, 2, 5 if usual == "mse" else 4]
    assert again.complete
    assert all(len(again.summary[model]["test"]) > 4 for model in MODELS)


def test_references_that_are_done_keep_their_ranking_scores(tmp_path: Path) -> None:
    graph = make_case(n=40).graph
    first = gossamer.train(graph, out=tmp_path / "run", **OPTIONS)
    again = gossamer.resume(tmp_path / "run", graph=graph)
    for model in MODELS[1:]:
        assert again.summary[model] == first.summary[model]
        assert set(again.summary[model]["test"]) >= RANKING


@pytest.mark.parametrize(
    ("score", "label", "scale"),
    [("macro_f1", "macro F1", "linear"), ("loss", "loss", "log"), ("roc_auc", "ROC AUC", "linear")],
)
def test_curves_show_the_validated_score(
    score: str, label: str, scale: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[Any] = []
    monkeypatch.setattr(curves, "save_figure", lambda figure, path, mode: drawn.append(figure))
    result = gossamer.train(make_case(n=40).graph, out=tmp_path / "run", score=score, **OPTIONS)
    panel = drawn[0].axes[1]
    assert (panel.get_ylabel(), panel.get_yscale()) == (label, scale)
    drawn_lines = [line for line in panel.lines if line.get_color() == COLOURS["distributed"]]
    found = {line.get_linestyle() == "-": line.get_ydata().tolist() for line in drawn_lines}
    masks: dict[bool, Mask] = {True: "test", False: "validation"}
    expected = {solid: [record[mask][score] for record in result.run.history] for solid, mask in masks.items()}
    assert found == expected
