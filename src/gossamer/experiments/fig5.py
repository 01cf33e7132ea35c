"""Fig. 5: gd, momentum and Adam in Algorithm 1, up to 20000 iterations (Sec. V-D)."""

from pathlib import Path

import numpy as np

from gossamer.experiments.reproduction import Claim, ExperimentProgress, Outcome
from gossamer.experiments.setup import ACCURATE, TUNED_RULES, rule_trial
from gossamer.experiments.trials import (
    FigureCurves,
    Trial,
    fail_diverged,
    final,
    format_points,
    format_steps,
    interval,
    log_loss,
    run_plan,
    stack,
    steps_of,
    steps_to,
)
from gossamer.report.panels import RULE_COLOURS, Line, Panel, draw_panels

RULE_TRIALS: dict[str, Trial] = {
    "gd": {"update": "gd"},
    "momentum": {"update": "momentum"},
    "adam": {"update": "adam"},
    "adam, consensus first": {"update": "adam", "mix_first": True},
}
ORDERS: dict[str, Trial] = {  # Adam with the step size of the least validation loss
    "adam, for accuracy": {},
    "adam, for accuracy, consensus first": {"mix_first": True},
}
LEVELS = (1e-1, 1e-3, 1e-5)
FAST_SEEDS = 3  # at most, of the runs that are long
NOTICEABLE = 0.01  # difference of test accuracy between the orders
SLOWER = 1.25  # and ratio of iterations


def reproduce(out: Path, quick: bool, seeds: int, progress: ExperimentProgress) -> Outcome:
    """Every rule with the constants that are quickest for it; Adam also with the weights mixed before its statistics,
    and both orders once more with a step size at which accuracies can be compared."""
    length: Trial = {"steps": 200, "evaluate_every": 10} if quick else {"steps": 20000, "evaluate_every": 10}
    length["until"] = 1e-6  # what follows is rounding
    shorter: Trial = {"steps": 400} if quick else {}
    plan = {}
    for dataset in ("citeseer",) if quick else ("citeseer", "cora"):
        for seed in range(seeds):
            for name, rule in RULE_TRIALS.items() if seed < FAST_SEEDS else ():
                fast = rule_trial(dataset, str(rule["update"]), TUNED_RULES, seed=seed)
                plan[dataset, name, seed] = {**fast, **rule, **length}
            for name, order in ORDERS.items():
                plan[dataset, name, seed] = rule_trial(dataset, "adam", ACCURATE, seed=seed, **order, **shorter)
    found = run_plan(out, "fig5", plan, progress)
    return Outcome("fig5", fail_diverged([_faster(found), _orders(found)], found), ["fig5.csv", *_draw(out, found)])


def _draw(out: Path, found: FigureCurves) -> list[str]:
    panels = []
    for dataset, curves in found.items():
        lines = [
            Line(
                name,
                RULE_COLOURS[str(RULE_TRIALS[name]["update"])],
                steps_of(runs),
                stack(runs, "loss"),
                "--" if "mix_first" in RULE_TRIALS[name] else "-",
            )
            for name, runs in curves.items()
            if name in RULE_TRIALS
        ]
        panels.append(Panel(dataset.upper(), lines, "training loss", logarithmic=True, logarithmic_steps=True))
    return draw_panels(out / "fig5", [panels])


def _faster(found: FigureCurves) -> Claim:
    parts, gains = [], []
    for dataset, curves in found.items():
        taken = {name: [steps_to(curves[name], level) for level in LEVELS] for name in ("gd", "momentum", "adam")}
        text = ", ".join(f"{name} {format_steps(steps)}" for name, steps in taken.items())
        parts.append(f"{dataset.upper()}: {text}")
        gains += [_gain(taken["gd"], taken[name]) for name in ("momentum", "adam")]
    return Claim(
        "momentum and Adam vastly accelerate the algorithm (V-D)",
        f"iterations to a loss of {' / '.join(f'{level:g}' for level in LEVELS)}: " + "; ".join(parts),
        min(gains) > 2,
    )


def _gain(slow: list[float], fast: list[float]) -> float:
    """Ratio of the iterations to the lowest level that gd reaches; 0 if the other rule does not reach it."""
    lowest = max((i for i, t in enumerate(slow) if np.isfinite(t)), default=0)
    return slow[lowest] / fast[lowest] if np.isfinite(fast[lowest]) else 0.0


def _orders(found: FigureCurves) -> Claim:
    """The whole intervals of accuracy and of iterations to a loss, paired by seed, are below what is noticeable."""
    parts, good = [], True
    for dataset, curves in found.items():
        after, before = (curves[name] for name in ORDERS)
        change = interval(final(before, "test") - final(after, "test"))
        taken = np.array([[steps_to([run], LEVELS[0]) for run in runs] for runs in (after, before)])
        times = np.exp(interval(np.log(taken[1] / taken[0]))) if np.isfinite(taken).all() else np.full(3, np.nan)
        end = float(np.exp((log_loss(before)[:, -1] - log_loss(after)[:, -1]).mean()))
        parts.append(
            f"{dataset.upper()} {format_points(*change)} points of {100 * final(after, 'test').mean():.1f} %, "
            f"{times[0]:.2f} [{times[1]:.2f}, {times[2]:.2f}] times the iterations to a loss of {LEVELS[0]:g}, "
            f"{end:.2f} times the loss at the end"
        )
        good &= max(-change[1], change[2]) < NOTICEABLE and times[1] > 1 / SLOWER and times[2] < SLOWER
    seeds = len(next(iter(found.values()))[next(iter(ORDERS))])
    return Claim(
        "no noticeable difference between the orders of statistics and consensus (V-D)",
        f"if consensus comes first, {seeds} seeds: " + "; ".join(parts),
        bool(good),
    )
