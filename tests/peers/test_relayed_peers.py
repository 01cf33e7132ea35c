"""Rows between agents without a link: sealed, passed on by others, and exact, of shards and of sites."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from peers.frames import is_frame
from peers.harness import check, deployed, in_threads, over, simulated, state_folder
from peers.memory import Hub, InMemory
from peers.processes import Agents, wait_until
from peers.test_peers_keep_best import simulated as trained_alone
from peers.test_sites import RUN, shards_of, train_with_deaths, write_sites
from peers.test_sites import check as check_sites
from peers.test_sites import over as sites_over

from gossamer.errors import GossamerError
from gossamer.experiments.theory import draw_block_graph
from gossamer.peers.local_processes import write_local_shards
from gossamer.peers.local_requests import SERVING_FILE
from gossamer.peers.network.keys import make_agent_keys
from gossamer.peers.prediction import TrainedAgent, ask_neighbours
from gossamer.peers.process import PeerOptions, run_peer, train_agent
from gossamer.peers.progress import PeerReport
from gossamer.peers.protocol import detours
from gossamer.peers.protocol.wire import FRAME_HEADER, HEADER
from gossamer.peers.shards.shard import read_shard
from gossamer.peers.shards.sites import make_site_shard
from gossamer.runs.deployment import Deployment, make_deployment
from gossamer.runs.message_counts import count_messages
from gossamer.runs.settings import Settings
from gossamer.runs.shares import MANIFEST, write_folder
from gossamer.runs.tensors import read_arrays, read_tensors


def relayed(**changes: Any) -> tuple[Deployment, Settings]:
    """Agents some of which share edges without a link."""
    deployment, settings = deployed(**{"topology": "line", "lost_edges": "relay", **changes})
    assert deployment.topologies[0].routes.paths
    assert deployment.edges_kept == 1.0
    return deployment, settings


@pytest.mark.parametrize(
    "changes",
    [
        {"update": "gd"},
        {"topology": "star", "update": "adam", "step_size": 0.01, "dropout": 0.5},
        {"layers": "gat", "heads": 2, "steps": 15, "attention_dropout": 0.3},
        {"layers": "chebyshev", "order": 2, "boundary_bits": 8, "steps": 15, "seed": 1},
        {"layers": "gated/sage:aggregate=max", "compress": "power:1", "steps": 15},
    ],
    ids=str,
)
def test_relayed_peers_equal_the_simulation(tmp_path: Path, changes: dict[str, Any]) -> None:
    deployment, settings = relayed(**changes)
    folders = write_local_shards(tmp_path, deployment, settings)
    assert in_threads(folders, run=over(Hub())) == []
    check(folders, simulated(deployment, settings))


@pytest.mark.parametrize("changes", [{}, {"topology": "ring", "consensus": "masked"}], ids=str)
def test_boxes_go_through_sockets(tmp_path: Path, changes: dict[str, Any]) -> None:
    deployment, settings = relayed(steps=10, **changes)
    folders = write_local_shards(tmp_path, deployment, settings)
    assert in_threads(folders, run=run_peer) == []
    check(folders, simulated(deployment, settings))


@pytest.mark.parametrize(
    "changes",
    [
        {"update": "momentum"},
        {"topology": "star", "layers": "gat", "heads": 2, "attention_dropout": 0.3, "steps": 15},
        {"layers": "chebyshev", "order": 2, "step_size": 0.02, "dropout": 0.3, "steps": 15},
    ],
    ids=str,
)
def test_sites_relay_what_they_plan_alone(tmp_path: Path, changes: dict[str, Any]) -> None:
    deployment, settings = relayed(**changes)
    folders = shards_of(write_sites(tmp_path, deployment, settings), tmp_path / "shards")
    assert in_threads(folders, run=sites_over(Hub())) == []
    check_sites(folders, simulated(deployment, settings))


def test_sites_plan_in_float64_what_they_train_in_float32(tmp_path: Path) -> None:
    deployment, settings = relayed(dtype="float32", steps=3)
    folders = shards_of(write_sites(tmp_path, deployment, settings), tmp_path / "shards")
    assert in_threads(folders, run=sites_over(Hub())) == []
    expected = simulated(deployment, settings)
    for k, folder in enumerate(folders):
        for name, part in read_tensors(folder / f"run-{RUN}" / "weights.safetensors").items():
            torch.testing.assert_close(part[0], expected[name][k], rtol=1e-4, atol=1e-5)


def test_sites_that_relay_survive_a_death_while_they_plan_and_after(tmp_path: Path) -> None:
    deployment, settings = relayed(steps=120, checkpoint_every=20, evaluate_every=100)
    folders = shards_of(write_sites(tmp_path, deployment, settings), tmp_path / "shards")
    train_with_deaths(folders)  # of agents 1 and 2, which pass rows on
    check_sites(folders, simulated(deployment, settings))


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("lost", "agent 2 reports 36 edges shared with agent 0, and agent 0 reports 35"),
        ("changed", "agent 0 cannot train with agent 2, which has other edges between the two"),
    ],
)
def test_sites_without_a_link_that_disagree_on_an_edge_are_told(tmp_path: Path, kind: str, message: str) -> None:
    deployment, settings = relayed(steps=2)
    paths = write_sites(tmp_path, deployment, settings)
    data = paths[0].parent / "data.npz"
    with np.load(data) as file:
        arrays = dict(file)
    far = {vertex for vertex, owner in arrays["owners"].tolist() if owner == 2}
    edge = next(n for n, ends in enumerate(arrays["edges"].tolist()) if far & set(ends))
    if kind == "changed":
        arrays["weights"][edge] *= 2
    else:
        arrays |= {name: np.delete(arrays[name], edge, axis=0) for name in ("edges", "weights")}
        arrays["owners"] = arrays["owners"][np.isin(arrays["owners"][:, 0], arrays["edges"])]
    np.savez(data, **arrays)
    failures = in_threads(shards_of(paths, tmp_path / "shards"), PeerOptions(give_up=4.0), sites_over(Hub()))
    assert any(message in str(one) for one in failures)


def test_a_wrong_key_of_a_member_is_told(tmp_path: Path) -> None:
    """Agent 0 knows agent 2 by what agent 1 passes on: it can say what it refuses, and of whom."""
    deployment, settings = relayed(steps=2)
    paths = write_sites(tmp_path, deployment, settings)
    text, wrong = paths[0].read_text(), make_agent_keys()[0]
    head, members = text.split("[members]\n")
    paths[0].write_text(head + "[members]\n" + re.sub('2 = ".*"', lambda _: f'2 = "{wrong}"', members))
    folders = shards_of(paths, tmp_path / "shards")
    failures = in_threads(folders, PeerOptions(give_up=4.0), run=run_peer)
    assert len(failures) == len(folders)
    (told,) = [str(one) for one in failures if str(one).startswith("agent 0 ")]
    assert re.search(r"for agent .*; refused \d+ of agent 1 as signature \(refused\.jsonl says more\)", told)
    log = (folders[0] / f"run-{RUN}" / "refused.jsonl").read_text()
    assert "agent 2 has not signed its steps of epoch 1 with the key known here" in log


def test_sites_that_drop_edges_name_the_stranger(tmp_path: Path) -> None:
    deployment, settings = relayed(steps=2)
    path = write_sites(tmp_path, deployment, settings.model_copy(update={"lost_edges": "drop"}))[0]
    with pytest.raises(GossamerError, match=r'edges lead to agent 2, which .* lost_edges = "relay"'):
        make_site_shard(path)


Arrays = dict[str, Any]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda a: {"routes": np.pad(a["routes"], ((0, 0), (0, 9)), constant_values=-1)}, "routes of 2 to 3 links"),
        (lambda a: {"routes": a["routes"][:, :2]}, "routes of 2 to 3 links"),
        (lambda a: {"routes": np.where(a["routes"] == 1, 3, a["routes"])}, "routes of agent 1 over its neighbours"),
        (lambda a: {"routes": a["routes"][::-1]}, "each route once in each direction, ascending"),
        (lambda a: {"routes": a["routes"][:-1]}, "each route once in each direction, ascending"),
        (lambda a: {"routes": a["routes"] - 2}, "numbers -1 to 3"),
        (lambda a: {"routes.full": a["routes.full"][:, :1]}, "int64"),
        (lambda a: {"routes.train": a["routes.train"][:, :1], "routes.full": a["routes.full"][:, :1]}, "2 exchanges"),
        (lambda a: {"routes.train": a["routes.train"] - 10**6}, "numbers 0 to"),
    ],
)
def test_routes_of_a_shard_are_checked(tmp_path: Path, change: Callable[[Arrays], Arrays], message: str) -> None:
    folder = write_local_shards(tmp_path, *relayed())[1]
    manifest = json.loads((folder / MANIFEST).read_text())
    about = {name: value for name, value in manifest.items() if name not in ("format", "checksums")}
    arrays = read_arrays(folder / "share.safetensors")
    write_folder(folder, "share.safetensors", arrays, about)
    assert read_shard(folder).share.routes is not None
    write_folder(folder, "share.safetensors", arrays | change(arrays), about)
    with pytest.raises(GossamerError, match=f"{message}.*copy the shard again"):
        read_shard(folder)


def test_agents_predict_by_rows_that_others_pass_on(tmp_path: Path) -> None:
    deployment, settings = relayed(steps=10)
    folders = write_local_shards(tmp_path, deployment, settings)
    states, expected = [state_folder(folder) for folder in folders], trained_alone(deployment, settings).predict()
    with Agents(folders, serve=True) as agents:
        agents.start_all()
        wait_until(lambda: all((state / SERVING_FILE).is_file() for state in states), "all agents serve")
        for agent in (0, 1, 3):
            answer = ask_neighbours(states[agent], 60.0)
            assert answer is not None
            own = np.flatnonzero(deployment.assignment == agent)
            for rows in (answer.rows, None):  # of a new pass, and of the run's end
                found = TrainedAgent(folders[agent]).predict(rows)
                torch.testing.assert_close(found.outputs, expected[own], rtol=0, atol=1e-10)


@pytest.mark.parametrize("changes", [{}, {"layers": "gat"}, {"layers": "chebyshev", "order": 2}, {"boundary_bits": 8}])
def test_the_bytes_of_rows_and_boxes_are_the_planned_ones(tmp_path: Path, changes: dict[str, Any]) -> None:
    deployment, settings = relayed(update="gd", evaluate_every=1000, steps=5, **changes)
    folders = write_local_shards(tmp_path, deployment, settings)
    last: dict[int, PeerReport] = {}
    options = PeerOptions(on_report=lambda state: last.update({state["agent"]: state}))
    assert in_threads(folders, options, over(Hub())) == []
    planned = count_messages(deployment, settings)
    assert planned["relayed"]["rows"] > 0
    for one in planned["links"]:
        sent = last[one["sender"]]["links"][str(one["receiver"])]["sent"]
        for phase in ("forward", "backward", "consensus"):
            assert sent.get(phase, 0) == one[f"{phase}_bytes"] * settings.steps
    evaluated = sum(link["sent"].get("evaluation", 0) for report in last.values() for link in report["links"].values())
    assert evaluated == 3 * planned["evaluation"]["bytes"]  # at 0, at the end, kept


def test_rows_that_are_not_passed_on_are_named_with_their_route(tmp_path: Path) -> None:
    deployment, settings = relayed(steps=3)
    folders = write_local_shards(tmp_path, deployment, settings)
    hub = Hub()

    class Withholding(InMemory):
        """Agent 1 sends its own rows, and nothing that it should pass on to agent 0."""

        def send(self, neighbour: int, message: bytes) -> None:
            if (self._agent, neighbour) == (1, 0) and is_frame(message):
                _, _, index, *_ = FRAME_HEADER.unpack_from(message, HEADER.size)
                if index % 3 == 1:  # the second of three rounds
                    return
            super().send(neighbour, message)

    def run(folder: Path, options: PeerOptions) -> None:
        shard = read_shard(folder)
        own = shard.membership
        near = frozenset(own.neighbours)
        train_agent(lambda largest, _: Withholding(hub, own.agent, near, largest), folder, shard, options)

    failures = in_threads(folders, PeerOptions(give_up=2.0), run)
    assert any(
        "waited 2 s for agent 1 at step 0, which passes on rows by the routes 2 - 1 - 0; see" in str(one)
        for one in failures
    )


def test_a_detour_carries_messages_that_are_too_long_for_its_own_links(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Agents 1 and 2 share most edges of a ring, and reach each other over sockets of agents 0 and 3 alone."""
    for name, seconds in (("LINK_SILENCE", 1.0), ("CALL_INTERVAL", 0.5), ("ECHO_TIME", 0.2), ("DETOUR_LASTS", 60.0)):
        monkeypatch.setattr(detours, name, seconds)
    monkeypatch.setattr(detours, "PART_BYTES", 4000)
    graph = draw_block_graph()
    n = len(graph.train)
    owner = np.where(np.arange(n) < 4, np.array([0, 0, 3, 3] + [0] * (n - 4)), 1 + np.arange(n) % 2)
    settings = deployed(topology="ring", steps=2, hidden=32)[1]
    deployment = make_deployment(graph, settings, assignment=owner)
    folders = write_local_shards(tmp_path, deployment, settings)
    for k, z in ((1, 2), (2, 1)):
        manifest = json.loads((folders[k] / MANIFEST).read_text())
        manifest["neighbours"][str(z)]["address"] = "127.0.0.1:1"  # nobody listens there
        (folders[k] / MANIFEST).write_text(json.dumps(manifest))
    expected = simulated(deployment, settings)
    assert in_threads(folders, PeerOptions(give_up=20.0), run=run_peer) == []
    check(folders, expected)
