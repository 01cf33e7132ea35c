"""Minesweeper by name, and the npz layout of the heterophilous benchmark graphs: fixed splits, and what is refused."""

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gossamer
from gossamer.api import load_graph
from gossamer.data import DATASETS, NamedDataset, heterophilous, load
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


def put_small(monkeypatch: pytest.MonkeyPatch, folder: Path, arrays: dict[str, Any]) -> None:
    """Let a small file be the one of minesweeper."""
    (folder / "graphs").mkdir()
    np.savez(folder / "graphs" / "minesweeper.npz", **arrays)
    monkeypatch.setenv("GOSSAMER_DATA", str(folder))
    source = replace(heterophilous.HETEROPHILOUS["minesweeper"], sizes=(N, N, N, 2))
    monkeypatch.setitem(heterophilous.HETEROPHILOUS, "minesweeper", source)
    named = NamedDataset(heterophilous.load_heterophilous, num_splits=SPLITS)
    monkeypatch.setitem(DATASETS, "minesweeper", named)


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
    with pytest.raises(GossamerError, match=r"not a graph in the npz layout.*val_masks"):
        load(write(tmp_path, arrays))


@pytest.mark.parametrize("split", range(SPLITS))
def test_a_split_is_chosen_by_its_number_whatever_the_seed(tmp_path: Path, split: int) -> None:
    arrays = content()
    graph = load(write(tmp_path, arrays), 1, split=split)
    np.testing.assert_array_equal(graph.train, arrays["train_masks"][split])
    np.testing.assert_array_equal(graph.validation, arrays["val_masks"][split])
    np.testing.assert_array_equal(graph.test, arrays["test_masks"][split])


def test_a_split_that_there_is_not_is_refused_with_those_that_there_are(tmp_path: Path) -> None:
    with pytest.raises(GossamerError, match=r"ring\.npz has the splits 0 to 2; got 3.*--split"):
        load(write(tmp_path, content()), split=3)
    with pytest.raises(GossamerError, match="minesweeper has the splits 0 to 9; got 10"):
        load("minesweeper", split=10)
    with pytest.raises(GossamerError, match=r"split = -1: .*greater than or equal to 0"):
        gossamer.train("minesweeper", split=-1)


def test_a_split_of_data_without_fixed_ones_is_refused(tmp_path: Path) -> None:
    graph = load("digits")
    saved = graph.save(tmp_path / "saved.npz")
    for data in ("digits", graph, saved, tmp_path):
        with pytest.raises(GossamerError, match=r"has no fixed splits to choose number 0 from.*leave --split"):
            load(data, split=0)
    with pytest.raises(GossamerError, match="has no fixed splits"):
        gossamer.train(graph, split=0, steps=0)


def test_minesweeper_by_name_has_split_0_for_every_seed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    arrays = content()
    put_small(monkeypatch, tmp_path, arrays)
    graph = load("minesweeper", 2)
    assert graph.name == "minesweeper"
    np.testing.assert_array_equal(graph.train, arrays["train_masks"][0])
    np.testing.assert_array_equal(load("minesweeper", 0, split=2).test, arrays["test_masks"][2])


def test_a_file_of_another_graph_is_not_taken_for_minesweeper(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    put_small(monkeypatch, tmp_path, content(node_features=np.eye(N)[:, :5]))
    with pytest.raises(GossamerError, match=r"should have \(12, 12, 12, 2\).*the file has \(12, 12, 5, 2\)"):
        load("minesweeper")
    np.savez(tmp_path / "graphs" / "minesweeper.npz", edges=np.zeros((1, 2)))
    with pytest.raises(GossamerError, match="not a graph in the layout of minesweeper: expected node_features"):
        load("minesweeper")


def test_a_run_is_stored_reloaded_and_resumed_with_its_split(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    arrays = content()
    put_small(monkeypatch, tmp_path, arrays)
    options = {"agents": 2, "topology": "complete", "baselines": False}
    whole = gossamer.train("minesweeper", split=2, steps=4, **options)  # type: ignore[arg-type]
    folder = tmp_path / "run"
    gossamer.train("minesweeper", split=2, steps=2, out=folder, **options)  # type: ignore[arg-type]
    assert json.loads((folder / "run.json").read_text())["settings"]["split"] == 2
    np.testing.assert_array_equal(load_graph(folder).train, arrays["train_masks"][2])
    resumed = gossamer.resume(folder, 4)
    assert resumed.summary["distributed"] == whole.summary["distributed"]
    again = gossamer.resume(folder, 4, graph=load("minesweeper", split=2))  # from memory: it has the split already
    assert again.summary["distributed"] == whole.summary["distributed"]
    with pytest.raises(GossamerError, match=r"is not the one that .* was trained on"):
        gossamer.resume(folder, 4, graph=load("minesweeper", split=1))


def test_the_published_file() -> None:
    path = Path(os.environ.get("GOSSAMER_DATA", "")) / "graphs" / "minesweeper.npz"
    if not path.is_file():
        pytest.skip("graphs/minesweeper.npz is not in GOSSAMER_DATA")
    graph, named = load(path, 3), load("minesweeper", split=3)
    assert (graph.num_vertices, graph.num_edges, graph.num_features, graph.num_classes) == (10000, 39402, 7, 2)
    assert (graph.train | graph.validation | graph.test).all()
    np.testing.assert_array_equal(named.train, graph.train)
    assert not (named.train == load("minesweeper").train).all()
