"""Planning between sites that do not pool data: each gets the share that `make_share` would cut from the whole graph.

A generator of exchanges like the training step, by messages between neighbours alone:
    handshake   compares what both endpoints of a link must agree on
    degrees     of boundary vertices: D_ij is a function of the adjacency matrix's A_ij and the degrees of i and j
    marks       of the receptive fields on boundary vertices, one exchange for each propagation
    (private runs send neither degrees nor marks)
    counts      of all agents' vertices and examples, flooded from neighbour to neighbour
    distances   of every agent to the agent farthest from it, flooded likewise
    tree        distances to the root of the spanning tree for sums over all agents, and who is whose parent
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
from gossamer.agents.planning_checks import (
    COUNTS_PER_AGENT,
    Counts,
    Distances,
    check_degrees,
    check_depth,
    check_links,
    check_marks,
)
from gossamer.agents.share import Share, TopologyShare, select_touching
from gossamer.agents.sums import TreeNode, choose_parent, choose_root
from gossamer.array_types import Floats, Ints
from gossamer.data.graph import build_adjacency
from gossamer.data.site import SiteData
from gossamer.errors import GossamerError
from gossamer.generators import delegate
from gossamer.model import make_shift
from gossamer.model.gather import Gather, VertexMask
from gossamer.model.shift import sum_degrees

MessageShapes = dict[Link, tuple[int, ...]]
DIGEST_LENGTH = 8  # numbers
# Parts of a handshake: number of links, C_kz, features, time steps, and digests of the terms and of the shared edges
NUM_LINKS, WEIGHT, FEATURES, TIMES = range(4)
TERMS = slice(4, 4 + DIGEST_LENGTH)
EDGES = slice(TERMS.stop, TERMS.stop + DIGEST_LENGTH)
HANDSHAKE_LENGTH = EDGES.stop
METROPOLIS = -1.0  # stands for C_kz in a handshake if the weights are to be Metropolis-Hastings'


@dataclass(frozen=True)
class Site:
    """One agent before planning: its data, its neighbours, and the network to train."""

    agent: int
    num_agents: int
    neighbours: tuple[int, ...]
    data: SiteData
    gathers: tuple[Gather, ...]
    shift: str
    terms: str  # settings and classes as text, which must be equal at all sites
    combination_row: Floats | None  # this agent's row of C [m]; None: Metropolis-Hastings
    balanced: bool = False  # classes or labels have class weights
    private: bool = False  # sums are noisy: neither degrees nor marks of labels are sent

    def boundary(self, z: int) -> Ints:
        """This site's vertices with an edge to agent z's, as positions in `data.vertices`, ascending."""
        vertices = self.data.edges[self.edges_to(z)].reshape(-1)
        return np.unique(vertices[self.data.owner[vertices] == self.agent])

    def halo(self, z: int) -> Ints:
        """Agent z's vertices with an edge to this site's (it knows no others), as positions in `data.vertices`."""
        return np.flatnonzero(self.data.owner == z)

    def edges_to(self, z: int) -> NDArray[np.bool_]:
        """Mask of the edges between this site and agent z."""
        return np.asarray((self.data.owner[self.data.edges] == z).any(1))


def list_message_shapes(site: Site) -> list[MessageShapes]:
    """Shapes of the messages of each exchange of `plan_site`, known in advance so that no others are accepted."""
    m, batch = site.num_agents, site.data.batch or 0
    propagations = sum(gather.powers[-1] for gather in site.gathers)

    def from_each_neighbour(length: int) -> MessageShapes:
        return {Link(z, site.agent): (length,) for z in site.neighbours}

    halo: MessageShapes = {Link(z, site.agent): (n,) for z in site.neighbours if (n := len(site.halo(z)))}
    return [
        from_each_neighbour(HANDSHAKE_LENGTH),
        # Degrees, then marks: labels, the fields of labels and those of all vertices
        *([] if site.private else [halo] * (2 + 2 * propagations)),
        *[from_each_neighbour(m * COUNTS_PER_AGENT + batch)] * (m - 1),
        *[from_each_neighbour(m)] * (m - 1),
        from_each_neighbour(1),  # tree: distance to the root, and whether the receiver is the parent
        from_each_neighbour(1),
    ]


def plan_site(site: Site) -> Generator[Outbox, Inbox, tuple[Share, int]]:
    """Plan the share of a site's agent; return it with the diameter of the agents' graph."""
    data, k, m = site.data, site.agent, site.num_agents
    exchange = _PlanningExchanges(site)
    own = data.owner == k
    handshakes = yield from exchange({z: _make_handshake(site, z) for z in site.neighbours})
    for z, handshake in handshakes.items():
        check_links(k, z, handshake[NUM_LINKS], m)
        _check_handshake(site, z, handshake)
    row = _metropolis_row(site, handshakes) if site.combination_row is None else site.combination_row

    adjacency = build_adjacency(data.edges, data.weights, len(data.vertices))
    if site.private:
        shift = sparse.csr_array((adjacency != 0).astype(np.float64))
    else:
        degree = yield from exchange.fill_halo(sum_degrees(adjacency, site.shift), check_degrees)
        shift = make_shift(adjacency, site.shift, degree)
    sources = sparse.csr_array((shift != 0).astype(np.int32).T)

    def find_sources(rows: VertexMask) -> Generator[Outbox, Inbox, VertexMask]:
        """Vertices j with D_ij != 0 for one of the rows i."""
        found = (sources @ rows.astype(np.int32)) > 0
        return (yield from exchange.fill_halo(found, check_marks)) > 0

    def fields(outputs: VertexMask) -> Generator[Outbox, Inbox, list[list[VertexMask]]]:
        return (yield from delegate(walk_fields(site.gathers, outputs), find_sources))

    train, labelled = data.masks["train"], np.zeros(len(own), dtype=bool)
    labelled[own] = train if data.batch is None else train.any(1)
    if not site.private:
        labelled = (yield from exchange.fill_halo(labelled, check_marks)) > 0
    train_fields = yield from fields(labelled)
    full_fields = yield from fields(np.ones(len(own), dtype=bool))

    counts = np.zeros((m, COUNTS_PER_AGENT))
    counts[k] = own.sum(), train.sum()
    times = np.zeros(0) if data.batch is None else train.any(0).astype(np.float64)
    known_halos = () if site.private else site.neighbours
    halos = {z: (len(site.halo(z)), int(labelled[site.halo(z)].sum())) for z in known_halos}
    known = Counts(k, counts[k], m, data.batch or 1, halos)
    # Every agent has vertices, so that its count is news wherever it arrives first: in the round of its distance.
    flooded, arrivals = yield from exchange.flood(np.concatenate([counts.reshape(-1), times]), known.check)
    distance = arrivals[: m * COUNTS_PER_AGENT].reshape(m, COUNTS_PER_AGENT)[:, 0]  # in links, to every agent
    eccentricity = int(distance.max())
    counts, times = flooded[: m * COUNTS_PER_AGENT].reshape(m, COUNTS_PER_AGENT), flooded[m * COUNTS_PER_AGENT :]
    if not counts[:, 0].all():
        missing = ", ".join(map(str, np.flatnonzero(counts[:, 0] == 0)))
        raise GossamerError(f"no chain of neighbours leads from agent {k} to agent {missing}; add a link")
    if not counts[:, 1].any():
        raise GossamerError("no site has a training example; mark at least one vertex with the split train")
    distances = Distances(k, eccentricity, m)
    eccentricities, _ = yield from exchange.flood(np.eye(m)[k] * eccentricity, distances.check)
    tree = yield from _join_tree(exchange, distance, eccentricities)
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
        tree=tree,
    )
    return share, int(eccentricities.max(initial=0))


class _PlanningExchanges:
    """Exchanges of a site's planning messages, counted."""

    def __init__(self, site: Site) -> None:
        self.site, self.shapes, self.index = site, list_message_shapes(site), 0

    def __call__(self, vectors: dict[int, Floats]) -> Generator[Outbox, Inbox, dict[int, Floats]]:
        """Send each neighbour its vector; return those that arrive, by sender."""
        messages = {Link(self.site.agent, z): torch.from_numpy(vector) for z, vector in vectors.items() if len(vector)}
        expected = self.shapes[self.index]
        inbox = yield Outbox(Phase.PLANNING, self.index, messages, expected)
        self.index += 1
        return {link.sender: inbox[link].numpy() for link in expected}

    def fill_halo(
        self, values: NDArray[np.float64 | np.bool_], check: Callable[[int, int, Floats, Floats], None]
    ) -> Generator[Outbox, Inbox, Floats]:
        """Replace the values of halo vertices by those that their owners send.

        `check` compares them with what this site knows of them.
        """
        result = values.astype(np.float64)
        received = yield from self({z: result[self.site.boundary(z)] for z in self.site.neighbours})
        for z, vector in received.items():
            halo = self.site.halo(z)
            check(self.site.agent, z, result[halo], vector)
            result[halo] = vector
        return result

    def flood(
        self, vector: Floats, check: Callable[[int, Floats], None]
    ) -> Generator[Outbox, Inbox, tuple[Floats, Ints]]:
        """Elementwise maximum over all agents, by m - 1 rounds, and the last round that changed each number here.

        `check` refuses numbers before they are passed on.
        """
        last_change = np.zeros(len(vector), dtype=np.int64)
        for round_ in range(1, self.site.num_agents):
            received = yield from self(dict.fromkeys(self.site.neighbours, vector))
            for z, numbers in received.items():
                check(z, numbers)
            merged = np.max([vector, *received.values()], axis=0)
            last_change[merged != vector] = round_
            vector = merged
        return vector, last_change


