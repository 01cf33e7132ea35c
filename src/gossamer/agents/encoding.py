"""Encodings: what the first layer of a trained network makes of each vertex's own features, without the graph.

A run with an encoder first trains networks on the edges inside each agent, or on none: no row crosses a link. The
first layer of the last of them is then frozen. The graph network takes its outputs for features, so that rows show a
vertex's features through these numbers only.
"""

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from gossamer.agents.host import Host
from gossamer.agents.plan import walk_fields
from gossamer.agents.share import Share
from gossamer.generators import drive
from gossamer.model.gather import Gather, VertexMask


def encode_vertices(host: Host) -> Tensor:
    """The first layer's output for every hosted vertex [hosted, width], by vertex; no exchange takes place."""
    on, layer = host.full_pass, host.network.layers[0]
    if layer.gather.powers != (0,):
        raise AssertionError("an encoder sees one vertex at a time")
    weights = {name: host.params[f"layer.0.{name}"] for name in layer.parameters()}
    with torch.no_grad():
        offers = layer.offer(on.input(0, on.features, None), weights)
        rows = layer.finish(offers, on.plan.layers[0].outputs, weights)
    return rows[on.by_vertex]


def make_local_share(share: Share, gathers: list[Gather]) -> Share:
    """The share without the edges between agents, with the receptive fields of these gathers on what is left."""
    hosted = share.hosted
    outputs = np.zeros(len(share.vertices), dtype=bool)
    train = share.masks["train"]
    outputs[hosted] = train if train.ndim == 1 else train.any(1)
    topologies = []
    for one in share.topologies:
        i, j, values = one.entries
        inside = (share.owner[i] == share.owner[j]) & hosted[i]
        i, j, values = i[inside], j[inside], values[inside]

        def reach(rows: VertexMask, i: VertexMask = i, j: VertexMask = j) -> VertexMask:
            found = np.zeros(len(rows), dtype=bool)
            found[j[rows[i]]] = True
            return found

        train_fields, full_fields = (drive(walk_fields(gathers, field), reach) for field in (outputs, hosted))
        topologies.append(replace(one, entries=(i, j, values), train_fields=train_fields, full_fields=full_fields))
    return replace(share, topologies=tuple(topologies), routes=None)
