"""Rows between agents without a link: sealed, passed on by others, and exact; what is changed on the way is named."""

from pathlib import Path
from typing import Any

import pytest
from peers.harness import check, deployed, in_threads, over, simulated
from peers.memory import Hub

from gossamer.peers.local_processes import write_local_shards
from gossamer.peers.process import run_peer


@pytest.mark.parametrize(
    "changes",
    [
        {"topology": "line", "update": "gd"},
        {"topology": "star", "update": "adam", "step_size": 0.01, "dropout": 0.5},
        {"topology": "line", "layers": "gat", "heads": 2, "steps": 15, "attention_dropout": 0.3},
        {"topology": "line", "layers": "chebyshev", "order": 2, "boundary_bits": 8, "steps": 15, "seed": 1},
    ],
    ids=str,
)
@pytest.mark.parametrize("encrypted", [False, True])
def test_relayed_peers_equal_the_simulation(tmp_path: Path, changes: dict[str, Any], encrypted: bool) -> None:
    deployment, settings = deployed(lost_edges="relay", **changes)
    assert deployment.topologies[0].routes.paths
    folders = write_local_shards(tmp_path, deployment, settings)
    assert in_threads(folders, run=run_peer if encrypted else over(Hub())) == []
    check(folders, simulated(deployment, settings))
