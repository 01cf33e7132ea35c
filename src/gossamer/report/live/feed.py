"""The feed of a run's view: one thread publishes, pages and metrics wait for what is new."""

import threading
import time

from gossamer.report.live.view import RunView


class Feed:
    """The latest view of a run with its version, counted from 1.

    A published view is not changed afterwards, but for its lists of evaluations, memberships and log lines, which may
    grow at their ends: whoever publishes need not copy ten thousand evaluations each time.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._version = 0
        self._view: RunView | None = None
        self._published_at = time.monotonic()

    def publish(self, view: RunView) -> None:
        """Replace the view and wake those who wait."""
        with self._changed:
            self._view = view
            self._version += 1
            self._published_at = time.monotonic()
            self._changed.notify_all()

    def latest(self) -> tuple[int, RunView | None]:
        """The version and the view; 0 and None before the first one."""
        with self._changed:
            return self._version, self._view

    def age(self) -> float:
        """Seconds since the latest view was published, by which the ages in it have grown."""
        with self._changed:
            return time.monotonic() - self._published_at

    def wait(self, after: int, seconds: float) -> tuple[int, RunView | None]:
        """The latest version and view, as soon as the version is above `after`, at the latest after `seconds`."""
        with self._changed:
            self._changed.wait_for(lambda: self._version > after, timeout=seconds)
            return self._version, self._view
