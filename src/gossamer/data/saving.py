"""A DataGraph as an .npz file, and back: the arrays of docs/data.md and, beside them, all that these leave open.

The file has the keys of the npz layout, so that other programs read it, and a key `format` by which `load` knows that
it holds a whole DataGraph: masks instead of vertex numbers, class numbers with their names, features in their own type.
The graph's name is the file's.
"""

import io
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import sparse

from gossamer.data.arrays import CSR, make_csr, open_arrays
from gossamer.data.tasks import MOST_CLASSES, find_task
from gossamer.errors import FileError, GossamerError, naming, shown
from gossamer.files import write_atomically

if TYPE_CHECKING:
    from gossamer.data.graph import DataGraph

SAVED_FORMAT = 1
FORMAT_KEY = "format"
MASK_KEYS = {"train": "train_mask", "validation": "val_mask", "test": "test_mask"}
OPTIONAL_KEYS = ("num_classes", "names", "class_names", "positions", "sample_weights")


def save_graph(graph: "DataGraph", path: str | Path) -> Path:
    """Write a graph to an .npz file, whole or not at all."""
    target = Path(path)
    if target.suffix != ".npz":
        raise GossamerError(f"expected a file name that ends in .npz, got {shown(str(path))}")
    arrays: dict[str, Any] = {
        FORMAT_KEY: np.array(SAVED_FORMAT),
        **_pack_csr("adj_matrix", graph.adjacency),
        **(_pack_csr("attr_matrix", graph.features) if sparse.issparse(graph.features) else {}),
        **({} if sparse.issparse(graph.features) else {"features": graph.features}),
        "labels": graph.targets,
        **{key: getattr(graph, mask) for mask, key in MASK_KEYS.items()},
    }
    optional = {
        "num_classes": graph.num_classes,
        "names": _pack_text("names", graph.names),
        "class_names": _pack_text("class_names", graph.class_names),
        "positions": graph.positions,
        "sample_weights": graph.sample_weights,
    }
    arrays |= {key: np.asarray(value) for key, value in optional.items() if value is not None}
    content = io.BytesIO()
    np.savez(content, allow_pickle=False, **arrays)
    target.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(target, content.getvalue())
    return target


def _pack_csr(name: str, matrix: Any) -> dict[str, Any]:
    parts = (matrix.data, matrix.indices, matrix.indptr, np.array(matrix.shape))
    return {f"{name}.{key}": part for key, part in zip(CSR, parts, strict=True)}


def _pack_text(key: str, words: tuple[str, ...] | None) -> Any:
    """Words as an array; NumPy drops NUL characters at their ends."""
    if words is None:
        return None
    packed = np.array(words, dtype=np.str_)
    if tuple(packed.tolist()) != words:
        raise GossamerError(f"{key} hold text that ends in a NUL character, which an .npz file cannot hold")
    return packed


def read_saved(path: Path) -> "DataGraph | None":
    """Read a file of `save_graph`, checked like any user's; None if it is another .npz file."""
    from gossamer.data.graph import make_graph

    try:
        with open_arrays(path) as file:
            if FORMAT_KEY not in file.keys:
                return None
            sparse_features = "features" not in file.keys
            matrices = ("adj_matrix", "attr_matrix") if sparse_features else ("adj_matrix",)
            dense = () if sparse_features else ("features",)
            arrays = file.read(
                [
                    FORMAT_KEY,
                    *(f"{name}.{part}" for name in matrices for part in CSR),
                    *dense,
                    "labels",
                    *MASK_KEYS.values(),
                    *(key for key in OPTIONAL_KEYS if key in file.keys),
                ]
            )
        if arrays[FORMAT_KEY].shape != () or arrays[FORMAT_KEY] != SAVED_FORMAT:
            raise FileError(path, f"expected the format {SAVED_FORMAT}, found {shown(arrays[FORMAT_KEY].tolist())}")
        adjacency = _unpack_csr(path, arrays, "adj_matrix", "adjacency entries")
        features = _unpack_csr(path, arrays, "attr_matrix", "features") if sparse_features else arrays["features"]
    except FileError as error:
        raise GossamerError(f"{path} is not a graph in the npz layout (gossamer docs data): {error.reason}") from None
    with naming(path):
        n = features.shape[0] if features.ndim else 0
        if adjacency.shape != (n, n) or _differ(adjacency):
            raise GossamerError(f"expected a symmetric adjacency matrix of the {n} vertices, found {adjacency.shape}")
        entries = adjacency.tocoo()
        upper = entries.row <= entries.col
        names, class_names = (_take_text(arrays, key) for key in ("names", "class_names"))
        numbered = None  # classes, also those without a vertex, are as they were
        if arrays["labels"].ndim == 1 and arrays["labels"].size and arrays["labels"].dtype.kind in "iu":
            numbered = tuple(map(str, range(_take_num_classes(arrays))))
        graph = make_graph(
            path.stem,
            np.stack([entries.row[upper], entries.col[upper]], axis=1),
            features,
            arrays["labels"],
            weights=entries.data[upper],
            names=names,
            class_names=numbered,
            positions=arrays.get("positions"),
            sample_weights=arrays.get("sample_weights"),
            train=arrays[MASK_KEYS["train"]],
            validation=arrays[MASK_KEYS["validation"]],
            test=arrays[MASK_KEYS["test"]],
            task=find_task(arrays["labels"]) if arrays["labels"].ndim > 1 else "auto",
        )
        if sparse_features:  # scipy may have chosen another type for the indices
            for part in ("indices", "indptr"):
                setattr(graph.features, part, getattr(graph.features, part).astype(arrays[f"attr_matrix.{part}"].dtype))
        if graph.num_classes is None:
            return graph
        is_table = graph.task == "multilabel"
        num_classes = graph.num_classes if is_table else _take_num_classes(arrays)
        if class_names is not None and len(class_names) != num_classes:
            raise GossamerError(f"expected {num_classes} class names, found {len(class_names)}")
        labels = graph.targets if is_table else arrays["labels"].astype(np.int64)
        return replace(graph, targets=labels, num_classes=num_classes, class_names=class_names)


def _differ(matrix: Any) -> bool:
    return bool((matrix != matrix.T).nnz)


def _unpack_csr(path: Path, arrays: dict[str, Any], name: str, what: str) -> Any:
    return make_csr(path, what, {part: arrays[f"{name}.{part}"] for part in CSR})


def _take_num_classes(arrays: dict[str, Any]) -> int:
    """Number of classes; more than the labels show where a class has no vertex."""
    given, least = arrays.get("num_classes"), int(arrays["labels"].max()) + 1
    if given is None or given.shape != () or given.dtype.kind not in "iu" or not least <= given <= MOST_CLASSES:
        raise GossamerError(f"expected num_classes, a whole number from {least} to {MOST_CLASSES}")
    return int(given)


def _take_text(arrays: dict[str, Any], key: str) -> tuple[str, ...] | None:
    if key not in arrays:
        return None
    if arrays[key].ndim != 1 or arrays[key].dtype.kind != "U":
        raise GossamerError(f"expected a list of text as {key}, found {arrays[key].dtype} {arrays[key].shape}")
    return tuple(arrays[key].tolist())
