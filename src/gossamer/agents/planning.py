"""Planning between sites that do not pool their data: each ends with the share that would be cut from the whole graph.

A generator of exchanges like the training step, by messages between neighbours alone: a handshake, which compares what
both endpoints of a link must have alike; the degrees of boundary vertices (D_ij is a function of A_ij and two degrees);
marks of the receptive fields on boundary vertices, one exchange for each propagation; and counts of all agents,
flooded from neighbour to neighbour.
"""

import hashlib
from collections.abc import Callable, Generator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse

from gossamer.agents.exchange import Inbox, Outbox, Phase
from gossamer.agents.links import Link
from gossamer.agents.plan import walk_fields
from gossamer.agents.planning_checks import COUNTS_PER_AGENT, Counts, Distances, check_degrees, check_links, check_marks
from gossamer.agents.share import Share, TopologyShare, select_touching
from gossamer.array_types import Floats, Ints
from gossamer.data.graph import make_symmetric
from gossamer.data.site import SiteData
from gossamer.errors import GossamerError
from gossamer.generators import delegate
from gossamer.model import make_shift
from gossamer.model.gather import Gather, VertexMask

MessageShapes = dict[Link, tuple[int, ...]]
HANDSHAKE_LENGTH = 20  # numbers of a handshake: number of links, C_kz, features, time steps, and two digests


@dataclass(frozen=True)
class Site:
    """One agent before planning: its data, its neighbours, and the network to train."""

    agent: int
    num_agents: int
    neighbours: tuple[int, ...]
    data: SiteData
    gathers: tuple[Gather, ...]
    shift: str
    terms: str  # everything else that all sites must have alike
    weights: Floats | None  # this agent's row of C [m]; None: Metropolis-Hastings

    def boundary(self, z: int) -> Ints:
        """This site's vertices with an edge to agent z's, as positions in `data.vertices`, ascending."""
        vertices = self.data.edges[self.across(z)].reshape(-1)
        return np.unique(vertices[self.data.owner[vertices] == self.agent])

    def halo(self, z: int) -> Ints:
        """Agent z's vertices with an edge to this site's, as positions in `data.vertices`."""
        return np.flatnonzero(self.data.owner == z)

    def across(self, z: int) -> NDArray[np.bool_]:
        """Mask of the edges between this site and agent z."""
        return np.asarray((self.data.owner[self.data.edges] == z).any(1))


def planned_shapes(site: Site) -> list[MessageShapes]:
    """Shapes of the messages of each exchange of `plan_site`, known from the start so that no others are accepted."""
    m, batch = site.num_agents, site.data.batch or 0
    propagations = sum(f.powers[-1] for f in site.gathers)

    def alike(length: int) -> MessageShapes:
        return {Link(z, site.agent): (length,) for z in site.neighbours}

    halo: MessageShapes = {Link(z, site.agent): (n,) for z in site.neighbours if (n := len(site.halo(z)))}
    return [
        alike(HANDSHAKE_LENGTH),
        halo,  # degrees
        *[halo] * (1 + 2 * propagations),  # marks: labels and their fields, and all vertices' fields
        *[alike(m * COUNTS_PER_AGENT + batch)] * (m - 1),
        *[alike(m)] * (m - 1),
    ]


def plan_site(site: Site) -> Generator[Outbox, Inbox, tuple[Share, int]]:
    """The share of a site's agent, and the number of links between the two agents that are farthest apart."""
    data, k, m = site.data, site.agent, site.num_agents
    exchange = _PlanningExchanges(site)
    own = data.owner == k
    handshakes = yield from exchange({z: _handshake(site, z) for z in site.neighbours})
    for z, handshake in handshakes.items():
        check_links(k, z, handshake[0], m)
        _compare(site, z, handshake)
    row = _metropolis(site, handshakes) if site.weights is None else site.weights

    adjacency = make_symmetric(data.edges, data.weights, len(data.vertices))
    degree = yield from exchange.complete(adjacency.sum(1), check_degrees)
    shift = make_shift(adjacency, site.shift, degree)
    backwards = sparse.csr_array((shift != 0).astype(np.int32).T)

    def reach(rows: VertexMask) -> Generator[Outbox, Inbox, VertexMask]:
        reached = (backwards @ rows.astype(np.int32)) > 0
        return (yield from exchange.complete(reached, check_marks)) > 0

    def fields(outputs: VertexMask) -> Generator[Outbox, Inbox, list[list[VertexMask]]]:
        return (yield from delegate(walk_fields(site.gathers, outputs), reach))

    train, labelled = data.masks["train"], np.zeros(len(own), dtype=bool)
    labelled[own] = train if data.batch is None else train.any(1)
    labelled = (yield from exchange.complete(labelled, check_marks)) > 0
    train_fields = yield from fields(labelled)
    full_fields = yield from fields(np.ones(len(own), dtype=bool))

    counts = np.zeros((m, COUNTS_PER_AGENT))
    counts[k] = own.sum(), train.sum()
    times = np.zeros(0) if data.batch is None else train.any(0).astype(np.float64)
    halos = {z: (len(site.halo(z)), int(labelled[site.halo(z)].sum())) for z in site.neighbours}
    known = Counts(k, counts[k], m, data.batch or 1, halos)
    found, radius = yield from exchange.flood(np.concatenate([counts.reshape(-1), times]), known.check)
    counts, times = found[: m * COUNTS_PER_AGENT].reshape(m, COUNTS_PER_AGENT), found[m * COUNTS_PER_AGENT :]
    if not counts[:, 0].all():
        missing = ", ".join(map(str, np.flatnonzero(counts[:, 0] == 0)))
        raise GossamerError(f"no chain of neighbours leads from agent {k} to agent {missing}; add a link")
    if not counts[:, 1].any():
        raise GossamerError("no site has a training example; mark at least one vertex with the split train")
    farthest, _ = yield from exchange.flood(np.eye(m)[k] * radius, Distances(k, radius, m).check)
    entries, vertices = select_touching(shift, shift.T.tocsr(), np.flatnonzero(own))
    share = Share(
        agents=(k,),
        num_agents=m,
        num_vertices=int(counts[:, 0].sum()),
        num_labelled=int(counts[:, 1].sum()),
        num_classes=data.num_classes,
        vertices=data.vertices[vertices],
        owner=data.owner[vertices],
        topologies=(
            TopologyShare(
                entries=entries,
                train_fields=[[rows[vertices] for rows in sets] for sets in train_fields],
                full_fields=[[rows[vertices] for rows in sets] for sets in full_fields],
                combination=row[None],
            ),
        ),
        features=data.features,
        targets=data.targets,
        masks=data.masks,
        train_times=None if data.batch is None else np.flatnonzero(times),
    )
    return share, int(farthest.max(initial=0))


