"""Graphs of NetworkX and PyTorch Geometric are converted with every array, or refused by name."""

import warnings
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest
import torch
from oracles.graphs import path_graph

from gossamer import api
from gossamer.data import DataGraph, from_networkx, from_pyg, load
from gossamer.errors import GossamerError, GossamerWarning

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # its import calls torch.jit.script
    from torch_geometric.data import Data, HeteroData, InMemoryDataset

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


@pytest.mark.parametrize("kind", [nx.DiGraph, nx.MultiGraph, nx.MultiDiGraph])
def test_networkx_other_kinds_are_refused(kind: type) -> None:
    remedy = r"use nx\.Graph\(graph\)" if "Multi" in kind.__name__ else "symmetrise=True"
    with pytest.raises(GossamerError, match=f"networkx.Graph.*, got {kind.__name__}; .*{remedy}"):
        from_networkx(kind(to_networkx(path_graph())))


def test_networkx_directed_edges_are_symmetrised_on_demand() -> None:
    given = nx.DiGraph(to_networkx(path_graph()))
    given.remove_edge("v1", "v0")
    given["v2"]["v1"]["weight"] = 4.0  # against 2 the other way
    graph = from_networkx(given, symmetrise=True)
    np.testing.assert_array_equal(graph.edges, path_graph().edges)
    np.testing.assert_array_equal(graph.weights, [1.0, 3.0, 3.0])


def test_networkx_attributes_may_be_tensors() -> None:
    graph = path_graph()
    given = to_networkx(graph)
    for i, v in enumerate(given):
        row = torch.from_numpy(graph.features[i]).requires_grad_()
        given.nodes[v]["x"] = row.detach().to_sparse() if i == 2 else row
        given.nodes[v]["y"] = torch.tensor([graph.targets[i]]) if i % 2 else torch.tensor(graph.targets[i])
    for i, (u, v) in enumerate(given.edges):
        given[u][v]["weight"] = torch.tensor([graph.weights[i]])
    back = from_networkx(given)
    for name in ARRAYS:
        np.testing.assert_array_equal(getattr(back, name), getattr(graph, name))


def test_networkx_targets_may_be_several_values_or_several_labels() -> None:
    given = to_networkx(path_graph(targets=[0.5, 1.5, 2.5, 3.5]))
    for i, v in enumerate(given):
        given.nodes[v]["y"] = torch.tensor([i, 0.5])
    np.testing.assert_array_equal(from_networkx(given).targets, [[0, 0.5], [1, 0.5], [2, 0.5], [3, 0.5]])
    for i, v in enumerate(given):
        given.nodes[v]["y"] = [1, i % 2]
    graph = from_networkx(given)
    assert graph.task == "multilabel"
    np.testing.assert_array_equal(graph.targets, [[True, False], [True, True]] * 2)
    assert from_networkx(given, task="regression").task == "regression"


def test_networkx_whole_numbers_are_classes_and_minus_one_is_unknown() -> None:
    given = to_networkx(path_graph(validation=[]))
    for v, y in zip(given, (3, 1, -1, 3), strict=True):
        given.nodes[v]["y"] = y
    with pytest.warns(GossamerWarning, match="labels 1, 3 are now classes 0 to 1"):
        graph = from_networkx(given)
    np.testing.assert_array_equal(graph.targets, [1, 0, -1, 1])
    assert graph.class_names == ("1", "3")


