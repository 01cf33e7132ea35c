"""How time and memory grow with the graph and the agents, on one host.

    python benchmarks/scale.py [--only growth partitioners planning pyg ranks] [--quick] [--out growth.png] [--json]

growth        a step against vertices, edges and agents, with exponents, beside a plain sparse product; a cost model
              fitted to these, and what it predicts for 1000 machines
partitioners  METIS, streaming, growth and uniform: time, edge cut, balance, message rows
planning      links, fields, plans and shards beside reading the graph from an npz file
pyg           time and memory of a step against PyTorch Geometric, centralised, also on Coauthor Physics
ranks         one rank of a cluster against two, one thread each, beside what memory bandwidth allows, also on Physics

The full run takes a graph of a million vertices and 10 million edges with 128 features, 40 minutes and 16 GB (PyTorch
Geometric's edge_index); --quick takes one of 20 thousand vertices alone.
"""

import argparse
import json
import os
import sys
import tempfile
import warnings
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from scaling import against_pyg, growth, model, partitioners, planning, ranks

import gossamer
from gossamer.errors import GossamerError

PARTS = ("growth", "partitioners", "planning", "pyg", "ranks")


def run_growth(quick: bool, out: Path | None) -> dict[str, Any]:
    torch.set_num_threads(1)  # exponents of one thread do not depend on who else is on the machine
    rounds = 3 if quick else 5
    middle = 10_000 if quick else 100_000
    found = {
        "vertices": growth.vertices([2_000, 10_000, 20_000] if quick else [10_000, 100_000, 1_000_000], rounds),
        "edges": growth.edges(middle, [5, 10, 20] if quick else [5, 10, 20, 40], rounds),
        "agents": growth.agents(middle, [4, 16, 64] if quick else [4, 16, 64, 256, 1000], rounds),
    }
    for title, one in found.items():
        growth.show(title, one)
    if out:
        growth.plot(found, out)
    shapes = [(128, 32), (32, 128)] if quick else [(128, 64), (32, 128), (256, 16)]
    wide = growth.widths(middle, shapes, rounds)
    curves = [*found.values(), wide]
    fitted = model.fit([one for c in curves for one in c["work"]], [one for c in curves for one in c["step"]])
    network = model.loopback()
    model.show(fitted, network)
    graphs = [model.blocks(*growth.border(middle)), model.GEOMETRIC]
    predicted = model.show_predictions(fitted["rates"], graphs, [model.DATACENTRE, model.SITES])
    return found | {"widths": wide, "model": fitted, "loopback": asdict(network), "predicted": predicted}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--quick", action="store_true", help="a small run, in about two minutes")
    parser.add_argument("--agents", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=1, help="turns of each process in the comparison with PyG")
    parser.add_argument("--out", type=Path, help="a PNG of the growth curves")
    parser.add_argument("--json", action="store_true", help="print one JSON object at the end")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    n = 20_000 if options.quick else 1_000_000
    name = f"blocks:vertices={n},edges={10 * n},features=128,classes=16"
    found: dict[str, Any] = {}
    if "growth" in options.only:
        found["growth"] = run_growth(options.quick, options.out)
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "blocks.npz")
        if set(options.only) & {"partitioners", "planning", "pyg", "ranks"}:
            graph = gossamer.load(name)
            planning.write_npz(graph, path)
            if "partitioners" in options.only:
                names = ["streaming", "metis", "bfs", "uniform"] + (["balanced"] if options.quick else [])
                found["partitioners"] = partitioners.compare(graph, options.agents, names)
                partitioners.show(graph, options.agents, found["partitioners"])
            del graph
        if "planning" in options.only:
            found["planning"] = planning.compare(path, options.agents)
            planning.show(found["planning"])
        if "pyg" in options.only:
            found["pyg"] = compare_with_pyg(name, path, options)
        if "ranks" in options.only:
            found["ranks"] = compare_ranks(name, path, options)
    if options.json:
        print(json.dumps(found))


def compare_with_pyg(name: str, path: str, options: argparse.Namespace) -> dict[str, Any]:
    found = {}
    for title, dataset in ((name, path), ("coauthor-physics", "coauthor-physics")):
        if dataset != path and (options.quick or "GOSSAMER_DATA" not in os.environ):
            print(f"\n{title}: left out" + ("" if options.quick else ", GOSSAMER_DATA does not say where it is"))
            continue
        try:
            found[title] = against_pyg.compare(dataset, options.agents, options.rounds, 3, against_pyg.COMPETITORS)
        except GossamerError as error:
            print(f"\n{title}: left out: {error}")
            continue
        against_pyg.show(title, options.agents, found[title])
    return found


def compare_ranks(name: str, path: str, options: argparse.Namespace) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for title, dataset, goal in (
        (name, path, "at least 1.6 times"),
        ("coauthor-physics", "coauthor-physics", "90 % of that"),
    ):
        if dataset != path and (options.quick or "GOSSAMER_DATA" not in os.environ):
            continue
        for agents in (16,) if options.quick else (16, 64):
            one = found[f"{title}, {agents} agents"] = ranks.compare(dataset, agents, max(2, options.rounds), 6)
            ranks.show(title, agents, one, goal)
    return found


if __name__ == "__main__":
    if sys.argv[1:2] == ["--own-process"]:
        warnings.simplefilter("ignore")
        dataset, agents, steps, competitor = sys.argv[2:]
        against_pyg.own_process(dataset, int(agents), int(steps), competitor)
    elif sys.argv[1:2] == ["--loopback"]:
        model.one_end()
    elif sys.argv[1:2] == ["--rank"]:
        ranks.one_rank(Path(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
    else:
        main()
