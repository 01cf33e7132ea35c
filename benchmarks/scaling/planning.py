"""Planning beside reading: from an assignment to hosts, to message counts and to shards."""

from typing import Any

import numpy as np

import gossamer
from gossamer.agents.share import make_share
from gossamer.assignment import partition_stream
from gossamer.data import DataGraph
from gossamer.runs.deployment import make_deployment
from gossamer.runs.hosts import build_host, prepare_cut
from gossamer.runs.message_counts import count_messages
from gossamer.runs.settings import Settings, make_settings
from scaling.measure import on_the_processor as timed


def write_npz(graph: DataGraph, path: str) -> None:
    """The graph in the npz layout of docs/data.md."""
    a = graph.adjacency
    arrays = {"data": a.data.astype(np.float32), "indices": a.indices, "indptr": a.indptr, "shape": np.array(a.shape)}
    split = {"train_idx": graph.train, "val_idx": graph.validation, "test_idx": graph.test}
    indices: dict[str, Any] = {name: np.flatnonzero(mask) for name, mask in split.items()}
    np.savez(
        path,
        **{f"adj_matrix.{name}": array for name, array in arrays.items()},
        features=graph.features,
        labels=graph.targets,
        **indices,
    )


def compare(path: str, agents: int) -> dict[str, float]:
    """Processor seconds, which a busy machine changes little, of reading, partitioning and each part of planning."""
    reading, graph = timed(lambda: gossamer.load(path))
    settings = make_settings({"preset": "paper", "agents": agents, "topology": "needed"})
    partition, owner = timed(lambda: partition_stream(graph.adjacency, agents, 0))
    deploying, deployment = timed(lambda: make_deployment(graph, settings, assignment=owner))
    hosting, _ = timed(lambda: build_host(deployment, settings))
    counting, _ = timed(lambda: count_messages(deployment, settings))
    sharing, _ = timed(lambda: _cut_all(deployment, settings))
    return {
        "reading": reading,
        "partitioning": partition,
        "links, C and D": deploying,
        "fields and plans of a host": hosting,
        "message rows, train and evaluation": counting,
        "shares of all agents": sharing,
    }


def _cut_all(deployment: Any, settings: Settings) -> None:
    whole = prepare_cut(deployment, settings)
    for k in range(settings.agents):
        make_share(whole, [k])


def show(found: dict[str, float]) -> None:
    print("\nplanning beside reading, processor seconds")
    for name, seconds in found.items():
        print(f"  {name:36s} {seconds:7.1f} s  {seconds / found['reading']:5.2f} x reading")
    planned = found["links, C and D"] + found["fields and plans of a host"]
    print(f"  {'planned':36s} {planned:7.1f} s  {planned / found['reading']:5.2f} x reading")
