"""What a person sees in the terminal: progress bars and tables."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, DownloadColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from gossamer.report.curves import LABELS

__all__ = ["download_bar", "escape", "show_result", "show_scores", "training_bars"]

BarMaker = Callable[[str, int, int], tuple[Callable[[int, float], None], Callable[[Mapping[str, Any]], None]]]


@contextmanager
def training_bars(console: Console) -> Iterator[BarMaker]:
    """A bar for each model with its loss, validation score and disagreement on it."""
    with Progress(
        TextColumn("{task.description:<11}"),
        BarColumn(bar_width=10),
        MofNCompleteColumn(),
        TextColumn("{task.fields[measures]}"),
        TimeRemainingColumn(compact=True),
        console=console,
    ) as progress:

        def make(name: str, first: int, last: int) -> Any:
            task = progress.add_task(LABELS[name], completed=first, total=last, measures="")

            def on_step(step: int, loss: float) -> None:
                progress.update(task, completed=step)

            def on_record(record: Mapping[str, Any]) -> None:
                held_out = record["validation"]
                measures = f"loss {record['train']['loss']:.4f} "
                accuracy = held_out.get("accuracy")
                measures += f"mse {held_out['mse']:.3f}" if accuracy is None else f"acc {accuracy:.1%}"
                if name == "distributed":
                    measures += f" apart {record['disagreement']:.0e}"
                progress.update(task, measures=measures)

            return on_step, on_record

        yield make


@contextmanager
def download_bar(console: Console, name: str) -> Iterator[Callable[[int, int], None]]:
    """A bar that appears when the first bytes of a download do."""
    with Progress(
        TextColumn("Downloading {task.description}"),
        BarColumn(),
        DownloadColumn(),
        TimeRemainingColumn(),
        console=console,
        transient=True,
    ) as progress:
        tasks: list[Any] = []

        def follow(done: int, total: int) -> None:
            if not tasks:
                tasks.append(progress.add_task(name))
            progress.update(tasks[0], completed=done, total=total or None)

        yield follow


def show_scores(console: Console, models: Mapping[str, Mapping[str, Mapping[str, float]]]) -> None:
    """A row for each model: loss and score on each mask."""
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


def show_result(console: Console, run: Any, summary: Mapping[str, Any], folder: Path) -> None:
    """The tables at the end of a run."""
    deployment, settings = run.deployment, run.settings
    graph = deployment.graph
    links = int(deployment.links.sum()) // 2
    console.print(
        f"[bold]{escape(graph.name)}[/]: {graph.num_vertices} vertices, {graph.num_edges} edges; "
        f"{settings.agents} agents, {links} links, {summary['steps']} steps in {summary['seconds']:.1f} s",
        highlight=False,
    )
    if summary["edges_kept"] < 1:
        console.print(
            f"The links carry {summary['edges_kept']:.1%} of the data edges; the others were dropped.", highlight=False
        )
    show_scores(console, {name: summary[name] for name in LABELS if name in summary})
    if settings.agents > 1:
        console.print(f"Disagreement between agents: {summary['disagreement']:.2e}", highlight=False)
        _show_messages(console, summary["messages"])
    console.print(
        f"Run directory: [bold]{escape(str(folder))}[/]  (curves: {escape(str(folder / 'curves.png'))})",
        highlight=False,
        soft_wrap=True,
    )


def _show_messages(console: Console, messages: Mapping[str, Any]) -> None:
    table = Table()
    for heading in ("messages of a step", "rows", "bytes"):
        table.add_column(heading, justify="left" if heading.startswith("m") else "right")
    for phase in ("forward", "backward", "consensus"):
        table.add_row(phase, f"{messages[phase]['rows']:,}", f"{messages[phase]['bytes']:,}")
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
