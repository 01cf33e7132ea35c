"""Routes between sites that share edges without a link: planned by all alike, from what they flood.

    links and edges   of all agents: who talks to whom, the edges that two share, the vertices of k with an edge to z
    rows              of every route in each exchange of rows, which its two ends alone can count
All sites learn both. A site that relays needs no more of the others' data.
"""

from collections.abc import Generator

import numpy as np

from gossamer.agents.exchange import Inbox, Outbox
from gossamer.agents.links import Link
from gossamer.agents.planning_checks import refuse_report
from gossamer.agents.planning_exchanges import PlanningExchanges, SiteRoutes
from gossamer.agents.relays import AgentRoutes, RowCounts, select_routes
from gossamer.array_types import Floats
from gossamer.errors import GossamerError
from gossamer.topology import plan_routes

MAX_COUNT = 2**31  # of boundary vertices, and of rows


def find_routes(exchange: PlanningExchanges) -> Generator[Outbox, Inbox, SiteRoutes]:
    """Flood links and edges, and plan the routes."""
    site = exchange.site
    k, m = site.agent, site.num_agents
    own = np.zeros((3, m, m))
    own[0, k, list(site.neighbours)] = 1.0
    for z in site.partners:
        own[1:, k, z] = site.edges_to(z).sum(), len(site.boundary(z))

    def check(sender: int, numbers: Floats) -> None:
        found = numbers.reshape(own.shape)
        if ((found < 0) | (found >= MAX_COUNT) | (found % 1 != 0)).any() or not np.isin(found[0], (0.0, 1.0)).all():
            raise refuse_report(k, sender, "links, edges and vertices that are no numbers of such")
        if (found[:, k] > own[:, k]).any():
            raise refuse_report(k, sender, f"links or edges of agent {k} that it does not have")

    flooded, _ = yield from exchange.flood(own.reshape(-1), check)
    links, edges, halos = flooded.reshape(own.shape)
    for numbers, what in ((links, "links to"), (edges, "edges shared with")):
        differ = np.argwhere(numbers > numbers.T)
        if len(differ):
            a, b = differ[0]
            raise GossamerError(
                f"agent {a} reports {numbers[a, b]:g} {what} agent {b}, and agent {b} reports {numbers[b, a]:g}; see "
                "their site files and data"
            )
    planned = plan_routes(links > 0, edges)
    return _know(exchange, SiteRoutes(tuple(planned.paths.values()), planned.longest, halos.astype(np.int64)))


def count_relayed_rows(
    exchange: PlanningExchanges, routes: SiteRoutes, train: RowCounts, full: RowCounts
) -> Generator[Outbox, Inbox, AgentRoutes]:
    """Flood the rows of every route, of which this agent counts those that it sends; return the agent's routes."""
    k = exchange.site.agent
    ends = [Link(one[0], one[-1]) for path in routes.paths for one in (path, path[::-1])]
    own = np.array([[counts.get(link, 0) for counts in (*train, *full)] for link in ends], dtype=np.float64)
    sent = own * np.array([[link.sender == k] for link in ends])

    def check(sender: int, numbers: Floats) -> None:
        found = numbers.reshape(own.shape)
        if ((found < 0) | (found >= MAX_COUNT) | (found % 1 != 0)).any():
            raise refuse_report(k, sender, "rows of routes that are no numbers of rows")
        for link, theirs, known in zip(ends, found, own, strict=True):
            if k in link and theirs.any() and (theirs != known).any():
                raise refuse_report(
                    k, sender, f"other rows from agent {link.sender} to agent {link.receiver} than agent {k} counts"
                )

    flooded, _ = yield from exchange.flood(sent.reshape(-1), check)
    rows = flooded.reshape(own.shape).astype(np.int64)
    for link, found, known in zip(ends, rows, own, strict=True):
        if k in link and (found != known).any():
            raise GossamerError(
                f"agent {k} counts other rows from agent {link.sender} to agent {link.receiver} than are reported; "
                "look for another version of Gossamer"
            )
    counted = [{link: int(row[n]) for link, row in zip(ends, rows, strict=True)} for n in range(own.shape[1])]
    return select_routes(k, routes.paths, routes.longest, counted[: len(train)], counted[len(train) :])


def _know(exchange: PlanningExchanges, routes: SiteRoutes) -> SiteRoutes:
    exchange.know(routes)
    return routes
