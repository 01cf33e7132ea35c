"""Message counts of a step, by phase and link, beside the paper's own count B_kz H (Sec. III-B)."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from gossamer.agents.host import choose_chunk
from gossamer.agents.links import Link
from gossamer.agents.plan import message_rows
from gossamer.data import name_classes
from gossamer.model import Layer
from gossamer.model.gather import Gather
from gossamer.runs.changing_counts import count_changing
from gossamer.runs.deployment import Deployment
from gossamer.runs.records import ByteCount, Description, MessageCounts, PhaseName, RelayedCount, RowCount
from gossamer.runs.row_traffic import RowTraffic
from gossamer.runs.settings import Settings


def describe_deployment(deployment: Deployment) -> Description:
    """Data and topology in numbers, for reports."""
    graph, certificate = deployment.graph, deployment.certificate
    return {
        "name": graph.name,
        "num_vertices": graph.num_vertices,
        "num_edges": graph.num_edges,
        "num_classes": graph.num_classes,
        "class_names": name_classes(graph),
        "task": graph.task,
        "num_links": int(np.triu(deployment.links, 1).sum()),
        "added_links": certificate.num_added_links,
        "spectral_radius": certificate.assumptions.spectral_radius,
        "edges_kept": deployment.edges_kept,
        "edges_relayed": deployment.edges_relayed,
    }


def total_bytes(messages: MessageCounts, settings: Settings, steps: int) -> int:
    """Bytes of all rows and weights in `steps` steps."""
    mixed = steps // settings.consensus_every if settings.consensus_every else 0
    rows = messages["forward"]["bytes"] + messages["backward"]["bytes"]
    return int(rows * steps + messages["consensus"]["bytes"] * mixed)


def between_hosts(deployment: Deployment, settings: Settings, hosting: NDArray[np.int64]) -> dict[str, int]:
    """Bytes that a step moves between hosts, by phase; `hosting` is the host of each agent [m].

    Hosts send directly what peers relay.
    """
    steps = [_bytes_between(deployment.at(number), settings, hosting) for number in range(len(deployment.topologies))]
    return {phase: round(sum(one[phase] for one in steps) / len(steps)) for phase in steps[0]}


def _bytes_between(deployment: Deployment, settings: Settings, hosting: NDArray[np.int64]) -> dict[str, int]:
    apart = settings.row_codec is not None  # it sees the rows of every pair of agents
    endpoint = deployment.assignment if apart else hosting[deployment.assignment]
    moved = _training_traffic(deployment, settings, endpoint).moved
    if apart:
        moved = Counter(
            {link: count for link, count in moved.items() if hosting[link.sender] != hosting[link.receiver]}
        )
    k, z = np.nonzero(deployment.combination)
    # A host is sent one vector for each agent with neighbours there (C is symmetric), or one for each link.
    whom = z if settings.consensus_method.pairwise else hosting[z]
    pairs = np.unique(np.stack([k, whom])[:, hosting[k] != hosting[z]], axis=1).shape[1]
    return {
        "forward": sum(moved.values()),
        "backward": sum(moved.values()),
        "consensus": pairs * _vectors(settings) * _vector_bytes(deployment, settings),
    }


def count_messages(deployment: Deployment, settings: Settings) -> MessageCounts:
    """Messages of one step (`_count_step`); where links change, the mean over the topologies or over the steps of a
    sequence, rounded."""
    parts = [deployment.at(number) for number in range(len(deployment.topologies))]
    traffic = [_training_traffic(part, settings, part.assignment) for part in parts]
    counts = [_count_step(part, settings, between) for part, between in zip(parts, traffic, strict=True)]
    if deployment.deliveries is not None:  # of one topology
        return count_changing(counts[0], deployment, traffic[0], settings.steps, settings.consensus_every)
    return counts[0] if len(counts) == 1 else _average(counts)


def _count_step(deployment: Deployment, settings: Settings, between: RowTraffic) -> MessageCounts:
    """Messages of one step by phase, of one evaluation, by link, and as the paper counts, from the training step's
    forward pass `between` agents.

    A row is one vertex's vector; in consensus it is one agent's weights, or its tracker. A relayed row counts on every
    link of its route; `relayed` has those of both passes. The paper's count is B_kz rows for every propagation and
    direction, forward only. Bytes are those of all time steps of a step: a mini-batch's, or all that hold a training
    example. `plain` has the bytes of the same step in float32, neither compressed nor tracked.
    """
    routes = deployment.topologies[0].routes
    training = between.over_links(routes)
    relayed = between.select_relayed(routes)
    hops = relayed.over_links(routes)
    vector = _vector_bytes(deployment, settings)
    links = []
    for k, z in zip(*np.nonzero(deployment.links), strict=True):
        weights = _vectors(settings) if deployment.combination[k, z] != 0 else 0
        here, back = Link(int(k), int(z)), Link(int(z), int(k))
        links.append(
            {
                "sender": here.sender,
                "receiver": here.receiver,
                "forward_rows": training.rows[here],
                "forward_bytes": training.moved[here],
                "backward_rows": training.rows[back],
                "backward_bytes": training.moved[back],
                "consensus_rows": weights,
                "consensus_bytes": weights * vector,
                "shared_edges": int(deployment.shared_edges[k, z]),
            }
        )

    def count(phase: str) -> RowCount:
        return {
            "rows": sum(one[f"{phase}_rows"] for one in links),
            "bytes": sum(one[f"{phase}_bytes"] for one in links),
        }

    mixing = np.count_nonzero(deployment.combination[deployment.links]) if settings.consensus_every else 0
    sent = int(mixing) * deployment.network.num_parameters
    evaluation = _evaluation_traffic(deployment, settings).over_links(routes)
    both_ways, times = int(deployment.shared_edges.sum()), _times(deployment, settings)
    gathers, widths = _layers(deployment, settings)
    propagations = [gather.powers[-1] for gather in gathers]
    return {
        "forward": count("forward"),
        "backward": count("backward"),
        "consensus": count("consensus"),
        "evaluation": {"rows": evaluation.rows.total(), "bytes": evaluation.moved.total()},
        "relayed": {
            "rows": 2 * relayed.rows.total(),
            "row_hops": 2 * hops.rows.total(),
            "bytes": 2 * hops.moved.total(),
        },
        "plain": {
            "forward": {"bytes": training.plain.total()},
            "backward": {"bytes": training.plain.total()},
            "consensus": {"bytes": 4 * sent},
        },
        "paper": {
            "rows": both_ways * sum(propagations),
            "bytes": both_ways * times * sum(n * width for n, width in zip(propagations, widths, strict=True)),
        },
        "links": links,
    }


def _average(counts: Sequence[MessageCounts]) -> MessageCounts:
    """Mean of the counts of all topologies; a link counts nothing where it is not there."""
    links: dict[tuple[int, int], Counter[str]] = {}
    for count in counts:
        for one in count["links"]:
            total = links.setdefault((one["sender"], one["receiver"]), Counter())
            total.update({name: value for name, value in one.items() if name not in ("sender", "receiver")})

    def mean(values: Iterable[int]) -> int:
        return round(sum(values) / len(counts))

    def rows(phase: Literal["forward", "backward", "consensus", "evaluation", "paper"]) -> RowCount:
        return {"rows": mean(c[phase]["rows"] for c in counts), "bytes": mean(c[phase]["bytes"] for c in counts)}

    def plain(phase: PhaseName) -> ByteCount:
        return {"bytes": mean(c["plain"][phase]["bytes"] for c in counts)}

    relayed: RelayedCount = {
        "rows": mean(c["relayed"]["rows"] for c in counts),
        "row_hops": mean(c["relayed"]["row_hops"] for c in counts),
        "bytes": mean(c["relayed"]["bytes"] for c in counts),
    }
    return {
        "forward": rows("forward"),
        "backward": rows("backward"),
        "consensus": rows("consensus"),
        "evaluation": rows("evaluation"),
        "relayed": relayed,
        "plain": {"forward": plain("forward"), "backward": plain("backward"), "consensus": plain("consensus")},
        "paper": rows("paper"),
        "links": [
            {"sender": k, "receiver": z, **{name: mean([value]) for name, value in total.items()}}
            for (k, z), total in sorted(links.items())
        ],
    }


def _training_traffic(deployment: Deployment, settings: Settings, endpoint: NDArray[np.int64]) -> RowTraffic:
    """Traffic of a training step's forward pass; `endpoint` is the agent or host of each vertex [n]."""
    layers, (_, widths) = deployment.network.layers, _layers(deployment, settings)
    row_bytes = _row_bytes(layers, widths, settings)
    return _count_traffic(
        deployment, settings, deployment.graph.labelled, endpoint, row_bytes, _times(deployment, settings)
    )


