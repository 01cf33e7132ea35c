"""Peers for tests: a problem cut into shards, run over sockets, in memory or as processes, and checked."""

import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from peers.memory import Hub

from gossamer.agents.step import training_step
from gossamer.engines.simulation import run
from gossamer.experiments.theory import draw_block_graph
from gossamer.peers.agent_folders import run_folder
from gossamer.peers.process import PeerOptions, run_peer, train_agent
from gossamer.peers.shards.shard import read_shard
from gossamer.runs.deployment import Deployment, make_deployment
from gossamer.runs.hosts import build_host
from gossamer.runs.settings import Settings, make_settings
from gossamer.runs.tensors import read_tensors

M, STEPS = 4, 50
Run = Callable[[Path, PeerOptions], Any]


def deployed(**changes: Any) -> tuple[Deployment, Settings]:
    """120 vertices on a ring of 4 agents, the last of which has no label."""
    settings = make_settings(
        {"preset": "paper", "dataset": "blocks", "agents": M, "topology": "ring", "steps": STEPS, "hidden": 8,
         "dtype": "float64", "evaluate_every": 25, "checkpoint_every": 10, "step_size": 0.1, "initial_deviation": 0.3,
         "public_randomness": True, **changes}
    )  # fmt: skip
    graph = draw_block_graph()
    owner = make_deployment(graph, settings).assignment
    return make_deployment(replace(graph, train=graph.train & (owner != M - 1)), settings, assignment=owner), settings


def simulated(deployment: Deployment, settings: Settings) -> dict[str, torch.Tensor]:
    host = build_host(deployment, settings)
    for _ in range(settings.steps):
        host, _ = run(training_step(host))
    return host.params


def over(hub: Hub) -> Run:
    """A peer whose messages stay in this process."""

    def run_over(folder: Path, watch: PeerOptions) -> None:
        shard = read_shard(folder)
        own = shard.membership
        train_agent(lambda largest, _: hub.open(own.agent, own.neighbours, largest), folder, shard, watch)

    return run_over


def in_threads(folders: list[Path], watch: PeerOptions | None = None, run: Run = run_peer) -> list[BaseException]:
    """Run peers side by side in this process; what they fail with."""
    failures: list[BaseException] = []

    def one(folder: Path) -> None:
        try:
            run(folder, watch or PeerOptions(give_up=60))
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=one, args=(folder,)) for folder in folders]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=120)
        assert not thread.is_alive(), "a peer hangs"
    return failures


def state_folder(folder: Path) -> Path:
    """The folder of the run within an agent's shard."""
    return run_folder(folder, read_shard(folder).membership)


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return read_tensors(state_folder(folder) / "weights.safetensors")


def check(folders: list[Path], expected: dict[str, torch.Tensor], tolerance: float = 1e-10) -> None:
    """Every agent has ended with the simulation's weights."""
    for k, folder in enumerate(folders):
        for name, part in weights(folder).items():
            torch.testing.assert_close(part[0], expected[name][k], rtol=0, atol=tolerance)
