"""A cost model of a step, fitted to measured ones, and what it says of networks that are not at hand.

    seconds of a host = rates . work + exchanges * latency + messages * per message + bytes / bandwidth

`work` counts what its step computes, number by number; the rates are fitted to the growth curves (non-negative least
squares of the relative errors). Bytes are the plan's. The network's three numbers are measured for this machine's
loopback, and given for real networks.
"""

import json
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
import torch.distributed as dist
from scipy.optimize import nnls

from gossamer.agents import Host
from gossamer.agents.consensus.plain import Mixing
from gossamer.agents.propagation import Propagation
from gossamer.model.sparse import Operator

WORK = ("step", "propagated number", "multiply-add of weights", "input number", "weight", "mixed weight")
WIDTHS = (128, 64, 16)  # of the predicted network
EXCHANGES = 5  # of a step with two layers: two forward, two backward, one of weights
HOSTS = 1000


@dataclass(frozen=True)
class Network:
    name: str
    latency: float  # seconds
    bandwidth: float  # bytes a second, each way
    message: float  # a processor's seconds for one more message


def work_of(host: Host) -> list[float]:
    """Work of a training step of this host, in the units of WORK."""
    layers, on = host.network.layers, host.train_pass
    inputs = [
        on.features.numel() if index == 0 else len(plan.inputs) * layer.inputs
        for index, (layer, plan) in enumerate(zip(layers, on.plan.layers, strict=True))
    ]
    propagated = sum(
        2 * len(propagation.local.values) * layer.outputs
        for layer, plan in zip(layers, on.plan.layers, strict=True)
        for propagation in cast("Sequence[Propagation]", plan.propagations)
    )
    # Forwards, for the weights' gradient and, but for the first layer, for the inputs'.
    weighted = sum((3 if index else 2) * inputs[index] * layer.outputs for index, layer in enumerate(layers))
    weights = sum(part.numel() for part in host.params.values())
    assert isinstance(host.consensus, Mixing)
    inside = host.consensus.local_block
    links = len(inside.values) if isinstance(inside, Operator) else inside.numel()
    return [1.0, propagated, weighted, sum(inputs), weights, weights * links / len(host.agents)]


def fit(work: list[list[float]], seconds: list[float]) -> dict[str, Any]:
    """Seconds of each unit of work, and the relative errors at the measured points."""
    relative = np.array(work) / np.array(seconds)[:, None]
    scale = relative.max(0)
    found, _ = nnls(relative / scale, np.ones(len(seconds)))
    rates = found / scale
    errors = np.abs(relative @ rates - 1)
    by_unit = dict(zip(WORK, rates.tolist(), strict=True))
    return {"rates": by_unit, "mean": float(errors.mean()), "worst": float(errors.max())}


def loopback() -> Network:
    """Between two ranks of this machine over gloo, as between machines."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", sys.argv[0]]
    done = subprocess.run([*command, "--loopback"], capture_output=True, text=True, check=True, timeout=300)
    return Network("loopback", **json.loads(done.stdout.splitlines()[-1]))


def one_end() -> None:
    """One of two ranks that send each other messages of several sizes and numbers."""
    dist.init_process_group("gloo")
    other = 1 - dist.get_rank()

    def exchange(length: int, number: int) -> float:
        parts = [torch.zeros(length) for _ in range(2 * number)]
        seconds = []
        for _ in range(20):
            dist.barrier()
            began = time.perf_counter()
            operations = [dist.P2POp(dist.irecv, part, other) for part in parts[:number]]
            operations += [dist.P2POp(dist.isend, part, other) for part in parts[number:]]
            for work in dist.batch_isend_irecv(operations):
                work.wait()
            seconds.append(time.perf_counter() - began)
        return min(seconds)

    latency, many, large = exchange(1, 1), exchange(1, 101), exchange(8 << 20, 1)
    if dist.get_rank() == 0:
        bandwidth = 4 * (8 << 20) / (large - latency)
        print(json.dumps({"latency": latency, "message": (many - latency) / 100, "bandwidth": bandwidth}))
    dist.destroy_process_group()


@dataclass(frozen=True)
class Graph:
    """A graph that is not at hand: how it is cut among hosts and agents."""

    name: str
    vertices: int
    edges: int
    field: float  # share of the first layer's rows that the labelled vertices need
    row_bytes: float  # of the rows that one host sends in a forward pass
    neighbours: float  # at most so many agents share edges with one


GEOMETRIC = Graph(  # road sensors: a host's part of the plane has 6 neighbours and a border of 4 sqrt(vertices)
    "geometric", 10**8, 10**9, 0.8, 4 * (10**8 / HOSTS) ** 0.5 * (WIDTHS[1] + WIDTHS[2]) * 4, 6
)
DATACENTRE = Network("datacentre, 25 Gbit/s", 50e-6, 25e9 / 8, 20e-6)
SITES = Network("sites, 100 Mbit/s", 20e-3, 100e6 / 8, 20e-6)


def blocks(bytes_per_edge: float, field: float) -> Graph:
    """Like the large generated graph, of which a part's edges lead everywhere: as many row bytes for each edge."""
    return Graph("blocks", 10**8, 10**9, field, bytes_per_edge * 10**9 / HOSTS, float("inf"))


