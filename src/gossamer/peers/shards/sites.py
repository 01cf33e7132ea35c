"""Sites: agents of a run whose data no one pools, each made from its own site file (docs/deployment.md shows one).

A site's shard is stored like one that was cut, but without a plan: the agents make that together when the run starts.

shard.json          the run, this agent and its neighbours, the settings; checksums
site.safetensors    the site's vertices, the edges that touch them, and its row of C if that was given
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gossamer.agents.consensus.masked import check_senders
from gossamer.agents.planning_exchanges import Site
from gossamer.agents.scores import choose_score
from gossamer.data.site import SiteData, read_site
from gossamer.errors import GossamerError, naming, shown
from gossamer.peers.network.addresses import Contact, check_address, check_distinct
from gossamer.peers.network.curve import derive_public_key
from gossamer.peers.network.keys import read_key, split_key
from gossamer.peers.protocol.signatures import derive_verify_key
from gossamer.peers.shards.manifests import MAX_SITES, SiteManifest
from gossamer.peers.shards.membership import MAX_AGENT, Membership, membership_fields, read_membership
from gossamer.peers.shards.site_files import read_combination, read_members, read_neighbours, read_site_file
from gossamer.runs.manifests import DataIdentity
from gossamer.runs.settings import Settings, make_settings
from gossamer.runs.share_checks import take_site
from gossamer.runs.shares import MANIFEST, pack_features, read_folder, write_folder
from gossamer.runs.stages import build_network, check_encoded_data, find_input_width, find_private_settings, uses_masks
from gossamer.runs.stored_settings import read_stored_settings

POOLED_SETTINGS = (
    "dataset",
    "split",
    "assignment",
    "topology",
    "gap",
    "nonnegative",
    "mixing",
    "keep_links",
    "baselines",
)
MAX_RELAYING_SITES = 256  # each passes on who talks to whom in matrices of all
LOCAL_SETTINGS = (*POOLED_SETTINGS, "threads")  # settings in which sites may differ


@dataclass(frozen=True)
class SiteShard:
    """A shard before planning."""

    membership: Membership
    data: SiteData
    weights: NDArray[np.float64] | None  # its row of C; None: Metropolis-Hastings
    settings: Settings
    identity: DataIdentity | None = None  # of the data; None in shards from before it was stored

    @property
    def local_data(self) -> SiteData:
        """Targets and masks of the agent's own vertices."""
        return self.data

    @property
    def site(self) -> Site:
        """The input of planning."""
        settings, data = self.settings, self.data
        width = find_input_width(int(data.features.shape[-1]), data.num_outputs, settings)
        network = build_network(width, data.num_outputs, settings)
        common = {name: value for name, value in settings.model_dump().items() if name not in LOCAL_SETTINGS}
        return Site(
            self.membership.agent,
            self.membership.num_agents,
            tuple(sorted(self.membership.neighbours)),
            data,
            tuple(network.gathers),
            settings.shift_kind,
            json.dumps(
                {**common, "outputs": data.num_outputs, "classes": data.num_classes, "task": data.task},
                sort_keys=True,
            ),
            self.weights,
            settings.class_weights == "balanced",
            settings.privacy_spec is not None,
            relays_edges(settings),
        )


