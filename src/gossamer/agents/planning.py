"""Planning between sites that pool nothing: from what each knows alone to the share that a common cutter would cut.

A generator of exchanges like the training step, by messages between neighbours alone: what both ends of a link must
have alike; the degrees of border vertices (D_ij is a function of A_ij and two degrees); the receptive fields' marks on
border vertices, one exchange for each propagation; and sums over all agents, passed on from neighbour to neighbour.
"""

import hashlib
from collections.abc import Callable, Generator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse

from gossamer.agents.exchange import Inbox, Outbox, Phase
from gossamer.agents.links import Ints, Link
from gossamer.agents.plan import walk_fields
from gossamer.agents.planning_checks import FACTS, Counts, Distances, check_degrees, check_links, check_marks
from gossamer.agents.share import Share, touching
from gossamer.data.graph import make_symmetric
from gossamer.data.site import SiteData
from gossamer.errors import GossamerError
from gossamer.generators import delegate
from gossamer.model import make_shift
from gossamer.model.gather import Gather, Rows

Floats = NDArray[np.float64]
Shapes = dict[Link, tuple[int, ...]]
Received = Generator[Outbox, Inbox, dict[int, Floats]]  # one exchange; by neighbour, what it told
CARD = 20  # numbers of a neighbour's card: its number of links, its C_kz, features, time steps, and two digests
Check = Callable[[int, Floats], None]  # of what a neighbour tells


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

    def border(self, z: int) -> Ints:
        """This site's vertices that are joined to agent z's, as places in `data.vertices`, ascending."""
        ends = self.data.edges[self.across(z)].reshape(-1)
        return np.unique(ends[self.data.owner[ends] == self.agent])

    def beyond(self, z: int) -> Ints:
        """Agent z's vertices that are joined to this site's."""
        return np.flatnonzero(self.data.owner == z)

    def across(self, z: int) -> NDArray[np.bool_]:
        """Which edges join this site and agent z."""
        return np.asarray((self.data.owner[self.data.edges] == z).any(1))


def planned_shapes(site: Site) -> list[Shapes]:
    """What each exchange of `plan_site` expects: known from the start, so that nothing else is let in."""
    m, batch = site.num_agents, site.data.batch or 0
    propagations = sum(f.powers[-1] for f in site.gathers)

    def alike(length: int) -> Shapes:
        return {Link(z, site.agent): (length,) for z in site.neighbours}

    beyond: Shapes = {Link(z, site.agent): (n,) for z in site.neighbours if (n := len(site.beyond(z)))}
    return [
        alike(CARD),
        beyond,  # degrees
        *[beyond] * (1 + 2 * propagations),  # marks: labels and their fields, and all vertices' fields
        *[alike(m * FACTS + batch)] * (m - 1),
        *[alike(m)] * (m - 1),
    ]


def plan_site(site: Site) -> Generator[Outbox, Inbox, tuple[Share, int]]:
    """The share of a site's agent, and how many links the two farthest agents are apart."""
    data, k, m = site.data, site.agent, site.num_agents
    exchange = _Exchanges(site)
    own = data.owner == k
    cards = yield from exchange({z: _card(site, z) for z in site.neighbours})
    for z, card in cards.items():
        check_links(k, z, card[0], m)
        _compare(site, z, card)
    row = _metropolis(site, cards) if site.weights is None else site.weights

    adjacency = make_symmetric(data.edges, data.weights, len(data.vertices))
    degree = yield from exchange.border(adjacency.sum(1), check_degrees)
    shift = make_shift(adjacency, site.shift, degree)
    backwards = sparse.csr_array((shift != 0).astype(np.int32).T)

    def reach(rows: Rows) -> Generator[Outbox, Inbox, Rows]:
        reached = (backwards @ rows.astype(np.int32)) > 0
        return (yield from exchange.border(reached, check_marks)) > 0

    def fields(outputs: Rows) -> Generator[Outbox, Inbox, list[list[Rows]]]:
        return (yield from delegate(walk_fields(site.gathers, outputs), reach))

    train, labelled = data.masks["train"], np.zeros(len(own), dtype=bool)
    labelled[own] = train if data.batch is None else train.any(1)
    labelled = (yield from exchange.border(labelled, check_marks)) > 0
    train_fields = yield from fields(labelled)
    full_fields = yield from fields(np.ones(len(own), dtype=bool))

    facts = np.zeros((m, FACTS))
    facts[k] = own.sum(), train.sum()
    times = np.zeros(0) if data.batch is None else train.any(0).astype(np.float64)
    borders = {z: (len(site.beyond(z)), int(labelled[site.beyond(z)].sum())) for z in site.neighbours}
    counts = Counts(k, facts[k], m, data.batch or 1, borders)
    told, away = yield from exchange.spread(np.concatenate([facts.reshape(-1), times]), counts.check)
    facts, times = told[: m * FACTS].reshape(m, FACTS), told[m * FACTS :]
    if not facts[:, 0].all():
        unheard = ", ".join(map(str, np.flatnonzero(facts[:, 0] == 0)))
        raise GossamerError(f"no chain of neighbours leads from agent {k} to agent {unheard}; add a link")
    if not facts[:, 1].any():
        raise GossamerError("no site has a training example; mark at least one vertex with the split train")
    farthest, _ = yield from exchange.spread(np.eye(m)[k] * away, Distances(k, away, m).check)
    i, j, values, known = touching(shift, shift.T.tocsr(), np.flatnonzero(own))
    share = Share(
        agents=(k,),
        num_agents=m,
        num_vertices=int(facts[:, 0].sum()),
        num_labelled=int(facts[:, 1].sum()),
        num_classes=data.num_classes,
        vertices=data.vertices[known],
        owner=data.owner[known],
        entries=(i, j, values),
        train_fields=[[rows[known] for rows in sets] for sets in train_fields],
        full_fields=[[rows[known] for rows in sets] for sets in full_fields],
        features=data.features,
        targets=data.targets,
        masks=data.masks,
        train_times=None if data.batch is None else np.flatnonzero(times),
        combination=row[None],
    )
    return share, int(farthest.max(initial=0))


