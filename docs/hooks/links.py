"""Hook of the site: links that leave docs/, and the changelog, which stands at the root of the repository.

Pages are written to be read in the repository, where ../src/gossamer/api.py is a file beside them. On the site such a
link leads to the repository.
"""

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from mkdocs.utils import get_relative_url

ROOT = Path(__file__).parents[2]
LINK = re.compile(r"\]\((?!\w+:|#|/)([^)\s#]+)(#[^)\s]*)?\)")
NAMED = re.compile(r"<code>gossamer docs (\w+)</code>")
CHANGELOG = "changelog.md"


def lead_to(target: str, page: str, repository: str) -> str:
    """The address of a relative link of a page at `page`, a path in docs/: itself, or, outside of docs/, the
    repository's."""
    path = posixpath.normpath(posixpath.join("docs", posixpath.dirname(page), target))
    if path.startswith("docs/"):
        return re.sub(r"\.ipynb$", ".md", target)  # notebooks are pages here
    if not (ROOT / path).exists():
        raise FileNotFoundError(f"docs/{page} links to {target}, which is not in the repository")
    kind = "tree" if (ROOT / path).is_dir() else "blob"
    return f"{repository}/{kind}/main/{path}"


def rewrite(markdown: str, page: str, repository: str) -> str:
    """A page with its links led out of docs/ where they leave it."""
    return LINK.sub(lambda found: f"]({lead_to(found[1], page, repository)}{found[2] or ''})", markdown)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the changelog, whose links are relative to the root."""
    text = re.sub(r"\]\(docs/", "](", (ROOT / "CHANGELOG.md").read_text())
    files.append(File.generated(config, CHANGELOG, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, **rest: Any) -> str:
    return rewrite(markdown, page.file.src_uri, config["extra"]["repository"])


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Let the command that shows a page in a terminal, as docstrings and messages name it, lead to the page here."""

    def link(found: re.Match[str]) -> str:
        target = files.get_file_from_path(f"{found[1]}.md")
        if target is None:
            raise FileNotFoundError(f"{page.file.src_uri} names the page {found[1]}, which does not exist")
        return f'<a href="{get_relative_url(target.url, page.url)}">{found[0]}</a>'

    return NAMED.sub(link, html)
