"""Contradictions in a share, a site or a manifest, one at a time, with right checksums; each error names its own."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from agents.cases import make_case
from runs.damage import store
from runs.test_damaged_files import AGENTS, BASE, site_shard

from gossamer.engines.cluster.rank_shards import cut_for_ranks, read_rank_shard
from gossamer.errors import GossamerError
from gossamer.peers.local_processes import write_local_shards
from gossamer.peers.shards.shard import read_shard
from gossamer.peers.shards.sites import read_site_shard, write_site_shard
from gossamer.runs.deployment import make_deployment
from gossamer.runs.settings import make_settings
from gossamer.runs.tensors import read_tensors

AGENT = 1
Change = Callable[[dict[str, Any]], Any]  # of the arrays by name, in place


def put(name: str, place: Any, value: Any) -> Change:
    return lambda arrays: arrays[name].__setitem__(place, value)


def hosted(arrays: dict[str, Any]) -> np.ndarray:
    return np.flatnonzero(arrays["owner"] == AGENT)


def flip_field(name: str, row: int) -> Change:
    """At the first hosted vertex."""

    def change(arrays: dict[str, Any]) -> None:
        arrays[name][row, hosted(arrays)[0]] ^= True

    return change


def miss_reached(arrays: dict[str, Any]) -> None:
    """Of another agent's vertices one that D reaches from a hosted output."""
    row, column, owner = arrays["shift.row"], arrays["shift.column"], arrays["owner"]
    place = np.flatnonzero((owner[row] == AGENT) & (owner[column] != AGENT))[0]
    arrays["field.full.1"][1, column[place]] = False


def move_entry(arrays: dict[str, Any]) -> None:
    other = np.flatnonzero(arrays["owner"] != AGENT)[0]
    arrays["shift.row"][0] = arrays["shift.column"][0] = other
    arrays["shift.row"].sort()


def unknown_class(arrays: dict[str, Any]) -> None:
    arrays["targets"][np.flatnonzero(arrays["mask.train"])[0]] = -1


SHARE: list[tuple[Change, str]] = [
    (put("vertices", 0, -1), "vertices should hold numbers 0 to"),
    (put("vertices", 0, 10**6), "vertices should hold ascending numbers"),
    (put("owner", 0, AGENTS), f"owner should hold numbers 0 to {AGENTS - 1}"),
    (put("shift.row", -1, 10**6), "shift.row should hold numbers 0 to"),
    (put("shift.column", 3, -1), "shift.column should hold numbers 0 to"),
    (
        lambda a: a["shift.row"].sort() or a["shift.row"].__setitem__(0, a["shift.row"][-1]),
        "shift.row should hold rows in",
    ),
    (move_entry, "shift.row should hold entries that touch"),
    (put("shift.value", 0, np.nan), "shift.value should hold finite numbers"),
    (flip_field("field.train.1", 0), "field.train.1 should hold the vertices with outputs first"),
    (put("field.full.1", (0, 0), False), "field.full.1 should hold the vertices with outputs first"),
    (flip_field("field.full.1", 1), "field.full.1 should hold the vertices that the shift operator reaches"),
    (miss_reached, "field.full.1 should hold the vertices that the shift operator reaches"),
    (flip_field("field.full.0", 0), "field.full.1 should hold the vertices whose outputs the layer before"),
    (put("features", (0, 0), np.inf), "features should hold finite numbers"),
    (put("targets", 0, 3), "targets should hold numbers -1 to 2"),
    (unknown_class, "targets should hold a known class"),
    (put("combination", (0, 0), np.nan), "combination should hold finite numbers"),
    (put("combination", (0, 0), 0.5), r"combination should hold rows that sum to 1 \(A1\)"),
    (put("combination", 0, 0.0), r"combination should hold no zero on the diagonal of C \(28\)"),
]
SITE: list[tuple[Change, str]] = [
    (put("owner", slice(None), 0), "owner should hold at least one vertex of agent 1"),
    (put("edges", 0, [5, 2]), "edges should hold pairs i < j"),
    (put("edges", (0, 1), 10**9), "edges should hold numbers 0 to"),
    (lambda a: a["edges"].__setitem__(1, a["edges"][0]), "edges should hold pairs i < j, ascending and each once"),
    (put("weights", 0, 0.0), "weights should hold positive numbers"),
    (put("combination", 0, 3.0), "combination should hold rows that sum to 1"),
    (lambda a: a.update(sample_weights=-np.ones(len(a["targets"]))), "sample_weights should hold numbers from 0 to"),
    (lambda a: a.update(sample_weights=np.ones(1)), r"sample_weights should hold float64 \["),
]


