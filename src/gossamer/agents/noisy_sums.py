"""Noisy sums: aggregation perturbation without a server (Sajadmanesh, Shamsabadi, Bellet and Gatica-Perez 2023, "GAP:
differentially private graph neural networks with aggregation perturbation").

In a hop every agent z sums the unit-norm rows r_j of its own vertices j for every destination i, of its own vertices
too, and adds Gaussian noise to every sum before anybody uses it:

    s_zi = sum_{j: a(j) = z, j -> i} c_j r_j + noise N(0, I)

At node level c_j = 1 / sqrt(d_j) for d_j out-edges of j. Taking away what j gives then changes all sums together by at
most 1 in norm, however many edges it has. (GAP keeps at most Delta out-edges of each vertex, for a change of at most
sqrt(Delta); vertices with fewer edges do not use up that bound.) At edge level c_j = 1: an edge inside an agent is in
two sums, and changes them by sqrt(2). A destination weighs the sums by its own number of neighbours n_zi at each agent,
as the best linear estimate of a mean of n_zi rows from a noisy sum does; at edge level these numbers are protected, and
it takes the total, shrunk by the noise that it has.

Rows are sums for a destination, never a single vertex's. An agent sends one for every destination that an edge between
the two leads to, and has one for every vertex of its own, so that the pattern of messages does not depend on what a
vertex gives. Hops are computed once; later ones take the noisy rows alone.
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
from gossamer.agents.secret_streams import digest_rows, number_key, stream_normal
from gossamer.agents.share import Share
from gossamer.array_types import Ints
from gossamer.model.sparse import Operator, make_operator


@dataclass(frozen=True)
class Estimates:
    """Sums that arrive at the hosted vertices over one link, or within the host."""

    to: Tensor  # int64 [sums]: row of the destination
    count: Tensor  # [sums]: n_zi, edges to the destination from vertices of the sum's agent


@dataclass(frozen=True)
class SumPlan:
    """Sums of the hosted agents: pairs (z, i) of an agent and a destination, by agent, then destination."""

    operator: Operator  # c_j on out-edges: pairs x hosted vertices
    agents: tuple[tuple[int, slice, Tensor], ...]  # the pairs of each hosted agent, and the rows of its vertices
    inside: tuple[Tensor, Estimates]  # pairs whose destination is hosted
    outgoing: tuple[tuple[Link, Tensor], ...]  # pairs that each link carries
    incoming: tuple[tuple[Link, Estimates], ...]
    degree: Tensor  # [hosted vertices]: edges of each
    num_vertices: int  # hosted
    weighted: bool  # at node level

    @property
    def num_sent(self) -> int:
        """Rows that leave the host in a hop."""
        return sum(len(pairs) for _, pairs in self.outgoing)


def plan_sums(share: Share, weighted: bool) -> SumPlan:
    """Plan the sums of a share's agents on the data graph's edges, at node level `weighted` by degrees."""
    i, j, _ = share.topologies[0].entries
    edges = i != j
    i, j, owner, n = i[edges].astype(np.int64), j[edges].astype(np.int64), share.owner, len(share.owner)
    hosted = np.flatnonzero(share.hosted)
    row = np.full(n, -1, dtype=np.int64)
    row[hosted] = np.arange(len(hosted))
    endpoint = endpoints(share.hosting, share.num_agents)
    leaving, here = row[j] >= 0, row[i] >= 0
    pairs = np.unique(np.concatenate([owner[j[leaving]] * n + i[leaving], owner[hosted] * n + hosted]))
    agent, destination = pairs // n, pairs % n
    degree = np.bincount(j[leaving], minlength=n)[hosted].astype(np.float64)
    weight = 1.0 / np.sqrt(np.maximum(degree, 1.0)) if weighted else np.ones(len(hosted))
    out_i, out_j = i[leaving], j[leaving]
    matrix = sparse.csr_array(
        (weight[row[out_j]], (np.searchsorted(pairs, owner[out_j] * n + out_i), row[out_j])),
        shape=(len(pairs), len(hosted)),
    )
    arriving, counts = np.unique(owner[j[here]] * n + i[here], return_counts=True)

    def estimate(wanted: Ints) -> Estimates:
        """Of pairs whose destination is hosted; an agent's own sum for a vertex may have no edge."""
        position = np.minimum(np.searchsorted(arriving, wanted), max(len(arriving) - 1, 0))
        found = np.where(arriving[position] == wanted, counts[position], 0) if len(arriving) else 0 * wanted
        return Estimates(torch.from_numpy(row[wanted % n]), torch.from_numpy(found.astype(np.float64)))

    kept = row[destination] >= 0
    away = np.flatnonzero(~kept)
    wanted = arriving[~np.isin(arriving // n, share.agents)]
    return SumPlan(
        operator=make_operator(matrix, torch.float64),
        agents=tuple(
            (
                k,
                slice(int(np.searchsorted(agent, k)), int(np.searchsorted(agent, k, "right"))),
                torch.from_numpy(np.flatnonzero(owner[hosted] == k)),
            )
            for k in sorted(share.agents)
        ),
        inside=(torch.from_numpy(np.flatnonzero(kept)), estimate(pairs[kept])),
        outgoing=tuple(
            (link, torch.from_numpy(part))
            for link, part in _group(endpoint[agent[away]], endpoint[owner[destination[away]]], away)
        ),
        incoming=tuple(
            (link, estimate(part)) for link, part in _group(endpoint[wanted // n], endpoint[owner[wanted % n]], wanted)
        ),
        degree=torch.from_numpy(degree),
        num_vertices=len(hosted),
        weighted=weighted,
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


def _group(sender: Ints, receiver: Ints, values: Ints) -> list[tuple[Link, Ints]]:
    """Values by link, in their order; links by sender and receiver."""
    order = np.lexsort((np.arange(len(values)), receiver, sender))
    return [(link, values[order][part]) for link, part in group_by_link(sender[order], receiver[order])]


def run_hops(
    plan: SumPlan, rows: Tensor, hops: int, noise: float, secrets: Secrets, seed: int, context: int | None = None
) -> Generator[Outbox, Inbox, list[Tensor]]:
    """Estimates [hosted vertices, width] after each hop from the rows, which are taken at unit norm; noise has this
    standard deviation. Estimates have at most unit norm.

    With a `context` of one agent's data, other rows have other noise (host.PrivateSteps).
    """
    found: list[Tensor] = []
    for hop in range(hops):
        sums = draw_sums(plan, found[-1] if found else rows, hop, noise, secrets, seed, context).to(rows.dtype)
        inbox = yield Outbox(
            Phase.FORWARD,
            hop,
            {link: sums[pairs] for link, pairs in plan.outgoing},
            {link: (len(estimates.to), sums.shape[1]) for link, estimates in plan.incoming},
        )
        picked, inside = plan.inside
        arrived = [(inside, sums[picked]), *((estimates, inbox[link]) for link, estimates in plan.incoming)]
        found.append(combine_sums(plan, arrived, noise).to(rows.dtype))
    return found


def draw_sums(
    plan: SumPlan, rows: Tensor, hop: int, noise: float, secrets: Secrets, seed: int, context: int | None = None
) -> Tensor:
    """The noisy sums of the hosted agents [pairs, width], all that leaves the rows in one hop, in float64."""
    given = normalise_rows(rows)
    sums = plan.operator @ given.double()
    for k, pairs, own in plan.agents:
        key = (seed, hop, number_key(noise), *([] if context is None else [context, digest_rows(given[own])]))
        part = sums[pairs]
        drawn = stream_normal(secrets.by_agent[k], "sums", key, part.numel())
        part.add_(torch.from_numpy(drawn).view_as(part), alpha=noise)
    return sums


def combine_sums(plan: SumPlan, arrived: list[tuple[Estimates, Tensor]], noise: float) -> Tensor:
    """Estimates of the hosted vertices from all sums for them.

    At node level, with a = 1 / sqrt(d_i) for the c_j of neighbours, which i does not know, and h = width - 1 directions
    in which rows vary, u_zi = a n_zi / (a^2 n_zi / h + noise^2) is the weight of a sum that holds n_zi rows of variance
    1 / h and noise, and the estimate sum_z u_zi s_zi / (h + sum_z u_zi a n_zi).
    """
    width = arrived[0][1].shape[1]
    h, n = max(width - 1, 1), plan.num_vertices
    total = torch.zeros(n, width, dtype=torch.float64)
    scale = torch.zeros(n, dtype=torch.float64)
    a = 1.0 / plan.degree.clamp(min=1.0).sqrt()
    for estimates, sums in arrived:
        to, count = estimates.to, estimates.count
        if plan.weighted:
            mean = a[to] * count
            u = mean / (a[to] * mean / h + noise**2).clamp(min=torch.finfo(torch.float64).tiny)
            scale.index_add_(0, to, u * mean)
        else:
            u = torch.ones_like(count)
            scale.index_add_(0, to, u)
        total.index_add_(0, to, u[:, None] * sums.double())
    if plan.weighted:
        return limit_rows(total / (h + scale)[:, None])
    norms: Tensor = torch.linalg.vector_norm(total, dim=1)
    shrunk = norms + noise * (scale * h).sqrt()
    return total / shrunk.clamp(min=torch.finfo(torch.float64).tiny)[:, None]


def limit_rows(rows: Tensor) -> Tensor:
    """Rows of at most unit norm."""
    norms: Tensor = torch.linalg.vector_norm(rows, dim=-1, keepdim=True)
    return rows / norms.clamp(min=1.0)


def normalise_rows(rows: Tensor) -> Tensor:
    """Rows divided by their norm; zeros stay."""
    norms: Tensor = torch.linalg.vector_norm(rows, dim=-1, keepdim=True)
    return rows / norms.clamp(min=torch.finfo(rows.dtype).tiny)
