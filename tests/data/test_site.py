"""A site's arrays and tables: mistakes are reported before anything is written."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gossamer.data.site import read_site
from gossamer.errors import GossamerError


def arrays(**changes: Any) -> dict[str, Any]:
    """Agent 0 has the vertices 10, 20, 30; agent 1 has 40."""
    split = np.array([True, False, False])
    given = {
        "vertices": np.array([10, 20, 30]),
        "features": np.eye(3, dtype=np.float32),
        "targets": np.array([0, 1, 1]),
        "train": split,
        "validation": np.roll(split, 1),
        "test": np.roll(split, 2),
        "edges": np.array([[10, 20], [20, 30], [30, 40]]),
        "owners": np.array([[40, 1]]),
    }
    return {**given, **changes}


def read(folder: Path, classes: int | None = 2, **changes: Any) -> Any:
    np.savez(folder / "site.npz", **arrays(**changes))
    return read_site(folder / "site.npz", 0, None if classes is None else [str(c) for c in range(classes)])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"features": np.eye(3)[:2]}, "3 vertices and 2 feature rows"),
        ({"features": np.eye(4)}, "3 vertices and 4 feature rows"),
        ({"features": np.ones((3, 2, 1))}, "without a time axis"),
        ({"targets": np.int64(1)}, "3 vertices and 0 targets"),
        ({"vertices": np.array(["a", "b", "c"])}, "vertices must be whole numbers"),
        ({"vertices": np.array([10, 20, 20])}, "different numbers"),
        ({"edges": np.array([10, 20, 30])}, r"edges must be whole numbers \[n, 2\]"),
        ({"edges": np.array([[10.5, 20.0]])}, "edges must be whole numbers"),
        ({"owners": np.array([[40, 1], [40, 2]])}, "owners name a vertex twice"),
        ({"train": np.array([0])}, "the train mask must hold booleans"),
        ({"train": np.array([True])}, "the train mask must have shape"),
        ({"weights": np.array([1.0, 1.0, -1.0])}, r"on edge \(30, 40\)"),
    ],
    ids=lambda given: "-".join(given) if isinstance(given, dict) else "",
)
def test_arrays_that_do_not_fit_are_told(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    assert read(tmp_path).num_classes == 2
    with pytest.raises(GossamerError, match=message):
        read(tmp_path, **changes)


LABELS = np.array([[0, 1], [1, 1], [0, 0]])


def read_labelled(folder: Path, classes: int = 2, **changes: Any) -> Any:
    np.savez(folder / "site.npz", **arrays(**{"targets": LABELS, **changes}))
    return read_site(folder / "site.npz", 0, [str(c) for c in range(classes)], "multilabel")


@pytest.mark.parametrize("kind", [bool, np.int64, np.float32])
def test_a_site_may_have_labels_and_sample_weights(tmp_path: Path, kind: type) -> None:
    order = np.array([20, 10, 30])
    site = read_labelled(
        tmp_path, vertices=order, targets=LABELS.astype(kind), sample_weights=np.array([2.0, 1.0, 0.0])
    )
    assert (site.task, site.num_classes, site.num_outputs) == ("multilabel", 2, 2)
    np.testing.assert_array_equal(site.targets, LABELS[[1, 0, 2]] == 1)
    np.testing.assert_array_equal(site.sample_weights, [1.0, 2.0, 0.0])
    assert read_labelled(tmp_path, 1, targets=LABELS[:, :1]).num_outputs == 1
    plain = read(tmp_path)
    assert (plain.task, plain.sample_weights) == ("multiclass", None)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"targets": np.array([0, 1, 1])}, r"labels must be a table \[vertices, labels\]"),
        ({"targets": np.eye(3, dtype=bool)}, "expected a column for each of 2 labels, got 3"),
        ({"targets": 3 * LABELS}, "labels must be 0 or 1, got 3 for vertex 0"),
        ({"targets": np.where(np.arange(3)[:, None] == 1, np.nan, LABELS)}, "vertex 1 is in a mask but its labels are"),
        ({"targets": np.array([["a", "b"]] * 3)}, "labels must be a table of numbers"),
        ({"features": np.ones((3, 2, 1))}, "without a time axis"),
        ({"sample_weights": np.array([1.0, -1.0, 1.0])}, "site.npz: sample weights must be at least 0"),
        ({"sample_weights": np.ones(2)}, r"sample weights must have shape \(3,\)"),
    ],
    ids=lambda given: "-".join(given) if isinstance(given, dict) else "",
)
def test_labels_and_weights_that_do_not_fit_are_told(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(GossamerError, match=message):
        read_labelled(tmp_path, **changes)


def test_tables_of_a_site_may_have_labels_and_weights(tmp_path: Path) -> None:
    (tmp_path / "features.csv").write_text("vertex,x\n10,1\n20,2\n30,3\n")
    (tmp_path / "labels.csv").write_text("vertex,label,split,weight\n10,c;a,train,2\n20,-,test,\n30,,,0\n")
    (tmp_path / "edges.csv").write_text("source,target\n10,20\n20,30\n30,40\n")
    (tmp_path / "owners.csv").write_text("vertex,agent\n40,1\n")
    site = read_site(tmp_path, 0, ["a", "b", "c"], "multilabel")
    np.testing.assert_array_equal(site.targets, [[1, 0, 1], [0, 0, 0], [0, 0, 0]])
    np.testing.assert_array_equal(site.sample_weights, [2.0, 1.0, 0.0])
    with pytest.raises(GossamerError, match=r"labels.csv: 'c' is not among the classes in the site file"):
        read_site(tmp_path, 0, ["a", "b"], "multilabel")
    with pytest.raises(GossamerError, match=r"labels.csv: '-' is not among the classes in the site file"):
        read_site(tmp_path, 0, ["a", "b", "c"])


def test_sparse_features_that_point_outside_are_told(tmp_path: Path) -> None:
    parts = {"data": np.ones(3), "indices": np.array([0, 1, 9]), "indptr": np.arange(4), "shape": np.array([3, 3])}
    given = arrays(**{f"features.{name}": part for name, part in parts.items()})
    del given["features"]
    np.savez(tmp_path / "site.npz", **given)
    with pytest.raises(GossamerError, match="the sparse features do not fit together"):
        read_site(tmp_path / "site.npz", 0, ["0", "1"])


def test_a_split_of_vertices_holds_at_all_time_steps(tmp_path: Path) -> None:
    changes = {"features": np.ones((3, 2, 1)), "targets": np.arange(6.0).reshape(3, 2)}
    site = read(tmp_path, None, **changes)
    np.testing.assert_array_equal(site.masks["train"], [[True, True], [False, False], [False, False]])
    with pytest.raises(GossamerError, match=r"\[3, 2, outputs\], got \(3, 5, 1\)"):
        read(tmp_path, None, **(changes | {"targets": np.ones((3, 5))}))


@pytest.mark.parametrize("content", [b"", b"PK garbage"])
def test_a_file_that_is_no_archive_is_told(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "site.npz").write_bytes(content)
    with pytest.raises(GossamerError, match=r"it is not a whole .npz file"):
        read_site(tmp_path / "site.npz", 0, None)


@pytest.mark.parametrize("agent", ["²", "9" * 30, "9" * 5000])
def test_an_owner_that_is_no_agent_is_told(tmp_path: Path, agent: str) -> None:
    (tmp_path / "features.csv").write_text("vertex,x\n10,1\n")
    (tmp_path / "labels.csv").write_text("vertex,label,split\n10,0,train\n")
    (tmp_path / "edges.csv").write_text("source,target\n10,40\n")
    (tmp_path / "owners.csv").write_text(f"vertex,agent\n40,{agent}\n")
    with pytest.raises(GossamerError, match=r"owners.csv, line 2: expected a vertex not named before and its agent"):
        read_site(tmp_path, 0, ["0", "1"])
