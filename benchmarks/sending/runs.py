"""Training runs with what they sent: a worker process for each core, one thread each."""

import multiprocessing
import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from gossamer.data import load
from gossamer.engines.simulation import start_run
from gossamer.experiments.reproduction import Cache
from gossamer.experiments.trials import (
    Curve,
    FigureCurves,
    Trial,
    TrialPlan,
    curve_of,
    final,
    interval,
    num_workers,
    train_to_end,
)
from gossamer.peers.protocol.wire import PAYLOAD_OFFSET
from gossamer.runs.memory import keep_memory
from gossamer.runs.message_counts import total_bytes
from gossamer.runs.settings import make_settings

AGENTS = 10
WITHIN = 0.005  # of accuracy: half a point


def run_all(folder: Path, plan: TrialPlan) -> FigureCurves:
    """The curves of a plan by data set and method; see `measured`."""
    for dataset in dict.fromkeys(dataset for dataset, _, _ in plan):
        load(dataset)  # found or downloaded once, before the workers all ask for it
    found: FigureCurves = {}
    with multiprocessing.get_context("spawn").Pool(num_workers()) as pool:
        curves = pool.imap(partial(measured, folder), plan.values())
        for number, ((dataset, method, seed), curve) in enumerate(zip(plan, curves, strict=True), start=1):
            found.setdefault(dataset, {}).setdefault(method, []).append(curve)
            accuracy, seconds = 100 * curve["test"][-1], curve["seconds"]
            print(
                f"{number}/{len(plan)} {dataset}, {method}, seed {seed}: {accuracy:.1f} %, {seconds:.1f} s",
                file=sys.stderr,
            )
    return found


def measured(folder: Path, trial: Trial) -> Curve:
    """A run's curve, with the bytes of rows and weights sent until each evaluation (`sent`), the consensus payload of
    a mean step (`consensus`), the same with peers' headers (`wire`), and both of plain consensus at every step.
    Evaluations are not counted."""
    settings = make_settings({"preset": "paper", "agents": AGENTS, "threads": 1, "baselines": False, **trial})

    def compute() -> Curve:
        with keep_memory():
            state = train_to_end(start_run(load(settings.dataset, settings.seed), settings))
        counted = state.messages
        vectors = sum(link["consensus_rows"] for link in counted["links"])  # each a message in every exchange
        headers = PAYLOAD_OFFSET * vectors * settings.consensus_method.exchanges
        consensus, plain = counted["consensus"]["bytes"], counted["plain"]["consensus"]["bytes"]
        return curve_of(state) | {
            "sent": [total_bytes(counted, settings, record["step"]) for record in state.history],
            "consensus": consensus / max(1, settings.consensus_every),
            "wire": (consensus + headers) / max(1, settings.consensus_every),
            "plain": plain,
            "plain wire": plain + PAYLOAD_OFFSET * sum(link["consensus_rows"] > 0 for link in counted["links"]),
        }

    # What a compression means may change while its name stays.
    key = settings.model_dump(mode="json") | {"compression": repr(settings.consensus_method)}
    found: Curve = Cache(folder).get_or_compute(key, compute)
    return found


def mean_of(curves: list[Curve], what: str) -> float:
    return float(np.mean([curve[what] for curve in curves]))


def compared(curves: list[Curve], others: list[Curve]) -> dict[str, Any]:
    """Final test accuracy over seeds, and its paired difference to that of others with a 95 % interval."""
    own = final(curves, "test")
    return {"accuracy": float(own.mean()), "difference": interval(own - final(others, "test"))}


def verdict(holds: bool) -> str:
    return "met" if holds else "MISSED"
