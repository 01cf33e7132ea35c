"""`gossamer new`: the folder of a new project."""

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from gossamer.commands.common import err, report_errors

EXAMPLES = """[bold]Examples[/]

gossamer new my-project
"""


@report_errors
def new(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A new folder, or an empty one.", show_default=False)],
) -> None:
    """Write a small project to start from: settings, a script that prepares your data, and what to run.

    Until the script is given data of yours it makes some up, so that the commands in README.md run at once.
    """
    from gossamer.projects.writing import write_project

    for path in write_project(folder):
        print(path)
    shown = escape(str(folder))
    err.print(
        f"Next: [bold]cd {shown}[/], [bold]python prepare.py[/] and [bold]gossamer train settings.toml[/]; "
        "README.md says more",
        highlight=False,
        soft_wrap=True,
    )
