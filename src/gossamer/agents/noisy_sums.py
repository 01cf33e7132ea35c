"""Noisy sums: aggregation perturbation without a server (Sajadmanesh, Shamsabadi, Bellet and Gatica-Perez 2023, "GAP:
differentially private graph neural networks with aggregation perturbation").

In a hop every agent z sums the unit-norm rows of its own vertices for every destination i, of its own vertices too, and
adds Gaussian noise to every sum before anybody uses it:

    s_zi = sum_{j: a(j) = z, j -> i} r_j + noise N(0, I)        r'_i = s_i / |s_i|   with   s_i = sum_z s_zi

Rows are sums for a destination, never a single vertex's. Every vertex j has at most `degree` out-edges j -> i, chosen
by its owner's secret, so that taking away what j gives changes all sums together by at most sqrt(degree) in norm. An
agent sends a row for every destination that an edge between the two leads to, and has one for every vertex of its own:
which of the edges count is not seen. Hops are computed once; later ones take the noisy rows alone.
"""

from collections.abc import Generator
from dataclasses import dataclass, replace

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from gossamer.agents.exchange import Inbox, Outbox, Phase
from gossamer.agents.links import Link, endpoints, group_by_link
from gossamer.agents.salts import Secrets
from gossamer.agents.secret_streams import digest_rows, stream_normal, stream_uniform
from gossamer.agents.share import Share
from gossamer.array_types import Ints
from gossamer.model.sparse import Pattern, make_pattern


@dataclass(frozen=True)
class SumPlan:
    """Sums of the hosted agents: pairs (z, i) of an agent and a destination, by agent, then destination."""

    pattern: Pattern  # out-edges: pairs x hosted vertices
    agents: tuple[tuple[int, slice, Tensor], ...]  # the pairs of each hosted agent, and the rows of its vertices
    inside: tuple[Tensor, Tensor]  # pairs whose destination is hosted, and its row
    outgoing: tuple[tuple[Link, Tensor], ...]  # pairs that each link carries
    incoming: tuple[tuple[Link, Tensor], ...]  # rows of the destinations of the sums that each link brings
    num_vertices: int  # hosted

    @property
    def num_sent(self) -> int:
        """Rows that leave the host in a hop."""
        return sum(len(pairs) for _, pairs in self.outgoing)


