"""DataGraph: the data graph G_D of Sec. II with features, targets and masks."""

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from gossamer.array_types import Ints
from gossamer.data.checks import (
    Features,
    check_rows,
    validate_edges,
    validate_features,
    validate_masks,
    validate_positions,
    warn_of_components,
)
from gossamer.data.conversion import to_array
from gossamer.data.example_weights import check_training_weight, validate_sample_weights
from gossamer.data.targets import validate_targets
from gossamer.data.tasks import Task, find_task
from gossamer.errors import GossamerError, naming_vertices


@dataclass(frozen=True)
class DataGraph:
    """An undirected graph of data points.

    - `edges`: int64 [edges, 2], each undirected edge once with i < j, sorted
    - `weights`: float64 [edges], positive
    - `features`: x_i: CSR [n, d], or dense [n, d], or dense [n, batch, d] with a batch axis of time steps
    - `targets`: y_i: class numbers int64 [n] (-1: unknown), labels bool [n, C] (unknown: none), or real values
      [n(, batch), outputs]; their type is the task
    - `train`, `validation`, `test`: bool [n], or [n, batch] where the features have a batch axis
    - `num_classes`: of classes or labels; None for real-valued targets
    - `names`, `class_names`: the user's names of vertices and classes
    - `positions`: float64 [n, 2], of vertices in a plane
    - `sample_weights`: float64, shaped as the masks: the weight of each example in the loss; None: all 1
    """

    name: str
    edges: NDArray[np.int64]
    weights: NDArray[np.float64]
    features: Features
    targets: NDArray[Any]
    train: NDArray[np.bool_]
    validation: NDArray[np.bool_]
    test: NDArray[np.bool_]
    num_classes: int | None
    names: tuple[str, ...] | None = None
    class_names: tuple[str, ...] | None = None
    positions: NDArray[np.float64] | None = None
    sample_weights: NDArray[np.float64] | None = None

    @property
    def num_vertices(self) -> int:
        return int(self.features.shape[0])

    @property
    def num_edges(self) -> int:
        return len(self.edges)

    @property
    def num_features(self) -> int:
        return int(self.features.shape[-1])

    @property
    def task(self) -> Task:
        return find_task(self.targets)

    @property
    def num_outputs(self) -> int:
        """Width of the network's output: a column for each class, label or real value."""
        return self.num_classes if self.num_classes is not None else int(self.targets.shape[-1])

    @property
    def batch(self) -> int | None:
        """Length of the batch axis, the number of time steps; None without one."""
        return int(self.features.shape[1]) if self.features.ndim == 3 else None

    @property
    def labelled(self) -> NDArray[np.bool_]:
        """Mask of the vertices with a training example, [n]: T_D."""
        return self.train if self.train.ndim == 1 else np.asarray(self.train.any(1))

    @property
    def train_times(self) -> Ints | None:
        """Time steps with a training example, ascending; None without a time axis."""
        return None if self.batch is None else np.flatnonzero(self.train.any(0))

    @property
    def num_train_times(self) -> int | None:
        return None if self.train_times is None else len(self.train_times)

    @property
    def adjacency(self) -> Any:
        """Symmetric weighted adjacency matrix, CSR [n, n], without self-loops."""
        return build_adjacency(self.edges, self.weights, self.num_vertices)

    def fingerprint(self) -> str:
        """SHA-256 of all arrays, so that a run is never continued on other data; names are left out."""
        digest = hashlib.sha256()
        features = self.features
        parts = [features.indptr, features.indices, features.data] if sparse.issparse(features) else [features]
        if self.positions is not None:
            parts.append(self.positions)
        digest.update(str(features.shape).encode())
        for part in (self.edges, self.weights, *parts, self.targets, self.train, self.validation, self.test):
            digest.update(f"{part.dtype}{part.shape}".encode())
            digest.update(np.ascontiguousarray(part).data if part.size else b"")
        if self.sample_weights is not None:
            digest.update(b"sample_weights" + np.ascontiguousarray(self.sample_weights).tobytes())
        return digest.hexdigest()

    def save(self, path: str | Path) -> Path:
        """Write an .npz file that `load` reads back to an equal graph (data/saving.py)."""
        from gossamer.data.saving import save_graph

        return save_graph(self, path)

    def restrict_to(self, mask: NDArray[np.bool_]) -> "DataGraph":
        """Return the graph with only the edges where `mask` [edges] is true (Sec. V-C)."""
        return self if mask.all() else replace(self, edges=self.edges[mask], weights=self.weights[mask])

    def select_vertices(self, kept: NDArray[np.bool_]) -> "DataGraph":
        """Return the graph with only the vertices where `kept` [n] is true, and the edges between them."""
        if kept.all():
            return self
        inside, number = kept[self.edges].all(1), np.cumsum(kept) - 1
        rows = {
            name: part[kept]
            for name in ("features", "targets", "train", "validation", "test", "positions", "sample_weights")
            if (part := getattr(self, name)) is not None
        }
        names = None if self.names is None else tuple(np.array(self.names, dtype=object)[kept])
        edges = number[self.edges[inside]].astype(np.int64)
        return replace(self, edges=edges, weights=self.weights[inside], names=names, **rows)


