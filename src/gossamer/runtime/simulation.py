"""Engines drive hosts' generators and join what their agents know; simulation is the engine of one process."""

from collections.abc import Generator, Sequence
from typing import Protocol, TypeVar

from torch import Tensor

from gossamer.agents import Inbox, Link, Outbox
from gossamer.agents.exchange import Message, joined
from gossamer.model import Params

T = TypeVar("T")


class Engine(Protocol):
    """One process's part in a run whose hosts move in step."""

    @property
    def leads(self) -> bool:
        """Whether this process tells the user and writes files; one of all does."""
        ...

    def run(self, generator: Generator[Outbox, Inbox, T]) -> T:
        """Drive this process's host through its exchanges."""
        ...

    def total(self, part: Tensor) -> Tensor:
        """The sum over all hosts, the same on each."""
        ...

    def gathered(self, parts: Params) -> Params:
        """All agents' arrays stacked in the agents' order, where the process leads; nothing elsewhere."""
        ...


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
            try:
                inbox = inboxes[index]
                outbox = next(generator) if inbox is None else generator.send(inbox)
            except StopIteration as done:
                results[index] = done.value
                continue
            expected[index] = outbox
            post.update(outbox.messages)
        for index, outbox in expected.items():
            inboxes[index] = {link: joined(post.pop(link)) for link in outbox.expected}
        if post:
            raise AssertionError(f"messages that nobody expected: {sorted(post)}")
    return [results[index] for index in range(len(generators))]


def run(generator: Generator[Outbox, Inbox, T]) -> T:
    """Drive a host that carries all agents."""
    return run_together([generator])[0]
