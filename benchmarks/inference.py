"""Delay of a joint inference: agents that serve make a forward pass together, whenever one of them is asked.

    GOSSAMER_DATA=... python benchmarks/inference.py [--dataset cora] [--agents 6] [--requests 500] [--json]

One process an agent over encrypted loopback, after a short training. Agents are asked in turn, one request after the
other; the delay is from the request to the answer with all rows, in a process of the same machine. Beside it stands the
same forward pass in a simulation, all agents in one process.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import gossamer
from gossamer.agents.measures import evaluate
from gossamer.engines.simulation import run
from gossamer.peers.agent_folders import run_folder
from gossamer.peers.local_processes import write_local_shards
from gossamer.peers.local_requests import SERVING_FILE
from gossamer.peers.prediction import ask_neighbours
from gossamer.peers.shards.shard import read_shard
from gossamer.runs.deployment import make_deployment
from gossamer.runs.hosts import build_host
from gossamer.runs.settings import make_settings

START_TIMEOUT = 120.0  # seconds for all agents to train and serve
WARM = 20  # requests before the first that counts


def serve(folders: list[Path]) -> list[subprocess.Popen[bytes]]:
    """Start the agents and wait until all serve."""
    command = [sys.executable, "-m", "gossamer", "peer", "--serve", "--report", "--log-level", "error"]
    processes = [subprocess.Popen([*command, str(folder)], stdout=subprocess.DEVNULL) for folder in folders]
    states = [run_folder(folder, read_shard(folder).membership) for folder in folders]
    deadline = time.monotonic() + START_TIMEOUT
    while not all((state / SERVING_FILE).is_file() for state in states):
        if time.monotonic() > deadline or any(process.poll() is not None for process in processes):
            raise SystemExit("an agent does not serve")
        time.sleep(0.1)
    return processes


def ask_in_turn(folders: list[Path], requests: int) -> list[float]:
    """Seconds of each request."""
    states = [run_folder(folder, read_shard(folder).membership) for folder in folders]
    found = []
    for number in range(WARM + requests):
        began = time.perf_counter()
        if ask_neighbours(states[number % len(states)], 60.0) is None:
            raise SystemExit("an agent has ended")
        found.append(time.perf_counter() - began)
    return found[WARM:]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", default="cora")
    parser.add_argument("--agents", type=int, default=6)
    parser.add_argument("--requests", type=int, default=500)
    parser.add_argument("--json", action="store_true", help="print one JSON object at the end")
    options = parser.parse_args()
    settings = make_settings({"dataset": options.dataset, "agents": options.agents, "steps": 5, "evaluate_every": 5})
    graph = gossamer.load(options.dataset)
    settings = settings.fit_to(graph.task, graph.batch)
    deployment = make_deployment(graph, settings)
    host = build_host(deployment, settings)
    with tempfile.TemporaryDirectory() as folder:
        folders = write_local_shards(Path(folder), deployment, settings)
        processes = serve(folders)
        try:
            delays = ask_in_turn(folders, options.requests)
        finally:
            for process in processes:
                process.kill()
                process.wait()
    alone = []
    for _ in range(WARM + 50):
        began = time.perf_counter()
        run(evaluate(host))
        alone.append(time.perf_counter() - began)
    median, last = statistics.median(delays), statistics.quantiles(delays, n=100)[98]
    simulated = statistics.median(alone[WARM:])
    print(f"{options.dataset}, {options.agents} agents, {options.requests} requests in turn:")
    joint = f"median {1000 * median:.1f} ms, 99th percentile {1000 * last:.1f} ms"
    print(f"  joint inference over encrypted loopback: {joint}")
    print(f"  the same forward pass in a simulation: median {1000 * simulated:.1f} ms (1/{median / simulated:.1f})")
    if options.json:
        print(json.dumps({"median": median, "percentile_99": last, "simulation": simulated}))


if __name__ == "__main__":
    main()
