"""Many training runs at once: a worker process for each core, one thread each, every finished run in the cache.

A figure is a plan, settings for each (data set, method, seed); its runs become curves by data set and method.
Differences between methods are paired by seed, with a t-interval (Student 1908, The probable error of a mean).
"""

import multiprocessing
import os
import signal
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import special

from gossamer.data import load
from gossamer.engines.simulation import start_run
from gossamer.errors import GossamerError
from gossamer.experiments.reproduction import Cache, Claim, ExperimentProgress
from gossamer.report.csv_tables import write_csv
from gossamer.runs.memory import keep_memory
from gossamer.runs.records import Mask, Record
from gossamer.runs.run import Run
from gossamer.runs.settings import Settings, make_settings
from gossamer.runs.training import measure_scores, run_training

Trial = dict[str, Any]  # settings by name; `until`, if it is there, is a training loss below which the run may end
Curve = dict[str, Any]  # columns of a run's evaluations; see `curve_of`
TrialPlan = Mapping[tuple[str, str, int], Trial]  # by data set, method and seed
FigureCurves = dict[str, dict[str, list[Curve]]]  # by data set and method, a curve for each seed
COLUMNS = ("step", "loss", "validation_loss", "validation", "test", "disagreement")


def run_plan(out: Path, name: str, plan: TrialPlan, progress: ExperimentProgress) -> FigureCurves:
    """Train a whole figure; `name`.csv in `out` gets every evaluation."""
    curves = run_trials(Cache(out / "cache"), list(plan.values()), progress)
    found: FigureCurves = {}
    rows = []
    for (dataset, method, seed), curve in zip(plan, curves, strict=True):
        found.setdefault(dataset, {}).setdefault(method, []).append(curve)
        head = {"dataset": dataset, "method": method, "seed": seed}
        for values in zip(*(curve[column] for column in COLUMNS), strict=True):
            rows.append({**head, **dict(zip(COLUMNS, values, strict=True))})
    write_csv(out / f"{name}.csv", rows)
    return found


def run_trials(cache: Cache, trials: Sequence[Trial], progress: ExperimentProgress) -> list[Curve]:
    """Train every trial (settings by name), those that the cache holds excepted; curves in the order of the trials."""
    keys = [_settings(trial).model_dump(mode="json") for trial in trials]  # whole: a new default is a new run
    for key, trial in zip(keys, trials, strict=True):
        key |= {"until": trial["until"]} if "until" in trial else {}
    curves: dict[int, Curve] = {}
    for index, key in enumerate(keys):
        known = cache.find(key)
        if known is not None:
            curves[index] = known
    if curves:
        progress(len(curves), len(trials), "from an earlier run")
    missing = [index for index in range(len(trials)) if index not in curves]
    if missing:
        for dataset in dict.fromkeys(trials[index].get("dataset", "digits") for index in missing):
            load(dataset)  # found or downloaded once, before the workers all ask for it
        others = set(multiprocessing.active_children())
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(min(num_workers(), len(missing)), context, initializer=_prepare_worker) as pool:
            running: dict[Future[Curve], int] = {}
            try:
                running |= {pool.submit(train_alone, trials[index]): index for index in missing}
                for done in as_completed(running):
                    index = running[done]
                    curves[index] = cache.store(keys[index], done.result())
                    progress(len(curves), len(trials), describe_run(trials[index], curves[index]))
            except BaseException as error:
                for done, index in running.items():  # those that ended while another failed
                    if done.done() and not done.cancelled() and done.exception() is None and index not in curves:
                        cache.store(keys[index], done.result())
                for worker in set(multiprocessing.active_children()) - others:  # else it would wait for their runs
                    worker.terminate()
                pool.shutdown(wait=False, cancel_futures=True)
                if isinstance(error, BrokenProcessPool):
                    raise GossamerError(
                        "a worker process was ended from outside, perhaps for want of memory; what was done is kept: "
                        "run the command again to go on"
                    ) from None
                raise
    return [curves[index] for index in range(len(trials))]