def predict(rates: dict[str, float], graph: Graph, agents: int, network: Network) -> dict[str, float]:
    """Seconds of a step's parts on one of HOSTS machines, which carry the agents between them."""
    d, h, c = WIDTHS
    weights = d * h + h * c
    here = graph.vertices / HOSTS
    entries = (2 * graph.edges + graph.vertices) / HOSTS * graph.field
    held = agents / HOSTS
    degree = min(agents - 1, graph.neighbours, 2 * graph.edges / agents)
    work = dict.fromkeys(WORK, 0.0) | {
        "step": 1.0,
        "propagated number": 2 * entries * (h + c),
        "multiply-add of weights": here * (2 * d * h + 3 * graph.field * h * c),
        "input number": here * (d + graph.field * h),
        "weight": held * weights,
        "mixed weight": held * weights * degree,
    }
    others = min(HOSTS - 1, held * degree)  # hosts that this one talks to
    vectors = min(held * degree, agents)  # that arrive, each once
    return {
        "arithmetic": sum(rates[unit] * amount for unit, amount in work.items()),
        "rows": 2 * graph.row_bytes / network.bandwidth,
        "weights": vectors * weights * 4 / network.bandwidth,
        "messages": EXCHANGES * (network.latency + others * network.message),
    }


def show(fitted: dict[str, Any], network: Network) -> None:
    print("\ncost model, fitted to the growth curves: nanoseconds of one thread for one")
    for unit, rate in fitted["rates"].items():
        print(f"  {unit:24s} {1e9 * rate:12.3f}")
    print(f"  relative error at the measured points: mean {fitted['mean']:.2f}, worst {fitted['worst']:.2f}")
    print(
        f"  loopback over gloo: latency {1e6 * network.latency:.0f} us, {1e6 * network.message:.0f} us for one more "
        f"message, {network.bandwidth / 1e9:.2f} GB/s each way"
    )


def show_predictions(rates: dict[str, float], graphs: list[Graph], networks: list[Network]) -> list[dict[str, Any]]:
    found = []
    for graph in graphs:
        size = f"{graph.vertices:,} vertices, {graph.edges:,} edges, {HOSTS} hosts of one thread"
        print(f"\npredicted seconds of a step: {graph.name}, {size}")
        print(f"  {'network':28s} {'agents':>8s} arithmetic     rows  weights messages   whole  first bottleneck")
        for network in networks:
            for agents in (10**3, 10**4, 10**5):
                parts = predict(rates, graph, agents, network)
                largest = max(parts, key=lambda part: parts[part])
                found.append({"graph": graph.name, "network": network.name, "agents": agents, **parts})
                numbers = " ".join(f"{seconds:8.3f}" for seconds in parts.values())
                print(f"  {network.name:28s} {agents:8,}  {numbers} {sum(parts.values()):8.3f}  {largest}")
    return found
