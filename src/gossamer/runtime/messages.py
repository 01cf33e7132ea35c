"""Counts what a step sends, by phase and link, beside the paper's own count B_kz H (Sec. III-B)."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gossamer.agents.links import Link
from gossamer.agents.plan import message_rows
from gossamer.runtime.deployment import Deployment
from gossamer.runtime.settings import Settings

Facts = dict[str, Any]


def facts_of(deployment: Deployment) -> Facts:
    """What a reader wants to know of data and topology."""
    graph, certificate = deployment.graph, deployment.certificate
    return {
        "name": graph.name,
        "num_vertices": graph.num_vertices,
        "num_edges": graph.num_edges,
        "num_classes": graph.num_classes,
        "num_links": int(np.triu(deployment.links, 1).sum()),
        "added_links": certificate.num_added,
        "spectral_radius": certificate.assumptions.spectral_radius,
        "edges_kept": deployment.edges_kept,
    }


def total_bytes(messages: Mapping[str, Any], settings: Settings, steps: int) -> int:
    """Of all rows and weights in so many steps."""
    mixed = steps // settings.consensus_every if settings.consensus_every else 0
    rows = messages["forward"]["bytes"] + messages["backward"]["bytes"]
    return int(rows * steps + messages["consensus"]["bytes"] * mixed)


def count_messages(
    deployment: Deployment, settings: Settings, hosting: NDArray[np.int64] | None = None
) -> dict[str, Any]:
    """Messages of one step by phase, of one evaluation, by link, and as the paper counts.

    With `hosting`, the host of each agent [m], only those between hosts; weights go to a host once.

    A row is one vertex's vector; in consensus it is one agent's weights. The paper's count is B_kz rows for every
    propagation and direction, forward only. Bytes are those of all time steps of a step: a mini-batch's, or all that
    hold a training example.
    """
    graph, network = deployment.graph, deployment.network
    size = settings.torch_dtype.itemsize
    filters = [layer.filter for layer in network.layers]
    widths = [layer.outputs * size for layer in network.layers]
    training = message_rows(deployment.shift, filters, graph.labelled, deployment.assignment)
    full = message_rows(deployment.shift, filters, np.ones(graph.num_vertices, dtype=bool), deployment.assignment)
    times = 1 if graph.batch is None else settings.batch or int(graph.train.any(0).sum())
    rows: dict[Link, int] = {}
    moved: dict[Link, int] = {}
    for width, rounds in zip(widths, training, strict=True):
        for one in rounds:
            for link, count in one.items():
                rows[link] = rows.get(link, 0) + count
                moved[link] = moved.get(link, 0) + count * times * width
    vector = network.num_parameters * size if settings.consensus_every else 0
    links = []
    host = np.arange(deployment.num_agents) if hosting is None else hosting
    told: set[tuple[int, int]] = set()  # who has sent its weights to which host
    for k, z in zip(*np.nonzero(deployment.links & (host[:, None] != host)), strict=True):
        weights = int(bool(vector) and deployment.combination[k, z] != 0 and (k, host[z]) not in told)
        told.add((k, host[z]))
        here, back = Link(int(k), int(z)), Link(int(z), int(k))
        links.append(
            {
                "sender": here.sender,
                "receiver": here.receiver,
                "forward_rows": rows.get(here, 0),
                "forward_bytes": moved.get(here, 0),
                "backward_rows": rows.get(back, 0),
                "backward_bytes": moved.get(back, 0),
                "consensus_rows": weights,
                "consensus_bytes": weights * vector,
                "shared_edges": int(deployment.shared_edges[k, z]),
            }
        )
    phases = {
        phase: {unit: sum(link[f"{phase}_{unit}"] for link in links) for unit in ("rows", "bytes")}
        for phase in ("forward", "backward", "consensus")
    }
    batch = graph.batch or 1
    evaluation = {
        "rows": sum(sum(one.values()) for rounds in full for one in rounds),
        "bytes": sum(
            sum(one.values()) * width * batch for width, rounds in zip(widths, full, strict=True) for one in rounds
        ),
    }
    both_ways = int(deployment.shared_edges.sum())
    return {
        **phases,
        "evaluation": evaluation,
        "paper": {
            "rows": both_ways * sum(len(rounds) for rounds in full),
            "bytes": both_ways * times * sum(len(rounds) * width for width, rounds in zip(widths, full, strict=True)),
        },
        "links": links,
    }
