"""Every file that is read back, damaged in thousands of ways, either opens or is refused by an error that names it."""

import json
import resource
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from agents.cases import make_case
from runs.damage import TEXTS, damaged_bytes, damaged_json, damaged_tensors, store

from gossamer.api import train
from gossamer.data import DataGraph
from gossamer.data.site import SiteData
from gossamer.engines.cluster.rank_shards import cut_for_ranks, read_rank_shard
from gossamer.engines.simulation import start_run
from gossamer.errors import GossamerError
from gossamer.experiments.reproduction import Cache
from gossamer.peers.checkpoints import CheckpointStore
from gossamer.peers.evaluation import PeerEvaluation
from gossamer.peers.evaluation_log import EvaluationLog, read_evaluation_log
from gossamer.peers.local_processes import write_local_shards
from gossamer.peers.network.addresses import Contact
from gossamer.peers.shards.shard import read_shard
from gossamer.peers.shards.sites import SiteShard, _row_of_c, read_site_shard, write_site_shard
from gossamer.runs import directory
from gossamer.runs.deployment import make_deployment
from gossamer.runs.hosts import build_share_host
from gossamer.runs.run import Run
from gossamer.runs.run_json import read_run_settings
from gossamer.runs.settings import Settings, make_settings
from gossamer.runs.tensors import read_tensors

MEMORY = 1 << 30  # bytes that a reader may take, at most
SECONDS = 5.0
AGENTS = 4
BASE = {"dataset": "case", "agents": AGENTS, "hidden": 5, "steps": 4, "topology": "complete", "dtype": "float64"}


