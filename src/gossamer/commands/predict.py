"""`gossamer predict`: distributed inference with the weights of a run."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from gossamer.commands import logs
from gossamer.commands.common import err, print_json, report_errors
from gossamer.commands.options import LogLevel

EXAMPLES = "[bold]Example[/]\n\ngossamer predict runs/digits-1"


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

    Each vertex is predicted with its own agent's weights, one exchange of boundary rows for each propagation.
    """
    logs.configure(log_level)
    from gossamer import api
    from gossamer.engines.simulation import start
    from gossamer.report import bars, terminal
    from gossamer.report.predictions import write_predictions
    from gossamer.runs import directory

    with bars.download_bar(err, str(folder)) as progress:
        graph = api.graph_of(folder, progress)
    state = directory.read_weights(folder, graph, start)
    target = out or folder / "predictions.csv"
    write_predictions(target, graph, state.deployment.assignment, state.predict())
    if as_json:
        print_json({"predictions": str(target), **state.scores()})
    else:
        terminal.show_scores(Console(), {"distributed": state.scores()})
        Console().print(
            f"Predictions of {graph.num_vertices} vertices: [bold]{escape(str(target))}[/]", highlight=False
        )