def num_workers() -> int:
    """Number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def train_alone(trial: Trial) -> Curve:
    """Train one run in a worker process, from its settings to its curve."""
    settings = _settings({"threads": 1, "baselines": False, **trial})
    with keep_memory():
        state = train_to_end(start_run(load(settings.dataset, settings.seed), settings), trial.get("until", -np.inf))
    return curve_of(state)


def _settings(trial: Trial) -> Settings:
    return make_settings(
        {"preset": "paper", "track": False, **{name: value for name, value in trial.items() if name != "until"}}
    )


def train_to_end(state: Run, until: float = -np.inf) -> Run:
    """Train until the last step, a training loss below `until`, or divergence, which is a result here."""
    try:
        return run_training(state, (), lambda: bool(state.history[-1]["train"]["loss"] < until), measure_scores)
    except GossamerError:
        if not np.isfinite(state.history[-1]["train"]["loss"]):
            return state
        raise


def curve_of(state: Run) -> Curve:
    """Columns of a run's evaluations, and numbers of its deployment."""
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


def _score(record: Record, mask: Mask) -> float:
    """Accuracy or mean squared error."""
    scores = record[mask]
    return scores["accuracy"] if "accuracy" in scores else scores["mse"]


def describe_run(trial: Trial, curve: Curve) -> str:
    """Describe a finished run in one line."""
    settings = _settings(trial)
    end = "diverged" if curve["diverged"] else f"loss {curve['loss'][-1]:.2g}"
    model = settings.layers if settings.order in (None, 1) else f"{settings.layers} of order {settings.order}"
    return f"{settings.dataset}, {model}, {settings.update}, {settings.agents} agents, seed {settings.seed}: {end}"


def stack(curves: Sequence[Curve], what: str) -> NDArray[np.float64]:
    """Stack one column of several runs [runs, evaluations]; a shorter run is filled with its last value, a diverged
    one with NaN."""
    longest = max(len(curve["step"]) for curve in curves)
    table = np.full((len(curves), longest), np.nan)
    for row, curve in zip(table, curves, strict=True):
        known = len(curve[what])
        row[:known] = [np.nan if value is None else value for value in curve[what]]
        row[known:] = np.nan if curve["diverged"] else row[known - 1]
    return table


def log_loss(curves: Sequence[Curve]) -> NDArray[np.float64]:
    """Logarithm of the training loss [runs, evaluations], clipped at 1e-7, the resolution of float32."""
    return np.asarray(np.log(np.maximum(stack(curves, "loss"), 1e-7)))


def steps_of(curves: Sequence[Curve]) -> list[int]:
    """Steps of the columns of `stack`."""
    return max((curve["step"] for curve in curves), key=len)


def final(curves: Sequence[Curve], what: str, share: float = 0.1) -> NDArray[np.float64]:
    """Final value of each run [runs]: the mean over the last tenth, or another share, of its evaluations."""
    table = stack(curves, what)
    return np.asarray(table[:, -max(1, int(share * table.shape[1])) :].mean(1))


def steps_to(curves: Sequence[Curve], level: float) -> float:
    """First step at which the training loss, geometric mean over the runs, is below a level; infinite if never."""
    below = np.flatnonzero(log_loss(curves).mean(0) < np.log(level))
    return float(steps_of(curves)[below[0]]) if len(below) else np.inf


def format_steps(steps: Sequence[float]) -> str:
    """Format numbers of iterations; infinite is never."""
    return " / ".join("never" if np.isinf(t) else f"{t:.0f}" for t in steps)


def interval(differences: NDArray[np.float64]) -> tuple[float, float, float]:
    """Mean of paired differences and its 95 % t-interval; of fewer than three the mean alone."""
    mean, n = float(differences.mean()), len(differences)
    if n < 3:
        return mean, mean, mean
    half = float(special.stdtrit(n - 1, 0.975) * differences.std(ddof=1) / np.sqrt(n))
    return mean, mean - half, mean + half


def format_points(mean: float, low: float, high: float) -> str:
    """Format a difference in percentage points, with its interval if there is one."""
    return f"{100 * mean:+.2f}" + (f" [{100 * low:.2f}, {100 * high:.2f}]" if low < high else "")


def fail_diverged(claims: Sequence[Claim], found: FigureCurves) -> list[Claim]:
    """Return the claims, none of which holds if a run diverged."""
    lost = sum(curve["diverged"] for methods in found.values() for curves in methods.values() for curve in curves)
    if not lost:
        return list(claims)
    return [replace(claim, measured=f"{claim.measured} ({lost} runs diverged)", holds=False) for claim in claims]


def _prepare_worker() -> None:
    """Use one thread, leave Ctrl-C to the parent, and end with the parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(1)
    threading.Thread(target=_leave_with_parent, daemon=True).start()


def _leave_with_parent() -> None:
    """Wait for the parent and end this process after it."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