def make_site_shard(path: Path) -> tuple[SiteShard, str | None]:
    """Make the shard of a site from its TOML file, and return it with the secret key that the file names. Paths are
    relative to the file."""
    given = read_site_file(path)
    settings = _settings(path, given.settings)
    agent, m = given.agent, settings.agents
    most = MAX_AGENT if settings.evict_after is not None else m
    if not 0 <= agent < most:
        also = "" if most == m else f" if it takes part from the start, and at most {most - 1} if it joins"
        raise GossamerError(f"{path}: agent must be 0 to {m - 1}, as settings.agents is {m}{also}; got {shown(agent)}")
    neighbours, keys = _neighbours(path, given.neighbours, agent, most)
    data = read_site(path.parent / given.data, agent, given.classes, given.task)
    settings = settings.fit_to(data.task, data.batch)  # a site does not know at which times others have examples
    if settings.encodes:
        check_encoded_data(settings, data.task, data.batch, data.sample_weights is not None, given.data)
        settings = find_private_settings(settings)
    with naming(path):
        choose_score(settings.score, data.task)
    strangers = sorted(set(np.unique(data.owner).tolist()) - {agent, *neighbours})
    if strangers and not relays_edges(settings):
        raise GossamerError(
            f"{path}: edges lead to agent {strangers[0]}, which is not a neighbour; give its address, or leave the "
            'edges out at both sites; lost_edges = "relay" reaches it over others, but not with evict_after or privacy'
        )
    if strangers and strangers[-1] >= m:
        raise GossamerError(f"{path}: edges lead to agent {strangers[-1]}, and agents are numbered 0 to {m - 1}")
    secret = None if given.secret is None else read_key(path.parent / given.secret)
    weights = None
    if given.combination is not None and agent >= m:
        raise GossamerError(f"{path}: C is made anew when agents join; leave combination out")
    if given.combination is not None:
        weights = _row_of_c(path.parent / given.combination, agent, m, neighbours)
    if uses_masks(settings):
        row = np.isin(np.arange(m), list(neighbours)) / m if weights is None else weights
        with naming(path):
            check_senders(row[None], [agent])
    public = None if secret is None else derive_public_key(secret)
    contact = Contact(check_address(given.address, str(path)), public)
    check_distinct([contact, *neighbours.values()], str(path))
    own = {} if secret is None else {agent: derive_verify_key(secret)}
    verify_keys = _verify_keys(path, given.members, keys | own, agent, m)
    membership = Membership(agent, given.run, contact, neighbours, verify_keys)
    names = None if given.classes is None else list(given.classes)
    identity = DataIdentity(name=given.run, fingerprint="", class_names=names, task=data.task)
    return SiteShard(membership, data, weights, settings, identity), secret


def relays_edges(settings: Settings) -> bool:
    """Sites relay rows between those that share edges without a link."""
    return settings.lost_edges == "relay" and 2 < settings.agents <= MAX_RELAYING_SITES


def _settings(path: Path, values: dict[str, Any]) -> Settings:
    pooled = [name for name in POOLED_SETTINGS if name in values]
    if pooled:
        raise GossamerError(f"{path}: {pooled[0]} is for data in one place; a site knows its own vertices only")
    if values.get("initial") is not None:
        raise GossamerError(
            f"{path}: initial weights come with the shards that gossamer shard DATASET cuts; sites draw theirs from "
            "the seed"
        )
    if "agents" not in values:
        raise GossamerError(f"{path}: settings must have agents, the number of sites")
    return make_settings(values, source=str(path))


def _neighbours(path: Path, table: dict[str, Any], agent: int, most: int) -> tuple[dict[int, Contact], dict[int, str]]:
    """The contacts of the neighbours, and the verify keys of those that have keys."""
    found, verify_keys = dict[int, Contact](), dict[int, str]()
    for z, entry in read_neighbours(path, table, agent, most).items():
        where = f"{path}, neighbour {z}"
        key = None
        if entry.key is not None:
            key, verify_keys[z] = split_key(entry.key, where)
        found[z] = Contact(check_address(entry.address, where), key)
    return found, verify_keys


def _verify_keys(
    path: Path, table: dict[str, Any], known: Mapping[int, str], agent: int, m: int
) -> tuple[str | None, ...]:
    """The verify keys of all agents: those that are `known`, and those of the members that are no neighbours."""
    found = dict(known)
    for z, public in read_members(path, table, m).items():
        _, key = split_key(public, f"{path}, member {z}")
        if found.setdefault(z, key) != key:
            raise GossamerError(f"{path}: member {z} has another key than the one given for agent {z} elsewhere")
    if len(set(found.values())) < len(found):
        raise GossamerError(f"{path}: two agents have the same verify key; give each its own pair")
    unknown = [k for k in range(m) if k != agent and k not in found and agent < m]  # one that joins is sent them
    if known.keys() - {agent} and unknown:
        raise GossamerError(
            f"{path} has no key of agent {unknown[0]}; what it states is passed on by others, so every site must know "
            f'the public keys of all: add a table [members] with {unknown[0]} = "..."'
        )
    return tuple(found.get(k) for k in range(m))


