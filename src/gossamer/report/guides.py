"""Pages of the documentation that come with the package: in a wheel its folder pages/, in a checkout docs/.

A message that needs more room than a line names one, as in `gossamer docs privacy`.
"""

import re
from pathlib import Path

from gossamer.choices import suggest
from gossamer.errors import GossamerError

LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!\w+:)([^)\s]+)\)")


def find_guides() -> dict[str, Path]:
    """Files of all pages, by their names in alphabetical order."""
    package = Path(__file__).parents[1]
    installed, checkout = package / "pages", package.parents[1]
    files = [*installed.glob("*.md")] or [*(checkout / "docs").glob("*.md"), *checkout.glob("CHANGELOG.md")]
    if not files:
        raise GossamerError(f"expected the pages in {installed}, found none: install the package again")
    return {path.stem.lower(): path for path in sorted(files, key=lambda path: path.stem.lower())}


def read_guide(name: str) -> str:
    """The text of a page, in Markdown; its name may also be that of its file."""
    guides = find_guides()
    stem = name.removeprefix("docs/").removesuffix(".md").lower()
    if stem not in guides:
        raise GossamerError(f"expected a page, one of {', '.join(guides)}; got {name!r}{suggest(stem, guides)}")
    return guides[stem].read_text(encoding="utf-8")


def read_title(path: Path) -> str:
    """The first heading of a page."""
    found = re.search(r"^# (.+)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    return found[1] if found else path.stem


def adapt_links(text: str) -> str:
    """A page for a terminal, where no link leads anywhere: those to other pages name the command that shows them."""

    def adapt(found: re.Match[str]) -> str:
        picture, label, target = found.groups()
        if picture:
            return f"*Picture: {' '.join(label.split())}.*"
        page = re.fullmatch(r"(\w+)\.md(?:#.*)?", target)
        if page is None:
            return label
        shown = f"`gossamer docs {page[1]}`"
        return shown if label == f"{page[1]}.md" else f"{label} ({shown})"

    return LINK.sub(adapt, text)
