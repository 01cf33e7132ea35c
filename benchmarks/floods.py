"""What floods cost a peer: steps a second under strangers' connections, and memory under all that can be sent to it.

    GOSSAMER_DATA=... python benchmarks/floods.py [--dataset cora] [--agents 3] [--connections 4000] [--seconds 8]
        [--only NAME] [--json]

Rates are those of agent 0 of a run on this machine, undisturbed and while one process floods it, in turns. Memory is
what agent 0 grows by when it is alone and one process floods it as a stranger, in a neighbour's place, or with a
neighbour's key; the stated bound stands beside it, with 1 GB/s for what arrives between two looks. Everything stays on
the loopback interface and ends by itself.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from flood import Target

import gossamer
from gossamer.peers.local_processes import write_local_shards
from gossamer.peers.network.connections import MAX_PENDING, MAX_PER_NEIGHBOUR, MAX_REPLY_BYTES
from gossamer.peers.network.monitor import ROUND_INTERVAL
from gossamer.peers.network.sockets import KERNEL_BUFFER, RECEIVE_QUEUE
from gossamer.peers.shards.shard import read_shard
from gossamer.runs.deployment import make_deployment
from gossamer.runs.message_counts import count_messages
from gossamer.runs.settings import make_settings

MB = 1_000_000
LINE = 1_000  # MB a second that a flood brings at most, for bounds that depend on it
FLOOD = Path(__file__).with_name("flood.py")


@contextmanager
def flooded(flood: str, target: Target, count: int, seconds: float) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, str(FLOOD), flood, json.dumps(target), str(count), str(seconds)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


@contextmanager
def peers(folders: list[Path]) -> Iterator[list[subprocess.Popen[str]]]:
    command = [sys.executable, "-m", "gossamer", "peer", "--log-level", "error"]  # nobody reads while they run
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    found = [subprocess.Popen([*command, str(one), "--report", "--lifeline"], text=True, **pipes) for one in folders]
    try:
        yield found
    finally:
        for process in found:
            process.kill()
            process.communicate()


class Reports:
    """What a peer reports, as it comes."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process, self.seen = process, list[tuple[float, dict[str, Any]]]()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        for line in self.process.stdout or ():
            self.seen.append((time.monotonic(), json.loads(line)))

    def wait(self, step: int) -> None:
        deadline = time.monotonic() + 120
        while not (self.seen and self.seen[-1][1]["step"] >= step):
            if time.monotonic() > deadline or self.process.poll() is not None:
                raise SystemExit("the peer has not begun to train")
            time.sleep(0.1)

    def rate(self, seconds: float) -> tuple[float, float]:
        """Steps a second from now on, and milliseconds of processor time a step."""
        begin = time.monotonic()
        time.sleep(seconds)
        if self.process.poll() is not None:
            raise SystemExit(f"the peer has ended: {self.process.stderr.read()}")  # type: ignore[union-attr]
        (start, first), *_, (stop, last) = [one for one in self.seen if one[0] >= begin]
        steps = last["step"] - first["step"]
        return steps / (stop - start), 1000 * (last["cpu_seconds"] - first["cpu_seconds"]) / max(1, steps)


Rates = dict[str, list[tuple[float, float]]]


def rates(folders: list[Path], target: Target, count: int, seconds: float, rounds: int) -> Rates:
    found: Rates = {"undisturbed": [], "held": [], "reconnecting": []}
    with peers(folders) as processes:
        reports, *_ = [Reports(process) for process in processes]
        reports.wait(10)
        for _ in range(rounds):
            found["undisturbed"].append(reports.rate(seconds))
            for flood in ("held", "reconnecting"):
                with flooded(flood, target, count, 60 + 2 * seconds) as process:
                    process.stdout.readline()  # type: ignore[union-attr]
                    found[flood].append(reports.rate(seconds))
                time.sleep(1)
    return found


def growth(folder: Path, target: Target, flood: str, count: int, seconds: float) -> tuple[float, float]:
    """Most megabytes more than before, and those that are left five seconds after the flood."""
    with peers([folder]) as (process,):
        Reports(process).wait(0)
        before = resident(process.pid)
        most = before
        with flooded(flood, target, count, seconds) as flooding:
            while flooding.poll() is None:
                most = max(most, resident(process.pid))
                time.sleep(0.01)
        time.sleep(5)
        left = resident(process.pid)
    return (most - before) / MB, (left - before) / MB


def resident(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return 1024 * int(status.partition("VmRSS:")[2].split()[0])


def bounds(target: Target) -> dict[str, tuple[str, int, float]]:
    """By what is sent: the flood, how many connections it makes, and the most megabytes it may take."""
    share = (RECEIVE_QUEUE + 1) * target.largest + KERNEL_BUFFER
    came = ROUND_INTERVAL * LINE
    outgoing = target.neighbours * 2 * MAX_REPLY_BYTES / MB
    return {
        "a stranger's 1500 unfinished messages": ("unfinished", 1500, MAX_PENDING * target.largest / MB + came),
        "an impostor in a neighbour's place": ("impostor", 1, outgoing + came),
        "pushed back by a neighbour": ("pushed_back", 1, outgoing + came),
        "300 connections of one neighbour": (
            "one_key",
            300,
            (1 + target.neighbours) * MAX_PER_NEIGHBOUR * share / MB + came,
        ),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", default="cora")
    parser.add_argument("--agents", type=int, default=3)
    parser.add_argument("--connections", type=int, default=4000)
    parser.add_argument("--seconds", type=float, default=8)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", help="a part of the name of what is measured")
    parser.add_argument("--json", action="store_true", help="print one JSON object at the end")
    options = parser.parse_args()
    settings = make_settings({"preset": "paper", "dataset": options.dataset, "agents": options.agents, "steps": 10**6,
                              "evaluate_every": 10**6, "topology": "complete"})  # fmt: skip
    deployment = make_deployment(gossamer.load(options.dataset), settings)
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as temporary:
        folders = write_local_shards(Path(temporary), deployment, settings)
        mine, other = (read_shard(folder).membership for folder in folders[:2])
        secret = (folders[1] / "key.secret").read_text().strip()
        counted = count_messages(deployment, settings)["consensus"]
        largest = counted["bytes"] // counted["rows"]
        target = Target(mine.contact.address, str(mine.contact.key), other.contact.address, secret, largest,
                        len(mine.neighbours))  # fmt: skip
        wanted = options.only or ""
        if wanted in "rates":
            found["rates"] = rates(folders, target, options.connections, options.seconds, options.rounds)
            usual = found["rates"]["undisturbed"]
            for name, several in found["rates"].items():
                rate, busy = (statistics.median(part) for part in zip(*several, strict=True))
                ratio = statistics.median(one[0] / other[0] for one, other in zip(several, usual, strict=True))
                each = ", ".join(f"{one:.1f}" for one, _ in several)
                print(f"{name:14s} {rate:6.1f} steps/s ({each}), {ratio:4.0%}; {busy:5.1f} ms of processor time a step")
        for name, (flood, count, bound) in bounds(target).items():
            if wanted in name:
                most, left = growth(folders[0], target, flood, count, options.seconds)
                found[name] = {"most": most, "left": left, "bound": bound}
                verdict = "kept" if most <= bound else "BROKEN"
                print(
                    f"{name:40s} {most:7.1f} MB more, bound {bound:6.1f} MB: {verdict}; {left:7.1f} MB left", flush=True
                )
    if options.json:
        print(json.dumps(found))


if __name__ == "__main__":
    main()
