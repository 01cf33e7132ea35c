"""The command `gossamer`: its sub-commands joined, with the options and warnings that all share."""

import warnings
from importlib.metadata import version
from typing import Annotated, Any

import typer

from gossamer.commands import cluster, keys, launch, peer, predict, reproduce, shard, topology, train
from gossamer.commands.common import err
from gossamer.errors import GossamerWarning
from gossamer.report import terminal

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Train graph neural networks across agents that talk only to their neighbours.",
)
app.command(epilog=train.EXAMPLES)(train.train)
app.command(epilog=predict.EXAMPLES)(predict.predict)
app.command(epilog=topology.EXAMPLES)(topology.topology)
app.command(epilog=launch.EXAMPLES)(launch.launch)
app.command(epilog=cluster.EXAMPLES)(cluster.cluster)
app.command(epilog=shard.EXAMPLES)(shard.shard)
app.command(epilog=keys.EXAMPLES)(keys.keys)
app.command(epilog=peer.EXAMPLES)(peer.peer)
app.command(epilog=reproduce.EXAMPLES)(reproduce.reproduce)


def main() -> None:
    """Entry point of the console script."""
    warnings.simplefilter("always", GossamerWarning)
    warnings.showwarning = _show_warning
    app()


def _show_warning(message: Warning | str, category: type[Warning], *rest: Any, **more: Any) -> None:
    err.print(f"[yellow]warning:[/] {terminal.escape(str(message))}", highlight=False)


def _version(wanted: bool) -> None:
    if wanted:
        print(version("gossamer"))
        raise typer.Exit


@app.callback()
def callback(
    show_version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    pass
