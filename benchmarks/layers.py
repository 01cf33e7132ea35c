"""Time and memory of a training step of each kind of layers, as ratios against centralised PyTorch Geometric.

    GOSSAMER_DATA=... python benchmarks/layers.py [--layers gat sage] [--agents 10] [--rounds 4] [--json]
    GOSSAMER_DATA=... python benchmarks/layers.py --large        # memory on a graph of 100000 vertices
    GOSSAMER_DATA=... python benchmarks/layers.py --messages     # what a step sends, as a table

Two layers of 64 hidden units (gat, gatv2: 8 heads of 8), dropout 0.5 on input and hidden layer, adam. The competitors
take turns of a few steps, so that a busy machine slows all of them alike; the median step of each is compared, as wall
time on all threads and as processor time on one. Memory is the peak that a process of its own adds. PyTorch Geometric
has dense features, and beside it sparse ones where its layer takes them.
"""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable

import numpy as np
import torch
from scipy.sparse import coo_array
from step import PHOTO, Step, high_water_mark, one_thread, side_by_side
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, dropout

import gossamer
from gossamer.agents import training_step
from gossamer.data import DataGraph
from gossamer.engines.simulation import run, start_run
from gossamer.runs.deployment import make_deployment
from gossamer.runs.message_counts import count_messages
from gossamer.runs.settings import make_settings

KINDS = ("gcn", "gat", "gatv2", "sage", "gin", "gated")
ATTENTION = ("gat", "gatv2")
SPARSE = ("gcn", "gat")  # whose PyTorch Geometric layer takes sparse features
LARGE = "blocks:vertices=100000,edges=2000000"
GOALS = {"gat": (1 / 4, 1 / 2), "sage": (1 / 4, None), "gin": (1 / 4, None)}  # of PyG's time and memory


def distributed(graph: DataGraph, kind: str, agents: int) -> Step:
    """A step of all agents in one process."""
    named = {
        "dataset": graph.name,
        "agents": agents,
        "layers": kind,
        "heads": 8 if kind in ATTENTION else None,
        "topology": "complete",
        "dropout": 0.5,
        "track": False,
        "bias": True,
    }
    layers = [{"kind": kind}, {"kind": kind, "heads": 1}] if kind in ATTENTION else kind
    state = [start_run(graph, make_settings({**named, "layers": layers})).host]

    def step() -> None:
        state[0], _ = run(training_step(state[0]))

    return step


def make_pyg_layers(kind: str, inputs: int, outputs: int) -> list[nn.Module]:
    """Two layers of PyTorch Geometric, as its users write them."""
    from torch_geometric.nn import MLP, GATConv, GATv2Conv, GCNConv, GINConv, ResGatedGraphConv, SAGEConv

    def gin(a: int, b: int) -> nn.Module:
        layer: nn.Module = GINConv(MLP([a, 64, b], norm=None))
        return layer

    make: dict[str, Callable[[], list[nn.Module]]] = {
        "gcn": lambda: [GCNConv(inputs, 64, cached=True), GCNConv(64, outputs, cached=True)],
        "gat": lambda: [GATConv(inputs, 8, heads=8), GATConv(64, outputs)],
        "gatv2": lambda: [GATv2Conv(inputs, 8, heads=8), GATv2Conv(64, outputs)],
        "sage": lambda: [SAGEConv(inputs, 64), SAGEConv(64, outputs)],
        "gin": lambda: [gin(inputs, 64), gin(64, outputs)],
        "gated": lambda: [ResGatedGraphConv(inputs, 64), ResGatedGraphConv(64, outputs)],
    }
    return make[kind]()


def pyg(graph: DataGraph, kind: str, sparse_features: bool) -> Step:
    """A step of a centralised network of PyTorch Geometric."""
    net = nn.ModuleList(make_pyg_layers(kind, graph.num_features, graph.num_outputs))
    coo = coo_array(graph.features)
    if sparse_features:
        index = torch.tensor(np.stack([coo.row, coo.col]), dtype=torch.int64)
        values = torch.tensor(coo.data, dtype=torch.float32)
        x = torch.sparse_coo_tensor(index, values, coo.shape, check_invariants=False).coalesce()
    else:
        x = torch.tensor(coo.toarray(), dtype=torch.float32)
    edges = torch.tensor(np.concatenate([graph.edges, graph.edges[:, ::-1]]).T.copy())
    y, train = torch.tensor(graph.targets), torch.tensor(graph.train)
    optimiser = torch.optim.Adam(net.parameters(), lr=0.01)

    def drop(x: Tensor) -> Tensor:
        if not x.is_sparse:
            return dropout(x, 0.5)
        values = dropout(x.values(), 0.5)
        return torch.sparse_coo_tensor(x.indices(), values, x.shape, is_coalesced=True, check_invariants=False)

    def step() -> None:
        optimiser.zero_grad()
        hidden = net[0](drop(x), edges).relu()
        outputs: Tensor = net[1](dropout(hidden, 0.5), edges)
        cross_entropy(outputs[train], y[train]).backward()
        optimiser.step()

    return step


