"""Plans: receptive fields, links and row orders of a host, worked out once before training (eq. (11)).

A plan belongs to a set of output vertices: the labelled ones for training, all for evaluation. Walking the layers
backwards, the fields U_P, ..., U_0 of each filter are the vertices that are needed; no others are computed.
"""

from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from gossamer.agents.changing_rows import find_ends, wrap_rows
from gossamer.agents.coded_rows import CodedRows, HostedCodec, make_sides
from gossamer.agents.exchange import Inbox, Outbox
from gossamer.agents.layout import Layout, ShiftEntries, factor_links, positions
from gossamer.agents.links import Link, LinkFactors
from gossamer.agents.propagation import ExchangeKey, Halo, PlainRows, Propagation, RowExchange, run_propagations
from gossamer.agents.relays import ForwardedRows
from gossamer.agents.step_links import RowSums, StepLinks, sum_rows
from gossamer.array_types import Ints
from gossamer.generators import drive
from gossamer.model.gather import Edgewise, Gather, VertexMask, Within, find_inputs
from gossamer.model.layers import Edges, Outputs, make_outputs
from gossamer.model.sparse import make_operator

ALMOST_ALL = 0.9  # fraction of the hosted vertices from which on a first layer computes all of them


@dataclass(frozen=True)
class LayerPlan:
    """One layer on one host. `inputs` are the rows that any x_p needs; U_0 are the next layer's inputs."""

    gather: Gather
    inputs: Ints  # vertices, in row order (the first layer's may be more)
    input_row: Ints  # for every (p, vertex of U_p): its row among `inputs`
    slab: Ints  # and its slab of weights: hosted agent * number of powers + position of p
    sizes: tuple[int, ...]  # |U_p|, hosted, for p = 0 ... P
    propagations: tuple[Propagation | Halo, ...]  # from U_P to U_{P-1}, ..., from U_1 to U_0
    within: Within
    own_row: Ints  # the row of each output vertex among `inputs`, where the layer keeps something of it
    outputs: Outputs
    targets: Ints  # the vertices of the output rows
    sources: Ints  # where offers come one by one, their vertices, those of neighbours included

    def forward(self, offers: Tensor, key: ExchangeKey) -> Generator[Outbox, Inbox, Tensor]:
        """Gather the offers at the output rows, one exchange for each propagation (eq. (5)-(6))."""
        terms = offers.split_with_sizes([self.sizes[p] for p in self.gather.powers])
        combined = self.gather.combine(terms, self.within)
        return (yield from run_propagations(combined, [p.forward for p in self.propagations], key))

    def outputs_at(self, links: StepLinks | None) -> tuple[Outputs, Tensor | None]:
        """The output rows with the edges that are there in a step, and these edges' positions; None: all."""
        last = self.propagations[-1] if self.propagations else None
        if links is None or not isinstance(last, Halo):
            return self.outputs, None
        edges, chosen = last.select_edges(links)
        return replace(self.outputs, edges=edges), chosen

    def backward(self, g: Tensor, key: ExchangeKey) -> Generator[Outbox, Inbox, Tensor]:
        """Gradient of the offers from that at the output rows, over the same links reversed (eq. (12))."""
        transposed = self.gather.combine_transposed(g, self.within)
        terms = yield from run_propagations(transposed, [p.backward for p in reversed(self.propagations)], key)
        return torch.cat(terms) if len(terms) > 1 else terms[0]


@dataclass(frozen=True)
class Plan:
    layers: tuple[LayerPlan, ...]
    outputs: Ints  # the output vertices on this host, in row order


