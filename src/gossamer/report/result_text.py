"""A result as a few lines of text, and as a small HTML table for notebooks."""

from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from gossamer.machine import as_size
from gossamer.runs.records import Mask, ModelName, Summary

if TYPE_CHECKING:
    from gossamer.runs.run import Run


def describe_result(run: "Run", summary: Summary, folder: Path | None) -> str:
    """Data, steps, bytes and place in a line each, and a line of scores for each model."""
    head, rows, foot = _collect(run, summary, folder)
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    table = [
        f"  {row[0].ljust(widths[0])}  {'  '.join(map(str.rjust, row[1:], widths[1:]))}"
        for row in (rows if len(rows) > 1 else ())
    ]
    return "\n".join([head, *table, *foot])


def tabulate_result(run: "Run", summary: Summary, folder: Path | None) -> str:
    """The same as HTML."""
    head, rows, foot = _collect(run, summary, folder)
    titles = "".join(f"<th>{escape(cell)}</th>" for cell in rows[0])
    body = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows[1:])
    notes = "".join(f"<br>{escape(line)}" for line in foot)
    return (
        f"<div><table><caption>{escape(head)}</caption><thead><tr>{titles}</tr></thead>"
        f"<tbody>{body}</tbody></table><small>{notes.removeprefix('<br>')}</small></div>"
    )


def _collect(run: "Run", summary: Summary, folder: Path | None) -> tuple[str, list[list[str]], list[str]]:
    """Title, table with its header, and lines below it."""
    facts, settings = run.description, run.settings
    steps = f"{run.host.step} steps" if run.complete else f"stopped at step {run.host.step} of {settings.steps}"
    head = f"{facts['name']}: {facts['num_vertices']} vertices, {settings.agents} agents, {steps}"
    models: tuple[ModelName, ...] = get_args(ModelName)
    masks: tuple[Mask, ...] = get_args(Mask)
    found = [name for name in models if name in summary]
    measure = "accuracy" if found and "accuracy" in summary[found[0]]["test"] else "mse"
    rows = [["model", "training loss", *(f"{mask} {measure}" for mask in masks)]]
    for name in found:
        scores = summary[name]
        form = ".1%" if measure == "accuracy" else ".4g"
        rows.append([name, f"{scores['train']['loss']:.4f}", *(format(scores[mask][measure], form) for mask in masks)])
    foot = []
    if "messages" in summary and settings.agents > 1:
        foot.append(
            f"{as_size(summary['messages']['total_bytes'])} sent between agents, which disagree by "
            f"{summary['disagreement']:.2e}"
        )
    foot.append(f"saved in {folder}" if folder is not None else "not saved: result.save(folder) writes a run directory")
    return head, rows, foot
