"""Steps a second and bytes of peers over encrypted loopback, beside what bounds them, from one run.

    GOSSAMER_DATA=... python benchmarks/peers.py [--dataset cora] [--agents 6] [--compress none] [--steps 160]
        [--rounds 5] [--json]

Four competitors take turns, and the best of the rounds counts: the peers, one process an agent; the simulation in one
process; the peers without encryption; and the limit, bare ZeroMQ sockets with the same keys that exchange as many bytes
in the same order without arithmetic, protocol or headers. Rates are those of the steps between two reports of agent 0,
so that starts and ends of processes do not count.
"""

import argparse
import contextlib
import json
import math
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import IO, Any, NamedTuple

import torch

import gossamer
from gossamer.agents import training_step
from gossamer.engines.simulation import run
from gossamer.peers.local_processes import find_free_ports, write_local_shards
from gossamer.peers.network.curve import make_curve_keys
from gossamer.peers.program import make_schedule
from gossamer.peers.protocol.exchanges import ExpectedMessages
from gossamer.peers.shards.shard import read_shard
from gossamer.runs.deployment import Deployment, make_deployment
from gossamer.runs.hosts import build_host, build_share_host
from gossamer.runs.message_counts import count_messages
from gossamer.runs.records import PhaseName
from gossamer.runs.settings import Settings, make_settings

BARE = Path(__file__).with_name("bare_exchange.py")
PHASES: tuple[PhaseName, ...] = ("forward", "backward", "consensus")
MINE, SIMULATION, INSECURE, LIMIT = "encrypted peers", "simulation", "peers, no encryption", "bare sockets"
WARM = 10  # steps before the first that counts
GOAL = 0.6  # of the limit's rate


class Pace(NamedTuple):
    """How fast agent 0 was between its first report after the warm-up and its last on the way."""

    rate: float  # steps a second
    busy: float  # seconds of processor time a step; NaN where the reports do not tell
    last: list[dict[str, Any]]  # the last reports of all agents


def pace_of(commands: list[list[str]], environment: Mapping[str, str] | None = None) -> Pace:
    """Start a process for each command, in this environment or in another, and follow them to their ends."""
    with contextlib.ExitStack() as files:
        # A pipe that is read only at the end would fill and stop its process: the other agents report into files.
        others = [files.enter_context(tempfile.TemporaryFile()) for _ in commands[1:]]
        outputs: list[int | IO[bytes]] = [subprocess.PIPE, *others]
        processes = [
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=output, stderr=subprocess.DEVNULL, env=environment)
            for command, output in zip(commands, outputs, strict=True)
        ]
        try:
            seen: list[tuple[float, int, float]] = []
            first = {}
            for line in processes[0].stdout or ():
                first = json.loads(line)
                seen.append((time.monotonic(), first["step"], first.get("cpu_seconds", math.nan)))
            if any(process.wait(timeout=60) for process in processes):
                raise SystemExit(f"a process of {' '.join(commands[0])} failed")
            last = [first, *map(_read_last, others)]
        finally:
            for process in processes:
                process.kill()
                process.communicate()
    moving = [one for one, after in pairwise(seen) if WARM <= one[1] < after[1]]
    if len(moving) < 2:
        raise SystemExit("too few reports to tell a rate; give more --steps")
    (began, start, idle), (ended, end, busy) = moving[0], moving[-1]
    return Pace((end - start) / (ended - began), (busy - idle) / (end - start), last)


def _read_last(reports: IO[bytes]) -> dict[str, Any]:
    """The last report of a file of them."""
    reports.seek(0)
    last: dict[str, Any] = json.loads((reports.read().splitlines() or [b"{}"])[-1])
    return last


def peers_pace(folders: list[Path], *options: str, environment: Mapping[str, str] | None = None) -> Pace:
    """That of one peer for each shard."""
    command = [sys.executable, "-m", "gossamer", "peer"]
    return pace_of([[*command, str(path), "--report", "--lifeline", *options] for path in folders], environment)


def peers(deployment: Deployment, settings: Settings, insecure: bool) -> tuple[float, dict[str, int]]:
    """The rate of one process an agent, and the bytes that left all agents: payloads by phase, and in all."""
    with tempfile.TemporaryDirectory() as folder:
        folders = write_local_shards(Path(folder), deployment, settings)
        pace = peers_pace(folders, *(["--insecure"] if insecure else []))
    links = [link["sent"] for state in pace.last for link in state["links"].values()]
    sent = {phase: sum(link.get(phase, 0) for link in links) for phase in PHASES}
    return pace.rate, sent | {"all": sum(state["bytes_out"] for state in pace.last)}


