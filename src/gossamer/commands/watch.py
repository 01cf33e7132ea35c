"""`gossamer watch`: the live page of a run that is on disk, while it goes on or afterwards."""

import threading
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from gossamer.commands import logs
from gossamer.commands.common import err, report_errors
from gossamer.commands.options import LogLevel, Metrics, PageTokenFile
from gossamer.commands.watching import PAGE_PORT, WatchOptions, publish, watch_run
from gossamer.report.live.addresses import LOOPBACK

EXAMPLES = """[bold]Examples[/]

gossamer watch runs/digits-1

gossamer watch runs/digits-1 --page 127.0.0.1:9000

gossamer watch shards
"""


@report_errors
def watch(
    run: Annotated[
        Path,
        typer.Argument(
            metavar="RUN",
            help="A run directory, a folder with the folders of agents, or one of these.",
            show_default=False,
        ),
    ],
    page: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT",
            help=f"Serve the page here. [dim]\\[default: {LOOPBACK}:{PAGE_PORT}, or a free port if that is taken][/]",
            show_default=False,
        ),
    ] = None,
    page_token_file: PageTokenFile = None,
    metrics: Metrics = None,
    log_level: LogLevel = "warning",
) -> None:
    """Show a run on a page in the browser, while it goes on or when it has ended, until Ctrl-C.

    Reads what train, launch, cluster or peers leave on this machine, and changes nothing. An agent whose process has
    ended, or has not reported for 15 s, is missing.
    """
    logs.configure(log_level)
    from gossamer.report.live.feed import Feed
    from gossamer.report.live.folders import FolderSource
    from gossamer.report.live.log_lines import LogLines

    feed, lines = Feed(), LogLines()
    source = FolderSource(feed, lines, run)
    options = WatchOptions(page or f"{LOOPBACK}:{PAGE_PORT}", metrics, page_token_file)
    with watch_run(options, feed, lines, free_port=page is None) as watch, suppress(KeyboardInterrupt):
        assert watch is not None  # a page is asked for
        with publish(watch, source):
            err.print("press Ctrl-C to end", highlight=False)
            threading.Event().wait()
