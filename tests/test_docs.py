"""The documentation mentions no file, name or link that does not exist."""

import re
import sys
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "gossamer"
PAGES = sorted({*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")} - {ROOT / "CHANGELOG.md"})  # it names what has gone
FOLDERS = {path.name for base in (ROOT, SOURCE) for path in base.iterdir() if path.is_dir()}
PYTHON_FILE = re.compile(r"(?<![\w./-])(?:\.\./)?((?:[\w-]+/)*\w+\.py)\b")
IDENTIFIER = re.compile(r"`\.?([A-Za-z_]\w*(?:\.\w+)*)`")


@pytest.fixture(params=PAGES, ids=lambda path: path.name)
def page(request: pytest.FixtureRequest) -> Path:
    found: Path = request.param
    return found


def find_sources(mentioned: str) -> list[Path]:
    """Files that a path stands for, relative to the repository or to the package."""
    return [path for base in (ROOT, SOURCE) if (path := base / mentioned).exists()]


def slugs(page: Path) -> set[str]:
    """Anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_files_exist(page: Path) -> None:
    text = page.read_text()
    mentioned = {*PYTHON_FILE.findall(text), *re.findall(r"\bdocs/[\w/-]+\.\w+", text)}
    mentioned |= {path for path in re.findall(r"`([\w/]+/)`", text) if path.split("/")[0] in FOLDERS}
    assert not {path for path in mentioned if not find_sources(path)}


def test_names_exist(page: Path) -> None:
    for name in set(re.findall(r"\bgossamer(?:\.[A-Za-z_]\w*)+", page.read_text())):
        parts = name.split(".")
        found = import_module("gossamer")
        for index, part in enumerate(parts[1:], 2):
            try:
                found = getattr(found, part)
            except AttributeError:
                module = sys.modules.get(".".join(parts[: index - 1]))  # hidden by a function of its name
                found = getattr(module, part, None) or import_module(".".join(parts[:index]))


def test_names_in_tables_are_in_the_files_beside_them(page: Path) -> None:
    """A cell with a path and names in backticks, such as those of notation.md and glossary.md."""
    for row in re.findall(r"^\|.*\|$", page.read_text(), re.MULTILINE):
        for cell in row.split("|"):
            files = [source for path in PYTHON_FILE.findall(cell) for source in find_sources(path)]
            text = "".join(source.read_text() for source in files)
            names = [name for name in IDENTIFIER.findall(cell) if not name.endswith(".py")]
            missing = [name for name in names if not re.search(rf"\b{name.split('.')[-1]}\b", text)]
            assert not files or not missing, cell


def test_links_resolve(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if target.startswith(("http://", "https://")):
            continue
        path, _, anchor = target.partition("#")
        linked = (page.parent / path).resolve() if path else page
        assert linked.exists(), target
        assert not anchor or anchor in slugs(linked), target


def test_every_page_is_linked_from_the_readme() -> None:
    linked = set(re.findall(r"\]\((docs/[\w-]+\.md)\)", (ROOT / "README.md").read_text()))
    guides = {f"docs/{path.name}" for path in PAGES if path.parent.name == "docs"}
    assert linked == guides - {"docs/index.md"}  # the start of the site says what the readme says
