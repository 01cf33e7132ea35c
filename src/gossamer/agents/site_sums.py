"""Standardisation and weights of examples between sites that do not pool their data.

Moments of features and targets, and sums of weights, are merged over the spanning tree of the sites' links (sums.py).
They give all sites the transform and the weights that a cutter would find on the whole graph.
"""

from collections.abc import Generator
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from gossamer.agents.exchange import Inbox, Outbox, Phase
from gossamer.agents.planning import Site
from gossamer.agents.share import Share
from gossamer.agents.sums import sum_over_tree
from gossamer.array_types import Floats
from gossamer.data.example_weights import make_example_weights, sum_weights
from gossamer.data.moments import Moments, unpack_moments
from gossamer.data.standardisation import make_transform, measure_features, measure_targets
from gossamer.errors import GossamerError


def complete_share(share: Share, site: Site, standardised: str | None, index: int) -> Generator[Outbox, Inbox, Share]:
    """The planned share of a site with weights of its examples and, if `standardised` names a type of numbers, with
    standardised features and targets; `index` is that of the first exchange."""
    if share.tree is None:
        raise AssertionError("sites plan a spanning tree")
    train, given = share.masks["train"], site.data.sample_weights
    weights = sum_weights(share.targets, train, given, site.balanced, share.num_classes)
    measured = [measure_features(share.features, share.train_times), measure_targets(share.targets, train)]
    moments = [part for part in measured if part is not None and standardised is not None]
    widths = [len(weights), *(len(part.pack()) for part in moments)]

    def split(vector: Tensor) -> tuple[Floats, list[Moments]]:
        first, *others = (part.numpy() for part in vector.split(widths))
        return first, [unpack_moments(part) for part in others]

    def merge(one: Tensor, other: Tensor) -> Tensor:
        (sums, parts), (more, others) = split(one), split(other)
        return _join(sums + more, [part.merge(same) for part, same in zip(parts, others, strict=True)])

    found = yield from sum_over_tree(share.tree, _join(weights, moments), Phase.PLANNING, index, merge)
    totals, parts = split(found)
    _check(share, totals, parts)
    share = _weight_examples(share, given, site.balanced, totals)
    if standardised is None:
        return share
    transform = make_transform(parts[0], parts[1] if len(parts) > 1 else None)
    return replace(
        share,
        features=transform.apply_to_features(share.features, standardised),
        targets=transform.apply_to_targets(share.targets),
        transform=transform,
    )


def _join(sums: Floats, moments: list[Moments]) -> Tensor:
    return torch.from_numpy(np.concatenate([sums, *(part.pack() for part in moments)]))


def _weight_examples(share: Share, given: Floats | None, balanced: bool, totals: Floats) -> Share:
    if given is None and totals[0] != totals[1]:  # other sites have sample weights
        given = np.ones(share.masks["train"].shape)
    example_weights, positive_weight = make_example_weights(share.targets, given, balanced, totals)
    return replace(share, example_weights=example_weights, positive_weight=positive_weight)


def _check(share: Share, totals: Floats, moments: list[Moments]) -> None:
    """Require sums that some data may have."""
    wrong = totals[0] != share.num_labelled or totals[1] <= 0 or (totals < 0).any()
    for part in moments:
        wrong |= (part.spread < 0).any() or (part.nonzeros < 0).any() or (part.nonzeros > part.count).any()
    if wrong:
        raise GossamerError(
            f"agent {share.agents[0]} was sent sums over all sites that no data has; look for another version of "
            "Gossamer, or a lie, at its neighbours"
        )
