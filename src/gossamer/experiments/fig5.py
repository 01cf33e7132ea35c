"""Fig. 5: gd, momentum and Adam in Algorithm 1, up to 20000 iterations (Sec. V-D)."""

from pathlib import Path

import numpy as np

from gossamer.experiments.reproduction import Claim, Follow, Outcome
from gossamer.experiments.setup import RULE_AGENTS, RULE_STEP_SIZES, SETUP
from gossamer.experiments.trials import (
    Found,
    Trial,
    final,
    interval,
    judged,
    points,
    run_plan,
    slashed,
    stack,
    steps_of,
    steps_to,
)
from gossamer.report.panels import RULE_COLOURS, Line, Panel, draw_panels

RULES: dict[str, Trial] = {
    "gd": {"update": "gd"},
    "momentum": {"update": "momentum"},
    "adam": {"update": "adam"},
    "adam, consensus first": {"update": "adam", "mix_first": True},
}
LEVELS = (1e-1, 1e-3, 1e-5)


def reproduce(out: Path, quick: bool, seeds: int, follow: Follow) -> Outcome:
    """Every rule with the step size that is quickest for it; Adam also with the weights mixed before its statistics."""
    length: Trial = {"steps": 200, "evaluate_every": 10} if quick else {"steps": 20000, "evaluate_every": 10}
    length["until"] = 1e-6  # what follows is rounding
    plan = {}
    for dataset in ("citeseer",) if quick else ("citeseer", "cora"):
        for seed in range(min(seeds, 3)):
            for name, rule in RULES.items():
                size = RULE_STEP_SIZES[dataset][str(rule["update"])]
                settings = {"dataset": dataset, "agents": RULE_AGENTS, "step_size": size, "seed": seed}
                plan[dataset, name, seed] = {**SETUP, **settings, **rule, **length}
    found = run_plan(out, "fig5", plan, follow)
    return Outcome("fig5", judged([_faster(found), _orders(found)], found), ["fig5.csv", *_draw(out, found)])


def _draw(out: Path, found: Found) -> list[str]:
    panels = []
    for dataset, curves in found.items():
        lines = [
            Line(
                name,
                RULE_COLOURS[str(RULES[name]["update"])],
                steps_of(runs),
                stack(runs, "loss"),
                "--" if "mix_first" in RULES[name] else "-",
            )
            for name, runs in curves.items()
        ]
        panels.append(Panel(dataset.upper(), lines, "training loss", logarithmic=True, logarithmic_steps=True))
    return draw_panels(out / "fig5", [panels])


def _faster(found: Found) -> Claim:
    told, gains = [], []
    for dataset, curves in found.items():
        taken = {name: [steps_to(curves[name], level) for level in LEVELS] for name in ("gd", "momentum", "adam")}
        text = ", ".join(f"{name} {slashed(steps)}" for name, steps in taken.items())
        told.append(f"{dataset.upper()}: {text}")
        gains += [_gain(taken["gd"], taken[name]) for name in ("momentum", "adam")]
    return Claim(
        "momentum and Adam vastly accelerate the algorithm (V-D)",
        f"iterations to a loss of {' / '.join(f'{level:g}' for level in LEVELS)}: " + "; ".join(told),
        min(gains) > 2,
    )


def _gain(slow: list[float], fast: list[float]) -> float:
    """How many times fewer iterations to the lowest level that gd reaches; nothing if it is not reached."""
    lowest = max((i for i, t in enumerate(slow) if np.isfinite(t)), default=0)
    return slow[lowest] / fast[lowest] if np.isfinite(fast[lowest]) else 0.0


def _orders(found: Found) -> Claim:
    told, good = [], True
    for dataset, curves in found.items():
        after, before = curves["adam"], curves["adam, consensus first"]
        change = interval(final(before, "test") - final(after, "test"))
        taken = [[steps_to(runs, level) for level in LEVELS] for runs in (after, before)]
        told.append(
            f"{dataset.upper()} {points(*change)} points of test accuracy if consensus comes first; iterations to the "
            f"same losses {slashed(taken[0])} and {slashed(taken[1])}"
        )
        good &= abs(change[0]) < 0.01 and bool(np.allclose(taken[0], taken[1], rtol=0.5, atol=20))
    return Claim("no noticeable difference between the orders of statistics and consensus (V-D)", "; ".join(told), good)