def _join_tree(
    exchange: _PlanningExchanges, distance: Ints, eccentricities: Floats
) -> Generator[Outbox, Inbox, TreeNode]:
    """This site's place in the spanning tree that `plan_tree` finds; `distance` is that to every agent, in links."""
    site = exchange.site
    root = choose_root(eccentricities)
    depth = int(distance[root])
    received = yield from exchange({z: np.array([float(depth)]) for z in site.neighbours})
    for z, (theirs,) in received.items():
        check_depth(site.agent, z, root, depth, theirs)
    parent = choose_parent({z: float(theirs[0]) for z, theirs in received.items()}, depth)
    chosen = yield from exchange({z: np.array([float(z == parent)]) for z in site.neighbours})
    children = tuple(z for z, mark in sorted(chosen.items()) if mark[0])
    return TreeNode(site.agent, parent, children, depth, int(eccentricities[root]))


def _make_handshake(site: Site, z: int) -> Floats:
    """Numbers that agent z compares with its own."""
    data, shared = site.data, site.edges_to(z)
    edges = data.vertices[data.edges[shared]]
    handshake = np.zeros(HANDSHAKE_LENGTH)
    handshake[NUM_LINKS] = len(site.neighbours)
    handshake[WEIGHT] = METROPOLIS if site.combination_row is None else site.combination_row[z]
    handshake[FEATURES] = data.features.shape[-1]
    handshake[TIMES] = data.batch or 0
    handshake[TERMS] = _digest(site.terms.encode())
    handshake[EDGES] = _digest(edges.tobytes() + data.weights[shared].tobytes())
    return handshake


