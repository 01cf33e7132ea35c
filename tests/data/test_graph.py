"""make_graph accepts good arrays and names the fault of bad ones; derived values of DataGraph."""

from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
from oracles.graphs import PATH, path_arrays, path_graph
from scipy import sparse

from gossamer.data import make_graph
from gossamer.errors import GossamerError, GossamerWarning


def test_a_good_graph_has_no_warning_and_keeps_its_arrays() -> None:
    given, graph = path_arrays(), path_graph()
    assert (graph.num_vertices, graph.num_edges, graph.num_features, graph.num_classes) == (4, 3, 2, 2)
    assert (graph.num_outputs, graph.batch) == (2, None)
    for name in ("edges", "weights", "features", "targets", "train", "validation", "test", "positions"):
        np.testing.assert_array_equal(getattr(graph, name), given[name])


def test_edges_come_out_once_sorted_and_with_i_below_j() -> None:
    both = np.array([[3, 2], [2, 1], [1, 0], [0, 1], [2, 3]])
    graph = path_graph(edges=both, weights=[3.0, 2.0, 1.0, 1.0, 3.0])
    np.testing.assert_array_equal(graph.edges, PATH)
    np.testing.assert_array_equal(graph.weights, [1.0, 2.0, 3.0])


def test_adjacency_is_symmetric_and_weighted() -> None:
    expected = np.zeros((4, 4))
    for (i, j), w in zip(PATH, (1.0, 2.0, 3.0), strict=True):
        expected[i, j] = expected[j, i] = w
    np.testing.assert_array_equal(path_graph().adjacency.toarray(), expected)


