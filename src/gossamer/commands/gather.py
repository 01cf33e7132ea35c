"""`gossamer gather`: the folders of all agents joined into one run directory."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from gossamer.commands import logs
from gossamer.commands.common import print_json, report_errors
from gossamer.commands.options import AsJson, LogLevel

EXAMPLES = """[bold]Examples[/]

gossamer gather agent-0 agent-1 agent-2 --out runs/whole

gossamer gather shards/agent-* --out runs/whole --json
"""


@report_errors
def gather(
    folders: Annotated[
        list[Path], typer.Argument(metavar="AGENT...", help="The folders of all agents.", show_default=False)
    ],
    out: Annotated[Path, typer.Option(help="Run directory to write.", show_default=False)],
    as_json: AsJson = False,
    log_level: LogLevel = "warning",
) -> None:
    """Join the folders of agents that have finished into one run directory, where they are all at hand.

    Weights are stacked, evaluations added up and messages counted as in a simulation, and curves.png is drawn. gossamer
    export, predict and --initial take the result. Nothing of the agents' folders changes.
    """
    logs.configure(log_level)
    from gossamer import gathering
    from gossamer.report import terminal

    result = gathering.gather_agents(folders, out)
    if as_json:
        print_json(result.summary)
    else:
        terminal.show_result(Console(), result.run, result.summary, out)
