"""`gossamer train`: a training run simulated on this machine, beside its two references."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape

from gossamer.commands import logs
from gossamer.commands.common import (
    INTERRUPTED,
    combine_settings,
    err,
    load_data,
    make_observers,
    print_json,
    report_errors,
    show_progress,
)
from gossamer.commands.options import (
    AsJson,
    Dataset,
    LogLevel,
    Metrics,
    Page,
    PageTokenFile,
    RunDirectory,
    TensorBoard,
    with_settings,
)
from gossamer.commands.watching import Watch, WatchOptions, follow_training, print_watch_hint, watch_run
from gossamer.errors import GossamerError
from gossamer.runs.options import Options
from gossamer.runs.settings import Settings

if TYPE_CHECKING:
    from gossamer.api import Result

EXAMPLES = """[bold]Examples[/]

gossamer train

gossamer train cora --agents 10 --topology ring

gossamer train digits --layers chebyshev --order 2 --update adam --step-size 0.01

gossamer train settings.toml --seed 1 --json

gossamer train cora --agents 10 --page 127.0.0.1:8080

gossamer train --resume runs/digits-1 --steps 1000

gossamer train digits --agents 4 --secrets runs/launched/secrets.json
"""


@report_errors
@with_settings()
def train(
    dataset: Dataset = None,
    out: RunDirectory = None,
    resume: Annotated[
        Path | None,
        typer.Option(help="Go on with an interrupted run directory (only --steps may change).", show_default=False),
    ] = None,
    secrets: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Simulate a launch with its secrets.json, and otherwise its settings, to the same bits.",
            show_default=False,
        ),
    ] = None,
    tensorboard: TensorBoard = None,
    page: Page = None,
    page_token_file: PageTokenFile = None,
    metrics: Metrics = None,
    as_json: AsJson = False,
    log_level: LogLevel = "warning",
    *,
    options: Options,
) -> None:
    """Train a graph neural network across agents, simulated on this machine.

    The result stands beside the centralised network and a network without the graph, trained the same way.

    Tables go to the terminal; weights, metrics and curves.png to the run directory.
    """
    logs.configure(log_level)
    watched = WatchOptions(page, metrics, page_token_file)
    if resume is None:
        settings = combine_settings(dataset, options)
        with watch_run(watched) as watch:
            result, folder = _train(settings, out, secrets, tensorboard, watch)
    else:
        if dataset is not None or out is not None or secrets is not None or set(options) - {"steps"}:
            raise GossamerError("--resume goes on with the run's own settings; only --steps may be given with it")
        folder = resume
        with watch_run(watched) as watch:
            result = _resume(resume, options.get("steps"), tensorboard, watch)
    if as_json:
        print_json(result.summary)
    else:
        from gossamer.report import terminal

        terminal.show_result(Console(), result.run, result.summary, folder)
    print_watch_hint(watched, folder)
    if not result.complete:
        err.print(
            f"[yellow]stopped at step {result.run.host.step} of {result.run.settings.steps}[/]; go on with "
            f"[bold]gossamer train --resume {escape(str(folder))}[/]",
            highlight=False,
        )
        raise typer.Exit(INTERRUPTED)


def _train(
    settings: Settings, out: Path | None, secrets: Path | None, tensorboard: Path | None, watch: Watch | None
) -> "tuple[Result, Path]":
    from gossamer import api
    from gossamer.runs import new_folders
    from gossamer.runs.memory import keep_memory

    observers = make_observers(tensorboard)
    graph = load_data(settings)
    folder = out or new_folders.find_free_name(Path("runs"), graph.name)
    if watch is not None:
        new_folders.check_new(folder)
        watch.announce()
    with (
        keep_memory(),
        show_progress() as (display, should_stop, progress),
        follow_training(watch, graph.name, display, should_stop) as show,
    ):
        result = api.train(
            graph,
            settings,
            out=folder,
            secrets=secrets,
            observers=observers,
            should_stop=should_stop,
            display=show,
            progress=progress,
        )
    return result, folder


def _resume(folder: Path, steps: int | None, tensorboard: Path | None, watch: Watch | None) -> "Result":
    from gossamer import api, launching
    from gossamer.runs import directory, run_json
    from gossamer.runs.memory import keep_memory

    observers = make_observers(tensorboard)
    if watch is not None:
        run_json.read_manifest(folder)  # so that no page is announced where there is no run
    with (
        keep_memory(),
        show_progress() as (display, should_stop, _),
        follow_training(
            watch, folder.name, display, should_stop, lambda: directory.read_references(folder), folder
        ) as show,
    ):
        if directory.is_unfinished_launch(folder):
            return launching.simulate_rest(folder, steps, observers, should_stop, show)
        return api.resume(folder, steps, observers=observers, should_stop=should_stop, display=show)
