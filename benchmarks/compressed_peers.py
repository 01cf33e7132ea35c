"""Steps a second of peers with compressed and with plain consensus, over encrypted loopback and over slow links.

    GOSSAMER_DATA=... python benchmarks/compressed_peers.py [--dataset cora] [--agents 6] [--compress power:1]
        [--rounds 3] [--megabits 100] [--json]

One process an agent, as `gossamer launch` starts them. Plain and compressed take turns, and the medians are compared.
Slow means that so many megabits a second arrive at an agent: the benchmark enters a network namespace of its own
(Linux, `unshare -rn`) whose loopback `tc` limits for each listening port.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from peers import steps_a_second

import gossamer
from gossamer.runtime.crew import write_shards
from gossamer.runtime.deployment import Deployment, make_deployment
from gossamer.runtime.settings import Settings, make_settings
from gossamer.runtime.shards import read_shard

FAST, SLOW = "loopback", "slow links"
GOALS = {FAST: 2.0, SLOW: 10.0}
STEPS = {FAST: (100, 300), SLOW: (30, 300)}  # plain and compressed


def limit(folders: list[Path], megabits: int) -> None:
    """Let so much arrive at each agent's port. Only for a namespace that is ours alone."""

    def tc(*words: str) -> None:
        subprocess.run(["tc", *words], check=True, stderr=subprocess.DEVNULL, timeout=10)

    subprocess.run(["tc", "qdisc", "del", "dev", "lo", "root"], check=False, stderr=subprocess.DEVNULL, timeout=10)
    tc("qdisc", "add", "dev", "lo", "root", "handle", "1:", "htb", "default", "ffff")
    for number, folder in enumerate(folders, start=1):
        port = read_shard(folder).contact.address.rpartition(":")[2]
        own, speed = f"1:{number:x}", ("rate", f"{megabits}mbit", "burst", "128k")
        tc("class", "add", "dev", "lo", "parent", "1:", "classid", own, "htb", *speed)
        match = ("match", "ip", "dport", port, "0xffff")
        tc("filter", "add", "dev", "lo", "parent", "1:", "protocol", "ip", "u32", *match, "flowid", own)


def rate(deployment: Deployment, settings: Settings, megabits: int) -> float:
    """Steps a second of one process an agent."""
    with tempfile.TemporaryDirectory() as folder:
        folders = write_shards(Path(folder), deployment, settings)
        if megabits:
            limit(folders, megabits)
        command = [sys.executable, "-m", "gossamer", "peer"]
        return steps_a_second([[*command, str(path), "--report", "--lifeline"] for path in folders])[0]


def side_by_side(dataset: str, agents: int, compress: str, rounds: int, megabits: int) -> dict[str, list[float]]:
    """The rates of each round, plain and compressed in turns."""
    where = SLOW if megabits else FAST
    rates: dict[str, list[float]] = {"none": [], compress: []}
    base = make_settings({"dataset": dataset, "agents": agents})
    deployment = make_deployment(gossamer.load(dataset), base)
    for number in range(1, rounds + 1):
        for name, steps in zip(rates, STEPS[where], strict=True):
            settings = base.model_copy(update={"compress": name, "steps": steps, "evaluate_every": steps})
            rates[name].append(rate(deployment, settings, megabits))
            print(f"{where}, round {number} of {rounds}: {name} {rates[name][-1]:.1f} steps/s", file=sys.stderr)
    return rates


def in_namespace(options: argparse.Namespace) -> dict[str, list[float]]:
    """The slow part, in a process with a network of its own."""
    given = [("--dataset", options.dataset), ("--compress", options.compress)]
    given += [(f"--{name}", str(getattr(options, name))) for name in ("agents", "rounds", "megabits")]
    again = [sys.executable, __file__, "--inside", *(word for pair in given for word in pair)]
    command = ["unshare", "-rn", "sh", "-c", 'ip link set lo up && exec "$@"', "sh", *again]
    found: dict[str, list[float]] = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", default="cora")
    parser.add_argument("--agents", type=int, default=6)
    parser.add_argument("--compress", default="power:1")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--megabits", type=int, default=100, help="a second that arrive at an agent, on slow links")
    parser.add_argument("--json", action="store_true", help="print one JSON object at the end")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    of = (options.dataset, options.agents, options.compress, options.rounds)
    if options.inside:
        print(json.dumps(side_by_side(*of, options.megabits)))
        return
    found = {FAST: side_by_side(*of, 0), SLOW: in_namespace(options)}
    told: dict[str, Any] = {}
    print(f"{options.dataset}, {options.agents} agents, medians of {options.rounds} rounds, steps a second:")
    for where, rates in found.items():
        plain, compressed = (statistics.median(one) for one in rates.values())
        ratio, goal = compressed / plain, GOALS[where]
        told[where] = {"rates": rates, "ratio": ratio}
        print(
            f"  {where:10s}  plain {plain:7.1f}   {options.compress} {compressed:7.1f}   {ratio:5.1f} times "
            f"(at least {goal:.0f}: {'met' if ratio >= goal else 'MISSED'})"
        )
    if options.json:
        print(json.dumps(told))


if __name__ == "__main__":
    main()
