"""A folder of CSV tables becomes a graph; a mistake is named with its file and line."""

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from gossamer.data import DataGraph, load
from gossamer.data.tables import read_tables
from gossamer.errors import GossamerError

TABLES = {
    "edges": "source,target,weight\nann,bob,1.5\nbob,cyd,2\ncyd,dan,0.5\n",
    "features": "vertex,height,width\nann,1,2\nbob,3,4\ncyd,5,6\ndan,7,8\n",
    "labels": "vertex,label,split\nbob,red,train\nann,blue,train\ncyd,red,validation\ndan,blue,test\n",
}


def read(folder: Path, **changes: str) -> DataGraph:
    for name, text in {**TABLES, **changes}.items():
        (folder / f"{name}.csv").write_text(text, encoding="utf-8")
    return read_tables(folder, seed=0)


def test_names_edges_features_and_splits_are_joined(tmp_path: Path) -> None:
    graph = read(tmp_path)
    assert graph.name == tmp_path.name
    assert graph.names == ("ann", "bob", "cyd", "dan")
    assert graph.class_names == ("blue", "red")
    np.testing.assert_array_equal(graph.edges, [[0, 1], [1, 2], [2, 3]])
    np.testing.assert_array_equal(graph.weights, [1.5, 2.0, 0.5])
    np.testing.assert_array_equal(graph.features, [[1, 2], [3, 4], [5, 6], [7, 8]])
    np.testing.assert_array_equal(graph.targets, [0, 1, 1, 0])
    np.testing.assert_array_equal(graph.train, [True, True, False, False])
    np.testing.assert_array_equal(graph.validation, [False, False, True, False])
    np.testing.assert_array_equal(graph.test, [False, False, False, True])


def test_load_reads_a_folder(tmp_path: Path) -> None:
    graph = read(tmp_path)
    assert load(tmp_path).fingerprint() == load(str(tmp_path)).fingerprint() == graph.fingerprint()


def test_without_weights_every_edge_weighs_one(tmp_path: Path) -> None:
    graph = read(tmp_path, edges="source,target\nann,bob\nbob,cyd\ncyd,dan\n")
    np.testing.assert_array_equal(graph.weights, [1.0, 1.0, 1.0])


def test_a_byte_order_mark_and_blank_lines_are_ignored(tmp_path: Path) -> None:
    graph = read(tmp_path, edges="\ufeff" + TABLES["edges"].replace("\n", "\r\n\r\n"))
    np.testing.assert_array_equal(graph.edges, [[0, 1], [1, 2], [2, 3]])


def test_a_decimal_point_makes_labels_real(tmp_path: Path) -> None:
    graph = read(tmp_path, labels="vertex,label,split\nann,1,train\nbob,2.5,train\ncyd,-3e-1,test\ndan,,\n")
    assert (graph.num_classes, graph.class_names) == (None, None)
    np.testing.assert_array_equal(graph.targets, [[1.0], [2.5], [-0.3], [0.0]])
    np.testing.assert_array_equal(graph.test, [False, False, True, False])


def test_whole_numbers_are_classes_in_their_order(tmp_path: Path) -> None:
    graph = read(tmp_path, labels="vertex,label,split\nann,10,train\nbob,9,train\ncyd,2,test\n")
    assert graph.class_names == ("2", "9", "10")
    np.testing.assert_array_equal(graph.targets, [2, 1, 0, -1])


def test_minus_one_is_an_unknown_class_as_in_arrays(tmp_path: Path) -> None:
    graph = read(tmp_path, labels="vertex,label,split\nann,3,train\nbob,1,train\ncyd,-1,\ndan,1,test\n")
    assert graph.class_names == ("1", "3")
    np.testing.assert_array_equal(graph.targets, [1, 0, -1, 0])


def test_symmetrise_takes_the_mean_of_different_weights(tmp_path: Path) -> None:
    edges = "source,target,weight\nann,bob,1\nbob,ann,3\nbob,cyd,2\ncyd,dan,5\n"
    with pytest.raises(GossamerError, match=r"asymmetric weights: .*--symmetrise"):
        read(tmp_path, edges=edges)
    np.testing.assert_array_equal(load(tmp_path, symmetrise=True).weights, [2.0, 2.0, 5.0])


