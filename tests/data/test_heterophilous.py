"""The npz layout of the heterophilous benchmark graphs: splits by seed, and what is refused."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gossamer.data import load
from gossamer.errors import GossamerError

N, SPLITS = 12, 3


def content(**changes: Any) -> dict[str, Any]:
    """Arrays of a good file, a cycle."""
    parts = np.stack([np.random.default_rng(split).permutation(N) for split in range(SPLITS)])
    masks = {"train_masks": parts < 6, "val_masks": (parts >= 6) & (parts < 9), "test_masks": parts >= 9}
    edges = np.stack([np.arange(N), (np.arange(N) + 1) % N], axis=1)
    whole = {"node_features": np.eye(N, dtype=np.float32), "node_labels": np.arange(N) % 2, "edges": edges, **masks}
    return whole | changes


def write(folder: Path, arrays: dict[str, Any]) -> Path:
    np.savez(folder / "ring.npz", **arrays)
    return folder / "ring.npz"


@pytest.mark.parametrize("seed", [0, 1, 2, 4])
def test_the_seed_chooses_the_split(tmp_path: Path, seed: int) -> None:
    arrays = content()
    graph = load(write(tmp_path, arrays), seed)
    assert (graph.name, graph.num_vertices, graph.num_edges, graph.num_classes) == ("ring", N, N, 2)
    np.testing.assert_array_equal(graph.features, arrays["node_features"])
    np.testing.assert_array_equal(graph.targets, arrays["node_labels"])
    for mine, theirs in {"train": "train_masks", "validation": "val_masks", "test": "test_masks"}.items():
        np.testing.assert_array_equal(getattr(graph, mine), arrays[theirs][seed % SPLITS])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"val_masks": np.zeros((2, N), dtype=bool)}, r"one shape \[splits, vertices\]; got \(3, 12\), \(2, 12\)"),
        ({"train_masks": np.zeros(N, dtype=bool)}, r"one shape \[splits, vertices\]"),
        ({"edges": np.array([[0, 99]])}, "ring.npz.*99"),
    ],
)
def test_what_does_not_fit_is_refused(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(GossamerError, match=message):
        load(write(tmp_path, content(**changes)))


def test_a_file_without_splits_is_refused_by_name(tmp_path: Path) -> None:
    arrays = content()
    del arrays["val_masks"]
    with pytest.raises(GossamerError, match=r"not a graph in an npz layout.*val_masks"):
        load(write(tmp_path, arrays))


def test_the_published_file() -> None:
    path = Path(os.environ.get("GOSSAMER_DATA", "")) / "graphs" / "minesweeper.npz"
    if not path.is_file():
        pytest.skip("graphs/minesweeper.npz is not in GOSSAMER_DATA")
    graph = load(path, 3)
    assert (graph.num_vertices, graph.num_edges, graph.num_features, graph.num_classes) == (10000, 39402, 7, 2)
    assert (graph.train | graph.validation | graph.test).all()