def test_restricted_to_drops_edges_and_nothing_else() -> None:
    graph = path_graph()
    less = graph.restrict_to(np.array([True, False, True]))
    np.testing.assert_array_equal(less.edges, [[0, 1], [2, 3]])
    np.testing.assert_array_equal(less.weights, [1.0, 3.0])
    assert less.features is graph.features


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"features": [[1, 2], [3], [4, 5], [6, 7]]}, "one row for each vertex"),
        ({"features": [["a", "b"]] * 4}, "table of numbers"),
        ({"features": [[1, None]] * 4}, "table of numbers"),
        (
            {
                "features": np.ones((3, 2)),
                "edges": PATH[:2],
                "weights": None,
                "train": [0, 1],
                "validation": [],
                "test": [2],
            },
            "features have 3 rows, the targets 4.*is a feature or target row missing",
        ),
        ({"features": np.ones((3, 2))}, "features have 3 rows, the targets 4"),
        ({"features": np.ones(4)}, r"\[vertices, features\].*got shape \(4,\)"),
        ({"features": np.ones((0, 2))}, r"graph is empty.*\(0, 2\)"),
        ({"features": np.ones((4, 0))}, r"graph is empty.*\(4, 0\)"),
        ({"features": sparse.csr_array((0, 2))}, "graph is empty"),
        ({"edges": [[0, 1], [1, 2], [2, 4]]}, r"edge \(2, 4\) names a vertex that does not exist.*numbered 0 to 3"),
        ({"edges": [[0, 1], [1, 2], [-1, 3]]}, r"edge \(-1, 3\) names a vertex that does not exist"),
        ({"edges": PATH.T}, r"integers \[edges, 2\], got int64 \(2, 3\)"),
        ({"edges": PATH.astype(float)}, r"integers \[edges, 2\], got float64"),
        ({"weights": [1.0, 2.0]}, r"one weight for each of the 3 edges, got shape \(2,\)"),
        ({"weights": [1.0, -2.0, 3.0]}, r"positive and finite, got -2.0 on edge \(1, 2\)"),
        ({"weights": [1.0, 0.0, 3.0]}, "positive and finite, got 0.0"),
        ({"weights": [1.0, np.nan, 3.0]}, "positive and finite, got nan"),
        (
            {"edges": [[0, 1], [1, 2], [2, 3], [2, 1]], "weights": [1.0, 2.0, 3.0, 4.0]},
            r"asymmetric weights: edge \(1, 2\)",
        ),
        ({"train": np.zeros(4, dtype=bool)}, "no labelled vertex: the train mask is empty"),
        ({"train": []}, "no labelled vertex"),
        ({"train": [True, True]}, r"train mask must have shape \(4,\), got \(2,\)"),
        ({"validation": np.ones((4, 1), dtype=bool)}, r"validation mask must have shape \(4,\), got \(4, 1\)"),
        ({"test": [4]}, "test vertices must be numbered 0 to 3, got 4 to 4"),
        ({"test": [-1, 2]}, "test vertices must be numbered 0 to 3, got -1 to 2"),
        ({"targets": [0, 1, 0]}, "features have 4 rows, the targets 3"),
        ({"targets": [0, 0, 0, 0]}, "one class only"),
        ({"targets": [1, 1, 0, 0]}, "training vertices hold one class only"),
        ({"targets": [0, -1, 0, -1]}, r"vertex 1 is in a mask but has no class \(2 such"),
        ({"targets": np.array([[0, 1], [2, 1], [1, 1], [0, 3]])}, r"classes must have shape \(4,\)"),
        ({"targets": ["a", "b", "a", "b"]}, "class numbers or real values"),
        ({"targets": np.ones((4, 2, 3))}, r"real targets must be \[vertices, outputs\], got \(4, 2, 3\)"),
    ],
)
def test_a_mistake_is_refused_by_name(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(GossamerError, match=message):
        path_graph(**changes)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("as_given", [np.asarray, sparse.csr_array, sparse.coo_matrix])
def test_a_bad_feature_is_refused_with_its_vertex(bad: float, as_given: type) -> None:
    features = np.arange(1.0, 9.0).reshape(4, 2)
    features[2, 1] = bad
    with pytest.raises(GossamerError, match="1 NaN or infinite values, the first at vertex 2"):
        path_graph(features=as_given(features))


def test_a_bad_feature_in_a_batch_is_refused_with_its_vertex() -> None:
    features = np.ones((4, 3, 2))
    features[3, 0, 1] = np.nan
    with pytest.raises(GossamerError, match="first at vertex 3"):
        path_graph(features=features, targets=np.ones((4, 3)))


def test_self_loops_are_dropped_with_a_warning() -> None:
    with pytest.warns(GossamerWarning, match="2 self-loops dropped"):
        graph = path_graph(edges=[[0, 0], [0, 1], [1, 2], [2, 3], [3, 3]], weights=[9.0, 1.0, 2.0, 3.0, 9.0])
    np.testing.assert_array_equal(graph.edges, PATH)
    np.testing.assert_array_equal(graph.weights, [1.0, 2.0, 3.0])


def test_a_disconnected_graph_is_warned_of() -> None:
    with pytest.warns(GossamerWarning, match="disconnected: 2 components"):
        path_graph(edges=PATH[[0, 2]], weights=None)


@pytest.mark.parametrize("edges", [[], np.empty((0, 2), dtype=int)])
def test_a_graph_without_edges_is_warned_of(edges: object) -> None:
    with pytest.warns(GossamerWarning, match="no edges"):
        graph = path_graph(edges=edges, weights=None)
    np.testing.assert_array_equal(graph.adjacency.toarray(), np.zeros((4, 4)))


def test_masks_may_be_vertex_numbers() -> None:
    graph = path_graph(train=[1, 0], validation=[], test=np.array([3]))
    np.testing.assert_array_equal(graph.train, [True, True, False, False])
    np.testing.assert_array_equal(graph.validation, [False] * 4)
    np.testing.assert_array_equal(graph.test, [False, False, False, True])


def test_a_class_outside_the_masks_may_be_unknown() -> None:
    graph = path_graph(targets=[0, 1, -1, 1], validation=[])
    np.testing.assert_array_equal(graph.targets, [0, 1, -1, 1])
    assert graph.num_classes == 2


def test_real_targets_get_an_output_axis_and_no_classes() -> None:
    graph = path_graph(targets=[0.5, 1.5, 2.5, 3.5])
    np.testing.assert_array_equal(graph.targets, [[0.5], [1.5], [2.5], [3.5]])
    assert (graph.num_classes, graph.num_outputs) == (None, 1)


def test_real_targets_must_be_finite_inside_the_masks() -> None:
    with pytest.raises(GossamerError, match="1 NaN or infinite values inside the masks, the first at vertex 2; fill"):
        path_graph(targets=[0.5, 1.5, np.nan, 3.5])


def test_real_targets_outside_the_masks_may_be_unknown() -> None:
    graph = path_graph(targets=[0.5, 1.5, np.nan, np.inf], validation=[], test=[])
    np.testing.assert_array_equal(graph.targets, [[0.5], [1.5], [0.0], [0.0]])


def test_the_batch_axis_spreads_over_masks_and_targets() -> None:
    late = np.array([[False] * 3] * 2 + [[False, True, True]] * 2)
    graph = path_graph(features=np.ones((4, 3, 2)), targets=np.ones((4, 3)), test=late)
    assert (graph.batch, graph.num_features, graph.targets.shape) == (3, 2, (4, 3, 1))
    np.testing.assert_array_equal(graph.train, [[True] * 3] * 2 + [[False] * 3] * 2)
    np.testing.assert_array_equal(graph.test, late)


def test_labelled_vertices_hold_a_training_example_at_some_time() -> None:
    np.testing.assert_array_equal(path_graph().labelled, path_graph().train)
    some = np.zeros((4, 3), dtype=bool)
    some[1, 2] = some[3, 0] = True
    graph = path_graph(features=np.ones((4, 3, 2)), targets=np.ones((4, 3)), train=some, validation=[], test=[])
    np.testing.assert_array_equal(graph.labelled, [False, True, False, True])


def test_masks_that_overlap_are_warned_of_and_masks_of_zeros_and_ones_refused() -> None:
    with pytest.warns(GossamerWarning, match="1 training examples are also used"):
        path_graph(train=[0, 1], validation=[1], test=[3])
    with pytest.raises(GossamerError, match="mask of 0 and 1"):
        path_graph(train=[1, 1, 0, 0])
    with pytest.raises(GossamerError, match="booleans or vertex numbers"):
        path_graph(train=[0.0, 1.0])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"targets": np.ones((4, 2))}, r"\[vertices, batch, outputs\]"),
        ({"targets": [0, 1, 0, 1]}, "no batch axis"),
        ({"train": np.ones((4, 2), dtype=bool)}, r"train mask must have shape \(4, 3\), got \(4, 2\)"),
    ],
)
def test_a_wrong_batch_axis_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(GossamerError, match=message):
        path_graph(**{"features": np.ones((4, 3, 2)), "targets": np.ones((4, 3)), **changes})


