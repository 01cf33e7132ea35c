"""Citation and co-author graphs (Table I), and any user's graph in the same npz layout.

CORA is CORA-ML (Bojchevski and Guennemann 2018, Deep Gaussian embedding of graphs); CITESEER and PUBMED are from Sen,
Namata, Bilgic, Getoor, Galligher and Eliassi-Rad 2008, Collective classification in network data; Coauthor Physics is
from Shchur, Mumme, Bojchevski and Guennemann 2018, Pitfalls of graph neural network evaluation.
"""

from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from gossamer.data.arrays import CSR, make_csr, open_arrays
from gossamer.data.checks import SYMMETRISE
from gossamer.data.fetch import SOURCES, DownloadProgress, locate
from gossamer.data.graph import DataGraph, make_graph
from gossamer.data.labels import find_known
from gossamer.data.splits import Masks, split_by_class, split_uniformly
from gossamer.data.targets import choose_task
from gossamer.data.tasks import Task
from gossamer.errors import FileError, GossamerError, naming

CITATION_LABELS = 20  # training vertices of each class
NUM_VALIDATION = 500
OPTIONAL = ("train_idx", "val_idx", "test_idx", "positions", "sample_weights")


def load_citation(name: str, seed: int, progress: DownloadProgress | None = None) -> DataGraph:
    """Load CORA, CITESEER, PUBMED or Coauthor Physics, prepared as Table I counts them.

    The adjacency is symmetrised, self-loops and duplicates are dropped, the largest component is kept.
    20 training labels a class, 500 validation vertices, the rest for test; PUBMED's file has its own split.
    """
    graph = _read(locate(name, progress), name, seed, largest_component=True)
    found = (graph.num_vertices, graph.num_edges, graph.num_features, graph.num_classes)
    SOURCES[name].check_sizes(name, found)
    return graph


def read_npz(path: Path, seed: int, symmetrise: bool = False, task: str = "auto") -> DataGraph:
    """Read a user's graph from an npz file (`gossamer docs data` has the layout).

    With `symmetrise` an edge may stand in one direction; of two different weights the mean is kept.
    """
    return _read(path, path.stem, seed, symmetrise=symmetrise, task=task)


def _read(
    path: Path,
    name: str,
    seed: int,
    largest_component: bool = False,
    symmetrise: bool = False,
    task: str = "auto",
) -> DataGraph:
    adjacency, features, labels, given = _parts(path)
    n = adjacency.shape[0]
    rows = features.shape[0] if features.ndim else 0
    if n == 0 or adjacency.shape != (n, n) or rows != n or labels.shape[:1] != (n,):
        raise GossamerError(
            f"{path}: adjacency {adjacency.shape}, features {features.shape} and labels "
            f"{labels.shape} do not agree on the number of vertices"
        )
    if labels.shape == (n, 1) and labels.dtype.kind != "f" and task in ("auto", "multiclass"):
        labels = labels[:, 0]
    if largest_component:
        keep = _largest_component(adjacency)
        if not keep.all() and {"train_idx", "val_idx", "test_idx"} & set(given):
            raise GossamerError(f"{path} carries a split but is not connected")
        adjacency, features, labels = adjacency[keep][:, keep], features[keep], labels[keep]
        adjacency = sparse.csr_array(((adjacency + adjacency.T) > 0).astype(np.float64))
        adjacency.setdiag(0)
        adjacency.eliminate_zeros()
    elif not symmetrise and not _equal(adjacency, adjacency.T.tocsr()) and (adjacency != adjacency.T).nnz:
        i, j = (int(part[0]) for part in (adjacency != adjacency.T).nonzero())
        raise GossamerError(
            f"{path}: asymmetric weights: the adjacency has {adjacency[i, j]} at ({i}, {j}) and {adjacency[j, i]} at "
            f"({j}, {i}); the data graph is undirected, so store both directions with the same weight, or give "
            f"{SYMMETRISE}"
        )
    entries = adjacency.tocoo()
    upper = (entries.row <= entries.col) | symmetrise  # one direction is enough of equal ones, and mostly sorted
    class_names = None
    if labels.ndim == 1 and labels.dtype.kind in "USb":  # text or truth values: classes in sorted order
        class_names, labels = np.unique(labels.astype(str), return_inverse=True)
    with naming(path):
        chosen = choose_task(labels, features.shape[1] if features.ndim == 3 else None, task)
        return make_graph(
            name,
            np.stack([entries.row[upper], entries.col[upper]], axis=1),
            features,
            labels,
            weights=entries.data[upper],
            positions=given.get("positions"),
            sample_weights=given.get("sample_weights"),
            class_names=None if class_names is None else tuple(map(str, class_names)),
            symmetrise=symmetrise,
            task=chosen,
            **_masks(given, labels, chosen, seed, path),
        )


def _parts(path: Path) -> tuple[Any, Any, Any, dict[str, Any]]:
    """Read adjacency, features, labels, and split, positions and sample weights if there are any."""
    try:
        with open_arrays(path) as file:
            adjacency = _style(file.keys, "adj")
            features = None if "features" in file.keys else _style(file.keys, "attr")
            dense = ["features"] if features is None else [features + part for part in CSR]
            optional = [key for key in OPTIONAL if key in file.keys]
            arrays = file.read([*(adjacency + part for part in CSR), *dense, "labels", *optional])
        return (
            _matrix(path, arrays, adjacency, "adjacency entries", np.float64),
            arrays["features"] if features is None else _matrix(path, arrays, features, "features", np.float32),
            arrays["labels"],
            {key: arrays[key] for key in optional},
        )
    except FileError as error:
        raise GossamerError(f"{path} is not a graph in the npz layout (gossamer docs data): {error.reason}") from None


def _style(keys: frozenset[str], prefix: str) -> str:
    """Prefix of a CSR matrix's parts: `adj_matrix.data` and so on, or `adj_data` in some published files."""
    return f"{prefix}_" if f"{prefix}_data" in keys else f"{prefix}_matrix."


def _matrix(path: Path, arrays: dict[str, Any], style: str, name: str, dtype: Any) -> Any:
    return make_csr(path, name, {part: arrays[style + part] for part in CSR}, dtype)


def _equal(one: Any, other: Any) -> bool:
    """True if two CSR matrices have the same arrays, which is much faster than comparing their entries."""
    return all(np.array_equal(getattr(one, part), getattr(other, part)) for part in ("indptr", "indices", "data"))


def _masks(given: dict[str, Any], labels: Any, task: Task, seed: int, path: Path) -> Masks:
    split = [given.get(key) for key in ("train_idx", "val_idx", "test_idx")]
    if all(part is not None for part in split):
        return dict(zip(("train", "validation", "test"), split, strict=True))
    if any(part is not None for part in split):
        raise GossamerError(f"{path}: give train_idx, val_idx and test_idx together, or none of them")
    num_validation = min(NUM_VALIDATION, len(labels) // 4)
    if task == "multilabel":
        return split_uniformly(find_known(labels), CITATION_LABELS * labels[0].size, num_validation, seed)
    if labels.ndim != 1 or task == "regression":
        raise GossamerError(
            f"{path}: labels that are neither one class a vertex nor a table of 0 and 1 need train_idx, "
            "val_idx and test_idx"
        )
    return split_by_class(labels, CITATION_LABELS, num_validation, seed)


def _largest_component(adjacency: Any) -> Any:
    _, component = sparse.csgraph.connected_components(adjacency, directed=False)
    return component == np.bincount(component).argmax()
