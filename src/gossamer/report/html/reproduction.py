"""The page of `gossamer reproduce`: each claim of the paper with its verdict, and the figures drawn again."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from gossamer.report.html.changes import embed_picture
from gossamer.report.html.markup import (
    Content,
    Markup,
    PageSection,
    concatenate,
    note,
    paragraph,
    render,
    show_code,
    tabulate,
)
from gossamer.report.terminal import ClaimRow
from gossamer.runs.run_json import GOSSAMER_VERSION

MOST_OF_A_FIGURE = 1_500_000  # bytes


@dataclass(frozen=True)
class ReproducedPart:
    """A figure or table of the paper, with what was claimed, measured and drawn."""

    name: str
    title: str
    verdict: str
    claims: Sequence[ClaimRow]
    pictures: Sequence[Path]


def show_reproduction(parts: Sequence[ReproducedPart], missing: Sequence[str], folder: Path) -> list[PageSection]:
    """A section of all verdicts, and one for each part; `missing` are the titles of those that are not there."""
    rows: list[list[Content]] = []
    for part in parts:
        papers = [claim for claim in part.claims if not claim.ours]
        held = sum(claim.holds for claim in papers)
        link = Markup(f'<a href="#{part.name}">{render(part.title)}</a>')
        rows.append([link, _verdict(part.verdict), f"{held} of {len(papers)}"])
    table = tabulate(
        "Claims of the paper by figure and table",
        ["part of the paper", "verdict", "claims confirmed"],
        rows,
        "claims",
        (1,),
    )
    lacking = note(f"Not reproduced in this folder: {', '.join(missing)}.") if missing else ""
    first = PageSection("summary", "Verdicts", table + lacking)
    return [first, *map(_show_part, parts), _show_how(folder)]


def _show_part(part: ReproducedPart) -> PageSection:
    rows: list[list[Content]] = []
    for claim in part.claims:
        yes, no = ("holds", "does not hold") if claim.ours else ("confirmed", "not confirmed")
        text = Markup(f'<span class="{"yes" if claim.holds else "no"}">{yes if claim.holds else no}</span>')
        rows.append([f"(ours) {claim.claim}" if claim.ours else claim.claim, claim.measured, text])
    headings = ["the paper says", "measured", "verdict"]
    table = tabulate(f"Claims of {part.title}", headings, rows, "claims", (1, 2))
    pictures = [embed_picture(path, f"{part.title}: {path.name}", MOST_OF_A_FIGURE) for path in part.pictures]
    return PageSection(part.name, part.title, concatenate(*pictures, table))


def _verdict(text: str) -> Markup:
    kind = "yes" if text == "confirmed" else "no" if text == "not confirmed" else "part"
    return Markup(f'<span class="{kind}">{render(text)}</span>')


def _show_how(folder: Path) -> PageSection:
    command = shlex.join(["gossamer", "reproduce", "all", "--out", str(folder)])
    words = (
        "What the folder holds is not computed again. Add --quick if it was made with it: fewer steps and points. "
        f"This page was written by gossamer {GOSSAMER_VERSION}."
    )
    return PageSection("reproduce", "How to reproduce", show_code(command) + paragraph(words))
