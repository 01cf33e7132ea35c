"""Peers, sites among them, choose the same step as the simulation, stop at the same step, and keep its weights."""

import json
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from peers import test_sites
from peers.harness import deployed, in_threads, over, state_folder
from peers.memory import Hub
from peers.processes import Agents, wait_until

from gossamer.agents.measures import mean_params
from gossamer.engines.simulation import Simulation
from gossamer.peers.local_processes import write_local_shards
from gossamer.runs.deployment import Deployment
from gossamer.runs.hosts import build_host
from gossamer.runs.run import Run
from gossamer.runs.settings import Settings
from gossamer.runs.tensors import read_tensors
from gossamer.runs.training import run_training

RECIPE: dict[str, Any] = {"update": "adam", "step_size": 0.03, "keep": "best", "evaluate_every": 2, "bias": True}


def simulated(deployment: Deployment, settings: Settings) -> Run:
    return run_training(Run(settings, deployment, build_host(deployment, settings), "", Simulation()))


def check(folders: list[Path], expected: Run) -> None:
    best, mean = expected.history[-1]["best_step"], mean_params(expected.kept.params)
    for k, folder in enumerate(folders):
        kept, means = (read_tensors(folder / f"{name}.safetensors") for name in ("weights", "mean"))
        for name, part in expected.kept.params.items():
            torch.testing.assert_close(kept[name][0], part[k], rtol=0, atol=1e-10)
            torch.testing.assert_close(means[name][0], mean[name][0], rtol=0, atol=1e-10)
        lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
        by_step = {line["step"]: line for line in lines}
        assert max(by_step) == expected.host.step
        assert by_step[max(by_step)]["best_step"] == best
        for record in expected.history:
            whole = by_step[record["step"]]
            assert whole["disagreement"] == pytest.approx(record["disagreement"], rel=1e-8, abs=1e-12)
            assert whole["stationarity"] == pytest.approx(record["stationarity"], rel=1e-6, abs=1e-14)
            for mask in ("train", "validation", "test"):
                scores = record[mask]
                assert whole[mask]["accuracy"] == scores["accuracy"]
                assert whole[mask]["loss"] == pytest.approx(scores["loss"], abs=1e-10)


@pytest.mark.parametrize(
    "changes",
    [
        {"topology": "line", "weight_decay": 0.05},
        {"patience": 8, "steps": 400},
        {"patience": 7, "steps": 400},  # ends between two evaluations
        {"standardise": True, "consensus_every": 3},
    ],
    ids=str,
)
def test_peers_keep_the_weights_of_the_simulation(tmp_path: Path, changes: dict[str, Any]) -> None:
    deployment, settings = deployed(**RECIPE, **changes)
    folders = write_local_shards(tmp_path, deployment, settings)
    assert in_threads(folders, run=over(Hub())) == []
    expected = simulated(deployment, settings)
    assert expected.host.step < 400
    check([state_folder(folder) for folder in folders], expected)


def test_peers_that_are_killed_keep_the_same_weights(tmp_path: Path) -> None:
    deployment, settings = deployed(**RECIPE, steps=2000, patience=120)
    folders = write_local_shards(tmp_path, deployment, settings)
    kept = [state_folder(folder) for folder in folders]
    with Agents(folders) as agents:
        agents.start_all()
        for agent, step in ((1, 20), (3, 60)):
            wait_until((kept[agent] / f"checkpoint-{step}.safetensors").exists, f"step {step}")
            agents.signal(agent, signal.SIGKILL)
            agents.wait_killed(agent)
            agents.start(agent)
        agents.wait_finished()
    check(kept, simulated(deployment, settings))


@pytest.mark.parametrize("changes", [{}, {"standardise": True, "patience": 8}], ids=str)
def test_sites_keep_the_weights_of_the_whole(tmp_path: Path, changes: dict[str, Any]) -> None:
    raw, _ = deployed()
    deployment, settings = deployed(**RECIPE, **changes)
    paths = test_sites.write_sites(tmp_path, raw, settings)  # features as they are
    folders = test_sites.shards_of(paths, tmp_path / "shards")
    assert in_threads(folders, run=test_sites.over(Hub())) == []
    check([folder / f"run-{test_sites.RUN}" for folder in folders], simulated(deployment, settings))
