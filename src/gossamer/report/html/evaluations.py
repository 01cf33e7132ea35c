"""Curves of a run and of its references over the steps: loss, score and disagreement."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from gossamer.report.html.facts import RunFacts
from gossamer.report.html.markup import Content, PageSection, concatenate, draw, note, show_score, tabulate, unfold
from gossamer.report.html.overview import LOWER_IS_BETTER, MASK_NAMES, capitalise
from gossamer.report.score_text import label_score
from gossamer.report.style import LABELS
from gossamer.runs.records import Record

MOST_DRAWN = 480  # points of a curve
MOST_ROWS = 16  # of the table
Point = tuple[int, float | None]


def show_evaluations(facts: RunFacts) -> PageSection:
    """Curves with a choice of train, validation and test; the same as a table."""
    if not facts.evaluations:
        return PageSection("curves", "Curves", note("The run directory has no evaluations yet."))
    histories = {"distributed": facts.evaluations, **facts.references}
    looks: dict[str, dict[str, Any]] = {
        name: {"name": LABELS[name], "colour": f"var(--{name})", "dash": "7 5" if name == "centralised" else None}
        for name in histories
    }
    charts = chart_histories(histories, looks, facts.score)
    table = _tabulate_evaluations(facts.evaluations, facts.score)
    body = concatenate(f'<div class="charts">{charts}</div>', unfold("Evaluations of the distributed network", table))
    body += note("Beside a curve's name stands its last value; the summary has those of the weights that were kept.")
    if not facts.references and facts.settings.baselines and facts.kind != "peer":
        body += note("The run directory has no evaluations of the references, so that the curves stand alone.")
    return PageSection("curves", "Curves", body)


def chart_histories(
    histories: Mapping[str, Sequence[Record]], looks: Mapping[str, Mapping[str, Any]], score: str
) -> str:
    """Charts of loss, score, disagreement and stationarity of several histories, each with its name and colour."""
    label = label_score(score)
    format_name = "percent" if score == "accuracy" else "number"
    last = max((record["step"] for history in histories.values() for record in history), default=1)
    common: dict[str, Any] = {"xRange": [0, last], "height": 230}
    loss = {"title": "Loss", "scale": "log", "toggle": True, **common}
    scored = {"title": capitalise(label), "format": format_name, **common}
    if score in LOWER_IS_BETTER:
        scored |= {"scale": "log", "toggle": True}
    parts = [draw("chart", loss | {"choices": _choose(histories, looks, "loss")}, "Loss over the steps")]
    if score != "loss":
        chosen = {"choices": _choose(histories, looks, score), "choice": "test"}
        parts.append(draw("chart", scored | chosen, f"{label} over the steps"))
    for key, title in (("disagreement", "Disagreement"), ("stationarity", "Stationarity")):
        known = {
            name: thin([(record["step"], _measure(record, key)) for record in history])
            for name, history in histories.items()
            if name not in ("centralised", "graphless")
        }
        if any(y for points in known.values() for _, y in points):
            label = "of the agents' weights" if key == "disagreement" else "g^t"
            spec = {"title": title, "label": label, "scale": "log", "toggle": True, **common}
            series = [{**looks[name], "points": points} for name, points in known.items()]
            parts.append(draw("chart", spec | {"series": series}, f"{title} over the steps"))
    return "".join(parts)


def _choose(
    histories: Mapping[str, Sequence[Record]], looks: Mapping[str, Mapping[str, Any]], score: str
) -> dict[str, list[dict[str, Any]]]:
    """The curves of each mask, from which the reader chooses."""
    return {
        mask: [
            {**looks[name], "points": thin([(record["step"], _find(record, mask, score)) for record in history])}
            for name, history in histories.items()
        ]
        for mask in MASK_NAMES
    }


def _find(record: Record, mask: str, score: str) -> float:
    scores: Mapping[str, float] = record[mask]  # type: ignore[literal-required]
    return scores.get(score, math.nan)


def _measure(record: Record, name: str) -> float:
    found = record.get(name)
    return found if isinstance(found, float) else math.nan


def thin(points: Sequence[tuple[int, float]], most: int = MOST_DRAWN) -> list[Point]:
    """At most `most` points: of each stretch of a longer curve the lowest and the highest, and both ends."""
    known: list[Point] = [(x, float(f"{y:.5g}") if math.isfinite(y) else None) for x, y in points]
    if len(known) <= most:
        return known
    count = most // 2 - 1
    inner, kept = known[1:-1], [known[0]]
    for n in range(count):
        part = inner[n * len(inner) // count : (n + 1) * len(inner) // count]
        heights = [y for _, y in part if y is not None]
        ends = {min(heights), max(heights)} if heights else set()
        chosen = [next(point for point in part if point[1] == y) for y in ends]
        kept += sorted(chosen, key=lambda point: point[0]) if chosen else part[:1]
    return [*kept, known[-1]]


def _tabulate_evaluations(history: Sequence[Record], score: str) -> str:
    every = max(1, math.ceil(len(history) / MOST_ROWS))
    shown = [*history[:-1][::every], history[-1]]
    rows: list[list[Content]] = [
        [
            record["step"],
            show_score("loss", record["train"].get("loss")),
            *(show_score(score, _find(record, mask, score)) for mask in MASK_NAMES),
            None if math.isnan(record["disagreement"]) else f"{record['disagreement']:.2e}",
        ]
        for record in shown
    ]
    headings = ["step", "training loss", *(f"{mask} {label_score(score)}" for mask in MASK_NAMES), "disagreement"]
    caption = "Evaluations" if len(shown) == len(history) else f"{len(shown)} of {len(history):,} evaluations"
    return tabulate(caption, headings, rows)