def test_without_a_split_column_one_is_drawn_from_the_seed(tmp_path: Path) -> None:
    names = [f"v{i}" for i in range(60)]
    for name, text in {
        "edges": "source,target\n" + "".join(f"{a},{b}\n" for a, b in pairwise(names)),
        "features": "vertex,x\n" + "".join(f"{v},{i}\n" for i, v in enumerate(names)),
        "labels": "vertex,label\n" + "".join(f"{v},{'ab'[i % 2]}\n" for i, v in enumerate(names)),
    }.items():
        (tmp_path / f"{name}.csv").write_text(text)
    first, again, other = load(tmp_path, seed=0), load(tmp_path, seed=0), load(tmp_path, seed=1)
    np.testing.assert_array_equal(np.bincount(first.targets[first.train]), [20, 20])
    assert (first.validation.sum(), first.test.sum()) == (15, 5)
    np.testing.assert_array_equal(first.train, again.train)
    assert (first.train != other.train).any()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"features": "vertex,height,width\nann,1,2\nbob,3\n"}, r"features.csv, line 3: expected 3 cells.*got 2"),
        ({"features": "vertex,height\nann,1\nbob,tall\n"}, "features.csv, line 3: expected numbers.*tall"),
        ({"features": "vertex,height\nann,1\nbob,2\nann,3\n"}, "vertex 'ann' stands in more than one row"),
        ({"features": "vertex\nann\n"}, "header with at least 2 columns"),
        ({"features": ""}, "header with at least 2 columns"),
        (
            {"features": "vertex,height\n", "edges": "source,target\n", "labels": "vertex,label\n"},
            r"features\.csv.*(empty|no vert)",
        ),
        ({"features": TABLES["features"].replace("5", "nan")}, "first at vertex 2"),
        (
            {"edges": "source,target\nann,bob\nann,eve\n"},
            "edges.csv, line 3: vertex 'eve' does not exist in features.csv",
        ),
        ({"edges": "source,target\nann,bob,7\n"}, "edges.csv, line 2: expected 2 cells"),
        ({"edges": "source,target,weight\nann,bob,heavy\n"}, "edges.csv, line 2: expected numbers"),
        ({"edges": "source,target,weight\nann,bob,-1\n"}, r"positive and finite, got -1.0 on edge \('ann', 'bob'\)"),
        ({"labels": "vertex,label,split\neve,red,train\n"}, "labels.csv, line 2: vertex 'eve' does not exist"),
        (
            {"labels": "vertex,label,split\nann,red,val\n"},
            "labels.csv, line 2: the split must be one of train, validation, test, got 'val'",
        ),
        (
            {"labels": "vertex,label,split\nann,red,train\nann,blue,train\nbob,red,train\n"},
            "'ann' stands in more than one",
        ),
        ({"labels": "vertex,label\nann,0.5\nbob,1.5\n"}, "real-valued labels need a split column"),
        ({"labels": "vertex,label,split\nann,red,train\nbob,,train\n"}, "vertex 'bob' is in a mask but has no class"),
        ({"labels": "vertex,label\nann,red\nbob,blue\n"}, "too few to train on 20"),
    ],
)
def test_a_mistake_is_refused_by_name(tmp_path: Path, changes: dict[str, str], message: str) -> None:
    with pytest.raises(GossamerError, match=message):
        read(tmp_path, **changes)


def test_a_missing_table_is_named(tmp_path: Path) -> None:
    read(tmp_path)
    (tmp_path / "edges.csv").unlink()
    with pytest.raises(GossamerError, match=r"cannot read .*edges\.csv"):
        read_tables(tmp_path, seed=0)


def test_a_table_that_is_not_text_is_refused(tmp_path: Path) -> None:
    read(tmp_path)
    (tmp_path / "labels.csv").write_bytes(b"vertex,label\nann,\xff\xfe\n")
    with pytest.raises(GossamerError, match=r"cannot read .*labels\.csv"):
        read_tables(tmp_path, seed=0)
