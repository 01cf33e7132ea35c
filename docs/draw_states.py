"""Draw the states of an agent whose run may change its members: python docs/draw_states.py [docs/images/states.png]

The words are those of `gossamer status`; docs/deployment.md explains them.
"""

import sys
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

from gossamer.report.style import save_figure, text_colour
from gossamer.report.timeline import STANDINGS

TARGET = Path(__file__).parent / "images" / "states.png"
INK, ENDED, WIDTH, HEIGHT = "#333333", "#FFFFFF", 1.9, 0.8
STATES = {  # place, colour (that of `gossamer launch --script`'s pictures), exit code of a process that ends in it
    "joining": ((2.6, 2.6), STANDINGS["joining"][0], None),
    "member": ((8.0, 2.6), STANDINGS["member"][0], None),
    "split": ((5.3, 4.9), STANDINGS["split"][0], None),
    "leaving": ((11.6, 4.0), STANDINGS["leaving"][0], None),
    "left": ((15.2, 4.0), ENDED, 0),
    "finished": ((15.2, 1.2), ENDED, 0),
    "outside": ((2.6, 0.2), ENDED, 6),
}
CHANGES = [  # from, to, cause, curvature, place of the text relative to the middle
    ("joining", "member", "all neighbours admit its key,\na majority decides", 0.24, (0.35, -1.15)),
    ("member", "joining", "silent for evict_after,\nand back", 0.24, (0.0, 0.1)),
    ("member", "split", "no majority\nreachable", 0.2, (1.05, 0.4)),
    ("split", "member", "the network\nheals", 0.2, (-1.45, -0.05)),
    ("split", "joining", "the others have\ngone on without it", 0.15, (-1.55, 0.4)),
    ("member", "leaving", "gossamer leave", 0.0, (0.95, -0.3)),
    ("leaving", "left", "a majority\ndecides", 0.0, (0.0, 0.42)),
    ("member", "finished", "all have finished", 0.0, (0.2, 0.35)),
    ("joining", "outside", "the run\nhas finished", 0.0, (0.9, 0.0)),
]
STARTS = [
    ("member", (8.0, 0.75), "gossamer peer,\nfrom the start"),
    ("joining", (0.35, 2.6), "gossamer peer\nof a new site"),
]


def draw_state(axes: Any, name: str) -> Any:
    """Draw a state, with a second frame if it is a last one; return its box, where arrows end."""
    (x, y), colour, code = STATES[name]
    corner = (x - WIDTH / 2, y - HEIGHT / 2)
    box = FancyBboxPatch(
        corner, WIDTH, HEIGHT, "round,pad=0,rounding_size=0.25", facecolor=colour, edgecolor=INK, lw=1.4
    )
    axes.add_patch(box)
    if code is not None:
        inner = FancyBboxPatch(
            (corner[0] + 0.08, corner[1] + 0.08),
            WIDTH - 0.16,
            HEIGHT - 0.16,
            "round,pad=0,rounding_size=0.2",
            facecolor="none",
            edgecolor=INK,
            lw=0.8,
        )
        axes.add_patch(inner)
        axes.text(x, y - 0.16, f"exit code {code}", ha="center", va="center", fontsize=8.5, color=INK)
    ink = text_colour(colour)
    axes.text(
        x, y + (0.13 if code is not None else 0), name, ha="center", va="center", fontsize=12, weight="bold", color=ink
    )
    return box


def draw_arrow(axes: Any, start: tuple[float, float], end: tuple[float, float], bend: float, **ends: Any) -> None:
    arrow = FancyArrowPatch(
        start, end, connectionstyle=f"arc3,rad={bend}", arrowstyle="-|>", mutation_scale=15, color=INK, lw=1.4, **ends
    )
    axes.add_patch(arrow)


def main() -> None:
    figure = Figure(figsize=(11, 4.1), layout="constrained")
    axes = figure.subplots()
    boxes = {name: draw_state(axes, name) for name in STATES}
    for name, end, cause, bend, (right, up) in CHANGES:
        first, last = STATES[name][0], STATES[end][0]
        draw_arrow(axes, first, last, bend, patchA=boxes[name], patchB=boxes[end], shrinkA=2, shrinkB=2)
        middle = ((first[0] + last[0]) / 2 + right, (first[1] + last[1]) / 2 + up)
        axes.text(*middle, cause, ha="center", va="center", fontsize=9, color=INK)
    for name, place, cause in STARTS:
        axes.plot(*place, "o", color=INK, markersize=9)
        draw_arrow(axes, place, STATES[name][0], 0.0, patchB=boxes[name], shrinkA=6, shrinkB=2)
        below = name == "member"
        axes.text(
            place[0] + (0.25 if below else 0),
            place[1] + (-0.05 if below else 0.62),
            cause,
            ha="left" if below else "center",
            va="center",
            fontsize=9,
            color=INK,
        )
    axes.set(xlim=(-0.7, 16.4), ylim=(-0.4, 5.5), aspect="equal")
    axes.axis("off")
    save_figure(figure, Path(sys.argv[1]) if len(sys.argv) > 1 else TARGET)


if __name__ == "__main__":
    main()
