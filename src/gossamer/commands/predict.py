"""`gossamer predict`: distributed inference with the weights of a run."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape

from gossamer.commands import logs
from gossamer.commands.common import err, print_json, report_errors
from gossamer.commands.options import LogLevel

if TYPE_CHECKING:
    from gossamer.data import DataGraph
    from gossamer.runs.run import StartRun

EXAMPLES = """[bold]Examples[/]

gossamer predict runs/digits-1

torchrun --nproc-per-node 2 -m gossamer predict runs/digits-1
"""


@report_errors
def predict(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A run directory.")],
    out: Annotated[
        Path | None,
        typer.Option(help="CSV file to write. [dim]\\[default: DIR/predictions.csv][/]", show_default=False),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a table.")] = False,
    log_level: LogLevel = "warning",
) -> None:
    """Run distributed inference with a trained run's weights and write every vertex's class or value as CSV.

    Each vertex is predicted with its own agent's weights, one exchange of boundary rows for each propagation. Started
    by torchrun, each rank carries a share of the agents, and the first writes the file.
    """
    logs.configure(log_level)
    from gossamer import api
    from gossamer.engines.simulation import start_run
    from gossamer.report import bars

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


def _predict(folder: Path, graph: "DataGraph", start: "StartRun", out: Path | None, as_json: bool) -> None:
    from gossamer.report import terminal
    from gossamer.report.predictions import write_predictions
    from gossamer.runs import directory

    run = directory.read_weights(folder, graph, start)
    outputs, scores = run.predict(), run.scores()  # by all ranks
    if not run.engine.leads:
        return
    target = out or folder / "predictions.csv"
    write_predictions(target, graph, run.deployment.assignment, outputs)
    if as_json:
        print_json({"predictions": str(target), **scores})
    else:
        terminal.show_scores(Console(), {"distributed": scores})
        Console().print(
            f"Predictions of {graph.num_vertices} vertices: [bold]{escape(str(target))}[/]", highlight=False
        )
