"""Standardisation: features and real-valued targets centred and scaled by moments over all agents.

Features with at least as many zeros as other entries (words of a text, one-hot categories) are scaled only, all by one
number, so that zeros stay zeros, and only if they are in units of their own: if the root mean square of the other
entries is not between 0.01 and 10, it becomes 1. Counts, weights such as TF-IDF and binary features stay as they are.
"""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from gossamer.array_types import Floats, Ints
from gossamer.data.graph import DataGraph
from gossamer.data.moments import Moments, measure_moments

if TYPE_CHECKING:  # of annotations alone: data is read without PyTorch
    from torch import Tensor

SPARSE_SHARE = 0.5  # of entries that are not 0, up to which features are scaled only
USUAL_SIZES = 0.01, 10.0  # of such features, which need no scaling


@dataclass(frozen=True)
class Transform:
    """x -> (x - feature_offset) / feature_scale and, for real values, y -> (y - target_offset) / target_scale."""

    feature_offset: Floats  # [features]; all 0 where features are scaled only
    feature_scale: Floats
    target_offset: Floats | None = None  # [outputs]; None for classes
    target_scale: Floats | None = None

    def apply(self, graph: DataGraph, dtype: str) -> DataGraph:
        """The graph with transformed features and targets."""
        features, targets = self.apply_to_features(graph.features, dtype), self.apply_to_targets(graph.targets)
        return replace(graph, features=features, targets=targets)

    def apply_to_features(self, features: Any, dtype: str) -> Any:
        if not self.feature_offset.any() and sparse.issparse(features):
            scaled = features.data / self.feature_scale[features.indices]
            parts = (scaled.astype(dtype), features.indices, features.indptr)
            return sparse.csr_array(parts, shape=features.shape)
        dense = features.toarray() if sparse.issparse(features) else features
        return ((dense - self.feature_offset) / self.feature_scale).astype(dtype)

    def apply_to_targets(self, targets: NDArray[Any]) -> NDArray[Any]:
        if self.target_offset is None or self.target_scale is None:
            return targets
        return np.asarray((targets - self.target_offset) / self.target_scale)

    def restore_outputs(self, outputs: "Tensor") -> "Tensor":
        """Outputs of the network in the units of the given targets; of classes as they are."""
        if self.target_offset is None or self.target_scale is None:
            return outputs
        scale, offset = (outputs.new_tensor(part) for part in (self.target_scale, self.target_offset))
        return outputs * scale + offset

    def find_target_scale(self) -> "Tensor | None":
        """The scale of targets as a tensor; None for classes."""
        import torch

        return None if self.target_scale is None else torch.from_numpy(self.target_scale)

    def arrays(self) -> dict[str, Floats]:
        """The arrays by name, to be stored."""
        return {name: part for name, part in vars(self).items() if part is not None}


def measure_features(features: Any, train_times: Ints | None) -> Moments:
    """Moments of all vertices' features; of a time axis at the time steps with a training example."""
    return measure_moments(features if train_times is None else features[:, train_times])


def measure_targets(targets: NDArray[Any], train: NDArray[np.bool_]) -> Moments | None:
    """Moments of the training examples' real values; None for classes."""
    return measure_moments(targets[train]) if targets.dtype.kind == "f" else None


def make_transform(features: Moments, targets: Moments | None = None) -> Transform:
    """The transform that standardises data with these moments."""
    offset, scale = features.mean, features.deviation
    if features.nonzeros.sum() <= SPARSE_SHARE * features.count * len(offset):
        size = float(np.sqrt(features.squares.sum() / max(features.nonzeros.sum(), 1.0)))
        usual = USUAL_SIZES[0] <= size <= USUAL_SIZES[1] or size == 0
        offset, scale = np.zeros_like(offset), np.full_like(scale, 1.0 if usual else size)
    if targets is None:
        return Transform(offset, scale)
    return Transform(offset, scale, targets.mean, targets.deviation)


def measure_transform(graph: DataGraph) -> Transform:
    """The transform that standardises a whole graph."""
    times = None if graph.batch is None else np.flatnonzero(graph.train.any(0))
    return make_transform(measure_features(graph.features, times), measure_targets(graph.targets, graph.train))
