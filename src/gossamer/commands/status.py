"""`gossamer status`: one line for each agent, also while they run."""

import re
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.live import Live

from gossamer.commands import logs
from gossamer.commands.common import MISTAKE, print_json, report_errors
from gossamer.commands.options import LogLevel
from gossamer.errors import GossamerError

if TYPE_CHECKING:
    from gossamer.peers.status import AgentStatus
    from gossamer.report.live.metrics_client import UnreadMetrics

EXAMPLES = """[bold]Examples[/]

gossamer status agent-0

gossamer status shards/agent-* --watch

gossamer status --metrics 10.0.0.1:9100 10.0.0.2:9100

gossamer status shards/agent-* --json
"""
METRICS_SECONDS = 5.0  # in which addresses have to answer
ADDRESS = re.compile(r"[^/]+:[0-9]{1,5}")


@report_errors
def status(
    folders: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="AGENT", help="Folders of agents; after --metrics also further addresses.", show_default=False
        ),
    ] = None,
    metrics: Annotated[
        list[str] | None,
        typer.Option(
            "--metrics",
            metavar="HOST:PORT",
            help="Read agents on any machine from where their runs serve metrics; further addresses may follow.",
            show_default=False,
        ),
    ] = None,
    watch: Annotated[bool, typer.Option("--watch", help="Draw the table again every second, until Ctrl-C.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object for each agent, a line each.")] = False,
    log_level: LogLevel = "warning",
) -> None:
    """Show where agents stand: step, loss, whom they wait for, epoch, refused messages, age of the last checkpoint.

    Reads what each agent's process, on this machine, leaves in its folder every two seconds, and what runs on any
    machine serve with --metrics. The score is the whole network's on validation vertices. An agent is silent if it runs
    and has not reported for 15 s. An address that cannot be read is shown with the reason; the exit code is 2 if
    nothing could be read.
    """
    logs.configure(log_level)
    from gossamer.report.agent_tables import status_table

    if not folders and not metrics:
        raise GossamerError("nothing to look at; name folders of agents, or addresses by --metrics HOST:PORT")

    given = folders or []
    more = [str(one) for one in given if metrics and ADDRESS.fullmatch(str(one)) and not one.exists()]
    addresses = [*(metrics or []), *more]

    def look() -> "tuple[list[AgentStatus], list[UnreadMetrics]]":
        return _look([one for one in given if str(one) not in more], addresses)

    if watch and not as_json:
        with Live(status_table(*look()), console=Console(), refresh_per_second=2) as live:
            while True:
                time.sleep(1.0)
                live.update(status_table(*look()))
    agents, unread = look()
    failed = not agents and all(one["error"] for one in unread)
    if as_json:
        for one in (*agents, *unread):
            print_json(one)
        if failed:
            raise typer.Exit(MISTAKE)
    elif failed:
        raise GossamerError("\n".join(f"{one['metrics']}: {one['error']}" for one in unread))
    else:
        Console().print(status_table(agents, unread))


def _look(folders: list[Path], addresses: list[str]) -> "tuple[list[AgentStatus], list[UnreadMetrics]]":
    agents: list[AgentStatus] = []
    unread: list[UnreadMetrics] = []
    if folders:
        from gossamer.peers.status import read_status

        agents += [read_status(folder, time.time()) for folder in folders]
    if addresses:
        from gossamer.report.live.metrics_client import read_metrics

        found, unread = read_metrics(addresses, METRICS_SECONDS)
        agents += found
    return agents, unread
