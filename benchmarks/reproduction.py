"""Time to train many runs: one after the other, in worker processes, or stacked on one host. Prints ratios.

    python benchmarks/reproduction.py [--dataset cora] [--agents 10] [--runs 8] [--steps 100]

Everything with one thread a process. Stacked: the runs' graphs side by side as one graph, their agents on one host, C
block-diagonal; the arithmetic is the same, the calls are fewer.
"""

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy import sparse

from gossamer.agents.host import make_host
from gossamer.agents.step import training_step
from gossamer.data import load, make_graph
from gossamer.engines.simulation import run
from gossamer.experiments.reproduction import Cache
from gossamer.experiments.trials import num_workers, run_trials, train_alone
from gossamer.runs.deployment import make_deployment
from gossamer.runs.hosts import build_host
from gossamer.runs.settings import make_settings


def stacked(trials: list[dict[str, Any]]) -> float:
    """Seconds of all runs on one host, without evaluations."""
    deployments = []
    for trial in trials:
        settings = make_settings(trial)
        deployments.append(make_deployment(load(settings.dataset, settings.seed), settings))
    graphs = [d.graph for d in deployments]
    n, m = graphs[0].num_vertices, deployments[0].num_agents
    split: dict[str, Any] = {
        part: np.concatenate([getattr(g, part) for g in graphs]) for part in ("train", "validation", "test")
    }
    whole = make_graph(
        "stacked",
        np.concatenate([graph.edges + i * n for i, graph in enumerate(graphs)]),
        sparse.csr_array(sparse.vstack([graph.features for graph in graphs])),
        np.concatenate([graph.targets for graph in graphs]),
        **split,
    )
    host = make_host(
        whole,
        [
            (
                sparse.csr_array(sparse.block_diag([d.shift for d in deployments])),
                sparse.block_diag([d.combination for d in deployments]).toarray(),
            )
        ],
        deployments[0].network,
        np.concatenate([d.assignment + i * m for i, d in enumerate(deployments)]),
        range(m * len(trials)),
        build_host(deployments[0], settings).training,
    )
    began = time.perf_counter()
    for _ in range(settings.steps):
        host, _ = run(training_step(host))
    return time.perf_counter() - began


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--dataset", default="cora")
    options.add_argument("--agents", type=int, default=10)
    options.add_argument("--runs", type=int, default=8)
    options.add_argument("--steps", type=int, default=100)
    given = options.parse_args()
    torch.set_num_threads(1)
    base = {"preset": "paper", "dataset": given.dataset, "agents": given.agents, "update": "gd", "steps": given.steps}
    trials = [{**base, "evaluate_every": given.steps, "seed": seed} for seed in range(given.runs)]
    began = time.perf_counter()
    alone = sum(train_alone(trial)["seconds"] for trial in trials)
    in_turn = time.perf_counter() - began
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        run_trials(Cache(Path(folder)), trials, lambda *state: None)
    together = time.perf_counter() - began
    print(f"{given.runs} runs of {given.steps} steps, {given.dataset}, {given.agents} agents, one thread a process")
    print(f"one after the other      1.00  ({1e3 * alone / given.runs / given.steps:.2f} ms a step)")
    print(f"{num_workers()} worker processes       {together / in_turn:.2f}  (with their start, {together:.1f} s)")
    print(f"stacked on one host      {stacked(trials) / alone:.2f}  (steps alone)")


if __name__ == "__main__":
    main()
