"""Shards: all that one agent knows, cut from a deployment, in a folder of its own.

shard.json           the run, this agent and its neighbours, the settings; checksums of the other files
share.safetensors    the agent's share of data, shift operator and C
key.secret           its secret key, where keys were made with the shards (0600); else the site's own
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy import sparse

from gossamer.agents.share import MASKS, Share, make_share, make_whole
from gossamer.errors import GossamerError
from gossamer.files import write_atomically
from gossamer.runtime.deployment import Deployment
from gossamer.runtime.directory import to_json
from gossamer.runtime.settings import Settings, stored_settings
from gossamer.runtime.tensors import FORMAT, read_tensors, write_tensors

MANIFEST = "shard.json"
FACTS = ("num_agents", "num_vertices", "num_labelled", "num_classes")  # of a share, in its manifest


@dataclass(frozen=True)
class Contact:
    """Where an agent listens, host:port, and the public key (Z85) that proves it is the one."""

    address: str
    key: str | None  # None on a network that is trusted


def check_address(address: str, where: str) -> str:
    """host:port as it is, or an error that says where it stood."""
    host, _, port = address.rpartition(":")
    number = int(port) if port.isascii() and port.isdigit() and len(port) < 6 else 0
    if not host or len(address.split()) != 1 or not 0 < number < 65536:
        raise GossamerError(f"{where}: expected an address host:port, got {address!r}")
    return address


@dataclass(frozen=True)
class Shard:
    share: Share
    settings: Settings
    run: str  # the same for all agents of a run, and for no other run
    contact: Contact
    neighbours: dict[int, Contact]
    keep: int  # checkpoints, as many as distant agents can be apart

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


def cut(deployment: Deployment, settings: Settings, run: str, contacts: Sequence[Contact]) -> list[Shard]:
    """The shard of every agent."""
    m = deployment.num_agents
    if len(contacts) != m:
        raise GossamerError(f"expected one address for each of {m} agents, got {len(contacts)}")
    filters = [layer.filter for layer in deployment.network.layers]
    links = deployment.links & ~np.eye(m, dtype=bool)
    if sparse.csgraph.connected_components(sparse.csr_array(links))[0] > 1:
        raise GossamerError(
            "the agents fall into groups without a link between them, which could never agree on a step to go back to; "
            "choose --topology admm, ring or complete, or fewer agents"
        )
    whole = make_whole(deployment.graph, deployment.shift, filters, deployment.assignment, deployment.combination)
    keep = checkpoints_to_keep(diameter(links), settings)
    return [
        Shard(
            make_share(whole, [k]),
            settings,
            run,
            contacts[k],
            {z: contacts[z] for z in np.flatnonzero(links[k]).tolist()},
            keep,
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
    about = {"agent": shard.agent, "keep": shard.keep, **facts_of(shard.share), **membership(shard)}
    write_folder(folder, "share.safetensors", share_arrays(shard.share), about)


def read_shard(folder: Path) -> Shard:
    """A shard, checked: every file as its manifest says."""
    manifest, common, arrays = read_member(folder, "share.safetensors", "keep", *FACTS)
    return Shard(share=share_of((manifest["agent"],), arrays, manifest), keep=manifest["keep"], **common)


def membership(shard: Any) -> dict[str, Any]:
    """What the manifest of every agent's shard says: which run it belongs to, where it listens, whom it talks to."""
    return {
        "run": shard.run,
        "contact": _contact_to_dict(shard.contact),
        "neighbours": {str(z): _contact_to_dict(contact) for z, contact in shard.neighbours.items()},
        "settings": shard.settings.model_dump(),
    }


def write_folder(folder: Path, name: str, arrays: Mapping[str, Any], about: Mapping[str, Any]) -> None:
    """One file of arrays and, last, a manifest: what is said `about` them, and the file's checksum."""
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {key: torch.from_numpy(np.ascontiguousarray(array)) for key, array in arrays.items()}
    write_tensors(folder / name, tensors)
    manifest = {"format": FORMAT, **about, "checksums": {name: _sha256(folder / name)}}
    write_atomically(folder / MANIFEST, (to_json(manifest, indent=2) + "\n").encode())


