"""`gossamer peer`: one agent of a deployment, in this process, over the network."""

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from gossamer.commands import logs
from gossamer.commands.common import err, print_error, print_json, report_errors
from gossamer.commands.options import LogLevel, Metrics, Page, PageTokenFile, RecordMessages
from gossamer.commands.watching import Watch, WatchOptions, publish, watch_run
from gossamer.files import PRIVATE
from gossamer.peers.network.addresses import check_address

if TYPE_CHECKING:
    from gossamer.peers.process import PeerOptions
    from gossamer.peers.progress import PeerReport

SHOWN_EVERY = 1.0  # seconds between two reports to those who watch
NEIGHBOUR_MISSING, LEFT_EARLY, WITHOUT_AGENT, TERMINATED = 4, 5, 6, 143  # exit codes
EXAMPLES = """[bold]Examples[/]

gossamer peer shards/agent-3

gossamer peer shards/agent-3 --give-up 600

gossamer peer shards/agent-3 --record

gossamer peer shards/agent-3 --serve

gossamer peer shards/agent-3 --page 127.0.0.1:8080 --metrics 127.0.0.1:9100
"""


@report_errors
def peer(
    folder: Annotated[Path, typer.Argument(metavar="SHARD", help="The agent's folder.", show_default=False)],
    give_up: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            min=0,
            help="End with exit code 4 when a neighbour is missing for so long.",
            show_default=False,
        ),
    ] = None,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="No encryption and no keys: for a lab network that you trust.")
    ] = False,
    listen: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT", help="Listen here, where others reach it by another address.", show_default=False
        ),
    ] = None,
    address: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT",
            help="Where neighbours reach this agent from now on, where agents may leave and join.",
            show_default=False,
        ),
    ] = None,
    record: RecordMessages = False,
    serve: Annotated[
        bool,
        typer.Option("--serve", help="Stay when all agents have finished, and answer gossamer predict, until Ctrl-C."),
    ] = False,
    report: Annotated[bool, typer.Option("--report", help="Print a line of JSON twice a second.")] = False,
    page: Page = None,
    page_token_file: PageTokenFile = None,
    metrics: Metrics = None,
    lifeline: Annotated[bool, typer.Option("--lifeline", hidden=True)] = False,
    log_level: LogLevel = "info",
) -> None:
    """Train one agent with its neighbours, which run elsewhere.

    Needs the shard alone. Killed and started again it rejoins: all agents go back to the latest step that everyone can
    restore, and on. Where agents may leave and join (--evict-after) one that was removed asks to join again. Exit
    codes: 0 all agents have finished, or this one has left; 2 a mistake; 4 a neighbour stayed away; 5 this agent has
    finished and left before it knew that all had; 6 the run has finished without this agent.
    """
    logs.configure(log_level)
    from gossamer.peers.driving import LeftEarlyError, MissingNeighbourError, RunWithoutAgentError
    from gossamer.peers.process import PeerOptions, run_peer
    from gossamer.runs.memory import keep_memory

    if insecure:
        err.print(
            "[bold red]--insecure:[/] messages are neither encrypted nor authenticated; anyone on this network can "
            "read and change the training",
            highlight=False,
        )
    if serve:
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(TERMINATED))  # so that what serving leaves is removed
    if lifeline:
        threading.Thread(target=_leave_with_parent, daemon=True).start()
    if address is not None:
        check_address(address, "--address")
    options = PeerOptions(
        report_every=2.0, give_up=give_up, record=record, serve=serve, on_finished=_show_result, address=address
    )
    if report:
        options = replace(options, on_report=print_json, report_every=0.5, on_finished=lambda state: None)
    try:
        with (
            watch_run(WatchOptions(page, metrics, page_token_file)) as watch,
            nullcontext(options) if watch is None else _show(watch, folder, options) as followed,
            keep_memory(),
        ):
            run_peer(folder, followed, insecure, check_address(listen, "--listen") if listen else None)
    except (MissingNeighbourError, LeftEarlyError, RunWithoutAgentError) as error:
        codes = {MissingNeighbourError: NEIGHBOUR_MISSING, LeftEarlyError: LEFT_EARLY}
        print_error(error)
        raise typer.Exit(codes.get(type(error), WITHOUT_AGENT)) from None


@contextmanager
def _show(watch: Watch, folder: Path, options: "PeerOptions") -> "Iterator[PeerOptions]":
    """Options by which the agent's reports go to those who watch it, too, at least once a second."""
    from gossamer.report.live.own_page import PeerSource

    source = PeerSource(watch.feed, watch.log, folder)

    def pass_on(report: "PeerReport") -> None:
        options.on_report(report)
        source.follow(report)

    with publish(watch, source):
        yield replace(options, on_report=pass_on, report_every=min(options.report_every, SHOWN_EVERY))


def _show_result(folder: Path) -> None:
    """Print and draw what an agent knows of its run."""
    from gossamer.agents.scores import choose_score
    from gossamer.data.tasks import infer_stored_task
    from gossamer.report.agent_tables import show_agent_result
    from gossamer.report.curves import draw_curves
    from gossamer.runs.evaluations import read_evaluations
    from gossamer.runs.manifests import Evaluation
    from gossamer.runs.run_json import read_manifest, read_run_settings

    manifest, settings = read_manifest(folder), read_run_settings(folder)
    agent, data = manifest.agent or 0, manifest.data
    if (folder / "metrics.jsonl").is_file():
        history: Any = read_evaluations(folder / "metrics.jsonl", Evaluation)
        score = choose_score(settings.score, infer_stored_task(data.task, data.class_names))
        title = f"{data.name}, {settings.agents} agents"
        draw_curves(folder / "curves.png", {"distributed": history}, score, title, PRIVATE)
    show_agent_result(Console(), agent, folder, manifest)


def _leave_with_parent() -> None:
    """End this process with its parent, which keeps the other end of standard input open as long as it lives."""
    while os.read(0, 1):
        pass
    os._exit(1)
