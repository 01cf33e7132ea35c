"""Exchanges of sites that plan together: what a site is, and which messages it expects in which order.

Messages between sites without a link are passed on by others (planning_routes.py), once the sites know the routes.
"""

from collections.abc import Callable, Generator
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray

from gossamer.agents.exchange import Inbox, Outbox, Phase
from gossamer.agents.links import Link
from gossamer.agents.planning_checks import COUNTS_PER_AGENT
from gossamer.agents.relays import AgentRoutes, Route, select_routes
from gossamer.array_types import Floats, Ints
from gossamer.data.site import SiteData
from gossamer.model.gather import Gather

MessageShapes = dict[Link, tuple[int, ...]]
DIGEST_LENGTH = 8  # numbers
# Parts of a handshake: number of links, C_kz, features, time steps, and digests of the terms and of the shared edges
NUM_LINKS, WEIGHT, FEATURES, TIMES = range(4)
TERMS = slice(4, 4 + DIGEST_LENGTH)
EDGES = slice(TERMS.stop, TERMS.stop + DIGEST_LENGTH)
HANDSHAKE_LENGTH = EDGES.stop


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
    relays: bool = False  # edges may lead to agents without a link

    @property
    def partners(self) -> tuple[int, ...]:
        """The agents that this one exchanges rows or weights with: its neighbours, and others that edges lead to."""
        return tuple(sorted({*self.neighbours, *np.unique(self.data.owner).tolist()} - {self.agent}))

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


@dataclass(frozen=True)
class SiteRoutes:
    """Routes between sites that share edges without a link."""

    paths: tuple[Route, ...]  # of each pair once
    longest: int
    halos: Ints  # [m, m]: the vertices of agent k with an edge to agent z

    def list_forwarded(self, agent: int) -> MessageShapes:
        """Shapes of the messages with a number for each boundary vertex that an agent passes on."""
        passing = [path for path in self.paths if agent in path[1:-1]]
        ends = [(one[0], one[-1]) for path in passing for one in (path, path[::-1])]
        return {Link(k, z): (int(self.halos[k, z]),) for k, z in ends}

    def of_agent(self, agent: int) -> AgentRoutes | None:
        """The routes of one agent, before rows are planned; None if nobody needs any."""
        return select_routes(agent, self.paths, self.longest, (), ()) if self.paths else None

    def list_far(self, agent: int) -> tuple[int, ...]:
        """The agents that this one has routes to."""
        ends = [(path[0], path[-1]) for path in self.paths]
        return tuple(sorted(z if k == agent else k for k, z in ends if agent in (k, z)))


NO_ROUTES = SiteRoutes((), 1, np.zeros((0, 0), dtype=np.int64))


def list_planning_exchanges(site: Site, routes: SiteRoutes | None = None) -> list[Outbox]:
    """The exchanges of `plan_site` with zeros for what is sent, known in advance so that nothing else is accepted.

    Of sites that may relay, those up to the routes, and all once the routes are known.
    """
    k, m, batch = site.agent, site.num_agents, site.data.batch or 0
    propagations = sum(gather.powers[-1] for gather in site.gathers)
    found: list[Outbox] = []

    def add(sent: dict[int, int], expected: dict[int, int], forwarded: MessageShapes | None = None) -> None:
        """Add an exchange of vectors, by the lengths of those for, and those of, other agents."""
        zeros = {Link(k, z): torch.zeros(1, dtype=torch.float64).expand(length) for z, length in sent.items() if length}
        shapes = {Link(z, k): (length,) for z, length in expected.items() if length}
        found.append(Outbox(Phase.PLANNING, len(found), zeros, shapes, torch.float64, forwarded=forwarded))

    def add_vector(length: int, times: int = 1) -> None:
        for _ in range(times):
            add(dict.fromkeys(site.neighbours, length), dict.fromkeys(site.neighbours, length))

    add_vector(HANDSHAKE_LENGTH)
    if site.relays:
        add_vector(3 * m * m, m - 1)  # links, edges and boundary vertices of all
        if routes is None:
            return found
    routes = routes or NO_ROUTES
    relays = bool(routes.paths)
    if relays:
        far, others = dict.fromkeys(routes.list_far(k), HANDSHAKE_LENGTH), routes.list_forwarded(k)
        add(far, far, dict.fromkeys(others, (HANDSHAKE_LENGTH,)))
    if not site.private:  # degrees, then marks: labels, the fields of labels and those of all vertices
        boundary = {z: len(site.boundary(z)) for z in site.partners}
        halo = {z: len(site.halo(z)) for z in site.partners}
        for _ in range(2 + 2 * propagations):
            add(boundary, halo, routes.list_forwarded(k) if relays else None)
    if relays:
        add_vector(4 * propagations * len(routes.paths), m - 1)  # rows of each route
    add_vector(m * COUNTS_PER_AGENT + batch, m - 1)
    add_vector(m, m - 1)
    add_vector(1)  # tree: distance to the root, and whether the receiver is the parent
    add_vector(1)
    return found


class PlanningExchanges:
    """Exchanges of a site's planning messages, counted."""

    def __init__(self, site: Site) -> None:
        self.site, self.planned, self.index = site, list_planning_exchanges(site), 0

    def know(self, routes: SiteRoutes) -> None:
        """Go on with exchanges that are relayed by these routes."""
        self.planned = list_planning_exchanges(self.site, routes)

    def __call__(self, vectors: dict[int, Floats]) -> Generator[Outbox, Inbox, dict[int, Floats]]:
        """Send each neighbour its vector; return those that arrive, by sender."""
        messages = {Link(self.site.agent, z): torch.from_numpy(vector) for z, vector in vectors.items() if len(vector)}
        planned = self.planned[self.index]
        inbox = yield replace(planned, messages=messages)
        self.index += 1
        return {link.sender: inbox[link].numpy() for link in planned.expected}

    def fill_halo(
        self, values: NDArray[np.float64 | np.bool_], check: Callable[[int, int, Floats, Floats], None]
    ) -> Generator[Outbox, Inbox, Floats]:
        """Replace the values of halo vertices by those that their owners send.

        `check` compares them with what this site knows of them.
        """
        result = values.astype(np.float64)
        received = yield from self({z: result[self.site.boundary(z)] for z in self.site.partners})
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
