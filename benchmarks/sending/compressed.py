"""Accuracy against bytes for every way to compress consensus, momentum throughout."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gossamer.agents.consensus import parse_method
from gossamer.data import load
from gossamer.experiments.trials import FigureCurves, Trial, TrialPlan, format_points, stack, steps_of
from gossamer.report.style import save_figure, tidy
from gossamer.runs.settings import make_settings
from gossamer.runs.stages import build_network
from sending.runs import WITHIN, compared, mean_of, verdict

LENGTHS: dict[str, Trial] = {  # for all methods alike
    "cora": {"step_size": 2.0, "steps": 200},
    "citeseer": {"step_size": 0.2, "steps": 200},
    "pubmed": {"step_size": 2.0, "steps": 200},
    "digits": {"step_size": 0.2, "steps": 300},
}
COMPRESSED = (
    "power:1",
    "power:2",
    "power:1,bits=8",
    "choco:bits=8",
    "choco:bits=4",
    "choco:topk=0.1",
    "choco:topk=0.01",
    "choco:randk=0.1",
)
RARE = "plain, now and then"
GOALS = {"cora": 59.0, "citeseer": 59.0, "pubmed": 45.0, "digits": 17.0}  # times fewer bytes with power:1
BITS_GOAL = 3.8  # times fewer again with 8 bits
LOOKS: dict[str, tuple[str, str]] = {  # colour and marker: a colour for each way to compress, darker for fewer bytes
    "plain": ("#000000", "o"),
    RARE: ("#7F7F7F", "x"),
    "power:1": ("#0072B2", "o"),
    "power:2": ("#56B4E9", "s"),
    "power:1,bits=8": ("#332288", "^"),
    "choco:bits=8": ("#44AA99", "s"),
    "choco:bits=4": ("#117733", "D"),
    "choco:topk=0.1": ("#E69F00", "v"),
    "choco:topk=0.01": ("#D55E00", "P"),
    "choco:randk=0.1": ("#AA4499", "*"),
}


def make_plan(datasets: Sequence[str], seeds: int) -> TrialPlan:
    plan = {}
    for dataset in datasets:
        methods: dict[str, Trial] = {"plain": {}, RARE: {"consensus_every": _as_rare_as(dataset, "power:1")}}
        methods |= {name: {"compress": name} for name in COMPRESSED}
        for seed in range(seeds):
            for name, changes in methods.items():
                length = {"dataset": dataset, **LENGTHS[dataset], "evaluate_every": 10, "seed": seed}
                plan[dataset, name, seed] = {**length, "update": "momentum", **changes}
    return plan


def _as_rare_as(dataset: str, compression: str) -> int:
    """Every how many steps plain consensus costs what a compressed one does at every step."""
    graph = load(dataset)
    settings = make_settings({"preset": "paper", "dataset": dataset})
    shapes = build_network(graph.num_features, graph.num_outputs, settings).shapes()
    return round(parse_method("none").payload_bytes(shapes, 4) / parse_method(compression).payload_bytes(shapes, 4))


def table(found: FigureCurves) -> dict[str, dict[str, Any]]:
    """Print what was found, and return it: by data set and method."""
    results: dict[str, dict[str, Any]] = {}
    for dataset, methods in found.items():
        length, seeds = LENGTHS[dataset], len(methods["plain"])
        print(f"\n{dataset}: {length['steps']} steps of {length['step_size']}, momentum, {seeds} seeds")
        print(
            "method               accuracy  difference [95 % interval]  disagreement  consensus bytes/step"
            "    fewer  with headers    fewer    all bytes"
        )
        results[dataset] = {}
        for name, curves in methods.items():
            consensus, wire = mean_of(curves, "consensus"), mean_of(curves, "wire")
            row = compared(curves, methods["plain"]) | {
                "disagreement": float(np.mean([curve["disagreement"][-1] for curve in curves])),
                "consensus": consensus,
                "fewer": mean_of(curves, "plain") / consensus,
                "with headers": wire,
                "fewer with headers": mean_of(curves, "plain wire") / wire,
                "bytes": float(np.mean([curve["sent"][-1] for curve in curves])),
            }
            results[dataset][name] = row
            print(
                f"{name:19s}  {100 * row['accuracy']:7.2f}   {format_points(*row['difference']):26s}  "
                f"{row['disagreement']:12.2e}  {consensus:20,.0f}  {row['fewer']:7.1f}  {wire:12,.0f}  "
                f"{row['fewer with headers']:7.1f}  {row['bytes']:11.3g}"
            )
        judge(dataset, results[dataset])
    return results


def judge(dataset: str, rows: dict[str, Any]) -> None:
    one, eight = rows["power:1"], rows["power:1,bits=8"]
    fewer, again, goal = one["fewer"], eight["fewer"] / one["fewer"], GOALS[dataset]
    print(f"  power:1 sends {fewer:.2f} times fewer bytes (at least {goal:.0f}: {verdict(fewer >= goal)})")
    print(f"  with 8 bits {again:.2f} times fewer again (at least {BITS_GOAL}: {verdict(again >= BITS_GOAL)})")
    for name in ("power:1", "power:1,bits=8"):
        mean = rows[name]["difference"][0]
        print(f"  {name}: {100 * mean:+.2f} points (at least -{100 * WITHIN}: {verdict(mean >= -WITHIN)})")


def draw(path: Path, found: FigureCurves) -> None:
    """Draw test accuracy, the mean over seeds, against all bytes sent until then: a panel for each data set."""
    from matplotlib.figure import Figure

    columns = min(2, len(found))
    rows = -(-len(found) // columns)
    figure = Figure(figsize=(6 * columns, 3.9 * rows + 0.9), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False).flatten()
    for axes, (dataset, methods) in zip(grid, found.items(), strict=False):
        for name, curves in methods.items():
            sent = np.mean([curve["sent"] for curve in curves if not curve["diverged"]], axis=0)
            accuracy = 100 * stack(curves, "test").mean(0)
            colour, marker = LOOKS[name]
            axes.plot(
                sent[1:],
                accuracy[1 : len(steps_of(curves))],
                "--" if name == RARE else "-",
                color=colour,
                label=name,
                linewidth=1.4,
                marker=marker,
                markersize=8 if marker in "*P" else 6,
                markeredgecolor=colour if marker == "x" else "white",
                markeredgewidth=1.2 if marker == "x" else 0.5,
                markevery=0.12,  # of the plot's diagonal, wherever evaluations crowd
            )
        axes.set(title=dataset.upper(), xlabel="bytes sent by all agents", ylabel="test accuracy [%]", xscale="log")
        tidy(axes)
    for axes in grid[len(found) :]:
        axes.axis("off")
    handles, names = grid[0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=5 if columns > 1 else 2, frameon=False)
    save_figure(figure, path)