def change_tensors(path: Path, change: Change) -> None:
    arrays = {name: part.numpy().copy() for name, part in read_tensors(path).items()}
    change(arrays)
    store(path, {name: torch.from_numpy(part) for name, part in arrays.items()})


@pytest.fixture
def shard(tmp_path: Path) -> Path:
    settings = make_settings(BASE)
    graph = make_case(n=30, sparse_features=False).graph
    return write_local_shards(tmp_path, make_deployment(graph, settings), settings)[AGENT]


@pytest.mark.parametrize(("change", "message"), SHARE, ids=[message for _, message in SHARE])
def test_a_share_that_contradicts_itself(change: Change, message: str, shard: Path) -> None:
    read_shard(shard)
    change_tensors(shard / "share.safetensors", change)
    with pytest.raises(GossamerError, match=rf"share\.safetensors: {message}.*copy the shard again"):
        read_shard(shard)


WEIGHTED: list[tuple[Change, str]] = [
    (put("example_weights", 0, -1.0), "example_weights should hold numbers from 0 to"),
    (put("example_weights", 0, np.nan), "example_weights should hold finite numbers"),
    (put("example_weights", slice(None), 40.0), "example_weights should hold weights that sum to"),
    (put("positive_weight", 0, 0.0), "positive_weight should hold positive numbers"),
    (lambda a: a.update(positive_weight=np.ones(2)), r"positive_weight should hold float64 \[3\]"),
    (lambda a: a.update(example_weights=np.ones(2)), r"example_weights should hold float64 \["),
    (lambda a: a.update(targets=a["targets"][:, :2].copy()), r"targets should hold bool \["),
    (
        lambda a: a.update(targets=a["targets"].argmax(1)),
        "positive_weight should hold weights of labels, found some beside targets that are none",
    ),
]


def weighted_share(folder: Path) -> Path:
    settings = make_settings(BASE | {"class_weights": "balanced"})
    graph = make_case(n=30, sparse_features=False, task="multilabel", sampled=True).graph
    return write_local_shards(folder, make_deployment(graph, settings), settings)[AGENT]


@pytest.mark.parametrize(("change", "message"), WEIGHTED, ids=[message for _, message in WEIGHTED])
def test_a_weighted_share_of_labels_that_contradicts_itself(change: Change, message: str, tmp_path: Path) -> None:
    shard = weighted_share(tmp_path)
    share = read_shard(shard).share
    assert share.task == "multilabel"
    assert share.example_weights is not None
    assert share.positive_weight is not None
    change_tensors(shard / "share.safetensors", change)
    with pytest.raises(GossamerError, match=rf"share\.safetensors: {message}.*copy the shard again"):
        read_shard(shard)


