"""Verdicts on the paper's claims, as text for the terminal, JSON and docs/reproduction.md."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gossamer.errors import GossamerError
from gossamer.experiments.reproduction import Claim, Outcome
from gossamer.files import write_atomically
from gossamer.runs.documents import read_json, to_json

TITLES = {
    "fig2": "Fig. 2, sparsity of C",
    "fig3": "Fig. 3 and Table I, accuracy and loss",
    "fig4": "Fig. 4, few links",
    "fig5": "Fig. 5, update rules",
    "fig6": "Fig. 6, rarer consensus",
    "table2": "Table II, traffic",
    "theory": "Theorem 2",
    "changing": "Links that fail (ours)",
}
DEFAULT_SEEDS = {False: 10, True: 2}  # repetitions, by whether it is quick


def verdict(claims: Sequence[Claim]) -> str:
    """Confirmed if all of the paper's claims hold, in part if some do; claims of ours do not count."""
    papers = [claim for claim in claims if not claim.ours]
    if claims and not papers:
        return "no claim of the paper"
    failed = [claim.claim for claim in papers if not claim.holds]
    if not failed:
        return "confirmed"
    return "not confirmed" if len(failed) == len(papers) else f"confirmed in part; what is not: {'; '.join(failed)}"


def claims_table(claims: Sequence[Claim]) -> str:
    """Markdown table of the claims, their measurements and verdicts."""
    rows = ["| the paper says | measured | verdict |", "| --- | --- | --- |"]
    for claim in claims:
        yes, no = ("yes", "no") if claim.ours else ("confirmed", "not confirmed")
        rows.append(f"| {'(ours) ' * claim.ours}{claim.claim} | {claim.measured} | {yes if claim.holds else no} |")
    return "\n".join(rows)


def summary_table(outcomes: Sequence[Outcome]) -> str:
    """Markdown table of a verdict for each part."""
    rows = [f"| {TITLES[outcome.name]} | {verdict(outcome.claims)} |" for outcome in outcomes]
    return "\n".join(["| part | verdict |", "| --- | --- |", *rows])


def save(folder: Path, outcomes: Sequence[Outcome]) -> None:
    """Write each part's claims.json into its folder; claims.json and summary.md of all parts that the folder holds."""
    for outcome in outcomes:
        text = to_json(to_dict(outcome), indent=2) + "\n"
        write_atomically(folder / outcome.name / "claims.json", text.encode())
    whole = [read(path) for name in TITLES if (path := folder / name / "claims.json").is_file()]
    text = to_json({outcome.name: to_dict(outcome) for outcome in whole}, indent=2) + "\n"
    write_atomically(folder / "claims.json", text.encode())
    parts = [f"## {TITLES[outcome.name]}\n\n{claims_table(outcome.claims)}\n" for outcome in whole]
    write_atomically(folder / "summary.md", "\n".join([f"{summary_table(whole)}\n", *parts]).encode())


def find_options(outcome: Outcome) -> list[str] | None:
    """Options of `gossamer reproduce` that an outcome was made with; None if that is not known."""
    if outcome.quick is None:
        return None
    words = ["--quick"] if outcome.quick else []
    own = outcome.seeds is not None and outcome.seeds != DEFAULT_SEEDS[outcome.quick]
    return [*words, "--seeds", str(outcome.seeds)] if own else words


def to_dict(outcome: Outcome) -> dict[str, Any]:
    """The object of `--json`."""
    return {**outcome.to_dict(), "verdict": verdict(outcome.claims)}


def from_dict(stored: Any) -> Outcome:
    """Read an outcome from its object of `--json`, without the verdict."""
    try:
        claims, quick, seeds = [Claim(**claim) for claim in stored["claims"]], stored.get("quick"), stored.get("seeds")
        if not isinstance(quick, bool | None) or type(seeds) not in (int, type(None)):
            raise TypeError(f"quick is {quick!r}, seeds is {seeds!r}")
        return Outcome(stored["name"], claims, stored["files"], quick, seeds)
    except (KeyError, TypeError) as error:
        raise GossamerError(f"expected name, claims and files of a part: {error}") from None


def read(path: Path) -> Outcome:
    """Read the claims.json of one part."""
    try:
        return from_dict(read_json(path))
    except (OSError, GossamerError) as error:
        raise GossamerError(f"{path} is damaged ({error}); remove it and start again") from None
