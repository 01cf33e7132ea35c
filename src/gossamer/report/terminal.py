"""Tables in the terminal, at the end of a command."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, get_args

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from gossamer.report.curves import LABELS
from gossamer.runs.records import MessageCounts, ModelName, PhaseName, Summary

if TYPE_CHECKING:  # of annotations alone: the network's libraries are not needed for a table
    import numpy as np
    from numpy.typing import NDArray

    from gossamer.runs.run import Run
    from gossamer.runs.topologies import CertifiedTopology
    from gossamer.topology import Sweep

__all__ = [
    "escape",
    "show_certificate",
    "show_claims",
    "show_result",
    "show_scores",
    "show_sweep",
]


class ClaimRow(Protocol):
    """A claim of the paper, or of ours, with its measurement (experiments/reproduction.py)."""

    @property
    def claim(self) -> str: ...
    @property
    def measured(self) -> str: ...
    @property
    def holds(self) -> bool: ...
    @property
    def ours(self) -> bool: ...


class ClaimTable(Protocol):
    """The claims of one figure or table, and the files that belong to it."""

    @property
    def name(self) -> str: ...
    @property
    def claims(self) -> Sequence[ClaimRow]: ...
    @property
    def files(self) -> Sequence[str]: ...


def show_certificate(console: Console, made: "CertifiedTopology", folder: Path) -> None:
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


def _spectrum(values: "NDArray[np.float64]") -> str:
    """Format the eigenvalues, without the middle ones if there are very many."""
    shown = [f"{round(float(value), 3) + 0.0:.3f}" for value in values]  # + 0.0 turns -0 into 0
    return " ".join(shown if len(shown) <= 200 else [*shown[:20], "... (all in topology.json)", *shown[-20:]])


def show_sweep(console: Console, sweep: "Sweep", folder: Path) -> None:
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


def show_claims(console: Console, outcome: ClaimTable, verdict: str, folder: Path) -> None:
    """Print each claim beside its measurement, and the verdict."""
    table = Table(title=escape(outcome.name), title_justify="left", title_style="bold")
    for heading in ("the paper says", "measured", "holds"):
        table.add_column(heading)
    for claim in outcome.claims:
        table.add_row(
            "(ours) " * claim.ours + escape(claim.claim),
            escape(claim.measured),
            "[green]yes[/]" if claim.holds else "[bold red]no[/]",
        )
    console.print(table)
    console.print(f"Verdict: {escape(verdict)}", highlight=False, soft_wrap=True)
    console.print(
        f"Written: [bold]{escape(str(folder))}[/] ({', '.join(outcome.files)})", highlight=False, soft_wrap=True
    )


def show_scores(console: Console, models: Mapping[str, Mapping[str, Mapping[str, float]]]) -> None:
    """Print a row for each model: loss and score on each mask."""
    first = next(iter(models.values()))
    measure = "accuracy" if "accuracy" in first["test"] else "mse"
    table = Table(
        caption=f"train, validation, test: {'accuracy' if measure == 'accuracy' else 'mean squared error'}",
        caption_justify="right",
    )
    table.add_column("model")
    for heading in ("training loss", "train", "validation", "test"):
        table.add_column(heading, justify="right")

    def shown(value: float) -> str:
        return f"{value:.1%}" if measure == "accuracy" else f"{value:.4g}"

    for name, scores in models.items():
        table.add_row(
            LABELS[name],
            f"{scores['train']['loss']:.4f}",
            *(shown(scores[mask][measure]) for mask in ("train", "validation", "test")),
            style="bold" if name == "distributed" else None,
        )
    console.print(table)


def show_result(console: Console, run: "Run", summary: Summary, folder: Path) -> None:
    """Print the tables at the end of a run."""
    facts, settings = run.description, run.settings
    console.print(
        f"[bold]{escape(facts['name'])}[/]: {facts['num_vertices']} vertices, {facts['num_edges']} edges; "
        f"{settings.agents} agents, {facts['num_links']} links, {summary['steps']} steps in {summary['seconds']:.1f} s",
        highlight=False,
    )
    if settings.agents > 1:
        added = facts["added_links"]
        console.print(
            f"Topology {settings.topology}: {facts['num_links'] - added} links that the data needs, {added} others; "
            f"spectral radius {facts['spectral_radius']:.3f}",
            highlight=False,
        )
    if settings.tracks:
        console.print("Updates followed a tracked estimate of the whole gradient.", highlight=False)
    if summary["edges_kept"] < 1:
        console.print(
            f"The links carry {summary['edges_kept']:.1%} of the data edges; the others were dropped.", highlight=False
        )
    models: tuple[ModelName, ...] = get_args(ModelName)
    show_scores(console, {name: summary[name] for name in models if name in summary})
    if settings.agents > 1:
        console.print(f"Disagreement between agents: {summary['disagreement']:.2e}", highlight=False)
        _show_messages(console, summary["messages"])
    console.print(
        f"Run directory: [bold]{escape(str(folder))}[/]  (curves: {escape(str(folder / 'curves.png'))})",
        highlight=False,
        soft_wrap=True,
    )


def _show_messages(console: Console, messages: MessageCounts) -> None:
    table = Table()
    for heading in ("messages of a step", "rows", "bytes", "plain float32"):
        table.add_column(heading, justify="left" if heading.startswith("m") else "right")
    phases: tuple[PhaseName, ...] = get_args(PhaseName)
    for phase in phases:
        sent, plain = messages[phase], messages["plain"][phase]["bytes"]
        table.add_row(phase, f"{sent['rows']:,}", f"{sent['bytes']:,}", f"{plain:,}")
    all_sent = sum(messages[phase]["bytes"] for phase in phases)
    all_plain = sum(messages["plain"][phase]["bytes"] for phase in phases)
    fewer = f": {all_plain / all_sent:.1f} times fewer" if all_plain > all_sent else ""
    table.add_row(f"together{fewer}", "", f"{all_sent:,}", f"{all_plain:,}")
    table.add_section()
    table.add_row(
        "forward as the paper counts, B H",
        f"{messages['paper']['rows']:,}",
        f"{messages['paper']['bytes']:,}",
        style="dim",
    )
    table.add_row(
        "evaluation of every vertex",
        f"{messages['evaluation']['rows']:,}",
        f"{messages['evaluation']['bytes']:,}",
        style="dim",
    )
    console.print(table)
