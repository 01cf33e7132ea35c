"""Log lines of the command line: the handlers of the standard library's logging are set here and nowhere else."""

import logging
import sys
import time
from enum import StrEnum
from typing import Annotated

import typer


class LogLevel(StrEnum):
    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


LogLevelOption = Annotated[
    LogLevel, typer.Option("--log-level", help="Log lines on standard error: the least important that are shown.")
]


def configure(level: str) -> None:
    """Show the lines of the loggers `gossamer.*` of at least this level on standard error, with time stamps."""
    root = logging.getLogger("gossamer")
    root.handlers = [_terminal_handler() if sys.stderr.isatty() else _plain_handler()]
    root.setLevel(level.upper())


def _terminal_handler() -> logging.Handler:
    from rich.console import Console
    from rich.logging import RichHandler

    return RichHandler(console=Console(stderr=True), show_path=False, log_time_format="%Y-%m-%d %H:%M:%S")


def _plain_handler() -> logging.Handler:
    handler = logging.StreamHandler(sys.stderr)
    formatter = logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s", "%Y-%m-%dT%H:%M:%SZ")
    formatter.converter = time.gmtime
    handler.setFormatter(formatter)
    return handler
