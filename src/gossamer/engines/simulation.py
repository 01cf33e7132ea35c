"""Simulation: all agents on one host in this process, or several hosts in lockstep."""

from collections.abc import Generator, Sequence
from typing import Any, TypeVar

from torch import Tensor

from gossamer.agents import Inbox, Link, Outbox
from gossamer.agents.exchange import Message, join_parts
from gossamer.data import DataGraph
from gossamer.generators import Returned, advance
from gossamer.model import Params
from gossamer.runs.deployment import Progress, host_of, make_deployment
from gossamer.runs.settings import Settings
from gossamer.runs.training import Run, fingerprint_of

T = TypeVar("T")


class Simulation:
    """All agents on one host."""

    leads = True

    def run(self, generator: Generator[Outbox, Inbox, T]) -> T:
        return run(generator)

    def total(self, part: Tensor) -> Tensor:
        return part

    def gathered(self, parts: Params) -> Params:
        return parts


def run_together(generators: Sequence[Generator[Outbox, Inbox, T]]) -> list[T]:
    """Drive several hosts' generators in step: all yield, every message is delivered, all go on.

    One host with all agents, the usual simulation, is the case of one generator and empty outboxes.
    """
    results: dict[int, T] = {}
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


def run(generator: Generator[Outbox, Inbox, T]) -> T:
    """Drive a host that carries all agents."""
    return run_together([generator])[0]


def start(graph: DataGraph, settings: Settings, progress: Progress | None = None, **given: Any) -> Run:
    """A run at step 0 on one host. `given` may hold an assignment, a combination or a shift."""
    deployment = make_deployment(graph, settings, progress=progress, **given)
    own_shift = given.get("shift") is not None
    fingerprint = fingerprint_of(graph, deployment.shift if own_shift else None)
    return Run(settings, deployment, host_of(deployment, settings), fingerprint, Simulation(), own_shift)
