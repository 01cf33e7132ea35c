"""`gossamer leave`: let an agent leave its run, while the others go on."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from gossamer.commands import logs
from gossamer.commands.common import report_errors
from gossamer.commands.options import LogLevel

EXAMPLES = """[bold]Examples[/]

gossamer leave agent-3

gossamer leave agent-3 --undo
"""


@report_errors
def leave(
    folder: Annotated[Path, typer.Argument(metavar="AGENT", help="The agent's folder.", show_default=False)],
    undo: Annotated[bool, typer.Option("--undo", help="Take it back: started again, the agent asks to join.")] = False,
    log_level: LogLevel = "warning",
) -> None:
    """Let an agent leave its run: the others decide to go on without it, and its process ends.

    For runs whose agents may leave and join (--evict-after). The agent's vertices, their edges and labels are gone from
    the next membership on. It stays as long as the others would fall apart without its links.
    """
    logs.configure(log_level)
    from gossamer.peers.departure import ask_to_leave, take_back

    console = Console(soft_wrap=True, highlight=False)
    if undo:
        take_back(folder)
        console.print(f"[bold]gossamer peer {escape(str(folder))}[/] asks to join again")
        return
    agent, runs = ask_to_leave(folder)
    if runs:
        console.print(f"agent {agent} asks the others to go on without it; its process ends when they have decided")
    else:
        console.print(
            f"agent {agent} asks to leave as soon as it runs: start [bold]gossamer peer {escape(str(folder))}[/]; the "
            "others remove it without its help if they wait for it longer than --evict-after"
        )