def _check_handshake(site: Site, z: int, theirs: Floats) -> None:
    """Refuse to plan with a neighbour whose handshake disagrees with this site's."""
    own = _make_handshake(site, z)
    complaints: list[tuple[int | slice, str]] = [
        (TERMS, "other settings or classes: the site files must have them alike"),
        (FEATURES, f"{theirs[FEATURES]:.0f} features a vertex, and this site {own[FEATURES]:.0f}"),
        (TIMES, f"{theirs[TIMES]:.0f} time steps, and this site {own[TIMES]:.0f}"),
        (
            WEIGHT,
            f"another weight C between the two: {theirs[WEIGHT]}, and this site {own[WEIGHT]} (-1: Metropolis)",
        ),
        (EDGES, "other edges between the two: both must list every edge that joins them, with the same weight"),
    ]
    for part, complaint in complaints:
        if np.any(theirs[part] != own[part]):
            raise GossamerError(f"agent {site.agent} cannot train with agent {z}, which has {complaint}")


def _digest(content: bytes) -> Floats:
    """SHA-256 as eight numbers of 32 bits, exact in floating point."""
    return np.frombuffer(hashlib.sha256(content).digest(), dtype="<u4").astype(np.float64)


def _metropolis_row(site: Site, handshakes: dict[int, Floats]) -> Floats:
    """Row of C by Metropolis-Hastings (topology/weights.py): C_kz = 1 / (1 + max(d_k, d_z)), d_k links of agent k."""
    row = np.zeros(site.num_agents)
    for z, handshake in handshakes.items():
        row[z] = 1.0 / (1.0 + max(len(site.neighbours), handshake[NUM_LINKS]))
    row[site.agent] = 1.0 - row.sum()
    return row
