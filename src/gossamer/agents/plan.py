"""What a host computes and sends, planned once: receptive fields, links and row orders (eq. (5)-(7), (11)).

A plan belongs to a set of output vertices: the labelled ones for training, all for evaluation. Walking the layers
backwards, the fields U_P, ..., U_0 of each filter say which rows are needed; everything else is never computed.
Rows of hosted vertices are ordered by agent, then by vertex.
"""

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor

from gossamer.agents.exchange import Inbox, Outbox, Phase
from gossamer.agents.links import Ints, Link, factor
from gossamer.model.filters import Filter, Rows
from gossamer.model.sparse import Operator, make_operator

Entries = tuple[Ints, Ints, NDArray[Any]]  # i, j, D_ij


@dataclass(frozen=True)
class Propagation:
    """One product D u over the hosted agents: their own block, and R S for each link that leaves the host."""

    index: int  # which exchange of the pass this is; both ends of a link count alike
    local: Operator  # D between hosted vertices [rows of U_{p-1}, rows of U_p]
    send: Operator  # S of all outgoing links [message rows, rows of U_p]
    receive: Operator  # R of all incoming links [rows of U_{p-1}, message rows]
    outgoing: tuple[tuple[Link, int], ...]  # links in sender order, with their numbers of rows
    incoming: tuple[tuple[Link, int], ...]

    def forward(self, u: Tensor) -> Generator[Outbox, Inbox, Tensor]:
        """D u: send S u, add R times what arrives (eq. (5)-(6))."""
        messages = _split(self.send @ u, self.outgoing) if self.outgoing else {}
        inbox = yield Outbox(Phase.FORWARD, self.index, messages, _shapes(self.incoming, u))
        result = self.local @ u
        if self.incoming:
            result += self.receive @ _joined(inbox, self.incoming)
        return result

    def backward(self, g: Tensor) -> Generator[Outbox, Inbox, Tensor]:
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

    inputs: Ints  # vertices, in row order
    input_row: Ints  # for every (p, vertex of U_p): its row among `inputs`
    slab: Ints  # and its slab of weights: hosted agent * number of powers + place of p
    sizes: tuple[int, ...]  # |U_p|, hosted, for p = 0 ... P
    propagations: tuple[Propagation, ...]  # from U_P to U_{P-1}, ..., from U_1 to U_0
    within: tuple[Tensor, ...]  # [p]: where U_{p-2} lies in U_p, for p >= 2
    output_agent: Tensor  # hosted agent of each output row


@dataclass(frozen=True)
class Plan:
    layers: tuple[LayerPlan, ...]
    outputs: Ints  # the output vertices on this host, in row order


def make_plan(
    edges: Entries,
    filters: Sequence[Filter],
    fields: Sequence[Sequence[Rows]],
    assignment: Ints,
    agents: Sequence[int],
    dtype: torch.dtype,
) -> Plan:
    """The plan of the hosted `agents` from the entries (i, j, D_ij) that touch them and the layers' fields."""
    place = np.full(int(max(assignment.max(initial=0), *agents)) + 1, -1, dtype=np.int64)
    place[list(agents)] = np.arange(len(agents))
    hosted = place[assignment]  # position of each vertex's agent on this host, or -1
    order = np.argsort(np.where(hosted < 0, len(agents), hosted), kind="stable")[: int((hosted >= 0).sum())]
    layers: list[LayerPlan] = []
    index = sum(f.powers[-1] for f in filters)
    for layer_filter, sets in zip(reversed(filters), reversed(fields), strict=True):
        rows = [order[u[order]] for u in sets]
        inputs = order[np.logical_or.reduce([sets[p] for p in layer_filter.powers])[order]]
        position = _positions(inputs, len(assignment))
        slabs = len(layer_filter.powers)
        propagations = []
        for p in range(1, len(sets)):
            index -= 1
            propagations.append(
                _cut(index, edges, sets[p - 1], sets[p], rows[p - 1], rows[p], assignment, hosted, dtype)
            )
        layers.append(
            LayerPlan(
                inputs=inputs,
                input_row=np.concatenate([position[rows[p]] for p in layer_filter.powers]),
                slab=np.concatenate([hosted[rows[p]] * slabs + t for t, p in enumerate(layer_filter.powers)]),
                sizes=tuple(len(r) for r in rows),
                propagations=tuple(reversed(propagations)),
                within=tuple(
                    torch.from_numpy(np.flatnonzero(sets[p - 2][rows[p]]) if p >= 2 else np.empty(0, np.int64))
                    for p in range(len(sets))
                ),
                output_agent=torch.from_numpy(hosted[rows[0]]),
            )
        )
    return Plan(tuple(reversed(layers)), order[fields[-1][0][order]])


