"""HTML of a report's parts: everything that comes from a run is escaped here."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from gossamer.report.score_text import format_score
from gossamer.report.style import AGENT_COLOURS
from gossamer.report.web.assets import as_script_json

MINUS, EN_DASH = "\N{MINUS SIGN}", "\N{EN DASH}"


@dataclass(frozen=True)
class Markup:
    """HTML that needs no escaping: text was escaped when it was made."""

    html: str


Content = Markup | str | int | float | None


@dataclass(frozen=True)
class PageSection:
    """A section of a page, with its entry in the table of contents."""

    id: str
    title: str
    body: str  # HTML


def render(cell: Content) -> str:
    """A cell's HTML: numbers with separators, text escaped, a dash for what is not known."""
    if isinstance(cell, Markup):
        return cell.html
    if cell is None:
        return EN_DASH
    if isinstance(cell, int) and not isinstance(cell, bool):
        return f"{cell:,}"
    return escape(f"{cell:.4g}" if isinstance(cell, float) else str(cell))


def paragraph(text: Content, kind: str = "") -> str:
    return f"<p{_class(kind)}>{render(text)}</p>"


def note(text: Content) -> str:
    """A remark, such as why something is missing."""
    return paragraph(text, "note")


def tabulate(
    caption: str,
    headings: Sequence[Content],
    rows: Sequence[Sequence[Content]],
    kind: str = "",
    text_columns: Sequence[int] = (),
) -> str:
    """A table with a caption; the first cell of a row heads it. Other columns are numbers unless they hold text."""
    texts = (0, *text_columns)
    head = "".join(
        f'<th scope="col"{_class("" if n in texts else "n")}>{render(cell)}</th>' for n, cell in enumerate(headings)
    )
    body = []
    for row in rows:
        cells = [f'<th scope="row">{render(row[0])}</th>']
        cells += [f"<td{_class('' if n in texts else 'n')}>{render(cell)}</td>" for n, cell in enumerate(row) if n]
        body.append(f"<tr>{''.join(cells)}</tr>")
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(caption)}"><table{_class(kind)}>'
        f"<caption>{escape(caption)}</caption><thead><tr>{head}</tr></thead><tbody>{''.join(body)}</tbody></table></div>"
    )


def show_score(name: str, value: float | None) -> str:
    """A score as charts have it: a minus sign, and a space before the percent sign."""
    text = format_score(name, value)
    return EN_DASH if text == "-" else text.replace("-", MINUS).replace("%", "\N{NO-BREAK SPACE}%")


def unfold(summary: str, body: str, opened: bool = False) -> str:
    """A part that is folded until it is asked for."""
    return f"<details{' open' * opened}><summary>{escape(summary)}</summary>{body}</details>"


def name_agent(agent: int) -> Markup:
    """An agent's number beside its colour."""
    return Markup(f'<span class="agent a{agent % len(AGENT_COLOURS)}">{agent}</span>')


def list_agents_as_text(agents: Sequence[int]) -> Markup:
    return Markup(" ".join(name_agent(k).html for k in agents))


def show_code(text: str) -> str:
    """A block of commands, to be copied."""
    return f"<pre><code>{escape(text)}</code></pre>"


def protect(path: Path) -> str:
    """A path as a word of a command, which is no option whatever its name."""
    return f"./{path}" if str(path).startswith("-") else str(path)


def draw(kind: str, spec: Mapping[str, Any], label: str, look: str = "") -> str:
    """A picture that the page's script draws from its specification: "chart", "map" or "bars"."""
    return (
        f'<figure class="{f"drawing {look}".strip()}" data-draw="{kind}" aria-label="{escape(label)}">'
        f'<script type="application/json">{as_script_json(spec)}</script>'
        f'<noscript><p class="note">{escape(label[:1].upper() + label[1:])}: drawn where scripts may run; the tables '
        f"have the numbers.</p></noscript></figure>"
    )


def concatenate(*parts: str) -> str:
    return "".join(part for part in parts if part)


def _class(name: str) -> str:
    return f' class="{name}"' if name else ""
