"""Check the numbers of the documentation against the commands that stand beside them.

    python docs/check.py [--cheap] [--page PAGE ...] [--list] [--json]

docs/numbers.toml has the claims. A claim quotes a page, its numbers in guillemets, and says which command prints them,
where they are in its output, and how far they may be off; by default they agree to the last digit that the page shows.
Every quote must stand on its page as it is. --cheap runs the commands that take seconds. Without it all run: those of
benchmarks take hours, and their ratios of times may be further off on another machine. --list prints what is not
checked, and why. The exit code is 1 if a number is wrong.
"""

import argparse
import json
import operator
import os
import re
import shlex
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
CLAIMS = Path(__file__).parent / "numbers.toml"
NUMBER = re.compile(r"«([^»]*)»")
OPERATORS = {"+": operator.add, "*": operator.mul, "/": operator.truediv}
LIMIT = 7200  # seconds that a slow command may take


@dataclass(frozen=True)
class Claim:
    """Numbers of a page, and where their command prints them."""

    page: str  # relative to the repository
    quote: str  # a part of the page, its numbers in guillemets
    command: str
    read: tuple[
        str, ...
    ] = ()  # a path into its JSON for each number, as in "test.accuracy * 100" or "a.bytes / b.bytes"
    match: str = ""  # or a regular expression on its output, with a group for each number
    within: tuple[float, ...] = (0.0,)  # how far each may be off, beyond the last digit shown; one number is for all
    cost: str = "slow"  # or cheap: seconds
    needs: str = ""  # a file below GOSSAMER_DATA
    files: tuple[tuple[str, str], ...] = ()  # that the command reads, by name: what is in them

    @property
    def numbers(self) -> list[str]:
        return NUMBER.findall(self.quote)

    @property
    def text(self) -> str:
        """The quote as it stands on the page."""
        return squeeze(NUMBER.sub(r"\1", self.quote))


@dataclass(frozen=True)
class Finding:
    page: str
    quote: str
    expected: str
    found: str
    verdict: str  # right, wrong or skipped


def squeeze(text: str) -> str:
    """A text without what lines and tables add to it."""
    return " ".join(text.split())


def load_claims(path: Path = CLAIMS) -> tuple[list[Claim], list[dict[str, str]]]:
    """The claims, and the commands whose numbers are not checked."""
    content = tomllib.loads(path.read_text())
    claims = []
    for given in content["claim"]:
        within = given.pop("within", 0.0)
        files = tuple(given.pop("files", {}).items())
        bounds = tuple(within) if isinstance(within, list) else (within,)
        claims.append(Claim(**{**given, "read": tuple(given.get("read", ())), "within": bounds, "files": files}))
    return claims, content["unchecked"]


def run(command: str, files: tuple[tuple[str, str], ...] = ()) -> str:
    """The standard output of a command, or of the last of several with && between them, run in a folder of their own;
    gossamer and python are those of this checkout."""
    starts = {"gossamer": [sys.executable, "-m", "gossamer"], "python": [sys.executable]}
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "COLUMNS": "200", "NO_COLOR": "1"}
    with tempfile.TemporaryDirectory() as folder:
        for name, text in files:
            (Path(folder) / name).write_text(text)
        for one in command.split(" && "):
            start, *words = shlex.split(one)
            words = [str(ROOT / word) if (ROOT / word).is_file() else word for word in words]
            done = subprocess.run(
                [*starts[start], *words], cwd=folder, env=environment, capture_output=True, text=True, timeout=LIMIT
            )
            if done.returncode:
                raise RuntimeError(f"{one} ended with exit code {done.returncode}:\n{done.stderr[-2000:]}")
    return done.stdout


def read_json(content: Any, where: str) -> float:
    """A number of a JSON object: names with dots between them, + * / of these and of constants, from left to right."""
    first, *rest = re.split(r" ([+*/]) ", where)

    def get(term: str) -> float:
        if re.fullmatch(r"[\d.]+", term):
            return float(term)
        value = content
        for name in term.split("."):
            value = value[int(name)] if isinstance(value, list) else value[name]
        return float(value)

    result = get(first)
    for sign, term in zip(rest[::2], rest[1::2], strict=True):
        result = OPERATORS[sign](result, get(term))
    return result


def read_numbers(claim: Claim, printed: str) -> list[float]:
    """The numbers of a claim in the output of its command."""
    if claim.match:
        found = re.search(claim.match, printed)
        if found is None:
            raise RuntimeError(f"{claim.command} prints nothing like {claim.match!r}")
        return [to_float(group) for group in found.groups()]
    content = json.loads(printed[printed.index("{") :])
    return [read_json(content, where) for where in claim.read]


def to_float(shown: str) -> float:
    return float(shown.replace(",", "").replace("%", "").strip())


def agrees(shown: str, found: float, within: float) -> bool:
    """Whether a number agrees with one on a page, to the last digit that it shows and `within` beyond."""
    digits = shown.partition("e")[0].partition(".")[2]
    unit = 10.0 ** -len(re.sub(r"\D", "", digits))
    if "e" in shown:
        unit *= 10.0 ** int(shown.partition("e")[2])
    return abs(to_float(shown) - found) <= unit / 2 * (1 + 1e-9) + within


def check(claims: list[Claim], cheap: bool) -> Iterator[Finding]:
    """Find each claim on its page and, where its command is to run and can, in the output."""
    outputs: dict[str, str] = {}
    data = Path(os.environ.get("GOSSAMER_DATA", ""))
    for claim in claims:
        short = claim.text if len(claim.text) < 50 else f"{claim.text[:47]}..."
        if claim.text not in squeeze((ROOT / claim.page).read_text()):
            yield Finding(claim.page, short, ", ".join(claim.numbers), "not on the page", "wrong")
            continue
        if cheap and claim.cost != "cheap":
            continue
        if claim.needs and not (data / claim.needs).is_file():
            yield Finding(claim.page, short, ", ".join(claim.numbers), f"needs {claim.needs}", "skipped")
            continue
        try:
            if claim.command not in outputs:
                outputs[claim.command] = run(claim.command, claim.files)
            found = read_numbers(claim, outputs[claim.command])
        except (RuntimeError, KeyError, IndexError, ValueError) as error:
            yield Finding(claim.page, short, ", ".join(claim.numbers), f"{type(error).__name__}: {error}", "wrong")
            continue
        bounds = claim.within * len(found) if len(claim.within) == 1 else claim.within
        right = len(found) == len(claim.numbers) == len(bounds) and all(map(agrees, claim.numbers, found, bounds))
        shown = ", ".join(f"{number:.6g}" for number in found)
        yield Finding(claim.page, short, ", ".join(claim.numbers), shown, "right" if right else "wrong")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cheap", action="store_true", help="run only what takes seconds")
    parser.add_argument("--page", action="append", help="check only this page, as in docs/training.md")
    parser.add_argument("--list", action="store_true", help="print what is not checked, and why")
    parser.add_argument("--json", action="store_true", help="print the findings as JSON")
    given = parser.parse_args()
    claims, unchecked = load_claims()
    if given.list:
        for entry in unchecked:
            print(f"{entry['page']}: {entry['command']}\n    {entry['reason']}")
        return
    findings = list(check([claim for claim in claims if not given.page or claim.page in given.page], given.cheap))
    if given.json:
        print(json.dumps([finding.__dict__ for finding in findings], indent=1))
    else:
        for one in findings:
            print(f"{one.verdict:8s} {one.page:22s} {one.expected:34s} {one.found:34s} {one.quote}")
    sys.exit(any(finding.verdict == "wrong" for finding in findings))


if __name__ == "__main__":
    main()
