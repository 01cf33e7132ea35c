"""Draw the README's picture after Fig. 1: a data graph on its agents and the three exchanges of a training step."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.collections import LineCollection
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch
from scipy.spatial import ConvexHull

from gossamer import topology
from gossamer.agents.links import factor
from gossamer.assignment import assign_to_nearest, shared_edges
from gossamer.data import make_graph
from gossamer.report.style import agent_colour, save_figure

target = Path(sys.argv[1] if len(sys.argv) > 1 else "overview.png")

# Sensors on a jittered grid, joined where no third one lies in the circle between two; each reports to a base station.
grid = np.stack(np.meshgrid(np.linspace(-1, 1, 5), np.linspace(-1, 1, 5)), axis=-1).reshape(-1, 2)
sensors = grid + np.random.default_rng(5943).uniform(-0.2, 0.2, grid.shape)
apart = ((sensors[:, None] - sensors) ** 2).sum(-1)
edges = np.argwhere(np.triu((apart[:, :, None] <= apart[:, None, :] + apart).all(-1), 1))
n, every = len(sensors), np.ones(len(sensors), dtype=bool)
graph = make_graph("sensors", edges, sensors, np.zeros(n), train=every, validation=~every, test=~every)
stations = np.array([(-1, 1), (1, 1), (1, -1), (-1, -1)])
m = len(stations)
owner = assign_to_nearest(sensors, stations)

# What the agents make of it: links, mixing weights, and the rows that a propagation sends over the links.
B = shared_edges(graph, owner, m)
made = topology.certify_design(topology.design(B))
i, j = np.concatenate([graph.edges, graph.edges[:, ::-1]]).T
inside = owner[i] == owner[j]
to, at = i[~inside], j[~inside]
rows = sum(count for _, count in factor(to, at, np.ones(len(to)), owner[to], owner[at]).counts)
active = max(range(n), key=lambda v: (len(set(owner[j[i == v]])), inside[i == v].sum()))  # has the most agents around

EDGE = np.array([agent_colour(k) for k in range(m)])
FILL = np.array([tuple(0.2 * part + 0.8 for part in to_rgb(colour)) for colour in EDGE])  # the same, on white
ACTIVE, DARK, FAINT = "#D55E00", "#333333", "#B5B5B5"
place = sensors + 0.3 * stations[owner]  # the agents a little apart
outermost = [max(np.flatnonzero(owner == k), key=lambda v: place[v] @ stations[k]) for k in range(m)]


def draw_agents(axes: Any, places: np.ndarray, size: float, fontsize: float) -> None:
    axes.scatter(*places.T, s=size, c=FILL, edgecolors=EDGE, linewidths=fontsize / 6, zorder=7)
    for k in range(m):
        axes.text(*places[k], k, fontsize=fontsize, weight="bold", ha="center", va="center_baseline", zorder=8)


def draw_graph(axes: Any, across: dict[str, Any]) -> None:
    """Draw the agents' regions, the data edges (those between agents in the style `across`) and the vertices."""
    for k in range(m):
        hull = place[owner == k][ConvexHull(place[owner == k]).vertices]
        for width, colour in ((33, EDGE[k]), (30, FILL[k])):
            axes.fill(*hull.T, facecolor=colour, edgecolor=colour, linewidth=width, joinstyle="round")
    lines = place[np.stack([i, j], axis=1)]
    axes.add_collection(LineCollection(lines[inside], colors=FAINT, linewidths=1.2))
    axes.add_collection(LineCollection(lines[~inside], **across))
    fill = np.where(np.isin(np.arange(n), to), EDGE[owner], "white")
    axes.scatter(*place.T, s=75, c=fill, edgecolors=EDGE[owner], linewidths=1.8, zorder=4)
    draw_agents(axes, place[outermost] + 0.19 * stations, 420, 15)


def draw_arrow(axes: Any, tail: Any, head: Any, style: str, shrink: tuple[float, float], **look: Any) -> None:
    axes.add_patch(FancyArrowPatch(tail, head, arrowstyle=style, shrinkA=shrink[0], shrinkB=shrink[1], **look))


def draw_messages(axes: Any, back: bool) -> None:
    """Draw the messages that make the active vertex's output, or those of its gradient."""
    draw_graph(axes, {"colors": FAINT, "linewidths": 1.2})
    for v, here in zip(j[i == active], inside[i == active], strict=True):
        style = "<|-" if back else "-|>"
        width, head, colour = (1.8, 15, DARK) if here else (4.5, 24, ACTIVE)
        draw_arrow(axes, place[v], place[active], style, (6, 9), lw=width, mutation_scale=head, color=colour, zorder=5)
    axes.scatter(*place[active], s=230, c=ACTIVE, edgecolors="black", linewidths=2, zorder=6)


def draw_consensus(axes: Any) -> None:
    seat = 0.95 * stations
    for k, z in np.argwhere(np.triu(made.links)):
        draw_arrow(axes, seat[k], seat[z], "<|-|>", (27, 27), lw=3.5, mutation_scale=24, color=DARK)
        middle, (x, y) = (seat[k] + seat[z]) / 2, seat[z] - seat[k]
        beside = 0.41 * np.array([-y, x]) / np.hypot(x, y)
        spot = max(middle + beside, middle - beside, key=lambda p: (round(np.hypot(*p), 3), p[1]))
        label = f"$C_{{{k}{z}}}$\n{made.combination[k, z]:.2f}"
        axes.text(*spot, label, fontsize=17, ha="center", va="center")
    draw_agents(axes, seat, 2300, 20)


figure = Figure(figsize=(13, 4.8), dpi=140)
panels = figure.subplots(1, 4)
figure.subplots_adjust(left=0.004, right=0.996, bottom=0.13, top=0.84, wspace=0.02)
draw_graph(panels[0], {"colors": DARK, "linewidths": 2.2})
draw_messages(panels[1], back=False)
draw_messages(panels[2], back=True)
draw_consensus(panels[3])
k, z = np.argwhere(np.triu(~made.links, 1))[0]
words = (
    ("the data graph", "on its agents", f"{n} vertices, {len(edges)} edges,\n{B.sum() // 2} between agents"),
    ("1  inference", "boundary rows forward", f"{rows} rows over {made.links.sum() // 2} links,\nonce per propagation"),
    ("2  back-propagation", "the same links, reversed", f"{rows} rows back,\nexact gradients"),
    ("3  consensus", "weights mixed by C", f"{k} and {z} share no edge:\nno link, $C_{{{k}{z}}} = 0$"),
)
for axes, (title, subtitle, note) in zip(panels, words, strict=True):
    axes.set(xlim=(-1.78, 1.78), ylim=(-1.78, 1.85), aspect="equal")
    axes.axis("off")
    axes.text(0.5, 1.115, title, fontsize=18, weight="bold", ha="center", transform=axes.transAxes)
    axes.text(0.5, 1.02, subtitle, fontsize=16, ha="center", transform=axes.transAxes)
    axes.text(0.5, -0.018, note, fontsize=15, ha="center", va="top", transform=axes.transAxes)
save_figure(figure, target)
