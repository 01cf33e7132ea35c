"""The command `gossamer`: parses, calls, prints."""

import signal
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from gossamer.assignment import ASSIGNMENTS
from gossamer.data import DATASETS, DataGraph, load
from gossamer.errors import GossamerError, GossamerWarning
from gossamer.experiments import comparison
from gossamer.options import with_settings
from gossamer.report import terminal
from gossamer.report.predictions import write_predictions
from gossamer.runtime import directory
from gossamer.runtime.settings import Settings, make_settings, read_settings
from gossamer.runtime.training import Hooks

MISTAKE, INTERRUPTED = 2, 130  # exit codes: the user's input is at fault; Ctrl-C

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Train graph neural networks across agents that talk only to their neighbours.",
)
err = Console(stderr=True)


def main() -> None:
    """Entry point of the console script."""
    warnings.simplefilter("always", GossamerWarning)
    warnings.showwarning = _show_warning
    app()


def _show_warning(message: Warning | str, category: type[Warning], *rest: Any, **more: Any) -> None:
    err.print(f"[yellow]warning:[/] {terminal.escape(str(message))}", highlight=False)


def told_plainly(command: Callable[..., None]) -> Callable[..., None]:
    """Turn a user's mistake into one message and an exit code, without a traceback."""

    @wraps(command)
    def wrapped(*args: Any, **kwargs: Any) -> None:
        try:
            command(*args, **kwargs)
        except GossamerError as error:
            err.print(f"[bold red]error:[/] {terminal.escape(str(error))}", highlight=False, soft_wrap=True)
            raise typer.Exit(MISTAKE) from None
        except OSError as error:
            err.print(f"[bold red]error:[/] cannot read or write: {terminal.escape(str(error))}", highlight=False)
            raise typer.Exit(MISTAKE) from None
        except KeyboardInterrupt:
            err.print("[yellow]interrupted[/]")
            raise typer.Exit(INTERRUPTED) from None

    return wrapped


def _version(wanted: bool) -> None:
    if wanted:
        print(version("gossamer"))
        raise typer.Exit


@app.callback()
def callback(
    show_version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    pass


TRAIN_EXAMPLES = """[bold]Examples[/]

gossamer train

gossamer train cora --agents 10 --topology ring

gossamer train digits --layers chebyshev --order 2 --update adam --step-size 0.01

gossamer train settings.toml --seed 1 --json

gossamer train --resume runs/digits-1 --steps 1000
"""


@app.command(epilog=TRAIN_EXAMPLES)
@told_plainly
@with_settings
def train(
    dataset: Annotated[
        str | None,
        typer.Argument(
            metavar="DATASET",
            show_default=False,
            help=f"{', '.join(DATASETS)}, an .npz file, a folder of CSV tables, or a settings file (.toml). "
            "[dim]\\[default: digits][/]",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Run directory to write. [dim]\\[default: runs/NAME-NUMBER][/]", show_default=False),
    ] = None,
    resume: Annotated[
        Path | None,
        typer.Option(help="Go on with an interrupted run directory (only --steps may change).", show_default=False),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of tables.")] = False,
    *,
    options: dict[str, Any],
) -> None:
    """Train a graph convolutional network across agents, simulated on this machine.

    The result stands beside the centralised network and a network without the graph, trained the same way.

    Tables go to the terminal; weights, metrics and curves.png to the run directory.
    """
    if resume is not None:
        if dataset is not None or out is not None or set(options) - {"steps"}:
            raise GossamerError("--resume goes on with the run's own settings; only --steps may be given with it")
        folder = resume
        with _follow() as hooks:
            result = comparison.resume(resume, options.get("steps"), hooks)
    else:
        settings = _settings(dataset, options)
        graph = _load(settings)
        folder = out or directory.free_name(Path("runs"), graph.name)
        with _follow() as hooks:
            result = comparison.train(graph, settings, out=folder, hooks=hooks)
    if as_json:
        print(directory.to_json(result.summary))
    else:
        terminal.show_result(Console(), result.run, result.summary, folder)
    if not result.complete:
        err.print(
            f"[yellow]stopped at step {result.run.host.step} of {result.run.settings.steps}[/]; go on with "
            f"[bold]gossamer train --resume {terminal.escape(str(folder))}[/]",
            highlight=False,
        )
        raise typer.Exit(INTERRUPTED)


@app.command(epilog="[bold]Example[/]\n\ngossamer predict runs/digits-1")
@told_plainly
def predict(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A run directory.")],
    out: Annotated[
        Path | None,
        typer.Option(help="CSV file to write. [dim]\\[default: DIR/predictions.csv][/]", show_default=False),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a table.")] = False,
) -> None:
    """Run distributed inference with a trained run's weights and write every vertex's class or value as CSV.

    Each vertex is predicted with its own agent's weights, one exchange of boundary rows for each propagation.
    """
    with terminal.download_bar(err, str(folder)) as progress:
        graph = comparison.graph_of(folder, progress)
    state = directory.read_weights(folder, graph)
    target = out or folder / "predictions.csv"
    write_predictions(target, graph, state.deployment.assignment, state.predict())
    if as_json:
        print(directory.to_json({"predictions": str(target), **state.scores()}))
    else:
        terminal.show_scores(Console(), {"distributed": state.scores()})
        Console().print(
            f"Predictions of {graph.num_vertices} vertices: [bold]{terminal.escape(str(target))}[/]", highlight=False
        )


def _settings(dataset: str | None, options: dict[str, Any]) -> Settings:
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
    return settings


def _load(settings: Settings) -> DataGraph:
    with terminal.download_bar(err, settings.dataset) as progress:
        return load(settings.dataset, settings.seed, progress)


@contextmanager
def _follow() -> Iterator[comparison.HooksFor]:
    """Hooks that show a progress bar for each model and stop between two steps at the first Ctrl-C."""
    stopped: list[int] = []

    def handle(number: int, frame: Any) -> None:
        if stopped:
            raise KeyboardInterrupt
        stopped.append(number)
        err.print("[yellow]stopping after this step; press Ctrl-C again to stop at once[/]")

    before = signal.signal(signal.SIGINT, handle)
    try:
        with terminal.training_bars(err) as bars:

            def hooks(name: str, first: int, last: int) -> Hooks:
                on_step, on_record = bars(name, first, last)
                return Hooks(on_step=on_step, on_record=on_record, should_stop=lambda: bool(stopped))

            yield hooks
    finally:
        signal.signal(signal.SIGINT, before)
