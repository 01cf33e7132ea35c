"""Pretend that a data set was never in one place: write what each of a few sites would know, and its site file.

python examples/sites.py digits --agents 3 --out sites
for k in 0 1 2; do gossamer shard --site sites/site-$k/site.toml --out sites/shards; done
for k in 0 1 2; do gossamer peer sites/shards/agent-$k & done; wait

With --links line sites that share edges may have no link: the sites between pass their rows on.
"""

import argparse
import csv
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

import gossamer
from gossamer.assignment import assign, shared_edges
from gossamer.peers.local_processes import find_free_ports
from gossamer.peers.network.keys import make_agent_keys, write_secret


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dataset")
    parser.add_argument("--agents", type=int, default=3)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument(
        "--links", choices=["data", "line"], default="data", help="between sites that share edges, or in a line"
    )
    parser.add_argument("--out", type=Path, default=Path("sites"))
    given = parser.parse_args()
    graph = gossamer.load(given.dataset)
    owner = assign(graph, "bfs", given.agents, 0)
    k, z = np.indices((given.agents, given.agents))
    neighbours = shared_edges(graph, owner, given.agents) > 0 if given.links == "data" else abs(k - z) == 1
    keys = [make_agent_keys() for _ in range(given.agents)]
    addresses = [f"127.0.0.1:{port}" for port in find_free_ports(given.agents)]
    if given.out.exists():
        parser.error(f"{given.out} exists; move it away or choose another --out")
    for k in range(given.agents):
        folder = given.out / f"site-{k}"
        folder.mkdir(parents=True)
        write_tables(folder, graph, owner, k)
        write_secret(folder / "key.secret", keys[k][1])
        lines = [
            'run = "three-sites"',
            f"agent = {k}",
            f'address = "{addresses[k]}"',
            'secret = "key.secret"',
            'data = "."',
            f"classes = {graph.num_classes}",
            "\n[settings]",
            f"agents = {given.agents}",
            f"steps = {given.steps}",
            "\n[neighbours]",
            *(
                f'{z} = {{ address = "{addresses[z]}", key = "{keys[z][0]}" }}'
                for z in np.flatnonzero(neighbours[k])
                if z != k
            ),
            "\n[members]",
            *(f'{z} = "{keys[z][0]}"' for z in range(given.agents)),
        ]
        (folder / "site.toml").write_text("\n".join(lines) + "\n")


def write_tables(folder: Path, graph: gossamer.DataGraph, owner: np.ndarray, k: int) -> None:
    own = np.flatnonzero(owner == k)
    features = graph.features[own]
    features = features if isinstance(features, np.ndarray) else features.toarray()
    write(
        folder / "features.csv",
        ["vertex", *range(features.shape[1])],
        ([v, *x] for v, x in zip(own, features, strict=True)),
    )
    splits = {v: name for name in ("train", "validation", "test") for v in np.flatnonzero(getattr(graph, name))}
    write(folder / "labels.csv", ["vertex", "label", "split"], ([v, graph.targets[v], splits.get(v, "")] for v in own))
    touching = (owner[graph.edges] == k).any(1)
    rows = zip(*graph.edges[touching].T, graph.weights[touching], strict=True)
    write(folder / "edges.csv", ["source", "target", "weight"], rows)
    others = np.setdiff1d(graph.edges[touching], own)
    write(folder / "owners.csv", ["vertex", "agent"], zip(others, owner[others], strict=True))


def write(path: Path, header: list[Any], rows: Iterable[Iterable[Any]]) -> None:
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(header)
        writer.writerows(rows)


if __name__ == "__main__":
    main()
