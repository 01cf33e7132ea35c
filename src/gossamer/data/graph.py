"""DataGraph: the data graph G_D of Sec. II with features, targets and masks; the pipeline's first stage."""

import hashlib
import warnings
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from gossamer.errors import GossamerError, GossamerWarning

Features = Any  # scipy.sparse.csr_array [n, d], or numpy [n, d] or [n, batch, d]


@dataclass(frozen=True)
class DataGraph:
    """An undirected graph of data points.

    edges       int64 [edges, 2], each undirected edge once with i < j, sorted
    weights     float64 [edges], positive
    features    x_i: CSR [n, d], or dense [n, d], or dense [n, batch, d] with a batch axis of time steps
    targets     y_i: class numbers int64 [n] (-1: unknown), or real values [n(, batch), outputs]
    train, validation, test   bool [n], or [n, batch] where the signal has a batch axis
    num_classes               None for real-valued targets
    names, class_names        what the user calls vertices and classes
    positions                 float64 [n, 2], where the vertices have a place
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
    def num_outputs(self) -> int:
        """Width of the network's output: a column for each class, or for each real value."""
        return self.num_classes if self.num_classes is not None else int(self.targets.shape[-1])

    @property
    def batch(self) -> int | None:
        """Length of the batch axis, or None."""
        return int(self.features.shape[1]) if self.features.ndim == 3 else None

    @property
    def labelled(self) -> NDArray[np.bool_]:
        """The vertices that hold a training example, [n]: T_D."""
        return self.train if self.train.ndim == 1 else np.asarray(self.train.any(1))

    @property
    def adjacency(self) -> Any:
        """The symmetric weighted adjacency matrix, CSR [n, n], without self-loops."""
        i, j = self.edges.T
        n = self.num_vertices
        half = sparse.csr_array((self.weights, (i, j)), shape=(n, n))
        return sparse.csr_array(half + half.T)

    def fingerprint(self) -> str:
        """A hash of the whole content, so that a run is never continued on other data."""
        digest = hashlib.sha256()
        features = self.features
        parts = [features.indptr, features.indices, features.data] if sparse.issparse(features) else [features]
        for part in (self.edges, self.weights, *parts, self.targets, self.train, self.validation, self.test):
            digest.update(f"{part.dtype}{part.shape}".encode())
            digest.update(np.ascontiguousarray(part).tobytes())
        return digest.hexdigest()

    def restricted_to(self, kept: NDArray[np.bool_]) -> "DataGraph":
        """The same data with only the edges that `kept` marks (Sec. V-C)."""
        return replace(self, edges=self.edges[kept], weights=self.weights[kept])


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
) -> DataGraph:
    """Check a user's arrays and make a DataGraph of them.

    `edges` lists vertex numbers from 0, each undirected edge once or in both directions. Integer `targets` are
    classes, real ones are values to predict.
    """
    features = _checked_features(features)
    n = features.shape[0]
    pairs, edge_weights = _checked_edges(edges, weights, n)
    y = np.asarray(targets)
    batch = features.shape[1] if features.ndim == 3 else None
    masks = [
        _checked_mask(mask, label, n, batch)
        for mask, label in ((train, "train"), (validation, "validation"), (test, "test"))
    ]
    if not masks[0].any():
        raise GossamerError("no labelled vertex: the train mask is empty; mark at least one vertex for training")
    y, num_classes = _checked_targets(y, masks, n, batch)
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
        None if positions is None else np.asarray(positions, dtype=np.float64),
    )
    _warn_of_pieces(graph)
    return graph


def _checked_features(features: Features) -> Features:
    if sparse.issparse(features):
        features = sparse.csr_array(features)
        features.sum_duplicates()
        values = features.data
        row_of = np.repeat(np.arange(features.shape[0]), np.diff(features.indptr))
    else:
        try:
            features = np.asarray(features, dtype=np.result_type(np.asarray(features).dtype, np.float32))
        except (ValueError, TypeError) as error:
            raise GossamerError(f"features must be a table of numbers with one row for each vertex: {error}") from None
        if features.ndim not in (2, 3):
            raise GossamerError(
                f"features must be [vertices, features] or [vertices, batch, features], got shape {features.shape}"
            )
        values, row_of = features.reshape(-1), None
    if features.shape[0] == 0 or features.shape[-1] == 0:
        raise GossamerError(f"the graph is empty: features have shape {features.shape}")
    bad = np.flatnonzero(~np.isfinite(values))
    if len(bad):
        vertex = row_of[bad[0]] if row_of is not None else bad[0] // (values.size // features.shape[0])
        raise GossamerError(
            f"features hold {len(bad)} NaN or infinite values, the first at vertex {vertex}; fill or drop them first"
        )
    return features


