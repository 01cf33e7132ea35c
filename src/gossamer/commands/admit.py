"""`gossamer admit`: let the holder of a key ask to join."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from gossamer.commands import logs
from gossamer.commands.common import report_errors
from gossamer.commands.options import LogLevel

EXAMPLES = """[bold]Examples[/]

gossamer admit "$(cat new-site/key.public)" agent-0

gossamer admit "$(cat new-site/key.public)" shards/agent-*
"""


@report_errors
def admit(
    key: Annotated[
        str, typer.Argument(metavar="KEY", help="The public key that gossamer keys has printed.", show_default=False)
    ],
    folders: Annotated[
        list[Path], typer.Argument(metavar="AGENT...", help="Folders of agents that admit it.", show_default=False)
    ],
    log_level: LogLevel = "warning",
) -> None:
    """Admit a public key: whoever has its secret one may ask to join a run over a link to this agent.

    For runs whose agents may leave and join (--evict-after): a new site, or a member with a new key. Every agent that
    the site names as its neighbour must admit it. A running process reads the list, admitted.txt, again by itself.
    """
    logs.configure(log_level)
    from gossamer.peers.departure import read_changing_shard
    from gossamer.peers.identity import add_admitted

    console = Console(soft_wrap=True, highlight=False)
    for folder in folders:
        read_changing_shard(folder)
    for folder in folders:
        new = add_admitted(folder, key.strip())
        console.print(f"{folder}: {'admitted' if new else 'had admitted it already'}", markup=False)
