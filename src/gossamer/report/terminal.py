"""Tables in the terminal, at the end of a command."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, get_args

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from gossamer.report.score_text import format_score, label_score
from gossamer.report.sequence_text import describe_sequence
from gossamer.report.style import LABELS
from gossamer.runs.records import MessageCounts, ModelName, PhaseName, RowRecord, Summary

if TYPE_CHECKING:  # of annotations alone: the network's libraries are not needed for a table
    from gossamer.runs.run import Run

__all__ = [
    "escape",
    "show_claims",
    "show_result",
    "show_scores",
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


def show_scores(console: Console, models: Mapping[str, Mapping[str, Mapping[str, float]]], main: str) -> None:
    """Print a row for each model: loss and main score on each mask; then the other scores on the test mask."""
    table = _start_table("training loss", "train", "validation", "test")
    table.caption = f"train, validation, test: {label_score(main)}"
    others = [name for name in next(iter(models.values()))["test"] if name != main]
    more = _start_table(*map(label_score, others))
    more.caption = "other scores on test"
    for name, scores in models.items():
        style = "bold" if name == "distributed" else None
        shown = (format_score(main, scores[mask].get(main)) for mask in ("train", "validation", "test"))
        table.add_row(LABELS[name], f"{scores['train']['loss']:.4f}", *shown, style=style)
        more.add_row(LABELS[name], *(format_score(other, scores["test"].get(other)) for other in others), style=style)
    console.print(table)
    console.print(more)


def _start_table(*headings: str) -> Table:
    table = Table(caption_justify="right")
    table.add_column("model")
    for heading in headings:
        table.add_column(heading, justify="right")
    return table


def show_result(console: Console, run: "Run", summary: Summary, folder: Path) -> None:
    """Print the tables at the end of a run."""
    facts, settings = run.description, run.settings
    console.print(
        f"[bold]{escape(facts['name'])}[/]: {facts['num_vertices']} vertices, {facts['num_edges']} edges; "
        f"{settings.agents} agents, {facts['num_links']} links, {summary['steps']} steps"
        + (f" in {summary['seconds']:.1f} s" if summary["seconds"] else ""),
        highlight=False,
    )
    if settings.agents > 1:
        added = facts["added_links"]
        console.print(
            f"Topology {settings.topology}: {facts['num_links'] - added} links that the data needs, {added} others; "
            f"spectral radius {facts['spectral_radius']:.3f}",
            highlight=False,
        )
    certificate = None if run.full_deployment is None else run.deployment.certificate
    if certificate is not None and certificate.sequence is not None:
        text = describe_sequence(certificate.sequence.period, certificate.contraction, certificate.sequence.symmetric)
        console.print(f"Links change, {text}.", highlight=False, markup=False)
    if settings.tracks:
        console.print("Updates followed a tracked estimate of the whole gradient.", highlight=False)
    if settings.encoder:
        console.print(
            f"Encoder: rows showed features through {settings.encoder} numbers a vertex, after "
            f"{settings.encoder_steps} steps each of a teacher and of the encoder.",
            highlight=False,
        )
    spec = settings.privacy_spec
    if spec is not None:
        console.print(
            f"Privacy: {spec.level} level, epsilon {spec.epsilon:g}, delta {spec.delta:g}, for what agents send; the "
            f"scores below are exact.{'' if run.secrets else ' Simulated: the noise follows from the seed.'}",
            highlight=False,
        )
    if settings.keep == "best" and "best_step" in run.history[-1]:
        best = f"the best validation {label_score(summary['score'])}"
        console.print(f"Kept: the weights of step {summary['best_step']}, with {best}.", highlight=False)
    if summary["edges_kept"] < 1:
        console.print(
            f"The links carry {summary['edges_kept']:.1%} of the data edges; the others were dropped.", highlight=False
        )
    if summary["edges_relayed"]:
        console.print(
            f"The links carry {1 - summary['edges_relayed']:.1%} of the data edges; the other "
            f"{summary['edges_relayed']:.1%} are relayed over agents between.",
            highlight=False,
        )
    if "rows" in summary:
        console.print(describe_rows(summary["rows"]), highlight=False)
    models: tuple[ModelName, ...] = get_args(ModelName)
    show_scores(console, {name: summary[name] for name in models if name in summary}, summary["score"])
    if settings.agents > 1:
        console.print(f"Disagreement between agents: {summary['disagreement']:.2e}", highlight=False)
        _show_messages(console, summary["messages"])
    console.print(
        f"Run directory: [bold]{escape(str(folder))}[/]  (curves: {escape(str(folder / 'curves.png'))})",
        highlight=False,
        soft_wrap=True,
    )


def describe_rows(rows: RowRecord) -> str:
    """Boundary rows while links change, in a sentence."""
    up, arrived = rows["links_up"], rows["arrived"]
    parts = [f"{up:.1%} of the links were up in a step; {arrived:.1%} of the boundary rows arrived"]
    if rows["replaced"]:
        age = f"{rows['mean_age']:.1f} steps old in the mean and at most {rows['largest_age']}"
        parts.append(f"the last ones stood in for {rows['replaced']:.1%}, {age}")
    dropped = 1 - rows["arrived"] - rows["replaced"]
    if dropped > 1e-9:
        parts.append(f"{dropped:.1%} were dropped")
    return "; ".join(parts) + "."


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
