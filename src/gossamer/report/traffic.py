"""Picture of Table II: test errors of traffic models, distributed and centralised, and references."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gossamer.report.style import COLOURS, LABELS, save_figure, tidy

TestErrors = Mapping[str, Mapping[str, NDArray[np.float64]]]  # by model and method, an error for each seed


def draw_table2(out: Path, found: Mapping[str, TestErrors], marks: Mapping[str, Mapping[str, float]]) -> list[str]:
    """Draw a panel for each data set, a row for each model; dots are means, bars go from the least to the largest
    error. `marks` are errors that need no training, vertical lines."""
    from matplotlib.figure import Figure

    rows = max(len(errors) for errors in found.values())
    figure = Figure(figsize=(6.4 * len(found), 1.5 + 0.55 * rows), layout="constrained")
    panels = figure.subplots(1, len(found), squeeze=False)[0]
    for axes, (dataset, errors) in zip(panels, found.items(), strict=True):
        for row, methods in enumerate(errors.values()):
            for method, values in methods.items():
                height = row + (0.12 if method == "centralised" else -0.12) * (len(methods) > 1)
                colour = COLOURS[method]
                axes.hlines(height, values.min(), values.max(), color=colour, linewidth=5, alpha=0.35)
                axes.plot(values.mean(), height, "o", color=colour, label=LABELS[method] if row == 0 else None)
                axes.annotate(
                    f"{values.mean():.4f}",
                    (values.mean(), height),
                    xytext=(9, 0),
                    textcoords="offset points",
                    va="center",
                    fontsize=8,
                    color=colour,
                    bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.5},
                )
        for (name, value), style in zip(marks[dataset].items(), ("--", ":"), strict=True):
            axes.axvline(value, linestyle=style, color=COLOURS["graphless"], label=name, zorder=0)
        axes.set_xscale("log")
        low, high = axes.get_xlim()
        low, high = 0.9 * low, 1.4 * high  # room for the last number
        ticks = [tick for tick in (0.02, 0.03, 0.05, 0.1, 0.2, 0.3, 0.5, 1.0) if low <= tick <= high]
        axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        axes.set_xticks([], minor=True)
        axes.set_xlim(low, high)
        axes.set_yticks(range(len(errors)), list(errors))
        axes.set(title=dataset, xlabel="test mean squared error (z-scored flow)", ylim=(len(errors) - 0.5, -0.5))
        tidy(axes)
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=2, frameon=False)
    for suffix in ("png", "pdf"):
        save_figure(figure, out / f"table2.{suffix}")
    return ["table2.png", "table2.pdf"]
