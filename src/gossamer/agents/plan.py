"""What a host computes and sends, planned once: receptive fields, links and row orders (eq. (5)-(7), (11)).

A plan belongs to a set of output vertices: the labelled ones for training, all for evaluation. Walking the layers
backwards, the fields U_P, ..., U_0 of each filter say which rows are needed; everything else is never computed.
"""

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from gossamer.agents.coded import CodedPropagation, Coding, Key, make_sides
from gossamer.agents.exchange import Inbox, Outbox, Phase
from gossamer.agents.layout import Layout, factored, positions
from gossamer.agents.links import Ints, Link
from gossamer.model.filters import Filter, Rows
from gossamer.model.sparse import Operator, make_operator

ALMOST_ALL = 0.9  # of the hosted vertices


@dataclass(frozen=True)
class Propagation:
    """One product D u over the hosted agents: their own block, and R S for each link that leaves the host."""

    index: int  # which exchange of the pass this is; both ends of a link count alike
    local: Operator  # D between hosted vertices [rows of U_{p-1}, rows of U_p]
    send: Operator  # S of all outgoing links [message rows, rows of U_p]
    receive: Operator  # R of all incoming links [rows of U_{p-1}, message rows]
    outgoing: tuple[tuple[Link, int], ...]  # links in sender order, with their numbers of rows
    incoming: tuple[tuple[Link, int], ...]

    def forward(self, u: Tensor, of: Key) -> Generator[Outbox, Inbox, Tensor]:
        """D u: send S u, add R times what arrives (eq. (5)-(6))."""
        messages = _split(self.send @ u, self.outgoing) if self.outgoing else {}
        inbox = yield Outbox(Phase.FORWARD, self.index, messages, _shapes(self.incoming, u))
        result = self.local @ u
        if self.incoming:
            result += self.receive @ _joined(inbox, self.incoming)
        return result

    def backward(self, g: Tensor, of: Key) -> Generator[Outbox, Inbox, Tensor]:
        """D^T g: the same links reversed carry R^T g and are added by S^T (eq. (12))."""
        incoming, outgoing = _reversed(self.outgoing), _reversed(self.incoming)
        messages = _split(self.receive.transposed_times(g), outgoing) if outgoing else {}
        inbox = yield Outbox(Phase.BACKWARD, self.index, messages, _shapes(incoming, g))
        result = self.local.transposed_times(g)
        if incoming:
            result += self.send.transposed_times(_joined(inbox, incoming))
        return result


@dataclass(frozen=True)
class LayerPlan:
    """One layer on one host. `inputs` are the rows that any x_p needs; U_0 are the next layer's inputs."""

    inputs: Ints  # vertices, in row order (the first layer's may be more)
    input_row: Ints  # for every (p, vertex of U_p): its row among `inputs`
    slab: Ints  # and its slab of weights: hosted agent * number of powers + place of p
    sizes: tuple[int, ...]  # |U_p|, hosted, for p = 0 ... P
    propagations: tuple[Propagation | CodedPropagation, ...]  # from U_P to U_{P-1}, ..., from U_1 to U_0
    within: tuple[Tensor, ...]  # [p]: where U_{p-2} lies in U_p, for p >= 2
    output_agent: Tensor  # hosted agent of each output row


@dataclass(frozen=True)
class Plan:
    layers: tuple[LayerPlan, ...]
    outputs: Ints  # the output vertices on this host, in row order


def make_plan(
    layout: Layout,
    filters: Sequence[Filter],
    fields: Sequence[Sequence[Rows]],
    dtype: torch.dtype,
    round_up: bool,
    coding: Coding | None = None,
) -> Plan:
    """The plan of a host's layout for the layers' fields; with `coding`, rows between agents are rounded.

    With `round_up`, a first layer that needs ALMOST_ALL hosted rows takes all of them: their columns of D are empty,
    and the features can lie in memory as they do for evaluation.
    """
    order, n = layout.vertices, len(layout.place)
    layers: list[LayerPlan] = []
    index = sum(f.powers[-1] for f in filters)
    for layer_filter, sets in zip(reversed(filters), reversed(fields), strict=True):
        held = [u[order] for u in sets]  # hosted rows
        if round_up and len(layers) == len(filters) - 1 and len(held) > 1 and held[-1].sum() >= ALMOST_ALL * len(order):
            held[-1] = np.ones(len(order), dtype=bool)
        rows = [order[here] for here in held]
        inputs = order[np.logical_or.reduce([held[p] for p in layer_filter.powers])]
        position = positions(inputs, n)
        slabs = len(layer_filter.powers)
        propagations = []
        for p in range(1, len(sets)):
            index -= 1
            propagations.append(_cut(index, layout, sets[p - 1], sets[p], held[p - 1], held[p], dtype, coding))
        agents = [layout.agent[here] for here in held]
        layers.append(
            LayerPlan(
                inputs=inputs,
                input_row=np.concatenate([position[rows[p]] for p in layer_filter.powers]),
                slab=np.concatenate([agents[p] * slabs + t for t, p in enumerate(layer_filter.powers)]),
                sizes=tuple(len(r) for r in rows),
                propagations=tuple(reversed(propagations)),
                within=tuple(
                    torch.from_numpy(np.flatnonzero(held[p - 2][held[p]]) if p >= 2 else np.empty(0, np.int64))
                    for p in range(len(sets))
                ),
                output_agent=torch.from_numpy(agents[0]),
            )
        )
    return Plan(tuple(reversed(layers)), order[fields[-1][0][order]])