@pytest.mark.parametrize(("change", "message"), SITE, ids=[message for _, message in SITE])
def test_a_site_that_contradicts_itself(change: Change, message: str, tmp_path: Path) -> None:
    folder = tmp_path / "site"
    write_site_shard(folder, site_shard(tmp_path))
    read_site_shard(folder)
    change_tensors(folder / "site.safetensors", change)
    with pytest.raises(GossamerError, match=rf"site\.safetensors: {message}"):
        read_site_shard(folder)


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("num_agents",), 5, "num_agents is 5 and settings.agents 4"),
        (("num_agents",), -1, "num_agents: Input should be greater than or equal to 1, found -1"),
        (("num_labelled",), 1, "no more examples and vertices than the manifest gives"),
        (("num_classes",), 10**9, "share.safetensors: 1 agents with .* parameters each take at least"),
        (("settings", "hidden"), [2**20] * 2, "share.safetensors: 1 agents with .* parameters each take at least"),
        (("settings", "agents"), 10**15, "agents = 1000000000000000"),
        (("settings", "agents"), 9, "num_agents is 4 and settings.agents 9"),
        (("settings", "batch"), 7, "settings.batch should be at most 0, the time steps with a training example"),
        (("members",), [None], "members should have 4 verify keys, found 1"),
        (("members",), ["~" * 40] * 4, "members.0: expected a public key of 40 characters"),
        (("settings", "order"), 2, r"field\.train\.0 should hold bool \[3"),
        (("settings", "x"), 2, "unknown setting 'x'"),
        (("keep",), 10**6, "keep should be at most"),
        (("agent",), 4, "agent should be 0 to 3"),
        (("agent",), 0, "neighbours should be numbered 0 to 3 without 0"),
        (("run",), "../x", "run: expected up to 64 letters"),
        (("neighbours",), {}, "neighbours should name at least one agent"),
        (("neighbours", "9"), {"address": "a:1", "key": None}, "neighbours should be numbered 0 to 3 without 1"),
        (("neighbours", "02"), {"address": "a:1", "key": None}, "neighbours should be numbered"),
        (("neighbours", "0", "key"), "#" * 40, "neighbours.0.key: expected a public key"),
        (("contact", "port"), 5, "unknown key contact.port"),
        (("checksums",), {"../x": "0" * 64}, "checksums should hold that of share.safetensors alone"),
    ],
    ids=str,
)
def test_a_manifest_that_does_not_fit(path: tuple[str, ...], value: Any, message: str, shard: Path) -> None:
    content = json.loads((shard / "shard.json").read_text())
    parent = content
    for key in path[:-1]:
        parent = parent[key]
    parent[path[-1]] = value
    (shard / "shard.json").write_text(json.dumps(content))
    with pytest.raises(GossamerError, match=message) as error:
        read_shard(shard)
    assert str(shard) in str(error.value)


def test_two_neighbours_with_one_key_and_vertices_of_a_stranger(shard: Path) -> None:
    content = json.loads((shard / "shard.json").read_text())
    whole = json.dumps(content)
    content["neighbours"]["0"]["key"] = content["neighbours"]["2"]["key"]
    (shard / "shard.json").write_text(json.dumps(content))
    with pytest.raises(GossamerError, match="two agents have the key"):
        read_shard(shard)
    content = json.loads(whole)
    del content["neighbours"]["2"]
    (shard / "shard.json").write_text(json.dumps(content))
    with pytest.raises(GossamerError, match=r"owner should hold the agents \[0, 1, 3\], found agent 2"):
        read_shard(shard)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (put("hosting", 0, 7), "hosting should hold numbers 0 to 1"),
        (lambda a: a.update(hosting=1 - a["hosting"]), "hosting should hold rank 1 for the agents"),
        (put("slots", 0, 1), "slots should hold numbers 3 to 3"),
    ],
    ids=["hosting", "agents", "slots"],
)
def test_the_share_of_a_rank_that_contradicts_itself(change: Change, message: str, tmp_path: Path) -> None:
    folder, settings = tmp_path / "cut", make_settings(BASE)
    cut_for_ranks(folder, make_case(n=30, sparse_features=False).graph, settings, 2)
    read_rank_shard(folder / "rank-1", 1, 2, settings)
    change_tensors(folder / "rank-1" / "share.safetensors", change)
    with pytest.raises(GossamerError, match=rf"share\.safetensors: {message}"):
        read_rank_shard(folder / "rank-1", 1, 2, settings)
