"""The publisher of a run's view: a thread that asks the run's source for a view when something has changed.

Whoever trains notes that something has changed, which costs an assignment. Views follow each other after EVERY seconds,
those that are urgent after PROMPT; a source whose views take long to make is asked less often (pace.py).
"""

import logging
import threading
import time
from collections.abc import Callable

from gossamer.errors import GossamerError
from gossamer.report.live.feed import Feed
from gossamer.report.live.log_lines import LogLines
from gossamer.report.live.pace import VIEW_SHARE, rest_after
from gossamer.report.live.view import RunView

EVERY = 1.0  # seconds between two views
PROMPT = 0.1  # seconds between two of which the later one is urgent: an evaluation, a line of the log
_logger = logging.getLogger(__name__)


class Publisher:
    """Publishes the views that `build` makes; a context that ends with a last one."""

    def __init__(
        self, feed: Feed, log: LogLines, build: Callable[[], RunView], always: bool = False, share: float = VIEW_SHARE
    ) -> None:
        """A new line of the log is to be seen at once. `always`: something may have changed that nobody notes, such as
        a file; `share`: of a processor."""
        self._feed, self._log, self._build, self._always, self._share = feed, log, build, always, share
        log.on_line = self.hurry
        self._changed, self._failed = True, False
        self._hurry, self._ends = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="publisher", daemon=True)

    def note(self) -> None:
        """Note a change that can wait."""
        self._changed = True

    def hurry(self) -> None:
        """Note a change to be seen at once."""
        self._changed = True
        self._hurry.set()

    def __enter__(self) -> "Publisher":
        self._thread.start()
        return self

    def __exit__(self, *reason: object) -> None:
        self._ends.set()
        self._hurry.set()
        self._thread.join()
        self._publish()

    def _run(self) -> None:
        while not self._ends.is_set():
            self._hurry.clear()
            began = time.thread_time()
            if self._changed or self._always:
                self._changed = False
                self._publish()
            rest = max(PROMPT, rest_after(time.thread_time() - began, self._share))
            if not self._ends.wait(rest):
                self._hurry.wait(EVERY - min(rest, EVERY))

    def _publish(self) -> None:
        """Publish a view; whatever goes wrong is said once, on the page as well, and does not end the run that is
        shown."""
        try:
            self._feed.publish(self._build())
        except Exception as error:
            if not self._failed:
                known = isinstance(error, GossamerError | OSError)
                _logger.error("the run is shown as it was before: %s", error, exc_info=not known)
                _, last = self._feed.latest()
                if last is not None:
                    self._feed.publish({**last, "log": self._log.last()})
            self._failed = True
        else:
            self._failed = False