def name_classes(graph: DataGraph) -> list[str] | None:
    """Names of the classes or labels, their numbers where they have none; None for real-valued targets."""
    return None if graph.num_classes is None else list(graph.class_names or map(str, range(graph.num_classes)))


def build_adjacency(edges: NDArray[np.int64], weights: NDArray[np.float64], n: int) -> Any:
    """Build the symmetric adjacency matrix, CSR [n, n], of sorted edges i < j."""
    half = _upper_half(edges, weights, n)
    return sparse.csr_array(half + half.T.tocsr())


def _upper_half(edges: NDArray[np.int64], weights: NDArray[np.float64], n: int) -> Any:
    """Entries above the diagonal, CSR [n, n]. Edges sorted by i are in the order of CSR already."""
    starts = np.concatenate([[0], np.cumsum(np.bincount(edges[:, 0], minlength=n))])
    index_type = np.int32 if max(n, 2 * len(edges)) < 2**31 else np.int64  # the symmetric matrix has 2 entries an edge
    parts = (weights, edges[:, 1].astype(index_type), starts.astype(index_type))
    return sparse.csr_array(parts, shape=(n, n))


def make_graph(
    name: str,
    edges: ArrayLike,
    features: Features,
    targets: ArrayLike,
    *,
    train: ArrayLike,
    validation: ArrayLike,
    test: ArrayLike,
    weights: ArrayLike | None = None,
    names: tuple[str, ...] | None = None,
    class_names: tuple[str, ...] | None = None,
    positions: ArrayLike | None = None,
    sample_weights: ArrayLike | None = None,
    symmetrise: bool = False,
    task: str = "auto",
) -> DataGraph:
    """Make a DataGraph of a user's arrays, after checking them.

    `edges` lists vertex numbers from 0, each undirected edge once or in both directions; where their weights differ,
    `symmetrise` takes the mean. Integer `targets` are classes, a table [n, C] of 0 and 1 gives every vertex any number
    of C labels, other real ones are values to predict, unless `task` ("multiclass", "multilabel", "regression") says
    otherwise. `sample_weights` [n], or [n, time], weigh the examples in the loss. Arrays may be tensors; those that fit
    as they are may be kept without a copy.
    """
    edges, features, targets, weights, positions, sample_weights, train, validation, test = (
        to_array(array, name)
        for name, array in {
            "edges": edges,
            "features": features,
            "targets": targets,
            "weights": weights,
            "positions": positions,
            "sample weights": sample_weights,
            "the train mask": train,
            "the validation mask": validation,
            "the test mask": test,
        }.items()
    )
    with naming_vertices(names):
        features = validate_features(features)
    n = features.shape[0]
    batch = features.shape[1] if features.ndim == 3 else None
    try:
        given_targets = np.asarray(targets)
    except ValueError as error:
        raise GossamerError(f"targets must have one row of the same length for each vertex: {error}") from None
    check_rows(n, targets=given_targets, names=names, positions=positions)
    with naming_vertices(names):
        pairs, edge_weights = validate_edges(edges, weights, n, symmetrise=symmetrise)
        masks = validate_masks({"train": train, "validation": validation, "test": test}, n, batch)
        y, num_classes, class_names = validate_targets(given_targets, masks, batch, class_names, task)
        examples = None if sample_weights is None else validate_sample_weights(sample_weights, n, batch)
    checked_positions = None if positions is None else validate_positions(positions)
    check_training_weight(examples, masks[0])
    graph = DataGraph(
        name,
        pairs,
        edge_weights,
        features,
        y,
        masks[0],
        masks[1],
        masks[2],
        num_classes,
        names,
        class_names,
        checked_positions,
        examples,
    )
    warn_of_components(_upper_half(pairs, edge_weights, graph.num_vertices))
    return graph
