"""Test scores of layers, of ten agents beside the centralised network: the tables of docs/layers.md.

    GOSSAMER_DATA=... python benchmarks/layer_results.py [--datasets minesweeper cora amazon-photo] [--json FILE]

Minesweeper (Platonov et al. 2023, "A critical look at the evaluation of GNNs under heterophily: are we really making
progress?"), ROC AUC on its fixed splits 5 to 7: one recipe for all layers, and the same network without the graph. Five
graph layers with residual connections alternate with layers of each vertex by itself, which mix a vertex with what it
has received; these have none, so that layer normalisation keeps the scale of the signal from block to block. On the
command line, for sage:

    L=sage M=mlp:residual=false
    gossamer train minesweeper --split 5 --score roc_auc --layers $L/$M/$L/$M/$L/$M/$L/$M/$L/$M \\
        --before 64 --residual --norm layer --dropout 0.1 --input-dropout 0 --step-size 0.003 --steps 500 \\
        --evaluate-every 20 --gap 0.8

It was chosen on other splits: layers on split 0, the gap by the validation scores of gcn and sage on splits 3 and 4,
dropout and steps by those of gcn on splits 1 and 3, where networks without dropout overfit soon and scores jump.

CORA and Amazon Photo, accuracy: the defaults but for `--layers` and `--norm layer`, splits by the seeds 20 to 22. Seeds
and splits decide initial weights and assignment too. Intervals are of 95 % by Student's t, differences are paired.
Results go to a file as they come, and those that it has are not computed again: an interrupted command goes on where it
was.
"""

import argparse
import json
import os
import sys
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch

import gossamer
from gossamer.experiments.trials import format_points, interval
from gossamer.files import write_atomically

AGENTS = 10
GRAPHS = Path(os.environ.get("GOSSAMER_DATA", ".")) / "graphs"
GRAPHLESS = "mlp"
DEPTH = 5  # graph layers
MIXING_LAYER = "mlp:residual=false"  # of a vertex by itself, after each
RECIPE: dict[str, Any] = {
    "score": "roc_auc",
    "before": 64,
    "residual": True,
    "norm": "layer",
    "dropout": 0.1,
    "input_dropout": 0.0,
    "step_size": 0.003,
    "steps": 500,
    "evaluate_every": 20,
    "gap": 0.8,
}
KINDS = {
    "minesweeper": ("gcn", "sage", "gat", "gin", GRAPHLESS),
    "cora": ("gat", "sage"),
    "amazon-photo": ("gat", "sage"),
}
NUMBERS = {"minesweeper": range(5, 8), "cora": range(20, 23), "amazon-photo": range(20, 23)}  # splits, or seeds
PUBLISHED = {"gcn": 89.8, "sage": 93.5, "gat": 92.0, GRAPHLESS: 50.9}  # ROC AUC, Platonov et al. 2023, Table 4
MOST_APART = 0.005  # ten agents from the centralised network
Results = dict[str, dict[str, Any]]


def make_options(dataset: str, kind: str, agents: int, number: int) -> dict[str, Any]:
    """Keyword arguments of `gossamer.train`, the data set among them."""
    options: dict[str, Any] = {"dataset": dataset, "agents": agents, "seed": number, "layers": kind, "norm": "layer"}
    if dataset == "minesweeper":
        options |= RECIPE | {"split": number, "layers": "/".join([kind, MIXING_LAYER] * DEPTH)}
    return options


def train(options: dict[str, Any]) -> dict[str, Any]:
    """Train one network: its scores at the step that validation chooses, and seconds."""
    began = time.perf_counter()
    others = {name: value for name, value in options.items() if name != "dataset"}
    data = GRAPHS / "amazon_photo.npz" if options["dataset"] == "amazon-photo" else options["dataset"]
    result = gossamer.train(data, **others, baselines=False, threads=1)
    score = options.get("score", "accuracy")
    found = {mask: result.summary["distributed"][mask][score] for mask in ("validation", "test")}
    return {**found, "seconds": time.perf_counter() - began, "options": options}


def complete(results: Results, path: Path, datasets: list[str]) -> None:
    """Train what the results lack, one split after the other, and store each result at once."""
    for dataset in datasets:
        for number in NUMBERS[dataset]:
            for kind in KINDS[dataset]:
                for agents in (AGENTS, 1):
                    options = make_options(dataset, kind, agents, number)
                    key = f"{dataset}/{number}/{kind}/{agents}"
                    if results.get(key, {}).get("options") == options:
                        continue
                    results[key] = train(options)
                    write_atomically(path, json.dumps(results, indent=1).encode())
                    line = f"{key}: {100 * results[key]['test']:.2f}, {results[key]['seconds']:.0f} s"
                    print(line, file=sys.stderr, flush=True)


def select(results: Results, dataset: str, kind: str, agents: int) -> Any:
    """Test scores over the splits, as far as they are there."""
    keys = [f"{dataset}/{number}/{kind}/{agents}" for number in NUMBERS[dataset]]
    return np.array([results[key]["test"] for key in keys if key in results])


def show(results: Results, datasets: list[str]) -> None:
    for dataset in datasets:
        scores = {
            kind: (select(results, dataset, kind, AGENTS), select(results, dataset, kind, 1)) for kind in KINDS[dataset]
        }
        count = len(NUMBERS[dataset])
        whole = [kind for kind, pair in scores.items() if all(len(one) == count for one in pair)]
        order = sorted(whole, key=lambda kind: -float(scores[kind][0].mean()))
        measure, more = ("ROC AUC, %", ["published"]) if dataset == "minesweeper" else ("accuracy, %", [])
        head = [f"{dataset}: {measure}", f"{AGENTS} agents", "centralised", "difference", *more]
        print(f"\n| {' | '.join(head)} |")
        print(f"| {' | '.join(['---'] * len(head))} |")
        for kind in order:
            ours, theirs = scores[kind]
            name = "without the graph" if kind == GRAPHLESS else f"`{kind}`"
            published = [str(PUBLISHED.get(kind, "")) for _ in more]
            cells = [name, _format(ours), _format(theirs), format_points(*interval(ours - theirs)), *published]
            print(f"| {' | '.join(cells)} |")
        for better, worse in pairwise(order):
            gap = format_points(*interval(scores[better][0] - scores[worse][0]))
            print(f"{better} above {worse}, {AGENTS} agents: {gap}")
        graph = [kind for kind in order if kind != GRAPHLESS]
        if dataset == "minesweeper" and graph:
            apart = max(abs(float((scores[kind][0] - scores[kind][1]).mean())) for kind in graph)
            verdict = "met" if apart <= MOST_APART else "MISSED"
            print(f"largest difference {100 * apart:.2f} points (at most {100 * MOST_APART}: {verdict})")


def _format(scores: Any) -> str:
    mean, low, high = interval(scores)
    return f"{100 * mean:.2f} ± {50 * (high - low):.2f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--datasets", nargs="+", choices=list(KINDS), default=list(KINDS))
    parser.add_argument("--json", type=Path, metavar="FILE", default=Path("layer_results.json"), help="results so far")
    parser.add_argument("--show", action="store_true", help="print the tables of what is there; train nothing")
    options = parser.parse_args()
    torch.set_num_threads(1)
    results: Results = json.loads(options.json.read_text()) if options.json.exists() else {}
    if not options.show:
        complete(results, options.json, options.datasets)
    show(results, options.datasets)


if __name__ == "__main__":
    main()
