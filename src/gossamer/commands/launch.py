"""`gossamer launch`: every agent as a process of its own on this machine, with one table for all."""

import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.live import Live

from gossamer import launching
from gossamer.api import Result
from gossamer.commands.common import err, follow, load_data, settings_from, told_plainly
from gossamer.commands.options import AsJson, Dataset, RunDirectory, with_settings
from gossamer.data import DataGraph
from gossamer.peers.local_processes import LocalProcesses, write_local_shards
from gossamer.report import terminal
from gossamer.runs import directory
from gossamer.runs.documents import to_json
from gossamer.runs.training import Run

EXAMPLES = """[bold]Examples[/]

gossamer launch cora --agents 6

gossamer launch digits --agents 4 --steps 100 --update adam --step-size 0.01
"""


@told_plainly
@with_settings()
def launch(
    dataset: Dataset = None,
    out: RunDirectory = None,
    as_json: AsJson = False,
    *,
    options: dict[str, Any],
) -> None:
    """Train with one process an agent on this machine, over encrypted loopback connections.

    Cuts shards, starts the agents, shows where each stands, and gathers what they have learnt into a run directory.
    The result is the simulation's.
    """
    settings = settings_from(dataset, options)
    graph = load_data(settings)
    folder = out or directory.free_name(Path("runs"), graph.name)
    directory.check_new(folder)
    with follow() as (_, progress):
        state = launching.prepare(graph, settings, progress)
    with directory.claimed(folder):
        result = _launch(state, graph, folder)
    if as_json:
        print(to_json(result.summary))
    else:
        terminal.show_result(Console(), result.run, result.summary, folder)


def _launch(state: Run, graph: DataGraph, folder: Path) -> Result:
    directory.save_start(folder, state)
    folders = write_local_shards(folder / "agents", state.deployment, state.settings)
    classes = graph.num_classes is not None
    began = time.monotonic()
    with LocalProcesses(folders) as processes, Live(console=err, refresh_per_second=4, transient=True) as live:
        for reports in processes.follow():
            live.update(terminal.crew_table(reports, state.deployment.num_agents, state.settings.steps, classes))
    state.seconds = time.monotonic() - began
    with follow() as (hooks, _):
        return launching.gather(graph, state, folders, folder, hooks)
