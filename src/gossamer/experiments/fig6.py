"""Fig. 6: consensus only every so many iterations, or never (Sec. V-E); CORA with 10 agents, and fewer and more."""

from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gossamer.experiments.reproduction import Claim, ExperimentProgress, Outcome
from gossamer.experiments.setup import citation_trial
from gossamer.experiments.trials import (
    FigureCurves,
    Trial,
    fail_diverged,
    final,
    format_points,
    interval,
    log_loss,
    run_plan,
    stack,
    steps_of,
)
from gossamer.report.panels import SIZE_COLOURS, Bar, Line, Panel, draw_panels, shades
from gossamer.report.style import COLOURS

INTERVALS = {"every iteration": 1, "every 10": 10, "every 50": 50, "every 200": 200, "never": 0}
SHARES = (5, 10, 20)  # numbers of agents
PERIOD = 0.25  # of a run: 200 steps, the longest interval; what a method ends with is the mean over it
EVALUATED = 8  # shares few multiples with the intervals: what lies between two consensus steps shows


def reproduce(out: Path, quick: bool, seeds: int, progress: ExperimentProgress) -> Outcome:
    """The ablation for 10 agents, and the ends of it (always, never) for other numbers of agents."""
    shorter: Trial = {"steps": 300} if quick else {}
    intervals = {n: x for n, x in INTERVALS.items() if not quick or n in ("every iteration", "every 50", "never")}
    shares = (5, 10) if quick else SHARES
    plan = {}
    for seed in range(seeds):
        for m in shares:
            for name, every in intervals.items():
                if m == 10 or name in ("every iteration", "never"):
                    settings = {"agents": m, "consensus_every": every, "evaluate_every": EVALUATED, **shorter}
                    plan[f"cora, {m} agents", name, seed] = citation_trial("cora", "distributed", seed, **settings)
    found = run_plan(out, "fig6", plan, progress)
    claims = [_required(found), _jumps(found), _overfits(found), _share(found, shares)]
    return Outcome("fig6", fail_diverged(claims, found), ["fig6.csv", *_draw(out, found, shares)])


def _draw(out: Path, found: FigureCurves, shares: tuple[int, ...]) -> list[str]:
    curves = found["cora, 10 agents"]
    paint = dict(zip(curves, [COLOURS["distributed"], *shades(len(curves) - 2), "#000000"], strict=True))
    loss, accuracy, held_out = (
        [Line(name, paint[name], steps_of(runs), stack(runs, what)) for name, runs in curves.items()]
        for what in ("loss", "test", "validation_loss")
    )
    bars = [Bar(f"{m} agents", SIZE_COLOURS[m], 100 * _gain(found, m)) for m in shares]
    return draw_panels(
        out / "fig6",
        [
            [
                Panel("(a) CORA, 10 agents", loss, "training loss", logarithmic=True),
                Panel("(b) CORA, 10 agents", accuracy, "test accuracy", low=0.3),
            ],
            [
                Panel("overfitting without consensus", held_out, "validation loss", low=0.0),
                Panel("consensus in every iteration against none", bars, "points of test accuracy gained"),
            ],
        ],
    )


def _gain(found: FigureCurves, agents: int) -> NDArray[np.float64]:
    """Test accuracy with consensus in every iteration minus that without any [seeds]."""
    curves = found[f"cora, {agents} agents"]
    return final(curves["every iteration"], "test", PERIOD) - final(curves["never"], "test", PERIOD)


def _required(found: FigureCurves) -> Claim:
    curves = found["cora, 10 agents"]
    ends = {name: final(runs, "test", PERIOD) for name, runs in curves.items()}
    always = ends.pop("every iteration")
    changes = {name: interval(end - always) for name, end in ends.items()}
    return Claim(
        "a consensus step every iteration is required for the highest accuracy (V-E)",
        f"{100 * always.mean():.1f} %; "
        + ", ".join(f"{n} {format_points(*change)}" for n, change in changes.items())
        + " points",
        all(high < 0 for _, _, high in changes.values()),
    )


def _jumps(found: FigureCurves) -> Claim:
    """The loss at an evaluation right after a consensus against the one before it, for the longest interval."""
    curves = found["cora, 10 agents"]
    name = max((n for n in curves if n != "never"), key=lambda n: INTERVALS[n])
    steps, losses = np.array(steps_of(curves[name])), log_loss(curves[name]).mean(0)
    after = np.flatnonzero((steps > 0) & (steps % INTERVALS[name] == 0))
    jump = float(np.exp((losses[after] - losses[after - 1]).mean()))
    return Claim(
        "long intervals without consensus destabilise the training (V-E)",
        f"consensus {name}: the training loss is {jump:.0f} times higher right after it",
        jump > 10,
    )


def _overfits(found: FigureCurves) -> Claim:
    curves = found["cora, 10 agents"]
    with_, without = curves["every iteration"], curves["never"]
    rise = float(final(without, "validation_loss").mean() - stack(without, "validation_loss").mean(0).min())
    loss, validation = (
        [float(final(runs, what).mean()) for runs in (with_, without)] for what in ("loss", "validation_loss")
    )
    return Claim(
        "without consensus the agents go into a strong overfitting phase (V-E)",
        f"training loss {loss[0]:.2g} with, {loss[1]:.2g} without; validation loss {validation[0]:.2f} with, "
        f"{validation[1]:.2f} without, {rise:.2f} above its least",
        validation[1] > 1.5 * validation[0] and rise > 0.1,
    )


def _share(found: FigureCurves, shares: tuple[int, ...]) -> Claim:
    gains = {m: interval(_gain(found, m)) for m in shares}
    return Claim(
        "consensus matters more as the ratio of agents to vertices decreases (V-E)",
        ", ".join(f"{m} agents {format_points(*gain)}" for m, gain in gains.items()) + " points gained by consensus",
        all(gains[a][0] > gains[b][0] for a, b in pairwise(shares)),
    )
