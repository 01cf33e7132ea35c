"""`gossamer launch`: every agent as a process of its own on this machine, with one table for all."""

import time
from contextlib import nullcontext
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
from gossamer.commands.options import (
    AsJson,
    Dataset,
    LogLevel,
    Metrics,
    Page,
    PageTokenFile,
    RecordMessages,
    RunDirectory,
    with_settings,
)
from gossamer.commands.watching import Watch, WatchOptions, join_displays, print_watch_hint, publish, watch_run
from gossamer.errors import GossamerError
from gossamer.runs.options import Options

if TYPE_CHECKING:
    from gossamer.api import Result
    from gossamer.launching import Launch
    from gossamer.peers.rehearsal.timeline import Timeline
    from gossamer.report.live.folders import FolderSource

EXAMPLES = """[bold]Examples[/]

gossamer launch cora --agents 6

gossamer launch digits --agents 4 --steps 100 --update adam --step-size 0.01

gossamer launch digits --agents 4 --steps 60 --record --out runs/recorded

gossamer launch cora --agents 6 --page 127.0.0.1:8080

gossamer launch --resume runs/cora-1

gossamer launch cora --agents 6 --evict-after 3 --script rehearsal.toml
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
    script: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Rehearse what may happen: events by step, as kill, leave, join and cut (gossamer docs deployment).",
            show_default=False,
        ),
    ] = None,
    record: RecordMessages = False,
    page: Page = None,
    page_token_file: PageTokenFile = None,
    metrics: Metrics = None,
    as_json: AsJson = False,
    log_level: LogLevel = "warning",
    *,
    options: Options,
) -> None:
    """Train with one process an agent on this machine, over encrypted loopback connections.

    Cuts shards, starts the agents, shows where each stands, and gathers what they have learnt into a run directory.
    Simulate the same with gossamer train --secrets RUN/secrets.json. With --record, gossamer audit RUN reads the
    messages that were really sent. Interrupted, it goes on with --resume RUN, from the agents' checkpoints. With
    --evict-after agents may leave and join: memberships.png shows what happened.
    """
    logs.configure(log_level)
    from gossamer import launching
    from gossamer.peers.rehearsal.script import read_script
    from gossamer.runs import directory, new_folders

    watched = WatchOptions(page, metrics, page_token_file)
    if resume is not None:
        if dataset is not None or out is not None or script is not None or options:
            raise GossamerError("--resume goes on with the launch's own settings; leave all other settings away")
        with directory.lock_run(resume), watch_run(watched) as watch:
            launched, folders = launching.resume_launch(resume)
            result = _run_agents(launched, resume, folders, record, as_json, watch)
        folder = resume
    else:
        settings = combine_settings(dataset, options)
        events = () if script is None else read_script(script, settings)
        with watch_run(watched) as watch:
            graph = load_data(settings)
            folder = out or new_folders.find_free_name(Path("runs"), graph.name)
            new_folders.check_new(folder)
            if watch is not None:
                watch.announce()
            with show_progress() as (_, _, progress):
                launched = launching.prepare(graph, settings, progress, events)
            with new_folders.create_locked(folder):
                folders = launching.cut_agents(launched, folder)
                if script is not None:
                    launching.keep_script(script, folder)
                result = _run_agents(launched, folder, folders, record, as_json, watch)
    print_watch_hint(watched, folder)
    if not result.complete:
        _say_how_to_go_on("train", folder)
        raise typer.Exit(INTERRUPTED)


def _run_agents(
    launched: "Launch", folder: Path, folders: list[Path], record: bool, as_json: bool, watch: Watch | None
) -> "Result":
    """Run the agents' processes to their end, gather their results and show them."""
    from gossamer import launching
    from gossamer.report import terminal
    from gossamer.report.live.folders import FolderSource
    from gossamer.runs.memory import keep_memory

    source = None if watch is None else FolderSource(watch.feed, watch.log, folder)
    with nullcontext() if watch is None or source is None else publish(watch, source):
        try:
            timeline = _follow_agents(launched, folders, record, source)
        except (KeyboardInterrupt, GossamerError):
            if not launched.events:
                _say_how_to_go_on("launch", folder)
            raise
        launched.run.seconds = timeline.seconds
        with keep_memory(), show_progress() as (display, should_stop, _):
            show = display if source is None else join_displays(display, source.follow)
            result = launching.gather_launch(launched, folders, folder, timeline, should_stop, show)
    if as_json:
        print_json(result.summary)
        return result
    terminal.show_result(Console(), result.run, result.summary, folder)
    if launched.may_change:
        from gossamer.report.timeline_tables import show_timeline

        show_timeline(Console(), timeline, folder)
    return result


def _follow_agents(launched: "Launch", folders: list[Path], record: bool, source: "FolderSource | None") -> "Timeline":
    """Run the agents' processes to their end, with what a script makes happen; show where they stand."""
    from gossamer.observers.plain_lines import make_event_writer, make_report_writer
    from gossamer.peers.evaluation_log import score_agents
    from gossamer.peers.local_processes import LocalProcesses
    from gossamer.peers.rehearsal.player import Player
    from gossamer.peers.rehearsal.timeline import Timeline
    from gossamer.peers.staged_work import count_protocol_steps
    from gossamer.report import agent_tables

    run, print_event = launched.run, make_event_writer(print_line)

    def write_event(text: str) -> None:
        print_event(text)
        if source is not None:
            source.add_event(text)

    score, steps = run.score.key(binned=True), count_protocol_steps(run.whole_settings)
    m, changes = run.deployment.num_agents, launched.may_change
    width = launched.graph.num_outputs
    measure = partial(score_agents, task=run.host.task, width=width, scale=run.target_scale)
    write_lines = make_report_writer(print_line, m, steps, score, measure)
    timeline = Timeline(score, steps, len(folders), time.monotonic(), on_membership=print_event)
    if source is not None:
        source.memberships.went_on = timeline.went_on
        source.clock = lambda: timeline.seconds

    def show_failure(agent: int, why: str) -> None:
        if not any(event.kind == "kill" and event.agents == (agent,) for event in timeline.events):
            write_event(f"{why}; the others go on without it")

    with (
        LocalProcesses(folders, record, run.whole_settings.evict_after, m, show_failure) as processes,
        Live(console=err, refresh_per_second=4, transient=True) as live,
    ):
        player = Player(launched.events, processes, folders, timeline, write_event)
        for reports in processes.follow():
            now, members = time.monotonic(), processes.members
            timeline.follow(members, processes.standings, now)
            player.play(now)
            if err.is_terminal:
                standings = processes.standings if changes else None
                live.update(agent_tables.process_table(reports, len(folders), steps, score, measure, standings))
            elif changes:
                write_lines(members, timeline.num_members)
            else:
                write_lines(reports)
        player.finish()
    return timeline


def _say_how_to_go_on(command: str, folder: Path) -> None:
    err.print(
        f"[yellow]stopped[/]; go on with [bold]gossamer {command} --resume {escape(str(folder))}[/]",
        highlight=False,
        soft_wrap=True,
    )
