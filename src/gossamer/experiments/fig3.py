"""Fig. 3 and Table I: NN, GCN and dGCN with 5 to 20 agents on CORA, CITESEER and PUBMED (Sec. V-A, V-B)."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from gossamer.assignment import assign, shared_edges
from gossamer.data import load
from gossamer.experiments.reproduction import Claim, ExperimentProgress, Outcome
from gossamer.experiments.setup import CITATION_DATASETS, NUMBERS_OF_AGENTS, STEP_SIZES, citation_trial
from gossamer.experiments.trials import (
    FigureCurves,
    Trial,
    fail_diverged,
    final,
    format_points,
    format_steps,
    interval,
    run_plan,
    stack,
    steps_of,
    steps_to,
)
from gossamer.report.panels import SIZE_COLOURS, Line, Panel, draw_panels
from gossamer.report.style import COLOURS

TABLE1 = {  # vertices, edges, training labels, classes, features
    "citeseer": (2110, 3668, 120, 6, 3703),
    "cora": (2810, 7981, 140, 7, 2879),
    "pubmed": (19717, 44324, 60, 3, 500),
}
CENTRALISED_MODELS = {"NN": "graphless", "GCN": "centralised"}
SLOWED = "GCN, dGCN's step size"  # tells what a smaller stable step size costs from what the distribution costs


def reproduce(out: Path, quick: bool, seeds: int, progress: ExperimentProgress) -> Outcome:
    """Train everything, draw Fig. 3 a-f and the disagreement, and check what Sec. V-A and V-B say of them."""
    datasets = ("citeseer",) if quick else CITATION_DATASETS
    agents = (5, 20) if quick else NUMBERS_OF_AGENTS
    shorter: Trial = {"steps": 200} if quick else {}
    plan = {}
    for dataset in datasets:
        for seed in range(seeds):
            for name, method in CENTRALISED_MODELS.items():
                plan[dataset, name, seed] = citation_trial(dataset, method, seed, **shorter)
            size = STEP_SIZES[dataset]["distributed"]
            if size != STEP_SIZES[dataset]["centralised"]:
                plan[dataset, SLOWED, seed] = citation_trial(dataset, "centralised", seed, **shorter, step_size=size)
            for m in agents:
                plan[dataset, dgcn(m), seed] = citation_trial(dataset, "distributed", seed, agents=m, **shorter)
    found = run_plan(out, "fig3", plan, progress)
    colours = {name: COLOURS[method] for name, method in CENTRALISED_MODELS.items()} | {SLOWED: COLOURS["centralised"]}
    colours |= {dgcn(m): SIZE_COLOURS[m] for m in agents}
    claims = [_table1(datasets), _random_partition(datasets), _gcn_above_nn(found), _same_accuracy(found, agents)]
    claims += [*_same_loss(found, agents), _agreement(found, agents)]
    return Outcome("fig3", fail_diverged(claims, found), ["fig3.csv", *_draw(out, found, colours, agents)])


def dgcn(agents: int) -> str:
    return f"dGCN, {agents} agents"


def _draw(out: Path, found: FigureCurves, colours: dict[str, str], agents: Sequence[int]) -> list[str]:
    def lines(dataset: str, what: str, methods: Sequence[str]) -> list[Line]:
        curves = found[dataset]
        return [
            Line(name, colours[name], steps_of(curves[name]), stack(curves[name], what), ":" if name == SLOWED else "-")
            for name in methods
            if name in curves
        ]

    letter = iter("abcdef")
    loss = [
        Panel(f"({next(letter)}) {d.upper()}", lines(d, "loss", list(colours)), "training loss", logarithmic=True)
        for d in found
    ]
    accuracy = [
        Panel(f"({next(letter)}) {d.upper()}", lines(d, "test", list(colours)), "test accuracy", low=0.3) for d in found
    ]
    apart = [
        Panel(
            d.upper(),
            lines(d, "disagreement", [dgcn(m) for m in agents]),
            "disagreement",
            logarithmic=True,
            level=1e-2,
        )
        for d in found
    ]
    return [*draw_panels(out / "fig3", [loss, accuracy]), *draw_panels(out / "fig3_disagreement", [apart])]


def _table1(datasets: Sequence[str]) -> Claim:
    counts = {}
    for name in datasets:
        graph = load(name, 0)
        labels = int(graph.train.sum())
        counts[name] = (graph.num_vertices, graph.num_edges, labels, graph.num_classes, graph.num_features)
    return Claim(
        "Table I: vertices, edges, training labels, classes, features",
        "; ".join(f"{name.upper()} {', '.join(map(str, row))}" for name, row in counts.items()),
        all(counts[name] == TABLE1[name] for name in datasets),
    )


def _random_partition(datasets: Sequence[str]) -> Claim:
    """20 agents with vertices drawn uniformly: which pairs share an edge."""
    shares = {}
    for name in datasets:
        graph = load(name, 0)
        pairs = [
            shared_edges(graph, assign(graph, "uniform", 20, seed), 20)[np.triu_indices(20, 1)] for seed in range(5)
        ]
        shares[name] = float((np.array(pairs) > 0).mean())
    return Claim(
        "a random partition gives a fully connected network even for 20 agents (V-A)",
        ", ".join(f"{100 * share:.1f} % of the pairs on {name.upper()}" for name, share in shares.items()),
        min(shares.values()) > 0.99,
    )


def _gcn_above_nn(found: FigureCurves) -> Claim:
    gains = {d: interval(final(curves["GCN"], "test") - final(curves["NN"], "test")) for d, curves in found.items()}
    return Claim(
        "GCN clearly outperforms NN in test accuracy (V-B)",
        "; ".join(f"{d.upper()} {format_points(*gain)}" for d, gain in gains.items()) + " points",
        all(low > 0.03 for _, low, _ in gains.values()),
    )


def _same_accuracy(found: FigureCurves, agents: Sequence[int]) -> Claim:
    parts, good = [], True
    for dataset, curves in found.items():
        gcn = final(curves["GCN"], "test")
        changes = {m: interval(final(curves[dgcn(m)], "test") - gcn) for m in agents}
        good &= all(abs(mean) < 0.01 for mean, _, _ in changes.values())
        by_agents = ", ".join(f"{m} agents {format_points(*change)}" for m, change in changes.items())
        parts.append(f"{dataset.upper()} (GCN {100 * gcn.mean():.1f} %): {by_agents}")
    return Claim("dGCN matches the accuracy of GCN: within 1 point in the mean (V-B)", "; ".join(parts), good)


def _same_loss(found: FigureCurves, agents: Sequence[int], level: float = 0.1) -> list[Claim]:
    """Iterations to a level of the loss, against GCN with its own step size and with dGCN's."""
    claims = []
    for name, how in (("GCN", "each with its tuned step size"), (SLOWED, "with one step size")):
        parts, good = [], True
        for dataset, curves in found.items():
            alone = steps_to(curves.get(name, curves["GCN"]), level)
            together = [steps_to(curves[dgcn(m)], level) for m in agents]
            parts.append(f"{dataset.upper()} {alone:.0f} against {format_steps(together)}")
            good &= max(together) < 1.3 * alone
        measured = f"iterations to a loss of {level}, GCN against dGCN by agents: " + "; ".join(parts)
        claims.append(Claim(f"dGCN follows GCN's training loss closely, {how} (V-B)", measured, good))
    return claims


def _agreement(found: FigureCurves, agents: Sequence[int]) -> Claim:
    parts, good = [], True
    for dataset, curves in found.items():
        apart = np.array([stack(curves[dgcn(m)], "disagreement").mean(0) for m in agents])
        steps = np.array(steps_of(curves[dgcn(agents[0])]))
        from_here = min(300, int(steps[-1]))
        late = float(apart[:, steps >= from_here].max())
        parts.append(f"{dataset.upper()} {apart[:, 0].max():.1e} at first, {apart.max():.1e} at most, {late:.1e} late")
        good &= late < 1e-2
    return Claim(
        "the agents' weights differ by less than 1e-2 within 200-300 iterations (V-B)",
        "; ".join(parts) + f" (from iteration {from_here} on)",
        good,
    )
