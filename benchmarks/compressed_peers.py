"""Steps a second of peers with compressed and with plain consensus, over encrypted loopback and over slow links.

    GOSSAMER_DATA=... python benchmarks/compressed_peers.py [--dataset cora] [--agents 6] [--compress power:1]
        [--rounds 3] [--megabits 100] [--against SRC] [--json]

One process an agent, as `gossamer launch` starts them. Plain and compressed take turns, and the medians are compared.
With --against, so do compressed peers of another checkout, whose folder `src` it names: before and after in one run.
Slow means that so many megabits a second arrive at an agent: the benchmark enters a network namespace of its own
(Linux, `unshare -rn`) whose loopback `tc` limits for each listening port.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from peers import peers_pace

import gossamer
from gossamer.peers.local_processes import write_local_shards
from gossamer.peers.shards.shard import read_shard
from gossamer.runs.deployment import make_deployment
from gossamer.runs.settings import make_settings

Pace = tuple[float, float]  # steps a second; seconds of processor time a step and agent
FAST, SLOW = "loopback", "slow links"
GOALS = {FAST: 2.0, SLOW: 10.0}
STEPS = {FAST: (100, 300), SLOW: (30, 300)}  # plain and compressed
AGAINST = "against"  # compressed peers of the other checkout


def limit(folders: list[Path], megabits: int) -> None:
    """Let so much arrive at each agent's port. Only for a namespace that is ours alone."""

    def tc(*words: str) -> None:
        subprocess.run(["tc", *words], check=True, stderr=subprocess.DEVNULL, timeout=10)

    subprocess.run(["tc", "qdisc", "del", "dev", "lo", "root"], check=False, stderr=subprocess.DEVNULL, timeout=10)
    tc("qdisc", "add", "dev", "lo", "root", "handle", "1:", "htb", "default", "ffff")
    for number, folder in enumerate(folders, start=1):
        port = read_shard(folder).membership.contact.address.rpartition(":")[2]
        own, speed = f"1:{number:x}", ("rate", f"{megabits}mbit", "burst", "128k")
        tc("class", "add", "dev", "lo", "parent", "1:", "classid", own, "htb", *speed)
        match = ("match", "ip", "dport", port, "0xffff")
        tc("filter", "add", "dev", "lo", "parent", "1:", "protocol", "ip", "u32", *match, "flowid", own)


def cut(folder: Path, dataset: str, agents: int, compress: str, steps: int) -> None:
    """Write the shards of a run with these settings."""
    options = {"preset": "paper", "dataset": dataset, "agents": agents, "compress": compress, "steps": steps}
    settings = make_settings(options | {"evaluate_every": steps})
    write_local_shards(folder, make_deployment(gossamer.load(dataset), settings), settings)


def pace(given: tuple[str, int, str, int], megabits: int, source: str | None = None) -> Pace:
    """That of one process an agent, of this checkout or of that with another `source`, which cuts its own shards."""
    environment = os.environ | {"PYTHONPATH": source} if source else None
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, __file__, "--cut", folder, *map(str, given)]
        subprocess.run(command, check=True, env=environment)
        folders = sorted(Path(folder).glob("agent-*"), key=lambda path: int(path.name.rpartition("-")[2]))
        if megabits:
            limit(folders, megabits)
        rate, busy, _ = peers_pace(folders, environment=environment)
        return rate, busy


def side_by_side(
    dataset: str, agents: int, compress: str, rounds: int, against: str | None, megabits: int
) -> dict[str, list[Pace]]:
    """What each round found, plain and compressed in turns."""
    where = SLOW if megabits else FAST
    plain, compressed = STEPS[where]
    turns: list[tuple[str, str, int, str | None]] = [("none", "none", plain, None)]
    turns += [(compress, compress, compressed, None)]
    turns += [(AGAINST, compress, compressed, against)] if against else []
    found: dict[str, list[Pace]] = {name: [] for name, *_ in turns}
    for number in range(1, rounds + 1):
        for name, method, steps, source in turns:
            found[name].append(pace((dataset, agents, method, steps), megabits, source))
            rate, busy = found[name][-1]
            print(
                f"{where}, round {number} of {rounds}: {name} {rate:.1f} steps/s, {1000 * busy:.1f} ms", file=sys.stderr
            )
    return found


def in_namespace(options: argparse.Namespace) -> dict[str, list[Pace]]:
    """The slow part, in a process with a network of its own."""
    given = [("--dataset", options.dataset), ("--compress", options.compress)]
    given += [(f"--{name}", str(getattr(options, name))) for name in ("agents", "rounds", "megabits")]
    given += [("--against", options.against)] if options.against else []
    again = [sys.executable, __file__, "--inside", *(word for pair in given for word in pair)]
    command = ["unshare", "-rn", "sh", "-c", 'ip link set lo up && exec "$@"', "sh", *again]
    found: dict[str, list[Pace]] = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    return found


def main() -> None:
    if sys.argv[1:2] == ["--cut"]:  # in a process of the checkout whose shards they are
        folder, dataset, agents, compress, steps = sys.argv[2:]
        cut(Path(folder), dataset, int(agents), compress, int(steps))
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", default="cora")
    parser.add_argument("--agents", type=int, default=6)
    parser.add_argument("--compress", default="power:1")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--megabits", type=int, default=100, help="a second that arrive at an agent, on slow links")
    parser.add_argument("--against", help="folder `src` of another checkout, whose peers take turns with these")
    parser.add_argument("--json", action="store_true", help="print one JSON object at the end")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    of = (options.dataset, options.agents, options.compress, options.rounds, options.against)
    if options.inside:
        print(json.dumps(side_by_side(*of, options.megabits)))
        return
    found = {FAST: side_by_side(*of, 0), SLOW: in_namespace(options)}
    results: dict[str, Any] = {}
    print(f"{options.dataset}, {options.agents} agents, medians of {options.rounds} rounds, steps a second:")
    for where, paces in found.items():
        plain, compressed, *_ = (statistics.median(rate for rate, _ in one) for one in paces.values())
        ratio, goal = compressed / plain, GOALS[where]
        results[where] = {"paces": paces, "ratio": ratio}
        print(
            f"  {where:10s}  plain {plain:7.1f}   {options.compress} {compressed:7.1f}   {ratio:5.1f} times "
            f"(at least {goal:.0f}: {'met' if ratio >= goal else 'MISSED'})"
        )
        for name, one in paces.items():
            busy = statistics.median(seconds for _, seconds in one)
            bound = len(os.sched_getaffinity(0)) / (options.agents * busy)
            print(
                f"    {name}: {1000 * busy:.1f} ms of processor time a step and agent; at most {bound:.1f} steps here"
            )
    if options.json:
        print(json.dumps(results))


if __name__ == "__main__":
    main()
