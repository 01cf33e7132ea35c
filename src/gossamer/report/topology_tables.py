"""Tables of `gossamer topology` in the terminal: a certificate, a sweep of gaps."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from gossamer.runs.topologies import CertifiedTopology
from gossamer.topology import Sweep


def show_certificate(console: Console, made: CertifiedTopology, folder: Path) -> None:
    """Print the certificate of a topology."""
    found, about = made.certificate, made.to_dict()
    measured, made_by = found.assumptions, found.design
    added, missing = len(about["added_links"]), len(about["missing_links"])
    table = Table(title=f"{escape(made.name)}: {found.num_agents} agents", title_justify="left", title_style="bold")
    for heading in ("certificate", "holds", ""):
        table.add_column(heading)

    def verdict(name: str) -> str:
        return "[green]yes[/]" if about["holds"][name] else "[bold red]no[/]"

    table.add_row(
        "(A1) doubly stochastic",
        verdict("A1"),
        f"asymmetry {measured.asymmetry:.1e}, row sums off {measured.row_error:.1e}",
    )
    wanted = "" if made_by is None else f", asked for at most {1 - made_by.gap:g}"
    table.add_row("(A2) spectral radius", verdict("A2"), f"{measured.spectral_radius:.6g}{wanted}")
    table.add_row("(A3) no weight off links", verdict("A3"), f"largest {measured.off_links:.1e}")
    own = "[green]yes[/]" if measured.keeps_own else "[bold red]no[/]"
    table.add_row("(28) own weight not 0", own, f"least {measured.own_weight:.1e}")
    table.add_section()
    links = f"{len(about['needed_links'])} that the data needs, {added} added"
    table.add_row("links", "", links + (f"; {missing} needed ones are missing" if missing else ""))
    if added:
        pairs = [f"{k}-{z}" for k, z in about["added_links"]]
        shown = " ".join(pairs if added <= 60 else [*pairs[:20], "... (all in topology.json)"])
        table.add_row("added links", "", shown)
    if made.edges_kept is not None and made.edges_kept < 1:
        table.add_row("data edges kept", "", f"{made.edges_kept:.1%}")
    table.add_row("zero entries of C", "", f"{found.sparsity:.1%}")
    sign = "none negative" if found.nonnegative else "some negative"
    table.add_row("weights", "", f"{found.combination.min():.4g} to {found.combination.max():.4g}, {sign}")
    table.add_row("eigenvalues of C", "", _spectrum(found.spectrum))
    if made_by is not None:
        table.add_section()
        table.add_row("objective of (29)", "", f"{found.objective:.6g}")
        excess = made_by.objective - made_by.lower_bound
        share = f"{excess:.1e}" if excess <= 1e-6 else f"{excess / made_by.objective:.1e} of it"
        proved = f", so the objective is optimal to {share}" if excess > 0 else ""
        table.add_row("lower bound, proved", "", f"{made_by.lower_bound:.6g}{proved}")
        cost = f"{made_by.floor_cost:.2g} at most" if made_by.floor_cost else "nothing beyond the tolerance"
        table.add_row("floor of needed links", "", f"{made_by.floor:.3g}, which costs {cost}")
    table.add_section()
    rounds = "never" if found.rounds is None else f"{found.rounds} (they make the disagreement 1000 times smaller)"
    table.add_row("rounds for 1e-3", "", rounds)
    table.add_row("bytes of a round", "", f"{about['bytes_per_round']:,} for {made.num_parameters:,} parameters")
    console.print(table)
    console.print(
        f"Written: [bold]{escape(str(folder / 'topology.json'))}[/], [bold]{escape(str(folder / 'topology.png'))}[/]",
        highlight=False,
        soft_wrap=True,
    )


def _spectrum(values: NDArray[np.float64]) -> str:
    """Format the eigenvalues, without the middle ones if there are very many."""
    shown = [f"{round(float(value), 3) + 0.0:.3f}" for value in values]  # + 0.0 turns -0 into 0
    return " ".join(shown if len(shown) <= 200 else [*shown[:20], "... (all in topology.json)", *shown[-20:]])


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
    limit = f"Minimally connected network: {sweep.limit_sparsity:.1%} zero entries"
    if sweep.limit_radius is not None:
        limit += f", enough from 1 - gap = {sweep.limit_radius:.3f} on"
    console.print(limit, highlight=False)
    console.print(
        f"Written: [bold]{escape(str(folder))}[/] (sweep.png, sweep.csv, sweep.json)", highlight=False, soft_wrap=True
    )
