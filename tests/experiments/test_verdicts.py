"""Verdicts follow from the claims that were computed, in the summary as in docs/reproduction.md."""

import json
from pathlib import Path
from typing import get_args

import pytest
from typer.testing import CliRunner

from gossamer.cli import app
from gossamer.commands import reproduce as command
from gossamer.errors import GossamerError
from gossamer.experiments.reproduction import Claim, Outcome
from gossamer.experiments.verdicts import (
    TITLES,
    claims_table,
    find_options,
    from_dict,
    read,
    save,
    summary_table,
    verdict,
)

DOCS = Path(__file__).parents[2] / "docs"


def claim(text: str, holds: bool, ours: bool = False) -> Claim:
    return Claim(text, "so much", holds, ours)


def test_a_verdict_counts_the_papers_claims_alone() -> None:
    yes, no = claim("a rises", True), claim("b falls", False)
    assert verdict([yes]) == "confirmed"
    assert verdict([yes, claim("c", False, ours=True)]) == "confirmed"
    assert verdict([no, claim("c", True, ours=True)]) == "not confirmed"
    assert verdict([claim("c", True, ours=True)]) == "no claim of the paper"
    assert verdict([yes, no, claim("d", False)]) == "confirmed in part; what is not: b falls; d"


WRONG_SEEDS = '{"name": "fig2", "claims": [], "files": [], "quick": true, "seeds": "2"}'


def test_tables_have_a_verdict_for_each_claim() -> None:
    table = claims_table([claim("a", True), claim("b", False), claim("c", False, ours=True)]).splitlines()
    assert table[2:] == [
        "| a | so much | confirmed |",
        "| b | so much | not confirmed |",
        "| (ours) c | so much | no |",
    ]


def test_parts_that_are_reproduced_one_after_the_other_share_a_summary(tmp_path: Path) -> None:
    first, second = Outcome("fig2", [claim("a", True)], ["x.csv"]), Outcome("theory", [claim("b", False)], [])
    for outcome in (second, first):
        (tmp_path / outcome.name).mkdir()
        save(tmp_path, [outcome])
    stored = json.loads((tmp_path / "claims.json").read_text())
    assert list(stored) == ["fig2", "theory"]  # in the paper's order
    assert stored["theory"]["verdict"] == "not confirmed"
    assert from_dict(stored["fig2"]) == first
    summary = (tmp_path / "summary.md").read_text()
    assert summary.startswith(summary_table([first, second]))
    assert claims_table(second.claims) in summary
    for damaged in (
        "{",
        "[]",
        '{"name": "fig2"}',
        '{"name": "fig2", "claims": [{"holds": 1}], "files": []}',
        WRONG_SEEDS,
    ):
        (tmp_path / "fig2" / "claims.json").write_text(damaged)
        with pytest.raises(GossamerError, match=r"claims.json is damaged.*remove it"):
            save(tmp_path, [second])


def test_the_command_writes_and_prints_the_verdict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def pretend(out: Path, quick: bool, seeds: int, progress: object) -> Outcome:
        return Outcome("theory", [claim("a", True), claim("b", False)], [])

    monkeypatch.setattr(command, "load_experiments", lambda: {"theory": pretend})
    done = CliRunner().invoke(app, ["reproduce", "theory", "--out", str(tmp_path), "--json"])
    found = json.loads(done.stdout)["theory"]
    assert found["verdict"] == "confirmed in part; what is not: b"
    assert (found["quick"], found["seeds"]) == (False, 10)
    CliRunner().invoke(app, ["reproduce", "theory", "--quick", "--seeds", "3", "--out", str(tmp_path / "quick")])
    stored = read(tmp_path / "quick" / "theory" / "claims.json")
    assert find_options(stored) == ["--quick", "--seeds", "3"]
    shown = CliRunner().invoke(app, ["reproduce", "theory", "--out", str(tmp_path)])
    assert "Verdict: confirmed in part; what is not: b" in shown.stdout
    assert "| Theorem 2 | confirmed in part; what is not: b |" in (tmp_path / "summary.md").read_text()


def test_the_documented_verdicts_are_those_that_were_computed() -> None:
    """docs/claims.json is the claims.json of a whole reproduction; the page carries its tables word for word."""
    stored = json.loads((DOCS / "claims.json").read_text())
    outcomes = [from_dict(part) for part in stored.values()]
    assert all(made.quick is not None or find_options(made) is None for made in outcomes)
    assert [outcome.name for outcome in outcomes] == list(TITLES) == list(command.load_experiments())
    assert get_args(command.Part) == (*TITLES, "all")
    assert all(part["verdict"] == verdict(made.claims) for part, made in zip(stored.values(), outcomes, strict=True))
    page = (DOCS / "reproduction.md").read_text()
    assert summary_table(outcomes) in page
    for outcome in outcomes:
        assert claims_table(outcome.claims) in page, outcome.name
