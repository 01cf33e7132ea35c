"""Membership inference: is a vertex in the training set? The likelihood ratio attack with shadow runs.

Carlini, Chien, Nasr, Song, Terzis and Tramer (2022), "Membership inference attacks from first principles" (LiRA). Every
shadow run trains on a random half of the training vertices. A vertex's score is the logit of its true class's
probability; of each run the others tell how scores of the vertex are distributed with it in the training set and
without, as two normal distributions, whose likelihood ratio is the attack's verdict. For boundary vertices no attack is
needed: that they are training vertices stands in the plan.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sklearn.metrics import roc_auc_score, roc_curve

from gossamer.array_types import Floats
from gossamer.data import DataGraph
from gossamer.errors import GossamerError

Predict = Callable[[DataGraph], Floats]  # trains on a graph's training vertices; logits of every vertex [n, classes]
LOW_FALSE_RATE = 0.01
LEAST_RUNS = 4
LEAST_DEVIATION = 1e-3  # of scores of a vertex


@dataclass(frozen=True)
class MembershipAttack:
    """Success over all runs and training vertices."""

    runs: int
    auc: float
    true_rate: float  # of members found where LOW_FALSE_RATE of the others are taken for one

    def to_dict(self) -> dict[str, Any]:
        """Rates and those of guessing."""
        return {
            "runs": self.runs,
            "rate": self.auc,
            "baseline": 0.5,
            "true_positive_rate": self.true_rate,
            "false_positive_rate": LOW_FALSE_RATE,
        }


def check_shadow_runs(graph: DataGraph, runs: int) -> None:
    """Refuse data without classes, and too few shadow runs."""
    if graph.targets.dtype.kind != "i" or graph.batch is not None:
        raise GossamerError("membership inference needs one class a vertex; leave --membership away for this data")
    if runs < LEAST_RUNS:
        raise GossamerError(f"expected at least {LEAST_RUNS} shadow runs for --membership, got {runs}")


def attack_membership(graph: DataGraph, runs: int, predict: Predict, seed: int) -> MembershipAttack:
    """Train `runs` shadow runs, and attack each with the help of the others."""
    check_shadow_runs(graph, runs)
    pool = np.flatnonzero(graph.train)
    random = np.random.default_rng(seed)
    members = np.zeros((runs, len(pool)), dtype=bool)
    for first in range(0, runs, 2):  # each vertex is in one of two runs
        half = random.permutation(len(pool)) < len(pool) // 2
        members[first] = half
        members[first + 1 : first + 2] = ~half
    scores = np.empty((runs, len(pool)))
    for run in range(runs):
        train = np.zeros_like(graph.train)
        train[pool[members[run]]] = True
        scores[run] = score_vertices(predict(replace(graph, train=train))[pool], graph.targets[pool])
    ratios = np.stack([likelihood_ratios(scores, members, run) for run in range(runs)])
    auc = float(roc_auc_score(members.ravel(), ratios.ravel()))
    false, true, _ = roc_curve(members.ravel(), ratios.ravel())
    return MembershipAttack(runs, auc, float(true[false <= LOW_FALSE_RATE].max(initial=0.0)))


def score_vertices(logits: Floats, targets: Any) -> Floats:
    """log p / (1 - p) of the true class, from logits, without rounding p to 1."""
    rows = np.arange(len(targets))
    others = logits.astype(np.float64).copy()
    own = others[rows, targets].copy()
    others[rows, targets] = -np.inf
    top = others.max(1)
    return np.asarray(own - top - np.log(np.exp(others - top[:, None]).sum(1)))


def likelihood_ratios(scores: Floats, members: Any, run: int) -> Floats:
    """The log likelihood ratio of each vertex's score in a run, from all other runs."""
    rest = np.arange(len(scores)) != run

    def log_likelihood(chosen: Any) -> Floats:
        count = np.maximum(chosen.sum(0), 1)
        mean = np.where(chosen, scores[rest], 0.0).sum(0) / count
        spread = np.where(chosen, np.square(scores[rest] - mean), 0.0).sum() / max(int(chosen.sum()), 1)
        deviation = max(float(np.sqrt(spread)), LEAST_DEVIATION)  # one for all vertices, as for few shadow runs
        return np.asarray(-0.5 * np.square((scores[run] - mean) / deviation) - np.log(deviation))

    return log_likelihood(members[rest]) - log_likelihood(~members[rest])
