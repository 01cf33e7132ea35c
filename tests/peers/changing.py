"""Shards of agents that may leave and join, some of which are no members at first; where their processes stand."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from peers.processes import wait_until

from gossamer.experiments.theory import draw_block_graph
from gossamer.peers.agent_folders import run_folder
from gossamer.peers.local_processes import find_free_ports
from gossamer.peers.network.addresses import Contact
from gossamer.peers.network.keys import make_agent_keys, split_key, write_secret
from gossamer.peers.shards.cut_sites import cut_site
from gossamer.peers.shards.membership import Membership
from gossamer.peers.shards.sites import SiteShard, read_site_shard, write_site_shard
from gossamer.runs.manifests import DataIdentity
from gossamer.runs.settings import make_settings

RUN = "changing"
EVICT_AFTER = 3.0  # seconds


def write_changing(
    folder: Path, founders: int, joiners: int = 0, addresses: Sequence[str] | None = None, **changes: Any
) -> tuple[list[Path], list[str]]:
    """Shards of a block graph for agents who all talk to each other, and their public keys; founders do not know the
    agents that join."""
    settings = make_settings(
        {"dataset": "blocks", "agents": founders, "steps": 300, "hidden": 8, "evaluate_every": 25, "threads": 1,
         "checkpoint_every": 10, "evict_after": EVICT_AFTER, "score": "accuracy", **changes}
    )  # fmt: skip
    graph, m = draw_block_graph(), founders + joiners
    owner = np.arange(graph.num_vertices) % m
    keys = [make_agent_keys() for _ in range(m)]
    at = addresses or [f"127.0.0.1:{port}" for port in find_free_ports(m)]
    contacts = [Contact(at[k], split_key(keys[k][0], "")[0]) for k in range(m)]
    verify = tuple(split_key(public, "")[1] for public, _ in keys[:founders])
    folders = []
    for k in range(m):
        known = [z for z in range(m) if z != k and (z < founders or k >= founders)]
        neighbours = {z: contacts[z] for z in known}
        membership = Membership(k, RUN, contacts[k], neighbours, verify if k < founders else (None,) * founders)
        identity = DataIdentity(name="blocks", fingerprint="", class_names=["0", "1", "2"])
        data = cut_site(graph, owner, k, [k, *known])
        folders.append(folder / f"agent-{k}")
        write_site_shard(folders[-1], SiteShard(membership, data, None, settings, identity))
        write_secret(folders[-1] / "key.secret", keys[k][1])
    return folders, [public for public, _ in keys]


def find_state(folder: Path) -> Path:
    """The folder of an agent's run."""
    return run_folder(folder, read_site_shard(folder).membership)


def read_report(folder: Path) -> dict[str, Any]:
    """The last report of an agent's process."""
    path = find_state(folder) / "status.json"
    report: dict[str, Any] = json.loads(path.read_text()) if path.is_file() else {}
    return {"step": -1, "members": [], "standing": "", "membership": -1, **report}


def wait_for_members(folder: Path, members: Sequence[int], step: int = 0) -> None:
    """Wait until an agent trains with these members, from a step on."""

    def holds() -> bool:
        report = read_report(folder)
        return bool(report["members"] == list(members) and report["step"] >= step and report["standing"] == "member")

    wait_until(holds, f"{folder.name} trains with {members}")
