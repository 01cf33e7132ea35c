"""Tracked adam against centralised adam, adam of local gradients and plain gd, on the most skewed parts."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from gossamer.experiments.setup import CENTRALISED, STEP_SIZES
from gossamer.experiments.trials import Curve, Found, Plan, Trial, points, stack, steps_of
from sending.runs import WITHIN, compared, verdict

ADAM: Trial = {"update": "adam", "step_size": 0.01, "steps": 150, "evaluate_every": 2}
GD: Trial = {"update": "gd", "steps": 300, "evaluate_every": 10}
GD_SIZES = {**{dataset: sizes["distributed"] for dataset, sizes in STEP_SIZES.items()}, "digits": 1.0}
WHOLE, TRACKED, LOCAL, DESCENT = "centralised adam", "tracked adam", "local adam", "gd"
LEVEL = 0.95  # of centralised adam's final accuracy
SLOWER, FASTER = 1.3, 10.0  # at most so many times centralised adam's steps, so many times fewer than gd's


def make_plan(datasets: Sequence[str], seeds: int) -> Plan:
    plan = {}
    for dataset in datasets:
        methods: dict[str, Trial] = {
            WHOLE: {**ADAM, **CENTRALISED},
            TRACKED: {**ADAM, "track": True},
            LOCAL: {**ADAM, "track": False},
            DESCENT: {**GD, "step_size": GD_SIZES[dataset]},
        }
        for seed in range(seeds):
            for name, changes in methods.items():
                plan[dataset, name, seed] = {"dataset": dataset, "assignment": "bfs", "seed": seed, **changes}
    return plan


def table(found: Found) -> dict[str, dict[str, Any]]:
    """Print what was found, and return it: by data set and method."""
    told: dict[str, dict[str, Any]] = {}
    for dataset, methods in found.items():
        print(
            f"\n{dataset}: adam {ADAM['steps']} steps of {ADAM['step_size']}, gd {GD['steps']} of {GD_SIZES[dataset]}, "
            f"{len(methods[WHOLE])} seeds"
        )
        print("method            accuracy  difference [95 % interval]  steps to 95 %  times centralised  disagreement")
        told[dataset] = {}
        level = LEVEL * compared(methods[WHOLE], methods[WHOLE])["accuracy"]
        for name, curves in methods.items():
            steps = steps_until(curves, level)
            row = compared(curves, methods[WHOLE]) | {
                "steps": steps,
                "times": steps / told[dataset][WHOLE]["steps"] if name != WHOLE else 1.0,
                "disagreement": float(np.mean([curve["disagreement"][-1] for curve in curves])),
            }
            told[dataset][name] = row
            print(
                f"{name:16s}  {100 * row['accuracy']:7.2f}   {points(*row['difference']):26s}  {steps:13.0f}  "
                f"{row['times']:17.2f}  {row['disagreement']:12.2e}"
            )
        judge(told[dataset])
    return told


def steps_until(curves: list[Curve], level: float) -> float:
    """The first evaluation at which the test accuracy, mean over the runs, reaches a level; infinite if none does."""
    above = np.flatnonzero(stack(curves, "test").mean(0) >= level)
    return float(steps_of(curves)[above[0]]) if len(above) else np.inf


def judge(rows: dict[str, Any]) -> None:
    mean, times = rows[TRACKED]["difference"][0], rows[TRACKED]["times"]
    fewer = rows[DESCENT]["steps"] / rows[TRACKED]["steps"]
    print(f"  tracked adam: {100 * mean:+.2f} points (at least -{100 * WITHIN}: {verdict(mean >= -WITHIN)})")
    print(f"  {times:.2f} times centralised adam's steps (at most {SLOWER}: {verdict(times <= SLOWER)})")
    print(f"  {fewer:.1f} times fewer steps than gd (at least {FASTER:.0f}: {verdict(fewer >= FASTER)})")
