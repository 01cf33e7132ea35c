"""Draws the README's picture: a data graph on its agents, the agents' own graph, and what training gives."""

import sys
from pathlib import Path

import numpy as np
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from sklearn.manifold import TSNE

import gossamer
from gossamer.report.curves import COLOURS, LABELS, save_figure

target = Path(sys.argv[1] if len(sys.argv) > 1 else "overview.png")
graph = gossamer.load("digits")
result = gossamer.train(graph, agents=10, steps=200)
owner, shared = result.run.deployment.assignment, result.run.deployment.shared_edges
place = TSNE(random_state=0).fit_transform(graph.features)
palette = ["#E69F00", "#56B4E9", "#009E73", "#F0E442", "#0072B2", "#D55E00", "#CC79A7", "#999999", "#332288", "#44AA99"]

figure = Figure(figsize=(13, 4.2), layout="constrained")
data, agents, curves = figure.subplots(1, 3)

ends = place[graph.edges]
crossing = owner[graph.edges[:, 0]] != owner[graph.edges[:, 1]]
data.add_collection(LineCollection(ends[~crossing], colors="#BBBBBB", linewidths=0.3, zorder=1))
data.add_collection(LineCollection(ends[crossing], colors="#333333", linewidths=0.4, alpha=0.6, zorder=2))
data.scatter(*place.T, c=[palette[k] for k in owner], s=7, linewidths=0, zorder=3)
data.set_title("The data graph, coloured by agent")

angle = 2 * np.pi * np.arange(10) / 10
seat = np.stack([np.cos(angle), np.sin(angle)], axis=1)
for k, z in zip(*np.nonzero(np.triu(shared)), strict=True):
    agents.plot(*seat[[k, z]].T, color="#777777", linewidth=0.4 + 5 * shared[k, z] / shared.max(), zorder=1)
agents.scatter(*seat.T, c=palette, s=60 + np.bincount(owner) * 2, edgecolors="black", linewidths=0.6, zorder=2)
agents.margins(0.15)
agents.set_aspect("equal")
agents.set_title("The agents, linked where they share edges")

for name, history in (
    ("graphless", result.baseline_histories["graphless"]),
    ("centralised", result.baseline_histories["centralised"]),
    ("distributed", result.run.history),
):
    curves.plot(
        [r["step"] for r in history],
        [r["test"]["accuracy"] for r in history],
        color=COLOURS[name],
        linewidth=2,
        label=LABELS[name],
    )
curves.set(title="Test accuracy while training", xlabel="step", ylim=(0, 1))
curves.legend(frameon=False, loc="lower right", reverse=True)
curves.grid(alpha=0.25)
curves.spines[["top", "right"]].set_visible(False)
for axes in (data, agents):
    axes.axis("off")
save_figure(figure, target)
