"""Graphs to predict on: edges and features alone; labels and masks may be missing, and are left out if they are there.

Read from what `load` takes, with the labels left out, or from a PyTorch Geometric graph with x and edge_index.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from gossamer.data.arrays import CSR, make_csr, open_arrays
from gossamer.data.checks import check_both_directions, validate_edges, validate_features, validate_positions
from gossamer.data.conversion import to_array
from gossamer.data.graph import DataGraph
from gossamer.data.tables import read_edges, read_features
from gossamer.data.tasks import Task
from gossamer.errors import FileError, GossamerError, naming, naming_vertices


def drop_labels(graph: DataGraph, num_outputs: int, class_names: tuple[str, ...] | None, task: Task) -> DataGraph:
    """The graph without labels, for a network with so many outputs."""
    n, batch = graph.num_vertices, graph.batch
    masked = np.zeros((n,) if batch is None else (n, batch), dtype=bool)
    targets: Any = np.full(n, -1, dtype=np.int64)
    if task != "multiclass":
        kind = np.bool_ if task == "multilabel" else np.float32
        targets = np.zeros((*masked.shape, num_outputs), dtype=kind)
    return replace(
        graph,
        targets=targets,
        train=masked,
        validation=masked,
        test=masked,
        num_classes=None if task == "regression" else num_outputs,
        class_names=class_names,
        sample_weights=None,
    )


def read_unlabelled(path: Path, symmetrise: bool = False) -> DataGraph:
    """Read edges and features of an .npz file or of a folder with edges.csv and features.csv."""
    if path.is_dir():
        names, features = read_features(path / "features.csv")
        edges, weights = read_edges(path / "edges.csv", {name: i for i, name in enumerate(names)})
        with naming(path):
            return _make(path.name, edges, weights, features, names, None, symmetrise)
    try:
        with open_arrays(path) as file:
            adjacency, attributes = (
                f"{key}_" if f"{key}_data" in file.keys else f"{key}_matrix." for key in ("adj", "attr")
            )
            dense = "features" in file.keys
            wanted = ["features"] if dense else [attributes + part for part in CSR]
            optional = [key for key in ("names", "positions") if key in file.keys]
            arrays = file.read([*(adjacency + part for part in CSR), *wanted, *optional])
        A = make_csr(path, "adjacency entries", {part: arrays[adjacency + part] for part in CSR}, np.float64)
        if dense:
            X = arrays["features"]
        else:
            X = make_csr(path, "features", {part: arrays[attributes + part] for part in CSR})
    except FileError as error:
        raise GossamerError(f"{path} is not a graph in the npz layout (gossamer docs data): {error.reason}") from None
    with naming(path):
        if not symmetrise and A.shape[0] == A.shape[1] and (A != A.T).nnz:
            i, j = (int(part[0]) for part in (A != A.T).nonzero())
            raise GossamerError(
                f"asymmetric weights: the adjacency has {A[i, j]} at ({i}, {j}) and {A[j, i]} at ({j}, {i}); the graph "
                "is undirected as those that the run was trained on: store both directions with the same weight"
            )
        if A.shape != (_count_rows(X), _count_rows(X)):
            raise GossamerError(
                f"expected a symmetric adjacency matrix of the {_count_rows(X)} vertices that have features, found "
                f"{A.shape}"
            )
        entries = A.tocoo()
        words = arrays.get("names")
        known = tuple(map(str, words.tolist())) if words is not None and words.ndim == 1 else None
        pairs = np.stack([entries.row, entries.col], axis=1)
        return _make(path.stem, pairs, entries.data, X, known, arrays.get("positions"), symmetrise)


def convert_unlabelled(data: Any, symmetrise: bool = False) -> DataGraph:
    """Convert a PyTorch Geometric graph with x, edge_index and, if it has them, edge_weight (or edge_attr) and pos."""
    x, edges = (to_array(getattr(data, key, None), key) for key in ("x", "edge_index"))
    if x is None or edges is None:
        raise GossamerError(
            "expected a DataGraph, a data set's name, an .npz file, a folder of CSV tables or a PyTorch Geometric "
            f"graph with x and edge_index, got {type(data).__name__}"
        )
    if edges.ndim != 2 or len(edges) != 2 or edges.dtype.kind not in "iu":
        raise GossamerError(f"edge_index must be whole numbers [2, edges], got {edges.dtype} {edges.shape}")
    weights = to_array(getattr(data, "edge_weight", None), "edge_weight")
    weights = to_array(getattr(data, "edge_attr", None), "edge_attr") if weights is None else weights
    if weights is not None and weights.size != edges.shape[1]:
        raise GossamerError(f"expected one weight for each edge, got shape {weights.shape}")
    if not symmetrise:
        check_both_directions(edges.T.astype(np.int64), _count_rows(x))
    weights = None if weights is None else weights.reshape(-1)
    return _make("pyg", edges.T, weights, x, None, to_array(getattr(data, "pos", None), "pos"), symmetrise)


def _count_rows(features: Any) -> int:
    """Number of rows; 0 for a single number."""
    return int(features.shape[0]) if features.ndim else 0


def _make(
    name: str, edges: Any, weights: Any, features: Any, names: tuple[str, ...] | None, positions: Any, symmetrise: bool
) -> DataGraph:
    with naming_vertices(names):
        features = validate_features(features)
        n = features.shape[0]
        pairs, edge_weights = validate_edges(edges, weights, n, symmetrise=symmetrise)
    if names is not None and len(names) != n:
        raise GossamerError(f"expected {n} names, one for each vertex, found {len(names)}")
    places = None if positions is None else validate_positions(positions)
    if places is not None and len(places) != n:
        raise GossamerError(f"expected {n} positions, one for each vertex, found {len(places)}")
    none = np.zeros(0, dtype=bool)
    graph = DataGraph(name, pairs, edge_weights, features, none, none, none, none, None, names, None, places)
    return drop_labels(graph, 1, None, "regression")