def simulation(deployment: Deployment, settings: Settings) -> float:
    torch.set_num_threads(1)
    host = build_host(deployment, settings)
    for _ in range(WARM):
        host, _ = run(training_step(host))
    began = time.perf_counter()
    for _ in range(settings.steps):
        host, _ = run(training_step(host))
    return settings.steps / (time.perf_counter() - began)


def planned_exchanges(deployment: Deployment, settings: Settings) -> list[dict[int, dict[int, int]]]:
    """For each exchange of a training step and each receiver, the bytes by sender."""
    with tempfile.TemporaryDirectory() as folder:
        shards = [read_shard(path) for path in write_local_shards(Path(folder), deployment, settings)]
    shares = [shard.share for shard in shards]
    schedules = [make_schedule(build_share_host(share, settings), settings, share) for share in shares]
    steps = [schedule.topologies[0].mixed for schedule in schedules]

    def count_bytes(expected: ExpectedMessages) -> dict[int, int]:
        size = (expected.dtype or settings.torch_dtype).itemsize
        return {z: torch.Size(shape).numel() * size for z, shape in expected.shapes.items()}

    return [{k: count_bytes(expected) for k, expected in enumerate(each)} for each in zip(*steps, strict=True)]


def bare(exchanges: list[dict[int, dict[int, int]]], agents: int, steps: int) -> float:
    with tempfile.TemporaryDirectory() as folder:
        plan = Path(folder) / "plan.json"
        made = {"ports": find_free_ports(agents), "keys": [make_curve_keys() for _ in range(agents)], "steps": steps}
        plan.write_text(json.dumps(made | {"exchanges": exchanges}))
        return pace_of([[sys.executable, str(BARE), str(plan), str(k)] for k in range(agents)]).rate


def report(dataset: str, agents: int, compress: str, steps: int, rounds: int) -> dict[str, Any]:
    named = {"preset": "paper", "dataset": dataset, "agents": agents, "compress": compress}
    settings = make_settings({**named, "steps": steps, "evaluate_every": steps})
    deployment = make_deployment(gossamer.load(dataset), settings)
    exchanges = planned_exchanges(deployment, settings)
    sent: dict[str, int] = {}

    def encrypted() -> float:
        rate, found = peers(deployment, settings, insecure=False)
        sent.update(found)
        return rate

    competitors: dict[str, Callable[[], float]] = {
        MINE: encrypted,
        SIMULATION: lambda: simulation(deployment, settings),
        INSECURE: lambda: peers(deployment, settings, insecure=True)[0],
        LIMIT: lambda: bare(exchanges, agents, steps),
    }
    rates: dict[str, list[float]] = {name: [] for name in competitors}
    for number in range(1, rounds + 1):
        for name, measure in competitors.items():
            rates[name].append(measure())
            print(f"round {number} of {rounds}: {name} {rates[name][-1]:.1f} steps/s", file=sys.stderr)
    best = {name: max(found) for name, found in rates.items()}
    links = int(deployment.links.sum()) // 2
    print(f"{dataset}, {agents} agents, {links} links, compression {compress}, best of {rounds} rounds:")
    for name, rate in best.items():
        spread = ", ".join(f"{one:.1f}" for one in rates[name])
        print(f"  {name:22s} {rate:8.1f} steps/s   {rate / best[MINE]:6.2f} x {MINE}   ({spread})")
    ratio = best[MINE] / best[LIMIT]
    print(f"  {MINE} reach {ratio:.0%} of {LIMIT} (at least {GOAL:.0%}: {'met' if ratio >= GOAL else 'missed'})")
    planned = planned_bytes(deployment, settings)
    for phase, expected in planned.items():
        same = "as planned" if sent[phase] == expected else "NOT AS PLANNED"
        print(f"  {phase:10s} {sent[phase]:14,d} bytes of payload in {steps} steps, planned {expected:14,d}: {same}")
    total = sum(planned.values())
    more = sent["all"] / total - 1
    print(f"  all        {sent['all']:14,d} bytes with evaluations, headers and statuses, {more:.3%} more")
    return {"compress": compress, "rates": rates, "best": best, "ratio": ratio, "sent": sent, "planned": planned}


def planned_bytes(deployment: Deployment, settings: Settings) -> dict[str, int]:
    """Of the whole run by phase."""
    counted = count_messages(deployment, settings)
    return {phase: counted[phase]["bytes"] * settings.steps for phase in PHASES}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", default="cora")
    parser.add_argument("--agents", type=int, default=6)
    parser.add_argument("--compress", default="none")
    parser.add_argument("--steps", type=int, default=160)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true", help="print one JSON object at the end")
    options = parser.parse_args()
    found = report(options.dataset, options.agents, options.compress, options.steps, options.rounds)
    if options.json:
        print(json.dumps(found))


if __name__ == "__main__":
    main()
