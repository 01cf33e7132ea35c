"""Checks of the messages that sites send each other while they plan: against what the receiver knows, and each other.

A site knows the edges that it shares with a neighbour, hence a part of the degrees and of the receptive fields there;
counts of an agent must be the same on every path that they take. An error names the sender.
"""

from collections.abc import Mapping

import numpy as np

from gossamer.array_types import Floats
from gossamer.errors import GossamerError

COUNTS_PER_AGENT = 2  # its vertices and its training examples
MAX_SITE_VERTICES = 2**31
SUM_TOLERANCE = 1e-9  # relative, by which sums of the same weights may differ


def check_links(agent: int, sender: int, links: float, num_agents: int) -> None:
    """Require a number of links that an agent can have, this one among them."""
    if not 1 <= links < num_agents or links % 1:
        raise refuse_report(agent, sender, f"that it has {links:g} links among {num_agents} agents")


def check_degrees(agent: int, sender: int, known: Floats, degrees: Floats) -> None:
    """Require degrees of a neighbour's vertices that are no less than the weights of their edges to this site."""
    wrong = np.flatnonzero((degrees < known * (1 - SUM_TOLERANCE)) | (degrees <= 0))
    if len(wrong):
        degree, at_least = degrees[wrong[0]], known[wrong[0]]
        raise refuse_report(agent, sender, f"a degree of {degree:g} of a vertex with {at_least:g} in edges to it alone")


def check_marks(agent: int, sender: int, known: Floats, marks: Floats) -> None:
    """Require marks of a neighbour's vertices, 0 or 1, with those that this site's own vertices put there."""
    if not np.isin(marks, (0.0, 1.0)).all():
        raise refuse_report(agent, sender, f"a mark of {marks[~np.isin(marks, (0.0, 1.0))][0]:g}, neither 0 nor 1")
    if (marks < known).any():
        raise refuse_report(
            agent, sender, f"that a vertex lies in no receptive field, though one of agent {agent} needs it"
        )


def check_depth(agent: int, sender: int, root: int, own: int, depth: float) -> None:
    """Require a neighbour's distance to the root that differs by at most one link from this agent's."""
    if depth not in (own - 1, own, own + 1) or depth < 0:
        raise refuse_report(
            agent, sender, f"that it is {depth:g} links from agent {root}, from which agent {agent} is {own}"
        )


class Counts:
    """Numbers of vertices and training examples of all agents, as they are flooded from neighbour to neighbour."""

    def __init__(
        self, agent: int, own: Floats, num_agents: int, times: int, halos: Mapping[int, tuple[int, int]]
    ) -> None:
        """`halos` has of each neighbour the number of its vertices with an edge to this site, and how many of these
        are labelled."""
        self._agent, self._m, self._times, self._halos = agent, num_agents, times, halos
        self._known = np.zeros((num_agents, COUNTS_PER_AGENT))
        self._known[agent] = own
        self._source = np.full(num_agents, agent)  # first sender of an agent's counts

    def check(self, sender: int, received: Floats) -> None:
        """Require of each agent no counts, those known of it, or possible ones. A neighbour sends its own first."""
        if not np.isin(received[self._m * COUNTS_PER_AGENT :], (0.0, 1.0)).all():
            raise refuse_report(self._agent, sender, "time steps that are neither used nor unused")
        counts = received[: self._m * COUNTS_PER_AGENT].reshape(self._m, COUNTS_PER_AGENT)
        first = not self._known[sender].any()
        for z in np.flatnonzero(counts.any(1) | (np.arange(self._m) == sender)).tolist():
            what = f"that agent {z} has {counts[z, 0]:g} vertices and {counts[z, 1]:g} training examples"
            if first and z != sender:
                raise refuse_report(self._agent, sender, f"{what}, before it can know")
            border, labelled = self._halos.get(z, (0, 0))
            if not self._fits(counts[z], border, labelled):
                known = f", with {border} vertices at the border, {labelled} of them labelled" if border else ""
                raise refuse_report(self._agent, sender, what + known)
            if not self._known[z].any():
                self._known[z], self._source[z] = counts[z], sender
            vertices, examples = self._known[z]
            if (counts[z] != self._known[z]).any():
                by = "it has" if z == self._agent else f"agent {self._source[z]} reports"
                raise refuse_report(self._agent, sender, f"{what}, where {by} {vertices:g} and {examples:g}")

    def _fits(self, counts: Floats, border: int, labelled: int) -> bool:
        vertices, examples = counts.tolist()
        whole = vertices % 1 == 0 and examples % 1 == 0 and max(1, border) <= vertices <= MAX_SITE_VERTICES
        return bool(whole and labelled <= examples <= (vertices - border + labelled) * self._times)


class Distances:
    """Distance of each agent from the agent farthest from it, in links, as it is flooded."""

    def __init__(self, agent: int, own: int, num_agents: int) -> None:
        self._agent, self._m = agent, num_agents
        self._known = np.zeros(num_agents)
        self._known[agent] = own

    def check(self, sender: int, received: Floats) -> None:
        """Require possible numbers of links, the same of an agent on every path. A neighbour sends its own first."""
        wrong = (received < 0) | (received > self._m - 1) | (received % 1 != 0)
        wrong |= (received != 0) & (self._known != 0) & (received != self._known)
        wrong |= (received != 0) & (self._known[sender] == 0) & (np.arange(self._m) != sender)
        if wrong.any():
            z = int(np.flatnonzero(wrong)[0])
            raise refuse_report(
                self._agent, sender, f"that the agent farthest from agent {z} is {received[z]:g} links away"
            )
        self._known = np.maximum(self._known, received)


def refuse_report(agent: int, sender: int, what: str) -> GossamerError:
    """The error about a report that cannot be."""
    return GossamerError(
        f"agent {sender} reports to agent {agent} {what}, which cannot be; look for another version of Gossamer or "
        f"other data at agent {sender}, or a lie"
    )
