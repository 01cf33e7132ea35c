"""Figures of several panels: curves as mean and standard deviation over seeds, and bars; one legend for all."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from gossamer.report.style import COLOURS, save_figure, tidy

# One method, one colour in every figure; ordered variants have shades of cividis.
SIZE_COLOURS = {5: "#56B4E9", 10: COLOURS["distributed"], 15: "#009E73", 20: "#CC79A7"}
RULE_COLOURS = {"gd": COLOURS["distributed"], "momentum": "#E69F00", "adam": "#009E73"}


@dataclass(frozen=True)
class Line:
    """Curves of one method: values [seeds, evaluations] at these steps."""

    label: str
    colour: str
    steps: ArrayLike
    values: ArrayLike
    style: str = "-"


@dataclass(frozen=True)
class Bar:
    """Bar of one method: a value for each seed."""

    label: str
    colour: str
    values: ArrayLike


@dataclass(frozen=True)
class Panel:
    """One plot of a figure."""

    title: str
    contents: Sequence[Line] | Sequence[Bar]
    ylabel: str = ""
    xlabel: str = "iteration"
    logarithmic: bool = False
    logarithmic_steps: bool = False  # without step 0
    low: float | None = None  # lower end of the vertical axis
    high: float | None = None
    level: float | None = None  # a dotted horizontal line


def shades(count: int) -> list[str]:
    """Colours for ordered variants, dark to light."""
    from matplotlib import colormaps
    from matplotlib.colors import to_hex

    return [to_hex(colour) for colour in colormaps["cividis"](np.linspace(0.15, 0.9, count))]


def draw_panels(target: Path, rows: Sequence[Sequence[Panel]]) -> list[str]:
    """Draw a grid of panels with one legend to `target`.png and .pdf; return the names of the files."""
    from matplotlib.figure import Figure

    width = max(len(row) for row in rows)
    figure = Figure(figsize=(max(5.5, 4.2 * width), 3.1 * len(rows) + 0.5), layout="constrained")
    grid = figure.subplots(len(rows), width, squeeze=False)
    handles: dict[str, Any] = {}
    for row, places in zip(rows, grid, strict=True):
        for panel, axes in zip(row, places, strict=False):
            for item in panel.contents:
                if isinstance(item, Line):
                    handles.setdefault(item.label, _line(axes, item, panel.logarithmic))
            bars = [item for item in panel.contents if isinstance(item, Bar)]
            if bars:
                _bars(axes, bars)
            if panel.level is not None:
                axes.axhline(panel.level, linestyle=":", color="black", linewidth=1)
            axes.set(title=panel.title, ylabel=panel.ylabel, xlabel="" if bars else panel.xlabel)
            if panel.logarithmic:
                axes.set_yscale("log")
            if panel.logarithmic_steps:
                axes.set_xscale("log")
            axes.set_ylim(bottom=panel.low, top=panel.high)
            tidy(axes)
            if bars:
                axes.grid(visible=False, axis="x")
        for axes in places[len(row) :]:
            axes.axis("off")
    if len(handles) > 1:
        figure.legend(
            handles.values(),
            handles.keys(),
            loc="outside lower center",
            ncols=math.ceil(len(handles) / math.ceil(len(handles) / (2 * width))),
            frameon=False,
        )
    files = []
    for suffix in (".png", ".pdf"):
        path = target.with_suffix(suffix)
        save_figure(figure, path)
        files.append(path.name)
    return files


def _line(axes: Any, line: Line, logarithmic: bool) -> Any:
    """Draw the mean over seeds with a band of one standard deviation; on a logarithmic axis both of the logarithm,
    clipped at 1e-7, the resolution of float32."""
    values = np.asarray(line.values, dtype=np.float64)
    if logarithmic:
        values = np.log(np.maximum(values, 1e-7))
    mean, spread = values.mean(0), values.std(0)
    low, high = mean - spread, mean + spread
    if logarithmic:
        mean, low, high = np.exp(mean), np.exp(low), np.exp(high)
    axes.fill_between(line.steps, low, high, color=line.colour, alpha=0.18, linewidth=0)
    return axes.plot(line.steps, mean, line.style, color=line.colour, linewidth=1.6, label=line.label)[0]


def _bars(axes: Any, bars: Sequence[Bar]) -> None:
    for place, bar in enumerate(bars):
        values = np.asarray(bar.values, dtype=np.float64)
        axes.bar(place, values.mean(), yerr=values.std(), color=bar.colour, width=0.7, capsize=3, ecolor="#444444")
    axes.set_xticks(range(len(bars)), [bar.label for bar in bars])
