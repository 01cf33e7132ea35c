"""Checks of what sites announce to each other while they plan: against what the receiver knows, and against each other.

A site knows the edges that it shares with a neighbour, hence a part of the degrees and of the receptive fields there;
what is passed on about an agent must be the same by every way that it takes. An error names the sender.
"""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from gossamer.errors import GossamerError

Floats = NDArray[np.float64]
FACTS = 2  # numbers that all agents hear of each: its vertices and its training examples
MOST_VERTICES = 2**31  # of a site
ROUNDING = 1e-9  # by which sums of the same weights may differ


def check_links(agent: int, sender: int, links: float, num_agents: int) -> None:
    """Require a number of links that an agent can have, this one among them."""
    if not 1 <= links < num_agents or links % 1:
        raise _refused(agent, sender, f"that it has {links:g} links among {num_agents} agents")


def check_degrees(agent: int, sender: int, known: Floats, degrees: Floats) -> None:
    """Require degrees of a neighbour's vertices that are no less than the weights of their edges to this site."""
    wrong = np.flatnonzero((degrees < known * (1 - ROUNDING)) | (degrees <= 0))
    if len(wrong):
        told, at_least = degrees[wrong[0]], known[wrong[0]]
        raise _refused(agent, sender, f"a degree of {told:g} of a vertex with {at_least:g} in edges to it alone")


def check_marks(agent: int, sender: int, known: Floats, marks: Floats) -> None:
    """Require marks of a neighbour's vertices, 0 or 1, with those that this site's own vertices put there."""
    if not np.isin(marks, (0.0, 1.0)).all():
        raise _refused(agent, sender, f"a mark of {marks[~np.isin(marks, (0.0, 1.0))][0]:g}, neither 0 nor 1")
    if (marks < known).any():
        raise _refused(agent, sender, f"that a vertex lies in no receptive field, though one of agent {agent} needs it")


class Counts:
    """The numbers of vertices and examples of all agents, as they are passed on from neighbour to neighbour."""

    def __init__(
        self, agent: int, own: Floats, num_agents: int, times: int, borders: Mapping[int, tuple[int, int]]
    ) -> None:
        """`borders` has of each neighbour how many of its vertices are joined to this site, and how many of these are
        labelled."""
        self._agent, self._m, self._times, self._borders = agent, num_agents, times, borders
        self._known = np.zeros((num_agents, FACTS))
        self._known[agent] = own
        self._teller = np.full(num_agents, agent)  # who told it first

    def check(self, sender: int, told: Floats) -> None:
        """Require of each agent nothing, or what is known of it, or numbers that can be. A neighbour tells its own
        first."""
        if not np.isin(told[self._m * FACTS :], (0.0, 1.0)).all():
            raise _refused(self._agent, sender, "of time steps that are neither used nor unused")
        facts = told[: self._m * FACTS].reshape(self._m, FACTS)
        first = not self._known[sender].any()
        for z in np.flatnonzero(facts.any(1) | (np.arange(self._m) == sender)).tolist():
            what = f"that agent {z} has {facts[z, 0]:g} vertices and {facts[z, 1]:g} training examples"
            if first and z != sender:
                raise _refused(self._agent, sender, f"{what}, before it can know")
            border, labelled = self._borders.get(z, (0, 0))
            if not self._fits(facts[z], border, labelled):
                known = f", with {border} vertices at the border, {labelled} of them labelled" if border else ""
                raise _refused(self._agent, sender, what + known)
            if not self._known[z].any():
                self._known[z], self._teller[z] = facts[z], sender
            vertices, examples = self._known[z]
            if (facts[z] != self._known[z]).any():
                by = "it has" if z == self._agent else f"agent {self._teller[z]} says"
                raise _refused(self._agent, sender, f"{what}, where {by} {vertices:g} and {examples:g}")

    def _fits(self, facts: Floats, border: int, labelled: int) -> bool:
        vertices, examples = facts.tolist()
        whole = vertices % 1 == 0 and examples % 1 == 0 and max(1, border) <= vertices <= MOST_VERTICES
        return bool(whole and labelled <= examples <= (vertices - border + labelled) * self._times)


class Distances:
    """How far the farthest agent is from each, as it is passed on."""

    def __init__(self, agent: int, own: int, num_agents: int) -> None:
        self._agent, self._m = agent, num_agents
        self._known = np.zeros(num_agents)
        self._known[agent] = own

    def check(self, sender: int, told: Floats) -> None:
        """Require numbers of links that can be, the same of an agent by every way. A neighbour tells its own first."""
        wrong = (told < 0) | (told > self._m - 1) | (told % 1 != 0)
        wrong |= (told != 0) & (self._known != 0) & (told != self._known)
        wrong |= (told != 0) & (self._known[sender] == 0) & (np.arange(self._m) != sender)
        if wrong.any():
            z = int(np.flatnonzero(wrong)[0])
            raise _refused(self._agent, sender, f"that the agent farthest from agent {z} is {told[z]:g} links away")
        self._known = np.maximum(self._known, told)


def _refused(agent: int, sender: int, what: str) -> GossamerError:
    return GossamerError(
        f"agent {sender} tells agent {agent} {what}, which cannot be; look for another version of Gossamer or other "
        f"data at agent {sender}, or a lie"
    )
