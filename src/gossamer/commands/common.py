"""What all commands share: a mistake told plainly, settings from the command line, data with a bar, progress."""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import Any

import typer
from rich.console import Console

from gossamer import api
from gossamer.assignment import ASSIGNMENTS
from gossamer.data import DATASETS, DataGraph, load
from gossamer.errors import GossamerError
from gossamer.report import bars, terminal
from gossamer.runs.deployment import Progress
from gossamer.runs.observers import Observer
from gossamer.runs.settings import Settings, make_settings, read_settings
from gossamer.runs.training import ShouldStop

MISTAKE, INTERRUPTED = 2, 130  # exit codes: the user's input is at fault; Ctrl-C
err = Console(stderr=True)


def tell(error: GossamerError) -> None:
    """A user's mistake, in one message."""
    err.print(f"[bold red]error:[/] {terminal.escape(str(error))}", highlight=False, soft_wrap=True)


def told_plainly(command: Callable[..., None]) -> Callable[..., None]:
    """Turn a user's mistake into one message and an exit code, without a traceback."""

    @wraps(command)
    def wrapped(*args: Any, **kwargs: Any) -> None:
        try:
            command(*args, **kwargs)
        except GossamerError as error:
            tell(error)
            raise typer.Exit(MISTAKE) from None
        except OSError as error:
            err.print(f"[bold red]error:[/] cannot read or write: {terminal.escape(str(error))}", highlight=False)
            raise typer.Exit(MISTAKE) from None
        except KeyboardInterrupt:
            err.print("[yellow]interrupted[/]")
            raise typer.Exit(INTERRUPTED) from None

    return wrapped


def settings_from(dataset: str | None, options: dict[str, Any]) -> Settings:
    """Settings from a file or a data set's name, with the command line's options on top."""
    values: dict[str, Any] = {}
    source = "command line"
    if dataset is not None and dataset.endswith(".toml"):
        values, source = read_settings(Path(dataset)), dataset
    elif dataset is not None:
        values = {"dataset": dataset}
    make_settings(values, source)
    settings = make_settings({**values, **options}, "command line")
    for name in ("dataset", "assignment"):
        given = Path(getattr(settings, name))
        if getattr(settings, name) not in (*DATASETS, *ASSIGNMENTS) and given.exists():
            settings = settings.model_copy(update={name: str(given.resolve())})
    if settings.track is None and settings.tracks and os.environ.get("RANK", "0") == "0":
        err.print(
            "adam follows a tracked estimate of the whole gradient; --no-track: each agent's own", highlight=False
        )
    return settings


def load_data(settings: Settings) -> DataGraph:
    with bars.download_bar(err, settings.dataset) as progress:
        return load(settings.dataset, settings.seed, progress)


@contextmanager
def follow(quiet: bool = False) -> Iterator[tuple[api.Display, ShouldStop, Progress]]:
    """A display with a progress bar for each model, unless `quiet`; a stop between two steps at the first Ctrl-C; and
    the progress of the topology's design."""
    console = Console(stderr=True, quiet=True) if quiet else err
    stopped: list[int] = []

    def handle(number: int, frame: Any) -> None:
        if stopped:
            raise KeyboardInterrupt
        stopped.append(number)
        console.print("[yellow]stopping after this step; press Ctrl-C again to stop at once[/]")

    before = signal.signal(signal.SIGINT, handle)
    try:
        with bars.training_bars(console) as shown:

            def display(name: str, first: int, last: int) -> Observer:
                on_step, on_record = shown.model(name, first, last)
                return Observer(on_step=on_step, on_record=on_record)

            def progress(iteration: int, reached: str) -> None:
                if stopped:  # a design leaves nothing to go on with
                    raise KeyboardInterrupt
                shown.design(iteration, reached)

            yield display, lambda: bool(stopped), progress
    finally:
        signal.signal(signal.SIGINT, before)
