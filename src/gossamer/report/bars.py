"""Progress bars in the terminal."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from gossamer.report.score_text import format_score, label_score
from gossamer.report.style import LABELS
from gossamer.runs.records import Record


@contextmanager
def _bars(console: Console, *columns: Any, transient: bool = False) -> Iterator[Callable[..., Callable[..., None]]]:
    """Yield a function that adds a bar and returns its update function. Nothing is printed before the first bar."""
    progress = Progress(*columns, console=console, transient=transient)

    def add(description: str, **fields: Any) -> Callable[..., None]:
        progress.start()
        task = progress.add_task(description, **fields)
        return lambda **changes: progress.update(task, **changes)

    try:
        yield add
    finally:
        if progress.live.is_started:
            progress.stop()


def _on_first_use(add: Callable[..., Callable[..., None]], description: str, **fields: Any) -> Callable[..., None]:
    """Update function of a bar that is added at its first update."""
    updates: list[Callable[..., None]] = []

    def update(**changes: Any) -> None:
        if not updates:
            updates.append(add(description, **fields))
        updates[0](**changes)

    return update


class TrainingBars:
    """Bars of the models, with loss, validation score and disagreement; before them that of the topology's design."""

    def __init__(self, add: Callable[..., Callable[..., None]]) -> None:
        self._add = add
        self._design: Callable[..., None] | None = None

    def design(self, iteration: int, reached: str) -> None:
        """Show the progress of the topology's design."""
        if self._design is None:
            self._design = self._add("topology", total=None, measures="")
        self._design(completed=iteration, measures=reached)

    def model(self, name: str, first: int, last: int) -> tuple[Callable[..., None], Callable[..., None]]:
        """Add a model's bar; return the callbacks of its steps and of its evaluations."""
        if self._design is not None:
            self._design(visible=False)
        update = self._add(LABELS[name], completed=first, total=last, measures="")

        def on_step(step: int, loss: float) -> None:
            update(completed=step)

        def on_record(record: Record) -> None:
            score = record["score"]
            measures = f"loss {record['train']['loss']:.4f} "
            measures += f"{label_score(score, short=True)} {format_score(score, record['validation'][score])}"
            if name == "distributed":
                measures += f" apart {record['disagreement']:.0e}"
            update(measures=measures)

        return on_step, on_record


@contextmanager
def training_bars(console: Console) -> Iterator[TrainingBars]:
    """The bars of `gossamer train`."""
    with _bars(
        console,
        TextColumn("{task.description:<11}"),
        BarColumn(bar_width=10),
        MofNCompleteColumn(),
        TextColumn("{task.fields[measures]}"),
        TimeRemainingColumn(compact=True),
    ) as add:
        yield TrainingBars(add)


@contextmanager
def download_bar(console: Console, name: str) -> Iterator[Callable[[int, int], None]]:
    """Bar of a download, shown when its first bytes arrive."""
    with _bars(
        console,
        TextColumn("Downloading {task.description}"),
        BarColumn(),
        DownloadColumn(),
        TimeRemainingColumn(),
        transient=True,
    ) as add:
        update = _on_first_use(add, name)
        yield lambda done, total: update(completed=done, total=total or None)


@contextmanager
def design_bar(console: Console) -> Iterator[Callable[[int, str], None]]:
    """Line with the progress of a topology's design, removed at the end."""
    with _bars(
        console,
        SpinnerColumn(),
        TextColumn("Designing the topology: iteration {task.completed}, {task.fields[reached]}"),
        TimeElapsedColumn(),
        transient=True,
    ) as add:
        update = _on_first_use(add, "", total=None, reached="")
        yield lambda iteration, reached: update(completed=iteration, reached=reached)


@contextmanager
def sweep_bar(console: Console, name: str = "Sweep") -> Iterator[Callable[[int, int, str], None]]:
    """Bar over the designs of a sweep, or over the parts of another experiment."""
    with _bars(
        console,
        TextColumn(name),
        BarColumn(bar_width=20),
        MofNCompleteColumn(),
        TextColumn("{task.fields[reached]}"),
        TimeRemainingColumn(compact=True),
    ) as add:
        update = _on_first_use(add, "", reached="")
        yield lambda done, total, reached: update(completed=done, total=total, reached=reached)
