"""The documentation site builds without a warning or a broken link, and nothing in it comes from elsewhere."""

import importlib
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

pytest.importorskip("mkdocs", reason="the documentation site needs the extra docs")
ROOT = Path(__file__).parents[1]
LOADED = {"script": "src", "img": "src", "iframe": "src", "source": "src", "video": "src", "object": "data"}
FETCHED = ("stylesheet", "icon", "preload", "prefetch", "preconnect", "dns-prefetch", "modulepreload", "manifest")

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("site")]


class Resources(HTMLParser):
    """Addresses that a browser loads by itself when it shows a page; links that a reader follows are none."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if tag in LOADED and LOADED[tag] in given:
            self.found.append(given[LOADED[tag]])
        if tag == "link" and any(word in given.get("rel", "") for word in FETCHED):
            self.found.append(given.get("href", ""))
        self.found += re.findall(r"url\(([^)]*)\)", given.get("style", ""))


def find_resources(page: str) -> list[str]:
    parser = Resources()
    parser.feed(page)
    styles = re.findall(r"<style[^>]*>(.*?)</style>", page, re.DOTALL)
    return parser.found + [address for style in styles for address in re.findall(r"url\(([^)]*)\)", style)]


def is_foreign(address: str) -> bool:
    return re.match(r"[\"']?(?:https?:)?//", address.strip()) is not None


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(target)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert not done.stderr.strip()
    return target


def test_pages_load_nothing_from_elsewhere(site: Path) -> None:
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > 20
    for page in pages:
        resources = find_resources(page.read_text())
        assert resources, page
        assert not [address for address in resources if is_foreign(address)], page
    for style in (ROOT / "docs").rglob("*.css"):
        assert not [address for address in re.findall(r"url\(([^)]*)\)", style.read_text()) if is_foreign(address)]


def test_the_search_for_foreign_resources_finds_them() -> None:
    page = (
        '<link rel="stylesheet" href="https://a.org/x.css"><script src="//b.org/y.js"></script>'
        '<img src="https://c.org/z.png"><style>@import url("https://d.org/f.css")</style><a href="https://e.org">e</a>'
    )
    assert len([address for address in find_resources(page) if is_foreign(address)]) == 4


def test_no_widget_asks_a_forge(site: Path) -> None:
    """The theme's repository button fetches stars from the forge's interface when it is shown."""
    assert not [page for page in site.rglob("*.html") if 'data-md-component="source"' in page.read_text()]


def test_links_that_leave_the_pages_lead_to_the_repository(site: Path) -> None:
    page = (site / "extending.html").read_text()
    assert 'href="https://github.com/gossamer-learning/gossamer/blob/main/src/gossamer/model/layers/layer.py"' in page
    assert 'href="../' not in page
    settings = (site / "reference" / "settings.html").read_text()
    assert '<a href="../layers.html"><code>gossamer docs layers</code></a>' in settings


def test_tables_are_made_from_the_program(site: Path) -> None:
    from gossamer.cli import COMMANDS
    from gossamer.runs.settings import Settings

    settings = (site / "reference" / "settings.html").read_text()
    assert not [name for name in Settings.model_fields if f"<code>{name}</code>" not in settings]
    commands = (site / "reference" / "commands.html").read_text()
    assert not [name for name in COMMANDS if f'id="gossamer-{name}"' not in commands]


def test_the_reference_has_every_public_name(site: Path) -> None:
    import gossamer

    pages = "".join(page.read_text() for page in (site / "reference").glob("*.html"))
    assert not [name for name in gossamer.__all__ if f'id="gossamer.{name}"' not in pages]


def test_symbols_are_no_markup(site: Path) -> None:
    """Braces and underscores of formulas are neither attributes nor emphasis."""
    article = (site / "notation.html").read_text().partition("<article")[2].partition("</article>")[0]
    assert "<code>x~_{p,i} = W_{p,a(i)}^T x_i</code>" in article
    assert re.findall(r"<em[^>]*>([^<]*)", article) == ["Distributed Training of Graph Convolutional Networks"]


def test_docstrings_keep_their_lists(site: Path) -> None:
    article = (site / "reference" / "data.html").read_text()
    assert re.search(r"<li><code>targets</code>: y_i:", article)
    assert "lambda" not in article
    names = set(re.findall(r'id="gossamer\.observers\.(\w+)"', (site / "reference" / "observers.html").read_text()))
    assert names == set(importlib.import_module("gossamer.observers").__all__)


def test_names_of_topology_lead_to_functions(site: Path) -> None:
    """`design` is a module, too."""
    page = (site / "reference" / "topology.html").read_text()
    assert page.count('id="gossamer.topology.design.design"') == 1
    assert 'id="gossamer.topology.design"' not in page
    assert len(re.findall(r'id="gossamer\.topology\.(?:design\.)?(?:Design|certify_design|fastest_mixing)"', page)) == 3


def test_types_of_signatures_lead_to_what_they_are(site: Path) -> None:
    page = (site / "reference" / "training.html").read_text()
    for name in ("Result", "api.Display", "runs.options.Options", "runs.run.Run", "runs.run.StartRun"):
        assert re.search(rf'<span class="n"><a [^>]*href="#gossamer\.{re.escape(name)}"', page), name


def test_options_are_shown_with_their_values_and_opposites(site: Path) -> None:
    commands = (site / "reference" / "commands.html").read_text()
    assert "<code>--predictions, --no-predictions</code>" in commands
    assert "<code>--compare RUN</code>" in commands
