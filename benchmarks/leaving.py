"""Accuracy of ten agents when 1, 2 or 3 of them leave, beside a run that never had them.

    GOSSAMER_DATA=... python benchmarks/leaving.py [--datasets cora citeseer] [--seeds 5] [--figure FILE.png] [--json]

The agents leave after a quarter of the steps, with their vertices, edges and labels; the others go on from there with
what they have learnt (gossamer peer with --evict-after). The other run has the same survivors with the same data, from
step 0. All other settings are the defaults. The seed decides split, assignment and who leaves: agents in random order,
but for those without whom the rest would not be connected. Accuracy is that of the survivors' test vertices, of the
weights that validation chooses. Differences are paired by seed, intervals are of 95 % by Student's t. All of it is
simulated in memory, by the machinery of gossamer replay; nothing is sent.
"""

import argparse
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse

import gossamer
from gossamer.experiments.trials import format_points, interval
from gossamer.peers.histories import TermTraining
from gossamer.peers.network.addresses import Contact
from gossamer.peers.protocol.terms import make_entries, name_term
from gossamer.peers.shards.cut_sites import cut_sites
from gossamer.peers.term_folders import Begin
from gossamer.replaying import SimulatedMember, train_members
from gossamer.runs.deployment import make_deployment
from gossamer.runs.memory import keep_memory
from gossamer.runs.settings import make_settings

AGENTS, MOST_LEAVING, RUN = 10, 3, "leaving"
AIM = 0.01  # the survivors end at most so much below the run that never had the others
Accuracies = dict[int, dict[str, list[float]]]  # by number of agents that leave: of both runs, by seed


def choose_leaving(links: NDArray[np.bool_], seed: int) -> list[int]:
    """Agents to leave one after the other, so that the others stay connected."""
    leaving: list[int] = []
    for k in np.random.default_rng(seed).permutation(len(links)).tolist():
        rest = [z for z in range(len(links)) if z not in (*leaving, k)]
        if sparse.csgraph.connected_components(sparse.csr_array(links[np.ix_(rest, rest)]))[0] == 1:
            leaving.append(k)
        if len(leaving) == MOST_LEAVING:
            return leaving
    raise SystemExit(f"seed {seed}: no {MOST_LEAVING} agents can leave without cutting off others")


def measure(dataset: str, seed: int) -> dict[int, dict[str, float]]:
    """Accuracies of both runs by the number of agents that leave."""
    graph = gossamer.load(dataset, seed)
    given = {"dataset": dataset, "agents": AGENTS, "seed": seed, "evict_after": 0.0, "public_randomness": True}
    settings = make_settings(given)
    deployment = make_deployment(graph, settings)
    contacts = [Contact(f"127.0.0.1:{1 + k}", None) for k in range(AGENTS)]
    shards = dict(enumerate(cut_sites(graph, deployment, settings, RUN, contacts)))
    leaving, quarter = choose_leaving(deployment.links, seed), settings.steps // 4
    whole = name_term(RUN, 0, make_entries(range(AGENTS)))
    before = train_members(TermTraining(whole, Begin(), quarter), shards, None, {})
    found = {}
    for count in range(1, MOST_LEAVING + 1):
        rest = name_term(RUN, 1, make_entries(sorted(set(range(AGENTS)) - set(leaving[:count]))))
        left = train_members(TermTraining(rest, Begin(0, quarter)), shards, None, before)
        alone = train_members(TermTraining(rest, Begin()), shards, None, {})
        found[count] = {"left": read_accuracy(left), "never had": read_accuracy(alone)}
    return found


def read_accuracy(members: dict[int, SimulatedMember]) -> float:
    """Test accuracy of all members' vertices, with the weights that are kept."""
    member = next(iter(members.values()))
    scores = next(one.whole for one in member.records if one.step == member.kept.step)
    assert scores is not None
    return float(scores["test"]["accuracy"])


def differ(found: dict[str, list[float]]) -> NDArray[np.float64]:
    return np.subtract(found["left"], found["never had"], dtype=np.float64)


def show(dataset: str, accuracies: Accuracies) -> bool:
    """Print a table; return whether the aim is met."""
    print(f"\n| {dataset}: test accuracy, % | agents left | never had them | difference, points |")
    print("| --- | --- | --- | --- |")
    met = True
    for count, found in accuracies.items():
        difference = interval(differ(found))
        met &= difference[0] >= -AIM
        means = " | ".join(f"{100 * np.mean(found[kind]):.2f}" for kind in ("left", "never had"))
        print(f"| {count} of {AGENTS} leave | {means} | {format_points(*difference)} |")
    print(f"at most {100 * AIM:g} point below the run that never had them: {'met' if met else 'MISSED'}", flush=True)
    return met


def draw(path: Path, results: dict[str, Accuracies]) -> None:
    """Draw mean differences with their intervals, and each seed's."""
    from matplotlib.figure import Figure

    from gossamer.report.style import COLOURS, save_figure, tidy

    figure = Figure(figsize=(4.2 * len(results), 3.1), layout="constrained")
    panels = figure.subplots(1, len(results), squeeze=False, sharey=True)[0]
    for panel, (dataset, accuracies) in zip(panels, results.items(), strict=True):
        aim = panel.axhline(-100 * AIM, color="#888888", linestyle="--", linewidth=1)
        panel.axhline(0, color="black", linestyle=":", linewidth=1)
        for count, found in accuracies.items():
            points = 100 * differ(found)
            mean, low, high = interval(points)
            panel.plot([count + 0.12] * len(points), points, ".", color=COLOURS["distributed"], alpha=0.4)
            panel.errorbar(count, mean, [[mean - low], [high - mean]], fmt="o", color=COLOURS["distributed"], capsize=3)
        panel.set(title=dataset, xlabel=f"agents of {AGENTS} that leave", xlim=(0.5, MOST_LEAVING + 0.5))
        panel.set_xticks(list(accuracies))
        tidy(panel)
    panels[0].set_ylabel("test accuracy beside a run\nthat never had them, points")
    figure.legend([aim], [f"aim: at most {100 * AIM:g} point lost"], loc="outside lower center", frameon=False)
    save_figure(figure, path)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--datasets", nargs="+", default=["cora", "citeseer"])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--figure", type=Path)
    parser.add_argument("--json", action="store_true", help="print one JSON object at the end")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    results: dict[str, Accuracies] = {}
    with keep_memory():
        for dataset in options.datasets:
            results[dataset] = {count: {"left": [], "never had": []} for count in range(1, MOST_LEAVING + 1)}
            for seed in range(options.seeds):
                began = time.perf_counter()
                for count, one in measure(dataset, seed).items():
                    for kind, accuracy in one.items():
                        results[dataset][count][kind].append(accuracy)
                last = {count: f"{100 * differ(found)[-1]:+.1f}" for count, found in results[dataset].items()}
                print(f"{dataset}, seed {seed}: {last}, {time.perf_counter() - began:.0f} s", flush=True)
    met = [show(dataset, found) for dataset, found in results.items()]
    if options.figure is not None:
        draw(options.figure, results)
    if options.json:
        content: dict[str, Any] = {"agents": AGENTS, "met": all(met), "accuracies": results}
        print(json.dumps(content))


if __name__ == "__main__":
    main()