def receptive_fields(shift: Any, filters: Sequence[Filter], outputs: Rows) -> list[list[Rows]]:
    """`walk_fields` on the whole graph."""
    backwards = sparse.csr_array((shift != 0).astype(np.int32).T)
    walk = walk_fields(filters, outputs)
    try:
        rows = next(walk)
        while True:
            rows = walk.send((backwards @ rows.astype(np.int32)) > 0)
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


def message_rows(shift: Any, filters: Sequence[Filter], outputs: Rows, assignment: Ints) -> list[list[dict[Link, int]]]:
    """Rows that each link carries, by layer and propagation (from U_P down), with every agent on its own."""
    edges = _entries(shift)
    counts = []
    for sets in receptive_fields(shift, filters, outputs):
        rounds = []
        for p in reversed(range(1, len(sets))):
            i, j, w = _between(edges, sets[p - 1], sets[p])
            crossing = assignment[i] != assignment[j]
            i, j, w = i[crossing], j[crossing], w[crossing]
            rounds.append(dict(factor(i, j, w, assignment[i], assignment[j]).counts))
        counts.append(rounds)
    return counts


def _entries(shift: Any) -> Entries:
    """(i, j, D_ij) of all entries. Copies, because scipy may sort a matrix in place later on."""
    entries = shift.tocoo()
    return entries.row.astype(np.int64), entries.col.astype(np.int64), entries.data.copy()


def _between(edges: Entries, to: Rows, at: Rows) -> Entries:
    i, j, w = edges
    there = to[i] & at[j]
    return i[there], j[there], w[there]


def _cut(
    index: int,
    edges: Entries,
    to: Rows,
    at: Rows,
    rows_to: Ints,
    rows_at: Ints,
    assignment: Ints,
    hosted: Ints,
    dtype: torch.dtype,
) -> Propagation:
    """The part of D[to, at] that touches the host."""
    i, j, w = _between(edges, to, at)
    to_row, at_row = _positions(rows_to, len(hosted)), _positions(rows_at, len(hosted))
    here_i, here_j = hosted[i] >= 0, hosted[j] >= 0
    local = here_i & here_j
    block = sparse.csr_array((w[local], (to_row[i[local]], at_row[j[local]])), shape=(len(rows_to), len(rows_at)))
    leaves, arrives = ~here_i & here_j, here_i & ~here_j
    out = factor(i[leaves], j[leaves], w[leaves], assignment[i[leaves]], assignment[j[leaves]])
    into = factor(i[arrives], j[arrives], w[arrives], assignment[i[arrives]], assignment[j[arrives]])
    row, source, value = out.send
    send = sparse.csr_array((value, (row, at_row[source])), shape=(int(out.rows[-1]), len(rows_at)))
    destination, row, value = into.receive
    receive = sparse.csr_array((value, (to_row[destination], row)), shape=(len(rows_to), int(into.rows[-1])))
    return Propagation(
        index,
        make_operator(block, dtype),
        make_operator(send, dtype),
        make_operator(receive, dtype),
        out.counts,
        into.counts,
    )


def _positions(vertices: Ints, n: int) -> Ints:
    position = np.full(n, -1, dtype=np.int64)
    position[vertices] = np.arange(len(vertices))
    return position


def _split(rows: Tensor, links: Sequence[tuple[Link, int]]) -> dict[Link, Tensor]:
    parts = rows.split([count for _, count in links])
    return {link: part for (link, _), part in zip(links, parts, strict=True)}


def _joined(inbox: Inbox, links: Sequence[tuple[Link, int]]) -> Tensor:
    return torch.cat([inbox[link] for link, _ in links])


def _shapes(links: Sequence[tuple[Link, int]], like: Tensor) -> dict[Link, tuple[int, ...]]:
    return {link: (count, *like.shape[1:]) for link, count in links}


def _reversed(links: Sequence[tuple[Link, int]]) -> tuple[tuple[Link, int], ...]:
    return tuple((Link(link.receiver, link.sender), count) for link, count in links)
