"""One training run beside its two references: the centralised network and the same without the graph (Sec. V-A)."""

import warnings
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Unpack

from torch import Tensor

from gossamer.agents.measures import Scores
from gossamer.data import DataGraph, load
from gossamer.engines.simulation import start
from gossamer.errors import GossamerError, GossamerWarning
from gossamer.report.curves import draw_curves
from gossamer.runs import directory
from gossamer.runs.advice import warn_before
from gossamer.runs.deployment import Progress
from gossamer.runs.message_counts import total_bytes
from gossamer.runs.options import Options
from gossamer.runs.records import Record, Summary
from gossamer.runs.settings import Settings, make_settings
from gossamer.runs.training import Hooks, Run, baseline_settings, disagreement_of, go_on

HooksFor = Callable[[str, int, int], Hooks]  # of a model's name, its first step and its last


@dataclass
class Result:
    """A finished (or interrupted) comparison: the distributed run, the references, and the summary of `--json`."""

    run: Run
    summary: Summary = field(default_factory=Summary)
    baseline_histories: dict[str, list[Record]] = field(default_factory=dict)

    @property
    def complete(self) -> bool:
        wanted = ("centralised", "graphless") if self.run.settings.baselines else ()
        return self.run.complete and all(name in self.summary for name in wanted)

    def save(self, folder: str | Path) -> Path:
        """Write the run directory, picture included."""
        target = Path(folder)
        with directory.claimed(target):
            directory.save_start(target, self.run)
            directory.save_weights(target, self.run)
            _save(target, self)
        return target


def train(
    dataset: DataGraph | str | Path | None = None,
    settings: Settings | None = None,
    *,
    out: str | Path | None = None,
    hooks: HooksFor | None = None,
    progress: Progress | None = None,
    given: Mapping[str, Any] | None = None,
    begin: directory.Begin = start,
    **options: Unpack[Options],
) -> Result:
    """Train the distributed network and its references; options are those of `gossamer train`.

    `dataset` is a DataGraph, or what `gossamer.load` takes. `given` may hold an `assignment` [n], a `combination`
    C [m, m] or a `shift` D [n, n] in place of the settings' choice. With `out`, a run directory is kept up to date.
    `progress` follows the design of the topology, `hooks` the training; `begin` puts the agents on other hosts than
    one in this process.
    """
    if settings is not None and options:
        raise GossamerError("give either a Settings object or single options, not both")
    unknown = set(given or {}) - {"assignment", "combination", "shift"}
    if unknown:
        raise GossamerError(f"`given` takes assignment, combination and shift, got {', '.join(sorted(unknown))}")
    if settings is None:
        settings = make_settings(options)
    if isinstance(dataset, DataGraph):
        graph = dataset
        if "dataset" not in settings.model_fields_set:  # else they say where the graph was loaded from
            settings = settings.model_copy(update={"dataset": graph.name})
    else:
        if dataset is not None:
            settings = settings.model_copy(update={"dataset": str(dataset)})
        graph = load(settings.dataset, settings.seed)
    result = Result(begin(graph, settings, progress=progress, **(given or {})))
    if result.run.engine.leads:
        warn_before(result.run.deployment, settings)
    if out is None:
        return finish(result, graph, None, hooks)
    folder = Path(out)
    with directory.claimed(folder) if result.run.engine.leads else nullcontext():
        if result.run.engine.leads:
            directory.save_start(folder, result.run)
        return finish(result, graph, folder, hooks)


def resume(
    folder: str | Path,
    steps: int | None = None,
    hooks: HooksFor | None = None,
    *,
    graph: DataGraph | None = None,
    shift: Any = None,
    begin: directory.Begin = start,
) -> Result:
    """Go on with a run directory where its last checkpoint stands.

    A graph or shift operator that was given to `train` from memory must be given again. Ranks of a job have the folder
    locked already.
    """
    path = Path(folder)
    with directory.gone_on_with(path) if begin is start else nullcontext():
        if graph is None:
            graph = graph_of(path)
        state = directory.read_run(path, graph, begin, steps, shift)
        histories = directory.read_references(path)
        if state.engine.leads:
            directory.save_summary(path, state, directory.read_summary(path))  # a killed run goes on to the new steps
        return finish(Result(state, baseline_histories=histories), graph, path, hooks)


