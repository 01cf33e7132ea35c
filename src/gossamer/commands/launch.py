"""`gossamer launch`: every agent as a process of its own on this machine, with one table for all."""

import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.live import Live

from gossamer.commands import logs
from gossamer.commands.common import (
    combine_settings,
    err,
    load_data,
    print_json,
    print_line,
    report_errors,
    show_progress,
)
from gossamer.commands.options import AsJson, Dataset, LogLevel, RecordMessages, RunDirectory, with_settings
from gossamer.runs.options import Options

if TYPE_CHECKING:
    from gossamer.api import Result
    from gossamer.data import DataGraph
    from gossamer.runs.run import Run

EXAMPLES = """[bold]Examples[/]

gossamer launch cora --agents 6

gossamer launch digits --agents 4 --steps 100 --update adam --step-size 0.01

gossamer launch digits --agents 4 --steps 60 --record --out runs/recorded
"""


@report_errors
@with_settings()
def launch(
    dataset: Dataset = None,
    out: RunDirectory = None,
    record: RecordMessages = False,
    as_json: AsJson = False,
    log_level: LogLevel = "warning",
    *,
    options: Options,
) -> None:
    """Train with one process an agent on this machine, over encrypted loopback connections.

    Cuts shards, starts the agents, shows where each stands, and gathers what they have learnt into a run directory.
    Simulate the same with gossamer train --secrets RUN/secrets.json. With --record, gossamer audit RUN reads the
    messages that were really sent.
    """
    logs.configure(log_level)
    settings = combine_settings(dataset, options)
    from gossamer import launching
    from gossamer.report import terminal
    from gossamer.runs import new_folders

    graph = load_data(settings)
    folder = out or new_folders.find_free_name(Path("runs"), graph.name)
    new_folders.check_new(folder)
    with show_progress() as (_, _, progress):
        state = launching.prepare(graph, settings, progress)
    with new_folders.create_locked(folder):
        result = _launch(state, graph, folder, record)
    if as_json:
        print_json(result.summary)
    else:
        terminal.show_result(Console(), result.run, result.summary, folder)


def _launch(state: "Run", graph: "DataGraph", folder: Path, record: bool) -> "Result":
    from gossamer import launching
    from gossamer.observers.plain_lines import make_report_writer
    from gossamer.peers.evaluation_log import score_agents
    from gossamer.peers.local_processes import LocalProcesses, write_local_shards
    from gossamer.peers.staged_work import count_protocol_steps
    from gossamer.report import agent_tables
    from gossamer.runs import directory
    from gossamer.runs.memory import keep_memory

    directory.save_start(folder, state)
    folders = write_local_shards(folder / "agents", state.deployment, state.whole_settings, state.secrets)
    task, score = state.host.task, state.score.key(binned=True)
    began = time.monotonic()
    m, steps = state.deployment.num_agents, count_protocol_steps(state.whole_settings)
    measure = partial(score_agents, task=task, width=graph.num_outputs, scale=state.target_scale)
    write_lines = make_report_writer(print_line, m, steps, score, measure)
    with LocalProcesses(folders, record) as processes, Live(console=err, refresh_per_second=4, transient=True) as live:
        for reports in processes.follow():
            if err.is_terminal:
                live.update(agent_tables.process_table(reports, m, steps, score, measure))
            else:
                write_lines(reports)
    state.seconds = time.monotonic() - began
    with keep_memory(), show_progress() as (display, should_stop, _):
        return launching.gather(graph, state, folders, folder, should_stop, display)