class _Exchanges:
    """The site's exchanges, numbered."""

    def __init__(self, site: Site) -> None:
        self.site, self.shapes, self.index = site, planned_shapes(site), 0

    def __call__(self, told: dict[int, Floats]) -> Received:
        """Tell each neighbour its vector, and hear theirs."""
        messages = {Link(self.site.agent, z): torch.from_numpy(vector) for z, vector in told.items() if len(vector)}
        expected = self.shapes[self.index]
        inbox = yield Outbox(Phase.PLANNING, self.index, messages, expected)
        self.index += 1
        return {link.sender: inbox[link].numpy() for link in expected}

    def border(
        self, values: NDArray[np.float64 | np.bool_], check: Callable[[int, int, Floats, Floats], None]
    ) -> Generator[Outbox, Inbox, Floats]:
        """Numbers at vertices, right at the site's own, made right at those beyond the border; what is told of these is
        held against the part that is known."""
        result = values.astype(np.float64)
        heard = yield from self({z: result[self.site.border(z)] for z in self.site.neighbours})
        for z, vector in heard.items():
            there = self.site.beyond(z)
            check(self.site.agent, z, result[there], vector)
            result[there] = vector
        return result

    def spread(self, vector: Floats, check: Check) -> Generator[Outbox, Inbox, tuple[Floats, int]]:
        """The greatest that any agent has of each number, after as many rounds as an agent can be away; and the last
        round that brought something new. What cannot be is not passed on."""
        latest = 0
        for round_ in range(1, self.site.num_agents):
            heard = yield from self(dict.fromkeys(self.site.neighbours, vector))
            for z, told in heard.items():
                check(z, told)
            merged = np.max([vector, *heard.values()], axis=0)
            latest = round_ if (merged != vector).any() else latest
            vector = merged
        return vector, latest


def _card(site: Site, z: int) -> Floats:
    """What agent z compares with its own."""
    data, across = site.data, site.across(z)
    edges = data.vertices[data.edges[across]]
    weight = -1.0 if site.weights is None else site.weights[z]
    numbers = [len(site.neighbours), weight, data.features.shape[-1], data.batch or 0]
    return np.concatenate(
        [numbers, _digest(site.terms.encode()), _digest(edges.tobytes() + data.weights[across].tobytes())]
    )


def _compare(site: Site, z: int, card: Floats) -> None:
    """Refuse to plan with a neighbour that means another run."""
    mine = _card(site, z)
    complaints: list[tuple[slice, Callable[[], str]]] = [
        (slice(4, 12), lambda: "other settings or classes: the site files must have them alike"),
        (slice(2, 3), lambda: f"{card[2]:.0f} features a vertex, and this site {mine[2]:.0f}"),
        (slice(3, 4), lambda: f"{card[3]:.0f} time steps, and this site {mine[3]:.0f}"),
        (slice(1, 2), lambda: f"another weight C between the two: {card[1]}, and this site {mine[1]} (-1: Metropolis)"),
        (
            slice(12, 20),
            lambda: "other edges between the two: both must list every edge that joins them, with the same weight",
        ),
    ]
    for part, told in complaints:
        if (card[part] != mine[part]).any():
            raise GossamerError(f"agent {site.agent} cannot train with agent {z}, which has {told()}")


def _digest(content: bytes) -> Floats:
    """256 bits as eight numbers that are exact in floating point."""
    return np.frombuffer(hashlib.sha256(content).digest(), dtype="<u4").astype(np.float64)


def _metropolis(site: Site, cards: dict[int, Floats]) -> Floats:
    """This agent's row of C: C_kz = 1 / (1 + max(d_k, d_z)), the rest on the diagonal."""
    row = np.zeros(site.num_agents)
    for z, card in cards.items():
        row[z] = 1.0 / (1.0 + max(len(site.neighbours), card[0]))
    row[site.agent] = 1.0 - row.sum()
    return row
