"""Shards: all that one agent knows, cut from a deployment, in a folder of its own.

shard.json           the run, this agent and its neighbours, the settings; checksums of the other files
share.safetensors    the agent's share of data, shift operator and C
key.secret           its secret key, where keys were made with the shards (0600); else the site's own
"""

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from scipy import sparse

from gossamer.agents.share import Share, Whole, make_share, make_whole
from gossamer.errors import GossamerError, shown
from gossamer.files import PRIVATE, make_private, write_atomically
from gossamer.runtime.addresses import Contact, check_apart
from gossamer.runtime.arrays import Arrays
from gossamer.runtime.deployment import Deployment
from gossamer.runtime.directory import to_json
from gossamer.runtime.documents import check_format, checked, read_json
from gossamer.runtime.manifests import SHARD, Manifest, MemberManifest, ShardManifest
from gossamer.runtime.settings import Settings, read_stored_settings
from gossamer.runtime.share_checks import take_share
from gossamer.runtime.tensors import read_arrays, write_tensors

MANIFEST = "shard.json"
MOST_BYTES = 1 << 24  # of a manifest
REMEDY = "copy the shard again"
Read = TypeVar("Read", bound=Manifest)
FACTS = ("num_agents", "num_vertices", "num_labelled", "num_classes")  # of a share, in its manifest


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
    whole = whole_of(deployment)
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


def whole_of(deployment: Deployment) -> Whole:
    """What shares are cut from."""
    gathers, combination = deployment.network.gathers, deployment.combination
    return make_whole(deployment.graph, deployment.shift, gathers, deployment.assignment, combination)


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
    about = {"agent": shard.agent, "keep": shard.keep, **facts_of(shard.share), **membership(shard)}
    write_folder(folder, "share.safetensors", share_arrays(shard.share), about)


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


def write_folder(folder: Path, name: str, arrays: Mapping[str, Any], about: Mapping[str, Any]) -> None:
    """One file of arrays and, last, a manifest: what is said `about` them, and the file's checksum."""
    make_private(folder)
    tensors = {key: torch.from_numpy(np.array(array, order="C")) for key, array in arrays.items()}  # none shared
    write_tensors(folder / name, tensors, PRIVATE)
    manifest = {"format": SHARD, **about, "checksums": {name: _sha256(folder / name)}}
    write_atomically(folder / MANIFEST, (to_json(manifest, indent=2) + "\n").encode(), PRIVATE)


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


def read_folder(folder: Path, name: str, model: type[Read]) -> tuple[Read, Arrays]:
    """The manifest of a shard's folder, and the arrays of its file: the one that the manifest was written for."""
    path, file = folder / MANIFEST, folder / name
    try:
        content = read_json(path, MOST_BYTES)
    except OSError:
        raise GossamerError(f"{folder} is not a shard: it has no {MANIFEST}; cut one with gossamer shard") from None
    check_format(content, path, SHARD)
    manifest = checked(model, content, str(path), REMEDY)
    if set(manifest.checksums) != {name}:
        raise GossamerError(f"{path}: checksums should hold that of {name} alone; {REMEDY}")
    if not file.is_file():
        raise GossamerError(f"{folder} is not whole: {name} is missing; {REMEDY}")
    if _sha256(file) != manifest.checksums[name]:
        raise GossamerError(f"{file} is not what {path} says: {REMEDY}")
    return manifest, Arrays(file, read_arrays(file), REMEDY)


def _contact_to_dict(contact: Contact) -> dict[str, str | None]:
    return {"address": contact.address, "key": contact.key}


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def stored_features(features: Any) -> dict[str, Any]:
    """Features as named arrays: dense as they are, sparse in their parts."""
    if not sparse.issparse(features):
        return {"features": features}
    csr = features.tocsr()
    parts = {"data": csr.data, "indices": csr.indices, "indptr": csr.indptr, "shape": np.array(csr.shape)}
    return {f"features.{name}": part for name, part in parts.items()}


def facts_of(share: Share) -> dict[str, Any]:
    """The numbers of a share, for its manifest."""
    return {name: getattr(share, name) for name in FACTS}


def share_arrays(share: Share) -> dict[str, Any]:
    """The arrays of a share, by name."""
    i, j, values = share.entries
    arrays: dict[str, Any] = {
        "vertices": share.vertices,
        "owner": share.owner,
        "shift.row": i,
        "shift.column": j,
        "shift.value": values,
        "targets": share.targets,
        "combination": share.combination,
        **{f"mask.{name}": mask for name, mask in share.masks.items()},
        **stored_features(share.features),
    }
    for kind, fields in (("train", share.train_fields), ("full", share.full_fields)):
        for layer, sets in enumerate(fields):
            arrays[f"field.{kind}.{layer}"] = np.stack(sets)
    slots = None if share.slots is None else np.array([share.slots])
    optional = {"train_times": share.train_times, "hosting": share.hosting, "slots": slots}
    return arrays | {name: array for name, array in optional.items() if array is not None}
