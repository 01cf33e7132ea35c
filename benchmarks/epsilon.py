"""Accuracy against epsilon of private runs, beside the graph-less network with the same budget.

    GOSSAMER_DATA=... python benchmarks/epsilon.py [--datasets pubmed coauthor-physics amazon-photo] [--level node]
        [--epsilons 1 2 4 8 16 inf] [--seeds 3] [--figure FILE.png] [--json]

60 % of the vertices are labelled for training, drawn by the seed; 10 agents, the defaults of `--privacy`, delta 1e-5.
The graph-less network is the same run without a hop: its encoder and classifier have the whole budget. amazon-photo is
graphs/amazon_photo.npz in GOSSAMER_DATA. `--labels 20` trains on 20 vertices a class instead, for which there is no
hope.
"""

import argparse
import json
import os
import statistics
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

import gossamer
from gossamer.data import DataGraph
from gossamer.report.style import COLOURS, save_figure, tidy

DELTA, AGENTS = 1e-5, 10
TRAIN, VALIDATION = 0.6, 0.2  # shares of the vertices


def load_graph(name: str, seed: int, labels: int | None) -> DataGraph:
    path = Path(os.environ.get("GOSSAMER_DATA", "")) / "graphs" / f"{name.replace('-', '_')}.npz"
    graph = gossamer.load(path if path.is_file() else name, seed)
    random = np.random.default_rng(seed)
    order = random.permutation(graph.num_vertices)
    first, second = (int(share * graph.num_vertices) for share in (TRAIN, TRAIN + VALIDATION))
    chosen = order[:first]
    if labels is not None:
        chosen = np.concatenate([chosen[graph.targets[chosen] == c][:labels] for c in range(graph.num_outputs)])
    train, validation, test = (
        np.isin(np.arange(graph.num_vertices), at) for at in (chosen, order[first:second], order[second:])
    )
    return replace(graph, train=train, validation=validation, test=test)


def measure(graph: DataGraph, level: str, epsilon: float, seed: int, **changes: Any) -> float:
    options = ",".join(f"{key}={value}" for key, value in changes.items())
    privacy = f"{level}:epsilon={epsilon},delta={DELTA}{',' * bool(options)}{options}"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # at small budgets nothing is learnt, which is what is measured
        result = gossamer.train(graph, agents=AGENTS, privacy=privacy, seed=seed, baselines=False)
    return 100 * result.summary["distributed"]["test"]["accuracy"]


def draw(path: Path, rows: dict[str, dict[float, dict[str, list[float]]]], level: str) -> None:
    """Draw the mean accuracy over seeds with a band of one standard deviation, and its level without noise."""
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    looks = {"private": ("with noisy sums over neighbours", "o-", COLOURS["distributed"])}
    looks["graphless"] = ("without the graph", "s--", COLOURS["graphless"])
    figure = Figure(figsize=(4.2 * len(rows), 3.8), layout="constrained")
    panels = figure.subplots(1, len(rows), squeeze=False)[0]
    for axes, (name, by_epsilon) in zip(panels, rows.items(), strict=True):
        finite = [epsilon for epsilon in by_epsilon if epsilon != float("inf")]
        for kind, (label, style, colour) in looks.items():
            means = [statistics.mean(by_epsilon[epsilon][kind]) for epsilon in finite]
            spread = [statistics.pstdev(by_epsilon[epsilon][kind]) for epsilon in finite]
            axes.plot(finite, means, style, color=colour, label=label)
            low, high = (np.array(means) + sign * np.array(spread) for sign in (-1, 1))
            axes.fill_between(finite, low, high, color=colour, alpha=0.15, linewidth=0)
            if float("inf") in by_epsilon:
                axes.axhline(statistics.mean(by_epsilon[float("inf")][kind]), color=colour, linestyle=":")
        axes.set(title=name, xscale="log", xlabel=f"epsilon ({level}), delta {DELTA:g}", ylabel="test accuracy [%]")
        axes.set_xticks(finite, [f"{epsilon:g}" for epsilon in finite])
        axes.set_xticks([], minor=True)
    tidy(*panels)
    handles, _ = panels[0].get_legend_handles_labels()
    handles.append(Line2D([], [], color="black", linestyle=":", label="without noise"))
    figure.legend(handles=handles, loc="outside lower center", ncols=3, frameon=False)
    save_figure(figure, path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--datasets", nargs="+", default=["pubmed", "coauthor-physics", "amazon-photo"])
    parser.add_argument("--level", choices=["node", "edge"], default="node")
    parser.add_argument("--epsilons", nargs="+", type=float, default=[1, 2, 4, 8, 16, float("inf")])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--labels", type=int, help="training vertices a class, instead of 60 %% of all")
    parser.add_argument("--figure", type=Path)
    parser.add_argument("--json", action="store_true", help="print one JSON object at the end")
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows: dict[str, dict[float, dict[str, list[float]]]] = {}
    for name in options.datasets:
        rows[name] = {epsilon: {"private": [], "graphless": []} for epsilon in options.epsilons}
        for seed in range(options.seeds):
            graph = load_graph(name, seed, options.labels)
            for epsilon, found in rows[name].items():
                found["private"].append(measure(graph, options.level, epsilon, seed))
                found["graphless"].append(measure(graph, options.level, epsilon, seed, hops=0))
        for epsilon, found in rows[name].items():
            texts = [f"{kind} {statistics.mean(values):5.1f} % ({', '.join(f'{v:.1f}' for v in values)})"
                     for kind, values in found.items()]  # fmt: skip
            print(f"{name:18s} epsilon {epsilon:4g}: {'; '.join(texts)}", flush=True)
    if options.figure is not None:
        draw(options.figure, rows, options.level)
    if options.json:
        print(json.dumps(rows))


if __name__ == "__main__":
    main()
