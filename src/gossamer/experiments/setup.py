"""Sec. V-A: the architectures, the agents' network and the training that Fig. 3 to 6 share, with tuned step sizes.

`python -m gossamer.experiments.setup` repeats the search for the step sizes and prints its outcome, the tables below.
"""

import sys
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from gossamer.experiments.reproduction import Cache, Follow
from gossamer.experiments.trials import Trial, log_loss, run_trials, stack

DATASETS = ("cora", "citeseer", "pubmed")
AGENTS = (5, 10, 15, 20)
STEPS = 800
SETUP: Trial = {"update": "gd", "steps": STEPS, "evaluate_every": 20}  # the defaults of Settings are Sec. V-A's
CENTRALISED: Trial = {"agents": 1, "topology": "complete"}
GRAPHLESS: Trial = {**CENTRALISED, "layers": "mlp"}

# Outcome of the search: the step size with the least validation loss, averaged over 500 steps of seeds 100 and 101.
# That of dGCN is searched with 20 agents, where the fewest are stable, and used for any number of them.
GRIDS = {
    "cora": (2.0, 4.0, 8.0, 16.0, 32.0),
    "citeseer": (0.125, 0.25, 0.5, 1.0, 2.0),
    "pubmed": (1.0, 2.0, 4.0, 8.0, 16.0),
}
STEP_SIZES: dict[str, dict[str, float]] = {
    "cora": {"graphless": 4.0, "centralised": 16.0, "distributed": 4.0},
    "citeseer": {"graphless": 0.5, "centralised": 0.5, "distributed": 0.5},
    "pubmed": {"graphless": 2.0, "centralised": 4.0, "distributed": 4.0},
}
METHODS: dict[str, Trial] = {"graphless": GRAPHLESS, "centralised": CENTRALISED, "distributed": {"agents": 20}}

# The same for the update rules of Sec. V-D by the mean logarithm of the training loss.
RULE_AGENTS = 5
RULE_GRIDS = {
    "cora": {"gd": (16.0, 32.0, 64.0, 128.0), "momentum": (6.4, 12.8, 25.6, 51.2), "adam": (0.03, 0.1, 0.3, 1.0)},
    "citeseer": {"gd": (0.5, 1.0, 2.0, 4.0), "momentum": (0.1, 0.2, 0.4, 0.8), "adam": (0.01, 0.03, 0.1, 0.3)},
}
RULE_STEP_SIZES: dict[str, dict[str, float]] = {
    "cora": {"gd": 64.0, "momentum": 25.6, "adam": 0.3},
    "citeseer": {"gd": 2.0, "momentum": 0.4, "adam": 0.1},
}


def trial(dataset: str, method: str, seed: int, **changes: Any) -> Trial:
    """Settings of one run of Fig. 3: NN ("graphless"), GCN ("centralised") or, with `agents`, dGCN ("distributed")."""
    tuned = {"dataset": dataset, "step_size": STEP_SIZES[dataset][method], "seed": seed}
    return {**SETUP, **METHODS[method], **tuned, **changes}


def search(
    cache: Cache,
    variants: Mapping[str, Mapping[str, Any]],
    grid: Mapping[str, Sequence[float]],
    by: str,
    follow: Follow,
) -> dict[str, float]:
    """For each variant of the settings the step size of its grid with the least mean of `by` over a run's evaluations.

    `by` is "loss", whose logarithm is taken so that late progress counts, or "validation_loss". The seeds are none of
    those that the figures show, and nothing of the test vertices is looked at.
    """
    tried = [(name, size, seed) for name in variants for size, seed in product(grid[name], (100, 101))]
    curves = run_trials(cache, [{**variants[n], "step_size": size, "seed": seed} for n, size, seed in tried], follow)
    found: dict[tuple[str, float], list[float]] = {}
    for (name, size, _), curve in zip(tried, curves, strict=True):
        values = log_loss([curve]) if by == "loss" else stack([curve], by)
        mean = np.inf if curve["diverged"] else float(values.mean())
        found.setdefault((name, size), []).append(mean)
    return {name: min(grid[name], key=lambda size: float(np.mean(found[name, size]))) for name in variants}


def main(folder: Path) -> None:
    """Search all step sizes again; an interrupted search goes on where it stopped."""

    def follow(done: int, total: int, reached: str) -> None:
        print(f"{done}/{total} {reached}", file=sys.stderr)

    cache = Cache(folder)
    for dataset in DATASETS:
        variants = {name: {**SETUP, **method, "dataset": dataset, "steps": 500} for name, method in METHODS.items()}
        print(
            dataset,
            search(cache, variants, dict.fromkeys(variants, GRIDS[dataset]), "validation_loss", follow),
            flush=True,
        )
    for dataset in RULE_STEP_SIZES:
        variants = {
            rule: {**SETUP, "agents": RULE_AGENTS, "dataset": dataset, "update": rule, "steps": 500}
            for rule in RULE_GRIDS[dataset]
        }
        print(dataset, search(cache, variants, RULE_GRIDS[dataset], "loss", follow), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "reproduction/search"))