class _PlanningExchanges:
    """The site's exchanges, numbered."""

    def __init__(self, site: Site) -> None:
        self.site, self.shapes, self.index = site, planned_shapes(site), 0

    def __call__(self, vectors: dict[int, Floats]) -> Generator[Outbox, Inbox, dict[int, Floats]]:
        """Send each neighbour its vector; return those that arrive, by sender."""
        messages = {Link(self.site.agent, z): torch.from_numpy(vector) for z, vector in vectors.items() if len(vector)}
        expected = self.shapes[self.index]
        inbox = yield Outbox(Phase.PLANNING, self.index, messages, expected)
        self.index += 1
        return {link.sender: inbox[link].numpy() for link in expected}

    def complete(
        self, values: NDArray[np.float64 | np.bool_], check: Callable[[int, int, Floats, Floats], None]
    ) -> Generator[Outbox, Inbox, Floats]:
        """Values of all known vertices from those of the site's own vertices: the owners of the halo send theirs.

        `check` compares them with the part that this site knows.
        """
        result = values.astype(np.float64)
        received = yield from self({z: result[self.site.boundary(z)] for z in self.site.neighbours})
        for z, vector in received.items():
            there = self.site.halo(z)
            check(self.site.agent, z, result[there], vector)
            result[there] = vector
        return result

    def flood(
        self, vector: Floats, check: Callable[[int, Floats], None]
    ) -> Generator[Outbox, Inbox, tuple[Floats, int]]:
        """Maximum over all agents of each number, after as many rounds as an agent can be away, and the last round that
        brought something new. `check` refuses numbers before they are passed on."""
        latest = 0
        for round_ in range(1, self.site.num_agents):
            received = yield from self(dict.fromkeys(self.site.neighbours, vector))
            for z, numbers in received.items():
                check(z, numbers)
            merged = np.max([vector, *received.values()], axis=0)
            latest = round_ if (merged != vector).any() else latest
            vector = merged
        return vector, latest


def _handshake(site: Site, z: int) -> Floats:
    """Numbers that agent z compares with its own."""
    data, across = site.data, site.across(z)
    edges = data.vertices[data.edges[across]]
    weight = -1.0 if site.weights is None else site.weights[z]
    numbers = [len(site.neighbours), weight, data.features.shape[-1], data.batch or 0]
    return np.concatenate(
        [numbers, _digest(site.terms.encode()), _digest(edges.tobytes() + data.weights[across].tobytes())]
    )


def _compare(site: Site, z: int, handshake: Floats) -> None:
    """Refuse to plan with a neighbour that means another run."""
    mine = _handshake(site, z)
    complaints: list[tuple[slice, Callable[[], str]]] = [
        (slice(4, 12), lambda: "other settings or classes: the site files must have them alike"),
        (slice(2, 3), lambda: f"{handshake[2]:.0f} features a vertex, and this site {mine[2]:.0f}"),
        (slice(3, 4), lambda: f"{handshake[3]:.0f} time steps, and this site {mine[3]:.0f}"),
        (
            slice(1, 2),
            lambda: f"another weight C between the two: {handshake[1]}, and this site {mine[1]} (-1: Metropolis)",
        ),
        (
            slice(12, 20),
            lambda: "other edges between the two: both must list every edge that joins them, with the same weight",
        ),
    ]
    for part, complaint in complaints:
        if (handshake[part] != mine[part]).any():
            raise GossamerError(f"agent {site.agent} cannot train with agent {z}, which has {complaint()}")


def _digest(content: bytes) -> Floats:
    """256 bits as eight numbers that are exact in floating point."""
    return np.frombuffer(hashlib.sha256(content).digest(), dtype="<u4").astype(np.float64)


def _metropolis(site: Site, handshakes: dict[int, Floats]) -> Floats:
    """This agent's row of C: C_kz = 1 / (1 + max(d_k, d_z)), the rest on the diagonal."""
    row = np.zeros(site.num_agents)
    for z, handshake in handshakes.items():
        row[z] = 1.0 / (1.0 + max(len(site.neighbours), handshake[0]))
    row[site.agent] = 1.0 - row.sum()
    return row
