"""A step of the distributed GCN against PyTorch Geometric's centralised one on the same graph, each in its own process.

Two layers, 64 hidden units, dropout 0.5, momentum, 10 % labelled, two threads. PyTorch Geometric is used as its
documentation shows: GCNConv with cached normalisation on `edge_index` (gather and scatter) or on a sparse adjacency
(torch's CSR tensor), dense features. Idle threads sleep rather than spin, which is fairer on a busy machine.
"""

import json
import os
import subprocess
import sys
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from scipy import sparse
from torch.nn.functional import cross_entropy, dropout

import gossamer
from gossamer.data import DataGraph
from gossamer.runs.memory import keep_memory
from scaling.measure import Step, deployed, distributed, high_water_mark, timed

COMPETITORS = ("distributed", "PyG, sparse adjacency", "PyG, edge_index")
GOALS = {"PyG, edge_index": 1 / 3, "PyG, sparse adjacency": 1.0}


def compare(dataset: str, agents: int, rounds: int, steps: int, names: tuple[str, ...]) -> dict[str, dict[str, float]]:
    """Median seconds of a step and peak bytes of each; the processes take turns."""
    found: dict[str, list[Any]] = {name: [] for name in names}
    for _ in range(rounds):
        for name in names:
            found[name].append(_in_own_process(dataset, agents, steps, name))
    return {
        name: {
            "seconds": float(np.median([second for one in runs for second in one["seconds"]])),
            "memory": max(one["memory"] for one in runs),
        }
        for name, runs in found.items()
    }


def _in_own_process(dataset: str, agents: int, steps: int, name: str) -> dict[str, Any]:
    command = [sys.executable, sys.argv[0], "--own-process", dataset, str(agents), str(steps), name]
    environment = {**os.environ, "OMP_WAIT_POLICY": "PASSIVE", "OMP_NUM_THREADS": "2"}
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=1800, env=environment)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def own_process(dataset: str, agents: int, steps: int, name: str) -> None:
    """Print the seconds of each step but the first, and the peak memory of all."""
    torch.set_num_threads(2)
    graph = gossamer.load(dataset)
    if not dataset.endswith(".npz"):
        graph = replace(graph, train=np.random.default_rng(0).random(graph.num_vertices) < 0.1)
    if name == "distributed":
        step = distributed(deployed(graph, agents)[1])
    else:
        step = pyg(graph, sparse_adjacency=name.endswith("sparse adjacency"))
    with keep_memory() if name == "distributed" else nullcontext():  # as the commands do
        seconds = [timed(step)[0] for _ in range(steps + 1)]
    print(json.dumps({"seconds": seconds[1:], "memory": high_water_mark()}))


def pyg(graph: DataGraph, sparse_adjacency: bool) -> Step:
    from torch_geometric.nn import GCNConv

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = GCNConv(graph.num_features, 64, cached=True)
            self.second = GCNConv(64, graph.num_outputs, cached=True)

        def forward(self, x: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
            x = self.first(dropout(x, 0.5), edges).relu()
            outputs: torch.Tensor = self.second(dropout(x, 0.5), edges)
            return outputs

    dense = graph.features.toarray() if sparse.issparse(graph.features) else graph.features
    x = torch.from_numpy(dense).to(torch.float32)
    if sparse_adjacency:
        a = graph.adjacency
        offsets, columns = torch.from_numpy(a.indptr.astype(np.int64)), torch.from_numpy(a.indices.astype(np.int64))
        edges = torch.sparse_csr_tensor(offsets, columns, torch.ones(a.nnz), size=a.shape)
    else:
        edges = torch.from_numpy(np.concatenate([graph.edges, graph.edges[:, ::-1]]).T.copy())
    y, train = torch.from_numpy(graph.targets), torch.from_numpy(graph.train)
    net = Net()
    optimiser = torch.optim.SGD(net.parameters(), lr=0.5, momentum=0.9)

    def step() -> None:
        optimiser.zero_grad()
        cross_entropy(net(x, edges)[train], y[train]).backward()
        optimiser.step()

    return step


def show(title: str, agents: int, found: dict[str, dict[str, float]]) -> None:
    print(f"\n{title}: a step with 64 hidden units, 10 % labelled, 2 threads; distributed over {agents} agents")
    mine = found["distributed"]
    for name, one in found.items():
        line = f"  {name:24s} {one['seconds']:8.2f} s   peak memory {one['memory'] / 1e9:6.2f} GB"
        if name in GOALS:
            time, memory = mine["seconds"] / one["seconds"], mine["memory"] / one["memory"]
            met = "met" if max(time, memory) <= GOALS[name] else "missed"
            line += f"   distributed / this: time {time:.2f}, memory {memory:.2f} (at most {GOALS[name]:.2f}: {met})"
        print(line)
