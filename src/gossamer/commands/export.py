"""`gossamer export`: a trained network as a file for PyTorch and PyTorch Geometric."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from gossamer.commands import logs
from gossamer.commands.common import print_json, report_errors
from gossamer.commands.options import LogLevel

EXAMPLES = """[bold]Examples[/]

gossamer export runs/digits-1

gossamer export runs/digits-1 --to model.safetensors

gossamer export runs/digits-1 --agent 3 --to agent-3.safetensors
"""


@report_errors
def export(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A run directory.")],
    to: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="File to write, .safetensors; its card, .md, stands beside it. "
            "[dim]\\[default: DIR/model.safetensors][/]",
            show_default=False,
        ),
    ] = None,
    agent: Annotated[
        int | None,
        typer.Option(
            metavar="K",
            help="Write this agent's weights instead of the mean over all agents.",
            show_default=False,
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")] = False,
    log_level: LogLevel = "warning",
) -> None:
    """Write a trained run's network as a PyTorch model file in PyTorch Geometric's names, with a model card beside it.

    The file holds the mean of the agents' weights, or one agent's, as its layers GCNConv, GATConv and so on name them
    where these compute the same. The data is not needed. gossamer.load_model reads it as a plain torch.nn.Module, and
    gossamer train --initial starts from it.
    """
    logs.configure(log_level)
    from gossamer.model.pyg_layers import PYG_MODELS
    from gossamer.runs.model_files import export_model, make_header
    from gossamer.runs.trained import read_trained

    trained = read_trained(folder)
    model, card = export_model(trained, to or folder / "model.safetensors", agent)
    header = make_header(trained, agent)
    if as_json:
        print_json({"model": str(model), "card": str(card), "weights": header.weights, "pyg": header.pyg})
        return
    fits = "PyTorch Geometric has no layer like it; load it with gossamer.load_model"
    if header.pyg is not None:
        fits = f"loads into PyTorch Geometric's {header.pyg}"
    if header.pyg in PYG_MODELS.values():
        fits = f"PyTorch Geometric's {header.pyg} by gossamer.load_model(...).to_pyg()"
    if header.encoder:
        fits = f"with an encoder of {header.encoder} numbers a vertex; behind it, {fits}"
    Console().print(
        f"[bold]{escape(str(model))}[/]: {header.weights}; {fits}\nModel card: [bold]{escape(str(card))}[/]",
        highlight=False,
        soft_wrap=True,
    )
