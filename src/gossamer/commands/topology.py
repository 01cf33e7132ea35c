"""`gossamer topology`: design or choose who talks to whom, with a certificate and a picture."""

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from gossamer.commands.common import err, load_data, settings_from, told_plainly
from gossamer.commands.options import AsJson, with_settings
from gossamer.data import DATASETS
from gossamer.errors import GossamerError
from gossamer.experiments import fig2, topologies
from gossamer.report import bars, terminal
from gossamer.runs import directory
from gossamer.runs.documents import to_json
from gossamer.runs.settings import Settings

EXAMPLES = """[bold]Examples[/]

gossamer topology

gossamer topology --data cora --agents 10 --gap 0.5

gossamer topology --shared-edges B.csv --gap 0.8 --nonnegative --json

gossamer topology --data cora --topology ring --mixing fastest

gossamer topology --sweep
"""
SETTINGS = ("agents", "assignment", "topology", "gap", "nonnegative", "mixing", "keep_links", "seed")


@told_plainly
@with_settings(*SETTINGS)
def topology(
    data: Annotated[
        str | None,
        typer.Option(
            metavar="DATASET",
            show_default=False,
            help=f"Data set whose vertices the agents hold: {', '.join(DATASETS)}, an .npz file or a folder of CSV "
            "tables. [dim]\\[default: digits][/]",
        ),
    ] = None,
    shared_edges: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            show_default=False,
            help="In place of data: the matrix B of the numbers of data edges that agents share (.npy, or text with "
            "a row a line).",
        ),
    ] = None,
    parameters: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            show_default=False,
            help="Model size for the bytes of a round. [dim]\\[default: the network that train would train; 100000 "
            "without data][/]",
        ),
    ] = None,
    floor: Annotated[
        float | None,
        typer.Option(
            metavar="X", show_default=False, help="Least weight of a needed link. [dim]\\[default: 0.001/m][/]"
        ),
    ] = None,
    tolerance: Annotated[
        float | None,
        typer.Option(
            metavar="X", show_default=False, help="Optimality to prove, relative. [dim]\\[default: 0.0001][/]"
        ),
    ] = None,
    sweep: Annotated[
        bool,
        typer.Option(
            "--sweep",
            help="Fig. 2: design for many gaps and draw sparsity against 1 - gap; without data or B for 20 agents and "
            "a random A.",
        ),
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder to write. [dim]\\[default: topologies/NAME-NUMBER][/]", show_default=False),
    ] = None,
    as_json: AsJson = False,
    *,
    options: dict[str, Any],
) -> None:
    """Design who talks to whom: the links that the data graph needs, and as little more as a spectral gap takes.

    Prints a certificate: (A1)-(A3), the spectrum, the objective of (29) with a proved bound, the cost of a round.

    JSON and a picture go to a folder.
    """
    if data is not None and shared_edges is not None:
        raise GossamerError("give either --data or --shared-edges, not both")
    if out is not None:
        directory.check_new(out)
    settings = settings_from(data, options)
    given = {name: value for name, value in (("floor", floor), ("tolerance", tolerance)) if value is not None}
    made: topologies.Topology | fig2.Sweep
    if sweep:
        if parameters is not None:
            raise GossamerError("--sweep moves no model; it takes no --parameters")
        made = _swept(data, shared_edges, settings, options, given)
    else:
        made = _single(shared_edges, settings, options, given, parameters)
    folder = out or directory.find_free_name(Path("topologies"), made.name + ("-sweep" if sweep else ""))
    made.save(folder)
    if as_json:
        print(to_json(made.to_dict()))
    elif isinstance(made, fig2.Sweep):
        terminal.show_sweep(Console(), made, folder)
    else:
        terminal.show_certificate(Console(), made, folder)


def _single(
    shared_edges: Path | None,
    settings: Settings,
    options: dict[str, Any],
    given: dict[str, Any],
    parameters: int | None,
) -> topologies.Topology:
    """One topology, for a matrix B or for data."""
    if settings.topology != "admm":
        unused = [name for name in ("gap", "floor", "tolerance") if name in options or name in given]
        if unused:
            raise GossamerError(f"--{unused[0]} is for a designed topology, not for --topology {settings.topology}")
    if shared_edges is not None:
        B = _matrix(shared_edges, options)
        with bars.design_bar(err) as progress:
            return topologies.of_matrix(shared_edges.stem, B, settings, parameters or 100_000, progress, **given)
    graph = load_data(settings)
    with bars.design_bar(err) as progress:
        return topologies.of_data(graph, settings, parameters, progress, **given)


def _swept(
    data: str | None, shared_edges: Path | None, settings: Settings, options: dict[str, Any], given: dict[str, Any]
) -> fig2.Sweep:
    """Designs for many gaps: for a matrix B, for data, or for a random A."""
    fixed = {"topology", "gap", "mixing", "keep_links"} & set(options)
    if fixed:
        raise GossamerError(f"--sweep designs for many gaps; it takes no --{min(fixed).replace('_', '-')}")
    if shared_edges is not None:
        B, name = _matrix(shared_edges, options), shared_edges.stem
    elif data is not None:
        graph = load_data(settings)
        B, name = topologies.shared_edges_of(graph, settings), graph.name
    else:
        B, name = fig2.random_shared_edges(options.get("agents", 20), settings.seed), "random"
    with bars.sweep_bar(err) as progress:
        return fig2.sweep(name, B, nonnegative=settings.nonnegative, progress=progress, **given)


def _matrix(path: Path, options: dict[str, Any]) -> Any:
    """B from a file, with as many agents as the command line asks for, if it does."""
    B = topologies.read_shared_edges(path)
    if "assignment" in options:
        raise GossamerError("--assignment is for --data; --shared-edges says already what agents share")
    if options.get("agents", len(B)) != len(B):
        raise GossamerError(f"{path} is for {len(B)} agents, and --agents asks for {options['agents']}")
    return B
