"""The consensus seam: a method that the settings choose, and the same method set up for the agents of a host.

A method brings the agents' arrays closer to their mean and keeps that mean (eq. (16)). As a value it knows its bytes,
what it refuses and what it advises; `make` gives the generator of exchanges that the training step runs.
"""

import math
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch

from gossamer.agents.exchange import Inbox, Outbox
from gossamer.agents.rules import StateDict
from gossamer.array_types import Floats, Ints
from gossamer.model import Params

Shape = tuple[int, ...]  # of one agent's array


@dataclass(frozen=True)
class HostedCombination:
    """The rows of C that belong to the agents of a host, and the hosts of the others."""

    rows: Floats  # [hosted, m]
    agents: Sequence[int]
    hosting: Ints | None = None  # host of each agent [m], for links between hosts; None: links join agents
    slots: int | None = None  # the most neighbours of any agent, where hosts must agree on it
    at_step: Callable[[int], Floats] | None = None  # C^t [m, m] of a step, where it changes by a sequence of links


@dataclass(frozen=True)
class Advice:
    """Remedies that a consensus method knows, each a part of a sentence; None where it has none."""

    adam: str | None = None  # a warning before a run with adam
    drift: str | None = None  # when the agents' weights drift apart
    divergence: str | None = None  # when the loss is no longer finite


class Consensus(Protocol):
    """A method for the agents of one host: a generator of exchanges with a state."""

    @property
    def exchanges(self) -> int:
        """Exchanges of one call, at most."""
        ...

    def init(self, like: Params) -> StateDict:
        """State before the first call, stacked over the hosted agents."""
        ...

    def __call__(
        self, psi: Params, into: Params, state: StateDict, index: int, step: int
    ) -> Generator[Outbox, Inbox, Params]:
        """Mix psi, which is read, into `into`, which is returned; bring `state` forward in place.

        Exchanges are numbered from `index`.
        """
        ...


class ConsensusMethod(Protocol):
    """A method as the settings choose it, before anything is known of agents."""

    @property
    def pairwise(self) -> bool:
        """Every link of two agents has a message of its own, between hosts too; else a host sends another one for each
        agent that has neighbours there: what all of them need, or a sum for it."""
        ...

    @property
    def exchanges(self) -> int: ...

    @property
    def advice(self) -> Advice: ...

    def payload_bytes(self, shapes: Mapping[str, Shape], itemsize: int) -> int:
        """Bytes that an agent sends a neighbour in one consensus of arrays of these shapes, without headers."""
        ...

    def make(self, C: HostedCombination, shapes: Mapping[str, Shape], dtype: torch.dtype, seed: int) -> Consensus:
        """The method for the agents of a host, whose arrays have these shapes; refuse those that it cannot send."""
        ...


@dataclass(frozen=True)
class ConsensusKind:
    """An entry of the table of methods: `name:word,word` is parsed to a method."""

    parse: Callable[
        [list[str]], ConsensusMethod
    ]  # takes the words after the colon; raises ValueError if they are not allowed
    syntax: Callable[[], Sequence[str]]  # forms that can be written, for messages


def matrix_shape(shape: Shape) -> tuple[int, int]:
    """An agent's array as a matrix: vectors are one row, several powers' weights stand one above the other."""
    return math.prod(shape[:-1]), shape[-1]


def parse_options(words: Sequence[str], known: Collection[str]) -> dict[str, str]:
    """Words `name=value` with names among the known ones, each at most once."""
    options = dict(word.split("=", 1) for word in words)
    if set(options) - set(known) or len(options) < len(words):
        raise ValueError
    return options
