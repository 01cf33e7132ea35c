"""Citation and co-author graphs (Table I), and any user's graph in the same npz layout."""

import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from gossamer.data.fetch import SOURCES, locate
from gossamer.data.graph import DataGraph, make_graph
from gossamer.data.splits import Masks, split_by_class
from gossamer.errors import GossamerError

PER_CLASS = 20
NUM_VALIDATION = 500


def citation(name: str, seed: int, progress: Callable[[int, int], None] | None = None) -> DataGraph:
    """CORA, CITESEER, PUBMED or Coauthor Physics, prepared as Table I counts them.

    The adjacency is symmetrised, self-loops and duplicates are dropped, the largest component is kept.
    20 training labels a class, 500 validation vertices, the rest for test; PUBMED's file carries its own split.
    """
    source = SOURCES[name]
    graph = _read(locate(name, progress), name, seed, largest_component=True)
    found = (graph.num_vertices, graph.num_edges, graph.num_features, graph.num_classes)
    if found != source.sizes:
        raise GossamerError(
            f"{name} should have {source.sizes} vertices, edges, features and classes, "
            f"the file has {found}; delete it and load it again"
        )
    return graph


def npz(path: Path, seed: int) -> DataGraph:
    """A user's graph from an npz file (docs/data.md has the layout)."""
    return _read(path, path.stem, seed, largest_component=False)


def _read(path: Path, name: str, seed: int, largest_component: bool) -> DataGraph:
    try:
        with path.open("rb") as raw, np.load(raw, allow_pickle=False) as file:
            keys = set(file.files)
            adjacency = _matrix(file, keys, "adj")
            features = file["features"] if "features" in keys else _matrix(file, keys, "attr")
            labels = file["labels"]
            given = {key: file[key] for key in ("train_idx", "val_idx", "test_idx", "positions") if key in keys}
    except (OSError, KeyError, ValueError, TypeError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise GossamerError(f"{path} is not a graph in the npz layout of docs/data.md: {error}") from None
    n = adjacency.shape[0]
    if adjacency.shape != (n, n) or features.shape[0] != n or labels.shape[:1] != (n,):
        raise GossamerError(
            f"{path}: adjacency {adjacency.shape}, features {features.shape} and labels "
            f"{labels.shape} do not agree on the number of vertices"
        )
    if largest_component:
        keep = _largest_component(adjacency)
        if not keep.all() and {"train_idx", "val_idx", "test_idx"} & set(given):
            raise GossamerError(f"{path} carries a split but is not connected")
        adjacency, features, labels = adjacency[keep][:, keep], features[keep], labels[keep]
        adjacency = sparse.csr_array(((adjacency + adjacency.T) > 0).astype(np.float64))
        adjacency.setdiag(0)
        adjacency.eliminate_zeros()
    elif not _equal(adjacency, adjacency.T.tocsr()) and (adjacency != adjacency.T).nnz:
        i, j = (int(part[0]) for part in (adjacency != adjacency.T).nonzero())
        raise GossamerError(
            f"{path}: asymmetric weights: the adjacency has {adjacency[i, j]} at ({i}, {j}) and {adjacency[j, i]} at "
            f"({j}, {i}); the data graph is undirected, so store both directions with the same weight"
        )
    entries = adjacency.tocoo()
    upper = entries.row <= entries.col  # one direction tells all, and mostly in order
    class_names = None
    if labels.ndim == 1 and labels.dtype.kind in "USb":  # text or truth values: classes in sorted order
        class_names, labels = np.unique(labels.astype(str), return_inverse=True)
    return make_graph(
        name,
        np.stack([entries.row[upper], entries.col[upper]], axis=1),
        features,
        labels,
        weights=entries.data[upper],
        positions=given.get("positions"),
        class_names=None if class_names is None else tuple(map(str, class_names)),
        **_masks(given, labels, seed, path),
    )


def _matrix(file: Any, keys: set[str], prefix: str) -> Any:
    """A CSR matrix; its parts are called `adj_matrix.data` and so on, or `adj_data` in some published files."""
    style = f"{prefix}_matrix." if f"{prefix}_matrix.data" in keys else f"{prefix}_"
    data, indices, indptr, shape = (file[style + part] for part in ("data", "indices", "indptr", "shape"))
    matrix = sparse.csr_array(
        (data.astype(np.float32 if prefix == "attr" else np.float64), indices, indptr), shape=tuple(shape)
    )
    matrix.check_format(full_check=True)
    return matrix


def _equal(one: Any, other: Any) -> bool:
    """Whether two CSR matrices are stored alike, which takes a fraction of the time of comparing their entries."""
    return all(np.array_equal(getattr(one, part), getattr(other, part)) for part in ("indptr", "indices", "data"))


def _masks(given: dict[str, Any], labels: Any, seed: int, path: Path) -> Masks:
    split = [given.get(key) for key in ("train_idx", "val_idx", "test_idx")]
    if all(part is not None for part in split):
        return dict(zip(("train", "validation", "test"), split, strict=True))
    if any(part is not None for part in split):
        raise GossamerError(f"{path}: give train_idx, val_idx and test_idx together, or none of them")
    if labels.ndim != 1 or not np.issubdtype(labels.dtype, np.integer):
        raise GossamerError(f"{path}: labels that are not one class a vertex need train_idx, val_idx and test_idx")
    return split_by_class(labels, PER_CLASS, min(NUM_VALIDATION, len(labels) // 4), seed)


def _largest_component(adjacency: Any) -> Any:
    _, component = sparse.csgraph.connected_components(adjacency, directed=False)
    return component == np.bincount(component).argmax()
