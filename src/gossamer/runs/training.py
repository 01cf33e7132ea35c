"""The training loop: Algorithm 1 with evaluations, observers and stops, for hosts in lockstep (docs/scaling.md)."""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from gossamer.agents.gradients import loss_gradient
from gossamer.agents.host import Host
from gossamer.agents.measures import MAGNITUDE_LIMIT, MEASURED, disagreement
from gossamer.agents.selection import find_best_step, keep_if_best
from gossamer.errors import DivergedError, GossamerError
from gossamer.model import Params
from gossamer.model.network import list_widths
from gossamer.runs.advice import warn_of_agents_apart
from gossamer.runs.engine import Engine
from gossamer.runs.evaluated_steps import evaluation_gap, is_evaluated
from gossamer.runs.observers import Observer
from gossamer.runs.presets import NODE_PRIVATE
from gossamer.runs.records import Record, Reference, RowRecord
from gossamer.runs.run import Run
from gossamer.runs.settings import Settings

ShouldStop = Callable[[], bool]  # asked between two steps


@contextmanager
def use_threads(run: Run) -> Iterator[None]:
    """Compute with the settings' number of threads, and restore the number from before.

    With 0, one thread below 4 million weights and input entries of a step on all agents: there two are little faster
    on an idle machine and, since they wait for each other in busy loops, many times slower on a busy one.
    """
    before = torch.get_num_threads()
    inputs, times = run.host.train_pass.features.numel(), run.host.num_times
    if times is not None and run.settings.batch:
        inputs = inputs * run.settings.batch // times
    size = sum(part.numel() for part in run.host.params.values()) + inputs
    torch.set_num_threads(run.settings.threads or (1 if size < 4_000_000 else before))
    try:
        yield
    finally:
        torch.set_num_threads(before)


def run_training(
    run: Run,
    observers: Sequence[Observer] = (),
    should_stop: ShouldStop = lambda: False,
    measure: Callable[[Run], Record] | None = None,
) -> Run:
    """Train until the settings' number of steps, or until `should_stop` holds between two steps.

    `measure` makes the record of an evaluation; without it, everything is measured. Returns the same `run`.
    """
    for observer in observers:
        observer.on_start(run)
    with use_threads(run):
        _run_steps(run, observers, should_stop, measure or measure_all)
    for observer in observers:
        observer.on_end(run)
    return run


def _run_steps(
    run: Run, observers: Sequence[Observer], should_stop: ShouldStop, measure: Callable[[Run], Record]
) -> None:
    settings, began, before = run.settings, time.perf_counter(), run.seconds
    warned = False
    while True:
        step = run.host.step
        if is_evaluated(settings, step) and (not run.history or run.history[-1]["step"] < step):
            run.history.append(_select(run, measure(run)))
            for observer in observers:
                observer.on_record(run.history[-1])
            _check_loss(run.history[-1]["train"]["loss"], run)
            _check_weights(run)
            if run.engine.leads and not warned:
                gap = evaluation_gap(settings)  # agents that start alike move apart for the first few steps
                apart = [record["disagreement"] for record in run.history if record["step"] % gap == 0]
                warned = warn_of_agents_apart(run.host, settings, apart)
        run.seconds = before + time.perf_counter() - began
        stop = run.engine.total(torch.tensor(float(should_stop())))  # all hosts end after the same step
        if run.complete or stop:
            return
        if step and step % settings.checkpoint_every == 0:
            for observer in observers:
                observer.on_checkpoint(run)
        run.host, loss = run.engine.run(run.iterate(run.host))
        total = float(run.engine.total(loss))
        for observer in observers:
            observer.on_step(run.host.step, total)


def _select(run: Run, record: Record) -> Record:
    """Keep the weights if their validation score is the best so far; the record with the step of the best."""
    keep_if_best(run.host, run.score.signed(record["validation"][run.score.key()]), record["validation"]["loss"])
    best = find_best_step(run.host)
    if best is not None:
        record["best_step"] = best
    return record


