"""`gossamer topology`: design or choose who talks to whom, with a certificate and a picture."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypedDict

import typer
from rich.console import Console

from gossamer.choices import DATASET_NAMES
from gossamer.commands import logs
from gossamer.commands.common import combine_settings, err, load_data, print_json, report_errors
from gossamer.commands.options import AsJson, LogLevel, complete_names, with_settings
from gossamer.errors import GossamerError
from gossamer.runs.options import Options
from gossamer.runs.settings import Settings

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from gossamer.runs.topologies import CertifiedTopology
    from gossamer.topology import Sweep

EXAMPLES = """[bold]Examples[/]

gossamer topology

gossamer topology --data cora --agents 10 --gap 0.5

gossamer topology --shared-edges B.csv --gap 0.8 --nonnegative --json

gossamer topology --data cora --topology ring --mixing fastest

gossamer topology --data cora --topology failing:0.3

gossamer topology --sweep
"""
SETTINGS = (
    "symmetrise",
    "agents",
    "assignment",
    "topology",
    "gap",
    "nonnegative",
    "mixing",
    "lost_edges",
    "keep_links",
    "seed",
)


class Precision(TypedDict, total=False):
    """Precision of a design, where it is not the default."""

    floor: float
    tolerance: float


@report_errors
@with_settings(*SETTINGS)
def topology(
    data: Annotated[
        str | None,
        typer.Option(
            metavar="DATASET",
            autocompletion=complete_names(DATASET_NAMES),
            show_default=False,
            help=f"Data set whose vertices the agents hold: {', '.join(DATASET_NAMES.names)}, an .npz file or a folder "
            "of CSV tables. [dim]\\[default: digits][/]",
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
    log_level: LogLevel = "warning",
    *,
    options: Options,
) -> None:
    """Design who talks to whom: the links that the data graph needs, and as little more as a spectral gap takes.

    Prints a certificate: (A1)-(A3), the spectrum, the objective of (29) with a proved bound, the cost of a round. Data
    edges between agents without a link are relayed; their routes and the load of each link are printed, too.

    JSON and a picture go to a folder.
    """
    logs.configure(log_level)
    if data is not None and shared_edges is not None:
        raise GossamerError("give either --data or --shared-edges, not both")
    settings = combine_settings(data, options)
    from gossamer.report import topology_tables
    from gossamer.report.topology_files import save_sweep, save_topology
    from gossamer.runs import new_folders
    from gossamer.topology import Sweep

    if out is not None:
        new_folders.check_new(out)
    given = Precision()
    if floor is not None:
        given["floor"] = floor
    if tolerance is not None:
        given["tolerance"] = tolerance
    made: CertifiedTopology | Sweep
    if sweep:
        if parameters is not None:
            raise GossamerError("--sweep moves no model; it takes no --parameters")
        made = _sweep(data, shared_edges, settings, options, given)
    else:
        made = _design(shared_edges, settings, options, given, parameters)
    folder = out or new_folders.find_free_name(Path("topologies"), made.name + ("-sweep" if sweep else ""))
    if isinstance(made, Sweep):
        save_sweep(folder, made)
    else:
        save_topology(folder, made)
    if as_json:
        print_json(made.to_dict())
    elif isinstance(made, Sweep):
        topology_tables.show_sweep(Console(), made, folder)
    else:
        topology_tables.show_certificate(Console(), made, folder)


def _design(
    shared_edges: Path | None,
    settings: Settings,
    options: Options,
    given: Precision,
    parameters: int | None,
) -> "CertifiedTopology":
    """One topology, for a matrix B or for data."""
    from gossamer.report import bars
    from gossamer.runs import topologies
    from gossamer.runs.link_sequences import find_base
    from gossamer.topology import TOPOLOGIES

    if TOPOLOGIES[find_base(settings.topology)].design is None:
        unused = [name for name in ("gap", "floor", "tolerance") if name in options or name in given]
        if unused:
            raise GossamerError(f"--{unused[0]} is for a designed topology, not for --topology {settings.topology}")
    if shared_edges is not None:
        B = _read_matrix(shared_edges, options)
        with bars.design_bar(err) as progress:
            return topologies.connect_matrix(shared_edges.stem, B, settings, parameters or 100_000, progress, **given)
    graph = load_data(settings)
    with bars.design_bar(err) as progress:
        return topologies.connect_data(graph, settings, parameters, progress, **given)


def _sweep(
    data: str | None, shared_edges: Path | None, settings: Settings, options: Options, given: Precision
) -> "Sweep":
    """Designs for many gaps: for a matrix B, for data, or for a random A."""
    from gossamer.report import bars
    from gossamer.runs import topologies
    from gossamer.topology import draw_shared_edges, sweep_gaps

    fixed = {"topology", "gap", "mixing", "lost_edges", "keep_links"} & set(options)
    if fixed:
        raise GossamerError(f"--sweep designs for many gaps; it takes no --{min(fixed).replace('_', '-')}")
    if shared_edges is not None:
        B, name = _read_matrix(shared_edges, options), shared_edges.stem
    elif data is not None:
        graph = load_data(settings)
        B, name = topologies.count_shared_edges(graph, settings), graph.name
    else:
        B, name = draw_shared_edges(options.get("agents", 20), settings.seed), "random"
    with bars.sweep_bar(err) as progress:
        return sweep_gaps(name, B, nonnegative=settings.nonnegative, progress=progress, **given)


def _read_matrix(path: Path, options: Options) -> "NDArray[np.float64]":
    """B from a file, with as many agents as the command line asks for, if it does."""
    from gossamer.runs import topologies

    B = topologies.read_shared_edges(path)
    if "assignment" in options:
        raise GossamerError("--assignment is for --data; --shared-edges gives what agents share")
    if options.get("agents", len(B)) != len(B):
        raise GossamerError(f"{path} is for {len(B)} agents, and --agents asks for {options['agents']}")
    return B
