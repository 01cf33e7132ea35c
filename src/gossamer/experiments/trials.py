"""Many training runs at once: a worker process for each core, one thread each, every finished run kept in the cache."""

import multiprocessing
import os
import signal
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from gossamer.data import load
from gossamer.errors import GossamerError
from gossamer.experiments.reproduction import Cache, Follow
from gossamer.runtime.settings import Settings, make_settings
from gossamer.runtime.training import Record, Run, go_on, start

Curve = dict[str, Any]  # what is kept of a run; see `curve_of`


def run_trials(cache: Cache, trials: Sequence[Mapping[str, Any]], follow: Follow) -> list[Curve]:
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
        workers = min(len(os.sched_getaffinity(0)), len(missing))
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(workers, context, initializer=_prepare_worker) as pool:
            try:
                running = {pool.submit(train_alone, dict(trials[index])): index for index in missing}
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


def train_alone(trial: Mapping[str, Any]) -> Curve:
    """One run, from its settings to its curve."""
    settings = make_settings({"threads": 1, "baselines": False, **trial})
    return curve_of(trained(start(load(settings.dataset, settings.seed), settings)))


def trained(state: Run) -> Run:
    """Train to the end, or to where it diverges: a step size that is too large is a result here."""
    try:
        return go_on(state)
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
        "diverged": not state.complete,
        "seconds": state.seconds,
    }


def _score(record: Record, mask: str) -> float:
    """Accuracy or mean squared error."""
    scores: dict[str, float] = record[mask]
    return scores["accuracy"] if "accuracy" in scores else scores["mse"]


def told(trial: Mapping[str, Any], curve: Curve) -> str:
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
