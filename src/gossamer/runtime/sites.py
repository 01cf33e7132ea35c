"""Sites: one agent of a run whose data no one pools, from its own site file (docs/deployment.md shows one).

Its shard is written like a cut one, but holds no plan: the agent makes that with its neighbours when they first meet.

shard.json          the run, this agent and its neighbours, the settings; checksums
site.safetensors    the site's vertices, the edges that touch them, and its row of C if that was given
"""

import hashlib
import json
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gossamer.agents.planning import Site
from gossamer.agents.share import MASKS
from gossamer.data.site import SiteData, read_site
from gossamer.errors import GossamerError
from gossamer.runtime.deployment import network_for
from gossamer.runtime.settings import Settings, make_settings
from gossamer.runtime.shards import (
    Contact,
    check_address,
    membership,
    read_member,
    restored_features,
    stored_features,
    write_folder,
)
from gossamer.runtime.sockets import check_key, public_of

NEEDED: dict[str, tuple[type, ...]] = {
    "run": (str,),
    "agent": (int,),
    "address": (str,),
    "data": (str,),
    "neighbours": (dict,),
    "settings": (dict,),
}
ALLOWED: dict[str, tuple[type, ...]] = {"secret": (str,), "classes": (int, list), "combination": (str,)}
POOLED = ("dataset", "assignment", "topology", "gap", "nonnegative", "mixing", "keep_links", "baselines")
MOST_CLASSES = 1 << 16
OWN = (*POOLED, "threads")  # settings that the sites need not have alike


@dataclass(frozen=True)
class SiteShard:
    """A shard before planning."""

    agent: int
    data: SiteData
    weights: NDArray[np.float64] | None  # its row of C; None: Metropolis-Hastings
    settings: Settings
    run: str
    contact: Contact
    neighbours: dict[int, Contact]

    @property
    def num_agents(self) -> int:
        return self.settings.agents

    @property
    def held(self) -> SiteData:
        return self.data

    @property
    def site(self) -> Site:
        """What the agent plans from."""
        settings, data = self.settings, self.data
        network = network_for(int(data.features.shape[-1]), data.num_outputs, settings)
        alike = {name: value for name, value in settings.model_dump().items() if name not in OWN}
        return Site(
            self.agent,
            self.num_agents,
            tuple(sorted(self.neighbours)),
            data,
            tuple(layer.filter for layer in network.layers),
            settings.shift_kind,
            json.dumps({**alike, "outputs": data.num_outputs, "classes": data.num_classes}, sort_keys=True),
            self.weights,
        )


def site_of_file(path: Path) -> tuple[SiteShard, str | None]:
    """A site from its TOML file, and the secret key that the file points to. Paths are relative to the file."""
    try:
        given = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except (OSError, UnicodeDecodeError) as error:
        raise GossamerError(f"cannot read {path}: {error}") from None
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise GossamerError(f"{path} is not valid TOML: {error}") from None
    _check_keys(path, given)
    settings = _settings(path, given["settings"])
    agent, m = given["agent"], settings.agents
    if not 0 <= agent < m:
        raise GossamerError(f"{path}: agent must be 0 to {m - 1}, as settings.agents is {m}; got {agent}")
    if not re.fullmatch(r"[A-Za-z0-9._-]{1,64}", given["run"]):
        raise GossamerError(f"{path}: run must be up to 64 letters, digits, dots or dashes, got {given['run']!r}")
    neighbours = _neighbours(path, given["neighbours"], agent, m)
    data = read_site(path.parent / given["data"], agent, _classes(path, given.get("classes")))
    strangers = sorted(set(np.unique(data.owner).tolist()) - {agent, *neighbours})
    if strangers:
        raise GossamerError(
            f"{path}: edges lead to agent {strangers[0]}, which is not a neighbour; give its address, or leave the "
            "edges out at both sites"
        )
    secret = _read_secret(path.parent / given["secret"]) if "secret" in given else None
    weights = _row_of_c(path.parent / given["combination"], agent, m, neighbours) if "combination" in given else None
    contact = Contact(check_address(given["address"], str(path)), None if secret is None else public_of(secret))
    _check_apart(path, [contact, *neighbours.values()])
    return SiteShard(agent, data, weights, settings, given["run"], contact, neighbours), secret


def _check_keys(path: Path, given: Mapping[str, Any]) -> None:
    kinds = NEEDED | ALLOWED
    missing = [name for name in NEEDED if name not in given]
    if missing:
        raise GossamerError(f"{path} has no {missing[0]}; a site file needs {', '.join(NEEDED)}")
    for name, value in given.items():
        if name not in kinds:
            raise GossamerError(f"{path}: unknown key {name!r}; known: {', '.join(kinds)}")
        if not isinstance(value, kinds[name]) or isinstance(value, bool):
            expected = " or ".join(
                {"str": "text", "int": "a whole number", "list": "a list", "dict": "a table"}[k.__name__]
                for k in kinds[name]
            )
            raise GossamerError(f"{path}: {name} must be {expected}, got {value!r}")