def make_plan(
    layout: Layout,
    gathers: Sequence[Gather],
    fields: Sequence[Sequence[VertexMask]],
    dtype: torch.dtype,
    round_up: bool,
    codec: HostedCodec | None = None,
    forwarded: Sequence[ForwardedRows] = (),
    changing: Sequence[int] | None = None,
) -> Plan:
    """The plan of a host's layout for the layers' fields; with a `codec`, rows between agents go through it.
    `forwarded` are other agents' rows that pass here in each exchange, if a run relays rows. Where links may be down in
    a step, `changing` are the hosted agents, and links of the layout join agents.

    With `round_up`, a first layer that needs ALMOST_ALL hosted rows takes all of them: their columns of D are empty,
    and the features can lie in memory as they do for evaluation.
    """
    order, n = layout.vertices, len(layout.endpoint)
    layers: list[LayerPlan] = []
    index = sum(gather.powers[-1] for gather in gathers)
    for gather, sets in zip(reversed(gathers), reversed(fields), strict=True):
        held = [u[order] for u in sets]  # hosted rows
        if round_up and len(layers) == len(gathers) - 1 and len(held) > 1 and held[-1].sum() >= ALMOST_ALL * len(order):
            held[-1] = np.ones(len(order), dtype=bool)
        rows = [order[here] for here in held]
        inputs = order[find_inputs(gather, held)]
        position = positions(inputs, n)
        num_powers = len(gather.powers)
        propagations = []
        for p in range(1, len(sets)):
            index -= 1
            passing = forwarded[index] if forwarded else None
            cut = _Cut(index, layout, sets[p - 1], sets[p], held[p - 1], held[p], dtype, codec, passing, changing)
            propagations.append(cut.halo(gather.loops) if isinstance(gather, Edgewise) else cut.product())
        agents = [layout.agent[here] for here in held]
        last = propagations[-1] if propagations else None
        layers.append(
            LayerPlan(
                gather=gather,
                inputs=inputs,
                input_row=np.concatenate([position[rows[p]] for p in gather.powers]),
                slab=np.concatenate([agents[p] * num_powers + t for t, p in enumerate(gather.powers)]),
                sizes=tuple(len(r) for r in rows),
                propagations=tuple(reversed(propagations)),
                within={(q, p): torch.from_numpy(np.flatnonzero(held[q][held[p]])) for q, p in gather.nested},
                own_row=position[rows[0]] if gather.own else rows[0][:0],
                outputs=make_outputs(torch.from_numpy(agents[0]), last.edges if isinstance(last, Halo) else None),
                targets=rows[0],
                sources=last.vertices if isinstance(last, Halo) else rows[0][:0],
            )
        )
    return Plan(tuple(reversed(layers)), order[fields[-1][0][order]])


def receptive_fields(shift: Any, gathers: Sequence[Gather], outputs: VertexMask) -> list[list[VertexMask]]:
    """`walk_fields` on the whole graph."""
    rows = sparse.csr_array(shift)
    # D^T without moving an entry: the arrays of CSR read as CSC. A sum of truth values is true if any of them is.
    transposed = sparse.csc_array((rows.data != 0, rows.indices, rows.indptr), shape=rows.shape[::-1])
    return drive(walk_fields(gathers, outputs), lambda rows: np.asarray(transposed @ rows, dtype=bool))


def walk_fields(
    gathers: Sequence[Gather], outputs: VertexMask
) -> Generator[VertexMask, VertexMask, list[list[VertexMask]]]:
    """For each layer the fields U_0, ..., U_P that the output vertices need of it, N_i^K of Sec. II.

    Yields vertices i and is sent the vertices j with D_ij != 0 for one of them, by a caller who knows D.
    """
    fields: list[list[VertexMask]] = []
    for gather in reversed(gathers):
        sets = yield from gather.fields(outputs)
        fields.append(sets)
        outputs = find_inputs(gather, sets)
    return fields[::-1]


def message_rows(
    shift: Any, gathers: Sequence[Gather], outputs: VertexMask, endpoint: Ints
) -> list[list[dict[Link, int]]]:
    """Number of rows that each link carries, by layer and propagation (from U_P down); `endpoint` is the agent or the
    host of each vertex."""
    entries = shift.tocoo()
    found = entries.row.astype(np.int64), entries.col.astype(np.int64), entries.data
    counts = iter(count_rows(found, gathers, receptive_fields(shift, gathers, outputs), endpoint))
    return [[next(counts) for _ in range(gather.powers[-1])] for gather in gathers]


def count_rows(
    entries: ShiftEntries, gathers: Sequence[Gather], fields: Sequence[Sequence[VertexMask]], endpoint: Ints
) -> list[dict[Link, int]]:
    """Number of rows that each link carries in every exchange of a forward pass, from the entries of D between its two
    endpoints."""
    i, j, values = entries
    crossing = endpoint[i] != endpoint[j]
    cross = i[crossing], j[crossing], values[crossing]
    return [
        dict(factor_links(cross, sets[p - 1], sets[p], endpoint, gather.linear).counts)
        for gather, sets in zip(gathers, fields, strict=True)
        for p in reversed(range(1, len(sets)))
    ]


