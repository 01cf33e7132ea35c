"""Picture of an audit: vertices' features beside what the attack made of them."""

import math
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from gossamer.array_types import Floats
from gossamer.report.style import COLOURS, agent_colour, save_figure, text_colour

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from gossamer.data.standardisation import Transform
    from gossamer.privacy.features import FeatureAttack

SHOWN = 12  # vertices
MOST_BARS = 40  # features that a row of bars has room for


def draw_reconstructions(path: Path, attack: "FeatureAttack", name: str, transform: "Transform | None") -> None:
    """Draw originals above reconstructions and the decoder's guesses, in the units of the data: as images where the
    number of features is a square, else the features with the largest entries as bars."""
    from matplotlib.figure import Figure

    ordered = sorted(attack.reconstructions, key=lambda one: (one.estimate is None, not one.succeeded))
    found, tried = attack.count()
    failed = max(1, round(SHOWN * (1 - found / tried))) if tried and found < tried else 0
    chosen = [*ordered[: SHOWN - failed], *ordered[::-1][:failed][::-1]][: len(ordered)]
    figure = Figure(figsize=(1.1 * max(len(chosen), 3) + 1.2, 4.2), layout="constrained")
    figure.suptitle(f"{name}: {found} of {tried} vertices reconstructed", fontsize=10)
    if chosen:
        grid = figure.subplots(3, len(chosen), squeeze=False)
        for column, one in enumerate(chosen):
            rows = [_restore(part, transform) for part in (one.original, one.estimate, one.decoded)]
            for row, features in enumerate(rows):
                axes = grid[row][column]
                axes.set(xticks=[], yticks=[])
                if column == 0:
                    label = ("original", "reconstruction", "decoder")[row]
                    axes.set_ylabel(label, fontsize=8)
                if features is None:
                    axes.text(0.5, 0.5, "none", ha="center", va="center", transform=axes.transAxes, fontsize=8)
                else:
                    _draw(axes, features, rows[0])
            box = {"facecolor": agent_colour(one.sender), "edgecolor": "none", "pad": 2.0}
            name = f"agent {one.sender}\nvertex {one.vertex}"
            grid[0][column].set_title(name, fontsize=7, color=text_colour(agent_colour(one.sender)), bbox=box)
    save_figure(figure, path)


def _restore(features: Floats | None, transform: "Transform | None") -> Floats | None:
    """Features before they were standardised."""
    if features is None or transform is None:
        return features
    return features * transform.feature_scale + transform.feature_offset


def _draw(axes: "Axes", features: Floats, original: Floats | None) -> None:
    original = features if original is None else original
    side = math.isqrt(len(features))
    low, high = float(original.min()), float(original.max())
    if side > 2 and side * side == len(features):
        axes.imshow(features.reshape(side, side), cmap="gray_r", vmin=low, vmax=high)
        return
    shown = np.sort(np.argsort(-np.abs(original), kind="stable")[:MOST_BARS])
    axes.bar(np.arange(len(shown)), features[shown], color=COLOURS["distributed"])
    margin = 0.1 * (high - low) or 1.0
    axes.set_ylim(min(low, 0.0) - margin, high + margin)
