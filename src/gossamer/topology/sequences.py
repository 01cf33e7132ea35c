"""Links that change from step to step: sequences of agent graphs with their matrices C^t, and how fast these contract.

    one-peer    a partner for every agent: over the dimensions of a hypercube where m is a power of two, else over the
                exponential graph, each agent hearing one agent and heard by another (Ying et al. 2021, "Exponential
                graph is provably efficient for decentralized deep training")
    matchings   random pairs of agents (randomised gossip: Boyd, Ghosh, Prabhakar and Shah 2006, "Randomized gossip
                algorithms")
    failing     every link of another topology is down with a probability in each step, by itself
    switching   the links of a file by step, from the first again after the last

Every C^t is doubly stochastic, so that the mean of all agents' weights is kept. In failing and switching ones the
weight of a missing link is on the diagonal of both its agents, who need to know of no other link. A step's links are a
function of the seed and the step.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from gossamer.topology.families import Links, Matrix, complete, links_of
from gossamer.topology.weights import complete_diagonal

FAILING_STREAM, MATCHING_STREAM = 1, 2  # of random numbers


class LinkSequence(Protocol):
    """Links of steps 0, 1, ... between m agents."""

    @property
    def links(self) -> Links:
        """Links that are up in some step [m, m], symmetric."""
        ...

    @property
    def period(self) -> int | None:
        """Steps after which links repeat; None if they are random."""
        ...

    @property
    def partners_only(self) -> bool:
        """The sequence chooses who mixes weights; boundary rows have links of their own, always up."""
        ...

    @property
    def symmetric(self) -> bool:
        """Every C^t is symmetric, not only doubly stochastic."""
        ...

    @property
    def mean_sent(self) -> float:
        """Mean number of agents' weights that are sent in a step."""
        ...

    def up(self, step: int) -> Links:
        """Links of a step [m, m]: agent k hears agent z."""
        ...

    def combination(self, step: int) -> Matrix:
        """C^t [m, m]."""
        ...

    def mean_square(self) -> Matrix:
        """E[C^T C] [m, m] of a random sequence."""
        ...


def mixed_at(sequence: LinkSequence, step: int, every: int) -> int:
    """Number of the C^t that agents who mix every so many steps use in this one: partners take turns by the times that
    agents mix, links are up or down by the step."""
    return (step + 1) // every - 1 if sequence.partners_only else step


def measure_contraction(sequence: LinkSequence, every: int = 1) -> float:
    """Contraction of a sequence: |prod_t C^t - 11^T/m|_2 of a period, a factor of the disagreement in that many steps;
    of a random sequence rho(E[C^T C] - 11^T/m), a factor of the expected squared disagreement in one step. Agents mix
    `every` so many steps."""
    if sequence.period is None:
        square = sequence.mean_square()
        return float(abs(np.linalg.eigvalsh(square - 1.0 / len(square))).max())
    product = np.eye(len(sequence.links))
    for step in range(every - 1, math.lcm(sequence.period, every), every):
        product = sequence.combination(mixed_at(sequence, step, every)) @ product
    return float(np.linalg.norm(product - 1.0 / len(product), 2))


def keep_up(combination: Matrix, up: Links) -> Matrix:
    """C on the links that are up, with the weight of a missing link moved to both diagonals."""
    return complete_diagonal(np.where(up & ~np.eye(len(up), dtype=bool), combination, 0.0))


@dataclass(frozen=True)
class OnePeer:
    """C^t = (I + P_t) / 2: P_t pairs the agents k and k xor 2^t, or, where m is no power of two, has agent k hear
    agent k + 2^t modulo m; t counts modulo ceil(log2 m)."""

    num_agents: int

    partners_only = True

    @property
    def period(self) -> int:
        return max(1, (self.num_agents - 1).bit_length())

    @property
    def symmetric(self) -> bool:
        return self.num_agents & (self.num_agents - 1) == 0

    @property
    def mean_sent(self) -> float:
        return float(self.num_agents) if self.num_agents > 1 else 0.0

    @cached_property
    def links(self) -> Links:
        ever = np.any([self.up(step) for step in range(self.period)], axis=0)
        return np.asarray(ever | ever.T)

    def up(self, step: int) -> Links:
        m, stride = self.num_agents, 1 << step % self.period
        k = np.arange(m)
        found = np.zeros((m, m), dtype=bool)
        found[k, (k ^ stride) % m if self.symmetric else (k + stride) % m] = m > 1
        return found

    def combination(self, step: int) -> Matrix:
        return complete_diagonal(np.where(self.up(step), 0.5, 0.0))

    def mean_square(self) -> Matrix:
        raise AssertionError("a periodic sequence has no expectation")


