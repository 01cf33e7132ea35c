"""Log of a command on standard error: records of the loggers `gossamer.*`, with time stamps."""

import logging
import sys

LINE_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


def configure(level: str) -> None:
    """Write records from a level on (debug, info, warning or error) to standard error, and no others."""
    logger = logging.getLogger("gossamer")
    for handler in [old for old in logger.handlers if isinstance(old, StderrHandler)]:
        logger.removeHandler(handler)
    handler = StderrHandler()
    handler.setFormatter(logging.Formatter(LINE_FORMAT))
    logger.addHandler(handler)
    logger.setLevel(level.upper())
    logger.propagate = False


class StderrHandler(logging.Handler):
    """Writes to sys.stderr as it is at the moment: while bars are shown, rich replaces it to print above them."""

    def emit(self, record: logging.LogRecord) -> None:
        print(self.format(record), file=sys.stderr, flush=True)
