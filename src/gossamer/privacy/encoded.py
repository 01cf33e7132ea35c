"""The audit of a run with an encoder: features behind the numbers that its graph network sees.

Rows of the graph network are functions of encodings e_i alone, and an encoder is frozen: whatever a curious agent
learns of a vertex's features from rows, it learns through the R numbers tanh(W^T x_i + b), rounded to 8 bits. So their
rank is at most R, however long the training is. The encodings are attacked as features are in other runs; what is found
of them is then turned back by the curious agent's own encoder, which is near the others' as agents agree: by least
squares, or by sparse recovery where most features are 0.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sklearn.linear_model import Ridge

from gossamer.array_types import Floats
from gossamer.model import Params
from gossamer.model.encoder import ENCODING_LEVELS
from gossamer.privacy.audit import Audit, find_separable
from gossamer.privacy.features import (
    SPARSE_SHARE_SEEN,
    FeatureAttack,
    Reconstruction,
    score_baselines,
    select_features,
)
from gossamer.privacy.recovery import solve_sparse
from gossamer.runs.deployment import Deployment
from gossamer.runs.settings import Settings


@dataclass(frozen=True)
class EncoderAudit:
    """What is known of encodings, and of the stages before the graph network's."""

    width: int  # R
    identifiable: int  # vertices whose encodings follow from the rows
    found: int | None  # encodings that the attack reconstructed, of those tried; None: it was not run
    tried: int | None
    separable: tuple[int, ...]  # agents whose weights follow from the masked sums of the stages before

    def to_dict(self) -> dict[str, Any]:
        return {
            "width": self.width,
            "identifiable_encodings": self.identifiable,
            "found": self.found,
            "tried": self.tried,
            "separable_sums": list(self.separable),
        }


def view_encodings(deployment: Deployment, settings: Settings) -> tuple[Deployment, Settings]:
    """The graph network's stage as a run of its own, with encodings for features."""
    if deployment.handed is None:
        raise AssertionError("a run whose encoder has not been trained")
    topologies = tuple(
        replace(one, graph=replace(one.graph, features=deployment.handed)) for one in deployment.topologies
    )
    plain = settings.model_copy(update={"encoder": 0, "standardise": False})
    return replace(deployment, topologies=topologies, handed=None, transform=None), plain


def decode_audit(audit: Audit, deployment: Deployment, settings: Settings, encoder: Params) -> Audit:
    """The audit of encodings as one of features, by the encoders [agents, ...] of all agents."""
    attack, d, width = audit.feature_attack, deployment.graph.num_features, settings.encoder
    found, tried = (None, None) if attack is None else attack.count()
    C = deployment.certificate.combination
    audit.encoder = EncoderAudit(width, audit.identifiable_vertices, found, tried, find_separable(C, audit.curious))
    audit.settings, audit.num_features = settings, d
    audit.neighbours = [replace(one, ranks=replace(one.ranks, num_features=d)) for one in audit.neighbours]
    if attack is not None:
        audit.feature_attack = _decode(attack, deployment, encoder, audit.curious)
    return audit


def _decode(attack: FeatureAttack, deployment: Deployment, encoder: Params, curious: tuple[int, ...]) -> FeatureAttack:
    """Features from what was found of encodings; the decoder is trained on the curious agents' own vertices."""
    assert deployment.handed is not None
    own = np.flatnonzero(np.isin(deployment.assignment, curious))
    mine = select_features(deployment, own)
    filled = (mine != 0).sum(1)
    is_sparse = bool(len(mine)) and filled.mean() <= SPARSE_SHARE_SEEN * mine.shape[1]
    weight, bias = (encoder[f"layer.0.{name}"][curious[0]].double().numpy() for name in ("weight", "bias"))
    decoder = Ridge(alpha=1.0).fit(deployment.handed[own], mine)
    found = []
    for one in attack.reconstructions:
        e = one.estimate if one.estimate is not None else one.decoded
        estimate = None
        if one.estimate is not None:
            estimate = invert_encoding(one.estimate, weight, bias, filled if is_sparse else None)
        decoded = None if e is None else np.asarray(decoder.predict(e[None])).reshape(-1)
        original = select_features(deployment, np.array([one.vertex]))[0]
        found.append(Reconstruction(one.vertex, one.sender, original, estimate, decoded))
    method = f"{attack.method} on encodings, then {'sparse recovery' if is_sparse else 'least squares'}"
    return FeatureAttack(tuple(found), score_baselines(found, deployment, own, mine), method)


def invert_encoding(e: Floats, weight: Floats, bias: Floats, nonzeros: Any = None) -> Floats | None:
    """Features of least norm, or with few entries, whose encoding is e; numbers at the end of the range are taken half
    a step inside it."""
    largest = 1 - 0.5 / ENCODING_LEVELS
    y = np.arctanh(np.clip(e, -largest, largest)) - bias
    if nonzeros is not None:
        return solve_sparse(weight.T, y, nonzeros, 1)
    return np.asarray(np.linalg.lstsq(weight.T, y, rcond=None)[0])
