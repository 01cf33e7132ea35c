"""Simulation: all agents on one host in this process, or several hosts in lockstep."""

from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
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
from gossamer.runs.deployment import Deployment, Progress, make_deployment
from gossamer.runs.handover import hand_over
from gossamer.runs.hosts import build_host, cut_share
from gossamer.runs.initial_weights import GivenWeights
from gossamer.runs.link_sequences import require_fixed_links
from gossamer.runs.run import Run, Stage, fingerprint_data
from gossamer.runs.settings import Settings
from gossamer.runs.stages import GRAPH, STAGES, fit_settings, list_stages, stage_settings

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

    def _separate(self, host: Host) -> list[Host]:
        """The agents of a host, each on its own."""

        def select(stacked: Params, agent: int, like: Params) -> Params:
            """An agent's part, without the neighbour slots that others alone need."""
            own = {name: part[agent : agent + 1] for name, part in stacked.items()}
            return {
                name: (part if part.ndim < 2 else part[:, : like[name].shape[1]]).clone() for name, part in own.items()
            }

        return [
            replace(
                one, params=select(host.params, k, one.params), state=select(host.state, k, one.state), step=host.step
            )
            for k, one in enumerate(self._hosts)
        ]

    def hand_over(self, host: Host) -> Generator[Outbox, Inbox, Tensor]:
        """What the stage hands over, of all vertices, by vertex."""
        shares = [cut_share(self.deployment, self.settings, [k]) for k in range(self.deployment.num_agents)]
        parts = run_together(
            [
                hand_over(self.deployment.stage, one, share, self.settings, self.secrets.select([k]))
                for k, (one, share) in enumerate(zip(self._separate(host), shares, strict=True))
            ]
        )
        whole = parts[0].new_zeros(shares[0].num_vertices, parts[0].shape[1])
        for part, share in zip(parts, shares, strict=True):
            whole[torch.from_numpy(share.vertices[share.hosted])] = part
        return whole
        yield  # messages pass between hosts here

    def __call__(self, host: Host) -> Generator[Outbox, Inbox, tuple[Host, Tensor]]:
        done, losses = zip(*run_together([training_step(one) for one in self._separate(host)]), strict=True)
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
    encodings: NDArray[Any] | None = None,
) -> Run:
    """A run at step 0 with all agents on one host; a StartRun. With the secrets of a launch its steps have the launch's
    bits."""
    settings = fit_settings(settings, graph)
    if secrets is not None:
        require_fixed_links(settings, "peers")
    deployment = make_deployment(graph, settings, assignment, combination, shift, progress, initial)
    own_shift = shift is not None
    fingerprint = fingerprint_data(graph, deployment.shift if own_shift else None)

    def start_stage(name: str, handed: NDArray[Any] | None) -> Run:
        at = replace(deployment, stage=name, handed=handed)
        host = build_host(at, settings, secrets=secrets)
        run = Run(stage_settings(settings, name), at, host, fingerprint, Simulation(), own_shift, secrets=secrets)
        separate = None if secrets is None else SeparateAgents(at, settings, secrets)
        if separate is not None:
            run.iterate = separate
        if name != GRAPH:
            share, after = cut_share(deployment, settings), STAGES[STAGES.index(name) + 1]

            def finish(host: Host) -> Generator[Outbox, Inbox, Tensor]:
                if separate is not None:
                    return separate.hand_over(host)
                return hand_over(name, host, share, settings, None)

            run.stage = Stage(name, settings, share, finish, partial(start_stage, after))
        return run

    return start_stage(GRAPH, encodings) if encodings is not None else start_stage(list_stages(settings)[0], None)
