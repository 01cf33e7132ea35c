"""Shards cut from a deployment: all that one agent needs, in a folder of its own.

shard.json           the run, this agent and its neighbours, the settings; checksums of the other files
share.safetensors    the agent's share of data, shift operator and C
key.secret           its secret key, where keys were made with the shards (0600); else the site's own
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from gossamer.agents.consensus.masked import list_senders
from gossamer.agents.noisy_sums import hide_degrees
from gossamer.agents.plan import message_rows
from gossamer.agents.relays import AgentRoutes, select_routes
from gossamer.agents.share import Share, make_share
from gossamer.agents.sums import plan_tree
from gossamer.data import name_classes
from gossamer.errors import GossamerError
from gossamer.peers.network.addresses import Contact
from gossamer.peers.shards.manifests import ShardManifest
from gossamer.peers.shards.membership import Membership, membership_fields, read_membership
from gossamer.runs.deployment import Deployment
from gossamer.runs.evaluated_steps import evaluation_gap
from gossamer.runs.hosts import prepare_cut
from gossamer.runs.link_sequences import require_fixed_links
from gossamer.runs.manifests import DataIdentity
from gossamer.runs.settings import Settings
from gossamer.runs.share_checks import take_share
from gossamer.runs.shares import MANIFEST, REMEDY, pack_share, pack_sizes, read_folder, write_folder
from gossamer.runs.stages import uses_masks
from gossamer.runs.stored_settings import read_stored_settings


@dataclass(frozen=True)
class Shard:
    """An agent's membership, its share of the data, and the settings of the run."""

    membership: Membership
    share: Share
    settings: Settings
    keep: int  # checkpoints, as many as distant agents can be apart
    identity: DataIdentity | None = None  # of the data; None in shards from before it was stored
    names: tuple[str, ...] | None = None  # of the agent's own vertices, by number; None: they have numbers alone

    @property
    def local_data(self) -> Share:
        """Targets and masks of the agent's own vertices."""
        return self.share


def cut_shards(
    deployment: Deployment,
    settings: Settings,
    run: str,
    contacts: Sequence[Contact],
    verify_keys: Sequence[str] | None = None,
    fingerprint: str = "",
) -> list[Shard]:
    """Cut a deployment into the shards of its agents; verify keys are for a network that is not trusted. The
    fingerprint is that of the data."""
    require_fixed_links(settings, "peers")
    m = deployment.num_agents
    if len(contacts) != m:
        raise GossamerError(f"expected one address for each of {m} agents, got {len(contacts)}")
    links = deployment.links & ~np.eye(m, dtype=bool)
    if sparse.csgraph.connected_components(sparse.csr_array(links))[0] > 1:
        raise GossamerError(
            "the agents fall into groups without a link between them, which could never agree on a step to go back to; "
            "choose --topology admm, ring or complete, or fewer agents"
        )
    whole = prepare_cut(deployment, settings)
    keep = checkpoints_to_keep(diameter(links), settings)
    tree = plan_tree(links)
    assert tree is not None  # links connect all agents
    routes = plan_agent_routes(deployment, settings)
    graph = deployment.graph
    names = name_classes(graph)
    identity = DataIdentity(name=graph.name, fingerprint=fingerprint, class_names=names, task=graph.task)
    shards = []
    for k in range(m):
        neighbours = {z: contacts[z] for z in np.flatnonzero(links[k]).tolist()}
        membership = Membership(k, run, contacts[k], neighbours, tuple(verify_keys or [None] * m))
        share = replace(make_share(whole, [k]), tree=tree[k], routes=routes[k])
        if uses_masks(settings):
            share = add_senders(share, [list_senders(one.combination, k) for one in whole.topologies])
        if settings.privacy_spec is not None:
            share = hide_degrees(share)
        own = share.vertices[share.hosted].tolist()
        named = None if graph.names is None else tuple(graph.names[vertex] for vertex in own)
        shards.append(Shard(membership, share, settings, keep, identity, named))
    return shards