def _settings(path: Path, values: dict[str, Any]) -> Settings:
    pooled = [name for name in POOLED if name in values]
    if pooled:
        raise GossamerError(f"{path}: {pooled[0]} is for data in one place; a site knows its own vertices only")
    if "agents" not in values:
        raise GossamerError(f"{path}: settings must have agents, the number of sites")
    return make_settings(values, source=str(path))


def _neighbours(path: Path, table: Mapping[str, Any], agent: int, m: int) -> dict[int, Contact]:
    found = {}
    for name, entry in table.items():
        if name not in map(str, range(m)) or int(name) == agent:
            raise GossamerError(f"{path}: neighbours are numbered 0 to {m - 1} without {agent} itself, got {name!r}")
        if not isinstance(entry, dict) or not set(entry) <= {"address", "key"} or "address" not in entry:
            raise GossamerError(f'{path}: neighbour {name} must be {{ address = "host:port", key = "..." }}')
        key = check_key(entry["key"], f"{path}, neighbour {name}") if "key" in entry else None
        found[int(name)] = Contact(check_address(str(entry["address"]), f"{path}, neighbour {name}"), key)
    if not found and m > 1:
        raise GossamerError(f"{path} names no neighbour, so this site could train with nobody")
    return dict(sorted(found.items()))


def _classes(path: Path, given: int | list[Any] | None) -> list[str] | None:
    if given is None:
        return None
    many = given if isinstance(given, int) else len(given)
    if not 2 <= many <= MOST_CLASSES:
        raise GossamerError(f"{path}: classes must be 2 to {MOST_CLASSES}, got {many}")
    names = [str(name) for name in (range(given) if isinstance(given, int) else given)]
    if len(set(names)) < len(names):
        raise GossamerError(f"{path}: classes must have different names, got {given}")
    return names


def _check_apart(path: Path, contacts: list[Contact]) -> None:
    """An agent is known by its key and reached at its address, so no two may share one."""
    for what in ("address", "key"):
        values = [value for contact in contacts if (value := getattr(contact, what)) is not None]
        twice = [value for value in values if values.count(value) > 1]
        if twice:
            raise GossamerError(f"{path}: two agents have the {what} {twice[0]}; give each its own")


def _read_secret(path: Path) -> str:
    try:
        return path.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise GossamerError(f"cannot read the secret key {path}: {error}; make one with gossamer keys") from None


def _row_of_c(path: Path, agent: int, m: int, neighbours: Mapping[int, Contact]) -> NDArray[np.float64]:
    """This agent's row of C, from the topology.json of `gossamer topology` or a CSV file with C or that row."""
    try:
        if path.suffix == ".json":
            C = np.array(json.loads(path.read_text())["combination"], dtype=np.float64)
        else:
            C = np.loadtxt(path, delimiter=",", ndmin=2, dtype=np.float64)
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise GossamerError(f"cannot read C from {path}: {error}") from None
    if C.shape not in ((m, m), (1, m)):
        raise GossamerError(f"{path} must hold C, {m} x {m}, or row {agent} of it; got {C.shape}")
    row = C[agent] if len(C) == m and m > 1 else C[0]
    others = set(np.flatnonzero(row).tolist()) - {agent, *neighbours}
    if others:
        raise GossamerError(f"{path} mixes with agent {min(others)}, which is not a neighbour of agent {agent}")
    if not np.isfinite(row).all() or abs(row.sum() - 1.0) > 1e-9:
        raise GossamerError(f"{path}: row {agent} of C must sum to 1 (A1), it sums to {row.sum()}")
    return np.asarray(row)


def write_site_shard(folder: Path, shard: SiteShard) -> None:
    about = {"agent": shard.agent, "num_classes": shard.data.num_classes, **membership(shard)}
    write_folder(folder, "site.safetensors", _arrays(shard), about)


def fingerprint(shard: SiteShard) -> str:
    """The same for shards of the same data, settings and neighbours, wherever these listen."""
    digest = hashlib.sha256(json.dumps([shard.site.terms, sorted(shard.neighbours)]).encode())
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
        **stored_features(data.features),
    }
    if shard.weights is not None:
        arrays["combination"] = shard.weights
    return arrays


def is_site(folder: Path) -> bool:
    """Whether a folder holds a site's shard."""
    return (folder / "site.safetensors").is_file()


def read_site_shard(folder: Path) -> SiteShard:
    """A site's shard, checked: every file as its manifest says."""
    manifest, common, arrays = read_member(folder, "site.safetensors")
    data = SiteData(
        arrays["vertices"],
        arrays["owner"],
        arrays["edges"],
        arrays["weights"],
        restored_features(arrays),
        arrays["targets"],
        {name: arrays[f"mask.{name}"] for name in MASKS},
        manifest["num_classes"],
    )
    return SiteShard(agent=manifest["agent"], data=data, weights=arrays.get("combination"), **common)
