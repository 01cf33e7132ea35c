"""Many training runs at once: a worker process for each core, one thread each, every finished run kept in the cache.

A figure is a plan, settings for each (data set, method, seed); its runs become curves by data set and method.
"""

import multiprocessing
import os
import signal
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import stats

from gossamer.data import load
from gossamer.errors import GossamerError
from gossamer.experiments.reproduction import Cache, Follow, write_csv
from gossamer.runtime.settings import Settings, make_settings
from gossamer.runtime.training import Record, Run, go_on, short_record, start

Trial = dict[str, Any]  # settings by name
Curve = dict[str, Any]  # what is kept of a run; see `curve_of`
Plan = Mapping[tuple[str, str, int], Trial]  # by data set, method and seed
Found = dict[str, dict[str, list[Curve]]]  # by data set and method, a curve for each seed
COLUMNS = ("step", "loss", "validation_loss", "validation", "test", "disagreement")


def run_plan(out: Path, name: str, plan: Plan, follow: Follow) -> Found:
    """Train a whole figure; `name`.csv in `out` gets every evaluation."""
    curves = run_trials(Cache(out / "cache"), list(plan.values()), follow)
    found: Found = {}
    rows = []
    for (dataset, method, seed), curve in zip(plan, curves, strict=True):
        found.setdefault(dataset, {}).setdefault(method, []).append(curve)
        head = {"dataset": dataset, "method": method, "seed": seed}
        for values in zip(*(curve[column] for column in COLUMNS), strict=True):
            rows.append({**head, **dict(zip(COLUMNS, values, strict=True))})
    write_csv(out / f"{name}.csv", rows)
    return found


def run_trials(cache: Cache, trials: Sequence[Trial], follow: Follow) -> list[Curve]:
    """Train every trial (settings by name), those that the cache holds excepted; curves in the order of the trials."""
    curves: dict[int, Curve] = {}
    for index, trial in enumerate(trials):
        known = cache.find(trial)
        if known is not None:
            curves[index] = known
    if curves:
        follow(len(curves), len(trials), "from an earlier run")
    missing = [index for index in range(len(trials)) if index not in curves]
    if missing:
        for dataset in dict.fromkeys(trials[index].get("dataset", "digits") for index in missing):
            load(dataset)  # found or downloaded once, before the workers all ask for it
        workers = min(len(os.sched_getaffinity(0)), len(missing))
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(workers, context, initializer=_prepare_worker) as pool:
            try:
                running = {pool.submit(train_alone, trials[index]): index for index in missing}
                for done in as_completed(running):
                    index = running[done]
                    curves[index] = cache.store(trials[index], done.result())
                    follow(len(curves), len(trials), told(trials[index], curves[index]))
            except BaseException:
                for worker in multiprocessing.active_children():  # else an interruption would wait for the runs
                    worker.terminate()
                pool.shutdown(wait=False, cancel_futures=True)
                raise
    return [curves[index] for index in range(len(trials))]


def train_alone(trial: Trial) -> Curve:
    """One run, from its settings to its curve."""
    settings = make_settings({"threads": 1, "baselines": False, **trial})
    return curve_of(trained(start(load(settings.dataset, settings.seed), settings)))


def trained(state: Run) -> Run:
    """Train to the end, or to where it diverges: a step size that is too large is a result here."""
    try:
        return go_on(state, measure=short_record)
    except GossamerError:
        if not np.isfinite(state.history[-1]["train"]["loss"]):
            return state
        raise


def curve_of(state: Run) -> Curve:
    """The evaluations of a run as columns, and what it ran on."""
    return {
        "step": [record["step"] for record in state.history],
        "loss": [record["train"]["loss"] for record in state.history],
        "validation_loss": [record["validation"]["loss"] for record in state.history],
        "validation": [_score(record, "validation") for record in state.history],
        "test": [_score(record, "test") for record in state.history],
        "disagreement": [record["disagreement"] for record in state.history],
        "edges_kept": state.deployment.edges_kept,
        "num_links": int(np.triu(state.deployment.links, 1).sum()),
        "spectral_radius": state.deployment.certificate.assumptions.spectral_radius,
        "diverged": not np.isfinite(state.history[-1]["train"]["loss"]),
        "seconds": state.seconds,
    }


def _score(record: Record, mask: str) -> float:
    """Accuracy or mean squared error."""
    scores: dict[str, float] = record[mask]
    return scores["accuracy"] if "accuracy" in scores else scores["mse"]


def told(trial: Trial, curve: Curve) -> str:
    """A finished run in a few words."""
    settings = Settings(**trial)
    end = "diverged" if curve["diverged"] else f"loss {curve['loss'][-1]:.2g}"
    return f"{settings.dataset}, {settings.agents} agents, seed {settings.seed}: {end}"


def stack(curves: Sequence[Curve], what: str) -> NDArray[np.float64]:
    """One column of several runs [runs, evaluations]; after a divergence NaN."""
    longest = max(len(curve["step"]) for curve in curves)
    table = np.full((len(curves), longest), np.nan)
    for row, curve in zip(table, curves, strict=True):
        row[: len(curve[what])] = [np.nan if value is None else value for value in curve[what]]
    return table


def log_loss(curves: Sequence[Curve]) -> NDArray[np.float64]:
    """The logarithm of the training loss [runs, evaluations], down to what float32 tells from 0."""
    return np.asarray(np.log(np.maximum(stack(curves, "loss"), 1e-7)))


def final(curves: Sequence[Curve], what: str) -> NDArray[np.float64]:
    """The last value of each run [runs]: the mean over its last tenth of evaluations."""
    table = stack(curves, what)
    return np.asarray(table[:, -max(1, table.shape[1] // 10) :].mean(1))


def steps_to(curves: Sequence[Curve], level: float) -> float:
    """The first step at which the training loss, geometric mean over the runs, is below a level; infinite if never."""
    below = np.flatnonzero(log_loss(curves).mean(0) < np.log(level))
    return float(curves[0]["step"][below[0]]) if len(below) else np.inf


def interval(differences: NDArray[np.float64]) -> tuple[float, float, float]:
    """Mean of paired differences and Student's 95 % interval around it; of one alone the mean."""
    mean, n = float(differences.mean()), len(differences)
    if n == 1:
        return mean, mean, mean
    half = float(stats.t.ppf(0.975, n - 1) * differences.std(ddof=1) / np.sqrt(n))
    return mean, mean - half, mean + half


def _prepare_worker() -> None:
    """One thread; Ctrl-C is the parent's business, and a parent that is gone ends its workers."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(1)
    threading.Thread(target=_leave_with_parent, daemon=True).start()


def _leave_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
