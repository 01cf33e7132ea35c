"""Small runs that sources follow, and what the processes of agents leave behind."""

import json
import os
import socket
import subprocess
import sys
import time
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from gossamer import launching
from gossamer.data import DataGraph, make_graph
from gossamer.report.live.feed import Feed
from gossamer.report.live.view import RunView
from gossamer.runs.settings import make_settings

OPTIONS: dict[str, Any] = {
    "agents": 3, "topology": "line", "hidden": 3, "steps": 6, "evaluate_every": 2, "checkpoint_every": 4,
    "consensus_every": 2,
}  # fmt: skip


def make_small_graph() -> DataGraph:
    """Twelve vertices in a chain of triangles."""
    random = np.random.default_rng(0)
    edges = [(i, i + 1) for i in range(11)] + [(i, i + 2) for i in range(10)]
    places = np.arange(12)
    return make_graph(
        "small", np.array(edges), random.standard_normal((12, 4)), places % 2, train=places % 3 == 0,
        validation=places % 3 == 1, test=places % 3 == 2,
    )  # fmt: skip


class SeenFeed(Feed):
    """A feed that keeps all that was published."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[RunView] = []

    def publish(self, view: RunView) -> None:
        self.seen.append(view)
        super().publish(view)

    @property
    def last(self) -> RunView:
        return self.seen[-1]


def cut_agents(folder: Path, **changes: Any) -> list[Path]:
    """The folders of three agents, in which no process has trained yet."""
    settings = make_settings({"dataset": "small", **OPTIONS, **changes})
    launched = launching.prepare(make_small_graph(), settings, None)
    folder.mkdir()
    return launching.cut_agents(launched, folder)


def make_report(agent: int, **changes: Any) -> dict[str, Any]:
    """A report of an agent, as its process leaves it."""
    metrics = {
        "step": 4,
        "train": [3.0, 2.0, 2.0],
        "validation": [1.0, 1.0, 1.0],
        "test": [1.0, 1.0, 1.0],
    }
    return {
        "agent": agent, "step": 4, "planning": False, "epoch": 2, "finished": False, "all_done": False,
        "neighbours": [1] if agent != 1 else [0, 2], "waiting_for": [], "waited": 0.0, "bytes_in": 10, "bytes_out": 20,
        "links": {}, "refused": {}, "refused_from": {}, "dropped": 0, "cpu_seconds": 1.0, "metrics": metrics,
        "steps": 6, "serving": False, "time": time.time(), "process": os.getpid(), **changes,
    }  # fmt: skip


def leave_report(folder: Path, agent: int, runs: bool = True, **changes: Any) -> Path:
    """Leave a report in the folder of an agent, and the lock of this process if the agent's process `runs`; the folder
    of its run."""
    (state,) = folder.glob("run-*")
    (state / "status.json").write_text(json.dumps(make_report(agent, **changes)))
    number = os.getpid() if runs else find_free_process()
    (state / ".lock").write_text(f"process {number} on {socket.gethostname()}\n")
    return state


@cache
def find_free_process() -> int:
    """The number of a process that has ended."""
    done = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], stdout=subprocess.PIPE, timeout=60)
    return int(done.stdout)
