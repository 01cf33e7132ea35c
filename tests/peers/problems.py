"""The small problem of the tests of peers: four agents, the last of which has neither a vertex nor a label."""

from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import torch

from gossamer.agents import Host, training_step
from gossamer.agents.relays import AgentRoutes
from gossamer.agents.sums import plan_tree
from gossamer.data import make_graph
from gossamer.engines.simulation import run_together
from gossamer.peers.evaluation import NetworkEvaluation, make_evaluation
from gossamer.peers.program import MessageSchedule, make_schedule
from gossamer.peers.shards.shard import plan_agent_routes
from gossamer.runs.deployment import Deployment, make_deployment
from gossamer.runs.hosts import build_host, build_stage_host, cut_share
from gossamer.runs.settings import Settings, make_settings
from gossamer.runs.stages import GRAPH

M, STEPS = 4, 7
Weights = dict[str, torch.Tensor]


@dataclass(frozen=True)
class Problem:
    """Hosts of one agent each, made once: a run copies their weights and leaves them as they are."""

    settings: Settings
    hosts: dict[int, Host]
    links: np.ndarray
    schedules: dict[int, MessageSchedule]
    evaluations: dict[int, NetworkEvaluation]
    expected: list[Weights]  # every agent's, of the undisturbed run
    routes: list[AgentRoutes | None]


def problem(**changes: Any) -> Problem:
    """Agents in a line or a ring with 4 vertices each, but for agent 1 without labels and agent 3 without vertices."""
    return _problem(tuple(sorted(changes.items())))


@cache
def _problem(changes: tuple[tuple[str, Any], ...]) -> Problem:
    settings = make_settings(
        {"preset": "paper", "dataset": "small", "agents": M, "topology": "line", "steps": STEPS, "hidden": 3,
         "dtype": "float64", "checkpoint_every": 2, "evaluate_every": 3, "step_size": 0.1, "initial_deviation": 0.5,
         "dropout": 0.3, **dict(changes)}
    )  # fmt: skip
    random = np.random.default_rng(0)
    owner = np.repeat(np.arange(M - 1), 4)
    n = len(owner)
    train = (random.random(n) < 0.7) & (owner != 1)
    graph = make_graph(
        "small",
        np.array([(i, i + 1) for i in range(n - 1)] + [(i, i + 2) for i in range(n - 2)] + [(0, 9), (3, 8), (3, 11)]),
        random.standard_normal((n, 4)),
        np.arange(n) % 3,
        train=train,
        validation=~train,
        test=~train,
    )
    deployment = make_deployment(graph, settings, assignment=owner)
    expected = _undisturbed([build_host(deployment, settings, [k]) for k in range(M)], settings.steps)
    return make_problem(deployment, settings, expected)


def make_problem(deployment: Deployment, settings: Settings, expected: list[Weights]) -> Problem:
    links = deployment.links & ~np.eye(M, dtype=bool)
    tree = plan_tree(links)
    assert tree is not None
    routes = plan_agent_routes(deployment, settings)
    shares = {k: replace(cut_share(deployment, settings, [k]), tree=tree[k], routes=routes[k]) for k in range(M)}
    hosts = {k: build_stage_host(GRAPH, share, None, settings) for k, share in shares.items()}
    schedules = {k: make_schedule(host, settings, shares[k]) for k, host in hosts.items()}
    evaluations = {k: make_evaluation(host, settings, shares[k]) for k, host in hosts.items()}
    return Problem(settings, hosts, links, schedules, evaluations, expected, routes)


def _undisturbed(hosts: list[Host], steps: int) -> list[Weights]:
    """Every agent on its own host, in lock step: the same arithmetic, so the same bits. The hosts are used up."""
    for _ in range(steps):
        hosts = [host for host, _ in run_together([training_step(host) for host in hosts])]
    return [host.params for host in hosts]
