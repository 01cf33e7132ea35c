"""The Python interface: train, resume, predict, load_model; a run beside its two references, the centralised network
and the same without the graph (Sec. V-A)."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Unpack

from torch import Tensor
from torch.nn import Module

from gossamer.data import DataGraph
from gossamer.engines.simulation import start_run
from gossamer.errors import GossamerError, GossamerWarning, shown
from gossamer.model.modules import GraphNetwork
from gossamer.report.curves import draw_curves
from gossamer.report.result_text import describe_result, tabulate_result
from gossamer.runs import directory, new_folders
from gossamer.runs.advice import warn_after_training, warn_before_training
from gossamer.runs.capacity import fit_agents
from gossamer.runs.deployment import Progress
from gossamer.runs.handover import train_stages
from gossamer.runs.inference import predict_unlabelled
from gossamer.runs.initial_weights import split_initial
from gossamer.runs.loading import load_dataset, take_graph
from gossamer.runs.model_files import export_model, read_model
from gossamer.runs.observers import Observer
from gossamer.runs.options import Options
from gossamer.runs.records import Record, Summary
from gossamer.runs.run import Run, StartRun
from gossamer.runs.run_json import read_manifest, read_run_settings
from gossamer.runs.secret_files import read_secrets
from gossamer.runs.settings import Settings, make_settings
from gossamer.runs.shares import is_agent_folder
from gossamer.runs.summaries import find_kept_record, has_ended, measure_final_scores, select_scores, summarise
from gossamer.runs.trained import read_trained, trained_of_run
from gossamer.runs.training import ShouldStop, baseline_settings, run_training

Display = Callable[[str, int, int], Observer]  # of a model's name, its first step and its last


@dataclass(repr=False)
class Result:
    """A finished (or interrupted) run, the references, and the summary of `--json`."""

    run: Run
    summary: Summary = field(default_factory=Summary)
    baseline_histories: dict[str, list[Record]] = field(default_factory=dict)
    folder: Path | None = None  # the run directory, if there is one

    def __repr__(self) -> str:
        return describe_result(self.run, self.summary, self.folder)

    def _repr_html_(self) -> str:
        """A table for notebooks."""
        return tabulate_result(self.run, self.summary, self.folder)

    @property
    def complete(self) -> bool:
        wanted = ("centralised", "graphless") if self.run.settings.baselines else ()
        return self.run.complete and all(name in self.summary for name in wanted)

    def save(self, folder: str | Path) -> Path:
        """Write the run directory, picture included."""
        target = Path(folder)
        with new_folders.create_locked(target):
            directory.save_start(target, self.run)
            directory.save_weights(target, self.run)
            _save(target, self)
        self.folder = target
        return target

    def model(self, agent: int | None = None) -> GraphNetwork:
        """The network with the mean of the agents' weights, or one agent's, as a plain PyTorch module whose parameters
        have the names of PyTorch Geometric's layers (`gossamer docs models`)."""
        return trained_of_run(self.run, self.summary).module(agent)

    def to_pyg(self, agent: int | None = None) -> Module:
        """`model` as one of PyTorch Geometric's: GCN, GraphSAGE, GIN or GAT; other networks are refused."""
        return self.model(agent).to_pyg()

    def export(self, path: str | Path, agent: int | None = None) -> Path:
        """Write `model` to a .safetensors file, with a card beside it, as `gossamer export` does."""
        return export_model(trained_of_run(self.run, self.summary), Path(path), agent)[0]

    def predict(self, data: Any = None, *, over_agents: bool = False, shift: Any = None) -> Tensor:
        """Outputs [n, outputs] for every vertex of the run's own graph, by its agents, or of other `data`: see
        `gossamer.predict`."""
        if data is None:
            return self.run.predict()
        trained = trained_of_run(self.run, self.summary)
        return predict_unlabelled(trained, data, start_run, over_agents, shift).outputs


