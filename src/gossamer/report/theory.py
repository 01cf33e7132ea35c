"""Picture of Theorem 2: disagreement and stationarity under constant and diminishing step sizes, and bounds."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gossamer.report.style import COLOURS, save_figure, tidy

MEASURED = {"color": COLOURS["distributed"]}
BOUND = {"color": COLOURS["graphless"], "linestyle": "--"}
GUIDE = {"color": COLOURS["graphless"], "linestyle": ":"}


def draw_theory(
    out: Path, etas: Sequence[float], runs: Sequence[Mapping[str, NDArray[np.float64]]], kept: Sequence[int]
) -> None:
    """Draw eight panels at the steps `kept` from the columns of each run, a value for each step.

    Constant step sizes shade from dark to light as they fall; the diminishing one is the last run.
    """
    from matplotlib import colormaps
    from matplotlib.figure import Figure

    figure = Figure(figsize=(15, 7), layout="constrained")
    panels = figure.subplots(2, 4)
    (apart, limit, decay, total), (best, floor, still, rate) = panels
    constant, diminishing = runs[:-1], runs[-1]
    t = np.array(kept)
    shades = colormaps["cividis"](np.linspace(0.1, 0.85, len(constant)))
    for found, eta, colour in zip(constant, etas[:-1], shades, strict=True):
        look = {"color": colour, "label": rf"$\eta$ = {eta:.3g}"}
        apart.plot(t, found["apart"][t], **look)
        best.plot(t[1:] + 1, found["best"][t[1:]], **look)
        excess = found["best"][t[1:]] - found["best"][-1]
        rate.plot(t[1:] + 1, np.where(excess > 0, excess, np.nan), **look)
    largest, name = constant[0], rf"$\eta$ = {etas[0]:.3g}"
    apart.plot(t, largest["apart_bound"][t], **BOUND, label=f"bound (45), {name}")
    best.plot(t[1:] + 1, largest["best_bound"][t[1:]], **BOUND, label=f"bound (52), {name}")
    rate.plot(t[1:] + 1, 2 * largest["best"][1] / (t[1:] + 1), **GUIDE, label="1/(t + 1)")
    rate.set_ylim(bottom=1e-9)
    sizes = np.array(etas[:-1])
    for axes, ends in ((limit, [f["apart"][-1] for f in constant]), (floor, [f["best"][-1] for f in constant])):
        axes.loglog(sizes, ends, "o-", **MEASURED, label="measured")
        axes.loglog(sizes, ends[0] * sizes / sizes[0], **GUIDE, label="slope 1")
        axes.set_xticks(sizes, [f"{size:.3g}" for size in sizes])
        axes.set_xticks([], minor=True)
    decay.plot(t, diminishing["apart"][t], **MEASURED, label="measured")
    total.plot(t, largest["sum"][t], **MEASURED, label="measured")
    still.plot(t[1:] + 1, diminishing["best"][t[1:]], **MEASURED, label="$g_{best}$")
    decay.plot(t, diminishing["apart_bound"][t], **BOUND, label="bound (45)")
    still.plot(t[1:] + 1, diminishing["best_bound"][t[1:]], **BOUND, label="bound (52)")
    total.plot(t, largest["sum_bound"][t], **BOUND, label="bound (51)")
    still.plot(t + 1, diminishing["stationarity"][t], color="#E69F00", linewidth=1, label="$g^t$")
    apart.set(title="(C1) disagreement", xlabel="step", ylabel=r"$\|w - w_S\|$", xscale="symlog", yscale="log")
    limit.set(title="(C1) its limit", xlabel=r"$\eta$")
    decay.set(title="(C2) disagreement", xlabel="step", xscale="symlog", yscale="log")
    total.set(title=rf"(C1) sum of $\eta^n g^n$, {name}", xlabel="step", xscale="symlog", yscale="log")
    best.set(title=r"(C1) $g_{best}$", xlabel="t + 1", xscale="log", yscale="log")
    floor.set(title=r"(C1) floor of $g_{best}$", xlabel=r"$\eta$")
    still.set(title=r"(C2) $g_{best}$ and $g^t$", xlabel="t + 1", xscale="log", yscale="log")
    rate.set(title=r"(C1) $g_{best}$ minus its floor", xlabel="t + 1", xscale="log", yscale="log")
    tidy(*panels.flat)
    for axes in panels.flat:
        axes.legend(frameon=False, fontsize=8)
    for suffix in ("png", "pdf"):
        save_figure(figure, out / f"theory.{suffix}")
