"""Links that fail: accuracy and disagreement against the share of links that are up in a step. Not a figure of the
paper, whose conclusions name time-varying connectivity as an open question."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gossamer.experiments.reproduction import Claim, ExperimentProgress, Outcome
from gossamer.experiments.trials import (
    Curve,
    FigureCurves,
    Trial,
    fail_diverged,
    final,
    format_points,
    interval,
    run_plan,
)
from gossamer.report.csv_tables import write_csv
from gossamer.report.panels import Line, Panel, draw_panels
from gossamer.report.style import COLOURS
from gossamer.topology import MISSING_ROWS

ShareRow = dict[str, str | float | None]  # of the table
FAILING_DATASETS = ("cora", "citeseer")
SHARES_UP = (1.0, 0.9, 0.7, 0.5, 0.3, 0.1)  # of the links of a designed topology that are up in a step, in the mean
MOST_SEEDS = 5
COST = 0.01  # of test accuracy: one point
HALF = 0.5
COLOUR_OF = {"relay": COLOURS["distributed"], "last": "#E69F00", "drop": "#CC79A7"}
# The default settings, which track the whole gradient; the paper's know no links that change.
FAILING_SETUP: Trial = {"preset": "default", "track": True, "agents": 10, "evaluate_every": 10}


def reproduce(out: Path, quick: bool, seeds: int, progress: ExperimentProgress) -> Outcome:
    """Train with links of which each is down in a step with the same probability, in the three ways to do without a
    row."""
    datasets, shares = (FAILING_DATASETS[:1], (1.0, 0.5)) if quick else (FAILING_DATASETS, SHARES_UP)
    shorter: Trial = {"steps": 40} if quick else {}
    plan = {
        (dataset, _name(way, share), seed): {
            **FAILING_SETUP,
            "dataset": dataset,
            "seed": seed,
            "topology": f"failing:{1 - share:.1f}",
            "missing": way,
            **shorter,
        }
        for dataset in datasets
        for seed in range(min(seeds, MOST_SEEDS))
        for share in shares
        for way in (MISSING_ROWS if share < 1 else MISSING_ROWS[:1])
    }
    found = run_plan(out, "changing", plan, progress)
    rows = _tabulate(found, shares)
    write_csv(out / "changing_shares.csv", rows)
    files = ["changing.csv", "changing_shares.csv", *_draw(out / "changing", found, shares)]
    claims = [judge(found, shares) for judge in (_smallest, _compare, _apart)]
    return Outcome("changing", fail_diverged(claims, found), files)


def _name(way: str, share: float) -> str:
    return f"{way} {share:g}" if share < 1 else "all links"


def _runs(found: dict[str, list[Curve]], way: str, share: float) -> list[Curve]:
    return found[_name(way, share)]


def _changes(found: dict[str, list[Curve]], way: str, shares: tuple[float, ...]) -> list[NDArray[np.float64]]:
    """Differences of the final test accuracy from that with all links, by share, each [seeds]."""
    whole = final(found["all links"], "test")
    return [final(_runs(found, way, share), "test") - whole for share in shares]


def find_smallest_share(changes: list[NDArray[np.float64]], shares: tuple[float, ...]) -> float:
    """The smallest share down to which the mean accuracy falls by less than a point."""
    smallest = shares[0]
    for share, change in zip(shares, changes, strict=True):
        if change.mean() <= -COST:
            break
        smallest = share
    return smallest


def _tabulate(found: FigureCurves, shares: tuple[float, ...]) -> list[ShareRow]:
    rows: list[ShareRow] = []
    for dataset, curves in found.items():
        for way in MISSING_ROWS:
            for share, change in zip(shares, _changes(curves, way, shares), strict=True):
                runs = _runs(curves, way, share)
                mean, low, high = interval(change)
                apart = float(np.exp(np.log(final(runs, "disagreement")).mean()))
                about: ShareRow = {
                    "dataset": dataset,
                    "missing": way,
                    "share_up": share,
                    "test": float(final(runs, "test").mean()),
                }
                rows.append({**about, "change": mean, "low": low, "high": high, "disagreement": apart})
    return rows


def _smallest(found: FigureCurves, shares: tuple[float, ...]) -> Claim:
    parts, enough = [], True
    for dataset, curves in found.items():
        told = []
        for way in MISSING_ROWS:
            changes = _changes(curves, way, shares)
            smallest = find_smallest_share(changes, shares)
            enough &= smallest <= HALF
            told.append(f"{way} {smallest:.0%} ({format_points(*interval(changes[-1]))} at {shares[-1]:.0%})")
        parts.append(f"{dataset.upper()} {', '.join(told)}")
    return Claim(
        "half of the links cost less than a point of test accuracy, in each of the three ways",
        "smallest share of links that are up with less than a point lost: " + "; ".join(parts),
        enough,
        ours=True,
    )


def _compare(found: FigureCurves, shares: tuple[float, ...]) -> Claim:
    parts, better = [], True
    for dataset, curves in found.items():
        gains = {
            share: interval(final(_runs(curves, "relay", share), "test") - final(_runs(curves, "drop", share), "test"))
            for share in shares[1:]
        }
        better &= all(low > 0 for _, low, _ in gains.values())
        told = ", ".join(f"{share:.0%} {format_points(*gain)}" for share, gain in gains.items())
        parts.append(f"{dataset.upper()} {told}")
    return Claim(
        "relayed rows keep more accuracy than dropped ones",
        "points of relay against drop by the share of links that are up: " + "; ".join(parts),
        better,
        ours=True,
    )


def _apart(found: FigureCurves, shares: tuple[float, ...]) -> Claim:
    parts, grows = [], True
    for dataset, curves in found.items():
        told = []
        for way in MISSING_ROWS:
            means = [float(np.log(final(_runs(curves, way, share), "disagreement")).mean()) for share in shares]
            grows &= means == sorted(means)
            told.append(f"{way} {np.exp(means[-1] - means[0]):.3g}")
        parts.append(f"{dataset.upper()} {', '.join(told)}")
    return Claim(
        "agents disagree more, the fewer links are up",
        f"factor of the disagreement with {shares[-1]:.0%} of the links: " + "; ".join(parts),
        grows,
        ours=True,
    )


def _draw(target: Path, found: FigureCurves, shares: tuple[float, ...]) -> list[str]:
    """Draw a row for each data set: accuracy and disagreement against the share of links that are up."""
    rows = []
    for number, (dataset, curves) in enumerate(found.items()):

        def lines(what: str, curves: dict[str, list[Curve]] = curves) -> list[Line]:
            return [
                Line(
                    way, COLOUR_OF[way], shares, np.stack([final(_runs(curves, way, s), what) for s in shares], axis=1)
                )
                for way in MISSING_ROWS
            ]

        title = [f"({'abcd'[2 * number + place]}) {dataset.upper()}" for place in range(2)]
        share = "share of links up in a step"
        rows.append(
            [
                Panel(title[0], lines("test"), "test accuracy", share),
                Panel(title[1], lines("disagreement"), "disagreement", share, logarithmic=True),
            ]
        )
    return draw_panels(target, rows)