def add_senders(share: Share, senders: Sequence[NDArray[np.int64]]) -> Share:
    """The share with the senders of its agent's neighbours, for each topology."""
    topologies = zip(share.topologies, senders, strict=True)
    return replace(share, topologies=tuple(replace(one, senders=pairs) for one, pairs in topologies))


def plan_agent_routes(deployment: Deployment, settings: Settings) -> list[AgentRoutes | None]:
    """Each agent's routes, where data edges join agents without a link."""
    m, planned = deployment.num_agents, deployment.topologies[0].routes
    if not any(one.routes.paths for one in deployment.topologies):
        return [None] * m
    if len(deployment.topologies) > 1:
        raise GossamerError(
            f"shards relay rows on one topology, and this run takes {len(deployment.topologies)} in turn, of which one "
            "has data edges between agents without a link; give one combination matrix, or --lost-edges drop"
        )
    if settings.privacy_spec is not None:
        raise GossamerError(
            "noisy sums of --privacy go over links alone, and here data edges join agents without one; choose "
            "--lost-edges drop, or a topology that carries all data edges"
        )
    gathers, graph = deployment.network.gathers, deployment.graph
    train, full = (
        list(chain.from_iterable(message_rows(deployment.shift, gathers, outputs, deployment.assignment)))
        for outputs in (graph.labelled, np.ones(graph.num_vertices, dtype=bool))
    )
    paths = list(planned.paths.values())
    return [select_routes(k, paths, planned.longest, train, full) for k in range(m)]


def diameter(links: NDArray[np.bool_]) -> int:
    """Links between the two farthest agents."""
    return int(sparse.csgraph.shortest_path(sparse.csr_array(links), unweighted=True).max(initial=0))


def checkpoints_to_keep(diameter: int, settings: Settings) -> int:
    """Number of checkpoints that an agent keeps: two, and those between the latest ones of the two farthest agents,
    whose steps differ by at most the diameter times the gap between neighbours."""
    return 2 + -(-diameter * max_step_gap(settings) // settings.checkpoint_every)


def max_step_gap(settings: Settings) -> int:
    """Largest difference of the steps of two neighbours: the steps from one exchange to the next, which is at the
    latest a consensus or, without any, an evaluation."""
    return settings.consensus_every or evaluation_gap(settings)


def write_shard(folder: Path, shard: Shard) -> None:
    """Write a shard into a folder, its manifest last."""
    about = {
        **membership_fields(shard.membership),
        **pack_sizes(shard.share),
        "keep": shard.keep,
        "settings": shard.settings.model_dump(),
        **({} if shard.identity is None else {"data": shard.identity.model_dump()}),
        **({} if shard.names is None else {"names": shard.names}),
    }
    write_folder(folder, "share.safetensors", pack_share(shard.share), about)


def read_shard(folder: Path) -> Shard:
    """A shard, checked: every file against its manifest, every array against what the planner expects."""
    manifest, arrays = read_folder(folder, "share.safetensors", ShardManifest)
    path = str(folder / MANIFEST)
    settings = read_stored_settings(manifest.settings, path)
    m, most = manifest.num_agents, checkpoints_to_keep(manifest.num_agents, settings)
    if m != settings.agents:
        raise GossamerError(f"{path}: num_agents is {m} and settings.agents {settings.agents}; {REMEDY}")
    membership = read_membership(manifest, m, path)
    if manifest.keep > most:
        raise GossamerError(f"{path}: keep should be at most {most} checkpoints, found {manifest.keep}; {REMEDY}")
    agent = membership.agent
    share = take_share(arrays, (agent,), manifest, settings, {agent, *membership.neighbours})
    times = 0 if share.train_times is None else len(share.train_times)
    if (settings.batch or 0) > times:
        raise GossamerError(
            f"{path}: settings.batch should be at most {times}, the time steps with a training example, found "
            f"{settings.batch}; {REMEDY}"
        )
    names = None if manifest.names is None else tuple(manifest.names)
    if names is not None and (len(names) != int(share.hosted.sum()) or len(set(names)) < len(names)):
        raise GossamerError(f"{path}: names should be {int(share.hosted.sum())} different ones; {REMEDY}")
    return Shard(membership, share, settings, manifest.keep, manifest.data, names)
