"""Standardisation between sites that do not pool their data: moments of their features and targets, merged over the
spanning tree of their links (sums.py), give all of them the transform that a cutter would measure on the whole graph.
"""

from collections.abc import Generator
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from gossamer.agents.exchange import Inbox, Outbox, Phase
from gossamer.agents.share import Share
from gossamer.agents.sums import sum_over_tree
from gossamer.data.moments import Moments, unpack_moments
from gossamer.data.standardisation import make_transform, measure_features, measure_targets
from gossamer.errors import GossamerError


def standardise_share(share: Share, dtype: str, index: int) -> Generator[Outbox, Inbox, Share]:
    """The share with features and targets standardised; `index` is that of the first exchange."""
    if share.tree is None:
        raise AssertionError("sites plan a spanning tree")
    own = [
        measure_features(share.features, share.train_times),
        measure_targets(share.targets, share.masks["train"]),
    ]
    parts = [part for part in own if part is not None]
    widths = [len(part.pack()) for part in parts]

    def merge(one: Tensor, other: Tensor) -> Tensor:
        merged = [a.merge(b).pack() for a, b in zip(_split(one, widths), _split(other, widths), strict=True)]
        return torch.from_numpy(np.concatenate(merged))

    vector = torch.from_numpy(np.concatenate([part.pack() for part in parts]))
    total = yield from sum_over_tree(share.tree, vector, Phase.PLANNING, index, merge)
    features, *targets = _split(total, widths)
    _check_moments(share.tree.agent, [features, *targets])
    transform = make_transform(features, targets[0] if targets else None)
    return replace(
        share,
        features=transform.apply_to_features(share.features, dtype),
        targets=transform.apply_to_targets(share.targets),
        transform=transform,
    )


def _split(vector: Tensor, widths: list[int]) -> list[Moments]:
    return [unpack_moments(part.numpy()) for part in vector.split(widths)]


def _check_moments(agent: int, found: list[Moments]) -> None:
    """Require moments that some data may have."""
    for part in found:
        if (part.spread < 0).any() or (part.nonzeros < 0).any() or (part.nonzeros > part.count).any():
            raise GossamerError(
                f"agent {agent} was sent moments of all sites' features that no data has; look for another version of "
                "Gossamer, or a lie, at its neighbours"
            )
