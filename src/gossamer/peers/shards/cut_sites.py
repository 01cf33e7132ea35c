"""Shards of sites cut from a deployment, for runs whose agents may leave and join: the agents plan among themselves.

Each has its own vertices, the edges to its neighbours' and its row of C, as if its site had brought them. Sites that
join later are cut from the same graph: nobody knows of them, and they know the agents that are there before them.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from gossamer.array_types import Ints
from gossamer.assignment import shared_edges
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
    owner: Ints | None = None,
    joining: Sequence[int] = (),
) -> list[Shard] | list[SiteShard]:
    """Cut a deployment into shards of its agents, or into sites if these may leave and join."""
    if settings.evict_after is None:
        return cut_shards(deployment, settings, run, contacts, verify_keys, fingerprint)
    return cut_sites(graph, deployment, settings, run, contacts, verify_keys, fingerprint, owner, joining)


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
    owner: Ints | None = None,
    joining: Sequence[int] = (),
) -> list[SiteShard]:
    """Cut a deployment into sites; verify keys are for a network that is not trusted. `graph` has the data as it was
    given, which sites standardise together. With sites that join later, in the order of `joining`, it has theirs, too,
    and `owner` the agents of its vertices; the deployment is that of the others."""
    m, owner = deployment.num_agents, deployment.assignment if owner is None else owner
    if len(contacts) != m + len(joining):
        raise GossamerError(f"expected one address for each of {m + len(joining)} agents, got {len(contacts)}")
    if len(deployment.topologies) > 1 or settings.initial is not None:
        raise GossamerError(
            "agents that may leave and join plan their links anew: give no sequence of C, and no weights"
        )
    links = deployment.links & ~np.eye(m, dtype=bool)
    identity = DataIdentity(name=graph.name, fingerprint=fingerprint, class_names=name_classes(graph), task=graph.task)
    founders: tuple[str | None, ...] = (None,) * m if verify_keys is None else tuple(verify_keys[:m])
    shards = []
    for k in range(m):
        neighbours = np.flatnonzero(links[k]).tolist()
        membership = Membership(k, run, contacts[k], {z: contacts[z] for z in neighbours}, founders)
        row = np.asarray(deployment.combination[k], dtype=np.float64)
        data = cut_site(graph, owner, k, [k, *neighbours])
        shards.append(SiteShard(membership, data, row, settings, identity))
    shared = shared_edges(graph, owner, m + len(joining))
    for place, k in enumerate(joining):
        neighbours = [z for z in sorted({*range(m), *joining[:place]}) if shared[k, z]]
        if not neighbours:
            raise GossamerError(
                f"agent {k} shares no edge with an agent that is there before it, so that it could never join; choose "
                "another --assignment or --seed"
            )
        membership = Membership(k, run, contacts[k], {z: contacts[z] for z in neighbours}, founders)
        data = cut_site(graph, owner, k, [k, *neighbours])
        shards.append(SiteShard(membership, data, None, settings, identity))
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
