"""A result as a few lines of text, and as a small HTML table for notebooks."""

from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from gossamer.machine import as_size
from gossamer.report.score_text import choose_main_score, format_score, label_score
from gossamer.runs.records import Mask, ModelName, Summary

if TYPE_CHECKING:
    from gossamer.runs.run import Run


Rows = list[list[str]]  # cells, below those of the header


def describe_result(run: "Run", summary: Summary, folder: Path | None) -> str:
    """Data, steps, bytes and place in a line each; two lines for each model, of its main score and of others."""
    head, tables, foot = _collect(run, summary, folder)
    return "\n".join([head, *(line for rows in tables for line in _align(rows)), *foot])


def _align(rows: Rows) -> list[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return [f"  {row[0].ljust(widths[0])}  {'  '.join(map(str.rjust, row[1:], widths[1:]))}" for row in rows]


def tabulate_result(run: "Run", summary: Summary, folder: Path | None) -> str:
    """The same as HTML."""
    head, tables, foot = _collect(run, summary, folder)
    notes = "".join(f"<br>{escape(line)}" for line in foot)
    return (
        f"<div><p>{escape(head)}</p>{''.join(map(_mark_up, tables))}<small>{notes.removeprefix('<br>')}</small></div>"
    )


def _mark_up(rows: Rows) -> str:
    titles = "".join(f"<th>{escape(cell)}</th>" for cell in rows[0])
    body = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows[1:])
    return f"<table><thead><tr>{titles}</tr></thead><tbody>{body}</tbody></table>"


def _collect(run: "Run", summary: Summary, folder: Path | None) -> tuple[str, list[Rows], list[str]]:
    """Title, tables with their headers, and lines below them."""
    facts, settings = run.description, run.settings
    steps = f"{run.host.step} steps" if run.complete else f"stopped at step {run.host.step} of {settings.steps}"
    head = f"{facts['name']}: {facts['num_vertices']} vertices, {settings.agents} agents, {steps}"
    models: tuple[ModelName, ...] = get_args(ModelName)
    masks: tuple[Mask, ...] = get_args(Mask)
    found = [name for name in models if name in summary]
    tables: list[Rows] = []
    if found:
        first = summary[found[0]]["test"]
        main = choose_main_score(summary, first)
        others = [name for name in first if name != main]
        tables = [[["model", "training loss", *(f"{mask} {main}" for mask in masks)]]]
        tables.append([["test", *map(label_score, others)]])
        for name in found:
            scores = summary[name]
            shown = (format_score(main, scores[mask].get(main)) for mask in masks)
            tables[0].append([name, f"{scores['train']['loss']:.4f}", *shown])
            tables[1].append([name, *(format_score(other, scores["test"].get(other)) for other in others)])
    foot = []
    if "messages" in summary and settings.agents > 1:
        sent = summary["messages"].get("total_bytes")
        who = "agents" if sent is None else f"{as_size(sent)} sent between agents, which"
        foot.append(f"{who} disagree by {summary['disagreement']:.2e}")
    foot.append(f"saved in {folder}" if folder is not None else "not saved: result.save(folder) writes a run directory")
    return head, tables, foot