def read_member(folder: Path, name: str, *about: str) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """The manifest of an agent's shard, what it says of the `membership`, and the arrays of its file."""
    needed = ("agent", "num_classes", "run", "contact", "neighbours", "settings", *about)
    manifest, arrays = read_folder(folder, name, *needed)
    common = {
        "settings": stored_settings(manifest["settings"], source=str(folder / MANIFEST)),
        "run": manifest["run"],
        "contact": Contact(**manifest["contact"]),
        "neighbours": {int(z): Contact(**contact) for z, contact in manifest["neighbours"].items()},
    }
    return manifest, common, arrays


def read_folder(folder: Path, name: str, *about: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The manifest of a shard's folder, which must say so much, and the arrays of its file, checked."""
    manifest = _manifest(folder, {"checksums", *about})
    for file, expected in {name: None, **manifest["checksums"]}.items():
        path = folder / Path(file).name
        if not path.is_file():
            raise GossamerError(f"{folder} is not whole: {file} is missing; copy the shard again")
        if _sha256(path) != expected:
            raise GossamerError(f"{path} is not what {folder / MANIFEST} says: copy the shard again")
    return manifest, {key: tensor.numpy() for key, tensor in read_tensors(folder / name).items()}


def _manifest(folder: Path, about: set[str]) -> dict[str, Any]:
    path = folder / MANIFEST
    try:
        content: dict[str, Any] = json.loads(path.read_text())
    except OSError:
        raise GossamerError(f"{folder} is not a shard: it has no {MANIFEST}; cut one with gossamer shard") from None
    except ValueError as error:
        raise GossamerError(f"{path} is not valid JSON: {error}; copy the shard again") from None
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise GossamerError(f"{path} should have the format version {FORMAT}; it was written by another Gossamer")
    missing = about - set(content)
    if missing:
        raise GossamerError(f"{path} is damaged: it has no {', '.join(sorted(missing))}; copy the shard again")
    return content


def _contact_to_dict(contact: Contact) -> dict[str, str | None]:
    return {"address": contact.address, "key": contact.key}


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def stored_features(features: Any) -> dict[str, Any]:
    """Features as named arrays: dense as they are, sparse in their parts."""
    if not sparse.issparse(features):
        return {"features": features}
    csr = features.tocsr()
    parts = {"data": csr.data, "indices": csr.indices, "indptr": csr.indptr, "shape": np.array(csr.shape)}
    return {f"features.{name}": part for name, part in parts.items()}


def restored_features(arrays: Mapping[str, Any]) -> Any:
    if "features" in arrays:
        return arrays["features"]
    parts = tuple(arrays[f"features.{part}"] for part in ("data", "indices", "indptr"))
    return sparse.csr_array(parts, shape=tuple(arrays["features.shape"]))


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


def share_of(agents: Sequence[int], arrays: Mapping[str, Any], facts: Mapping[str, Any]) -> Share:
    """The share of these agents from what `share_arrays` and `facts_of` gave."""
    layers = range(sum(name.startswith("field.train.") for name in arrays))
    return Share(
        agents=tuple(agents),
        **{name: facts[name] for name in FACTS},
        vertices=arrays["vertices"],
        owner=arrays["owner"],
        entries=(arrays["shift.row"], arrays["shift.column"], arrays["shift.value"]),
        train_fields=[list(arrays[f"field.train.{layer}"]) for layer in layers],
        full_fields=[list(arrays[f"field.full.{layer}"]) for layer in layers],
        features=restored_features(arrays),
        targets=arrays["targets"],
        masks={name: arrays[f"mask.{name}"] for name in MASKS},
        train_times=arrays.get("train_times"),
        combination=arrays["combination"],
        hosting=arrays.get("hosting"),
        slots=int(arrays["slots"][0]) if "slots" in arrays else None,
    )