def train(
    dataset: Any = None,
    settings: Settings | None = None,
    *,
    out: str | Path | None = None,
    observers: Sequence[Observer] = (),
    should_stop: ShouldStop = lambda: False,
    display: Display | None = None,
    progress: Progress | None = None,
    given: Mapping[str, Any] | None = None,
    secrets: str | Path | None = None,
    start: StartRun = start_run,
    **options: Unpack[Options],
) -> Result:
    """Train the distributed network and its references; options are those of `gossamer train`.

    `dataset` is a DataGraph or what `gossamer.load` takes: a torch_geometric.data.Data, a networkx.Graph, a path or a
    name. `given` may hold an `assignment` [n], a `combination` C [m, m] or a `shift` D [n, n] in place of the
    settings' choice. With `out`, a run directory is kept up to date. `secrets` is the secrets.json of a launch, which
    is then simulated to the same bits. `observers` follow the distributed run; `should_stop` is asked between two
    steps. `display` makes an observer for each model, references included, and `progress` follows the design of the
    topology. `start` puts the agents on other hosts than one in this process. `initial` is a .safetensors file, a run
    directory, a state dict or `from_pyg_module`'s: agents and the centralised reference start there.
    """
    if settings is not None and options:
        raise GossamerError("give either a Settings object or single options, not both")
    unknown = set(given or {}) - {"assignment", "combination", "shift"}
    if unknown:
        raise GossamerError(f"`given` takes assignment, combination and shift, got {', '.join(sorted(unknown))}")
    try:
        target = None if out is None else Path(out)
    except TypeError:
        raise GossamerError(f"`out` should be the path of a run directory, a str or a Path; got {shown(out)}") from None
    options, initial = split_initial(options)
    if settings is None:
        settings = make_settings(options)
    if dataset is not None and not isinstance(dataset, str | Path):
        graph = take_graph(dataset, settings)
        if "dataset" not in settings.model_fields_set:  # else they say where the graph was loaded from
            settings = settings.model_copy(update={"dataset": graph.name})
    else:
        if dataset is not None:
            settings = settings.model_copy(update={"dataset": str(dataset)})
        graph = load_dataset(settings)
    more = dict(given or {})
    if not {"assignment", "combination"} & set(more):
        settings = fit_agents(settings, graph.num_vertices)
    if secrets is not None:
        if settings.public_randomness:
            raise GossamerError("secrets are for a run without public_randomness: give one or the other")
        more["secrets"] = read_secrets(Path(secrets), range(settings.agents))
    run = start(graph, settings, progress=progress, initial=initial, **more)
    if run.engine.leads:
        warn_before_training(run.deployment, run.whole_settings)
    show = display or (lambda name, first, last: Observer())
    result = Result(train_stages(run, lambda name, last: show(name, 0, last), should_stop))
    with new_folders.create_locked(target) if target is not None and run.engine.leads else nullcontext():
        if target is not None and run.engine.leads:
            directory.save_start(target, result.run)
        return finish(result, graph, target, observers, should_stop, display)


def resume(
    folder: str | Path,
    steps: int | None = None,
    *,
    graph: Any = None,
    shift: Any = None,
    observers: Sequence[Observer] = (),
    should_stop: ShouldStop = lambda: False,
    display: Display | None = None,
    start: StartRun = start_run,
) -> Result:
    """Continue a run directory from its last checkpoint; see `train` for what follows it. A graph or shift operator
    that was given to `train` from memory must be given again. Ranks of a job have the folder locked already."""
    path = Path(folder)
    with directory.lock_run(path) if start is start_run else nullcontext():
        graph = load_graph(path) if graph is None else take_graph(graph, read_run_settings(path))
        run = directory.read_run(path, graph, start, steps, shift)
        histories, summary = directory.read_references(path), directory.read_summary(path)
        if run.engine.leads:
            directory.save_summary(path, run, summary)  # a killed run goes on to the new steps
        result = Result(run, summary, histories)
        return finish(result, graph, path, observers, should_stop, display)


def predict(
    folder: str | Path,
    *,
    data: Any = None,
    over_agents: bool = False,
    graph: DataGraph | None = None,
    shift: Any = None,
    start: StartRun = start_run,
) -> Tensor:
    """Every vertex's output with the weights that a run left behind (eq. (5)-(7)), in vertex order.

    Without `data`, of the graph that the run was trained on, each vertex with its own agent's weights; a `graph` from
    memory must be given again. On ranks of a job (`start=start_on_ranks`) every rank returns all outputs. With `data`,
    of another graph with the same features: a DataGraph, what `load` takes, or a PyTorch Geometric graph, without
    labels. It is predicted centrally with the mean of the agents' weights or, with `over_agents`, by agents to which
    its vertices are assigned by the run's method. An agent's folder predicts its vertices, or new ones, alone.
    """
    path = Path(folder)
    if is_agent_folder(path):
        from gossamer.peers.prediction import TrainedAgent  # with the network's libraries, which no other run needs

        return TrainedAgent(path).predict(data=None if data is None else Path(data)).outputs
    if data is not None:
        return predict_unlabelled(read_trained(path), data, start, over_agents, shift).outputs
    return directory.read_weights(path, load_graph(path) if graph is None else graph, start, shift).predict()