@pytest.fixture(autouse=True)
def bounded_memory(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A read that asks for more than MEMORY fails with a MemoryError, which is no GossamerError."""
    monkeypatch.setattr("os.fsync", lambda file: None)  # thousands of files that nobody needs tomorrow
    before = resource.getrlimit(resource.RLIMIT_AS)
    mapped = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (mapped + MEMORY, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


@dataclass
class Reader:
    """Files and what reads them; `named` must stand in every error."""

    read: Callable[[], Any]
    named: str
    opened: int = 0
    refused: int = 0

    def __call__(self) -> None:
        began = time.monotonic()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                self.read()
            message = None
        except GossamerError as error:
            message = str(error)
        assert time.monotonic() - began < SECONDS
        self.opened += message is None
        self.refused += message is not None
        assert message is None or (self.named in message and len(message.splitlines()) == 1 and len(message) < 1000), (
            message
        )

    def over_bytes(self, path: Path, count: int) -> None:
        whole = path.read_bytes()
        for content in [*TEXTS, *damaged_bytes(whole, count, seed=0)]:
            path.write_bytes(content)
            self()
        path.write_bytes(whole)
        self()
        assert self.opened

    def over_json(self, path: Path) -> None:
        whole = path.read_text()
        for text in damaged_json(json.loads(whole.splitlines()[0] if path.suffix == ".jsonl" else whole)):
            path.write_text(text)
            self()
        path.write_text(whole)

    def over_tensors(self, path: Path) -> None:
        whole = read_tensors(path)
        beside = path.parent / "shard.json"
        manifest = beside.read_bytes() if beside.is_file() else None
        for tensors in damaged_tensors({name: part.clone() for name, part in whole.items()}, seed=0):
            store(path, tensors)
            self()
        store(path, whole)
        if manifest is not None:
            beside.write_bytes(manifest)


def graph_for(kind: str) -> DataGraph:
    return make_case(n=30, batch=3 if kind == "times" else None, sparse_features=kind == "sparse").graph


@pytest.mark.parametrize("kind", ["dense", "sparse", "times"])
def test_the_shard_of_an_agent(kind: str, tmp_path: Path) -> None:
    """A file that opens can be planned from, too."""
    more = {"layers": "chebyshev", "order": 2, "bias": True} if kind == "sparse" else {}
    settings = make_settings(BASE | more)
    folder = write_local_shards(tmp_path, make_deployment(graph_for(kind), settings), settings)[1]

    def read() -> None:
        shard = read_shard(folder)
        build_share_host(shard.share, shard.settings)

    reader = Reader(read, str(folder))
    reader.over_tensors(folder / "share.safetensors")
    if kind == "dense":
        reader.over_json(folder / "shard.json")
        reader.over_bytes(folder / "shard.json", 300)
    reader.over_bytes(folder / "share.safetensors", 100)
    assert reader.refused > 200


def site_shard(folder: Path) -> SiteShard:
    settings = make_settings(BASE)
    deployment = make_deployment(graph_for("dense"), settings)
    shard = read_shard(write_local_shards(folder / "cut", deployment, settings)[1])
    graph, owner, k = deployment.graph, deployment.assignment, shard.membership.agent
    touching = (owner[graph.edges] == k).any(1)
    vertices = np.union1d(np.flatnonzero(owner == k), graph.edges[touching])
    data = SiteData(
        vertices,
        owner[vertices],
        np.searchsorted(vertices, graph.edges[touching]),
        graph.weights[touching],
        shard.share.features,
        shard.share.targets,
        shard.share.masks,
        graph.num_classes,
    )
    return SiteShard(replace(shard.membership, run="run"), data, deployment.combination[k], settings)


def test_the_shard_of_a_site(tmp_path: Path) -> None:
    folder = tmp_path / "site"
    write_site_shard(folder, site_shard(tmp_path))
    reader = Reader(lambda: read_site_shard(folder).site, str(folder))
    reader.over_tensors(folder / "site.safetensors")
    reader.over_json(folder / "shard.json")
    reader.over_bytes(folder / "site.safetensors", 50)
    assert reader.refused > 200


def test_the_shard_of_a_rank(tmp_path: Path) -> None:
    folder, settings = tmp_path / "cut", make_settings(BASE)
    cut_for_ranks(folder, graph_for("dense"), settings, 2)

    def read() -> None:
        share = read_rank_shard(folder / "rank-1", 1, 2, settings)
        build_share_host(share, settings)

    reader = Reader(read, str(folder / "rank-1"))
    reader.over_tensors(folder / "rank-1" / "share.safetensors")
    reader.over_json(folder / "rank-1" / "shard.json")
    plan = Reader(lambda: directory.read_plan(folder), str(folder))
    plan.over_json(folder / "run.json")
    assert plan.opened
    assert min(reader.refused, plan.refused) > 200


@pytest.fixture
def run_folder(tmp_path: Path) -> tuple[Path, DataGraph]:
    graph = graph_for("dense")
    train(graph, make_settings(BASE | {"evaluate_every": 2, "checkpoint_every": 2}), out=tmp_path / "run")
    return tmp_path / "run", graph


def test_the_files_of_a_run_directory(run_folder: tuple[Path, DataGraph]) -> None:
    folder, graph = run_folder
    manifest = Reader(lambda: read_run_settings(folder), str(folder))
    manifest.over_json(folder / "run.json")
    manifest.over_bytes(folder / "run.json", 300)
    references = Reader(lambda: directory.read_references(folder), str(folder))
    references.over_json(folder / "references.jsonl")
    references.over_bytes(folder / "references.jsonl", 100)
    weights = Reader(lambda: directory.read_weights(folder, graph, start_run), str(folder))
    weights.over_tensors(folder / "network.safetensors")
    weights.over_tensors(folder / "weights.safetensors")
    weights.over_bytes(folder / "weights.safetensors", 30)
    assert min(manifest.refused, references.refused, weights.refused) > 50


def test_what_a_resumed_run_reads(run_folder: tuple[Path, DataGraph]) -> None:
    """A checkpoint that does not fit is passed over for the one before it, which is no worse than the whole one."""
    folder, graph = run_folder
    (folder / "checkpoint.previous.safetensors").unlink()
    started = directory.read_start(folder, graph, start_run)

    def start(graph: DataGraph, settings: Settings, *arguments: Any, **given: Any) -> Run:
        """Planned once: no file that is damaged here is read before."""
        assert settings == started.settings
        return replace(started, history=[])

    reader = Reader(lambda: directory.read_run(folder, graph, start), str(folder))
    reader.over_tensors(folder / "checkpoint.safetensors")
    reader.over_bytes(folder / "checkpoint.safetensors", 30)
    whole = (folder / "metrics.jsonl").read_bytes()
    for content in (
        *damaged_bytes(whole, 60, seed=1),
        *map(str.encode, damaged_json(json.loads(whole.splitlines()[0]))),
    ):
        (folder / "metrics.jsonl").write_bytes(content)
        reader()
    assert reader.refused > 100


def test_what_a_peer_keeps(tmp_path: Path) -> None:
    folder = tmp_path
    records = EvaluationLog(folder / "metrics.jsonl")
    for step in (0, 5):
        sums = {name: torch.tensor([1.0, float("nan"), 2.0, 0.0, 0.5, 1.0]) for name in ("train", "validation", "test")}
        records.add(PeerEvaluation(step, sums))
    reader = Reader(lambda: read_evaluation_log(folder / "metrics.jsonl"), str(folder))
    reader.over_json(folder / "metrics.jsonl")
    reader.over_bytes(folder / "metrics.jsonl", 200)
    params, state = {"w": torch.ones(1, 3, 2)}, {"v": torch.zeros(1, 3, 2)}
    CheckpointStore(folder, 3, params, state).save(4, params, state)
    path = folder / "checkpoint-4.safetensors"

    def read() -> None:
        """A damaged checkpoint is set aside when the agent starts, and not offered."""
        disk = CheckpointStore(folder, 3, params, state)
        assert disk.steps() in ([0], [0, 4])
        disk.load(disk.steps()[-1])

    disk = Reader(read, str(folder))
    whole = path.read_bytes()
    disk.over_bytes(path, 100)
    for tensors in damaged_tensors(read_tensors(path), seed=0):
        path.write_bytes(whole)
        store(path, tensors)
        disk()
    for text in (b"", b"-1", b"x", b"9" * 5000, b"\xff", b"1" * 90, str(2**62).encode()):
        (folder / "epoch").write_bytes(text)
        with pytest.raises(GossamerError, match="epoch"):
            CheckpointStore(folder, 3, params, state).epoch()


def test_a_combination_matrix_and_a_cached_result(tmp_path: Path) -> None:
    neighbours = {z: Contact(f"h:{z}", None) for z in (1, 2, 3)}
    path = tmp_path / "topology.json"
    path.write_text(json.dumps({"combination": np.full((4, 4), 0.25).tolist(), "spectrum": [1.0]}))
    matrix = Reader(lambda: _row_of_c(path, 0, 4, neighbours), str(path))
    matrix.over_json(path)
    matrix.over_bytes(path, 100)
    cache = Cache(tmp_path / "cache")
    cache.store({"a": 1}, {"loss": [1.0, 2.0]})
    (stored,) = (tmp_path / "cache").iterdir()

    def read() -> None:
        assert cache.find({"a": 1}) in (None, {"loss": [1.0, 2.0]})

    reader = Reader(read, str(stored))
    reader.over_bytes(stored, 300)
    assert min(matrix.refused, reader.refused) > 100