def _evaluation_traffic(deployment: Deployment, settings: Settings) -> RowTraffic:
    """Traffic of an evaluation between agents."""
    outputs = np.ones(deployment.graph.num_vertices, dtype=bool)
    _, widths = _layers(deployment, settings)
    return _count_traffic(deployment, settings, outputs, deployment.assignment, widths, deployment.graph.batch or 1)


def _count_traffic(
    deployment: Deployment,
    settings: Settings,
    outputs: NDArray[np.bool_],
    endpoint: NDArray[np.int64],
    row_bytes: Sequence[int],
    times: int,
) -> RowTraffic:
    """Traffic of a forward pass to the `outputs` with rows of so many bytes in each layer and time step."""
    network, found = deployment.network, RowTraffic()
    chunk = choose_chunk(deployment.graph.num_vertices, network)
    messages = 1 if deployment.graph.batch is None else -(-times // chunk)
    rows = message_rows(deployment.shift, network.gathers, outputs, endpoint)
    for layer, size, rounds in zip(network.layers, row_bytes, rows, strict=True):
        for one in rounds:
            found.add(one, size * times, 4 * layer.width * times, messages)
    return found


def _layers(deployment: Deployment, settings: Settings) -> tuple[list[Gather], list[int]]:
    """Gather of each layer, and the bytes of one of its rows."""
    network = deployment.network
    return network.gathers, [layer.width * settings.torch_dtype.itemsize for layer in network.layers]


def _row_bytes(layers: Sequence[Layer], widths: list[int], settings: Settings) -> list[int]:
    """Bytes of the layers' rows while training."""
    codec = settings.row_codec
    if codec is None:
        return widths
    return [codec.row_bytes(layer.width, settings.torch_dtype.itemsize) for layer in layers]


def _times(deployment: Deployment, settings: Settings) -> int:
    """Time steps of a training step."""
    graph = deployment.graph
    return 1 if graph.batch is None else settings.batch or int(graph.train.any(0).sum())


def _vectors(settings: Settings) -> int:
    """Number of vectors that an agent sends a neighbour in a consensus: its weights, and its tracker if it has one."""
    return (2 if settings.tracks else 1) if settings.consensus_every else 0


def _vector_bytes(deployment: Deployment, settings: Settings) -> int:
    """Of one such vector, as it is sent."""
    return settings.consensus_method.payload_bytes(deployment.network.shapes(), settings.torch_dtype.itemsize)
