"""Parts of all commands: error messages and exit codes, settings from the command line, data, progress."""

import logging
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console
from rich.markup import escape

from gossamer.choices import ASSIGNMENT_NAMES, DATASET_NAMES
from gossamer.errors import GossamerError
from gossamer.runs.options import Options

if TYPE_CHECKING:  # imported where they are used: --help and a mistyped option need none of them
    from gossamer.api import Display
    from gossamer.data import DataGraph
    from gossamer.runs.deployment import Progress
    from gossamer.runs.observers import Observer
    from gossamer.runs.settings import Settings
    from gossamer.runs.training import ShouldStop

MISTAKE, INTERRUPTED = 2, 130  # exit codes: the user's input is at fault; Ctrl-C
err = Console(stderr=True)
log = logging.getLogger(__name__)


def print_error(error: GossamerError) -> None:
    """Print a user's mistake in one message."""
    err.print(f"[bold red]error:[/] {escape(str(error))}", highlight=False, soft_wrap=True)


def print_warning(text: str) -> None:
    """Print a warning, in one line: terminals break it, logs must not."""
    err.print(f"[yellow]warning:[/] {escape(text)}", highlight=False, soft_wrap=True)


def print_line(text: str) -> None:
    """Print a line of progress on standard error at once."""
    print(text, file=sys.stderr, flush=True)


def print_json(content: Mapping[str, object]) -> None:
    """Print the object of `--json`."""
    from gossamer.runs.documents import to_json

    print(to_json(content), flush=True)


def report_errors(command: Callable[..., None]) -> Callable[..., None]:
    """Turn a user's mistake into one message and an exit code, without a traceback."""

    @wraps(command)
    def wrapped(*args: Any, **kwargs: Any) -> None:
        try:
            command(*args, **kwargs)
        except GossamerError as error:
            print_error(error)
            raise typer.Exit(MISTAKE) from None
        except OSError as error:
            print_error(GossamerError(f"cannot read or write: {error}"))
            raise typer.Exit(MISTAKE) from None
        except KeyboardInterrupt:
            err.print("[yellow]interrupted[/]")
            raise typer.Exit(INTERRUPTED) from None

    return wrapped


def combine_settings(dataset: str | None, options: Options) -> "Settings":
    """Settings from a file or a data set's name, with the command line's options on top."""
    from gossamer.runs.settings import make_settings
    from gossamer.runs.toml_files import read_settings

    values: dict[str, Any] = {}
    source = "command line"
    if dataset is not None and dataset.endswith(".toml"):
        values, source = read_settings(Path(dataset)), dataset
    elif dataset is not None:
        values = {"dataset": dataset}
    make_settings(values, source)
    settings = make_settings({**values, **options}, "command line")
    for name in ("dataset", "assignment", "initial"):
        value = getattr(settings, name)
        given = Path(value or "")
        if value not in (None, *DATASET_NAMES.names, *ASSIGNMENT_NAMES.names) and given.exists():
            settings = settings.model_copy(update={name: str(given.resolve())})
    log.debug("settings: %s", settings)
    return settings


def load_data(settings: "Settings") -> "DataGraph":
    """Load the data set of the settings, with a bar if it is downloaded."""
    from gossamer.report import bars
    from gossamer.runs.loading import load_dataset

    with bars.download_bar(err, settings.dataset) as progress:
        graph = load_dataset(settings, progress)
    log.info("%s: %d vertices, %d edges", graph.name, graph.num_vertices, len(graph.edges))
    return graph


def make_observers(tensorboard: Path | None) -> "list[Observer]":
    """The observers that the command line asks for."""
    from gossamer.observers import make_tensorboard_observer

    return [] if tensorboard is None else [make_tensorboard_observer(tensorboard)]


@contextmanager
def show_progress(quiet: bool = False) -> "Iterator[tuple[Display, ShouldStop, Progress]]":
    """Yield a display, unless `quiet`; a stop between two steps at the first Ctrl-C; and a callback that follows the
    design of the topology. The display is a progress bar for each model, or plain lines where there is no terminal."""
    from gossamer.observers import make_line_display
    from gossamer.report import bars
    from gossamer.runs.observers import Observer

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
                if quiet:
                    return Observer()
                if not console.is_terminal:
                    return make_line_display(print_line)(name, first, last)
                on_step, on_record = shown.model(name, first, last)
                return Observer(on_step=on_step, on_record=on_record)

            def progress(iteration: int, reached: str) -> None:
                if stopped:  # a design leaves nothing to go on with
                    raise KeyboardInterrupt
                if console.is_terminal:
                    shown.design(iteration, reached)

            yield display, lambda: bool(stopped), progress
    finally:
        signal.signal(signal.SIGINT, before)