def receptive_fields(shift: Any, filters: Sequence[Filter], outputs: Rows) -> list[list[Rows]]:
    """`walk_fields` on the whole graph."""
    rows = sparse.csr_array(shift)
    # The columns of D as rows, without moving an entry; products of truth values are "is there any".
    backwards = sparse.csc_array((rows.data != 0, rows.indices, rows.indptr), shape=rows.shape[::-1])
    walk = walk_fields(filters, outputs)
    try:
        reached = next(walk)
        while True:
            reached = walk.send(np.asarray(backwards @ reached, dtype=bool))
    except StopIteration as done:
        fields: list[list[Rows]] = done.value
        return fields


def walk_fields(filters: Sequence[Filter], outputs: Rows) -> Generator[Rows, Rows, list[list[Rows]]]:
    """For each layer the fields U_0, ..., U_P that the output vertices need of it, N_i^K of Sec. II.

    Yields rows and is sent those that D needs to reach them, by whoever knows D.
    """
    fields: list[list[Rows]] = []
    for layer_filter in reversed(filters):
        sets = yield from layer_filter.fields(outputs)
        fields.append(sets)
        outputs = np.logical_or.reduce([sets[p] for p in layer_filter.powers])
    return fields[::-1]


def message_rows(shift: Any, filters: Sequence[Filter], outputs: Rows, place: Ints) -> list[list[dict[Link, int]]]:
    """Rows that each link carries, by layer and propagation (from U_P down), between the vertices' places: agents each
    on its own, or hosts."""
    entries = shift.tocoo()
    crossing = place[entries.row] != place[entries.col]
    cross = entries.row[crossing].astype(np.int64), entries.col[crossing].astype(np.int64), entries.data[crossing]
    return [
        [dict(factored(cross, sets[p - 1], sets[p], place).counts) for p in reversed(range(1, len(sets)))]
        for sets in receptive_fields(shift, filters, outputs)
    ]


def _cut(
    index: int,
    layout: Layout,
    to: Rows,
    at: Rows,
    held_to: Rows,
    held_at: Rows,
    dtype: torch.dtype,
    coding: Coding | None,
) -> Propagation | CodedPropagation:
    """The part of D[to, at] that touches the host, between the rows that it holds."""
    order, n = layout.vertices, len(layout.place)
    rows_to, rows_at = np.flatnonzero(held_to), np.flatnonzero(held_at)
    to_row, at_row = positions(order[rows_to], n), positions(order[rows_at], n)
    out, into = layout.outgoing(to, at), layout.incoming(to, at)
    row, source, value = out.send
    send = sparse.csr_array((value, (row, at_row[source])), shape=(int(out.rows[-1]), len(rows_at)))
    destination, row, value = into.receive
    receive = sparse.csr_array((value, (to_row[destination], row)), shape=(len(rows_to), int(into.rows[-1])))
    operators = layout.block(rows_to, rows_at, dtype), make_operator(send, dtype), make_operator(receive, dtype)
    if coding is not None:
        return CodedPropagation(index, *operators, coding.rounding, *make_sides(out, into, coding))
    return Propagation(index, *operators, out.counts, into.counts)


def _split(rows: Tensor, links: Sequence[tuple[Link, int]]) -> dict[Link, Tensor]:
    parts = rows.split_with_sizes([count for _, count in links])
    return {link: part for (link, _), part in zip(links, parts, strict=True)}


def _joined(inbox: Inbox, links: Sequence[tuple[Link, int]]) -> Tensor:
    return torch.cat([inbox[link] for link, _ in links])


def _shapes(links: Sequence[tuple[Link, int]], like: Tensor) -> dict[Link, tuple[int, ...]]:
    return {link: (count, *like.shape[1:]) for link, count in links}


def _reversed(links: Sequence[tuple[Link, int]]) -> tuple[tuple[Link, int], ...]:
    return tuple((Link(link.receiver, link.sender), count) for link, count in links)
