"""Rows that reach curious agents: S_kz of the links z -> k in the forward pass, R_zk^T in the backward pass (eq. (6)).

A link's plan is known at both of its ends, so that a curious agent knows which vertices each row adds up, and with
which weights. Of a network's forward pass this is the first propagation, whose rows are linear in features; of its
backward pass the last layer's, whose rows are linear in the gradients at labelled vertices.
"""

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from gossamer.agents.layout import factor_links
from gossamer.agents.links import Link, LinkFactors
from gossamer.agents.plan import receptive_fields
from gossamer.array_types import Floats, Ints
from gossamer.errors import GossamerError
from gossamer.model import Network
from gossamer.model.gather import VertexMask
from gossamer.model.layers import Block, Convolution, Layer
from gossamer.runs.deployment import Deployment


@dataclass(frozen=True)
class SeenRows:
    """All rows that curious agents receive from one sender in one exchange: `matrix` times its vertices' vectors."""

    sender: int
    vertices: Ints  # of the sender, ascending: the columns
    matrix: Floats  # [rows, vertices]
    links: tuple[tuple[Link, slice], ...]  # the rows of each message

    def support(self, row: int) -> Ints:
        """Columns of the vertices that a row adds up."""
        return np.flatnonzero(self.matrix[row])


@dataclass(frozen=True)
class SeenPlan:
    """Rows by sender: of evaluations and of training steps forward, and of training steps backward."""

    evaluation: dict[int, SeenRows]
    training: dict[int, SeenRows]
    backward: dict[int, SeenRows]


Fields = list[list[VertexMask]]  # receptive fields U_0, ..., U_P of each layer


def find_seen_plan(
    deployment: Deployment, curious: Collection[int], fields: tuple[Fields, Fields] | None = None
) -> SeenPlan:
    """The rows that the curious agents receive from all others.

    `fields`, for evaluation and for training, are needed where the deployment has not all of D.
    """
    if len(deployment.topologies) > 1:
        raise GossamerError("the audit knows constant links, and this run's change from step to step")
    _check_network(deployment.network)
    gathers, shift = deployment.network.gathers, deployment.shift
    if fields is not None:
        full, train = fields
    else:
        full = receptive_fields(shift, gathers, np.ones(deployment.graph.num_vertices, dtype=bool))
        train = receptive_fields(shift, gathers, deployment.graph.labelled)
    entries = shift.tocoo()
    a = deployment.assignment
    apart = a[entries.row] != a[entries.col]
    cross = entries.row[apart].astype(np.int64), entries.col[apart].astype(np.int64), entries.data[apart]

    def factor(fields: list[np.ndarray], p: int, linear: bool) -> LinkFactors | None:
        return factor_links(cross, fields[p - 1], fields[p], a, linear) if p else None

    order, last = len(full[0]) - 1, min(1, len(train[-1]) - 1)
    return SeenPlan(
        _collect(factor(full[0], order, gathers[0].linear), curious, backward=False),
        _collect(factor(train[0], order, gathers[0].linear), curious, backward=False),
        _collect(factor(train[-1], last, gathers[-1].linear), curious, backward=True),
    )


def _check_network(network: Network) -> None:
    """Require a network whose first and last layer are graph convolutions, or one that sends nothing at all."""
    if not any(map(_propagates, network.layers)):
        return
    for place, layer in (("first", network.layers[0]), ("last", network.layers[-1])):
        if not isinstance(layer, Convolution) or not _propagates(layer):
            inner = layer.layer if isinstance(layer, Block) else layer
            found = type(inner).__name__ if _propagates(inner) else "layer without the graph"
            block = " with a residual connection, normalisation or jumping knowledge" if layer is not inner else ""
            raise GossamerError(
                "the audit knows networks whose first and last layer are plain graph convolutions, so that rows are "
                f"linear in features and in gradients at labels, and the {place} one here is a {found}{block}; take "
                "--layers gcn, polynomial, chebyshev, linear or sgc without --before, --after, --residual, --norm and "
                "--jump"
            )


def _propagates(layer: Layer) -> bool:
    return layer.gather.powers[-1] > 0


def _collect(factors: LinkFactors | None, curious: Collection[int], backward: bool) -> dict[int, SeenRows]:
    """The rows that go to the curious agents, by sender."""
    if factors is None:
        return {}
    if backward:
        vertex, row, value = factors.receive
        links = [Link(link.receiver, link.sender) for link in factors.links]
    else:
        row, vertex, value = factors.send
        links = list(factors.links)
    seen: dict[int, SeenRows] = {}
    senders = {link.sender for link in links if link.receiver in curious and link.sender not in curious}
    for sender in sorted(senders):
        chosen = [n for n, link in enumerate(links) if link.sender == sender and link.receiver in curious]
        rows = np.concatenate([np.arange(factors.rows[n], factors.rows[n + 1]) for n in chosen])
        position = np.full(int(factors.rows[-1]), -1, dtype=np.int64)
        position[rows] = np.arange(len(rows))
        here = position[row] >= 0
        vertices, column = np.unique(vertex[here], return_inverse=True)
        matrix = np.zeros((len(rows), len(vertices)))
        matrix[position[row[here]], column] = value[here]
        ends = np.cumsum([factors.rows[n + 1] - factors.rows[n] for n in chosen]).tolist()
        slices = [slice(int(a), int(b)) for a, b in zip([0, *ends[:-1]], ends, strict=True)]
        parts = tuple((links[n], part) for n, part in zip(chosen, slices, strict=True))
        seen[sender] = SeenRows(sender, vertices, matrix, parts)
    return seen
