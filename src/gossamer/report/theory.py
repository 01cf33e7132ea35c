"""The picture of Theorem 2: disagreement and stationarity under constant and diminishing step sizes."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gossamer.report.curves import COLOURS, save_figure, tidy


def draw_theory(out: Path, runs: Sequence[dict[str, Any]], bounds: Sequence[Sequence[float]]) -> None:
    """Constant step sizes shade from light to dark as they grow; the diminishing one is the last run."""
    from matplotlib import colormaps
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 7), layout="constrained")
    (apart, limit, decay), (best, floor, still) = figure.subplots(2, 3)
    constant, diminishing = runs[:-1], runs[-1]
    shades = colormaps["cividis"](np.linspace(0.1, 0.85, len(constant)))
    etas = np.array([found["eta"] for found in constant])
    for found, colour in zip(constant, shades, strict=True):
        t = np.array([point["step"] for point in found["points"]])
        g = np.array([point["stationarity"] for point in found["points"]])
        look = {"color": colour, "label": rf"$\eta$ = {found['eta']:.3g}"}
        apart.plot(t, [point["apart"] for point in found["points"]], **look)
        best.plot(t[1:] + 1, np.minimum.accumulate(g[1:]), **look)
    apart.plot(
        _steps(runs[0]), bounds[0], "--", color=COLOURS["graphless"], label=rf"bound (45), $\eta$ = {etas[0]:.3g}"
    )
    apart.set(title="(C1) disagreement", xlabel="step", ylabel=r"$\|w - w_S\|$", xscale="symlog", yscale="log")
    limits = [found["points"][-1]["apart"] for found in constant]
    limit.loglog(etas, limits, "o-", color=COLOURS["distributed"], label="measured")
    limit.loglog(etas, limits[0] * etas / etas[0], ":", color=COLOURS["graphless"], label="slope 1")
    limit.set(title="(C1) its limit", xlabel=r"$\eta$")
    decay.plot(_steps(diminishing), [p["apart"] for p in diminishing["points"]], color=COLOURS["distributed"])
    decay.plot(_steps(diminishing), bounds[-1], "--", color=COLOURS["graphless"], label="bound (45)")
    decay.set(title="(C2) disagreement", xlabel="step", xscale="symlog", yscale="log")
    t = _steps(runs[0])
    first = max(1e-300, constant[0]["points"][1]["stationarity"])
    best.plot(t[1:] + 1, first * 2 / (t[1:] + 1), ":", color=COLOURS["graphless"], label="1/(t + 1)")
    best.set(title=r"(C1) $g_{best}$", xlabel="t + 1", xscale="log", yscale="log")
    floors = [min(p["stationarity"] for p in found["points"][1:]) for found in constant]
    floor.loglog(etas, floors, "o-", color=COLOURS["distributed"], label="measured")
    floor.loglog(etas, floors[0] * etas / etas[0], ":", color=COLOURS["graphless"], label="slope 1")
    floor.set(title=r"(C1) floor of $g_{best}$", xlabel=r"$\eta$")
    still.plot(_steps(diminishing), [p["stationarity"] for p in diminishing["points"]], color=COLOURS["distributed"])
    still.set(title=r"(C2) $g^t$", xlabel="step", xscale="symlog", yscale="log")
    for axes in (limit, floor):
        axes.set_xticks(etas, [f"{eta:.3g}" for eta in etas])
        axes.set_xticks([], minor=True)
    tidy(apart, limit, decay, best, floor, still)
    for axes in (apart, limit, decay, best, floor):
        axes.legend(frameon=False, fontsize=8)
    for suffix in ("png", "pdf"):
        save_figure(figure, out / f"theory.{suffix}")


def _steps(found: dict[str, Any]) -> Any:
    return np.array([point["step"] for point in found["points"]])
