"""The attack on features: reconstructions of other agents' vertices from recorded rows, beside what guessing gives.

A reconstruction succeeds if no feature is off by more than SUCCESS times the vertex's largest one, in the units that
the network sees (standardised, if the run standardises: all agents know the transform). Baselines are the mean of the
curious agents' own vertices, their mean of the vertex's true class, and a decoder: ridge regression of features on one
evaluation's row, trained on their own vertices (Pasquini, Raynal and Troncoso 2023, "On the (in)security of
peer-to-peer decentralized machine learning", on what such attackers have at hand).
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.linear_model import Ridge

from gossamer.array_types import Floats, Ints
from gossamer.privacy.equations import SenderRows
from gossamer.privacy.recovery import Recovery
from gossamer.runs.deployment import Deployment

SUCCESS = 1e-3  # largest error of a feature, relative to the vertex's largest feature
SPARSE_SHARE_SEEN = 0.2  # of features that are not 0 in vertices of one's own, up to which recovery is sparse


@dataclass(frozen=True)
class Reconstruction:
    """The attack on one vertex's features; `estimate` is None where equations do not allow one, `original` where the
    truth is not at hand."""

    vertex: int
    sender: int
    original: Floats | None
    estimate: Floats | None
    decoded: Floats | None  # by the decoder

    @property
    def succeeded(self) -> bool:
        return self.original is not None and has_succeeded(self.estimate, self.original)


@dataclass(frozen=True)
class FeatureAttack:
    """Reconstructions of the sampled vertices, and how often baselines are right about them."""

    reconstructions: tuple[Reconstruction, ...]
    baselines: dict[str, float]
    method: str
    judged: bool = True  # the truth is at hand

    def count(self, sender: int | None = None) -> tuple[int, int]:
        """Vertices of a sender (or of all) that were reconstructed (rightly, if judged), and tried."""
        tried = [one for one in self.reconstructions if sender in (None, one.sender)]
        found = (one.succeeded if self.judged else one.estimate is not None for one in tried)
        return sum(found), len(tried)


def has_succeeded(estimate: Floats | None, original: Floats) -> bool:
    """Return whether an estimate of features is right."""
    if estimate is None:
        return False
    return bool(np.abs(estimate - original).max() <= SUCCESS * max(float(np.abs(original).max()), 1e-12))


def attack_features(
    equations: Mapping[int, SenderRows],
    deployment: Deployment,
    curious: Collection[int],
    sample: int,
    seed: int,
    judged: bool = True,
) -> FeatureAttack:
    """Reconstruct `sample` of the seen vertices, drawn at random; if it is to be `judged`, compare with the truth."""
    own = np.flatnonzero(np.isin(deployment.assignment, list(curious)))
    mine = select_features(deployment, own)
    filled = (mine != 0).sum(1)
    is_sparse = bool(len(mine)) and filled.mean() <= SPARSE_SHARE_SEEN * mine.shape[1]
    nonnegative = bool((mine >= 0).all())
    chosen = draw_sample({z: rows.vertices for z, rows in equations.items()}, sample, seed)
    found: list[Reconstruction] = []
    for z, rows in equations.items():
        columns = np.searchsorted(rows.vertices, chosen[z])
        estimates = Recovery(rows, filled if is_sparse else None, nonnegative).recover(columns.tolist())
        decoded = _decode(rows, mine, columns)
        originals = select_features(deployment, chosen[z]) if judged else [None] * len(columns)
        found += [
            Reconstruction(int(j), z, x, estimates.get(int(column)), None if decoded is None else decoded[n])
            for n, (j, column, x) in enumerate(zip(chosen[z], columns, originals, strict=True))
        ]
    sparse_method = "a non-negative lasso" if nonnegative else "orthogonal matching pursuit"
    method = sparse_method if is_sparse else "least squares"
    baselines = score_baselines(found, deployment, own, mine) if judged else {}
    return FeatureAttack(tuple(found), baselines, method, judged)


def draw_sample(vertices: Mapping[int, Ints], sample: int, seed: int) -> dict[int, Ints]:
    """At most `sample` of all vertices, drawn at random, by sender."""
    pairs = [(z, int(j)) for z, them in vertices.items() for j in them]
    order = np.random.default_rng(seed).permutation(len(pairs))[:sample]
    return {z: np.array(sorted(pairs[n][1] for n in order if pairs[n][0] == z), dtype=np.int64) for z in vertices}


def select_features(deployment: Deployment, vertices: Ints) -> Floats:
    """Features of vertices as the network sees them; of a time axis those of the first time step."""
    features: Any = deployment.graph.features[vertices]
    dense = features.toarray() if sparse.issparse(features) else np.asarray(features)
    return (dense if dense.ndim == 2 else dense[:, 0]).astype(np.float64)


def _decode(rows: SenderRows, mine: Floats, columns: Ints) -> Floats | None:
    """Ridge regression from one evaluation's row of a vertex; of a vertex in sums from its share of these."""
    if not rows.evaluation.measured or not len(mine):
        return None
    first = rows.evaluation.measured[0]
    decoder = Ridge(alpha=1.0).fit(mine @ first.weight, mine)
    shares = np.linalg.pinv(rows.evaluation.matrix)[columns] @ first.rows
    return np.asarray(decoder.predict(shares)).reshape(len(columns), -1) if len(columns) else np.zeros((0, 0))


def score_baselines(found: list[Reconstruction], deployment: Deployment, own: Ints, mine: Floats) -> dict[str, float]:
    """Rates at which guesses are right; those of the class are given the true one."""
    targets = deployment.graph.targets
    right = {"mean": 0, "decoder": 0}
    by_class: dict[int, Floats] = {}
    if targets.dtype.kind == "i":
        right["class_mean"] = 0
        by_class = {int(c): mine[targets[own] == c].mean(0) for c in np.unique(targets[own])}
    mean = mine.mean(0) if len(mine) else None
    for one in found:
        assert one.original is not None
        right["mean"] += has_succeeded(mean, one.original)
        right["decoder"] += has_succeeded(one.decoded, one.original)
        if by_class:
            right["class_mean"] += has_succeeded(by_class.get(int(targets[one.vertex]), mean), one.original)
    return {name: count / max(len(found), 1) for name, count in right.items()}