@pytest.mark.parametrize(
    ("attribute", "value", "message"),
    [
        ("x", None, "vertex 'v1' has no attribute 'x'"),
        ("x", [1.0], r"feature rows must have one length, got \[1, 2\]"),
        ("x", [1.0, float("nan")], "first at vertex 'v1'"),
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


def test_pyg_masks_with_a_column_for_each_split() -> None:
    given = to_pyg(path_graph())
    plain = from_pyg(given)
    for key, part in {"train_mask": "train", "val_mask": "validation", "test_mask": "test"}.items():
        mask = torch.as_tensor(getattr(plain, part))
        given[key] = torch.stack([torch.zeros_like(mask), mask], dim=1)
    with pytest.raises(GossamerError, match="choose a column of them with --split"):
        from_pyg(given)
    graph = load(given, split=1)
    for part in ("train", "validation", "test"):
        np.testing.assert_array_equal(getattr(graph, part), getattr(plain, part))
    with pytest.raises(GossamerError, match="the PyTorch Geometric graph has the splits 0 to 1; got 2"):
        load(given, split=2)
    given.val_mask = given.val_mask[:, 0]
    with pytest.raises(GossamerError, match=r"masks of one shape \[vertices, splits\]"):
        load(given, split=1)


def test_a_split_of_masks_that_have_one_is_refused() -> None:
    for given in (to_pyg(path_graph()), to_networkx(path_graph())):
        with pytest.raises(GossamerError, match="no fixed splits"):
            load(given, split=0)


def test_pyg_directed_edges_are_refused_by_the_first_and_symmetrised_on_demand() -> None:
    edges = torch.tensor([[0, 1, 2, 1, 3], [1, 0, 1, 2, 2]])
    given = to_pyg(path_graph(), edge_index=edges, edge_weight=None)
    with pytest.raises(GossamerError, match=r"edge \(3, 2\) is given without its reverse \(1 such.*symmetrise=True"):
        from_pyg(given)
    graph = from_pyg(given, symmetrise=True)
    np.testing.assert_array_equal(graph.edges, path_graph().edges)
    given.edge_weight = torch.tensor([1.0, 3.0, 2.0, 2.0, 5.0])
    np.testing.assert_array_equal(from_pyg(given, symmetrise=True).weights, [2.0, 2.0, 5.0])


def test_pyg_self_loops_need_no_reverse() -> None:
    edges = torch.tensor([[0, 1, 1, 2, 2, 3, 3], [1, 0, 2, 1, 3, 2, 3]])
    with pytest.warns(GossamerWarning, match="1 self-loops dropped"):
        graph = from_pyg(to_pyg(path_graph(), edge_index=edges, edge_weight=None))
    np.testing.assert_array_equal(graph.edges, path_graph().edges)


COLUMN = torch.from_numpy(np.tile(path_graph().weights, 2))[:, None]
FEATURES = torch.from_numpy(path_graph().features)


def sparse_rows(dense: torch.Tensor) -> torch.Tensor:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Sparse CSR tensor support is in beta", UserWarning)
        return dense.to_sparse_csr()


@pytest.mark.parametrize(
    "changes",
    [
        {"edge_weight": None, "edge_attr": COLUMN},
        {"edge_weight": COLUMN},
        {"edge_weight": COLUMN[:, 0].bfloat16()},
        {"y": torch.tensor([[0], [1], [0], [1]])},
        {"y": torch.tensor([False, True, False, True])},
        {"x": FEATURES.bfloat16()},
        {"x": FEATURES.half()},
        {"x": FEATURES.clone().requires_grad_()},
        {"x": FEATURES.to_sparse()},
        {"x": FEATURES.to_sparse().bfloat16()},
        {"x": sparse_rows(FEATURES)},
        {"pos": torch.from_numpy(path_graph().positions).requires_grad_()},
    ],
    ids=lambda changes: ",".join(f"{key}:{value is not None and value.dtype}" for key, value in changes.items()),
)
def test_pyg_tensors_of_every_kind_are_converted_without_loss(
    changes: dict[str, Any], recwarn: pytest.WarningsRecorder
) -> None:
    back, graph = from_pyg(to_pyg(path_graph(), **changes)), path_graph()
    for name in (*ARRAYS, "positions"):
        found = getattr(back, name)
        np.testing.assert_array_equal(found if isinstance(found, np.ndarray) else found.toarray(), getattr(graph, name))
    assert not recwarn.list


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"x": FEATURES.to(torch.complex64)}, "features must be a table of numbers, got complex64"),
        ({"y": torch.eye(4, dtype=torch.bool)}, r"one-hot; give their numbers, y.argmax\(1\)"),
        ({"x": FEATURES.numpy()}, "`x` must be a torch.Tensor, got ndarray; make it one with torch.as_tensor"),
        ({"train_mask": [True, True, False, False]}, "`train_mask` must be a torch.Tensor, got list"),
        ({"edge_weight": None, "edge_attr": [1.0] * 6}, "`edge_attr` must be a torch.Tensor, got list"),
    ],
)
def test_pyg_tensors_that_have_no_meaning_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(GossamerError, match=message):
        from_pyg(to_pyg(path_graph(), **changes))


def test_pyg_values_to_predict_may_have_one_column_or_several() -> None:
    one = from_pyg(to_pyg(path_graph(), y=torch.tensor([[0.0], [1.0], [1.0], [0.0]])))
    assert (one.num_classes, one.targets.shape) == (None, (4, 1))
    two = from_pyg(to_pyg(path_graph(), y=torch.tensor([[0.0, 1], [1, 0.5], [0, 0], [1, 1]], dtype=torch.bfloat16)))
    np.testing.assert_array_equal(two.targets, [[0, 1], [1, 0.5], [0, 0], [1, 1]])


def test_train_and_load_take_graphs_of_other_libraries() -> None:
    graph = path_graph()
    for given in (to_pyg(graph), to_networkx(graph), graph):
        assert load(given).num_edges == 3
        result = api.train(given, agents=2, topology="complete", steps=1, baselines=False)
        np.testing.assert_array_equal(result.run.deployment.graph.targets, graph.targets)
    one_way = to_pyg(graph, edge_index=torch.from_numpy(graph.edges.T.copy()), edge_weight=None)
    with pytest.raises(GossamerError, match="without its reverse"):
        api.train(one_way, agents=2, topology="complete", steps=1)
    assert api.train(one_way, agents=2, steps=1, symmetrise=True, baselines=False).run.settings.symmetrise


def test_a_graph_of_another_library_is_given_again_to_go_on(tmp_path: Path) -> None:
    given = to_pyg(path_graph(), edge_index=torch.from_numpy(path_graph().edges.T.copy()), edge_weight=None)
    options = {"agents": 2, "topology": "complete", "baselines": False, "symmetrise": True}
    api.train(given, steps=1, out=tmp_path / "run", **options)  # type: ignore[arg-type]
    assert api.resume(tmp_path / "run", 3, graph=given).run.host.step == 3


def test_what_is_no_graph_is_refused_by_its_type() -> None:
    class Four(InMemoryDataset):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__(None)

    with pytest.raises(GossamerError, match=r"got .*Four; give one of its graphs, as in dataset\[0\]"):
        load(Four())
    with pytest.raises(GossamerError, match=r"got torch_geometric.*\.HeteroData; .* data\.to_homogeneous\(\)"):
        api.train(HeteroData())
    with pytest.raises(GossamerError, match=r"got builtins\.int"):
        load(7)