def _checked_edges(
    edges: ArrayLike, weights: ArrayLike | None, n: int
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Each undirected edge once with i < j; both directions may be given if their weights agree."""
    pairs = np.asarray(edges)
    if pairs.size == 0:
        pairs = pairs.reshape(0, 2).astype(np.int64)
    if pairs.ndim != 2 or pairs.shape[1] != 2 or not np.issubdtype(pairs.dtype, np.integer):
        raise GossamerError(f"edges must be integers [edges, 2], got {pairs.dtype} {pairs.shape}")
    pairs = pairs.astype(np.int64)
    w = np.ones(len(pairs)) if weights is None else np.asarray(weights, dtype=np.float64)
    if w.shape != (len(pairs),):
        raise GossamerError(f"expected one weight for each of the {len(pairs)} edges, got shape {w.shape}")
    outside = np.flatnonzero((pairs < 0).any(1) | (pairs >= n).any(1))
    if len(outside):
        i, j = pairs[outside[0]]
        raise GossamerError(
            f"edge ({i}, {j}) names a vertex that does not exist: there are {n} vertices, "
            f"numbered 0 to {n - 1} ({len(outside)} such edges)"
        )
    wrong = np.flatnonzero(~(np.isfinite(w) & (w > 0)))
    if len(wrong):
        i, j = pairs[wrong[0]]
        raise GossamerError(f"edge weights must be positive and finite, got {w[wrong[0]]} on edge ({i}, {j})")
    loops = pairs[:, 0] == pairs[:, 1]
    if loops.any():
        warnings.warn(f"{loops.sum()} self-loops dropped; shift operators add their own", GossamerWarning, stacklevel=3)
        pairs, w = pairs[~loops], w[~loops]
    pairs = np.sort(pairs, axis=1)
    unique, first, inverse = np.unique(pairs, axis=0, return_index=True, return_inverse=True)
    differs = np.flatnonzero(w != w[first][inverse.reshape(-1)])
    if len(differs):
        i, j = pairs[differs[0]]
        raise GossamerError(
            f"asymmetric weights: edge ({i}, {j}) is given more than once with different weights "
            f"({len(differs)} such edges); the data graph is undirected, so make them equal"
        )
    return unique, w[first]


def _checked_mask(mask: ArrayLike, label: str, n: int, batch: int | None) -> NDArray[np.bool_]:
    given = np.asarray(mask)
    if given.dtype != np.bool_:
        chosen = np.zeros(n, dtype=bool)
        if given.size and (given.min() < 0 or given.max() >= n):
            raise GossamerError(
                f"the {label} vertices must be numbered 0 to {n - 1}, got {given.min()} to {given.max()}"
            )
        chosen[given.astype(np.int64)] = True
        given = chosen
    if batch is not None and given.shape == (n,):
        given = np.repeat(given[:, None], batch, axis=1)
    expected = (n,) if batch is None else (n, batch)
    if given.shape != expected:
        raise GossamerError(f"the {label} mask must have shape {expected}, got {given.shape}")
    return given


def _checked_targets(
    y: NDArray[Any], masks: list[NDArray[np.bool_]], n: int, batch: int | None
) -> tuple[NDArray[Any], int | None]:
    if y.shape[:1] != (n,):
        raise GossamerError(
            f"expected one target for each of the {n} vertices, got shape {y.shape}; "
            "is a feature or target row missing?"
        )
    if y.dtype == np.bool_ or np.issubdtype(y.dtype, np.integer):
        if y.shape != (n,) or batch is not None:
            raise GossamerError(f"classes must have shape ({n},) and no batch axis, got {y.shape}")
        y = y.astype(np.int64)
        unknown = np.flatnonzero((y < 0) & np.logical_or.reduce(masks))
        if len(unknown):
            raise GossamerError(f"vertex {unknown[0]} is in a mask but has no class ({len(unknown)} such vertices)")
        num_classes = int(y.max()) + 1
        if num_classes < 2 or len(np.unique(y[masks[0]])) < 2:
            raise GossamerError("the training vertices hold one class only; classification needs at least two")
        return y, num_classes
    if not np.issubdtype(y.dtype, np.floating):
        raise GossamerError(f"targets must be class numbers or real values, got {y.dtype}")
    full = 2 if batch is None else 3
    if y.ndim == full - 1:
        y = y[..., None]
    if y.ndim != full or (batch is not None and y.shape[1] != batch):
        raise GossamerError(f"real targets must be [vertices{', batch' if batch else ''}, outputs], got {y.shape}")
    used = np.logical_or.reduce(masks)
    if not np.isfinite(y[used]).all():
        raise GossamerError(f"targets hold {(~np.isfinite(y[used])).sum()} NaN or infinite values inside the masks")
    return np.nan_to_num(y, posinf=0.0, neginf=0.0), None


def _warn_of_pieces(graph: DataGraph) -> None:
    if graph.num_edges == 0:
        warnings.warn(
            "the graph has no edges: a graph network can do no more than a plain one", GossamerWarning, stacklevel=3
        )
        return
    pieces, _ = sparse.csgraph.connected_components(graph.adjacency, directed=False)
    if pieces > 1:
        warnings.warn(
            f"the data graph is disconnected: {pieces} components; agents that share no edge need a "
            "topology that connects them (--topology ring or complete)",
            GossamerWarning,
            stacklevel=3,
        )
