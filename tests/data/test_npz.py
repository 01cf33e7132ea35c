"""The npz layout: both spellings of its keys, splits, and what is refused."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse

from gossamer.data import load
from gossamer.data.fetch import SOURCES
from gossamer.errors import GossamerError, GossamerWarning

ADJACENCY = sparse.csr_array(np.array([[0, 1, 0, 0], [1, 0, 2, 0], [0, 2, 0, 3], [0, 0, 3, 0]], dtype=np.float64))
FEATURES = sparse.csr_array(np.array([[1, 0, 0], [0, 0, 0.5], [0, 2, 0], [0, 0, 1]], dtype=np.float64))
LABELS = np.array([0, 1, 1, 0], dtype=np.int32)
SPLIT = {"train_idx": np.array([1, 0]), "val_idx": np.array([2]), "test_idx": np.array([3])}
DOTTED, UNDERSCORED = "{}_matrix.{}", "{}_{}"


def parts(matrix: Any, prefix: str, style: str) -> dict[str, Any]:
    return {style.format(prefix, part): getattr(matrix, part) for part in ("data", "indices", "indptr", "shape")}


def arrays(style: str = DOTTED, adjacency: Any = ADJACENCY, **changes: Any) -> dict[str, Any]:
    """Content of a good file; a change of None leaves the key out."""
    whole = {**parts(adjacency, "adj", style), **parts(FEATURES, "attr", style), "labels": LABELS, **SPLIT, **changes}
    return {key: value for key, value in whole.items() if value is not None}


def write(folder: Path, content: dict[str, Any]) -> Path:
    np.savez(folder / "mine.npz", **content)
    return folder / "mine.npz"


@pytest.mark.parametrize("style", [DOTTED, UNDERSCORED])
def test_both_spellings_are_read(tmp_path: Path, style: str) -> None:
    graph = load(write(tmp_path, arrays(style)))
    assert (graph.name, graph.num_classes) == ("mine", 2)
    np.testing.assert_array_equal(graph.adjacency.toarray(), ADJACENCY.toarray())
    np.testing.assert_array_equal(graph.features.toarray(), FEATURES.toarray())
    np.testing.assert_array_equal(graph.targets, LABELS)
    np.testing.assert_array_equal(graph.train, [True, True, False, False])
    np.testing.assert_array_equal(graph.validation, [False, False, True, False])
    np.testing.assert_array_equal(graph.test, [False, False, False, True])


def test_one_direction_of_an_edge_is_not_enough(tmp_path: Path) -> None:
    with pytest.raises(GossamerError, match=r"asymmetric weights: the adjacency has .* store both directions"):
        load(write(tmp_path, arrays(adjacency=sparse.csr_array(sparse.triu(ADJACENCY)))))


def test_symmetrise_takes_both_directions_for_one_edge_with_the_mean_weight(tmp_path: Path) -> None:
    adjacency = sparse.triu(ADJACENCY).tolil()
    adjacency[2, 1] = 6.0  # against 2 at (1, 2); the other edges have one direction
    graph = load(write(tmp_path, arrays(adjacency=sparse.csr_array(adjacency))), symmetrise=True)
    np.testing.assert_array_equal(graph.edges, [[0, 1], [1, 2], [2, 3]])
    np.testing.assert_array_equal(graph.weights, [1.0, 4.0, 3.0])
    with pytest.raises(GossamerError, match="--symmetrise"):
        load(tmp_path / "mine.npz")


@pytest.mark.parametrize("labels", [[0, 1, 2**40, 1], [3, 10000, -1, 10000]])
def test_labels_of_any_number_become_classes_and_keep_their_names(tmp_path: Path, labels: list[int]) -> None:
    changes: dict[str, Any] = {"val_idx": np.array([], dtype=int)} if -1 in labels else {}
    with pytest.warns(GossamerWarning, match="are now classes 0 to"):
        graph = load(write(tmp_path, arrays(labels=np.array(labels), **changes)))
    assert graph.num_classes == len({label for label in labels if label >= 0})
    assert graph.class_names is not None
    named = ["-1" if c < 0 else graph.class_names[c] for c in graph.targets]
    assert named == [str(label) for label in labels]


def test_a_column_of_labels_is_taken_for_a_list(tmp_path: Path) -> None:
    np.testing.assert_array_equal(load(write(tmp_path, arrays(labels=LABELS[:, None]))).targets, LABELS)
    text = np.array([["red"], ["blue"], ["blue"], ["red"]])
    assert load(write(tmp_path, arrays(labels=text))).class_names == ("blue", "red")


def test_dense_features_and_positions(tmp_path: Path) -> None:
    features, positions = np.arange(8.0).reshape(4, 2), np.arange(8.0).reshape(4, 2) / 3
    graph = load(write(tmp_path, arrays(features=features, positions=positions)))
    np.testing.assert_array_equal(graph.features, features)
    np.testing.assert_array_equal(graph.positions, positions)


def test_real_labels_with_a_split(tmp_path: Path) -> None:
    graph = load(write(tmp_path, arrays(labels=np.array([0.5, 1.5, 2.5, 3.5]))))
    assert graph.num_classes is None
    np.testing.assert_array_equal(graph.targets, [[0.5], [1.5], [2.5], [3.5]])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"labels": None}, "not a graph in the npz layout.*labels"),
        ({"adj_matrix.indptr": None}, r"not a graph in the npz layout.*adj_matrix\.indptr"),
        ({"adj_matrix.data": None}, "not a graph in the npz layout.*no array adj_matrix.data"),
        ({"attr_matrix.indices": None}, r"not a graph in the npz layout.*attr_matrix\.indices"),
        ({"labels": np.array([{}, 1, 2, 3], dtype=object)}, "not a graph in the npz layout.*allow_pickle=False"),
        ({"adj_matrix.indices": np.array([1, 0, 2, 1, 9, 2])}, "not a graph in the npz layout"),
        ({"adj_matrix.shape": np.array(4)}, "not a graph in the npz layout"),
        ({"attr_matrix.indptr": np.array([0, 1, 2, 3, -(2**31)], dtype=np.int32)}, "row pointers must not decrease"),
        ({"labels": np.eye(4)[:, :2] + np.eye(4)[:, 2:]}, "mine.npz: .*one-hot.*--task multilabel"),
        ({"features": np.float64(1.0)}, r"features \(\).*do not agree"),
        ({"labels": LABELS[:3]}, r"labels \(3,\) do not agree on the number of vertices"),
        ({"features": np.ones((5, 2))}, r"features \(5, 2\).*do not agree"),
        ({"val_idx": None}, "give train_idx, val_idx and test_idx together"),
        ({"train_idx": np.array([0, 4])}, "train vertices must be numbered 0 to 3"),
        (
            {"labels": np.array([0.5, 1, 2, 3]), **dict.fromkeys(SPLIT)},
            "neither one class a vertex nor .* need train_idx",
        ),
        ({**dict.fromkeys(SPLIT)}, "too few to train on 20"),
        ({"adj_matrix.data": np.array([1.0, 1, 2, 7, 3, 3])}, r"asymmetric weights: .* at \(1, 2\)"),
    ],
)
def test_a_mistake_is_refused_by_name(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(GossamerError, match=message):
        load(write(tmp_path, arrays(**changes)))


def test_a_pickled_key_that_is_not_needed_is_never_touched(tmp_path: Path) -> None:
    graph = load(write(tmp_path, arrays(idx_to_node=np.array([{"a": 1}], dtype=object))))
    assert graph.num_vertices == 4


@pytest.mark.parametrize("content", [b"", b"not a zip file", b"PK\x03\x04 and then nothing"])
def test_a_file_that_is_no_archive_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "mine.npz").write_bytes(content)
    with pytest.raises(GossamerError, match="not a graph in the npz layout"):
        load(tmp_path / "mine.npz")


def test_a_truncated_archive_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path, arrays())
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(GossamerError, match="not a graph in the npz layout"):
        load(path)


def test_a_single_array_is_refused(tmp_path: Path) -> None:
    with (tmp_path / "mine.npz").open("wb") as file:
        np.save(file, np.eye(2))
    with pytest.raises(GossamerError, match="not a graph in the npz layout"):
        load(tmp_path / "mine.npz")


def test_a_known_data_set_with_other_sizes_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOSSAMER_DATA", str(tmp_path))
    path = tmp_path / SOURCES["cora"].path
    path.parent.mkdir()
    write(path.parent, arrays()).rename(path)
    with pytest.raises(GossamerError, match=r"cora should have \(2810, 7981, 2879, 7\).*the file has \(4, 3, 3, 2\)"):
        load("cora")