def test_sparse_features_of_any_layout_become_csr_and_the_users_matrix_stays() -> None:
    twice = sparse.csr_array((np.array([1.0, 2, 3, 4, 5]), np.array([0, 0, 1, 0, 1]), np.array([0, 2, 3, 4, 5])))
    before = twice.copy()
    graph = path_graph(features=twice)
    np.testing.assert_array_equal(graph.features.toarray(), [[3.0, 0], [0, 3], [4, 0], [0, 5]])
    assert graph.features.nnz == 4
    assert twice.nnz == before.nnz
    np.testing.assert_array_equal(twice.data, before.data)


def test_the_fingerprint_is_that_of_the_content() -> None:
    assert path_graph().fingerprint() == path_graph().fingerprint()
    assert (
        path_graph(features=sparse.csr_array(np.eye(4))).fingerprint()
        == path_graph(features=sparse.coo_array(np.eye(4))).fingerprint()
    )


def test_the_fingerprint_changes_with_every_array() -> None:
    graph = path_graph()
    assert graph.positions is not None
    changed = {
        "edges": np.array([[0, 1], [1, 2], [1, 3]]),
        "weights": np.array([1.0, 2.0, 3.5]),
        "features": graph.features + 1e-6,
        "targets": np.array([0, 1, 1, 1]),
        "train": ~graph.train,
        "validation": ~graph.validation,
        "test": ~graph.test,
        "positions": graph.positions + 1,
        "sample_weights": np.ones(4),
    }
    prints = [replace(graph, **{name: value}).fingerprint() for name, value in changed.items()]
    assert len({graph.fingerprint(), *prints}) == 1 + len(changed)
    assert set(changed) == {f.name for f in fields(graph)} - {"name", "num_classes", "names", "class_names"}


