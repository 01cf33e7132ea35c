"""Assignments side by side: time, edge cut, balance and message rows of a step."""

from functools import partial
from typing import Any

import numpy as np

from gossamer.agents.plan import message_rows
from gossamer.assignment import assign
from gossamer.data import DataGraph
from gossamer.model import make_network, make_shift
from scaling.measure import timed


def compare(graph: DataGraph, agents: int, names: list[str]) -> dict[str, dict[str, float]]:
    shift = make_shift(graph.adjacency, "normalized")
    filters = [layer.gather for layer in make_network("gcn", graph.num_features, graph.num_outputs).layers]
    found = {}
    for name in names:
        seconds, owner = timed(partial(assign, graph, name, agents, 0))
        size = np.bincount(owner, minlength=agents)
        rows = message_rows(shift, filters, graph.labelled, owner)
        i, j = graph.edges.T
        found[name] = {
            "seconds": seconds,
            "cut": float((owner[i] != owner[j]).mean()),
            "largest": float(size.max() / size.mean()),
            "rows": sum(sum(one.values()) for rounds in rows for one in rounds),
        }
    return found


def show(graph: DataGraph, agents: int, found: dict[str, Any]) -> None:
    print(f"\nassignments of {graph.num_vertices:,} vertices, {graph.num_edges:,} edges to {agents} agents")
    print("  method      seconds  edges cut  largest part  message rows of a step")
    for name, one in found.items():
        print(f"  {name:10s} {one['seconds']:8.1f} {one['cut']:10.3f} {one['largest']:13.2f} {one['rows']:>14,}")
