"""Pages in the terminal: found from a checkout and from a wheel, printed, and named by messages."""

import ast
import re
import tomllib
from pathlib import Path

import pytest
from commands.inside import run

from gossamer.errors import GossamerError
from gossamer.report import guides

ROOT = Path(__file__).parents[2]
SOURCES = sorted((ROOT / "src" / "gossamer").rglob("*.py"))


def test_a_wheel_has_every_page() -> None:
    built = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    pages = {f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md")} | {"CHANGELOG.md"}
    assert set(built["force-include"]) == pages
    assert {Path(target).stem for target in built["force-include"].values()} == set(guides.find_guides())
    assert all(target.startswith("gossamer/pages/") for target in built["force-include"].values())


def test_an_installed_package_has_its_pages_beside_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "site-packages" / "gossamer"
    (package / "pages").mkdir(parents=True)
    monkeypatch.setattr(guides, "__file__", str(package / "report" / "guides.py"))
    with pytest.raises(GossamerError, match=r"expected the pages in .*install the package again"):
        guides.find_guides()
    (package / "pages" / "training.md").write_text("# Of this version\n")
    assert list(guides.find_guides()) == ["training"]
    assert guides.read_guide("training") == "# Of this version\n"


def test_the_list_has_every_page_with_its_title(tmp_path: Path) -> None:
    shown = run("docs", cwd=tmp_path).stdout
    for path in (ROOT / "docs").glob("*.md"):
        assert re.search(rf"\b{path.stem}\b", shown)
        assert path.read_text().removeprefix("# ").partition("\n")[0] in shown


@pytest.mark.parametrize("name", ["privacy", "Privacy", "privacy.md", "docs/privacy.md"])
def test_in_a_pipe_a_page_is_as_it_was_written(name: str, tmp_path: Path) -> None:
    assert run("docs", name, cwd=tmp_path).stdout == (ROOT / "docs" / "privacy.md").read_text()


def test_an_unknown_page_is_refused_with_the_near_one(tmp_path: Path) -> None:
    done = run("docs", "trainng", cwd=tmp_path)
    assert done.returncode == 2
    assert "expected a page, one of architecture, changelog, communication" in done.stderr
    assert "got 'trainng'; did you mean 'training'?" in done.stderr


def test_links_name_the_command_that_shows_a_page() -> None:
    text = "![a\npicture](images/a.png) [data.md](data.md#traffic), [that](models.md), [code](../src/a.py), [a](https://a.b)"
    assert guides.adapt_links(text) == (
        "*Picture: a picture.* `gossamer docs data`, that (`gossamer docs models`), code, [a](https://a.b)"
    )


def find_texts(path: Path) -> list[str]:
    """Strings of a module that a user may see: all but the docstrings of modules."""
    tree = ast.parse(path.read_text())
    first = tree.body[0]
    own = first.value if isinstance(first, ast.Expr) else None
    return [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node is not own
    ]


def test_messages_name_pages_that_exist_by_the_command_that_shows_them() -> None:
    texts = {path: find_texts(path) for path in SOURCES}
    named = {page for found in texts.values() for text in found for page in re.findall(r"gossamer docs (\w+)", text)}
    assert {"data", "privacy", "layers", "deployment", "scaling"} <= named <= set(guides.find_guides())
    files = {path: [text for text in found if re.search(r"\bdocs/\w+\.md", text)] for path, found in texts.items()}
    assert not {path: found for path, found in files.items() if found}
