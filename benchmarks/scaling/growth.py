"""Time of a step against vertices, edges and agents, beside a plain sparse product."""

from pathlib import Path
from typing import Any

import numpy as np

import gossamer
from gossamer.report.style import COLOURS, save_figure, tidy
from gossamer.runs.message_counts import between_hosts
from gossamer.runs.settings import make_settings
from scaling.measure import deployed, distributed, exponent, median_step, plain_product
from scaling.model import WIDTHS, work_of

HIDDEN = 32


def vertices(sizes: list[int], rounds: int) -> dict[str, Any]:
    """10 edges and 32 features a vertex, 64 agents."""
    return _against_product(sizes, [(n, 10 * n) for n in sizes], rounds)


def edges(num_vertices: int, per_vertex: list[int], rounds: int) -> dict[str, Any]:
    """So many edges a vertex, 64 agents."""
    sizes = [num_vertices * d for d in per_vertex]
    return _against_product(sizes, [(num_vertices, size) for size in sizes], rounds)


def _against_product(sizes: list[int], graphs: list[tuple[int, int]], rounds: int) -> dict[str, Any]:
    """Seconds of a step and of a plain product on graphs of so many vertices and edges."""
    step, product, work = [], [], []
    for vertices_, edges_ in graphs:
        graph = gossamer.load(f"blocks:vertices={vertices_},edges={edges_},features=32,classes=8")
        product.append(median_step(plain_product(graph, HIDDEN), rounds))
        _, host = deployed(graph, 64, HIDDEN)
        work.append(work_of(host))
        step.append(median_step(distributed(host), rounds))
    found = {"sizes": sizes, "step": step, "product": product, "work": work}
    return found | _exponents(found)


def agents(num_vertices: int, numbers: list[int], rounds: int) -> dict[str, Any]:
    """10 edges and 32 features a vertex."""
    graph = gossamer.load(f"blocks:vertices={num_vertices},edges={10 * num_vertices},features=32,classes=8")
    step, weights, work = [], [], []
    for m in numbers:
        _, host = deployed(graph, m, HIDDEN)
        weights.append(sum(part.numel() for part in host.params.values()))
        work.append(work_of(host))
        step.append(median_step(distributed(host), rounds))
    found = {"sizes": numbers, "step": step, "weights": weights, "work": work}
    return found | {"step_exponent": exponent(numbers, step)}


def widths(num_vertices: int, numbers: list[tuple[int, int]], rounds: int) -> dict[str, Any]:
    """So many features and hidden units, 64 agents, 10 edges a vertex; for the cost model, not for an exponent."""
    step, work = [], []
    for features, hidden in numbers:
        graph = gossamer.load(f"blocks:vertices={num_vertices},edges={10 * num_vertices},features={features},classes=8")
        _, host = deployed(graph, 64, hidden)
        work.append(work_of(host))
        step.append(median_step(distributed(host), rounds))
    return {"step": step, "work": work}


def border(num_vertices: int) -> tuple[float, float]:
    """Of a graph with 10 edges a vertex on 64 agents: bytes of forward rows for each edge, with the widths of the cost
    model's predictions, and the share of the first layer's rows that the labelled vertices need."""
    features, hidden, classes = WIDTHS
    graph = gossamer.load(
        f"blocks:vertices={num_vertices},edges={10 * num_vertices},features={features},classes={classes}"
    )
    deployment, host = deployed(graph, 64, hidden)
    sent = between_hosts(deployment, make_settings({"preset": "paper", "agents": 64}), np.arange(64))["forward"]
    return sent / graph.num_edges, host.train_pass.plan.layers[0].sizes[0] / num_vertices


def _exponents(found: dict[str, Any]) -> dict[str, Any]:
    sizes = found["sizes"]
    late = slice(-2, None)
    return {
        "step_exponent": exponent(sizes, found["step"]),
        "product_exponent": exponent(sizes, found["product"]),
        "late_step_exponent": exponent(sizes[late], found["step"][late]),
        "late_product_exponent": exponent(sizes[late], found["product"][late]),
    }


def show(title: str, found: dict[str, Any]) -> None:
    print(f"\nstep against {title}")
    for number, size in enumerate(found["sizes"]):
        line = f"  {size:>10,}  {1e3 * found['step'][number]:9.1f} ms"
        if "product" in found:
            line += f"   plain sparse product {1e3 * found['product'][number]:9.1f} ms"
        if "weights" in found:
            line += f"   {found['weights'][number]:>10,} weights"
        print(line)
    print(f"  exponent {found['step_exponent']:.2f}", end="")
    if "product" in found:
        print(
            f" (plain product {found['product_exponent']:.2f}); between the last two {found['late_step_exponent']:.2f} "
            f"(plain product {found['late_product_exponent']:.2f})",
            end="",
        )
    print()


def plot(found: dict[str, dict[str, Any]], path: Path) -> None:
    """Draw seconds against each of the sizes, log-log, a panel for each."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.2 * len(found), 3.8), layout="constrained")
    panels = figure.subplots(1, len(found), squeeze=False)[0]
    for axes, (title, one) in zip(panels, found.items(), strict=True):
        label = f"step, exponent {one['step_exponent']:.2f}"
        axes.loglog(one["sizes"], one["step"], "o-", color=COLOURS["distributed"], label=label)
        if "product" in one:
            label = f"plain sparse product, exponent {one['product_exponent']:.2f}"
            axes.loglog(one["sizes"], one["product"], "s--", color=COLOURS["graphless"], label=label)
        axes.set_xticks(one["sizes"], [_shorten(size) for size in one["sizes"]])
        axes.set_xticks([], minor=True)
        low, high = axes.get_ylim()
        axes.set_ylim(min(low, high / 30), high * 3)  # at least a decade and a half, so that a flat curve looks flat
        axes.set(title=f"{title} grow", xlabel=title, ylabel="processor seconds")
        axes.legend(frameon=False, loc="upper left", fontsize=9)
    tidy(*panels)
    save_figure(figure, path)


def _shorten(size: int) -> str:
    """Write a number as 4, 500k or 2M."""
    for unit, letter in ((1_000_000, "M"), (1_000, "k")):
        if size >= unit:
            return f"{size / unit:g}{letter}"
    return str(size)
