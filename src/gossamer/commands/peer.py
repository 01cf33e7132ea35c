"""`gossamer peer`: one agent of a deployment, in this process, over the network."""

import os
import threading
from pathlib import Path
from typing import Annotated

import typer

from gossamer.commands.common import err, tell, told_plainly
from gossamer.commands.logs import LogLevel, LogLevelOption, configure
from gossamer.peers.network.addresses import check_address
from gossamer.peers.process import LeftEarlyError, MissingNeighbourError, PeerOptions, run_peer
from gossamer.peers.progress import PeerReport
from gossamer.report import terminal
from gossamer.runs.documents import to_json
from gossamer.runs.memory import kept_memory

MISSING_NEIGHBOUR, LEFT_EARLY = 4, 5  # exit codes: a neighbour stayed away; left before all had finished
EXAMPLES = """[bold]Examples[/]

gossamer peer shards/agent-3

gossamer peer shards/agent-3 --give-up 600
"""


@told_plainly
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
    report: Annotated[bool, typer.Option("--report", help="Print a line of JSON twice a second.")] = False,
    log_level: LogLevelOption = LogLevel.INFO,
    lifeline: Annotated[bool, typer.Option("--lifeline", hidden=True)] = False,
) -> None:
    """Train one agent with its neighbours, which run elsewhere.

    Needs the shard alone. Killed and started again it rejoins: all agents go back to the latest step that everyone can
    restore, and on. Exit codes: 0 all agents have finished, 2 a mistake, 4 a neighbour stayed away, 5 this agent has
    finished and left before it knew that all had.
    """
    configure(log_level)
    if insecure:
        err.print(
            "[bold red]--insecure:[/] messages are neither encrypted nor authenticated; anyone on this network can "
            "read and change the training",
            highlight=False,
        )
    if lifeline:
        threading.Thread(target=_leave_with_parent, daemon=True).start()
    options = PeerOptions(give_up=give_up, report_every=2.0)
    if report:
        options = PeerOptions(_print_json, give_up=give_up)
    try:
        with kept_memory():
            result = run_peer(folder, options, insecure, check_address(listen, "--listen") if listen else None)
    except (MissingNeighbourError, LeftEarlyError) as error:
        tell(error)
        raise typer.Exit(MISSING_NEIGHBOUR if isinstance(error, MissingNeighbourError) else LEFT_EARLY) from None
    if not report:
        err.print(f"weights and metrics: [bold]{terminal.escape(str(result))}[/]", highlight=False, soft_wrap=True)


def _print_json(report: PeerReport) -> None:
    print(to_json(report), flush=True)


def _leave_with_parent() -> None:
    """The parent keeps the other end of our standard input open as long as it lives."""
    while os.read(0, 1):
        pass
    os._exit(1)