def plan_sums(share: Share, degree: int | None, secrets: Secrets, seed: int) -> SumPlan:
    """Plan the sums of a share's agents on the data graph's edges; `degree` bounds out-edges, None: all count."""
    i, j, _ = share.topologies[0].entries
    edges = i != j
    i, j, owner, n = i[edges].astype(np.int64), j[edges].astype(np.int64), share.owner, len(share.owner)
    hosted = np.flatnonzero(share.hosted)
    row = np.full(n, -1, dtype=np.int64)
    row[hosted] = np.arange(len(hosted))
    endpoint = endpoints(share.hosting, share.num_agents)
    leaving, arriving = row[j] >= 0, (row[i] >= 0) & (row[j] < 0)
    pairs = np.unique(np.concatenate([owner[j[leaving]] * n + i[leaving], owner[hosted] * n + hosted]))
    agent, destination = pairs // n, pairs % n
    kept_i, kept_j = _bound_out_edges(i[leaving], j[leaving], owner, degree, secrets, seed)
    matrix = sparse.csr_array(
        (np.ones(len(kept_i)), (np.searchsorted(pairs, owner[kept_j] * n + kept_i), row[kept_j])),
        shape=(len(pairs), len(hosted)),
    )
    here = row[destination] >= 0
    away = np.flatnonzero(~here)
    wanted = np.unique(owner[j[arriving]] * n + i[arriving])
    return SumPlan(
        pattern=make_pattern(matrix),
        agents=tuple(
            (
                k,
                slice(int(np.searchsorted(agent, k)), int(np.searchsorted(agent, k, "right"))),
                torch.from_numpy(np.flatnonzero(owner[hosted] == k)),
            )
            for k in sorted(share.agents)
        ),
        inside=(torch.from_numpy(np.flatnonzero(here)), torch.from_numpy(row[destination[here]])),
        outgoing=_group(endpoint[agent[away]], endpoint[owner[destination[away]]], away),
        incoming=_group(endpoint[wanted // n], endpoint[owner[wanted % n]], row[wanted % n]),
        num_vertices=len(hosted),
    )


def hide_degrees(share: Share) -> Share:
    """The share of a private run, without numbers of other agents' vertices: D has ones for edges, and training marks
    are those of the hosted vertices."""
    hosted, topologies = share.hosted, []
    for one in share.topologies:
        i, j, _ = one.entries
        edges = i != j
        fields = [[rows & hosted for rows in sets] for sets in one.train_fields]
        entries = i[edges], j[edges], np.ones(int(edges.sum()))
        topologies.append(replace(one, entries=entries, train_fields=fields))
    return replace(share, topologies=tuple(topologies))


def _bound_out_edges(
    i: Ints, j: Ints, owner: Ints, degree: int | None, secrets: Secrets, seed: int
) -> tuple[Ints, Ints]:
    """Edges j -> i, of every j at most `degree`: a random choice of its owner. By j, then i."""
    order = np.lexsort((i, j))
    i, j = i[order], j[order]
    if degree is None:
        return i, j
    drawn = np.zeros(len(j))
    for k in np.unique(owner[j]).tolist():
        own = owner[j] == k
        drawn[own] = stream_uniform(secrets.by_agent[k], "out-edges", [seed], int(own.sum()))
    order = np.lexsort((drawn, j))
    rank = np.arange(len(j)) - np.searchsorted(j, j)  # of an edge in the order of its vertex
    chosen = np.sort(order[rank < degree])
    return i[chosen], j[chosen]


def _group(sender: Ints, receiver: Ints, rows: Ints) -> tuple[tuple[Link, Tensor], ...]:
    """Rows by link, in their order; links by sender and receiver."""
    order = np.lexsort((np.arange(len(rows)), receiver, sender))
    return tuple(
        (link, torch.from_numpy(rows[order][part])) for link, part in group_by_link(sender[order], receiver[order])
    )


def run_hops(
    plan: SumPlan, rows: Tensor, hops: int, noise: float, secrets: Secrets, seed: int, fresh: bool = False
) -> Generator[Outbox, Inbox, list[Tensor]]:
    """The rows [hosted vertices, width] with unit norm, and those after each hop; noise has this standard deviation.

    With `fresh`, other rows of an agent have other noise (host.PrivateSteps).
    """
    found = [normalise_rows(rows)]
    for hop in range(hops):
        sums = plan.pattern.times(None, found[-1].double())
        for k, pairs, own in plan.agents:
            key = (seed, hop, *([digest_rows(found[-1][own])] if fresh else []))
            part = sums[pairs]
            drawn = stream_normal(secrets.by_agent[k], "sums", key, part.numel())
            part.add_(torch.from_numpy(drawn).view_as(part), alpha=noise)
        sums = sums.to(rows.dtype)
        inbox = yield Outbox(
            Phase.FORWARD,
            hop,
            {link: sums[pairs] for link, pairs in plan.outgoing},
            {link: (len(to), sums.shape[1]) for link, to in plan.incoming},
        )
        total = sums.new_zeros(plan.num_vertices, sums.shape[1])
        total.index_add_(0, plan.inside[1], sums[plan.inside[0]])
        for link, to in plan.incoming:
            total.index_add_(0, to, inbox[link])
        found.append(normalise_rows(total))
    return found


def normalise_rows(rows: Tensor) -> Tensor:
    """Rows divided by their norm; zeros stay."""
    norms: Tensor = torch.linalg.vector_norm(rows, dim=-1, keepdim=True)
    return rows / norms.clamp(min=torch.finfo(rows.dtype).tiny)
