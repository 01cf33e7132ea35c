"""Short runs whose final bits are kept: every setting is stated, so that a change of defaults does not change them."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import numpy as np
from torch import Tensor

import gossamer
from gossamer import DataGraph, make_graph

STATED: dict[str, Any] = {
    "preset": "paper",
    "lost_edges": "drop",
    "standardise": False,
    "agents": 4,
    "assignment": "bfs",
    "topology": "needed",
    "gap": 0.5,
    "nonnegative": False,
    "mixing": "metropolis",
    "keep_links": 1.0,
    "layers": "gcn",
    "order": 1,
    "hidden": (6,),
    "activation": "relu",
    "bias": False,
    "dropout": 0.4,
    "input_dropout": 0.2,
    "shift": "normalized",
    "update": "gd",
    "momentum": 0.9,
    "step_size": 0.1,
    "step_decay": 0.0,
    "weight_decay": 0.0,
    "decay_layers": "all",
    "batch": 0,
    "steps": 12,
    "consensus_every": 1,
    "compress": "none",
    "boundary_bits": 0,
    "track": False,
    "mix_first": False,
    "keep": "last",
    "patience": 0,
    "initial_deviation": 0.3,
    "same_initial": False,
    "seed": 3,
    "evaluate_every": 5,
    "checkpoint_every": 6,
    "dtype": "float32",
    "threads": 1,
    "baselines": False,
}
ADAM = {"update": "adam", "step_size": 0.02, "track": True, "same_initial": True}
RUNS: dict[str, dict[str, Any]] = {
    "gcn, gd": {"baselines": True},
    "gcn with bias, three layers, momentum": {"update": "momentum", "bias": True, "hidden": (6, 5), "step_size": 0.03},
    "gcn of order 2": {"order": 2, "update": "momentum"},
    "polynomial of order 1": {"layers": "polynomial"},
    "chebyshev of order 3": {"layers": "chebyshev", "order": 3, "shift": "scaled-laplacian", "activation": "tanh"},
    "linear": {"layers": "linear", "weight_decay": 0.01, "step_decay": 0.05},
    "mlp": {"layers": "mlp", "activation": "elu"},
    "adam, tracked": ADAM,
    "adam, local, mixed first": {"update": "adam", "step_size": 0.02, "mix_first": True},
    "power:1": {"compress": "power:1"},
    "power:2,bits=8, adam": {**ADAM, "compress": "power:2,bits=8"},
    "choco:bits=4": {"compress": "choco:bits=4"},
    "choco:bits=8, adam": {**ADAM, "compress": "choco:bits=8"},
    "choco:topk": {"compress": "choco:topk=0.2"},
    "choco:randk": {"compress": "choco:randk=0.2"},
    "rows in 8 bits": {"boundary_bits": 8},
    "rows in 16 bits": {"boundary_bits": 16, "dtype": "float64"},
    "line, rare consensus": {"topology": "line", "consensus_every": 3},
    "ring, fastest mixing": {"topology": "ring", "mixing": "fastest"},
    "designed C": {"topology": "admm", "gap": 0.6, "agents": 6},
    "batches of time steps": {"batch": 4, "step_size": 0.01, "dtype": "float64"},
}


def graph_for(name: str) -> DataGraph:
    """A ring of blocks with noisy features; with time steps and real targets where a run draws batches of them."""
    random = np.random.default_rng(7)
    n, times = 72, 10
    block = np.arange(n) // 24
    close = np.where(block[:, None] == block, 0.2, 0.02)
    edges = np.argwhere(np.triu(random.random((n, n)) < close, 1))
    edges = np.unique(np.concatenate([edges, np.stack([np.arange(n - 1), np.arange(1, n)], 1)]), axis=0)
    masks = random.permutation(n)
    split: dict[str, Any] = {"train": masks < 24, "validation": (masks >= 24) & (masks < 40), "test": masks >= 40}
    features = random.standard_normal((3, 7))[block] + random.standard_normal((n, 7))
    if "batch" not in RUNS.get(name, {}):
        return make_graph("golden", edges, features.astype(np.float32), block, **split)
    signal = random.standard_normal((n, times, 5))
    targets = signal[..., :1] + 0.1 * random.standard_normal((n, times, 1))
    return make_graph("golden", edges, signal, targets, **split)


def digest_of_weights(params: Mapping[str, Tensor]) -> str:
    found = hashlib.sha256()
    for name in sorted(params):
        array = params[name].contiguous().numpy()
        found.update(f"{name} {array.dtype} {array.shape}".encode())
        found.update(array.tobytes())
    return found.hexdigest()


def digest_of_summary(summary: Mapping[str, Any]) -> str:
    """The object of --json without its times."""
    parts = {name: part for name, part in summary.items() if name != "seconds"}
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def digests(name: str, **changes: Any) -> dict[str, str]:
    result = gossamer.train(graph_for(name), **{**STATED, **RUNS[name], **changes})
    return {"weights": digest_of_weights(result.run.host.params), "summary": digest_of_summary(result.summary)}
