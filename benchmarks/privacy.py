"""Costs of what protects an agent, beside what the audit still finds: bytes, time of a step, accuracy, attacks.

    GOSSAMER_DATA=... python benchmarks/privacy.py [--datasets digits cora] [--agents 6] [--steps 200] [--json]

The same run with random numbers that all agents know (`--public-randomness`), with secrets of their owners (the default
of peers), with masked consensus beside them (`--consensus masked`), with an encoder (`--encoder 16`) and with privacy
budgets (`--privacy`); all other settings are the defaults. Bytes and time are those of a step of the graph network, as
ratios to the first. A step is timed on one thread, in processor time, all agents on one host, all taking turns; the
pads that peers draw are not in it.
"""

import argparse
import json
import statistics
import time
import warnings
from collections.abc import Callable
from typing import Any

import torch

import gossamer
from gossamer.agents import training_step
from gossamer.data import DataGraph
from gossamer.engines.simulation import run, start_run
from gossamer.runs.handover import train_stages
from gossamer.runs.hosts import build_host
from gossamer.runs.observers import Observer
from gossamer.runs.secret_files import make_secrets
from gossamer.runs.settings import make_settings

PROTECTIONS: dict[str, dict[str, Any]] = {
    "public randomness": {"public_randomness": True},
    "secrets": {},
    "secrets, masked": {"consensus": "masked"},
    "encoder 16": {"encoder": 16},
    "edge, epsilon 4": {"privacy": "edge:epsilon=4,delta=1e-5"},
    "node, epsilon 8": {"privacy": "node:epsilon=8,delta=1e-5"},
}


def make_step(graph: DataGraph, options: dict[str, Any]) -> Callable[[], float]:
    """A function that takes a step of all agents on one host and returns its processor time."""
    settings = make_settings(options)
    started = train_stages(start_run(graph, settings), lambda name, steps: Observer())
    secrets = None if settings.public_randomness else make_secrets(range(settings.agents))
    state = [build_host(started.deployment, started.settings, secrets=secrets)]

    def step() -> float:
        began = time.process_time()
        state[0], _ = run(training_step(state[0]))
        return time.process_time() - began

    return step


def time_steps(graph: DataGraph, common: dict[str, Any], rounds: int) -> dict[str, float]:
    """Median seconds of a step of each, taking turns."""
    steps = {name: make_step(graph, common | changes) for name, changes in PROTECTIONS.items()}
    taken: dict[str, list[float]] = {name: [] for name in steps}
    for number in range(rounds + 2):
        for name, step in steps.items():
            seconds = step()
            if number >= 2:
                taken[name].append(seconds)
    return {name: statistics.median(times) for name, times in taken.items()}


def measure(name: str, agents: int, steps: int, rounds: int) -> dict[str, dict[str, Any]]:
    graph = gossamer.load(name)
    common: dict[str, Any] = {"agents": agents, "steps": steps, "baselines": False}
    seconds = time_steps(graph, common, rounds)
    rows = {}
    for label, changes in PROTECTIONS.items():
        given = {key: value for key, value in (common | changes).items() if key != "steps" or "privacy" not in changes}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # few labels and much noise: nothing is learnt
            summary = gossamer.train(graph, **given).summary
        found = gossamer.audit(graph, **common | changes).to_dict()
        messages = summary["messages"]
        rows[label] = {
            "bytes": sum(messages[phase]["bytes"] for phase in ("forward", "backward", "consensus")),
            "seconds": seconds[label],
            "accuracy": summary["distributed"]["test"]["accuracy"],
            "boundary": found["boundary_vertices"],
            "identifiable": found["identifiable_vertices"],
            "features": found["attacks"]["features"],
            "labels": found["attacks"]["labels"],
            "class_counts": found["attacks"].get("class_counts"),
            "weights": sorted({one["weights"] for one in found["neighbours"]}),
        }
    return rows


def show(name: str, rows: dict[str, dict[str, Any]]) -> None:
    first = next(iter(rows.values()))
    print(
        f"\n{name:18s}{'bytes':>8s}{'time':>7s}{'accuracy':>10s}{'identifiable':>15s}{'features':>14s}{'labels':>12s}"
    )
    for label, row in rows.items():
        attacks = (row[kind] or {"found": 0, "tried": 0} for kind in ("features", "labels"))
        found = [f"{one['found']} of {one['tried']}" for one in attacks]
        print(
            f"{label:18s}{row['bytes'] / first['bytes']:8.2f}{row['seconds'] / first['seconds']:7.2f}"
            f"{100 * row['accuracy']:9.1f}%{row['identifiable']:7d} of {row['boundary']:4d}"
            f"{found[0]:>14s}{found[1]:>12s}"
            f"  weights {', '.join(row['weights'])}"
            + (f"; class counts {row['class_counts']['rate']:.1%}" if row["class_counts"] else "; no class counts")
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--datasets", nargs="+", default=["digits", "cora"])
    parser.add_argument("--agents", type=int, default=6)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--json", action="store_true", help="print one JSON object at the end")
    options = parser.parse_args()
    torch.set_num_threads(1)
    everything = {}
    for name in options.datasets:
        everything[name] = measure(name, options.agents, options.steps, options.rounds)
        show(name, everything[name])
    if options.json:
        print(json.dumps(everything))


if __name__ == "__main__":
    main()
