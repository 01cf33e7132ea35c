"""Tables of 0 and 1 give a vertex several labels, whichever way they come in; what could mean something else is
refused, or decided by `task`."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from data.test_interop import to_pyg
from oracles.graphs import path_graph
from scipy import sparse

from gossamer.data import DataGraph, from_networkx, from_pyg, load
from gossamer.data.splits import split_uniformly
from gossamer.errors import GossamerError

TABLE = np.array([[0, 1, 1], [1, 0, 0], [0, 0, 0], [1, 1, 1]])
ONE_HOT = np.array([[1, 0], [0, 1], [1, 0], [0, 1]])


@pytest.mark.parametrize("kind", [bool, np.int8, np.uint8, np.int64, np.float32, np.float64])
def test_a_table_of_zeros_and_ones_is_one_of_labels(kind: type) -> None:
    graph = path_graph(targets=TABLE.astype(kind), class_names=("a", "b", "c"))
    assert (graph.task, graph.num_classes, graph.num_outputs, graph.class_names) == (
        "multilabel",
        3,
        3,
        ("a", "b", "c"),
    )
    assert graph.targets.dtype == np.bool_
    np.testing.assert_array_equal(graph.targets, TABLE == 1)


def test_the_type_of_targets_is_the_task() -> None:
    assert path_graph().task == "multiclass"
    assert path_graph(targets=[0.5, 1.0, 1.5, 2.0]).task == "regression"


@pytest.mark.parametrize(("kind", "unknown"), [(np.float64, np.nan), (np.float32, np.inf), (np.int64, -1)])
def test_rows_outside_the_masks_may_be_unknown(kind: type, unknown: float) -> None:
    table: Any = TABLE.astype(kind)
    table[3] = unknown
    graph = path_graph(targets=table, test=[])
    np.testing.assert_array_equal(graph.targets, np.where(np.arange(4)[:, None] < 3, TABLE == 1, False))
    with pytest.raises(GossamerError, match=r"vertex 3 is in a mask but its labels are unknown \(1 such"):
        path_graph(targets=table)
    table[3] = [unknown, 1, 1]
    with pytest.raises(GossamerError, match="vertex 3 has some labels and others unknown; give all of them, or none"):
        path_graph(targets=table, test=[])


def test_the_task_decides_what_a_table_leaves_open() -> None:
    graph = path_graph(targets=ONE_HOT, task="multilabel")
    assert (graph.task, graph.targets.tolist()) == ("multilabel", (ONE_HOT == 1).tolist())
    for table in (ONE_HOT, TABLE):
        values = path_graph(targets=table, task="regression")
        assert (values.task, values.num_classes) == ("regression", None)
        assert values.targets.dtype == np.float64
        np.testing.assert_array_equal(values.targets, table)
    column = ONE_HOT[:, :1].astype(float)
    assert path_graph(targets=column).task == "regression"
    single = path_graph(targets=column, task="multilabel")
    assert (single.task, single.num_classes, single.targets.shape) == ("multilabel", 1, (4, 1))
    assert path_graph(targets=[3, 1, 4, 1], task="regression").targets.tolist() == [[3.0], [1.0], [4.0], [1.0]]
    assert path_graph(targets=[[0, 1], [1, 0.5], [0, 0], [1, 1]]).task == "regression"


TIMED = {"features": np.ones((4, 5, 2)), "positions": None}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"task": "labels"}, "the task should be auto .*multilabel .* or regression .*, got 'labels'"),
        ({"task": "multilabel"}, r"labels must be a table \[vertices, labels\] of 0 and 1 .*, got int64 \(4,\)"),
        ({"task": "multilabel", "targets": 2 * TABLE}, r"labels must be 0 or 1, got 2 for vertex 0 \(6 such entries\)"),
        ({"task": "multilabel", "targets": np.zeros((4, 0))}, "expected 1 to 1048576 labels, got 0"),
        (
            {"task": "multiclass", "targets": [0.0, 1.0, 0.0, 1.0]},
            r"classes must be whole numbers, got float64; give y",
        ),
        ({"task": "multiclass", "targets": TABLE}, r"classes must have shape \(4,\)"),
        ({"targets": TABLE, "class_names": ("a", "b")}, "expected 3 class names, one for each label, got 2"),
        ({"targets": TABLE[[1, 1, 2, 3]]}, "the training vertices all have the same labels"),
        ({"targets": np.zeros((4, 5, 2)), "task": "multilabel", **TIMED}, r"without a time axis, .* with 5 time steps"),
        ({"targets": np.zeros((4, 5, 2), dtype=bool), **TIMED}, "no batch axis"),
        ({"targets": TABLE.astype(complex)}, "targets must be class numbers or real values, got complex128"),
    ],
    ids=str,
)
def test_what_are_no_labels_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(GossamerError, match=message):
        path_graph(**changes)


def test_a_chosen_task_must_be_that_of_a_graph() -> None:
    with pytest.raises(
        GossamerError, match="the task multilabel is chosen, and the targets of path are for multiclass"
    ):
        load(path_graph(), task="multilabel")
    with pytest.raises(GossamerError, match=r"the task regression is chosen, .* digits are for multiclass"):
        load("digits", task="regression")
    graph = path_graph(targets=TABLE)
    assert load(graph, task="multilabel") is graph


@pytest.mark.parametrize("y", [torch.tensor(TABLE), torch.tensor(TABLE).float(), torch.tensor(TABLE).bool()])
def test_pyg_labels_as_ppi_has_them(y: torch.Tensor) -> None:
    data = to_pyg(path_graph(), y=y)
    for graph in (from_pyg(data), load(data), from_pyg(data, task="multilabel")):
        np.testing.assert_array_equal(graph.targets, TABLE == 1)
    assert load(data, task="regression").task == "regression"


def test_networkx_vertices_without_labels_are_unknown() -> None:
    import networkx

    graph = networkx.path_graph(4)
    for v in graph:
        graph.nodes[v].update(x=[v], split=("train", "train", "validation", None)[v])
        if v < 3:
            graph.nodes[v]["y"] = ONE_HOT[v].tolist()
    assert from_networkx(graph, task="multilabel").targets.tolist() == [*(ONE_HOT[:3] == 1).tolist(), [False, False]]
    with pytest.raises(GossamerError, match="one-hot"):
        from_networkx(graph)


def write_npz(path: Path, labels: Any, n: int = 4, split: bool = True) -> Path:
    adjacency = sparse.csr_array(np.eye(n, k=1) + np.eye(n, k=-1))
    parts = {f"adj_matrix.{part}": getattr(adjacency, part) for part in ("data", "indices", "indptr", "shape")}
    indices: dict[str, Any] = {"train_idx": [0, 1], "val_idx": [2], "test_idx": [3]} if split else {}
    np.savez(path, features=np.ones((n, 2)), labels=labels, **parts, **indices)
    return path


@pytest.mark.parametrize("kind", [bool, int, float])
def test_an_npz_file_may_hold_labels(tmp_path: Path, kind: type) -> None:
    graph = load(write_npz(tmp_path / "mine.npz", TABLE.astype(kind)))
    np.testing.assert_array_equal(graph.targets, TABLE == 1)
    with pytest.raises(GossamerError, match=r"mine.npz: .*one-hot"):
        load(write_npz(tmp_path / "mine.npz", ONE_HOT.astype(kind)))
    assert load(tmp_path / "mine.npz", task="multilabel").task == "multilabel"
    assert load(tmp_path / "mine.npz", task="regression").task == "regression"
    one = write_npz(tmp_path / "one.npz", ONE_HOT[:, :1].astype(kind))
    assert load(one, task="multilabel").num_classes == 1
    assert load(one).task == ("regression" if kind is float else "multiclass")


def test_without_a_split_training_vertices_of_labels_are_drawn_from_all(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    labels = (random.random((100, 2)) < 0.5).astype(float)
    labels[:12] = np.nan
    path = write_npz(tmp_path / "mine.npz", labels, 100, split=False)
    first, again, other = load(path, seed=0), load(path, seed=0), load(path, seed=1)
    assert (first.train.sum(), first.validation.sum(), first.test.sum()) == (40, 25, 23)  # 20 a label
    assert not (first.train | first.validation | first.test)[:12].any()
    assert not (first.train & first.validation).any()
    np.testing.assert_array_equal(first.train, again.train)
    assert (first.train != other.train).any()
    assert split_uniformly(np.ones(40, dtype=bool), 60, 10, 0)["train"].size == 20  # at most half
    with pytest.raises(GossamerError, match="4 vertices with known labels are too few to draw 2 for training"):
        split_uniformly(np.arange(8) < 4, 60, 2, 0)
    with pytest.raises(GossamerError, match="labels must be a table"):
        load(write_npz(path, np.arange(100) % 2, 100, split=False), task="multilabel")


@pytest.mark.parametrize(
    "changes",
    [
        {"targets": TABLE, "class_names": ("a", "b", "c")},
        {"targets": ONE_HOT, "task": "multilabel"},
        {"targets": ONE_HOT[:, :1], "task": "multilabel"},
        {"targets": ONE_HOT, "task": "regression"},
    ],
    ids=str,
)
def test_a_saved_graph_keeps_its_task(tmp_path: Path, changes: dict[str, Any]) -> None:
    graph = path_graph(**changes)
    found = load(graph.save(tmp_path / "mine.npz"))
    assert (found.task, found.num_classes, found.class_names) == (graph.task, graph.num_classes, graph.class_names)
    assert found.fingerprint() == graph.fingerprint()


def write_tables(folder: Path, labels: list[str], splits: list[str] | None = None) -> Path:
    names = [f"v{i}" for i in range(len(labels))]
    ends = [""] * len(labels) if splits is None else [f",{split}" for split in splits]
    for name, text in {
        "edges": "source,target\n" + "".join(f"{a},{b}\n" for a, b in pairwise(names)),
        "features": "vertex,x\n" + "".join(f"{v},{i}\n" for i, v in enumerate(names)),
        "labels": f"vertex,label{'' if splits is None else ',split'}\n"
        + "".join(f"{v},{label}{end}\n" for v, label, end in zip(names, labels, ends, strict=True)),
    }.items():
        (folder / f"{name}.csv").write_text(text)
    return folder


SPLIT = ["train", "train", "validation", ""]


def read(folder: Path, labels: list[str], **options: Any) -> DataGraph:
    return load(write_tables(folder, labels, SPLIT), **options)


def test_names_in_a_table_are_joined_by_semicolons(tmp_path: Path) -> None:
    graph = read(tmp_path, ["c; a", "b", "-", ""])
    assert (graph.task, graph.class_names) == ("multilabel", ("a", "b", "c"))
    np.testing.assert_array_equal(graph.targets, [[1, 0, 1], [0, 1, 0], [0, 0, 0], [0, 0, 0]])


def test_a_table_has_labels_if_a_field_has_several_or_none(tmp_path: Path) -> None:
    assert read(tmp_path, ["a", "-", "b", "a"]).class_names == ("a", "b")
    assert read(tmp_path, ["a", "b", "a-b", "a"]).task == "multiclass"
    assert read(tmp_path, ["a", "b", "a", "a"], task="multilabel").targets.tolist()[0] == [True, False]
    assert read(tmp_path, ["a;b", "b", "a", ""], task="multiclass").class_names == ("a", "a;b", "b")
    assert read(tmp_path, ["1", "2", "3", ""], task="regression").task == "regression"


def test_numbers_as_names_stand_in_their_order_and_negative_ones_are_unknown(tmp_path: Path) -> None:
    graph = read(tmp_path, ["10;9", "9", "2", "-1"])
    assert graph.class_names == ("2", "9", "10")
    np.testing.assert_array_equal(graph.targets, [[0, 1, 1], [0, 1, 0], [1, 0, 0], [0, 0, 0]])


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (["a;;c", "b", "-", ""], r"labels.csv, line 2: expected names joined by ';', or '-' for none .*, got 'a;;c'"),
        (["a", "b;", "-", ""], "labels.csv, line 3: expected names joined by"),
        (["a;b", "", "-", ""], r"vertex '\w+' is in a mask but its labels are unknown"),
        (["-", "-", "-", "-"], "expected 1 to 1048576 labels, got 0"),
        (["a;b", "a;b", "-", ""], "the training vertices all have the same labels"),
    ],
)
def test_a_mistake_in_a_table_is_refused(tmp_path: Path, labels: list[str], message: str) -> None:
    with pytest.raises(GossamerError, match=message):
        read(tmp_path, labels)


def test_more_labels_than_memory_holds_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gossamer.data.label_tables.available_memory", lambda: 100)
    assert read(tmp_path, ["a;b", "c", "d", ""]).num_classes == 4
    with pytest.raises(
        GossamerError, match=r"labels.csv: 7 labels of 4 vertices take about 112 .* and 100 .* available"
    ):
        read(tmp_path, ["a;b;c;d", "e", "f;g", ""])


def test_a_table_without_splits_draws_them(tmp_path: Path) -> None:
    graph = load(write_tables(tmp_path, ["a;b", "b", "-", ""] * 25))
    assert (graph.train.sum(), graph.validation.sum(), graph.test.sum()) == (37, 25, 13)
