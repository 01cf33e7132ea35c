"""Runs side by side: their curves overlaid, their scores, and the settings in which they differ."""

from collections.abc import Sequence
from typing import Any

from gossamer.machine import as_size
from gossamer.report.html.evaluations import chart_histories
from gossamer.report.html.facts import RunFacts
from gossamer.report.html.markup import (
    Content,
    Markup,
    PageSection,
    concatenate,
    note,
    paragraph,
    render,
    show_score,
    tabulate,
)
from gossamer.report.html.overview import MASK_NAMES, format_difference, read_score
from gossamer.report.score_text import label_score
from gossamer.report.style import RUN_COLOURS
from gossamer.runs.settings import Settings

DASHES = (None, "7 4", "2 4")


def compare_runs(runs: Sequence[RunFacts]) -> PageSection:
    """The section of several runs; those of other data or tasks are compared among themselves."""
    names = name_runs(runs)
    groups: dict[tuple[str, ...], list[int]] = {}
    for number, run in enumerate(runs):
        groups.setdefault(_key(run), []).append(number)
    parts = []
    if len(groups) > 1:
        parts.append(
            paragraph(
                "These runs are of different data sets, tasks or scores, so that their scores do not compare; runs of "
                "the same ones stand together.",
                "warning",
            )
        )
    for numbers in groups.values():
        chosen = [(number, names[number], runs[number]) for number in numbers]
        parts.append(_compare(chosen, len(groups) > 1))
    parts.append(_differ(runs, names))
    return PageSection("comparison", "Comparison", concatenate(*parts))


def _key(run: RunFacts) -> tuple[str, ...]:
    data = run.manifest.data
    return data.name, data.fingerprint, data.task or "", run.score


def name_runs(runs: Sequence[RunFacts]) -> list[str]:
    """Names of folders; those of the same name have a number."""
    names = [run.name for run in runs]
    return [f"{name} ({names[:n].count(name) + 1})" if names.count(name) > 1 else name for n, name in enumerate(names)]


def _look(number: int) -> dict[str, Any]:
    return {
        "colour": f"var(--run-{number % len(RUN_COLOURS)})",
        "dash": DASHES[number // len(RUN_COLOURS) % len(DASHES)],
    }


def _mark(number: int, name: str) -> Markup:
    return Markup(f'<span class="model run{number % len(RUN_COLOURS)}">{render(name)}</span>')


def _compare(chosen: Sequence[tuple[int, str, RunFacts]], titled: bool) -> str:
    first, score = chosen[0][2], chosen[0][2].score
    title = f"<h3>{render(first.manifest.data.name)}</h3>" if titled else ""
    histories = {name: run.evaluations for _, name, run in chosen if run.evaluations}
    looks = {name: {"name": name, **_look(number)} for number, name, _ in chosen}
    charts = f'<div class="charts">{chart_histories(histories, looks, score)}</div>' if histories else ""
    base = first.summary.distributed
    rows: list[list[Content]] = []
    for number, name, run in chosen:
        table = run.summary.distributed
        own = None if table is None else read_score(table, "test", score)
        row: list[Content] = [_mark(number, name), run.num_agents_as_text, run.steps]
        row += [None if table is None else show_score("loss", table.train.loss)]
        row += [None if table is None else show_score(score, read_score(table, mask, score)) for mask in MASK_NAMES]
        away = None if base is None or run is first else format_difference(score, own, read_score(base, "test", score))
        sent = None if run.total_bytes is None else as_size(run.total_bytes)
        row += [
            *([away] if len(chosen) > 1 else []),
            sent,
            None if not run.summary.seconds else f"{run.summary.seconds:.1f} s",
        ]
        rows.append(row)
    headings = ["run", "agents", "steps", "training loss", *(f"{mask} {label_score(score)}" for mask in MASK_NAMES)]
    headings += [*([f"test, against {chosen[0][1]}"] if len(chosen) > 1 else []), "sent", "time"]
    late = [name for _, name, run in chosen if run.unfinished is not None]
    warning = note(f"Not finished: {', '.join(late)}.") if late else ""
    return title + charts + tabulate("Distributed networks", headings, rows) + warning


def _differ(runs: Sequence[RunFacts], names: Sequence[str]) -> str:
    values = {name: [getattr(run.first_settings, name) for run in runs] for name in Settings.model_fields}
    versions = {f"version of {name}" for run in runs for name in run.manifest.versions}
    values |= {
        label: [run.manifest.versions.get(label.removeprefix("version of ")) for run in runs]
        for label in sorted(versions)
    }
    rows: list[list[Content]] = [
        [name, *(_show(value) for value in found)]
        for name, found in values.items()
        if any(v != found[0] for v in found)
    ]
    if not rows:
        return note("The runs have the same settings and versions.")
    headings: list[Content] = ["setting", *(_mark(number, name) for number, name in enumerate(names))]
    columns = tuple(range(1, len(runs) + 1))
    return tabulate("Settings and versions in which they differ", headings, rows, "settings", columns)


def _show(value: Any) -> str:
    return (
        ",".join(map(str, value)) if isinstance(value, (list, tuple)) else "by default" if value is None else str(value)
    )
