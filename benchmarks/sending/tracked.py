"""Tracked adam against centralised adam, adam of local gradients and plain gd, on the most skewed parts."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from gossamer.experiments.setup import CENTRALISED, STEP_SIZES
from gossamer.experiments.trials import Curve, FigureCurves, Trial, TrialPlan, format_points, stack, steps_of
from sending.runs import WITHIN, compared, verdict

LENGTHS = {0.003: 300, 0.01: 150, 0.03: 100}  # adam's step sizes, and how many steps
USUAL = 0.01
COMPRESSED = ("power:1", "power:8", "choco:bits=8", "choco:bits=4")  # with the usual step size
GD: Trial = {"update": "gd", "steps": 300, "evaluate_every": 1}
GD_SIZES = {**{dataset: sizes["distributed"] for dataset, sizes in STEP_SIZES.items()}, "digits": 1.0}
WHOLE, TRACKED, LOCAL, DESCENT = "centralised adam", "tracked adam", "local adam", "gd"
LEVEL = 0.95  # of centralised adam's final accuracy
SLOWER, FASTER = 1.3, 10.0  # at most so many times centralised adam's steps, so many times fewer than gd's


def make_plan(datasets: Sequence[str], seeds: int) -> TrialPlan:
    plan = {}
    for dataset in datasets:
        methods: dict[str, Trial] = {DESCENT: {**GD, "step_size": GD_SIZES[dataset]}}
        for size, steps in LENGTHS.items():
            adam: Trial = {"update": "adam", "step_size": size, "steps": steps, "evaluate_every": 1}
            methods[_named(WHOLE, size)] = {**adam, **CENTRALISED}
            methods[_named(TRACKED, size)] = {**adam, "track": True}
            if size == USUAL:
                methods[_named(LOCAL, size)] = {**adam, "track": False, "same_initial": True}  # as tracked starts
                methods |= {f"tracked, {name}": {**adam, "track": True, "compress": name} for name in COMPRESSED}
        for seed in range(seeds):
            for name, changes in methods.items():
                plan[dataset, name, seed] = {"dataset": dataset, "assignment": "bfs", "seed": seed, **changes}
    return plan


def _named(method: str, size: float) -> str:
    return f"{method}, {size:g}"


def table(found: FigureCurves) -> dict[str, dict[str, Any]]:
    """Print what was found, and return it: by data set and method."""
    results: dict[str, dict[str, Any]] = {}
    for dataset, methods in found.items():
        lengths = ", ".join(f"{steps} of {size:g}" for size, steps in LENGTHS.items())
        print(f"\n{dataset}: adam {lengths}; gd {GD['steps']} of {GD_SIZES[dataset]:g}; {len(methods[DESCENT])} seeds")
        print(
            "method, step size        accuracy  difference [95 % interval]  steps to 95 %  centralised = 1"
            "  disagreement"
        )
        results[dataset] = {}
        for size in LENGTHS:
            whole = methods[_named(WHOLE, size)]
            level = LEVEL * compared(whole, whole)["accuracy"]
            shown = [_named(method, size) for method in (WHOLE, TRACKED, LOCAL)]
            for name in [*shown, *(f"tracked, {name}" for name in COMPRESSED if size == USUAL), DESCENT]:
                if name in methods:
                    row = _row(methods[name], whole, level)
                    results[dataset][f"{name}, to adam's {size:g}" if name == DESCENT else name] = row
                    print(
                        f"{name:23s}  {100 * row['accuracy']:7.2f}   {format_points(*row['difference']):26s}  "
                        f"{_counted(row['steps']):>13s}  {_counted(row['times'], 2):>15s}  {row['disagreement']:12.2e}"
                    )
            judge(results[dataset][_named(TRACKED, size)], steps_until(methods[DESCENT], level))
    return results


def _row(curves: list[Curve], whole: list[Curve], level: float) -> dict[str, Any]:
    steps, at_least = steps_until(curves, level), steps_until(whole, level) or math.nan
    return compared(curves, whole) | {
        "steps": steps,
        "times": None if steps is None else steps / at_least,
        "disagreement": float(np.mean([curve["disagreement"][-1] for curve in curves])),
    }


def steps_until(curves: list[Curve], level: float) -> int | None:
    """The first step at which the test accuracy, mean over the runs, reaches a level; None if it never does."""
    above = np.flatnonzero(stack(curves, "test").mean(0) >= level)
    return steps_of(curves)[above[0]] if len(above) else None


def _counted(number: float | None, digits: int = 0) -> str:
    return "never" if number is None else f"{number:.{digits}f}"


def judge(tracked: dict[str, Any], descent: int | None) -> None:
    """What was asked of tracked adam. A gd that never gets there is reckoned to do so at its last step."""
    mean, steps = tracked["difference"][0], tracked["steps"] or math.inf
    times, fewer = tracked["times"] or math.inf, (descent or GD["steps"]) / steps
    print(
        f"  tracked: {100 * mean:+.2f} points (at least -{100 * WITHIN}: {verdict(mean >= -WITHIN)}), {times:.2f} "
        f"times centralised adam's steps (at most {SLOWER}: {verdict(times <= SLOWER)}), {fewer:.1f} times fewer "
        f"than gd's (at least {FASTER:.0f}: {verdict(fewer >= FASTER)})"
    )
