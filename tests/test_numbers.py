"""Numbers of the documentation are those that the commands beside them print: docs/check.py, and what it knows of."""

import importlib.util
import itertools
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gossamer.cli import COMMANDS

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
MEASURED = re.compile(r"python (?:benchmarks|tests)/[\w/]+\.py|python -m pytest|gossamer reproduce")
COMMAND = re.compile(r"gossamer [a-z]+\b")
NOT_MEASURED = re.compile(
    r"`[^`\n]*`|\]\([^)]*\)|^ *(?:gossamer|torchrun|python|srun|\|).*$|(?:\d+\.){3}\d+[:\d]*", re.MULTILINE
)
MEASUREMENT = re.compile(r"\d\.\d|\d,\d{3}|\d+ of \d+|\d+ (?:[kMG]B|ms|s|%|times|rows|links)\b")


def load_checker() -> Any:
    spec = importlib.util.spec_from_file_location("docs_check", ROOT / "docs" / "check.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look it up
    spec.loader.exec_module(module)
    return module


checker = load_checker()


@pytest.mark.slow
def test_what_cheap_commands_print_stands_on_the_pages() -> None:
    command = [sys.executable, str(ROOT / "docs" / "check.py"), "--cheap"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    claims, _ = checker.load_claims()
    everywhere = [claim for claim in claims if claim.cost == "cheap" and not claim.needs]  # needs no data to be there
    assert done.stdout.count("right ") >= len(everywhere) >= 25


def find_printing_commands(text: str) -> set[str]:
    """The commands of a page with measurements in their paragraph or in the one after it; what a command line, a table
    of settings or an address has is no measurement."""
    paragraphs = [*text.split("\n\n"), ""]
    found = set()
    for one, after in itertools.pairwise(paragraphs):
        if MEASUREMENT.search(NOT_MEASURED.sub("", f"{one}\n{after}")):
            found |= {command for command in COMMAND.findall(one) if command.split()[1] in COMMANDS}
    return found


def make_claim(**given: Any) -> Any:
    printed = 'print(\'{"a": [1, 2.46], "b": {"c": 4}} 3,192 rows\')'
    values = {"page": "docs/index.md", "command": f'python -c "{printed}"', "quote": "digits: «1797» vertices"}
    return checker.Claim(**(values | given))


def find(**given: Any) -> Any:
    (finding,) = checker.check([make_claim(**given)], cheap=False)
    return finding


def test_a_wrong_number_is_found_with_what_it_should_be() -> None:
    claim = make_claim(match=r"(\d,\d+) rows")
    (finding,) = checker.check([claim], cheap=False)
    assert (finding.verdict, finding.expected, finding.found) == ("wrong", "1797", "3192")
    assert find(match=r"(\d,\d+) rows", within=(1395.0,)).verdict == "right"
    assert find(match=r"(\d,\d+) rows", within=(1394.0,)).verdict == "wrong"


def test_a_quote_that_is_not_on_its_page_is_found() -> None:
    finding = find(quote="digits: «1798» vertices")
    assert (finding.verdict, finding.found) == ("wrong", "not on the page")


@pytest.mark.parametrize(
    "given", [{"match": "nothing (x)"}, {"command": "python -c 'raise SystemExit(3)'", "match": "(1)"}]
)
def test_output_without_the_number_is_wrong(given: dict[str, str]) -> None:
    assert find(**given).verdict == "wrong"


def test_a_claim_without_its_data_is_skipped(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("GOSSAMER_DATA", str(tmp_path))
    assert find(needs="citation/cora_ml.npz", match="(1)").verdict == "skipped"


@pytest.mark.parametrize(
    ("where", "value"), [("a.1", 2.46), ("b.c / a.0", 4), ("a.1 * 100 / b.c", 61.5), ("b.c + 6", 10), ("2 * b.c", 8)]
)
def test_places_in_json(where: str, value: float) -> None:
    assert checker.read_json({"a": [1, 2.46], "b": {"c": 4}}, where) == pytest.approx(value)


@pytest.mark.parametrize(
    ("shown", "found", "right"),
    [
        ("97.2", 97.2431, True),
        ("97.2", 97.26, False),
        ("245", 244.803, True),
        ("1,046", 1046.0, True),
        ("1e-3", 0.0016, False),
    ],
)
def test_numbers_agree_to_the_last_digit_shown(shown: str, found: float, right: bool) -> None:
    assert checker.agrees(shown, found, 0.0) == right


def test_every_measurement_on_a_page_is_checked_or_said_not_to_be() -> None:
    claims, unchecked = checker.load_claims()
    known = {(claim.page, command) for claim in claims for command in claim.command.split(" && ")}
    known |= {(one["page"], one["command"]) for one in unchecked}
    for path in PAGES:
        page = str(path.relative_to(ROOT))
        text = path.read_text()
        for command in {*MEASURED.findall(text), *find_printing_commands(text)}:
            assert any(where == page and said.startswith(command) for where, said in known), f"{page}: {command}"


def test_commands_with_measurements_beside_them_are_found() -> None:
    page = (
        "    gossamer status agent-0\n\nIt takes 3 ms.\n\n`gossamer leave` ends it.\n\n    gossamer watch 10.0.0.1:80"
    )
    assert find_printing_commands(page) == {"gossamer status"}


def test_what_is_not_checked_stands_on_its_page_and_has_a_reason() -> None:
    _, unchecked = checker.load_claims()
    for entry in unchecked:
        assert entry["command"] in (ROOT / entry["page"]).read_text(), entry
        assert len(entry["reason"]) > 10, entry