def test_the_fingerprint_sees_sparse_entries_and_empty_columns() -> None:
    values = np.diag([1.0, 2, 3, 4])
    different = (values, values * 2, values[::-1], values[:, [0, 1, 3, 2]], np.pad(values, ((0, 0), (0, 1))))
    assert len({path_graph(features=sparse.csr_array(each)).fingerprint() for each in different}) == len(different)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"features": np.array([[1.0], [np.nan], [0.0]])}, "the first at vertex 'bob'; fill"),
        ({"edges": [[0, 1], [1, 2]], "weights": [1.0, -1.0]}, "on edge ('bob', 'eve')"),
        ({"edges": [[0, 1], [1, 0]], "weights": [1.0, 2.0]}, "edge ('ann', 'bob') is given more than once"),
        ({"targets": [0, -1, 1]}, "vertex 'bob' is in a mask but has no class"),
        ({"targets": [0.5, np.inf, 1.0]}, "the first at vertex 'bob'"),
        ({"targets": [[0, 1], [1, 2], [1, 1]], "task": "multilabel"}, "got 2 for vertex 'bob'"),
        ({"sample_weights": [1.0, -1.0, 1.0]}, "got -1.0 for vertex 'bob'"),
    ],
    ids=str,
)
def test_mistakes_name_vertices_as_the_user_does(change: dict[str, Any], message: str) -> None:
    given: dict[str, Any] = {
        "edges": [[0, 1], [1, 2]], "features": np.ones((3, 1)), "targets": [0, 1, 1], "train": [0, 1, 2],
        "validation": [], "test": [], "names": ("ann", "bob", "eve"), **change,
    }  # fmt: skip
    with pytest.raises(GossamerError) as caught:
        make_graph("people", **given)
    assert message in str(caught.value)
    with pytest.raises(GossamerError) as caught:  # without names by number
        make_graph("people", **given | {"names": None})
    assert message.replace("'ann'", "0").replace("'bob'", "1").replace("'eve'", "2") in str(caught.value)


def test_vertices_are_selected_with_the_edges_between_them() -> None:
    graph = make_graph(
        "line",
        [[0, 1], [1, 2], [2, 3], [1, 3]],
        np.arange(8.0).reshape(4, 2),
        np.array([0, 1, 1, 0]),
        train=np.array([True, False, True, False]),
        validation=np.array([False, True, False, False]),
        test=np.array([False, False, False, True]),
        weights=np.array([1.0, 2.0, 3.0, 4.0]),
        names=("a", "b", "c", "d"),
    )
    found = graph.select_vertices(np.array([False, True, True, True]))
    assert found.edges.tolist() == [[0, 1], [0, 2], [1, 2]]
    assert found.weights.tolist() == [2.0, 4.0, 3.0]
    assert found.features.tolist() == [[2, 3], [4, 5], [6, 7]]
    assert (found.targets.tolist(), found.train.tolist()) == ([1, 1, 0], [False, True, False])
    assert (found.names, found.num_classes) == (("b", "c", "d"), 2)
    assert graph.select_vertices(np.ones(4, dtype=bool)) is graph
