"""Sites cut from a data set: those that join later know the agents before them, and nobody knows of them."""

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from gossamer.data import DataGraph
from gossamer.errors import GossamerError
from gossamer.experiments.theory import draw_block_graph
from gossamer.peers.identity import read_admitted
from gossamer.peers.local_processes import move_ports, write_local_shards
from gossamer.peers.shards.sites import SiteShard, read_site_shard
from gossamer.runs.deployment import make_deployment
from gossamer.runs.settings import make_settings

SETTINGS = make_settings({"dataset": "blocks", "agents": 3, "topology": "complete", "evict_after": 2.0, "hidden": 4})


def cut(folder: Path, owner: NDArray[np.int64], joining: list[int]) -> tuple[DataGraph, list[SiteShard], list[Path]]:
    graph = draw_block_graph()
    there = owner < 3
    deployment = make_deployment(graph.select_vertices(there), SETTINGS, assignment=owner[there])
    folders = write_local_shards(folder, deployment, SETTINGS, graph=graph, owner=owner, joining=joining)
    return graph, [read_site_shard(one) for one in folders], folders


def test_sites_that_join_name_those_before_them(tmp_path: Path) -> None:
    owner = np.arange(draw_block_graph().num_vertices) % 5
    graph, shards, folders = cut(tmp_path, owner, [4, 3])
    assert [shard.membership.agent for shard in shards] == [0, 1, 2, 3, 4]
    assert [sorted(shard.membership.neighbours) for shard in shards] == [
        [1, 2], [0, 2], [0, 1], [0, 1, 2, 4], [0, 1, 2],
    ]  # fmt: skip
    for agent, shard in enumerate(shards):
        known, data = {agent, *shard.membership.neighbours}, shard.data
        assert data.vertices[data.owner == agent].tolist() == np.flatnonzero(owner == agent).tolist()
        ends = owner[graph.edges]
        expected = (ends == agent).any(1) & np.isin(ends, list(known)).all(1)
        assert data.vertices[data.edges].tolist() == graph.edges[expected].tolist()
        assert len(shard.membership.verify_keys) == 3
        assert read_admitted(folders[agent]) == []
    for neighbours in (shards[3].membership.neighbours, shards[4].membership.neighbours):
        assert all(contact == shards[z].membership.contact for z, contact in neighbours.items())


def test_a_site_that_could_never_join_is_refused(tmp_path: Path) -> None:
    graph = draw_block_graph()
    owner = np.arange(graph.num_vertices) % 3
    alone = np.flatnonzero(np.bincount(graph.edges.reshape(-1), minlength=graph.num_vertices) > 0)[0]
    near = graph.edges[(graph.edges == alone).any(1)].reshape(-1)
    owner[near] = 4  # nobody else is linked to agent 3, which comes first
    owner[alone] = 3
    with pytest.raises(GossamerError, match="agent 3 shares no edge with an agent that is there before it"):
        cut(tmp_path, owner, [3, 4])


def test_sites_get_other_ports_as_long_as_nobody_has_left_or_joined(tmp_path: Path) -> None:
    owner = np.arange(draw_block_graph().num_vertices) % 3
    _, before, folders = cut(tmp_path, owner, [])
    move_ports(folders)
    after = [read_site_shard(one) for one in folders]
    assert all(a.membership.contact.key == b.membership.contact.key for a, b in zip(after, before, strict=True))
    addresses = [one.membership.contact.address for one in after]
    assert addresses != [one.membership.contact.address for one in before]
    assert [after[0].membership.neighbours[z].address for z in (1, 2)] == addresses[1:]
    state = folders[0] / f"run-{after[0].membership.run}"
    state.mkdir()
    members = '[{"agent": 0, "profile": ""}, {"agent": 1, "profile": ""}]'
    (state / "memberships.jsonl").write_text(f'{{"membership": 0, "certificate": [], "following": {members}}}\n')
    move_ports(folders)
    assert [read_site_shard(one).membership.contact.address for one in folders] == addresses
