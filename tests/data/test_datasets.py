"""The named data sets have the sizes of Table I and splits that their seed alone decides."""

import os
from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import csgraph
from threadpoolctl import threadpool_limits

from gossamer.data import DATASETS, DataGraph, NamedDataset, load
from gossamer.data.fetch import SOURCES
from gossamer.data.splits import split_by_class
from gossamer.errors import GossamerError

MASKS = ("train", "validation", "test")


@pytest.fixture(scope="module")
def digits() -> DataGraph:
    return load("digits")


def is_present(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Skip where the file is not in GOSSAMER_DATA, and make sure that nothing else is read."""
    folder = os.environ.get("GOSSAMER_DATA")
    if not folder or not (Path(folder) / SOURCES[name].path).is_file():
        pytest.skip(f"{SOURCES[name].path} is not in GOSSAMER_DATA ({folder or 'not set'})")
    monkeypatch.setenv("GOSSAMER_CACHE", str(tmp_path))


def assert_disjoint(graph: DataGraph) -> None:
    assert (graph.train.astype(int) + graph.validation + graph.test).max() == 1


def test_digits_sizes(digits: DataGraph) -> None:
    assert (digits.num_vertices, digits.num_edges, digits.num_features, digits.num_classes) == (1797, 9928, 64, 10)
    assert csgraph.connected_components(digits.adjacency)[0] == 1
    assert (digits.features.min(), digits.features.max()) == (0.0, 1.0)
    assert set(digits.weights) == {1.0}


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_digits_does_not_depend_on_the_number_of_threads(digits: DataGraph, threads: int) -> None:
    with threadpool_limits(threads):
        np.testing.assert_array_equal(load("digits").edges, digits.edges)


def test_digits_split(digits: DataGraph) -> None:
    np.testing.assert_array_equal(np.bincount(digits.targets[digits.train]), np.full(10, 10))
    assert (digits.validation.sum(), digits.test.sum()) == (500, 1197)
    assert_disjoint(digits)


def test_an_edge_of_digits_joins_near_images(digits: DataGraph) -> None:
    distance = ((digits.features[:, None].astype(np.float64)[:200] - digits.features[None]) ** 2).sum(-1)
    eight = np.sort(distance, axis=1)[:, 8]
    adjacency = digits.adjacency[:200].toarray() > 0
    for i in range(200):
        nearer = (distance[i] < eight[i]) & (np.arange(1797) != i)
        assert adjacency[i][nearer].all()


@pytest.mark.parametrize("name", MASKS)
def test_digits_masks_depend_on_the_seed_only(digits: DataGraph, name: str) -> None:
    np.testing.assert_array_equal(getattr(load("digits", seed=0), name), getattr(digits, name))
    assert (getattr(load("digits", seed=1), name) != getattr(digits, name)).any()


@pytest.mark.parametrize(
    ("name", "sizes", "split"),
    [
        ("cora", (2810, 7981, 2879, 7), (140, 500, 2170)),
        ("citeseer", (2110, 3668, 3703, 6), (120, 500, 1490)),
        ("pubmed", (19717, 44324, 500, 3), (60, 500, 1000)),
        ("coauthor-physics", (34493, 247962, 8415, 5), (100, 500, 33893)),
    ],
)
def test_sizes_of_table_one(
    name: str,
    sizes: tuple[int, int, int, int],
    split: tuple[int, int, int],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    is_present(name, monkeypatch, tmp_path)
    graph = load(name)
    assert (graph.num_vertices, graph.num_edges, graph.num_features, graph.num_classes) == sizes
    assert tuple(getattr(graph, mask).sum() for mask in MASKS) == split
    np.testing.assert_array_equal(np.bincount(graph.targets[graph.train]), np.full(sizes[3], 20))
    assert_disjoint(graph)
    assert csgraph.connected_components(graph.adjacency)[0] == 1
    assert set(graph.weights) == {1.0}


def test_citeseers_features_are_binary(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    is_present("citeseer", monkeypatch, tmp_path)
    assert set(load("citeseer").features.data) == {1.0}


def test_pubmed_brings_its_own_split(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    is_present("pubmed", monkeypatch, tmp_path)
    with np.load(Path(os.environ["GOSSAMER_DATA"]) / SOURCES["pubmed"].path) as file:
        own = {mask: np.sort(file[key]) for mask, key in zip(MASKS, ("train_idx", "val_idx", "test_idx"), strict=True)}
    for seed in (0, 1):
        graph = load("pubmed", seed=seed)
        for mask in MASKS:
            np.testing.assert_array_equal(np.flatnonzero(getattr(graph, mask)), own[mask])


def test_coras_split_is_drawn_from_the_seed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    is_present("cora", monkeypatch, tmp_path)
    np.testing.assert_array_equal(load("cora", seed=3).train, load("cora", seed=3).train)
    assert (load("cora", seed=3).train != load("cora", seed=4).train).any()


def test_an_unknown_name_gets_a_hint() -> None:
    with pytest.raises(GossamerError, match=r"called 'coar'; did you mean 'cora'\?"):
        load("coar")
    with pytest.raises(GossamerError, match=rf"called 'nothing-like-it'\..*{', '.join(DATASETS)}"):
        load("nothing-like-it")


def test_split_leaves_unknown_labels_out() -> None:
    labels = np.array([0, 0, 0, 1, 1, 1, -1, -1])
    masks = split_by_class(labels, per_class=1, num_validation=2, seed=0)
    np.testing.assert_array_equal(np.bincount(labels[masks["train"]]), [1, 1])
    assert masks["validation"].sum() == 2
    np.testing.assert_array_equal(sum(mask.astype(int) for mask in masks.values()), [1, 1, 1, 1, 1, 1, 0, 0])


def test_split_refuses_small_classes_and_too_little_rest() -> None:
    with pytest.raises(GossamerError, match="class 1 has 2 vertices, too few to train on 2"):
        split_by_class(np.array([0, 0, 0, 1, 1]), per_class=2, num_validation=1, seed=0)
    with pytest.raises(GossamerError, match=r"2 labelled vertices are left.*expected more than 2"):
        split_by_class(np.array([0, 0, 1, 1]), per_class=1, num_validation=2, seed=0)


def test_a_data_set_added_from_outside_is_found_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(
        DATASETS, "few", NamedDataset(lambda name, seed, progress: load("blocks:vertices=200,edges=600"))
    )
    assert load("few").num_vertices == 200
    with pytest.raises(GossamerError, match="called 'few:300'"):
        load("few:300")
    monkeypatch.setitem(
        DATASETS,
        "few",
        NamedDataset(lambda name, seed, progress: load(f"blocks:vertices={name[4:]},edges=900"), parameters=True),
    )
    assert load("few:300").num_vertices == 300
