"""A run resumed at any step is bitwise the uninterrupted one."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from agents.cases import make_case

from gossamer.data import DataGraph
from gossamer.engines.simulation import start_run
from gossamer.errors import GossamerError
from gossamer.reporting import write_report
from gossamer.runs import directory, new_folders
from gossamer.runs.observers import Observer
from gossamer.runs.run import Run
from gossamer.runs.settings import Settings, make_settings
from gossamer.runs.training import ShouldStop, run_training

STEPS = 9


def settings_for(update: str, dtype: str) -> Settings:
    return make_settings(
        {
            "preset": "paper",
            "dataset": "case",
            "agents": 4,
            "hidden": 5,
            "update": update,
            "step_size": 0.02,
            "steps": STEPS,
            "consensus_every": 2,
            "evaluate_every": 3,
            "checkpoint_every": 4,
            "initial_deviation": 0.3,
            "dtype": dtype,
            "topology": "complete",
        }
    )


def stop_after(step: int) -> ShouldStop:
    calls = iter(range(10**6))
    return lambda: next(calls) >= step


def stop_and_resume(graph: DataGraph, settings: Settings, stop: int, folder: Path) -> Run:
    """A run that is stopped after so many steps, and resumed from its checkpoint."""
    new_folders.create(folder)
    part = start_run(graph, settings)
    directory.save_start(folder, part)
    run_training(part, should_stop=stop_after(stop))
    assert part.host.step == stop
    directory.save_checkpoint(folder, part)
    return run_training(directory.read_run(folder, graph, start_run))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("update", ["gd", "momentum", "adam"])
def test_resumed_at_any_step_gives_the_same_bits(update: str, dtype: str, tmp_path: Path) -> None:
    graph = make_case(n=40).graph
    settings = settings_for(update, dtype)
    whole = run_training(start_run(graph, settings))
    for stop in range(STEPS + 1):
        again = stop_and_resume(graph, settings, stop, tmp_path / str(stop))
        for name, expected in whole.host.params.items():
            assert torch.equal(again.host.params[name], expected), (stop, name)
        for name, expected in whole.host.state.items():
            assert torch.equal(again.host.state[name], expected), (stop, name)
        assert again.history == whole.history


def test_a_run_from_before_relays_goes_on_dropping_edges(tmp_path: Path) -> None:
    """Its run.json has neither the setting nor the share and the rows that are relayed."""
    graph = make_case(n=40).graph
    settings = settings_for("gd", "float64").model_copy(update={"topology": "line", "lost_edges": "drop"})
    whole, folder = run_training(start_run(graph, settings)), tmp_path / "run"
    new_folders.create(folder)
    part = start_run(graph, settings)
    directory.save_start(folder, part)
    run_training(part, should_stop=stop_after(4))
    directory.save_checkpoint(folder, part)
    content = json.loads((folder / "run.json").read_text())
    assert content["settings"].pop("lost_edges") == "drop"
    assert content["summary"].pop("edges_relayed") == 0.0
    assert content["summary"]["messages"].pop("relayed") == {"rows": 0, "row_hops": 0, "bytes": 0}
    (folder / "run.json").write_text(json.dumps(content))
    text = write_report(folder).path.read_text()
    assert "data edges relayed over agents between" in text
    again = run_training(directory.read_run(folder, graph, start_run))
    assert again.deployment.edges_kept < 1
    for name, expected in whole.host.params.items():
        assert torch.equal(again.host.params[name], expected), name
    assert again.history == whole.history


@pytest.mark.parametrize(
    "changes",
    [
        {"compress": "power:1,bits=8", "track": True},
        {"compress": "power:1", "consensus_every": 1},
        {"compress": "choco:topk=0.2", "track": True},
        {"compress": "choco:randk=0.2"},
        {"compress": "choco:topk=0.2", "track": True, "layers": "gat", "attention_dropout": 0.3, "norm": "layer"},
    ],
    ids=str,
)
def test_what_consensus_remembers_is_resumed_with_the_same_bits(changes: dict[str, Any], tmp_path: Path) -> None:
    graph = make_case(n=40).graph
    settings = settings_for("momentum", "float32").model_copy(update=changes)
    whole = run_training(start_run(graph, settings))
    assert any(name.startswith("weights.") for name in whole.host.state)
    for stop in (3, 4, 5):
        again = stop_and_resume(graph, settings, stop, tmp_path / str(stop))
        assert again.host.state.keys() == whole.host.state.keys()
        for name, expected in {**whole.host.params, **whole.host.state}.items():
            assert torch.equal({**again.host.params, **again.host.state}[name], expected), (stop, name)


@pytest.mark.parametrize("update", ["momentum", "adam"])
def test_resumed_inside_an_epoch_of_mini_batches_gives_the_same_bits(update: str, tmp_path: Path) -> None:
    graph = make_case(n=40, batch=12).graph
    settings = settings_for(update, "float32").model_copy(update={"batch": 3})
    assert 1 < graph.train.any(0).sum() // 3 < STEPS
    whole = run_training(start_run(graph, settings))
    for stop in range(STEPS + 1):
        again = stop_and_resume(graph, settings, stop, tmp_path / str(stop))
        for name, expected in whole.host.params.items():
            assert torch.equal(again.host.params[name], expected), (stop, name)
        assert again.history == whole.history


def test_a_killed_run_goes_on_from_its_last_checkpoint(tmp_path: Path) -> None:
    """Metrics may run ahead of the checkpoint; what lies after it is dropped and computed again."""
    graph = make_case(n=40).graph
    settings = settings_for("momentum", "float32")
    new_folders.create(tmp_path / "run")
    part = start_run(graph, settings)
    directory.save_start(tmp_path / "run", part)

    def crash(step: int, loss: float) -> None:
        if step == 7:
            raise RuntimeError("killed")

    with pytest.raises(RuntimeError):
        run_training(part, [Observer(on_step=crash), directory.make_saver(tmp_path / "run", part)])
    metrics = tmp_path / "run" / "metrics.jsonl"
    assert [json.loads(line)["step"] for line in metrics.read_text().splitlines()] == [0, 3, 6]
    with metrics.open("a") as file:
        file.write('{"step": 9, "train"')  # killed while it wrote
    again = directory.read_run(tmp_path / "run", graph, start_run)
    assert again.host.step == 4
    assert [record["step"] for record in again.history] == [0, 3]
    whole = run_training(start_run(graph, settings))
    assert torch.equal(run_training(again).host.params["layer.0.weight"], whole.host.params["layer.0.weight"])


def test_more_steps_can_be_asked_for_and_fewer_cannot(tmp_path: Path) -> None:
    graph = make_case(n=40).graph
    settings = settings_for("gd", "float64")
    new_folders.create(tmp_path / "run")
    done = run_training(start_run(graph, settings))
    directory.save_start(tmp_path / "run", done)
    directory.save_checkpoint(tmp_path / "run", done)
    longer = run_training(directory.read_run(tmp_path / "run", graph, start_run, steps=15))
    whole = run_training(start_run(graph, settings.model_copy(update={"steps": 15})))
    assert torch.equal(longer.host.params["layer.0.weight"], whole.host.params["layer.0.weight"])
    with pytest.raises(GossamerError, match="has done 9 steps already, asked for 5"):
        directory.read_run(tmp_path / "run", graph, start_run, steps=5)


def test_other_data_is_refused(tmp_path: Path) -> None:
    settings = settings_for("gd", "float64")
    new_folders.create(tmp_path / "run")
    run = start_run(make_case(n=40).graph, settings)
    directory.save_start(tmp_path / "run", run)
    with pytest.raises(GossamerError, match="not the one that"):
        directory.read_run(tmp_path / "run", make_case(n=40, seed=1).graph, start_run)


@pytest.mark.parametrize(("threads", "expected"), [(0, 1), (2, 2)])
def test_threads_are_set_for_the_run_and_put_back(threads: int, expected: int) -> None:
    settings = settings_for("gd", "float32").model_copy(update={"threads": threads})
    torch.set_num_threads(3)
    seen = set()
    run_training(
        start_run(make_case(n=40).graph, settings),
        [Observer(on_step=lambda step, loss: seen.add(torch.get_num_threads()))],
    )
    assert seen == {expected}
    assert torch.get_num_threads() == 3
    torch.set_num_threads(1)


def test_divergence_is_reported() -> None:
    graph = make_case(n=40).graph
    settings = settings_for("gd", "float32").model_copy(update={"step_size": 1e12, "weight_decay": 1.0, "steps": 200})
    with pytest.raises(GossamerError, match="diverged; try a smaller --step-size"):
        run_training(start_run(graph, settings))
