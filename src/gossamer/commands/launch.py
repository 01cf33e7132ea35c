"""`gossamer launch`: every agent as a process of its own on this machine, with one table for all."""

import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.live import Live
from rich.markup import escape

from gossamer.commands import logs
from gossamer.commands.common import (
    INTERRUPTED,
    combine_settings,
    err,
    load_data,
    print_json,
    print_line,
    report_errors,
    show_progress,
)
from gossamer.commands.options import AsJson, Dataset, LogLevel, RecordMessages, RunDirectory, with_settings
from gossamer.errors import GossamerError
from gossamer.runs.options import Options

if TYPE_CHECKING:
    from gossamer.api import Result
    from gossamer.data import DataGraph
    from gossamer.runs.run import Run

EXAMPLES = """[bold]Examples[/]

gossamer launch cora --agents 6

gossamer launch digits --agents 4 --steps 100 --update adam --step-size 0.01

gossamer launch digits --agents 4 --steps 60 --record --out runs/recorded

gossamer launch --resume runs/cora-1
"""


@report_errors
@with_settings()
def launch(
    dataset: Dataset = None,
    out: RunDirectory = None,
    resume: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Go on with the agents of a launch that was interrupted.", show_default=False),
    ] = None,
    record: RecordMessages = False,
    as_json: AsJson = False,
    log_level: LogLevel = "warning",
    *,
    options: Options,
) -> None:
    """Train with one process an agent on this machine, over encrypted loopback connections.

    Cuts shards, starts the agents, shows where each stands, and gathers what they have learnt into a run directory.
    Simulate the same with gossamer train --secrets RUN/secrets.json. With --record, gossamer audit RUN reads the
    messages that were really sent. Interrupted, it goes on with --resume RUN, from the agents' checkpoints.
    """
    logs.configure(log_level)
    from gossamer import launching
    from gossamer.report import terminal
    from gossamer.runs import directory, new_folders

    if resume is not None:
        if dataset is not None or out is not None or options:
            raise GossamerError("--resume goes on with the launch's own settings; leave all other settings away")
        with directory.lock_run(resume):
            graph, state, folders = launching.resume_launch(resume)
            result, folder = _run_agents(state, graph, resume, folders, record), resume
    else:
        settings = combine_settings(dataset, options)
        graph = load_data(settings)
        folder = out or new_folders.find_free_name(Path("runs"), graph.name)
        new_folders.check_new(folder)
        with show_progress() as (_, _, progress):
            state = launching.prepare(graph, settings, progress)
        with new_folders.create_locked(folder):
            result = _run_agents(state, graph, folder, launching.cut_agents(state, folder), record)
    if as_json:
        print_json(result.summary)
    else:
        terminal.show_result(Console(), result.run, result.summary, folder)
    if not result.complete:
        _say_how_to_go_on("train", folder)
        raise typer.Exit(INTERRUPTED)


def _run_agents(state: "Run", graph: "DataGraph", folder: Path, folders: list[Path], record: bool) -> "Result":
    """Run the agents' processes to their end, and gather their results."""
    from gossamer import launching
    from gossamer.observers.plain_lines import make_report_writer
    from gossamer.peers.evaluation_log import score_agents
    from gossamer.peers.local_processes import LocalProcesses
    from gossamer.peers.staged_work import count_protocol_steps
    from gossamer.report import agent_tables
    from gossamer.runs.memory import keep_memory

    task, score = state.host.task, state.score.key(binned=True)
    began = time.monotonic()
    m, steps = state.deployment.num_agents, count_protocol_steps(state.whole_settings)
    measure = partial(score_agents, task=task, width=graph.num_outputs, scale=state.target_scale)
    write_lines = make_report_writer(print_line, m, steps, score, measure)
    try:
        with (
            LocalProcesses(folders, record) as processes,
            Live(console=err, refresh_per_second=4, transient=True) as live,
        ):
            for reports in processes.follow():
                if err.is_terminal:
                    live.update(agent_tables.process_table(reports, m, steps, score, measure))
                else:
                    write_lines(reports)
    except (KeyboardInterrupt, GossamerError):
        _say_how_to_go_on("launch", folder)
        raise
    state.seconds = time.monotonic() - began
    with keep_memory(), show_progress() as (display, should_stop, _):
        return launching.gather_launch(graph, state, folders, folder, should_stop, display)


def _say_how_to_go_on(command: str, folder: Path) -> None:
    err.print(
        f"[yellow]stopped[/]; go on with [bold]gossamer {command} --resume {escape(str(folder))}[/]",
        highlight=False,
        soft_wrap=True,
    )
