"""Shards of sites cut from a deployment, for runs whose agents may leave and join: the agents plan among themselves.

Each has its own vertices, the edges to its neighbours' and its row of C, as if its site had brought them.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from gossamer.data import DataGraph, name_classes
from gossamer.data.site import SiteData, make_site
from gossamer.errors import GossamerError
from gossamer.peers.network.addresses import Contact
from gossamer.peers.shards.membership import Membership
from gossamer.peers.shards.shard import Shard, cut_shards, write_shard
from gossamer.peers.shards.sites import SiteShard, write_site_shard
from gossamer.runs.deployment import Deployment
from gossamer.runs.manifests import DataIdentity
from gossamer.runs.settings import Settings


def cut_deployment(
    graph: DataGraph,
    deployment: Deployment,
    settings: Settings,
    run: str,
    contacts: Sequence[Contact],
    verify_keys: Sequence[str] | None = None,
    fingerprint: str = "",
) -> list[Shard] | list[SiteShard]:
    """Cut a deployment into shards of its agents, or into sites if these may leave and join."""
    if settings.evict_after is None:
        return cut_shards(deployment, settings, run, contacts, verify_keys, fingerprint)
    return cut_sites(graph, deployment, settings, run, contacts, verify_keys, fingerprint)


def write_agent(folder: Path, shard: Shard | SiteShard) -> None:
    """Write the shard of an agent, of either kind."""
    if isinstance(shard, SiteShard):
        write_site_shard(folder, shard)
    else:
        write_shard(folder, shard)


def cut_sites(
    graph: DataGraph,
    deployment: Deployment,
    settings: Settings,
    run: str,
    contacts: Sequence[Contact],
    verify_keys: Sequence[str] | None = None,
    fingerprint: str = "",
) -> list[SiteShard]:
    """Cut a deployment into sites; verify keys are for a network that is not trusted. `graph` has the data as it was
    given, which sites standardise together."""
    m = deployment.num_agents
    if len(contacts) != m:
        raise GossamerError(f"expected one address for each of {m} agents, got {len(contacts)}")
    if len(deployment.topologies) > 1 or settings.initial is not None:
        raise GossamerError(
            "agents that may leave and join plan their links anew: give no sequence of C, and no weights"
        )
    links = deployment.links & ~np.eye(m, dtype=bool)
    identity = DataIdentity(name=graph.name, fingerprint=fingerprint, class_names=name_classes(graph), task=graph.task)
    shards = []
    for k in range(m):
        neighbours = np.flatnonzero(links[k]).tolist()
        membership = Membership(
            k, run, contacts[k], {z: contacts[z] for z in neighbours}, tuple(verify_keys or [None] * m)
        )
        row = np.asarray(deployment.combination[k], dtype=np.float64)
        data = cut_site(graph, deployment.assignment, k, [k, *neighbours])
        shards.append(SiteShard(membership, data, row, settings, identity))
    return shards


def cut_site(graph: DataGraph, owner: np.ndarray, agent: int, known: Sequence[int]) -> SiteData:
    """The data of one agent: its vertices, and the edges between them and those of `known` agents."""
    own = np.flatnonzero(owner == agent)
    ends = owner[graph.edges]
    touching = (ends == agent).any(1) & np.isin(ends, known).all(1)
    others = np.setdiff1d(graph.edges[touching], own)
    return make_site(
        agent,
        own=own,
        features=graph.features[own],
        targets=graph.targets[own],
        masks={name: getattr(graph, name)[own] for name in ("train", "validation", "test")},
        edges=graph.edges[touching],
        weights=graph.weights[touching],
        owners=dict(zip(others.tolist(), owner[others].tolist(), strict=True)),
        sample_weights=None if graph.sample_weights is None else graph.sample_weights[own],
        num_classes=graph.num_classes,
        labels=graph.task == "multilabel",
    )
