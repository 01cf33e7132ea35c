"""Shards: all that one agent knows, cut from a deployment, in a folder of its own.

shard.json           the run, this agent and its neighbours, the settings; checksums of the other files
share.safetensors    the agent's share of data, shift operator and C
key.secret           its secret key, where keys were made with the shards (0600); else the site's own
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from gossamer.agents.share import Share, make_share
from gossamer.errors import GossamerError, shown
from gossamer.peers.network.addresses import Contact, check_apart
from gossamer.peers.shards.manifests import MemberManifest, ShardManifest
from gossamer.runs.deployment import Deployment
from gossamer.runs.settings import Settings, read_stored_settings
from gossamer.runs.share_checks import take_share
from gossamer.runs.shares import MANIFEST, REMEDY, pack_share, pack_sizes, prepare_cut, read_folder, write_folder


@dataclass(frozen=True)
class Shard:
    share: Share
    settings: Settings
    run: str  # the same for all agents of a run, and for no other run
    contact: Contact
    neighbours: dict[int, Contact]
    keep: int  # checkpoints, as many as distant agents can be apart
    members: tuple[str | None, ...]  # the verify keys (Z85) of all agents; None on a network that is trusted

    @property
    def agent(self) -> int:
        return self.share.agents[0]

    @property
    def num_agents(self) -> int:
        return self.share.num_agents

    @property
    def held(self) -> Share:
        """What the agent holds of the data: targets and masks of its own vertices."""
        return self.share


def cut(
    deployment: Deployment,
    settings: Settings,
    run: str,
    contacts: Sequence[Contact],
    members: Sequence[str] | None = None,
) -> list[Shard]:
    """The shard of every agent; `members` are the verify keys of all, for a network that is not trusted."""
    m = deployment.num_agents
    if len(contacts) != m:
        raise GossamerError(f"expected one address for each of {m} agents, got {len(contacts)}")
    links = deployment.links & ~np.eye(m, dtype=bool)
    if sparse.csgraph.connected_components(sparse.csr_array(links))[0] > 1:
        raise GossamerError(
            "the agents fall into groups without a link between them, which could never agree on a step to go back to; "
            "choose --topology admm, ring or complete, or fewer agents"
        )
    whole = prepare_cut(deployment)
    keep = checkpoints_to_keep(diameter(links), settings)
    return [
        Shard(
            make_share(whole, [k]),
            settings,
            run,
            contacts[k],
            {z: contacts[z] for z in np.flatnonzero(links[k]).tolist()},
            keep,
            tuple(members or [None] * m),
        )
        for k in range(m)
    ]


def diameter(links: Any) -> int:
    """Links between the two farthest agents."""
    return int(sparse.csgraph.shortest_path(sparse.csr_array(links), unweighted=True).max(initial=0))


def checkpoints_to_keep(diameter: int, settings: Settings) -> int:
    """Over the network's diameter agents are that many times as far apart as neighbours can be. Whatever lies between
    the first agent's latest checkpoint and the last agent's must still be there."""
    return 2 + -(-diameter * neighbours_apart(settings) // settings.checkpoint_every)


def neighbours_apart(settings: Settings) -> int:
    """Steps between two neighbours at most: those from one exchange to the next, at the latest a consensus or, without
    any, an evaluation."""
    return settings.consensus_every or settings.evaluate_every


def write_shard(folder: Path, shard: Shard) -> None:
    """Write a shard into a folder, its manifest last."""
    about = {"agent": shard.agent, "keep": shard.keep, **pack_sizes(shard.share), **membership(shard)}
    write_folder(folder, "share.safetensors", pack_share(shard.share), about)


def read_shard(folder: Path) -> Shard:
    """A shard, checked: every file as its manifest says, every array as the planner expects it."""
    manifest, arrays = read_folder(folder, "share.safetensors", ShardManifest)
    path = str(folder / MANIFEST)
    settings, neighbours = read_membership(manifest, path)
    m, most = manifest.num_agents, checkpoints_to_keep(manifest.num_agents, settings)
    if m != settings.agents:
        raise GossamerError(f"{path}: num_agents is {m} and settings.agents {settings.agents}; {REMEDY}")
    if manifest.keep > most:
        raise GossamerError(f"{path}: keep should be at most {most} checkpoints, found {manifest.keep}; {REMEDY}")
    members = read_member_keys(manifest, m, path)
    share = take_share(arrays, (manifest.agent,), manifest, settings, {manifest.agent, *neighbours})
    times = 0 if share.train_times is None else len(share.train_times)
    if settings.batch > times:
        raise GossamerError(
            f"{path}: settings.batch should be at most {times}, the time steps with a training example, found "
            f"{settings.batch}; {REMEDY}"
        )
    contact = manifest.contact.contact()
    return Shard(share, settings, manifest.run, contact, neighbours, manifest.keep, members)


def membership(shard: Any) -> dict[str, Any]:
    """What the manifest of every agent's shard says: which run it belongs to, where it listens, whom it talks to."""
    return {
        "run": shard.run,
        "contact": _contact_to_dict(shard.contact),
        "neighbours": {str(z): _contact_to_dict(contact) for z, contact in shard.neighbours.items()},
        "members": list(shard.members),
        "settings": shard.settings.model_dump(),
    }


def read_membership(manifest: MemberManifest, path: str) -> tuple[Settings, dict[int, Contact]]:
    """The settings and the neighbours of an agent's manifest, which must fit each other."""
    settings = read_stored_settings(manifest.settings, path)
    m, agent = settings.agents, manifest.agent
    if agent >= m:
        raise GossamerError(f"{path}: agent should be 0 to {m - 1}, as settings.agents is {m}; found {agent}; {REMEDY}")
    neighbours: dict[int, Contact] = {}
    for name, contact in manifest.neighbours.items():
        number = int(name) if re.fullmatch(r"0|[1-9][0-9]{0,9}", name) else m
        if number >= m or number == agent:
            raise GossamerError(
                f"{path}: neighbours should be numbered 0 to {m - 1} without {agent}, found {shown(name)}; {REMEDY}"
            )
        neighbours[number] = contact.contact()
    if not neighbours and m > 1:
        raise GossamerError(f"{path}: neighbours should name at least one agent, found none; {REMEDY}")
    check_apart([manifest.contact.contact(), *neighbours.values()], path)
    return settings, neighbours


def read_member_keys(manifest: MemberManifest, num_agents: int, path: str) -> tuple[str | None, ...]:
    """The verify keys of all agents."""
    found = len(manifest.members)
    if found != num_agents:
        raise GossamerError(f"{path}: members should have {num_agents} verify keys, found {found}; {REMEDY}")
    return tuple(manifest.members)


def _contact_to_dict(contact: Contact) -> dict[str, str | None]:
    return {"address": contact.address, "key": contact.key}
