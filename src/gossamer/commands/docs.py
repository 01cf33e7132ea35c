"""`gossamer docs`: the pages of the documentation in the terminal."""

from typing import Annotated

import typer
from rich.console import Console
from rich.markdown import Markdown
from rich.table import Table
from rich.theme import Theme

from gossamer.commands.common import report_errors

EXAMPLES = """[bold]Examples[/]

gossamer docs

gossamer docs training

gossamer docs privacy | less
"""
MOST_COLUMNS = 120  # of text on wide terminals


def _complete_pages(incomplete: str) -> list[str]:
    from gossamer.report.guides import find_guides

    return [name for name in find_guides() if name.startswith(incomplete)]


@report_errors
def docs(
    page: Annotated[
        str | None,
        typer.Argument(
            metavar="PAGE",
            help="A page's name; all are listed without.",
            autocompletion=_complete_pages,
            show_default=False,
        ),
    ] = None,
) -> None:
    """List the pages of the documentation, or print one.

    They are those of this version. In a pipe or a file a page is plain Markdown, as it was written.
    """
    from gossamer.report.guides import adapt_links, find_guides, read_guide, read_title

    console = Console(theme=Theme({"markdown.code": "bold cyan"}))  # not on black: terminals may be light
    console.width = min(console.width, MOST_COLUMNS)
    if page is None:
        table = Table("page", "about")
        for name, path in find_guides().items():
            table.add_row(name, read_title(path))
        console.print(table)
    elif console.is_terminal:
        console.print(Markdown(adapt_links(read_guide(page)), code_theme="ansi_dark", hyperlinks=False))
    else:
        print(read_guide(page), end="")
