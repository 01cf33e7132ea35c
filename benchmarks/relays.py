"""Rows that agents without a link relay: their hops on every family of topologies, and the accuracy that they save.

    GOSSAMER_DATA=... python benchmarks/relays.py [--train line ring] [--seeds 5] [--json]

Counts are means over the seeds, which decide split and assignment. A relayed row counts on every link of its route.
One propagation has the rows of all vertices, as an evaluation sends them; a step is one of training, with its rows
forward and backward. Ratios are to the same rows where every two agents have a link. The load of a link has both
directions. Training has the default settings; accuracy is that of the weights that validation chooses. Differences are
paired by seed, intervals are of 95 % by Student's t.
"""

import argparse
import json
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

import gossamer
from gossamer.agents.plan import message_rows
from gossamer.data import DataGraph
from gossamer.experiments.trials import format_points, interval
from gossamer.runs.deployment import make_deployment
from gossamer.runs.message_counts import count_messages
from gossamer.runs.settings import make_settings
from gossamer.topology import TOPOLOGIES, link_load

AGENTS = 10
FAMILIES = [name for name, kind in TOPOLOGIES.items() if kind.design is None and name != "needed"]
Counts = dict[str, float]


def count(graph: DataGraph, topology: str, seed: int) -> Counts:
    """Rows and their hops on one topology."""
    settings = make_settings({"dataset": graph.name, "agents": AGENTS, "topology": topology, "seed": seed})
    settings = settings.fit_to(graph.task, graph.num_train_times)
    deployment = make_deployment(graph, settings)
    routes = deployment.topologies[0].routes
    rows = np.zeros((AGENTS, AGENTS))
    everything = np.ones(graph.num_vertices, dtype=bool)
    (first, *_), *_ = message_rows(deployment.shift, deployment.network.gathers, everything, deployment.assignment)
    for link, number in first.items():
        rows[link.sender, link.receiver] = number
    load = link_load(routes, rows)
    messages = count_messages(deployment, settings)
    step = messages["forward"]["rows"] + messages["backward"]["rows"]
    relayed = messages["relayed"]
    return {
        "links": int(deployment.links.sum()) // 2,
        "relayed": deployment.edges_relayed,
        "longest": routes.longest,
        "direct": rows.sum(),
        "hops": load.sum(),
        "load": (load + load.T).max(),
        "step_direct": step - relayed["row_hops"] + relayed["rows"],
        "step_hops": step,
    }


def show_counts(found: dict[str, Counts]) -> None:
    columns = ("links", "data edges relayed", "longest route", "rows x hops of a propagation", "its most loaded link")
    print(f"\n| topology | {' | '.join(columns)} | rows x hops of a step |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for name, one in found.items():
        hops = f"{one['hops']:.0f} ({one['hops'] / one['direct']:.2f} times)"
        step = f"{one['step_hops']:.0f} ({one['step_hops'] / one['step_direct']:.2f} times)"
        facts = f"{one['links']:g} | {one['relayed']:.1%} | {one['longest']:g} | {hops} | {one['load']:.0f}"
        print(f"| {name} | {facts} | {step} |", flush=True)


def train(graph: DataGraph, topology: str, lost_edges: str, seed: int) -> float:
    """Test accuracy."""
    result = gossamer.train(
        graph, topology=topology, agents=AGENTS, lost_edges=lost_edges, seed=seed, threads=1, baselines=False
    )
    return float(result.summary["distributed"]["test"]["accuracy"])


def show_accuracies(found: dict[str, dict[str, list[float]]]) -> None:
    print("\n| topology | relayed | dropped | difference, points |")
    print("| --- | --- | --- | --- |")
    for name, one in found.items():
        difference = format_points(*interval(np.subtract(one["relay"], one["drop"])))
        means = " | ".join(f"{100 * np.mean(one[kind]):.2f}" for kind in ("relay", "drop"))
        print(f"| {name} | {means} | {difference} |", flush=True)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--train", nargs="*", default=["line", "ring"], metavar="TOPOLOGY")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--json", action="store_true", help="print one JSON object at the end")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    graphs = [gossamer.load("cora", seed) for seed in range(options.seeds)]
    counts: dict[str, Counts] = {}
    for name in FAMILIES:
        each = [count(graph, name, seed) for seed, graph in enumerate(graphs)]
        counts[name] = {fact: float(np.mean([one[fact] for one in each])) for fact in each[0]}
    show_counts(counts)
    accuracies: dict[str, dict[str, list[float]]] = {name: {"relay": [], "drop": []} for name in options.train}
    for name, found in accuracies.items():
        for seed, graph in enumerate(graphs):
            began = time.perf_counter()
            for kind, scores in found.items():
                scores.append(train(graph, name, kind, seed))
            last = " ".join(f"{kind} {scores[-1]:.4f}" for kind, scores in found.items())
            print(f"{name}, seed {seed}: {last}, {time.perf_counter() - began:.0f} s", flush=True)
    if accuracies:
        show_accuracies(accuracies)
    if options.json:
        content: dict[str, Any] = {"agents": AGENTS, "counts": counts, "accuracies": accuracies}
        print(json.dumps(content))


if __name__ == "__main__":
    main()
