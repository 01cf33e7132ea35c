"""DataGraph.save: what is written is read back to an equal graph, by every command that takes a data set."""

from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse

import gossamer
from gossamer import DataGraph, GossamerError, make_graph
from gossamer.data.citation import read_npz

N = 12
EDGES = [(i, (i + 1) % N) for i in range(N)] + [(0, 6), (2, 9)]


def make(features: Any = None, targets: Any = None, **more: Any) -> DataGraph:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(N, 5)) if features is None else features
    y = np.arange(N) % 3 if targets is None else targets
    masks = {"train": np.arange(6), "validation": [6, 7], "test": np.arange(8, N)}
    return make_graph("mine", EDGES, x, y, **{**masks, **more})


def bag_of_words(index: Any, dtype: Any) -> Any:
    x = sparse.random_array((N, 9), density=0.4, rng=np.random.default_rng(1)).tocsr().astype(dtype)
    x.indices, x.indptr = x.indices.astype(index), x.indptr.astype(index)
    return x


def timed() -> DataGraph:
    rng = np.random.default_rng(2)
    steps = np.broadcast_to(np.arange(8), (N, 8))
    return make(
        rng.normal(size=(N, 8, 4)).astype(np.float32),
        rng.normal(size=(N, 8, 2)),
        train=steps < 4,
        validation=steps == 4,
        test=(steps > 4) & (np.arange(N) % 2 == 0)[:, None],
    )


GRAPHS: dict[str, Callable[[], DataGraph]] = {
    "dense": lambda: make(),
    "float32": lambda: make(np.ones((N, 2), dtype=np.float32)),
    "weights": lambda: make(weights=np.linspace(0.1, 3, len(EDGES))),
    "words": lambda: make(names=tuple(f"v {i} é" for i in range(N)), class_names=("z", "b", "a")),
    "positions": lambda: make(positions=np.random.default_rng(3).normal(size=(N, 2))),
    "unknown labels": lambda: make(targets=np.where(np.arange(N) == 11, -1, np.arange(N) % 3), test=[8, 9]),
    "a class without a vertex": lambda: replace(make(), num_classes=5, class_names=tuple("abcde")),
    "a class between without a vertex": lambda: make(targets=np.arange(N) % 2 * 2, class_names=("a", "b", "c")),
    "sparse": lambda: make(bag_of_words(np.int32, np.float32)),
    "sparse, wide": lambda: make(bag_of_words(np.int64, np.float64)),
    "real values": lambda: make(targets=np.random.default_rng(4).normal(size=(N, 2))),
    "time": timed,
    "digits": lambda: gossamer.load("digits"),
}


@pytest.mark.parametrize("kind", GRAPHS)
def test_a_saved_graph_is_read_back(kind: str, tmp_path: Path) -> None:
    graph = GRAPHS[kind]()
    found = gossamer.load(graph.save(tmp_path / "new" / "mine.npz"), seed=7)
    assert found.fingerprint() == graph.fingerprint()
    assert (found.names, found.class_names, found.num_classes) == (graph.names, graph.class_names, graph.num_classes)
    for field in fields(DataGraph):
        one, other = getattr(graph, field.name), getattr(found, field.name)
        if sparse.issparse(one):
            assert (one != other).nnz == 0
        elif isinstance(one, np.ndarray):
            np.testing.assert_array_equal(one, other)
            assert one.dtype == other.dtype
        else:
            assert one == other or field.name == "name"
    assert found.name == "mine"


def test_the_file_has_the_keys_of_the_npz_layout(tmp_path: Path) -> None:
    graph = gossamer.load("digits", seed=3)
    path = graph.save(tmp_path / "digits.npz")
    other = read_npz(path, seed=3)  # without the masks, which it draws
    np.testing.assert_array_equal(other.edges, graph.edges)
    np.testing.assert_array_equal(other.features, graph.features)
    np.testing.assert_array_equal(other.targets, graph.targets)


def test_another_ending_is_refused(tmp_path: Path) -> None:
    with pytest.raises(GossamerError, match=r"ends in .npz, got '.*mine.csv'"):
        make().save(tmp_path / "mine.csv")


def test_text_that_an_npz_file_cannot_hold_is_refused(tmp_path: Path) -> None:
    with pytest.raises(GossamerError, match="names hold text that ends in a NUL"):
        replace(make(), names=("a\0",) * N).save(tmp_path / "mine.npz")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format": np.array(2)}, "expected the format 1, found 2"),
        ({"format": np.array([1])}, "expected the format 1"),
        ({"num_classes": np.array(2)}, "num_classes, a whole number from 3"),
        ({"num_classes": np.array(2.5)}, "num_classes, a whole number from 3"),
        ({"class_names": np.array(["a", "b"])}, "expected 3 class names, found 2"),
        ({"class_names": np.array([1, 2, 3])}, "expected a list of text as class_names"),
        ({"adj_matrix.data": np.arange(1.0, 1 + 2 * len(EDGES))}, "expected a symmetric adjacency"),
        ({"train_mask": np.ones(3, dtype=bool)}, r"train mask must have shape \(12,\)"),
        ({"names": np.array(["a"])}, "the features have 12 rows, the names 1"),
        ({"adj_matrix.indices": np.full(2 * len(EDGES), 99, dtype=np.int32)}, "is not a graph in the npz layout"),
        ({"features": np.full((N, 2), np.nan)}, "NaN or infinite"),
    ],
)
def test_a_file_that_was_changed_is_refused(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    path = make(class_names=("a", "b", "c")).save(tmp_path / "mine.npz")
    with np.load(path) as file:
        arrays = dict(file)
    np.savez(path, **(arrays | changes))
    with pytest.raises(GossamerError, match=message):
        gossamer.load(path)
