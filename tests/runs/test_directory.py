"""The run directory holds what DESIGN promises, whole at every moment."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from agents.cases import make_case
from oracles.graphs import path_graph
from safetensors.torch import load_file, save_file
from scipy import sparse

from gossamer.agents.scores import list_scores
from gossamer.api import resume, train
from gossamer.engines.simulation import start_run
from gossamer.errors import GossamerError, GossamerWarning
from gossamer.files import write_atomically
from gossamer.runs import directory, new_folders
from gossamer.runs.observers import Observer
from gossamer.runs.options import Options
from gossamer.runs.records import Record
from gossamer.runs.run_json import read_run_settings


def test_contents(tmp_path: Path) -> None:
    case = make_case(n=40)
    result = train(
        case.graph,
        out=tmp_path / "run",
        agents=4,
        layers="gcn",
        order=2,
        hidden=(5,),
        bias=True,
        steps=12,
        evaluate_every=10,
        topology="complete",
        given={"assignment": case.owner},
    )
    assert {path.name for path in (tmp_path / "run").iterdir()} == {
        ".lock",
        "run.json",
        "metrics.jsonl",
        "network.safetensors",
        "weights.safetensors",
        "checkpoint.safetensors",
        "curves.png",
        "references.jsonl",
        "topology.json",
        "transform.safetensors",
    }
    content = json.loads((tmp_path / "run" / "run.json").read_text())
    assert content["format"] == 1
    assert content["complete"] is True
    assert content["settings"]["order"] == 2
    assert content["summary"]["distributed"] == result.summary["distributed"]
    assert {"gossamer", "torch", "numpy", "python"} <= set(content["versions"])
    network = load_file(tmp_path / "run" / "network.safetensors")
    torch.testing.assert_close(network["assignment"], torch.tensor(case.owner), rtol=0, atol=0)
    assert network["combination"].shape == (4, 4)
    certificate = json.loads((tmp_path / "run" / "topology.json").read_text())
    np.testing.assert_array_equal(certificate["combination"], network["combination"].numpy())
    assert certificate["bytes_per_round"] == 12 * 4 * certificate["parameters"]
    assert certificate["holds"] == {"A1": True, "A2": True, "A3": True}
    assert certificate["parameters"] == sum(
        t.shape[1:].numel() for t in load_file(tmp_path / "run" / "weights.safetensors").values()
    )
    weights = load_file(tmp_path / "run" / "weights.safetensors")
    assert {name: tuple(t.shape) for name, t in weights.items()} == {
        "layer.0.weight": (4, 3, 6, 5),
        "layer.0.bias": (4, 5),
        "layer.1.weight": (4, 3, 5, 3),
        "layer.1.bias": (4, 3),
    }
    records = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [record["step"] for record in records] == [0, 10, 12]
    assert all(
        {"train", "validation", "test", "disagreement", "stationarity", "best_stationarity"} <= set(record)
        for record in records
    )
    best = [record["best_stationarity"] for record in records]
    assert best == [None, *(min(r["stationarity"] for r in records[1:i]) for i in (2, 3))]


def test_order_one_weights_have_no_power_axis_and_zero_steps_write_the_start(tmp_path: Path) -> None:
    case = make_case(n=40)
    options: dict[str, Any] = {"preset": "paper", "agents": 4, "hidden": (5,), "steps": 0, "baselines": False}
    result = train(case.graph, out=tmp_path / "run", topology="complete", **options)
    weights = load_file(tmp_path / "run" / "weights.safetensors")
    assert weights["layer.0.weight"].shape == (4, 6, 5)
    assert 0 < weights["layer.0.weight"].std() < 2e-3
    assert result.summary["steps"] == 0
    assert not {"centralised", "graphless"} & set(result.summary)


def test_scores_on_an_empty_mask_are_null_and_a_resumed_run_reads_them(tmp_path: Path) -> None:
    case = make_case(n=40)
    graph = replace(case.graph, validation=np.zeros(40, dtype=bool))
    with pytest.warns(GossamerWarning, match="the validation mask is empty"):
        result = train(graph, out=tmp_path / "run", agents=4, steps=3, topology="complete", baselines=False)
    assert np.isnan(result.summary["distributed"]["validation"]["accuracy"])
    content = json.loads((tmp_path / "run" / "run.json").read_text(), parse_constant=pytest.fail)
    assert set(content["summary"]["distributed"]["validation"]) == {"loss", *list_scores("multiclass")}
    assert set(content["summary"]["distributed"]["validation"].values()) == {None}
    again = resume(tmp_path / "run", steps=5, graph=graph)
    assert again.summary["steps"] == 5
    assert np.isnan(again.run.history[0]["validation"]["loss"])


def test_a_reference_that_diverges_does_not_spoil_the_run(tmp_path: Path) -> None:
    case = make_case(n=40)
    features = np.full((40, 6), 1e25, dtype=np.float32)
    features[::2] *= -1
    graph = replace(case.graph, features=features)
    combination = np.full((4, 4), 0.25)
    shift = sparse.csr_array(case.shift * 0.0)
    with pytest.warns(GossamerWarning, match="the graphless reference: the training loss is"):
        result = train(
            graph,
            out=tmp_path / "run",
            preset="paper",
            agents=4,
            steps=20,
            topology="complete",
            evaluate_every=1,
            given={"assignment": case.owner, "combination": combination, "shift": shift},
        )
    assert result.run.complete
    assert not np.isfinite(result.summary["graphless"]["train"]["loss"])


def test_an_existing_folder_is_never_touched(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(GossamerError, match="not an empty folder"):
        train(make_case().graph, out=tmp_path, agents=2, steps=1)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_atomically(tmp_path / "a", b"old")

    def broken(_: int) -> None:
        raise OSError("disk full")

    monkeypatch.setattr("os.fsync", broken)
    with pytest.raises(OSError, match="disk full"):
        write_atomically(tmp_path / "a", b"new")
    assert (tmp_path / "a").read_bytes() == b"old"
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_free_names_count_up(tmp_path: Path) -> None:
    assert new_folders.find_free_name(tmp_path, "digits").name == "digits-1"
    (tmp_path / "digits-1").mkdir()
    assert new_folders.find_free_name(tmp_path, "digits").name == "digits-2"


@pytest.mark.parametrize(
    ("content", "message"),
    [(None, "it has no run.json"), ("{", "not valid JSON"), ('{"format": 99}', "format version 1")],
)
def test_a_broken_run_json_is_reported(content: str | None, message: str, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / "run.json").write_text(content)
    with pytest.raises(GossamerError, match=message):
        read_run_settings(tmp_path)


def test_truncated_tensors_are_reported(tmp_path: Path) -> None:
    case = make_case(n=40)
    train(case.graph, out=tmp_path / "run", agents=4, steps=2, topology="complete", baselines=False)
    path = tmp_path / "run" / "weights.safetensors"
    path.write_bytes(path.read_bytes()[:50])
    with pytest.raises(GossamerError, match=r"cannot read .*weights.safetensors"):
        directory.read_weights(tmp_path / "run", case.graph, start_run)


def test_what_the_checksums_of_old_runs_do_not_tell_is_checked(tmp_path: Path) -> None:
    case = make_case(n=40)
    options: dict[str, Any] = {
        "agents": 4,
        "topology": "complete",
        "hidden": 5,
        "steps": 4,
        "evaluate_every": 2,
        "baselines": False,
    }
    train(case.graph, out=tmp_path / "run", given={"assignment": case.owner}, **options)
    path = tmp_path / "run" / "weights.safetensors"
    whole = load_file(path)
    save_file({name: part.fill_(torch.nan) for name, part in whole.items()}, path)  # which writes no checksum
    with pytest.raises(GossamerError, match=r"weights\.safetensors \(weights\): .* holds NaN or infinite numbers"):
        directory.read_weights(tmp_path / "run", case.graph, start_run)
    metrics = tmp_path / "run" / "metrics.jsonl"
    lines = [json.loads(line) for line in metrics.read_text().splitlines()]
    for change, message in (
        ([], "has no evaluation up to step 4"),
        ([{**line, "validation": {"loss": 1.0, "mse": 2.0}} for line in lines], "validation has no 'accuracy'"),
        ([{**line, "score": "roc_auc"} for line in lines], "train has no 'roc_auc'"),
        ([{**line, "score": None} for line in lines], "score: "),
    ):
        metrics.write_text("".join(json.dumps(line) + "\n" for line in change))
        with pytest.raises(GossamerError, match=message):
            resume(tmp_path / "run", 8, graph=case.graph)


def test_metrics_grow_at_every_evaluation(tmp_path: Path) -> None:
    path, found = tmp_path / "run" / "metrics.jsonl", list[list[int]]()

    def read(record: Record) -> None:
        found.append([json.loads(line)["step"] for line in path.read_text().splitlines()])

    train(make_case(n=40).graph, out=tmp_path / "run", agents=4, steps=7, evaluate_every=3, topology="complete",
          baselines=False, observers=[Observer(on_record=read)])  # fmt: skip
    assert found == [[0], [0, 3], [0, 3, 6], [0, 3, 6, 7]]


def test_metrics_that_lack_an_evaluation_before_the_checkpoint_are_refused(tmp_path: Path) -> None:
    graph = make_case(n=40).graph
    train(graph, out=tmp_path / "run", agents=4, steps=7, evaluate_every=3, topology="complete", baselines=False)
    path = tmp_path / "run" / "metrics.jsonl"
    path.write_bytes(path.read_bytes()[: path.read_bytes().index(b'{"step": 6') + 9])  # the last whole line is of 3
    with pytest.raises(GossamerError, match="has no evaluation of step 6, and the checkpoint is of 7"):
        resume(tmp_path / "run", 9, graph=graph)


def test_a_path_that_is_none_is_named_before_training() -> None:
    with pytest.raises(GossamerError, match="`out` should be the path of a run directory, a str or a Path; got 1"):
        train("digits", out=1)  # type: ignore[arg-type]


def test_a_small_graph_has_at_most_an_agent_a_vertex_unless_asked_for_more() -> None:
    options: Options = {"steps": 1, "topology": "complete", "baselines": False, "assignment": "uniform"}
    with pytest.warns(GossamerWarning, match="4 agents, one for each vertex, in place of the default 10"):
        result = train(path_graph(), **options)
    assert result.run.deployment.num_agents == result.run.settings.agents == 4
    with pytest.raises(GossamerError, match="expected 1 to 4 agents, one vertex each at the most, got 10"):
        train(path_graph(), **options | {"agents": 10})
