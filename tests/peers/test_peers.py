"""Peers that hear only their neighbours end with the simulation's weights; who is missing is named."""

import json
import re
import socket
from pathlib import Path
from typing import Any

import pytest
import torch
from peers.harness import STEPS, check, deployed, in_threads, over, simulated, state_folder
from peers.memory import Hub

from gossamer.errors import GossamerError
from gossamer.peers.driving import MissingNeighbourError
from gossamer.peers.local_processes import write_local_shards
from gossamer.peers.network.sockets import Sockets
from gossamer.peers.process import PeerOptions, run_peer
from gossamer.peers.progress import PeerReport
from gossamer.peers.protocol.wire import FRAME, Frame, decode, encode, read_payload
from gossamer.peers.shards.shard import read_shard
from gossamer.runs.message_counts import count_messages


@pytest.mark.parametrize(
    "changes",
    [
        {"update": "gd"},
        {"update": "momentum", "consensus_every": 3},
        {"update": "adam", "step_size": 0.01, "dropout": 0.5},
        {"layers": "chebyshev", "order": 2, "update": "momentum", "step_size": 0.02, "bias": True},
        {"update": "gd", "consensus_every": 0, "dropout": 0.2},
        {"update": "gd", "compress": "power:1,bits=8", "boundary_bits": 8},
        {"update": "adam", "step_size": 0.01, "compress": "choco:topk=0.2"},
        {
            "layers": "gat",
            "heads": 2,
            "hidden": "8x2",
            "attention_dropout": 0.3,
            "residual": True,
            "norm": "layer",
            "bias": True,
            "update": "adam",
            "step_size": 0.01,
            "steps": 15,
        },
        {"layers": "gated/gatv2/sage/sage:aggregate=max", "boundary_bits": 8, "compress": "power:1", "steps": 15},
        {"layers": "gatv2", "heads": 2, "attention_dropout": 0.3, "before": 8, "after": 8, "steps": 15},
        {"layers": "appnp", "order": 3, "dropout": 0.3, "step_size": 0.05, "steps": 15},
        {"layers": "gin", "hidden": "8x2", "learn_epsilon": True, "jump": "cat", "step_size": 0.01, "steps": 15},
    ],
    ids=str,
)
def test_fifty_steps_of_peers_equal_the_simulation(tmp_path: Path, changes: dict[str, Any]) -> None:
    deployment, settings = deployed(**changes)
    folders = write_local_shards(tmp_path, deployment, settings)
    assert in_threads(folders, run=over(Hub())) == []
    check(folders, simulated(deployment, settings))


@pytest.mark.parametrize("layers", ["gcn", "gat", "gated/sage"])
def test_the_bytes_of_rows_and_weights_are_the_planned_ones(tmp_path: Path, layers: str) -> None:
    deployment, settings = deployed(update="gd", evaluate_every=1000, layers=layers)
    folders = write_local_shards(tmp_path, deployment, settings)
    last: dict[int, PeerReport] = {}
    assert in_threads(folders, PeerOptions(on_report=lambda state: last.update({state["agent"]: state}))) == []
    planned = count_messages(deployment, settings)
    for one in planned["links"]:
        sent = last[one["sender"]]["links"][str(one["receiver"])]["sent"]
        for phase in ("forward", "backward", "consensus"):
            assert sent.get(phase, 0) == one[f"{phase}_bytes"] * STEPS
    evaluated = sum(link["sent"].get("evaluation", 0) for report in last.values() for link in report["links"].values())
    assert evaluated == 3 * planned["evaluation"]["bytes"]  # at 0, at the end, kept
    received = sum(link["received"] for report in last.values() for link in report["links"].values())
    assert received == sum(report["bytes_in"] for report in last.values())


def test_a_neighbour_that_never_comes_is_named(tmp_path: Path) -> None:
    folders = write_local_shards(tmp_path, *deployed())
    failures = in_threads(folders[:1], PeerOptions(give_up=1.0))
    assert len(failures) == 1
    assert isinstance(failures[0], MissingNeighbourError)
    assert "s for agent 1, 2, 3" in str(failures[0])


def test_a_neighbour_that_lies_is_named_in_the_log_the_report_and_the_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Agent 1, with its own key, sends 1e30 in every consensus; agent 0 refuses it and keeps nothing of it."""
    folders = write_local_shards(tmp_path, *deployed(checkpoint_every=1))
    send = Sockets.send

    def lie(sockets: Sockets, neighbour: int, message: bytes) -> None:
        if sockets._secret == (folders[1] / "key.secret").read_text().strip() and message[1] == FRAME:
            found: Any = decode(message, read_shard(folders[1]).membership.run, 1)
            rows, _ = read_payload(found, message, encrypted=True)
            if found.phase == "consensus":
                rows = torch.full_like(rows, 1e30)
            what = found.position, found.plan, found.phase, found.index
            message = encode(Frame(1, found.epoch, *what, rows), read_shard(folders[1]).membership.run, encrypted=True)
        send(sockets, neighbour, message)

    monkeypatch.setattr(Sockets, "send", lie)
    reports: dict[int, PeerReport] = {}
    failures = in_threads(folders, PeerOptions(on_report=lambda s: reports.update({s["agent"]: s}), give_up=4.0))
    assert len(failures) == len(folders)
    (told,) = [str(one) for one in failures if str(one).startswith("agent 0 ")]
    assert re.search(r"for agent 1.* at step 0; see whether they run; refused \d+ of agent 1 as too large", told)
    assert reports[0]["refused_from"]["1"]["too large"] >= 1
    log = [json.loads(line) for line in (state_folder(folders[0]) / "refused.jsonl").read_text().splitlines()]
    refused = {"agent": 1, "reason": "too large", "detail": "1.0e+30 in a consensus message"}
    assert any(refused.items() <= line.items() for line in log)
    assert [path.name for path in state_folder(folders[0]).glob("checkpoint-*")] == ["checkpoint-0.safetensors"]


def test_a_port_in_use_is_told(tmp_path: Path) -> None:
    folder = write_local_shards(tmp_path, *deployed())[0]
    host, port = read_shard(folder).membership.contact.address.split(":")
    with socket.socket() as taken:
        taken.bind((host, int(port)))
        taken.listen()
        with pytest.raises(GossamerError, match=r"cannot listen on .*; free the port or change it"):
            run_peer(folder, PeerOptions())
