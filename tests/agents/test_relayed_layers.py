"""Any connected network trains exactly: gradients equal whole-graph autograd, whichever agents have links."""

from collections.abc import Generator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from agents.cases import Case, make_case
from agents.test_layers import describe, shake
from oracles import layers as layer_oracle
from oracles import whole_graph
from torch import Tensor

from gossamer import topology
from gossamer.agents import Host, Inbox, Outbox, loss_gradient
from gossamer.agents.share import make_share
from gossamer.engines.simulation import run_together
from gossamer.generators import delegate
from gossamer.model.layers import LAYERS
from gossamer.peers.program import label_exchanges
from gossamer.peers.protocol.boxes import OpenBoxes
from gossamer.peers.protocol.exchanges import PlannedExchange
from gossamer.peers.protocol.relaying import Relays
from gossamer.peers.shards.shard import plan_agent_routes
from gossamer.runs.deployment import Deployment, make_deployment
from gossamer.runs.hosts import build_host, build_share_host, prepare_cut
from gossamer.runs.settings import Settings, make_settings

AGENTS = 6
OPTIONS: dict[str, dict[str, Any]] = {
    "polynomial": {"order": 2},
    "chebyshev": {"order": 3},
    "gat": {"heads": 2},
    "gatv2": {"heads": 2},
    "sage": {"aggregate": "max"},
    "sgc": {"order": 3},
    "appnp": {"order": 3, "hidden": ()},
}
DENSE = {"gcn": ("one", 1), "polynomial": ("monomial", 2), "chebyshev": ("chebyshev", 3), "mlp": ("none", 1)}
GROUPINGS = [[[*range(AGENTS)]], [[0, 1, 2], [3, 4, 5]], [[0, 5], [1], [2, 4], [3]]]


def tree() -> topology.Links:
    links = np.zeros((AGENTS, AGENTS), dtype=bool)
    for k, z in ((0, 1), (0, 2), (1, 3), (1, 4), (2, 5)):
        links[k, z] = links[z, k] = True
    return links


NETWORKS = {
    "line": topology.line(AGENTS),
    "ring": topology.ring(AGENTS),
    "star": topology.star(AGENTS),
    "grid": topology.grid(AGENTS),
    "tree": tree(),
    "random": topology.random_connected(AGENTS, seed=1),
    "random too": topology.random_connected(AGENTS, seed=2),
}


def deploy(kind: str, links: topology.Links) -> tuple[Case, Deployment, Settings]:
    case = make_case()
    owner = np.random.default_rng(5).integers(0, AGENTS, len(case.owner))
    settings = make_settings(
        {"preset": "paper", "lost_edges": "relay", "dataset": "case", "agents": AGENTS, "topology": "admm", "seed": 3,
         "hidden": (4,), "layers": kind, "dtype": "float64", "initial_deviation": 0.5, "bias": True, "dropout": 0.0,
         "activation": "tanh", **OPTIONS.get(kind, {})}
    )  # fmt: skip
    C = topology.metropolis_weights(links)
    return case, make_deployment(case.graph, settings, assignment=owner, combination=C), settings


def refer(case: Case, deployment: Deployment, kind: str, host: Host) -> tuple[Tensor, dict[str, Tensor]]:
    """Loss and gradients of the whole graph at once."""
    problem = replace(case.problem, owner=torch.tensor(deployment.assignment))
    if kind not in DENSE:
        adjacency = torch.tensor(case.graph.adjacency.toarray())
        return layer_oracle.gradients(problem, adjacency, describe(deployment.network), host.params, None)
    name, order = DENSE[kind]
    described = [(name, order, "tanh"), (name, order, "identity")]
    problem = replace(problem, D=torch.tensor(deployment.shift.toarray()), layers=described)
    weights, biases = ([host.params[f"layer.{n}.{part}"] for n in range(2)] for part in ("weight", "bias"))
    found = whole_graph.gradients(problem, weights, biases)
    names = [f"layer.{n}.{part}" for part in ("weight", "bias") for n in range(2)]
    return whole_graph.loss(problem, weights, biases), dict(zip(names, found, strict=True))


def over_links(host: Host, relays: Relays, links: topology.Links) -> Generator[Outbox, Inbox, Any]:
    """The gradient of an agent that sends over its links alone."""

    def send(planned: PlannedExchange) -> Generator[Outbox, Inbox, Inbox]:
        assert all(links[link] for link in planned.outbox.messages)
        return (yield planned.outbox)

    return delegate(relays.relay(label_exchanges("train", 0, loss_gradient(host))), send)


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("kind", LAYERS)
def test_gradients_over_relays_equal_whole_graph_autograd(kind: str, name: str) -> None:
    """One host, mixtures, and agents alone, of which each sends to its neighbours and passes on what is for others."""
    links = NETWORKS[name]
    case, d, settings = deploy(kind, links)
    np.testing.assert_array_equal(d.links, links)
    assert (d.edges_kept, d.graph.num_edges) == (1.0, case.graph.num_edges)
    loss, expected = refer(case, d, kind, shake(build_host(d, settings)))

    def check(hosts: list[Host], results: list[tuple[Tensor, dict[str, Tensor]]]) -> None:
        torch.testing.assert_close(sum(part for part, _ in results), loss, rtol=1e-12, atol=1e-12)
        order = np.argsort([k for host in hosts for k in host.agents])
        assert set(expected) == set(hosts[0].params)
        for part, wanted in expected.items():
            found = torch.cat([gradient[part] for _, gradient in results])[order.copy()]
            torch.testing.assert_close(found, wanted, rtol=1e-10, atol=1e-13)

    for grouping in GROUPINGS:
        hosts = [shake(build_host(d, settings, group)) for group in grouping]
        check(hosts, run_together([loss_gradient(host) for host in hosts]))
    whole, routes = prepare_cut(d, settings), plan_agent_routes(d, settings)
    assert any(routes)
    shares = [replace(make_share(whole, [k]), routes=routes[k]) for k in range(AGENTS)]
    alone = [shake(build_share_host(share, settings)) for share in shares]
    relays = [Relays(one, torch.float64, OpenBoxes(16)) for one in routes]
    check(alone, run_together([over_links(host, one, links) for host, one in zip(alone, relays, strict=True)]))


@pytest.mark.parametrize("kind", ["gcn", "gat"])
def test_dropped_edges_change_the_gradients(kind: str) -> None:
    """What relays are for."""
    case, d, settings = deploy(kind, topology.line(AGENTS))
    _, expected = refer(case, d, kind, shake(build_host(d, settings)))
    dropping = settings.model_copy(update={"lost_edges": "drop"})
    fewer = make_deployment(case.graph, dropping, assignment=d.assignment, combination=d.combination)
    ((_, found),) = run_together([loss_gradient(shake(build_host(fewer, dropping)))])
    assert any(not torch.allclose(found[name], wanted, rtol=1e-3) for name, wanted in expected.items())