@dataclass(frozen=True)
class Matchings:
    """C^t = I/2 + P_t/2 with as many random pairs as m agents make; of an odd m one agent waits, C_kk = 1."""

    num_agents: int
    seed: int

    partners_only = True
    symmetric = True
    period = None

    @property
    def mean_sent(self) -> float:
        return float(self.num_agents // 2 * 2)

    @property
    def links(self) -> Links:
        return complete(self.num_agents)

    def up(self, step: int) -> Links:
        m = self.num_agents
        order = np.random.default_rng([MATCHING_STREAM, self.seed, step]).permutation(m)[: m // 2 * 2].reshape(-1, 2)
        found = np.zeros((m, m), dtype=bool)
        found[order[:, 0], order[:, 1]] = found[order[:, 1], order[:, 0]] = True
        return found

    def combination(self, step: int) -> Matrix:
        return complete_diagonal(np.where(self.up(step), 0.5, 0.0))

    def mean_square(self) -> Matrix:
        """E[C], as C is a projection: two agents are a pair with the same probability, 2 floor(m/2) / (m (m - 1))."""
        m = self.num_agents
        return complete_diagonal(0.5 * self.links * (m // 2 * 2) / max(1, m * (m - 1)))


@dataclass(frozen=True)
class Failing:
    """C^t = C with every link down with a probability in each step, by itself."""

    base: Matrix  # C [m, m] with all links up, symmetric
    probability: float
    seed: int

    partners_only = False
    symmetric = True
    period = None

    @property
    def mean_sent(self) -> float:
        return float(self.links.sum() * (1.0 - self.probability))

    @cached_property
    def links(self) -> Links:
        return links_of(self.base)

    def up(self, step: int) -> Links:
        k, z = np.nonzero(np.triu(self.links, 1))
        down = np.random.default_rng([FAILING_STREAM, self.seed, step]).random(len(k)) < self.probability
        found = np.zeros_like(self.links)
        found[k[~down], z[~down]] = True
        return found | found.T

    def combination(self, step: int) -> Matrix:
        return keep_up(self.base, self.up(step))

    def mean_square(self) -> Matrix:
        """E[C^T C] = (I - q L)^2 + q (1 - q) 2 L', by C^t = I - sum_e x_e C_e L_e with independent x_e, E[x_e] = q.

        L_e is the Laplacian of the link e, of which L_e^2 = 2 L_e; L = sum_e C_e L_e and L' = sum_e C_e^2 L_e.
        """
        m, q = len(self.base), 1.0 - self.probability
        mean = np.eye(m) - q * (np.eye(m) - self.base)
        squares = np.where(self.links, self.base, 0.0) ** 2
        return np.asarray(mean @ mean + 2.0 * q * self.probability * (np.diag(squares.sum(1)) - squares))


@dataclass(frozen=True)
class Switching:
    """C^t = C on the links of a step [T, m, m], which come again after T steps."""

    base: Matrix  # C [m, m] on the links of all steps, symmetric
    steps: NDArray[np.bool_]  # [T, m, m]

    partners_only = False
    symmetric = True

    @property
    def period(self) -> int:
        return len(self.steps)

    @property
    def mean_sent(self) -> float:
        return float(self.steps.sum((1, 2)).mean())

    @cached_property
    def links(self) -> Links:
        return np.asarray(self.steps.any(0))

    def up(self, step: int) -> Links:
        return np.asarray(self.steps[step % self.period])

    def combination(self, step: int) -> Matrix:
        return keep_up(self.base, self.up(step))

    def mean_square(self) -> Matrix:
        raise AssertionError("a periodic sequence has no expectation")
