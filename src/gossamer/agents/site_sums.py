"""Standardisation and weights of examples between sites that do not pool their data.

Moments of features and targets, and sums of weights, are merged over the spanning tree of the sites' links (sums.py).
They give all sites the transform and the weights that a cutter would find on the whole graph.
"""

from collections.abc import Generator
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from gossamer.agents.exchange import Inbox, Outbox, Phase
from gossamer.agents.planning_exchanges import Site
from gossamer.agents.share import Share
from gossamer.agents.sums import sum_over_tree
from gossamer.array_types import Floats
from gossamer.data.example_weights import make_example_weights, sum_weights
from gossamer.data.moments import Moments, unpack_moments
from gossamer.data.standardisation import make_transform, measure_features, measure_targets
from gossamer.errors import GossamerError


@dataclass(frozen=True)
class SiteSums:
    """What sites sum: weights of training examples (data/example_weights.py), and moments of features and targets."""

    weights: Floats
    moments: tuple[Moments, ...]  # none where nothing is standardised

    @property
    def vector(self) -> Tensor:
        return torch.from_numpy(np.concatenate([self.weights, *(part.pack() for part in self.moments)]))

    def read(self, vector: Tensor) -> "SiteSums":
        """The sums of a vector like this one's."""
        widths = [len(self.weights), *(len(part.pack()) for part in self.moments)]
        weights, *moments = (part.numpy() for part in vector.split(widths))
        return SiteSums(weights, tuple(map(unpack_moments, moments)))

    def merge(self, other: "SiteSums") -> "SiteSums":
        moments = tuple(one.merge(same) for one, same in zip(self.moments, other.moments, strict=True))
        return SiteSums(self.weights + other.weights, moments)


def measure_site(share: Share, site: Site, standardise: bool) -> SiteSums:
    """The sums of one site."""
    train = share.masks["train"]
    weights = sum_weights(share.targets, train, site.data.sample_weights, site.balanced, share.num_classes)
    found = [measure_features(share.features, share.train_times), measure_targets(share.targets, train)]
    return SiteSums(weights, tuple(part for part in found if part is not None and standardise))


def sum_sites(share: Share, own: SiteSums, index: int) -> Generator[Outbox, Inbox, SiteSums]:
    """The sums of all sites; `index` is that of the first exchange."""
    if share.tree is None:
        raise AssertionError("sites plan a spanning tree")

    def merge(one: Tensor, other: Tensor) -> Tensor:
        return own.read(one).merge(own.read(other)).vector

    return own.read((yield from sum_over_tree(share.tree, own.vector, Phase.PLANNING, index, merge)))


def complete_share(share: Share, site: Site, totals: SiteSums, dtype: str) -> Share:
    """The planned share of a site with weights of its examples and, where the sums hold moments, with standardised
    features and targets."""
    _check(share, totals)
    share = _weight_examples(share, site, totals.weights)
    if not totals.moments:
        return share
    transform = make_transform(*totals.moments)
    return replace(
        share,
        features=transform.apply_to_features(share.features, dtype),
        targets=transform.apply_to_targets(share.targets),
        transform=transform,
    )


def _weight_examples(share: Share, site: Site, totals: Floats) -> Share:
    given = site.data.sample_weights
    if given is None and totals[0] != totals[1]:  # other sites have sample weights
        given = np.ones(share.masks["train"].shape)
    example_weights, positive_weight = make_example_weights(share.targets, given, site.balanced, totals)
    return replace(share, example_weights=example_weights, positive_weight=positive_weight)


def _check(share: Share, totals: SiteSums) -> None:
    """Require sums that some data may have."""
    weights = totals.weights
    wrong = weights[0] != share.num_labelled or weights[1] <= 0 or (weights < 0).any()
    for part in totals.moments:
        wrong |= (part.spread < 0).any() or (part.nonzeros < 0).any() or (part.nonzeros > part.count).any()
    if wrong:
        raise GossamerError(
            f"agent {share.agents[0]} was sent sums over all sites that no data has; look for another version of "
            "Gossamer, or a lie, at its neighbours"
        )
