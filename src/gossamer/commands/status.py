"""`gossamer status`: one line for each agent, also while they run."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.live import Live

from gossamer.commands import logs
from gossamer.commands.common import print_json, report_errors
from gossamer.commands.options import LogLevel

if TYPE_CHECKING:
    from gossamer.peers.status import AgentStatus

EXAMPLES = """[bold]Examples[/]

gossamer status agent-0

gossamer status shards/agent-* --watch

gossamer status shards/agent-* --json
"""


@report_errors
def status(
    folders: Annotated[list[Path], typer.Argument(metavar="AGENT...", help="Folders of agents.", show_default=False)],
    watch: Annotated[bool, typer.Option("--watch", help="Draw the table again every second, until Ctrl-C.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object for each agent, a line each.")] = False,
    log_level: LogLevel = "warning",
) -> None:
    """Show where agents stand: step, loss, whom they wait for, epoch, refused messages, age of the last checkpoint.

    Reads what each agent's process, on this machine, leaves in its folder every two seconds. The score is the whole
    network's on validation vertices. An agent is silent if it runs and has not reported for 15 s.
    """
    logs.configure(log_level)
    from gossamer.peers.status import read_status
    from gossamer.report.agent_tables import status_table

    def look() -> "list[AgentStatus]":
        return [read_status(folder, time.time()) for folder in folders]

    if as_json:
        for one in look():
            print_json(one)
    elif not watch:
        Console().print(status_table(look()))
    else:
        with Live(status_table(look()), console=Console(), refresh_per_second=2) as live:
            while True:
                time.sleep(1.0)
                live.update(status_table(look()))
