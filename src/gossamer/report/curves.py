"""Curves of a run: training loss, test score and disagreement against steps."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

from gossamer.files import ALL_MAY_READ
from gossamer.report.score_text import label_score
from gossamer.report.style import COLOURS, LABELS, save_figure, tidy
from gossamer.runs.records import Record

if TYPE_CHECKING:
    from gossamer.agents.scores import ScoreKind


class _Look(TypedDict):
    color: str
    label: str
    linewidth: float


def draw_curves(
    path: Path, histories: Mapping[str, Sequence[Record]], score: "ScoreKind", title: str, mode: int = ALL_MAY_READ
) -> None:
    """Draw the evaluations of each model with the score that they are validated on; written whole or not at all.

    Where the disagreement was measured at some evaluations alone, it has a point for each of them."""
    from matplotlib.figure import Figure  # here, because it takes a second that other commands need not wait

    figure = Figure(figsize=(12, 3.8), layout="constrained")
    loss, held_out, apart = figure.subplots(1, 3)
    for name, history in reversed(list(histories.items())):
        steps = [record["step"] for record in history]
        look: _Look = {
            "color": COLOURS[name],
            "label": LABELS[name],
            "linewidth": 2.0 if name == "distributed" else 1.5,
        }
        loss.plot(steps, [record["train"]["loss"] for record in history], **look)
        held_out.plot(steps, [record["test"][record["score"]] for record in history], **look)
        if name == "distributed":
            # Agents that start alike do not disagree at first, and a logarithm has no place for that.
            shown = [record["disagreement"] or math.nan for record in history]
            unknown = all(math.isnan(record["disagreement"]) for record in history)
            if any(value > 0 for value in shown):
                marker = "o" if sum(map(math.isnan, shown)) > 1 else ""
                apart.plot(steps, shown, marker=marker, **look)
            elif not unknown:
                apart.plot(steps, [0.0] * len(steps), **look)
            else:
                apart.text(0.5, 0.5, "not measured", ha="center", va="center", transform=apart.transAxes)
    loss.set(title="Training loss", xlabel="step", yscale="log")
    held_out.set(title="Test score", xlabel="step", ylabel=label_score(score.name))
    if not score.higher_is_better:
        held_out.set_yscale("log")
    apart.set(title="Disagreement between agents", xlabel="step")
    if any(record["disagreement"] > 0 for record in histories["distributed"]):
        apart.set_yscale("log")
    tidy(loss, held_out, apart)
    held_out.legend(frameon=False, reverse=True)
    figure.suptitle(title)
    save_figure(figure, path, mode)
