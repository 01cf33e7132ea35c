"""Processor time that the live page and the metrics of a run take of its training step.

    GOSSAMER_DATA=... python benchmarks/watching.py [--agents 10] [--steps 1500] [--json]

CORA is trained in this process on one thread. Another process is a browser that reads the page's server-sent events,
and a Prometheus that scrapes the metrics every second. What the training thread takes is its own clock
(CLOCK_THREAD_CPUTIME_ID); what the observers take of it is measured around their calls. All other threads of the
process, of which there are none but the publisher's and the servers', are what the process takes beyond that. The share
is (observers + other threads) / (training thread without observers).

Who watches asks once a second of wall time. On a machine that trains and does nothing else, this is also a second of
the training thread; where other processes leave it a fifth of a processor, the same second weighs five times as much.
Therefore the share of a processor (by wall time) stands beside the share of the training, and how many threads wanted
to run.
"""

import argparse
import contextlib
import json
import os
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import torch
from threadpoolctl import threadpool_limits

import gossamer
from gossamer.report.live.feed import Feed
from gossamer.report.live.log_lines import LogLines
from gossamer.report.live.metrics import serve_metrics
from gossamer.report.live.server import serve_page
from gossamer.report.live.simulation import SimulationSource
from gossamer.runs.observers import Observer

LOOPBACK = ("127.0.0.1", 0)
WAYS = {"nobody": (False, False), "metrics": (False, True), "page": (True, False), "page and metrics": (True, True)}
SHARE = 0.01  # that watching may take
CROWDED = 1.5  # threads that want to run for each processor, above which the share says more of the machine


@dataclass
class Clock:
    """Seconds of this thread in functions that it has wrapped."""

    seconds: float = 0.0

    def wrap(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*args: Any) -> Any:
            began = time.thread_time()
            try:
                return function(*args)
            finally:
                self.seconds += time.thread_time() - began

        return timed

    def wrap_observer(self, observer: Observer) -> Observer:
        return replace(observer, **{one.name: self.wrap(getattr(observer, one.name)) for one in fields(observer)})


@dataclass(frozen=True)
class Cost:
    """Processor seconds of one run."""

    training: float
    observers: float
    others: float
    steps: int
    elapsed: float

    @property
    def share(self) -> float:
        """Part of the training thread's processor time."""
        return (self.observers + self.others) / self.training

    @property
    def processor(self) -> float:
        """Part of one processor."""
        return (self.observers + self.others) / self.elapsed


def measure(graph: Any, way: str, options: dict[str, Any]) -> Cost:
    """Train once and be watched in a way."""
    page, metrics = WAYS[way]
    clock, feed, log, marks = Clock(), Feed(), LogLines(), []

    def mark(*_: object) -> None:
        marks.append((time.thread_time(), time.process_time(), clock.seconds, time.monotonic()))

    with ExitStack() as stack:
        addresses = []
        if page or metrics:
            source = SimulationSource(feed, log, graph.name)
            stack.enter_context(source.publisher)
            if page:
                addresses.append(stack.enter_context(serve_page(feed, LOOPBACK, None)))
            if metrics:
                addresses.append(stack.enter_context(serve_metrics(feed, LOOPBACK)))
            stack.enter_context(watch_elsewhere(addresses))
        display = (
            (lambda name, first, last: clock.wrap_observer(source.follow(name, first, last))) if addresses else None
        )
        gossamer.train(graph, observers=[Observer(on_start=mark, on_end=mark)], display=display, **options)
    before, after = marks[0], marks[-1]
    thread, process, observers, elapsed = (after[i] - before[i] for i in range(4))
    return Cost(thread - observers, observers, process - thread, options["steps"], elapsed)


@contextlib.contextmanager
def watch_elsewhere(addresses: list[str]) -> Iterator[None]:
    """Be watched by another process, until the context ends."""
    command = [sys.executable, str(Path(__file__).resolve()), "--watch", *addresses]
    watcher = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert watcher.stdin is not None
    assert watcher.stdout is not None
    if not watcher.stdout.readline():
        raise SystemExit("the watching process did not start")
    try:
        yield
    finally:
        watcher.stdin.close()
        print(f"  {watcher.stdout.read().strip()}", file=sys.stderr)
        watcher.wait()


def watch(addresses: list[str]) -> None:
    """Read events and scrape metrics until standard input ends."""
    counts = {"events": 0, "scrapes": 0, "bytes": 0}
    over = threading.Event()

    def read_events(url: str) -> None:
        with contextlib.suppress(OSError), urllib.request.urlopen(f"{url}events", timeout=60) as answer:
            for line in answer:
                counts["events"] += line.startswith(b"event:")
                counts["bytes"] += len(line)

    def scrape(url: str) -> None:
        while not over.wait(1.0):
            with contextlib.suppress(OSError), urllib.request.urlopen(url, timeout=60) as answer:
                counts["bytes"] += len(answer.read())
                counts["scrapes"] += 1

    for url in addresses:
        reader = scrape if url.endswith("/metrics") else read_events
        threading.Thread(target=reader, args=[url], daemon=True).start()
    print("ready", flush=True)
    sys.stdin.read()
    over.set()
    print(f"seen: {counts['events']} events, {counts['scrapes']} scrapes, {counts['bytes'] / 1e3:.0f} kB", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", default="cora")
    parser.add_argument("--agents", type=int, default=10)
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--watch", nargs="*", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.watch is not None:
        watch(given.watch)
        return
    torch.set_num_threads(1)
    graph = gossamer.load(given.dataset)
    options = {"agents": given.agents, "steps": given.steps, "baselines": False}
    with threadpool_limits(1):
        costs = {way: measure(graph, way, options) for way in WAYS}
    if given.json:
        print(
            json.dumps(
                {way: {**vars(cost), "share": cost.share, "processor": cost.processor} for way, cost in costs.items()}
            )
        )
        return
    crowded = os.getloadavg()[0] / (os.cpu_count() or 1)
    print(f"{graph.name}, {given.agents} agents, {given.steps} steps; {crowded:.1f} busy threads a processor")
    print("processor time of a step in microseconds")
    print(f"{'watched by':18}{'training':>10}{'observers':>11}{'threads':>9}{'share':>9}{'of a processor':>16}")
    for way, cost in costs.items():
        each = [f"{1e6 * seconds / cost.steps:.0f}" for seconds in (cost.training, cost.observers, cost.others)]
        print(f"{way:18}{each[0]:>10}{each[1]:>11}{each[2]:>9}{cost.share:>9.2%}{cost.processor:>16.2%}")
    print(f"At most {SHARE:.0%}: {'yes' if costs['page and metrics'].share <= SHARE else 'no'}")
    if crowded > CROWDED:
        print("The machine was busy with other work; run it on one that is not.")


if __name__ == "__main__":
    main()
