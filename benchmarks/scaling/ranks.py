"""One rank with one thread against two with one thread each, beside what the machine's memory allows.

Shares are cut for the ranks beforehand, so that each rank reads its own part only. The runs take turns. What memory
allows is measured with a plain sparse product, cut the same way: one process that does all of it, against two that do
one half each at the same time.
"""

import json
import multiprocessing
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

import gossamer
from gossamer.agents import training_step
from gossamer.data import DataGraph
from gossamer.model.sparse import make_operator
from gossamer.runtime import job
from gossamer.runtime.memory import keep_memory
from gossamer.runtime.rank_shards import begin_on_shards, cut_for_ranks
from gossamer.runtime.settings import make_settings
from scaling.measure import high_water_mark, timed

WIDTH = 64
PHASES = ("forward", "backward", "consensus")


def compare(dataset: str, agents: int, rounds: int, steps: int) -> dict[str, Any]:
    """Seconds of a step on one rank and on two, and of the plain product in one process and two."""
    graph = gossamer.load(dataset)
    if not dataset.endswith(".npz"):
        graph = replace(graph, train=np.random.default_rng(0).random(graph.num_vertices) < 0.1)
    settings = make_settings(
        {"dataset": dataset, "agents": agents, "assignment": "streaming", "topology": "needed", "hidden": WIDTH}
    )
    seconds: dict[int, list[float]] = {1: [], 2: []}
    product: dict[int, list[float]] = {1: [], 2: []}
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        for size in (1, 2):
            cut_for_ranks(Path(folder) / str(size), graph, settings, size)
        _write_halves(graph, Path(folder))
        del graph
        for _ in range(rounds):
            for size in (1, 2):
                said = _ranks(Path(folder) / str(size), size, steps)
                seconds[size] += said["seconds"]
                if size == 2:
                    found |= {name: said[name] for name in ("memory", "sent", "planned")}
                product[size] += _products(Path(folder), size)
    found["seconds"] = {size: statistics.median(part) for size, part in seconds.items()}
    found["product"] = {size: statistics.median(part) for size, part in product.items()}
    found["speedup"] = found["seconds"][1] / found["seconds"][2]
    found["bound"] = found["product"][1] / found["product"][2]
    return found


def _ranks(folder: Path, size: int, steps: int) -> dict[str, Any]:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={size}"]
    command += [sys.argv[0], "--rank", str(folder), str(steps)]
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


def one_rank(folder: Path, steps: int) -> None:
    """Print the seconds of each step but the first, what was sent in a step and what was planned."""
    torch.set_num_threads(1)
    keep_memory()
    with job.joined() as rank:
        state = begin_on_shards(folder)
        engine = state.engine
        seconds = []
        for _ in range(steps + 1):
            before = dict(engine.sent_bytes)  # type: ignore[attr-defined]
            dist.barrier()
            began = time.perf_counter()
            state.host, _ = engine.run(training_step(state.host))
            dist.barrier()
            seconds.append(time.perf_counter() - began)
        sent = {phase: engine.sent_bytes[phase] - before.get(phase, 0) for phase in PHASES}  # type: ignore[attr-defined]
        whole = {phase: int(engine.total(torch.tensor(count))) for phase, count in sent.items()}
        memory = engine.total(torch.tensor(high_water_mark()))
        if rank == 0:
            planned = {phase: state.stored["between_ranks"][phase]["bytes"] for phase in PHASES}
            print(json.dumps({"seconds": seconds[1:], "memory": int(memory), "sent": whole, "planned": planned}))


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


def _product(path: Path, gate: Any, results: Any, rounds: int = 5) -> None:
    from scipy import sparse

    torch.set_num_threads(1)
    with np.load(path) as file:
        matrix = sparse.csr_array((file["data"], file["indices"], file["indptr"]), shape=tuple(file["shape"]))
    operator, dense = make_operator(matrix, torch.float32), torch.ones(matrix.shape[1], WIDTH)
    operator @ dense
    seconds = []
    for _ in range(rounds):
        gate.wait()
        seconds.append(timed(lambda: operator @ dense)[0])
    results.put(seconds)


def show(title: str, agents: int, found: dict[str, Any], goal: str) -> None:
    one, two = found["seconds"][1], found["seconds"][2]
    print(
        f"\n{title}, {agents} agents: one rank {one:.3f} s a step, two ranks {two:.3f} s: {found['speedup']:.2f} times"
    )
    print(f"  a plain sparse product in two processes: {found['bound']:.2f} times as fast as in one; goal: {goal}")
    equal = "equal to" if found["sent"] == found["planned"] else "NOT"
    told = ", ".join(f"{phase} {count / 1e6:.2f} MB" for phase, count in found["sent"].items())
    print(f"  sent between the ranks in a step: {told}; {equal} the plan's")
    print(f"  peak memory of both ranks {found['memory'] / 1e9:.1f} GB")
