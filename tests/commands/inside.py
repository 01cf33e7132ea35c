"""The command line in this process, without the seconds that a new one takes to import everything."""

import contextlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from typer.testing import CliRunner

from gossamer.cli import app


def run(*arguments: str, cwd: Path) -> Any:
    """Run a command in a folder; the result has `returncode`, `stdout` and `stderr`."""
    with contextlib.chdir(cwd):
        done = CliRunner().invoke(app, arguments, env={"COLUMNS": "200"})
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return SimpleNamespace(returncode=done.exit_code, stdout=done.stdout, stderr=done.stderr)
