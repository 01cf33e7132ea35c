"""`gossamer predict`: distributed inference with the weights of a run."""

import os
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from gossamer import api
from gossamer.commands.common import err, told_plainly
from gossamer.data import DataGraph
from gossamer.engines.simulation import start_run
from gossamer.report import bars, terminal
from gossamer.report.predictions import write_predictions
from gossamer.runs import directory
from gossamer.runs.documents import to_json
from gossamer.runs.run import StartRun

EXAMPLES = """[bold]Examples[/]

gossamer predict runs/digits-1

torchrun --nproc-per-node 2 -m gossamer predict runs/digits-1
"""


@told_plainly
def predict(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A run directory.")],
    out: Annotated[
        Path | None,
        typer.Option(help="CSV file to write. [dim]\\[default: DIR/predictions.csv][/]", show_default=False),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a table.")] = False,
) -> None:
    """Run distributed inference with a trained run's weights and write every vertex's class or value as CSV.

    Each vertex is predicted with its own agent's weights, one exchange of boundary rows for each propagation. Started
    by torchrun, each rank carries a share of the agents, and the first writes the file.
    """
    if "RANK" in os.environ and "WORLD_SIZE" in os.environ:  # started by torchrun
        from gossamer.commands.ranks import join_ranks
        from gossamer.engines.cluster.job import share_errors, start_on_ranks

        with join_ranks():
            with share_errors():
                graph = api.load_graph(folder)
            _predict(folder, graph, start_on_ranks, out, as_json)
    else:
        with bars.download_bar(err, str(folder)) as progress:
            graph = api.load_graph(folder, progress)
        _predict(folder, graph, start_run, out, as_json)


def _predict(folder: Path, graph: DataGraph, start: StartRun, out: Path | None, as_json: bool) -> None:
    run = directory.read_weights(folder, graph, start)
    outputs, scores = run.predict(), run.scores()  # by all ranks
    if not run.engine.leads:
        return
    target = out or folder / "predictions.csv"
    write_predictions(target, graph, run.deployment.assignment, outputs)
    if as_json:
        print(to_json({"predictions": str(target), **scores}))
    else:
        terminal.show_scores(Console(), {"distributed": scores})
        Console().print(
            f"Predictions of {graph.num_vertices} vertices: [bold]{terminal.escape(str(target))}[/]", highlight=False
        )
