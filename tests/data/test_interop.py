"""Graphs of NetworkX and PyTorch Geometric are converted with every array, or refused by name."""

import warnings
from typing import Any

import networkx as nx
import numpy as np
import pytest
import torch
from oracles.graphs import path_graph

from gossamer.data import DataGraph, from_networkx, from_pyg
from gossamer.errors import GossamerError

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # its import calls torch.jit.script
    from torch_geometric.data import Data

ARRAYS = ("edges", "weights", "features", "targets", "train", "validation", "test")


def to_networkx(graph: DataGraph) -> nx.Graph:
    """The graph with vertices called v0, v1, ..., their class as an integer or their value as a float."""
    result = nx.Graph(name=graph.name)
    for i in range(graph.num_vertices):
        y = int(graph.targets[i]) if graph.num_classes else float(graph.targets[i, 0])
        split = next((part for part in ("train", "validation", "test") if getattr(graph, part)[i]), None)
        result.add_node(f"v{i}", x=graph.features[i].tolist(), y=y, split=split)
    for (i, j), w in zip(graph.edges, graph.weights, strict=True):
        result.add_edge(f"v{i}", f"v{j}", weight=float(w))
    return result


def to_pyg(graph: DataGraph, **changes: Any) -> Data:
    both = np.concatenate([graph.edges, graph.edges[:, ::-1]]).T
    content = {
        "x": torch.from_numpy(graph.features),
        "edge_index": torch.from_numpy(both.copy()),
        "edge_weight": torch.from_numpy(np.tile(graph.weights, 2)),
        "y": torch.from_numpy(graph.targets),
        "train_mask": torch.from_numpy(graph.train),
        "val_mask": torch.from_numpy(graph.validation),
        "test_mask": torch.from_numpy(graph.test),
        "pos": torch.from_numpy(graph.positions),
        **changes,
    }
    return Data(**{key: value for key, value in content.items() if value is not None})


@pytest.mark.parametrize("targets", [np.array([0, 1, 1, 0]), np.array([0.5, 1.5, 2.5, 3.5])])
def test_networkx_round_trip(targets: np.ndarray) -> None:
    graph = path_graph(targets=targets)
    back = from_networkx(to_networkx(graph))
    for name in ARRAYS:
        np.testing.assert_array_equal(getattr(back, name), getattr(graph, name))
    assert (back.name, back.names, back.num_classes) == ("path", ("v0", "v1", "v2", "v3"), graph.num_classes)


def test_networkx_classes_may_be_words_and_missing() -> None:
    given = to_networkx(path_graph(validation=[]))
    for v, y in zip(given, ("red", "blue", None, "red"), strict=True):
        given.nodes[v]["y"] = y
    graph = from_networkx(given)
    np.testing.assert_array_equal(graph.targets, [1, 0, -1, 1])
    assert graph.class_names == ("blue", "red")


def test_networkx_attributes_by_other_names() -> None:
    given = nx.path_graph(3)
    for i in given:
        given.nodes[i].update(height=float(i), kind=i % 2, part=("train", "train", "test")[i])
    nx.set_edge_attributes(given, 4.0, "width")
    graph = from_networkx(given, features="height", target="kind", split="part", weight="width")
    np.testing.assert_array_equal(graph.features, [[0.0], [1.0], [2.0]])
    np.testing.assert_array_equal(graph.targets, [0, 1, 0])
    np.testing.assert_array_equal(graph.test, [False, False, True])
    np.testing.assert_array_equal(graph.weights, [4.0, 4.0])


@pytest.mark.parametrize("kind", [nx.DiGraph, nx.MultiGraph])
def test_networkx_other_kinds_are_refused(kind: type) -> None:
    with pytest.raises(GossamerError, match=f"undirected networkx.Graph, got {kind.__name__}"):
        from_networkx(kind(to_networkx(path_graph())))


@pytest.mark.parametrize(
    ("attribute", "value", "message"),
    [
        ("x", None, "vertex 'v1' has no attribute 'x'"),
        ("x", [1.0], r"feature rows must have one length, got \[1, 2\]"),
        ("x", [1.0, float("nan")], "first at vertex 1"),
        ("split", "val", "split must be one of train, validation, test"),
        ("y", "red", "class"),
    ],
)
def test_networkx_mistakes_are_refused_by_name(attribute: str, value: Any, message: str) -> None:
    given = to_networkx(path_graph())
    given.nodes["v1"][attribute] = value
    with pytest.raises(GossamerError, match=message):
        from_networkx(given)


@pytest.mark.parametrize("targets", [np.array([0, 1, 1, 0]), np.array([0.5, 1.5, 2.5, 3.5])])
def test_pyg_round_trip(targets: np.ndarray) -> None:
    graph = path_graph(targets=targets)
    back = from_pyg(to_pyg(graph), name="path")
    for name in (*ARRAYS, "positions"):
        np.testing.assert_array_equal(getattr(back, name), getattr(graph, name))
    assert (back.name, back.num_classes) == ("path", graph.num_classes)


def test_pyg_edge_attr_gives_the_weights_and_neither_gives_ones() -> None:
    graph = path_graph()
    weights = torch.from_numpy(np.tile(graph.weights, 2))
    np.testing.assert_array_equal(from_pyg(to_pyg(graph, edge_weight=None, edge_attr=weights)).weights, graph.weights)
    np.testing.assert_array_equal(from_pyg(to_pyg(graph, edge_weight=None)).weights, np.ones(3))


@pytest.mark.parametrize("attribute", ["x", "edge_index", "y", "train_mask", "val_mask", "test_mask"])
def test_pyg_missing_attributes_are_named(attribute: str) -> None:
    with pytest.raises(GossamerError, match=f"has no `{attribute}`"):
        from_pyg(to_pyg(path_graph(), **{attribute: None}))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"train_mask": torch.ones(4, 10, dtype=torch.bool)}, r"expected one split, got masks of shape \(4, 10\)"),
        ({"edge_weight": None, "edge_attr": torch.ones(6, 3)}, r"one weight for each edge, got shape \(6, 3\)"),
        ({"edge_index": torch.tensor([[0, 1], [1, 4]]), "edge_weight": None}, r"edge \(1, 4\) names a vertex"),
        ({"y": torch.tensor([0, 1, 1])}, "features have 4 rows, the targets 3"),
    ],
)
def test_pyg_mistakes_are_refused_by_name(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(GossamerError, match=message):
        from_pyg(to_pyg(path_graph(), **changes))
