"""Simulation: all agents on one host in this process, or several hosts in lockstep."""

from collections.abc import Generator, Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from gossamer.agents import Inbox, Link, Outbox
from gossamer.agents.exchange import Message, join_parts
from gossamer.data import DataGraph
from gossamer.generators import Returned, advance
from gossamer.model import Params
from gossamer.runs.deployment import Progress, build_host, make_deployment
from gossamer.runs.initial_weights import GivenWeights
from gossamer.runs.run import Run, fingerprint_data
from gossamer.runs.settings import Settings

_T = TypeVar("_T")


class Simulation:
    """All agents on one host."""

    leads = True

    def run(self, generator: Generator[Outbox, Inbox, _T]) -> _T:
        return run(generator)

    def total(self, part: Tensor) -> Tensor:
        return part

    def gathered(self, parts: Params) -> Params:
        return parts


def run_together(generators: Sequence[Generator[Outbox, Inbox, _T]]) -> list[_T]:
    """Drive several hosts' generators in lockstep: all yield, every message is delivered, all continue.

    One host with all agents, the usual simulation, is the case of one generator and empty outboxes.
    """
    results: dict[int, _T] = {}
    inboxes: list[Inbox | None] = [None] * len(generators)
    while len(results) < len(generators):
        post: dict[Link, Message] = {}
        expected: dict[int, Outbox] = {}
        for index, generator in enumerate(generators):
            if index in results:
                continue
            reached = advance(generator, inboxes[index])
            if isinstance(reached, Returned):
                results[index] = reached.value
            else:
                expected[index] = reached
                post.update(reached.messages)
        for index, outbox in expected.items():
            inboxes[index] = {link: join_parts(post.pop(link)) for link in outbox.expected}
        if post:
            raise AssertionError(f"messages that nobody expected: {sorted(post)}")
    return [results[index] for index in range(len(generators))]


def run(generator: Generator[Outbox, Inbox, _T]) -> _T:
    """Drive a host that carries all agents."""
    return run_together([generator])[0]


def start_run(
    graph: DataGraph,
    settings: Settings,
    progress: Progress | None = None,
    *,
    assignment: NDArray[np.int64] | None = None,
    combination: NDArray[np.float64] | None = None,
    shift: Any = None,
    initial: GivenWeights | None = None,
) -> Run:
    """A run at step 0 with all agents on one host; a StartRun."""
    settings = settings.fit_to(graph.task, graph.batch)
    deployment = make_deployment(graph, settings, assignment, combination, shift, progress, initial)
    own_shift = shift is not None
    fingerprint = fingerprint_data(graph, deployment.shift if own_shift else None)
    return Run(settings, deployment, build_host(deployment, settings), fingerprint, Simulation(), own_shift)
