"""Planning between sites that do not pool data: each gets the share that `make_share` would cut from the whole graph.

A generator of exchanges like the training step, by messages between neighbours alone:
    handshake   compares what both endpoints of a link must agree on
    routes      between sites that share edges without a link, where rows are relayed, and a handshake of these
    degrees     of boundary vertices: D_ij is a function of the adjacency matrix's A_ij and the degrees of i and j
    marks       of the receptive fields on boundary vertices, one exchange for each propagation
    (private runs send neither degrees nor marks)
    rows        of every route
    counts      of all agents' vertices and examples, flooded from neighbour to neighbour
    distances   of every agent to the agent farthest from it, flooded likewise
    tree        distances to the root of the spanning tree for sums over all agents, and who is whose parent
"""

import hashlib
from collections.abc import Callable, Generator

import numpy as np
from scipy import sparse

from gossamer.agents.exchange import Inbox, Outbox
from gossamer.agents.plan import count_rows, walk_fields
from gossamer.agents.planning_checks import (
    COUNTS_PER_AGENT,
    Counts,
    Distances,
    check_degrees,
    check_depth,
    check_links,
    check_marks,
)
from gossamer.agents.planning_exchanges import (
    EDGES,
    FEATURES,
    HANDSHAKE_LENGTH,
    NO_ROUTES,
    NUM_LINKS,
    TERMS,
    TIMES,
    WEIGHT,
    PlanningExchanges,
    Site,
    SiteRoutes,
)
from gossamer.agents.planning_routes import count_relayed_rows, find_routes
from gossamer.agents.share import Share, TopologyShare, select_touching
from gossamer.agents.sums import TreeNode, choose_parent, choose_root
from gossamer.array_types import Floats, Ints
from gossamer.data.graph import build_adjacency
from gossamer.errors import GossamerError
from gossamer.generators import delegate
from gossamer.model import make_shift
from gossamer.model.gather import VertexMask
from gossamer.model.shift import sum_degrees

METROPOLIS = -1.0  # stands for C_kz in a handshake if the weights are to be Metropolis-Hastings'


def plan_site(
    site: Site, on_routes: Callable[[SiteRoutes], None] = lambda routes: None
) -> Generator[Outbox, Inbox, tuple[Share, int]]:
    """Plan the share of a site's agent; return it with the diameter of the agents' graph. `on_routes` takes the routes
    between sites that may relay, as soon as they are known."""
    data, k, m = site.data, site.agent, site.num_agents
    exchange = PlanningExchanges(site)
    own = data.owner == k
    handshakes = yield from exchange({z: _make_handshake(site, z) for z in site.neighbours})
    for z, handshake in handshakes.items():
        check_links(k, z, handshake[NUM_LINKS], m)
        _check_handshake(site, z, handshake)
    routes = NO_ROUTES
    if site.relays:
        routes = yield from find_routes(exchange)
        on_routes(routes)
        if routes.paths:
            greetings = yield from exchange({z: _make_handshake(site, z) for z in routes.list_far(k)})
            for z, handshake in greetings.items():
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
    entries, vertices = select_touching(shift, shift.T.tocsr(), np.flatnonzero(own))
    train_fields, full_fields = (
        [[rows[vertices] for rows in sets] for sets in one] for one in (train_fields, full_fields)
    )
    own_routes = None
    if routes.paths:
        counts_of = [
            count_rows(entries, site.gathers, one, data.owner[vertices]) for one in (train_fields, full_fields)
        ]
        own_routes = yield from count_relayed_rows(exchange, routes, *counts_of)

    known_halos = () if site.private else site.partners
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
                train_fields=train_fields,
                full_fields=full_fields,
                combination=row[None],
            ),
        ),
        features=data.features,
        targets=data.targets,
        masks=data.masks,
        train_times=None if data.batch is None else np.flatnonzero(times),
        routes=own_routes,
        tree=tree,
    )
    return share, int(eccentricities.max(initial=0))


def _join_tree(
    exchange: PlanningExchanges, distance: Ints, eccentricities: Floats
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