def stationarity(host: Host, engine: Engine) -> float:
    """g^t = |sum_k g_k|^2 / m at the mean of all agents' weights, g^T Pi g of eq. (19)."""
    total = engine.total
    mean = {name: total(part.sum(0, keepdim=True)) / host.num_agents for name, part in host.params.items()}
    centre = {name: mean[name].expand_as(part).contiguous() for name, part in host.params.items()}
    gradient = whole_gradient(host, centre, engine)
    return sum(float(total(g.double().sum(0)).square().sum()) for g in gradient.values()) / host.num_agents


def whole_gradient(host: Host, params: Params, engine: Engine) -> Params:
    """The hosted agents' gradients of L on all training examples at these weights, weight decay included and dropout
    off."""
    _, gradient = engine.run(loss_gradient(host.with_params(params), dropout=False, first=MEASURED))
    host.add_decay(gradient, params)
    return gradient


def measure_all(run: Run) -> Record:
    """One line of metrics: scores, disagreement, g^t at the mean weights and the best so far (eq. (19)-(20))."""
    now = stationarity(run.host, run.engine)
    before = [record["stationarity"] for record in run.history if record["step"] > 0]
    best = min([now, *before]) if run.host.step > 0 else math.nan  # eq. (20) begins at n = 1
    return {**measure_scores(run), "stationarity": now, "best_stationarity": best}


def measure_scores(run: Run) -> Record:
    """Scores and disagreement alone, which cost no gradient."""
    found = run.scores()
    record: Record = {
        "step": run.host.step,
        "score": run.score.key(),
        "train": found["train"],
        "validation": found["validation"],
        "test": found["test"],
        "disagreement": measure_disagreement(run, run.host),
    }
    before = run.history[-1]["step"] if run.history else run.host.step
    rows = count_rows_of(run.host, before)
    if rows is not None:
        record["rows"] = rows
    return record


def count_rows_of(host: Host, begin: int) -> RowRecord | None:
    """Boundary rows of the steps from `begin` to the host's; None where their links stay."""
    if host.deliveries is None:
        return None
    found = host.deliveries.summarise(range(begin, host.step))
    return {
        "links_up": found.links_up,
        "arrived": found.arrived,
        "replaced": found.replaced,
        "mean_age": found.mean_age,
        "largest_age": found.largest_age,
    }


def measure_disagreement(run: Run, host: Host) -> float:
    """Disagreement between all agents' weights on a host of the run where the process leads, else NaN."""
    everyone = run.engine.gathered(host.params)
    return disagreement(everyone) if everyone else math.nan


def _check_loss(loss: float, run: Run) -> None:
    if not math.isfinite(loss):
        remedy = run.settings.consensus_method.advice.divergence
        raise GossamerError(
            f"the training loss is {loss} at step {run.host.step}: the run has diverged; try a smaller --step-size"
            f"{f' or {remedy}' if remedy else ''}"
        )


def _check_weights(run: Run) -> None:
    """Refuse weights that no peer would send: units that have died under them can keep the loss finite."""
    beyond = [bool((part.abs() > MAGNITUDE_LIMIT).any()) for part in run.host.params.values()]
    if run.engine.total(torch.tensor(float(any(beyond)))):  # all hosts end after the same step
        raise DivergedError(f"weights beyond {MAGNITUDE_LIMIT:.0e} at step {run.host.step}")


def baseline_settings(settings: Settings) -> dict[Reference, Settings]:
    """The comparison models, trained the same way: the centralised network, and the same without the graph."""
    alone: dict[str, Any] = {"agents": 1, "assignment": "bfs", "topology": "complete", "encoder": 0, "privacy": "none"}
    if settings.privacy_spec is not None and settings.privacy_spec.level == "node":  # nor its defaults
        alone |= {name: Settings.model_fields[name].default for name in NODE_PRIVATE}
    plain = {"layers": "mlp", "shift": "auto", "hidden": list_widths(settings.network)}
    return {"centralised": settings.model_copy(update=alone), "graphless": settings.model_copy(update=alone | plain)}