def predict(
    folder: str | Path, *, graph: DataGraph | None = None, shift: Any = None, begin: directory.Begin = start
) -> Tensor:
    """Every vertex's output with the weights that a run left behind (eq. (5)-(7)), in vertex order."""
    path = Path(folder)
    return directory.read_weights(path, graph_of(path) if graph is None else graph, begin, shift).predict()


def graph_of(folder: Path, progress: Callable[[int, int], None] | None = None) -> DataGraph:
    """The data graph that a run directory names."""
    settings = directory.read_settings_of(folder)
    try:
        return load(settings.dataset, settings.seed, progress)
    except GossamerError as error:
        raise GossamerError(
            f"{folder} was trained on {settings.dataset!r}, which cannot be loaded: {error}. A graph from memory must "
            f"be given again: gossamer.resume({str(folder)!r}, graph=...) or gossamer.predict in Python"
        ) from None


def finish(result: Result, graph: DataGraph | None, folder: Path | None, hooks: HooksFor | None) -> Result:
    """Train what is left, and sum up; an interruption between two steps keeps what is done. The references are trained
    by the process that leads, alone."""
    settings = result.run.settings
    make_hooks = hooks or (lambda name, first, last: Hooks())
    mine = make_hooks("distributed", result.run.host.step, settings.steps)
    if folder is not None:
        mine = Hooks(mine.on_step, mine.on_record, lambda run: directory.save_checkpoint(folder, run), mine.should_stop)
    try:
        go_on(result.run, mine)
    except GossamerError:
        if folder is not None and result.run.engine.leads:
            directory.save_summary(folder, result.run, {})
        raise
    result.summary = _summary(result.run)
    if folder is not None:
        directory.save_weights(folder, result.run)
    if not result.run.engine.leads:
        return result
    if folder is not None:
        directory.save_summary(folder, result.run, result.summary, result.complete)
    if settings.baselines and result.run.complete and graph is not None:
        for name, reference in baseline_settings(settings).items():
            if name == "centralised" and settings.agents == 1:
                result.baseline_histories[name] = result.run.history
            done = result.baseline_histories.get(name)
            if done and done[-1]["step"] == settings.steps:
                result.summary[name] = _masks_of(done[-1])
                continue
            shift = result.run.deployment.shift if result.run.own_shift and name == "centralised" else None
            other = start(graph, reference, shift=shift)
            try:
                go_on(other, make_hooks(name, 0, settings.steps))
            except GossamerError as error:  # it diverged: its scores say so, and the distributed run stays whole
                warnings.warn(f"the {name} reference: {error}", GossamerWarning, stacklevel=2)
                other.settings = other.settings.model_copy(update={"steps": other.host.step})
            if not other.complete:
                break
            result.summary[name] = _final(other)
            result.baseline_histories[name] = other.history
    if folder is not None:
        _save(folder, result)
    return result


def _save(folder: Path, result: Result) -> None:
    directory.save_summary(folder, result.run, result.summary, result.complete)
    directory.save_references(folder, result.baseline_histories)
    draw_curves(
        folder / "curves.png",
        {"distributed": result.run.history, **result.baseline_histories},
        result.run.facts["num_classes"] is not None,
        title=f"{result.run.settings.dataset}, {result.run.settings.agents} agents",
    )


def _final(state: Run) -> Scores:
    last = state.history[-1]
    return state.scores() if last["step"] != state.host.step else _masks_of(last)


def _masks_of(record: Record) -> Scores:
    return {"train": record["train"], "validation": record["validation"], "test": record["test"]}


def _summary(state: Run) -> Summary:
    """The object of `--json`, without the references."""
    final, apart = _final(state), disagreement_of(state)  # for which all hosts are needed
    if not state.engine.leads:
        return {"distributed": final}
    messages = state.messages
    return {
        "distributed": final,
        "disagreement": apart,
        "stationarity": state.history[-1]["stationarity"],
        "best_stationarity": state.history[-1]["best_stationarity"],
        "steps": state.host.step,
        "edges_kept": state.facts["edges_kept"],
        "messages": {**messages, "total_bytes": total_bytes(messages, state.settings, state.host.step)},
        "seconds": state.seconds,
    }
