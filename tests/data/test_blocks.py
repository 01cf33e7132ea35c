"""Generated graphs: they have their parameters, depend on the seed alone, and help a classifier."""

import numpy as np
import pytest
from scipy.sparse import csgraph

import gossamer
from gossamer import api
from gossamer.assignment import assign_uniformly
from gossamer.data import DATASETS, load
from gossamer.errors import GossamerError
from gossamer.runs.settings import make_settings

SMALL = "blocks:vertices=600,edges=4000,features=12,classes=4,blocks=20"


def test_sizes_are_exact_and_the_graph_is_whole() -> None:
    graph = load(SMALL)
    assert (graph.num_vertices, graph.num_edges, graph.num_features, graph.num_classes) == (600, 4000, 12, 4)
    assert graph.features.dtype == np.float32
    assert (graph.train.sum(), graph.validation.sum(), graph.test.sum()) == (60, 60, 480)
    assert not (graph.train & graph.validation | graph.train & graph.test | graph.validation & graph.test).any()
    assert csgraph.connected_components(graph.adjacency)[0] == 1
    assert (np.diff(graph.edges, axis=1) > 0).all()
    assert len({tuple(edge) for edge in graph.edges.tolist()}) == 4000


def test_a_tree_is_the_sparsest() -> None:
    graph = load("blocks:vertices=200,edges=199,classes=2,blocks=7")
    assert graph.num_edges == 199
    assert csgraph.connected_components(graph.adjacency)[0] == 1


def test_the_seed_in_the_name_draws_the_graph_and_the_other_the_split() -> None:
    one, same, split, other = (load(SMALL, 0), load(SMALL, 0), load(SMALL, 1), load(f"{SMALL},seed=1", 0))
    assert one.fingerprint() == same.fingerprint()
    for name in ("edges", "features", "targets"):
        np.testing.assert_array_equal(getattr(one, name), getattr(split, name))
        assert (getattr(one, name) != getattr(other, name)).any()
    assert (one.train != split.train).any()


def test_edges_stay_inside_blocks_as_often_as_asked() -> None:
    """A block for each class: an edge drawn anywhere stays in it with probability 1/4, the tree's tenth always."""
    for inside in (0.0, 0.5, 1.0):
        graph = load(f"blocks:vertices=2000,edges=20000,classes=4,blocks=4,inside={inside}")
        i, j = graph.targets[graph.edges].T
        assert abs((i == j).mean() - (0.1 + 0.9 * (inside + (1 - inside) / 4))) < 0.03


def test_degrees_follow_a_power_law() -> None:
    """The share of vertices above twice a high degree is about 2^-(exponent - 1) of the share above it."""
    graph = load("blocks:vertices=50000,edges=500000,features=2,exponent=2.5")
    degree = np.bincount(graph.edges.reshape(-1), minlength=50000)
    tail = (degree > 80).sum() / (degree > 40).sum()
    assert 0.6 < tail / 2**-1.5 < 1.4
    assert degree.max() > 15 * np.median(degree)


def test_a_graph_network_beats_a_plain_one() -> None:
    values = {"agents": 1, "topology": "complete", "steps": 60, "evaluate_every": 60, "update": "adam",
              "step_size": 0.02, "initial_deviation": 0.1, "dropout": 0.0, "hidden": 16}  # fmt: skip
    graph = load("blocks:vertices=1500,edges=12000,features=16,classes=4")
    found = api.train(graph, make_settings(values)).summary
    with_graph, without = (found[name]["test"]["accuracy"] for name in ("distributed", "graphless"))
    assert with_graph > without + 0.1


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ("vertexes=10", "expected each of vertices, edges.*got 'vertexes=10'"),
        ("vertices=100,vertices=200", "once at most.*got 'vertices=200'"),
        ("vertices=1e6", "vertices must be a whole number, got '1e6'"),
        ("inside=most", "inside must be a number, got 'most'"),
        ("vertices=20", "vertices at least 80"),
        ("vertices=1000,edges=998", "edges between 999 and 249750, got 998"),
        ("vertices=1000,edges=300000", "edges between 999 and 249750"),
        ("classes=1", "classes at least 2, got 1"),
        ("features=0", "features at least 1"),
        ("blocks=3", "blocks between 8 and 5000"),
        ("inside=1.5", "inside between 0 and 1"),
        ("inside=nan", "inside between 0 and 1"),
        ("exponent=2", "an exponent above 2"),
        ("signal=-1", "a signal of at least 0"),
        ("labelled=0.6", "labelled below 0.5"),
        ("seed=-1", "a seed of at least 0"),
        ("vertices=1000,edges=100000,blocks=400,inside=1", "its blocks are full; give fewer edges"),
    ],
)
def test_what_cannot_be_drawn_is_refused(parameters: str, message: str) -> None:
    with pytest.raises(GossamerError, match=message):
        load(f"blocks:{parameters}")


def test_the_name_alone_is_a_data_set() -> None:
    assert "blocks" in DATASETS
    assert gossamer.load("blocks").num_vertices == 10_000


def test_blocks_are_not_those_of_a_uniform_assignment_with_the_same_seed() -> None:
    graph = load("blocks:vertices=4000,edges=20000,classes=4,blocks=4,inside=1")
    i, j = assign_uniformly(4000, 4, 0)[graph.edges].T
    assert abs((i != j).mean() - 0.75) < 0.02


def test_no_edge_of_the_tree_is_left_out() -> None:
    """Without edges between the blocks the tree alone joins them; a broken one is warned of."""
    for seed in range(5):
        assert load(f"blocks:vertices=800,edges=2400,inside=1,features=2,seed={seed}").num_edges == 2400
