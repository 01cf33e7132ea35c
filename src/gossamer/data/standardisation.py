"""Standardisation: features and real-valued targets centred and scaled by moments over all agents.

Columns of dense features are centred and divided by their standard deviation. Three kinds of columns are not centred:
constant ones, those with at least as many zeros as other entries (words of a text, one-hot categories), and all columns
of features most of whose entries are 0, so that zeros stay zeros. They are scaled only where they have units of
their own, by the root mean square of their entries other than 0: one by one above 10, all others by one number if it
is below 0.01. Counts, weights such as TF-IDF and binary features stay as they are.
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

SPARSE_SHARE = 0.5  # of entries that are not 0, up to which features are not centred
SMALL, LARGE = 0.01, 10.0  # sizes of columns that are not centred, beyond which they are scaled


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
        """Outputs of the network in the units of the given targets, in float64, for these may have more digits than the
        network; of classes as they are."""
        if self.target_offset is None or self.target_scale is None:
            return outputs
        outputs = outputs.double()
        return outputs * outputs.new_tensor(self.target_scale) + outputs.new_tensor(self.target_offset)

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
    share = features.nonzeros / max(features.count, 1.0)
    centred = (share > SPARSE_SHARE) & (share.mean() > SPARSE_SHARE) & ~features.constant
    size = np.sqrt(features.squares / np.maximum(features.nonzeros, 1.0))  # of each column, without its zeros
    large = size > LARGE
    rest = ~centred & ~large
    common = float(np.sqrt(features.squares[rest].sum() / max(features.nonzeros[rest].sum(), 1.0)))
    others = np.where(large, size, common if 0 < common < SMALL else 1.0)
    offset, scale = np.where(centred, features.mean, 0.0), np.where(centred, features.deviation, others)
    if targets is None:
        return Transform(offset, scale)
    return Transform(offset, scale, targets.mean, targets.deviation)


def measure_transform(graph: DataGraph) -> Transform:
    """The transform that standardises a whole graph."""
    return make_transform(
        measure_features(graph.features, graph.train_times), measure_targets(graph.targets, graph.train)
    )
