"""`gossamer train`: a training run simulated on this machine, beside its two references."""

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from gossamer import api
from gossamer.commands.common import INTERRUPTED, err, follow, load_data, settings_from, told_plainly
from gossamer.commands.options import AsJson, Dataset, RunDirectory, with_settings
from gossamer.errors import GossamerError
from gossamer.report import terminal
from gossamer.runs import directory
from gossamer.runs.documents import to_json
from gossamer.runs.memory import keep_memory

EXAMPLES = """[bold]Examples[/]

gossamer train

gossamer train cora --agents 10 --topology ring

gossamer train digits --layers chebyshev --order 2 --update adam --step-size 0.01

gossamer train settings.toml --seed 1 --json

gossamer train --resume runs/digits-1 --steps 1000
"""


@told_plainly
@with_settings()
def train(
    dataset: Dataset = None,
    out: RunDirectory = None,
    resume: Annotated[
        Path | None,
        typer.Option(help="Go on with an interrupted run directory (only --steps may change).", show_default=False),
    ] = None,
    as_json: AsJson = False,
    *,
    options: dict[str, Any],
) -> None:
    """Train a graph convolutional network across agents, simulated on this machine.

    The result stands beside the centralised network and a network without the graph, trained the same way.

    Tables go to the terminal; weights, metrics and curves.png to the run directory.
    """
    if resume is not None:
        if dataset is not None or out is not None or set(options) - {"steps"}:
            raise GossamerError("--resume goes on with the run's own settings; only --steps may be given with it")
        folder = resume
        with keep_memory(), follow() as (display, should_stop, _):
            result = api.resume(resume, options.get("steps"), should_stop=should_stop, display=display)
    else:
        settings = settings_from(dataset, options)
        graph = load_data(settings)
        folder = out or directory.find_free_name(Path("runs"), graph.name)
        with keep_memory(), follow() as (display, should_stop, progress):
            result = api.train(graph, settings, out=folder, should_stop=should_stop, display=display, progress=progress)
    if as_json:
        print(to_json(result.summary))
    else:
        terminal.show_result(Console(), result.run, result.summary, folder)
    if not result.complete:
        err.print(
            f"[yellow]stopped at step {result.run.host.step} of {result.run.settings.steps}[/]; go on with "
            f"[bold]gossamer train --resume {terminal.escape(str(folder))}[/]",
            highlight=False,
        )
        raise typer.Exit(INTERRUPTED)
