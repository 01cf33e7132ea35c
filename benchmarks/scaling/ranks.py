"""One rank with one thread against two with one thread each, beside what the machine's memory allows.

Shares are cut for the ranks beforehand, so that each rank reads its own part only. The runs take turns, and the best
step of each counts, because other work on the machine only ever adds time. What memory allows is measured twice: with a
plain sparse product, one process that does all of it against two that do one half each at the same time; and with the
two ranks themselves when they exchange nothing and read zeros, which is what two cores that share their memory make of
this step's arithmetic.
"""

import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
import torch.distributed as dist

import gossamer
from gossamer.agents import Inbox, Outbox, training_step
from gossamer.data import DataGraph
from gossamer.engines.cluster import job
from gossamer.engines.cluster.engine import Cluster
from gossamer.engines.cluster.rank_shards import cut_for_ranks, start_on_shards
from gossamer.model.sparse import make_operator
from gossamer.runs.memory import keep_memory
from gossamer.runs.settings import Settings, make_settings
from scaling.measure import high_water_mark, timed

T = TypeVar("T")
WIDTH = 64
PHASES = ("forward", "backward", "consensus")


def compare(dataset: str, agents: int, rounds: int, steps: int) -> dict[str, Any]:
    """Seconds of a step on one rank, on two and on two that exchange nothing; of the plain product in one and two."""
    graph = gossamer.load(dataset)
    if not dataset.endswith(".npz"):
        graph = replace(graph, train=np.random.default_rng(0).random(graph.num_vertices) < 0.1)
    chosen = {"agents": agents, "assignment": "streaming", "topology": "needed", "hidden": WIDTH}
    settings = make_settings({"preset": "paper", "dataset": dataset, **chosen})
    seconds: dict[str, list[float]] = {"one": [], "two": [], "apart": []}
    product: dict[int, list[float]] = {1: [], 2: []}
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        for size in (1, 2):
            cut_for_ranks(Path(folder) / str(size), graph, settings, size)
        _write_halves(graph, Path(folder))
        del graph
        for _ in range(rounds):
            for kind, size in (("one", 1), ("two", 2), ("apart", 2)):
                said = _ranks(Path(folder) / str(size), size, steps, kind)
                seconds[kind] += said["seconds"]
                if kind == "two":
                    found |= {name: said[name] for name in ("memory", "sent", "planned")}
                if kind != "apart":
                    product[size] += _products(Path(folder), size)
    found["seconds"] = {kind: min(part) for kind, part in seconds.items()}
    found["product"] = {size: min(part) for size, part in product.items()}
    found["speedup"] = found["seconds"]["one"] / found["seconds"]["two"]
    found["apart"] = found["seconds"]["one"] / found["seconds"]["apart"]
    found["bound"] = found["product"][1] / found["product"][2]
    return found


def _ranks(folder: Path, size: int, steps: int, kind: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={size}"]
    command += [sys.argv[0], "--rank", str(folder), str(steps), kind]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=1800,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    if done.returncode:
        raise SystemExit(done.stderr[-3000:])
    return dict(json.loads(done.stdout.splitlines()[-1]))


def one_rank(folder: Path, steps: int, kind: str) -> None:
    """Print the seconds of each step but the first, what was sent in a step and what was planned."""
    torch.set_num_threads(1)
    with job.join_job() as rank, keep_memory():
        state = start_on_shards(folder)
        engine = state.engine
        assert isinstance(engine, Cluster)
        go = _Apart(settings=state.settings).run if kind == "apart" else engine.run
        seconds = []
        for _ in range(steps + 1):
            before = dict(engine.sent_bytes)
            dist.barrier()
            began = time.perf_counter()
            state.host, _ = go(training_step(state.host))
            dist.barrier()
            seconds.append(time.perf_counter() - began)
        sent = {phase: engine.sent_bytes[phase] - before.get(phase, 0) for phase in PHASES}
        whole = {phase: int(engine.total(torch.tensor(count))) for phase, count in sent.items()}
        memory = engine.total(torch.tensor(high_water_mark()))
        if rank == 0:
            assert state.plan is not None
            planned = {phase: state.plan["between_ranks"][phase] for phase in PHASES}
            print(json.dumps({"seconds": seconds[1:], "memory": int(memory), "sent": whole, "planned": planned}))


class _Apart:
    """Drives a host whose messages go nowhere; zeros stand for those of the others."""

    def __init__(self, settings: Settings) -> None:
        self._dtype, self._zeros = settings.torch_dtype, dict[tuple[int, ...], torch.Tensor]()

    def run(self, generator: Generator[Outbox, Inbox, T]) -> T:
        try:
            outbox = next(generator)
            while True:
                outbox = generator.send({link: self._zero(shape) for link, shape in outbox.expected.items()})
        except StopIteration as done:
            result: T = done.value
            return result

    def _zero(self, shape: tuple[int, ...]) -> torch.Tensor:
        if shape not in self._zeros:
            self._zeros[shape] = torch.zeros(shape, dtype=self._dtype)
        return self._zeros[shape]


def _write_halves(graph: DataGraph, folder: Path) -> None:
    a = graph.adjacency
    half = a.shape[0] // 2
    for name, part in (("whole", a), ("half-0", a[:half]), ("half-1", a[half:])):
        np.savez(
            folder / name, data=part.data.astype(np.float32), indices=part.indices, indptr=part.indptr, shape=part.shape
        )


def _products(folder: Path, size: int) -> list[float]:
    """Seconds of a product in one process, or of two that do one half each; the slower of the two counts."""
    context = multiprocessing.get_context("spawn")
    names = ["whole"] if size == 1 else ["half-0", "half-1"]
    gate, results = context.Barrier(len(names)), context.Queue()
    workers = [context.Process(target=_product, args=(folder / f"{name}.npz", gate, results)) for name in names]
    for worker in workers:
        worker.start()
    found = [results.get(timeout=600) for _ in workers]
    for worker in workers:
        worker.join()
    return [max(one) for one in zip(*found, strict=True)]


def _product(path: Path, gate: Any, results: Any, rounds: int = 10) -> None:
    from scipy import sparse

    torch.set_num_threads(1)
    with np.load(path) as file:
        matrix = sparse.csr_array((file["data"], file["indices"], file["indptr"]), shape=tuple(file["shape"]))
    operator, dense = make_operator(matrix, torch.float32), torch.ones(matrix.shape[1], WIDTH)
    seconds = []
    repeats = max(1, 10**7 // matrix.nnz)  # a tenth of a second or more
    with keep_memory():
        operator @ dense
        for _ in range(rounds):
            gate.wait()
            seconds.append(timed(lambda: [operator @ dense for _ in range(repeats)])[0] / repeats)
    results.put(seconds)


def show(title: str, agents: int, found: dict[str, Any], goal: str) -> None:
    one, two = found["seconds"]["one"], found["seconds"]["two"]
    print(
        f"\n{title}, {agents} agents: one rank {one:.3f} s a step, two ranks {two:.3f} s: {found['speedup']:.2f} times "
        "as fast"
    )
    print(
        f"  what memory allows: {found['bound']:.2f} times with a plain sparse product, {found['apart']:.2f} times with"
    )
    print(f"  two ranks that exchange nothing; goal: {goal}")
    equal = "equal to" if found["sent"] == found["planned"] else "NOT"
    told = ", ".join(f"{phase} {count / 1e6:.2f} MB" for phase, count in found["sent"].items())
    print(f"  sent between the ranks in a step: {told}; {equal} the plan's")
    print(f"  peak memory of both ranks {found['memory'] / 1e9:.1f} GB")
