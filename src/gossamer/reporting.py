"""Reports of run directories and of reproductions: read, judged on their data sets where they are at hand, written."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from gossamer.api import load_graph
from gossamer.errors import GossamerError
from gossamer.experiments import verdicts
from gossamer.files import write_atomically
from gossamer.report.html.agents_part import show_agents
from gossamer.report.html.changes import show_findings, show_memberships
from gossamer.report.html.comparison import compare_runs, name_runs
from gossamer.report.html.evaluations import show_evaluations
from gossamer.report.html.facts import RunFacts, read_run_facts
from gossamer.report.html.held_out import HeldOut, judge_run
from gossamer.report.html.markup import PageSection
from gossamer.report.html.origin import show_origin, show_settings, write_report_command
from gossamer.report.html.overview import KIND_TEXTS, NOT_FINISHED, summarise_run
from gossamer.report.html.page import PageHead, write_page
from gossamer.report.html.quality import show_quality
from gossamer.report.html.reproduction import ReproducedPart, show_reproduction
from gossamer.report.html.topology_part import show_messages, show_topology

REPORT_FILE = "report.html"
_logger = logging.getLogger(__name__)
NO_PREDICTIONS = "they were left out (--no-predictions)."


@dataclass(frozen=True)
class Report:
    """A written report: its file, the titles of its sections, and its size."""

    path: Path
    sections: list[str]
    size: int


def write_report(
    folder: Path, others: Sequence[Path] = (), out: Path | None = None, with_predictions: bool = True
) -> Report:
    """Write the report of a run directory, beside `others` if there are any, or of a reproduction's folder."""
    target = out or folder / REPORT_FILE
    if target.is_dir():
        raise GossamerError(f"{target} is a folder; --out takes the file to write, such as {target / REPORT_FILE}")
    if target.suffix.lower() not in (".html", ".htm"):  # which would replace any other file, and open as no page
        raise GossamerError(f"{target}: expected a file that ends in .html, such as {target.with_suffix('.html')}")
    if is_reproduction(folder):
        if others:
            raise GossamerError(f"{folder} holds a reproduction of the paper; --compare takes run directories")
        head, sections = _report_reproduction(folder)
    else:
        head, sections = _report_runs(folder, others, out, with_predictions)
    content = write_page(head, sections).encode()
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(target, content)
    except OSError as error:
        raise GossamerError(f"cannot write {target}: {error}; give another file with --out") from None
    return Report(target, [one.title for one in sections], len(content))


def is_reproduction(folder: Path) -> bool:
    """Return whether a folder is one that `gossamer reproduce` wrote, or that of one of its parts."""
    return not (folder / "run.json").is_file() and bool(_find_parts(folder))


def _find_parts(folder: Path) -> list[Path]:
    if (folder / "claims.json").is_file() and folder.resolve().name in verdicts.TITLES:
        return [folder]
    return [folder / name for name in verdicts.TITLES if (folder / name / "claims.json").is_file()]


def _report_reproduction(folder: Path) -> tuple[PageHead, list[PageSection]]:
    found, parts, quick = _find_parts(folder), [], []
    for path in found:
        outcome = verdicts.read(path / "claims.json")
        if outcome.name not in verdicts.TITLES:
            raise GossamerError(f"{path / 'claims.json'} is of no part of the paper: {outcome.name!r}")
        title, verdict = verdicts.TITLES[outcome.name], verdicts.verdict(outcome.claims)
        pictures, options = sorted(path.glob("*.png")), verdicts.find_options(outcome)
        parts.append(ReproducedPart(outcome.name, title, verdict, outcome.claims, pictures, options))
        quick.append(bool(outcome.quick))
    whole = found != [folder]
    missing = [title for name, title in verdicts.TITLES.items() if whole and folder / name not in found]
    head = PageHead(
        "The paper, reproduced",
        'Scardapane, Spinelli and Di Lorenzo (2021), "Distributed training of graph convolutional networks"'
        + (f"; {'quick' if all(quick) else 'quick in part'}, with fewer steps and points" if any(quick) else ""),
    )
    return head, show_reproduction(parts, missing, folder, whole)


def _report_runs(
    folder: Path, others: Sequence[Path], out: Path | None, with_predictions: bool
) -> tuple[PageHead, list[PageSection]]:
    facts = read_run_facts(folder)
    runs = [facts, *map(read_run_facts, others)]
    held_out, missing = _judge(facts) if with_predictions else (None, NO_PREDICTIONS)
    settings = facts.settings
    agents = f"{facts.num_agents_as_text} agent{'s' * (settings.agents != 1)}"
    if facts.kind == "peer":
        agents = f"agent {facts.manifest.agent} of {settings.agents}"
    title = f"{facts.manifest.data.name}, {agents}" if not others else f"{len(runs)} runs, compared"
    lead = f"{facts.name}: {KIND_TEXTS[facts.kind]}" + (f" ({NOT_FINISHED.lower()})" if facts.unfinished else "")
    if others:
        lead = ", ".join(name_runs(runs)) + f"; what follows the comparison is about {facts.name}"
    sections = [
        compare_runs(runs) if others else None,
        summarise_run(facts, held_out),
        show_evaluations(facts),
        show_quality(held_out, missing),
        show_agents(facts, held_out, missing),
        show_topology(facts),
        show_messages(facts),
        show_memberships(facts),
        show_findings(facts),
        show_settings(facts),
        show_origin(facts, write_report_command(facts, others, out, with_predictions)),
    ]
    return PageHead(title, lead), [one for one in sections if one is not None]


def _judge(facts: RunFacts) -> tuple[HeldOut | None, str | None]:
    """Predictions held against the targets, or why there are none."""
    if facts.kind == "peer":
        return None, "this folder has one agent's weights; gossamer predict FOLDER predicts its vertices."
    try:
        graph = load_graph(facts.folder)
    except GossamerError as error:
        if not facts.manifest.data.fingerprint:
            return None, str(error).partition("\n")[0]
        _logger.warning("%s", error)  # whoever reads the page need not know this machine's folders
        return None, f"the data set {facts.settings.dataset!r} could not be loaded when this page was written."
    try:
        return judge_run(facts.folder, graph), None
    except GossamerError as error:
        return None, str(error).partition("\n")[0]