def load_model(path: str | Path) -> GraphNetwork:
    """The network of a file that `gossamer export` wrote, as a plain PyTorch module."""
    return read_model(Path(path))


def load_graph(folder: Path, progress: Callable[[int, int], None] | None = None) -> DataGraph:
    """Load the data graph that a run directory names."""
    settings, pooled = read_run_settings(folder), bool(read_manifest(folder).data.fingerprint)
    if settings.evict_after is not None and not pooled:  # whatever data set its agents came from
        raise GossamerError(
            f"{folder} was trained on the vertices of agents that have come and gone, which no data set holds; predict "
            "with each of them: gossamer predict AGENT"
        )
    try:
        return load_dataset(settings, progress)
    except GossamerError as error:
        reason = error if pooled else "it is with the sites: gossamer predict AGENT"
        raise GossamerError(
            f"{folder} was trained on {settings.dataset!r}, which cannot be loaded: {reason}. A graph from memory must "
            f"be given again: gossamer.resume({str(folder)!r}, graph=...) or gossamer.predict in Python"
        ) from None


def finish(
    result: Result,
    graph: DataGraph | None,
    folder: Path | None,
    observers: Sequence[Observer] = (),
    should_stop: ShouldStop = lambda: False,
    display: Display | None = None,
) -> Result:
    """Train the steps that are left and summarise; a stop between two steps keeps what is done. The references are
    trained by the process that leads, alone, and skipped without a graph."""
    run, settings = result.run, result.run.settings
    result.folder = folder
    show = display or (lambda name, first, last: Observer())
    saver = [directory.make_saver(folder, run)] if folder is not None else []
    try:
        run_training(run, [*saver, show("distributed", run.host.step, settings.steps), *observers], should_stop)
    except GossamerError:
        if folder is not None and run.engine.leads:
            directory.save_summary(folder, run, {})
        raise
    before, result.summary = result.summary, summarise(run)
    warn_after_training(run, result.summary["distributed"]["train"]["loss"], result.summary.get("disagreement", 0.0))
    if not run.engine.leads:
        return result
    if folder is not None:
        directory.save_summary(folder, run, result.summary, result.complete)
    if settings.baselines and run.complete and graph is not None:
        _train_references(result, before, graph, should_stop, show)
    if folder is not None:
        _save(folder, result)
    return result


def _train_references(
    result: Result, before: Summary, graph: DataGraph, should_stop: ShouldStop, show: Display
) -> None:
    """Train the references that are not done, and add them to the summary; a stop leaves out the rest. Those that are
    done keep the scores of the summary from before."""
    settings = result.run.settings
    for name, reference in baseline_settings(settings).items():
        if name == "centralised" and settings.agents == 1:
            result.baseline_histories[name] = result.run.history
        done = result.baseline_histories.get(name)
        if done and has_ended(done, settings):
            same = name == "centralised" and settings.agents == 1
            found = select_scores(find_kept_record(done))
            result.summary[name] = result.summary["distributed"] if same else before.get(name, found)
            continue
        shift = result.run.deployment.shift if result.run.own_shift and name == "centralised" else None
        initial = result.run.deployment.initial if name == "centralised" else None
        other = start_run(graph, reference.model_copy(update={"initial": None}), shift=shift, initial=initial)
        try:
            run_training(other, [show(name, 0, other.settings.steps)], should_stop)
        except GossamerError as error:  # it diverged: its scores say so, and the distributed run stays whole
            warnings.warn(f"the {name} reference: {error}", GossamerWarning, stacklevel=2)
            other.settings = other.settings.model_copy(update={"steps": other.host.step})
        if not other.complete:
            return
        result.summary[name] = measure_final_scores(other)
        result.baseline_histories[name] = other.history


def _save(folder: Path, result: Result) -> None:
    directory.save_summary(folder, result.run, result.summary, result.complete)
    directory.save_references(folder, result.baseline_histories)
    histories = {"distributed": result.run.history, **result.baseline_histories}
    title = f"{result.run.settings.dataset}, {result.run.settings.agents} agents"
    draw_curves(folder / "curves.png", histories, result.run.score, title=title)