def competitors(graph: DataGraph, kind: str, agents: int) -> dict[str, Callable[[], Step]]:
    found: dict[str, Callable[[], Step]] = {
        f"{agents} agents": lambda: distributed(graph, kind, agents),
        "PyG, dense features": lambda: pyg(graph, kind, False),
    }
    if kind in SPARSE:
        found["PyG, sparse features"] = lambda: pyg(graph, kind, True)
    return found


def peak_memory(dataset: str, kind: str, agents: int, name: str) -> int:
    """Bytes that building and five steps add to the peak of a process of their own."""
    command = [sys.executable, __file__, "--datasets", dataset, "--layers", kind, "--agents", str(agents)]
    done = subprocess.run([*command, "--memory-of", name], capture_output=True, text=True, check=True, timeout=1800)
    return int(done.stdout)


def print_own_memory(dataset: str, kind: str, agents: int, name: str) -> None:
    graph = gossamer.load(dataset)
    import torch_geometric.nn  # noqa: F401 - code, threads and buffers that PyTorch sets up once are not measured

    nn.functional.mse_loss(nn.Linear(256, 256)(torch.ones(256, 256)), torch.zeros(256, 256)).backward()
    before = high_water_mark()
    step = competitors(graph, kind, agents)[name]()
    for _ in range(5):
        step()
    print(high_water_mark() - before)


def report(dataset: str, kind: str, agents: int, rounds: int) -> dict[str, dict[str, float]]:
    graph = gossamer.load(dataset)
    steps = {name: make() for name, make in competitors(graph, kind, agents).items()}
    wall = side_by_side(steps, rounds)
    alone = {name: one_thread(step) for name, step in steps.items()}
    processor = side_by_side(alone, max(1, rounds // 2), time.process_time)
    memory = {name: float(peak_memory(dataset, kind, agents, name)) for name in steps}
    mine = f"{agents} agents"
    print(f"{graph.name}, {kind}: {torch.get_num_threads()} threads; one thread; peak memory")
    for name in steps:
        parts = [
            f"{scale * of[name]:8.1f} {unit} {of[mine] / of[name]:6.3f}"
            for of, scale, unit in ((wall, 1e3, "ms"), (processor, 1e3, "ms"), (memory, 1e-6, "MB"))
        ]
        print(f"  {name:22s} " + "   ".join(parts))
    for goal, of, what in zip(GOALS.get(kind, ()), (wall, memory), ("time", "memory"), strict=False):
        if goal is not None:
            ratio = of[mine] / of["PyG, dense features"]
            print(f"  {what} at most {goal:.3f} of PyG's: {ratio:.3f}, {'met' if ratio <= goal else 'missed'}")
    return {"wall": wall, "processor": processor, "memory": memory}


def compare_memory(kinds: list[str], agents: int) -> dict[str, int]:
    """Peak memory of each kind on a large graph, against that of gcn."""
    found = {kind: peak_memory(LARGE, kind, agents, f"{agents} agents") for kind in dict.fromkeys(["gcn", *kinds])}
    print(f"{LARGE}, {agents} agents: peak memory of five steps")
    for kind, size in found.items():
        print(f"  {kind:8s} {size / 1e6:8.0f} MB  {size / found['gcn']:5.2f} of gcn's")
    return found


def list_messages(dataset: str, agents: int) -> dict[str, dict[str, dict[str, int]]]:
    """Rows and bytes of a step of every kind with its default settings, as a table in Markdown."""
    graph = gossamer.load(dataset)
    found: dict[str, dict[str, dict[str, int]]] = {}
    print("| layers | rows forward | backward | bytes forward | backward | rows of an evaluation | bytes |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for name in ("gcn", "sage", "gin", "sgc", "appnp", "sage --aggregate max", "gat", "gatv2", "gated"):
        kind, _, aggregate = name.partition(" --aggregate ")
        settings = make_settings({"layers": kind, "aggregate": aggregate or "mean", "agents": agents})
        counts = count_messages(make_deployment(graph, settings), settings)
        forward, backward, whole = counts["forward"], counts["backward"], counts["evaluation"]
        numbers = (
            forward["rows"],
            backward["rows"],
            forward["bytes"],
            backward["bytes"],
            whole["rows"],
            whole["bytes"],
        )
        print(f"| `{name}` | " + " | ".join(f"{number}" for number in numbers) + " |")
        found[name] = {"forward": {**forward}, "backward": {**backward}, "evaluation": {**whole}}  # type: ignore[dict-item]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", nargs="+", choices=KINDS, default=list(KINDS[1:]))
    parser.add_argument("--datasets", nargs="+", default=["cora", str(PHOTO)])
    parser.add_argument("--agents", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--large", action="store_true", help="memory on a large graph instead")
    parser.add_argument("--messages", action="store_true", help="rows and bytes of a step instead")
    parser.add_argument("--json", action="store_true", help="print one JSON object at the end")
    parser.add_argument("--memory-of", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.memory_of:
        return print_own_memory(options.datasets[0], options.layers[0], options.agents, options.memory_of)
    found: object
    if options.messages:
        found = list_messages(options.datasets[0], options.agents)
    elif options.large:
        found = compare_memory(options.layers, options.agents)
    else:
        found = {
            dataset: {kind: report(dataset, kind, options.agents, options.rounds) for kind in options.layers}
            for dataset in options.datasets
        }
    if options.json:
        print(json.dumps(found))


if __name__ == "__main__":
    main()
