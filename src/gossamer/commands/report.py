"""`gossamer report`: one HTML file about a run, to read and to hand on."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from gossamer.commands import logs
from gossamer.commands.common import print_json, report_errors
from gossamer.commands.options import AsJson, LogLevel

EXAMPLES = """[bold]Examples[/]

gossamer report runs/digits-1

gossamer report runs/digits-1 --compare runs/digits-2 --out compared.html

gossamer report reproduction/quick --json
"""


@report_errors
def report(
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="RUN", help="A run directory, or the folder of a reproduction of the paper.", show_default=False
        ),
    ],
    compare: Annotated[
        list[Path] | None,
        typer.Option(metavar="RUN", help="Another run beside it; may be given several times.", show_default=False),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="File to write. [dim]\\[default: RUN/report.html][/]", show_default=False),
    ] = None,
    predictions: Annotated[
        bool,
        typer.Option(
            "--predictions/--no-predictions",
            help="Predict the run's data set for confusions or errors and for agents' scores.",
        ),
    ] = True,
    as_json: AsJson = False,
    log_level: LogLevel = "warning",
) -> None:
    """Write what a run did as one HTML file that loads nothing from elsewhere.

    Of a run of train, launch, cluster or gather: scores beside the references', curves, errors, agents, topology,
    messages, what an audit found, settings, versions and commands. One that goes on is reported as far as it is.

    Of a folder of gossamer reproduce: all figures, and each claim with its verdict.
    """
    logs.configure(log_level)
    from gossamer.reporting import write_report

    written = write_report(folder, compare or (), out, predictions)
    if as_json:
        print_json({"report": str(written.path), "sections": written.sections, "bytes": written.size})
        return
    Console().print(
        f"Report: [bold]{escape(str(written.path))}[/] ({written.size / 1e6:.2f} MB, {len(written.sections)} sections)",
        highlight=False,
        soft_wrap=True,
    )
