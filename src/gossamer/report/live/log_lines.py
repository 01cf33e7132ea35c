"""The last lines of the log, kept for those who watch a run."""

import logging
import time
from collections import deque
from collections.abc import Callable

from gossamer.report.live.view import LogLine

KEPT_LINES = 200
MAX_LINE = 500  # characters


class LogLines(logging.Handler):
    """A handler that keeps the last lines, each a piece of plain text in one line, and says when there is a new one."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.on_line: Callable[[], object] = lambda: None
        self._lines = deque[LogLine](maxlen=KEPT_LINES)

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a record of the log."""
        level = "info" if record.levelno < logging.WARNING else "warning" if record.levelno < logging.ERROR else "error"
        self._append(record.created, level, record.getMessage())

    def add(self, level: str, text: str) -> None:
        """Keep a line that is not from the log; `level` is one of LogLine's."""
        self.acquire()
        try:
            self._append(time.time(), level, text)
        finally:
            self.release()

    def last(self) -> list[LogLine]:
        """The lines that are kept."""
        return list(self._lines)

    def _append(self, when: float, level: str, text: str) -> None:
        self._lines.append({"time": when, "level": level, "text": clean_line(text)})
        self.on_line()


def clean_line(text: str) -> str:
    """Text of any origin as one line without control characters."""
    line = " ".join(text[: 2 * MAX_LINE].split())
    line = "".join(one if one.isprintable() else "\ufffd" for one in line)
    return line if len(line) <= MAX_LINE else f"{line[:MAX_LINE]}..."
