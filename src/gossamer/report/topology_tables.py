"""Tables of `gossamer topology` in the terminal: a certificate, a sweep of gaps."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from gossamer.report.sequence_text import describe_sequence
from gossamer.runs.topologies import CertifiedTopology
from gossamer.topology import Sweep

MAX_ADDED_LINKS, MAX_EIGENVALUES = 60, 200  # printed; of more of them only
SHOWN_AT_EACH_END = 20


def show_certificate(console: Console, topology: CertifiedTopology, folder: Path) -> None:
    """Print the certificate of a topology."""
    certificate, document = topology.certificate, topology.to_dict()
    assumptions, design = certificate.assumptions, certificate.design
    added, missing = len(document["added_links"]), len(document["missing_links"])
    table = Table(
        title=f"{escape(topology.name)}: {certificate.num_agents} agents", title_justify="left", title_style="bold"
    )
    for heading in ("certificate", "holds", "measured"):
        table.add_column(heading)

    def verdict(name: str) -> str:
        return "[green]yes[/]" if document["holds"][name] else "[bold red]no[/]"

    table.add_row(
        "(A1) doubly stochastic",
        verdict("A1"),
        f"asymmetry {assumptions.asymmetry:.1e}, row sums differ from 1 by {assumptions.row_error:.1e}",
    )
    wanted = "" if design is None else f", required: at most {1 - design.gap:g}"
    table.add_row("(A2) spectral radius", verdict("A2"), f"{assumptions.spectral_radius:.6g}{wanted}")
    table.add_row("(A3) no weight off links", verdict("A3"), f"largest {assumptions.off_links:.1e}")
    own = "[green]yes[/]" if assumptions.keeps_own else "[bold red]no[/]"
    table.add_row("own weights not 0", own, f"least {assumptions.own_weight:.1e}")
    table.add_section()
    links = f"{len(document['needed_links'])} that the data needs, {added} added"
    table.add_row("links", "", links + (f"; {missing} needed ones are missing" if missing else ""))
    if added:
        pairs = [f"{k}-{z}" for k, z in document["added_links"]]
        shown = pairs if added <= MAX_ADDED_LINKS else [*pairs[:SHOWN_AT_EACH_END], "... (all in topology.json)"]
        table.add_row("added links", "", " ".join(shown))
    if topology.edges_kept is not None and topology.edges_kept < 1:
        table.add_row("data edges kept", "", f"{topology.edges_kept:.1%}")
    if topology.routes.paths:
        _add_routes(table, topology)
    table.add_row("zero entries of C", "", f"{certificate.sparsity:.1%}")
    sign = "none negative" if certificate.nonnegative else "some negative"
    table.add_row("weights", "", f"{certificate.combination.min():.4g} to {certificate.combination.max():.4g}, {sign}")
    table.add_row("eigenvalues of C", "", _format_spectrum(certificate.spectrum))
    if design is not None:
        table.add_section()
        table.add_row("objective ||C o A||_1", "", f"{certificate.objective:.6g}")
        excess = design.objective - design.lower_bound
        above = f"{excess:.1e}" if excess <= 1e-6 else f"{excess / design.objective:.1e} of it"
        proved = f", so the objective is at most {above} above the optimum" if excess > 0 else ""
        table.add_row("lower bound, proved", "", f"{design.lower_bound:.6g}{proved}")
        cost = f"{design.floor_cost:.2g} at most" if design.floor_cost else "nothing beyond the tolerance"
        table.add_row("floor of needed links", "", f"{design.floor:.3g}, which raises the objective by {cost}")
    table.add_section()
    rounds = (
        "does not converge"
        if certificate.rounds is None
        else f"{certificate.rounds} (they make the disagreement 1000 times smaller)"
    )
    if certificate.sequence is not None:
        period, symmetric = certificate.sequence.period, certificate.sequence.symmetric
        text = describe_sequence(period, certificate.contraction, symmetric)
        table.add_row("links that change", "", escape(text))
    table.add_row("rounds for 1e-3", "", rounds)
    table.add_row("bytes of a round", "", f"{document['bytes_per_round']:,} for {topology.num_parameters:,} parameters")
    console.print(table)
    console.print(
        f"Written: [bold]{escape(str(folder / 'topology.json'))}[/], [bold]{escape(str(folder / 'topology.png'))}[/]",
        highlight=False,
        soft_wrap=True,
    )


def _add_routes(table: Table, topology: CertifiedTopology) -> None:
    """Add the shared edges by the links that they take, and by link."""
    edges = topology.edges_by_hops
    total, direct = sum(edges.values()), edges.get(1, 0.0)
    table.add_row("edges between agents", "", f"{direct:,g} over a link of their own, {total - direct:,g} relayed")
    relayed = ", ".join(f"{number:,g} over {hops} links" for hops, number in edges.items() if hops > 1)
    table.add_row("relayed edges", "", relayed)
    load = sorted(topology.link_load, key=lambda one: -one[2])
    shown = " ".join(f"{k}-{z}: {number:,g}" for k, z, number in load[:MAX_ADDED_LINKS])
    table.add_row(
        "edges on each link", "", shown + (" ... (all in topology.json)" if len(load) > MAX_ADDED_LINKS else "")
    )


def _format_spectrum(values: NDArray[np.float64]) -> str:
    """Format the eigenvalues, without the middle ones if there are very many."""
    shown = [f"{round(float(value), 3) + 0.0:.3f}" for value in values]  # + 0.0 turns -0 into 0
    if len(shown) > MAX_EIGENVALUES:
        shown = [*shown[:SHOWN_AT_EACH_END], "... (all in topology.json)", *shown[-SHOWN_AT_EACH_END:]]
    return " ".join(shown)


def show_sweep(console: Console, sweep: Sweep, folder: Path) -> None:
    """Print a sweep of the gap (Fig. 2)."""
    table = Table(title=f"{escape(sweep.name)}: {sweep.agents} agents", title_justify="left", title_style="bold")
    for heading in ("1 - gap", "zero entries of C", "links added", "objective", "lower bound"):
        table.add_column(heading, justify="right")
    for point in sweep.points:
        table.add_row(
            f"{point.radius:.2f}",
            f"{point.sparsity:.1%}",
            str(point.added_links),
            f"{point.objective:.5g}",
            f"{point.lower_bound:.5g}",
        )
    console.print(table)
    limit = f"Needed links alone: {sweep.limit_sparsity:.1%} zero entries"
    if sweep.limit_radius is not None:
        limit += f", enough from 1 - gap = {sweep.limit_radius:.3f} on"
    console.print(limit, highlight=False)
    console.print(
        f"Written: [bold]{escape(str(folder))}[/] (sweep.png, sweep.csv, sweep.json)", highlight=False, soft_wrap=True
    )
