"""Clocks, peaks of memory, and steps to be timed."""

import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from gossamer.agents import Host, training_step
from gossamer.data import DataGraph
from gossamer.engines.simulation import run
from gossamer.runs.deployment import Deployment, make_deployment
from gossamer.runs.hosts import build_host
from gossamer.runs.memory import keep_memory
from gossamer.runs.settings import make_settings

Step = Callable[[], object]


def timed(action: Callable[[], Any]) -> tuple[float, Any]:
    began = time.perf_counter()
    found = action()
    return time.perf_counter() - began, found


def on_the_processor(action: Callable[[], Any]) -> tuple[float, Any]:
    """Seconds that all threads together computed."""
    began = time.process_time()
    found = action()
    return time.process_time() - began, found


def median_step(step: Step, rounds: int) -> float:
    """Processor seconds of a step on one thread, after one that is not counted; a busy machine changes them little."""
    with keep_memory():
        step()
        return statistics.median(on_the_processor(step)[0] for _ in range(rounds))


def high_water_mark() -> int:
    """The most memory that this process has held so far, in bytes (Linux)."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    return 1024 * int(line.split()[1])


def deployed(graph: DataGraph, agents: int, hidden: int = 64, **settings: Any) -> tuple[Deployment, Host]:
    """A deployment with streamed parts on the links that the data need, and its host."""
    chosen = {"agents": agents, "assignment": "streaming", "topology": "needed", "hidden": hidden, **settings}
    how = make_settings({"preset": "paper", **chosen})
    deployment = make_deployment(graph, how)
    return deployment, build_host(deployment, how)


def distributed(host: Host) -> Step:
    state = [host]

    def step() -> None:
        state[0], _ = run(training_step(state[0]))

    return step


def plain_product(graph: DataGraph, width: int) -> Step:
    """A sparse product of the adjacency with `width` columns, for comparison."""
    from gossamer.model.sparse import make_operator

    operator = make_operator(graph.adjacency, torch.float32)
    dense = torch.ones(graph.num_vertices, width)
    return lambda: operator @ dense


def exponent(sizes: list[int], seconds: list[float]) -> float:
    """b in seconds ~ size^b, from the first to the last."""
    return float(np.log(seconds[-1] / seconds[0]) / np.log(sizes[-1] / sizes[0]))