@dataclass(frozen=True)
class _Cut:
    """The part of D[to, at] that touches the host, between the rows that it holds."""

    index: int
    layout: Layout
    to: VertexMask
    at: VertexMask
    held_to: VertexMask
    held_at: VertexMask
    dtype: torch.dtype
    codec: HostedCodec | None
    forwarded: ForwardedRows
    changing: Sequence[int] | None

    def product(self) -> Propagation:
        """D u, with as few message rows as the links' structural ranks."""
        layout, rows_to, rows_at = self.layout, np.flatnonzero(self.held_to), np.flatnonzero(self.held_at)
        out, into = layout.outgoing(self.to, self.at), layout.incoming(self.to, self.at)
        row, source, value = out.send
        send = sparse.csr_array((value, (row, self._at_row[source])), shape=(int(out.rows[-1]), len(rows_at)))
        destination, row, value = into.receive
        receive = sparse.csr_array((value, (self._to_row[destination], row)), shape=(len(rows_to), int(into.rows[-1])))
        return Propagation(
            self._exchange(out, into),
            layout.block(rows_to, rows_at, self.dtype),
            make_operator(send, self.dtype),
            make_operator(receive, self.dtype),
            self._sums(rows_to, rows_at),
        )

    def halo(self, loops: bool | None) -> Halo:
        """All offers that an edge needs: message rows pick their vertices. Without D's own loops, every vertex has one
        or none."""
        layout, rows_to, rows_at = self.layout, np.flatnonzero(self.held_to), np.flatnonzero(self.held_at)
        out, into = layout.outgoing(self.to, self.at, False), layout.incoming(self.to, self.at, False)
        row, source, _ = out.send
        picked = np.empty(len(row), dtype=np.int64)
        picked[row] = self._at_row[source]
        row, source, _ = into.send
        received = np.empty(len(row), dtype=np.int64)
        received[row] = source
        vertices = np.concatenate([layout.vertices[rows_at], received])
        own = self._at_row[layout.vertices[rows_to]]
        target, near, value = layout.edges(rows_to, rows_at)
        destination, row, beyond = into.receive
        target = np.concatenate([target, self._to_row[destination]])
        source = np.concatenate([near, len(rows_at) + row])
        value = np.concatenate([value, beyond])
        if loops is not None:
            apart = source != own[target]
            target, source, value = target[apart], source[apart], value[apart]
        if loops:
            target = np.concatenate([target, np.arange(len(own))])
            source, value = np.concatenate([source, own]), np.concatenate([value, np.ones(len(own), value.dtype)])
        order = np.argsort(target, kind="stable")
        agent = layout.agent[rows_to]
        edges = Edges(
            target=torch.from_numpy(target[order]),
            source=torch.from_numpy(source[order]),
            weight=torch.from_numpy(value[order]).to(self.dtype),
            own=torch.from_numpy(own),
            agent=torch.from_numpy(agent),
            num_rows=len(vertices),
            num_agents=int(layout.agent.max(initial=-1)) + 1,
        )
        sums, ends = self._sums(rows_to, rows_at), None if self.changing is None else find_ends(into)
        return Halo(self._exchange(out, into), len(rows_at), torch.from_numpy(picked), edges, vertices, sums, ends)

    def _sums(self, rows_to: Ints, rows_at: Ints) -> RowSums | None:
        """sum_j |D_ij| of each output row, by the agent of j, where links change."""
        if self.changing is None:
            return None
        row, _, value = self.layout.edges(rows_to, rows_at)
        own = np.bincount(row, abs(value), len(rows_to)).astype(np.float64)
        i, j, beyond = self.layout.arriving
        needed = self.to[i] & self.at[j]
        i, j, endpoint = i[needed], j[needed], self.layout.endpoint
        return sum_rows(own, self._to_row[i], endpoint[i], endpoint[j], beyond[needed])

    @property
    def _to_row(self) -> Ints:
        return positions(self.layout.vertices[self.held_to], len(self.layout.endpoint))

    @property
    def _at_row(self) -> Ints:
        return positions(self.layout.vertices[self.held_at], len(self.layout.endpoint))

    def _exchange(self, out: LinkFactors, into: LinkFactors) -> RowExchange:
        rows: RowExchange
        if self.codec is not None:
            rows = CodedRows(self.index, self.codec.codec, *make_sides(out, into, self.codec), self.forwarded)
        else:
            rows = PlainRows(self.index, out.counts, into.counts, self.forwarded)
        return rows if self.changing is None else wrap_rows(rows, self.index, out, into, self.changing)
