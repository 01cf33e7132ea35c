"""Shares on disk: one file of arrays and a manifest that names its checksum, for an agent or for a rank.

shard.json           sizes and membership, and the checksum of the other file
share.safetensors    the share of data, shift operator and C
"""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from scipy import sparse

from gossamer.agents.relays import AgentRoutes
from gossamer.agents.share import Share
from gossamer.errors import GossamerError
from gossamer.files import PRIVATE, make_private, write_atomically
from gossamer.runs.arrays import INITIAL_PREFIX, StoredArrays, topology_prefix
from gossamer.runs.documents import check_format, read_json, to_json, validate
from gossamer.runs.manifests import SHARD_FORMAT, Manifest, ShareSizes
from gossamer.runs.tensors import read_arrays, write_tensors
from gossamer.runs.transforms import TRANSFORM_PREFIX

MANIFEST = "shard.json"
MAX_MANIFEST_BYTES = 1 << 24  # of a manifest
REMEDY = "copy the shard again"
Read = TypeVar("Read", bound=Manifest)


def find_agent_folder(folder: Path) -> Path:
    """The folder of an agent, of which the folder of its run may be given."""
    return folder.parent if folder.name.startswith("run-") and (folder.parent / MANIFEST).is_file() else folder


def is_agent_folder(folder: Path) -> bool:
    """Return whether a folder is that of an agent's shard, or of its run in there."""
    return (find_agent_folder(folder) / MANIFEST).is_file() and not (folder / "network.safetensors").is_file()


def write_folder(folder: Path, name: str, arrays: Mapping[str, Any], about: Mapping[str, Any]) -> None:
    """Write one file of arrays and, last, a manifest: `about` them, and the file's checksum."""
    make_private(folder)
    tensors = {key: torch.from_numpy(np.array(array, order="C")) for key, array in arrays.items()}
    write_tensors(folder / name, tensors, PRIVATE)
    manifest = {"format": SHARD_FORMAT, **about, "checksums": {name: _sha256(folder / name)}}
    write_atomically(folder / MANIFEST, (to_json(manifest, indent=2) + "\n").encode(), PRIVATE)


def read_folder(folder: Path, name: str, model: type[Read]) -> tuple[Read, StoredArrays]:
    """Manifest of a shard's folder, and the arrays of its file, verified by the manifest's checksum."""
    path, file = folder / MANIFEST, folder / name
    try:
        content = read_json(path, MAX_MANIFEST_BYTES)
    except OSError:
        agents = sorted(folder.glob(f"*/{MANIFEST}")) if folder.is_dir() else []
        hint = f"give the folder of an agent, such as {agents[0].parent}" if agents else "cut one with gossamer shard"
        raise GossamerError(f"{folder} is not a shard: it has no {MANIFEST}; {hint}") from None
    check_format(content, path, SHARD_FORMAT)
    manifest = validate(model, content, str(path), REMEDY)
    if set(manifest.checksums) != {name}:
        raise GossamerError(f"{path}: checksums should hold that of {name} alone; {REMEDY}")
    if not file.is_file():
        raise GossamerError(f"{folder} is not whole: {name} is missing; {REMEDY}")
    if _sha256(file) != manifest.checksums[name]:
        raise GossamerError(f"{file} is not what {path} says: {REMEDY}")
    return manifest, StoredArrays(file, read_arrays(file), REMEDY)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def pack_features(features: Any) -> dict[str, Any]:
    """Features as named arrays: dense as they are, sparse in their parts."""
    if not sparse.issparse(features):
        return {"features": features}
    csr = features.tocsr()
    parts = {"data": csr.data, "indices": csr.indices, "indptr": csr.indptr, "shape": np.array(csr.shape)}
    return {f"features.{name}": part for name, part in parts.items()}


def pack_sizes(share: Share) -> dict[str, Any]:
    """Sizes that a share states in its manifest."""
    return {name: getattr(share, name) for name in ShareSizes.model_fields}


def pack_share(share: Share) -> dict[str, Any]:
    """Arrays of a share, by name; those of later topologies have a prefix (`topology_prefix`)."""
    arrays: dict[str, Any] = {
        "vertices": share.vertices,
        "owner": share.owner,
        "targets": share.targets,
        **{f"mask.{name}": mask for name, mask in share.masks.items()},
        **pack_features(share.features),
    }
    for number, one in enumerate(share.topologies):
        prefix = topology_prefix(number)
        i, j, values = one.entries
        arrays |= {f"{prefix}shift.row": i, f"{prefix}shift.column": j, f"{prefix}shift.value": values}
        arrays[f"{prefix}combination"] = one.combination
        if one.senders is not None:
            arrays[f"{prefix}senders"] = one.senders
        for kind, fields in (("train", one.train_fields), ("full", one.full_fields)):
            for layer, sets in enumerate(fields):
                arrays[f"{prefix}field.{kind}.{layer}"] = np.stack(sets)
    arrays |= {f"{INITIAL_PREFIX}{name}": part for name, part in (share.initial or {}).items()}
    if share.transform is not None:
        arrays |= {f"{TRANSFORM_PREFIX}{name}": part for name, part in share.transform.arrays().items()}
    if share.tree is not None:
        tree = share.tree
        arrays["tree"] = np.array([tree.parent, tree.depth, tree.height, *tree.children])
    if share.routes is not None:
        arrays |= pack_routes(share.routes)
    slots = None if share.slots is None else np.array([share.slots])
    optional = {
        "train_times": share.train_times,
        "hosting": share.hosting,
        "slots": slots,
        "example_weights": share.example_weights,
        "positive_weight": share.positive_weight,
    }
    return arrays | {name: array for name, array in optional.items() if array is not None}


def pack_routes(routes: AgentRoutes) -> dict[str, Any]:
    """Arrays of an agent's routes: paths [paths, longest + 1], filled up with -1, and their rows [paths, exchanges]."""
    paths = np.full((len(routes.paths), routes.longest + 1), -1, dtype=np.int64)
    for row, path in zip(paths, routes.paths, strict=True):
        row[: len(path)] = path
    return {"routes": paths, "routes.train": routes.train, "routes.full": routes.full}