def _row_of_c(path: Path, agent: int, m: int, neighbours: Mapping[int, Contact]) -> NDArray[np.float64]:
    """This agent's row of C, from the topology.json of `gossamer topology` or a CSV file with C or that row."""
    C = read_combination(path, m)
    if C.shape not in ((m, m), (1, m)):
        raise GossamerError(f"{path} must hold C, {m} x {m}, or row {agent} of it; got {C.shape}")
    row = C[agent] if len(C) == m and m > 1 else C[0]
    if not np.isfinite(row).all():
        raise GossamerError(f"{path}: row {agent} of C must hold finite numbers")
    others = set(np.flatnonzero(row).tolist()) - {agent, *neighbours}
    if others:
        raise GossamerError(f"{path} mixes with agent {min(others)}, which is not a neighbour of agent {agent}")
    with np.errstate(over="ignore"):
        total = row.sum()
    if not abs(total - 1.0) <= 1e-9:
        raise GossamerError(f"{path}: row {agent} of C must sum to 1 (A1), it sums to {total}")
    if row[agent] == 0.0:
        raise GossamerError(f"{path}: C must not be 0 on its diagonal (28), and it is at agent {agent}")
    return np.asarray(row)


def write_site_shard(folder: Path, shard: SiteShard) -> None:
    about = {
        **membership_fields(shard.membership),
        "num_classes": shard.data.num_classes,
        "settings": shard.settings.model_dump(),
        **({} if shard.identity is None else {"data": shard.identity.model_dump()}),
    }
    write_folder(folder, "site.safetensors", _arrays(shard), about)


def fingerprint(shard: SiteShard) -> str:
    """Digest of a shard's data, settings and neighbours, without their addresses."""
    digest = hashlib.sha256(json.dumps([shard.site.terms, sorted(shard.membership.neighbours)]).encode())
    for name, array in sorted(_arrays(shard).items()):
        digest.update(f"{name} {array.dtype} {array.shape}".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def _arrays(shard: SiteShard) -> dict[str, Any]:
    data = shard.data
    arrays: dict[str, Any] = {
        "vertices": data.vertices,
        "owner": data.owner,
        "edges": data.edges,
        "weights": data.weights,
        "targets": data.targets,
        **{f"mask.{name}": mask for name, mask in data.masks.items()},
        **pack_features(data.features),
    }
    optional = {"combination": shard.weights, "sample_weights": data.sample_weights}
    return arrays | {name: array for name, array in optional.items() if array is not None}


def is_site(folder: Path) -> bool:
    """Return whether a folder holds a site's shard."""
    return (folder / "site.safetensors").is_file()


def read_site_shard(folder: Path) -> SiteShard:
    """A site's shard, checked: every file against its manifest, every array against what the planner expects."""
    manifest, arrays = read_folder(folder, "site.safetensors", SiteManifest)
    path = str(folder / MANIFEST)
    settings = read_stored_settings(manifest.settings, path)
    membership = read_membership(manifest, settings.agents, path, settings.evict_after is not None)
    if settings.agents > MAX_SITES:
        raise GossamerError(f"{path}: settings.agents should be at most {MAX_SITES}, found {settings.agents}")
    agent = membership.agent
    known = {agent, *membership.neighbours}
    owners = {*known, *range(settings.agents)} if relays_edges(settings) else known
    data, weights = take_site(arrays, agent, manifest.num_classes, settings, known, owners)
    return SiteShard(membership, data, weights, settings, manifest.data)
