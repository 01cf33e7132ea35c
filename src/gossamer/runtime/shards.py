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
from torch import Tensor

from gossamer.agents.share import MASKS, Share, make_share, make_whole
from gossamer.errors import GossamerError
from gossamer.files import write_atomically
from gossamer.runtime.deployment import Deployment
from gossamer.runtime.directory import to_json
from gossamer.runtime.settings import Settings, make_settings
from gossamer.runtime.tensors import FORMAT, read_tensors, write_tensors


@dataclass(frozen=True)
class Contact:
    """Where an agent listens, host:port, and the public key (Z85) that proves it is the one."""

    address: str
    key: str | None  # None on a network that is trusted


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
    keep = checkpoints_to_keep(links, settings)
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


def checkpoints_to_keep(links: Any, settings: Settings) -> int:
    """Over the network's diameter agents are that many times as far apart as neighbours can be. Whatever lies between
    the first agent's latest checkpoint and the last agent's must still be there."""
    distance = sparse.csgraph.shortest_path(sparse.csr_array(links), unweighted=True)
    diameter = int(distance[np.isfinite(distance)].max(initial=0))
    return 2 + -(-diameter * neighbours_apart(settings) // settings.checkpoint_every)


def neighbours_apart(settings: Settings) -> int:
    """Steps between two neighbours at most: those from one exchange to the next, at the latest a consensus or, without
    any, an evaluation."""
    return settings.consensus_every or settings.evaluate_every


def write_shard(folder: Path, shard: Shard) -> None:
    """Write a shard into a folder, its manifest last."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "share.safetensors"
    write_tensors(path, _tensors(shard.share))
    share = shard.share
    manifest = {
        "format": FORMAT,
        "run": shard.run,
        "agent": shard.agent,
        "num_agents": share.num_agents,
        "num_vertices": share.num_vertices,
        "num_labelled": share.num_labelled,
        "num_classes": share.num_classes,
        "keep": shard.keep,
        "contact": _contact_to_dict(shard.contact),
        "neighbours": {str(z): _contact_to_dict(contact) for z, contact in shard.neighbours.items()},
        "settings": shard.settings.model_dump(),
        "checksums": {path.name: _sha256(path)},
    }
    write_atomically(folder / "shard.json", (to_json(manifest, indent=2) + "\n").encode())


def read_shard(folder: Path) -> Shard:
    """A shard, checked: every file as its manifest says."""
    manifest = _manifest(folder)
    for name, expected in manifest["checksums"].items():
        path = folder / Path(name).name
        if not path.is_file():
            raise GossamerError(f"{folder} is not whole: {name} is missing; copy the shard again")
        if _sha256(path) != expected:
            raise GossamerError(f"{path} is not what {folder / 'shard.json'} says: copy the shard again")
    tensors = read_tensors(folder / "share.safetensors")
    return Shard(
        _share(tensors, manifest),
        make_settings(manifest["settings"], source=str(folder / "shard.json")),
        manifest["run"],
        Contact(**manifest["contact"]),
        {int(z): Contact(**contact) for z, contact in manifest["neighbours"].items()},
        manifest["keep"],
    )


def _manifest(folder: Path) -> dict[str, Any]:
    path = folder / "shard.json"
    try:
        content: dict[str, Any] = json.loads(path.read_text())
    except OSError:
        raise GossamerError(f"{folder} is not a shard: it has no shard.json; cut one with gossamer shard") from None
    except ValueError as error:
        raise GossamerError(f"{path} is not valid JSON: {error}; copy the shard again") from None
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise GossamerError(f"{path} should have the format version {FORMAT}; it was written by another Gossamer")
    needed = {"run", "agent", "num_agents", "num_vertices", "num_labelled", "num_classes", "keep", "contact"}
    missing = needed | {"neighbours", "settings", "checksums"}
    missing -= set(content)
    if missing:
        raise GossamerError(f"{path} is damaged: it has no {', '.join(sorted(missing))}; copy the shard again")
    return content


def _contact_to_dict(contact: Contact) -> dict[str, str | None]:
    return {"address": contact.address, "key": contact.key}


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _tensors(share: Share) -> dict[str, Tensor]:
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
    }
    for kind, fields in (("train", share.train_fields), ("full", share.full_fields)):
        for layer, sets in enumerate(fields):
            arrays[f"field.{kind}.{layer}"] = np.stack(sets)
    if share.train_times is not None:
        arrays["train_times"] = share.train_times
    if sparse.issparse(share.features):
        parts = share.features.tocsr()
        arrays |= {"features.data": parts.data, "features.indices": parts.indices, "features.indptr": parts.indptr}
        arrays["features.shape"] = np.array(parts.shape)
    else:
        arrays["features"] = share.features
    return {name: torch.from_numpy(np.ascontiguousarray(array)) for name, array in arrays.items()}


def _share(tensors: Mapping[str, Tensor], manifest: Mapping[str, Any]) -> Share:
    arrays = {name: tensor.numpy() for name, tensor in tensors.items()}
    if "features" in arrays:
        features: Any = arrays["features"]
    else:
        parts = tuple(arrays[f"features.{part}"] for part in ("data", "indices", "indptr"))
        features = sparse.csr_array(parts, shape=tuple(arrays["features.shape"]))
    layers = range(sum(name.startswith("field.train.") for name in arrays))
    return Share(
        agents=(manifest["agent"],),
        num_agents=manifest["num_agents"],
        num_vertices=manifest["num_vertices"],
        num_labelled=manifest["num_labelled"],
        num_classes=manifest["num_classes"],
        vertices=arrays["vertices"],
        owner=arrays["owner"],
        entries=(arrays["shift.row"], arrays["shift.column"], arrays["shift.value"]),
        train_fields=[list(arrays[f"field.train.{layer}"]) for layer in layers],
        full_fields=[list(arrays[f"field.full.{layer}"]) for layer in layers],
        features=features,
        targets=arrays["targets"],
        masks={name: arrays[f"mask.{name}"] for name in MASKS},
        train_times=arrays.get("train_times"),
        combination=arrays["combination"],
    )
