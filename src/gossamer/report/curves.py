"""Curves of a run against steps: loss, score and disagreement, on training, validation and test vertices."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from gossamer.files import ALL_MAY_READ
from gossamer.report.score_text import label_score
from gossamer.report.style import COLOURS, LABELS, save_figure, tidy
from gossamer.runs.records import Record

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from gossamer.agents.scores import ScoreKind


VALIDATION: Literal["--"] = (
    "--"  # the style of what is measured on validation vertices; training and test are drawn through
)


def draw_curves(
    path: Path, histories: Mapping[str, Sequence[Record]], score: "ScoreKind", title: str, mode: int = ALL_MAY_READ
) -> None:
    """Draw the evaluations of each model with the score that they are validated on; written whole or not at all.

    Where the disagreement was measured at some evaluations alone, it has a point for each of them."""
    from matplotlib.figure import Figure  # here, because it takes a second that other commands need not wait
    from matplotlib.lines import Line2D

    figure = Figure(figsize=(13, 4.4), layout="constrained")
    loss, held_out, apart = figure.subplots(1, 3)
    for name, history in reversed(list(histories.items())):
        steps = [record["step"] for record in history]
        width = 2.0 if name == "distributed" else 1.5
        for axes, what, through in ((loss, "loss", "train"), (held_out, "", "test")):
            for mask, style in (("validation", VALIDATION), (through, "-")):
                values = [record[mask][what or record["score"]] for record in history]  # type: ignore[literal-required]
                axes.plot(steps, values, style, color=COLOURS[name], linewidth=width if style == "-" else 0.7 * width)
    _draw_disagreement(apart, histories["distributed"])
    loss.set(title="Loss", xlabel="step", ylabel="loss", yscale="log")
    held_out.set(title="Score", xlabel="step", ylabel=label_score(score.name))
    if not score.higher_is_better:
        held_out.set_yscale("log")
    apart.set(title="Disagreement between agents", xlabel="step", ylabel="mean distance of two agents' weights")
    tidy(loss, held_out, apart)
    _key_styles(loss, "training")
    _key_styles(held_out, "test")
    models = [Line2D([], [], color=COLOURS[name], linewidth=2, label=LABELS[name]) for name in histories]
    figure.legend(handles=models, loc="outside lower center", ncols=len(models), frameon=False)
    figure.suptitle(title)
    save_figure(figure, path, mode)


def _draw_disagreement(axes: "Axes", history: Sequence[Record]) -> None:
    """Draw the distance between the agents' weights, or say that nobody measured it."""
    steps = [record["step"] for record in history]
    # Agents that start alike do not disagree at first, and a logarithm has no place for that.
    shown = [record["disagreement"] or math.nan for record in history]
    if any(value > 0 for value in shown):
        marker = "o" if sum(map(math.isnan, shown)) > 1 else ""
        axes.plot(steps, shown, marker=marker, color=COLOURS["distributed"], linewidth=2)
        axes.set_yscale("log")
    elif all(math.isnan(record["disagreement"]) for record in history):
        axes.text(0.5, 0.5, "not measured", ha="center", va="center", transform=axes.transAxes)
    else:
        axes.plot(steps, [0.0] * len(steps), color=COLOURS["distributed"], linewidth=2)


def _key_styles(axes: "Axes", through: str) -> None:
    """Say in a plot whose vertices the two styles of line stand for."""
    from matplotlib.lines import Line2D

    solid = Line2D([], [], color="black", label=through)
    axes.legend(handles=[solid, Line2D([], [], color="black", linestyle=VALIDATION, label="validation")], frameon=False)
