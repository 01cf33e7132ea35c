"""Fig. 4: sparse connectivity between 10 agents, down to a ring and a line (Sec. V-C); CORA, and the other two."""

from pathlib import Path

import numpy as np

from gossamer.experiments.reproduction import Claim, ExperimentProgress, Outcome
from gossamer.experiments.setup import CITATION_DATASETS, citation_trial
from gossamer.experiments.trials import (
    FigureCurves,
    Trial,
    fail_diverged,
    final,
    format_points,
    interval,
    run_plan,
    stack,
    steps_of,
)
from gossamer.report.panels import Bar, Line, Panel, draw_panels, shades
from gossamer.report.style import COLOURS

SPARSE_AGENTS = 10
LINKS: dict[str, Trial] = {  # the share of the designed links that is kept, or other links altogether
    "100 %": {},
    "75 %": {"keep_links": 0.75},
    "50 %": {"keep_links": 0.5},
    "25 %": {"keep_links": 0.25},
    "ring": {"topology": "ring"},
    "line": {"topology": "line"},
}


def reproduce(out: Path, quick: bool, seeds: int, progress: ExperimentProgress) -> Outcome:
    """Data edges that no link carries are dropped, D and C made anew for what is left, and dGCN trained on it."""
    datasets = ("cora",) if quick else CITATION_DATASETS
    kept = ("100 %", "25 %", "line") if quick else tuple(LINKS)
    shorter: Trial = {"steps": 200} if quick else {}
    plan = {
        (dataset, name, seed): citation_trial(
            dataset, "distributed", seed, agents=SPARSE_AGENTS, **LINKS[name], **shorter
        )
        for dataset in datasets
        for seed in range(seeds)
        for name in kept
    }
    found = run_plan(out, "fig4", plan, progress)
    files = ["fig4.csv", *_draw(out / "fig4", {"cora": found["cora"]}, "abc")]
    if len(found) > 1:
        others = {name: curves for name, curves in found.items() if name != "cora"}
        files += _draw(out / "fig4_others", others, "defghi")
    return Outcome("fig4", fail_diverged([_edges(found), _accuracy(found)], found), files)


def _draw(target: Path, found: FigureCurves, letters: str) -> list[str]:
    """Draw a row of three panels for each data set, each with the next letter."""
    letter, rows = iter(letters), []
    for dataset, curves in found.items():
        paint = dict(zip(curves, [COLOURS["distributed"], *shades(len(curves) - 1)], strict=True))
        bars = [Bar(name, paint[name], [100 * run["edges_kept"] for run in runs]) for name, runs in curves.items()]
        loss, accuracy = (
            [Line(name, paint[name], steps_of(runs), stack(runs, what)) for name, runs in curves.items()]
            for what in ("loss", "test")
        )
        titles = [f"({next(letter)}) {dataset.upper()}" for _ in range(3)]
        rows.append(
            [
                Panel(titles[0], bars, "data edges kept (%)"),
                Panel(titles[1], loss, "training loss", logarithmic=True),
                Panel(titles[2], accuracy, "test accuracy", low=0.3),
            ]
        )
    return draw_panels(target, rows)


def _edges(found: FigureCurves) -> Claim:
    lost = {d: [100 * (1 - run["edges_kept"]) for run in curves["line"]] for d, curves in found.items()}
    return Claim(
        "even the line loses at most 35 % of the data edges (V-C)",
        "; ".join(f"{d.upper()} {np.mean(v):.1f} % in the mean, {min(v):.1f} to {max(v):.1f}" for d, v in lost.items()),
        max(map(max, lost.values())) <= 35,
    )


def _accuracy(found: FigureCurves) -> Claim:
    parts, worst = [], 0.0
    for dataset, curves in found.items():
        whole = final(curves["100 %"], "test")
        changes = {name: interval(final(runs, "test") - whole) for name, runs in curves.items() if name != "100 %"}
        worst = min(worst, *(mean for mean, _, _ in changes.values()))
        parts.append(
            f"{dataset.upper()} " + ", ".join(f"{name} {format_points(*change)}" for name, change in changes.items())
        )
    return Claim(
        "a strong reduction of the connectivity impacts the accuracy mildly (V-C)",
        "points against all links: " + "; ".join(parts),
        worst > -0.05,
    )
