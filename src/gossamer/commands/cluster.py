"""`gossamer cluster`: one rank of a torchrun job that trains together."""

from contextlib import ExitStack
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
from gossamer.commands.options import AsJson, Dataset, LogLevel, Metrics, RunDirectory, TensorBoard, with_settings
from gossamer.commands.watching import WatchOptions, follow_training, watch_run
from gossamer.engines.cluster.heartbeats import GIVE_UP
from gossamer.errors import GossamerError
from gossamer.runs.options import Options

if TYPE_CHECKING:
    from gossamer.api import Result

EXAMPLES = """[bold]Examples[/]

torchrun --nproc-per-node 2 -m gossamer cluster cora --agents 10 --out runs/cora-ranks

torchrun --nproc-per-node 2 -m gossamer cluster --resume runs/cora-ranks --steps 1000

torchrun --nproc-per-node 2 --max-restarts 3 -m gossamer cluster settings.toml --out runs/mine

gossamer shard cora --agents 10 --ranks 2 --out runs/cut

torchrun --nproc-per-node 2 -m gossamer cluster runs/cut
"""


@report_errors
@with_settings()
def cluster(
    dataset: Dataset = None,
    out: RunDirectory = None,
    resume: Annotated[
        Path | None,
        typer.Option(
            help="Go on with a run directory, on any number of ranks (only --steps may change).", show_default=False
        ),
    ] = None,
    give_up: Annotated[
        float,
        typer.Option(
            metavar="SECONDS", min=1, help="End with exit code 4 when a rank shows no sign of life for so long."
        ),
    ] = GIVE_UP,
    tensorboard: TensorBoard = None,
    metrics: Metrics = None,
    as_json: AsJson = False,
    log_level: LogLevel = "warning",
    *,
    options: Options,
) -> None:
    """Train as one rank of a PyTorch job, started by torchrun; each rank carries a share of the agents.

    The first rank shows the progress, serves --metrics and writes the run directory of gossamer train, which it needs
    to resume: when torchrun starts the ranks again after a failure, they go on from the last checkpoint in --out. In
    place of a data set it takes a folder that gossamer shard --ranks has cut; then each rank reads its own part only.
    """
    logs.configure(log_level)
    from gossamer.commands.ranks import join_ranks
    from gossamer.report import terminal

    with join_ranks(give_up) as rank:
        result, folder = _train(rank, dataset, out, resume, tensorboard, metrics, options)
    if rank == 0 and as_json:
        print_json(result.summary)
    elif rank == 0:
        terminal.show_result(Console(), result.run, result.summary, folder)
    if not result.run.complete:
        if rank == 0:
            err.print(
                f"[yellow]stopped at step {result.run.host.step} of {result.run.settings.steps}[/]; go on with "
                f"[bold]torchrun ... -m gossamer cluster --resume {escape(str(folder))}[/]",
                highlight=False,
            )
        raise typer.Exit(INTERRUPTED)


def _train(
    rank: int,
    dataset: str | None,
    out: Path | None,
    resume: Path | None,
    tensorboard: Path | None,
    metrics: str | None,
    options: Options,
) -> "tuple[Result, Path]":
    from gossamer import api
    from gossamer.engines.cluster import job
    from gossamer.engines.cluster.rank_shards import is_cut, start_on_shards
    from gossamer.runs import new_folders
    from gossamer.runs.memory import keep_memory

    with job.share_errors():
        observers = make_observers(tensorboard if rank == 0 else None)
    if job.was_restarted() and out is not None and (out / "run.json").is_file():
        dataset, out, resume, options = None, None, out, {}
    with keep_memory(), show_progress(quiet=rank != 0) as (shown, should_stop, progress), ExitStack() as held:
        with job.share_errors():
            watch = held.enter_context(watch_run(WatchOptions(metrics=metrics if rank == 0 else None)))
        title = str(dataset or resume or "digits")
        display = held.enter_context(follow_training(watch, title, shown, should_stop))
        if dataset is not None and is_cut(Path(dataset)):
            if out is not None or resume is not None or set(options) - {"steps"}:
                raise GossamerError(f"{dataset} has its own settings and folder; only --steps may be given with it")
            _lock(Path(dataset), rank, held)
            state = start_on_shards(Path(dataset), options.get("steps"))
            result = api.Result(state)
            return api.finish(result, None, Path(dataset), observers, should_stop, display), Path(dataset)
        if resume is not None:
            if dataset is not None or out is not None or set(options) - {"steps"}:
                raise GossamerError("--resume goes on with the run's own settings; only --steps may be given with it")
            _lock(resume, rank, held)
            with job.share_errors():
                graph = api.load_graph(resume)
            return (
                api.resume(
                    resume,
                    options.get("steps"),
                    graph=graph,
                    observers=observers,
                    should_stop=should_stop,
                    display=display,
                    start=job.start_on_ranks,
                ),
                resume,
            )
        with job.share_errors():
            settings = combine_settings(dataset, options)
            graph = load_data(settings)
            folder = out or new_folders.find_free_name(Path("runs"), graph.name)
            if rank == 0:
                new_folders.check_new(folder)
        return (
            api.train(
                graph,
                settings,
                out=folder,
                observers=observers,
                should_stop=should_stop,
                display=display,
                progress=progress,
                start=job.start_on_ranks,
            ),
            folder,
        )


def _lock(folder: Path, rank: int, held: ExitStack) -> None:
    """Lock the run directory for this job; the rank that writes to it holds the lock."""
    from gossamer.engines.cluster import job
    from gossamer.runs import directory

    with job.share_errors():
        if rank == 0:
            held.enter_context(directory.lock_run(folder))
