"""Simulation: all agents on one host in this process, or several hosts in lockstep."""

from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gossamer.agents import Host, Inbox, Link, Outbox, training_step
from gossamer.agents.consensus.neighbour_slots import pad_slots
from gossamer.agents.exchange import Message, join_parts
from gossamer.agents.salts import Secrets
from gossamer.data import DataGraph
from gossamer.generators import Returned, advance
from gossamer.model import Params
from gossamer.runs.deployment import Deployment, Progress, build_host, make_deployment
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


@dataclass(frozen=True)
class SeparateAgents:
    """A step with every agent on a host of its own, in lockstep: the bits of peers, which have such hosts.

    Takes and returns the host of all agents. Sums over hosted vertices are rounded otherwise there.
    """

    deployment: Deployment
    settings: Settings
    secrets: Secrets

    @cached_property
    def _hosts(self) -> list[Host]:
        agents = range(self.deployment.num_agents)
        return [build_host(self.deployment, self.settings, [k], secrets=self.secrets.select([k])) for k in agents]

    def __call__(self, host: Host) -> Generator[Outbox, Inbox, tuple[Host, Tensor]]:
        def select(stacked: Params, agent: int, like: Params) -> Params:
            """An agent's part, without the neighbour slots that others alone need."""
            own = {name: part[agent : agent + 1] for name, part in stacked.items()}
            return {
                name: (part if part.ndim < 2 else part[:, : like[name].shape[1]]).clone() for name, part in own.items()
            }

        separate = [
            replace(
                one, params=select(host.params, k, one.params), state=select(host.state, k, one.state), step=host.step
            )
            for k, one in enumerate(self._hosts)
        ]
        done, losses = zip(*run_together([training_step(one) for one in separate]), strict=True)
        params = {name: torch.cat([one.params[name] for one in done]) for name in host.params}
        state = {
            name: torch.cat([pad_slots(one.state[name], part) for one in done]) for name, part in host.state.items()
        }
        return replace(host, params=params, state=state, step=host.step + 1), torch.stack(losses).sum()
        yield  # messages pass between hosts here


def start_run(
    graph: DataGraph,
    settings: Settings,
    progress: Progress | None = None,
    *,
    assignment: NDArray[np.int64] | None = None,
    combination: NDArray[np.float64] | None = None,
    shift: Any = None,
    initial: GivenWeights | None = None,
    secrets: Secrets | None = None,
) -> Run:
    """A run at step 0 with all agents on one host; a StartRun. With the secrets of a launch its steps have the launch's
    bits."""
    settings = settings.fit_to(graph.task, graph.num_train_times)
    deployment = make_deployment(graph, settings, assignment, combination, shift, progress, initial)
    own_shift = shift is not None
    fingerprint = fingerprint_data(graph, deployment.shift if own_shift else None)
    run = Run(
        settings, deployment, build_host(deployment, settings, secrets=secrets), fingerprint, Simulation(), own_shift
    )
    if secrets is None:
        return run
    return replace(run, secrets=secrets, iterate=SeparateAgents(deployment, settings, secrets))
