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
    protect,
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
    options: Sequence[str] | None  # of gossamer reproduce; None: not known of files of older versions


def show_reproduction(
    parts: Sequence[ReproducedPart], missing: Sequence[str], folder: Path, whole: bool
) -> list[PageSection]:
    """A section of all verdicts, and one for each part; `missing` are the titles of those that are not there. The
    page is of `folder`, which holds the `whole` paper's parts or one."""
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
    lacking = note(f"Not reproduced in this folder: {'; '.join(missing)}.") if missing else ""
    first = PageSection("summary", "Verdicts", table + lacking)
    return [first, *map(_show_part, parts), _show_how(parts, folder, whole and not missing)]


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


def _show_how(parts: Sequence[ReproducedPart], folder: Path, all_there: bool) -> PageSection:
    """Commands that compute the parts again, in a new folder: what is in a folder is not computed again."""
    out = f"{folder.resolve().name}-again"
    made = [tuple(part.options or ()) for part in parts]
    names = ["all"] if all_there and len({*made}) == 1 else [part.name for part in parts]
    commands = [
        shlex.join(["gossamer", "reproduce", name, *options, "--out", out])
        for name, options in zip(names, made, strict=False)
    ]
    words = [] if all(part.options is not None for part in parts) else ["Add --quick if it was made with it."]
    words.append("In the folder itself nothing would be computed again.")
    report = show_code(shlex.join(["gossamer", "report", protect(folder)]))
    return PageSection(
        "reproduce",
        "How to reproduce",
        concatenate(
            show_code("\n".join(commands)),
            paragraph(" ".join(words)),
            paragraph(f"This page, by gossamer {GOSSAMER_VERSION}"),
            report,
        ),
    )
