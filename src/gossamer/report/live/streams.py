"""Server-sent events of a page: first the whole view, then what is new; each stream paces itself by its own work.

A stream's thread may use a small share of one processor (pace.py): it waits after an event in proportion to the thread
CPU time that the event took and to the number of streams. Views that are published meanwhile are skipped; the next
event has all that is new since the last one.
"""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from gossamer.report.live.changes import compare, snapshot
from gossamer.report.live.feed import Feed
from gossamer.report.live.pace import PAGE_SHARE, rest_after
from gossamer.report.live.request_handler import send_in_pieces
from gossamer.report.web.assets import as_json

MAX_STREAMS = 32
PAUSE = 0.25  # seconds between events, at least
MAX_PAUSE = 5.0  # at most, whatever the work
HEARTBEAT = 10.0  # seconds
CHECK = 0.5  # seconds after which a stream sees that its browser has gone or that the server stops
RETRY = 2000  # milliseconds after which a browser connects again


class Streams:
    """The streams of a server."""

    def __init__(self, feed: Feed) -> None:
        self._feed = feed
        self._changed = threading.Condition()
        self._count = 0
        self._stopping = threading.Event()

    @contextmanager
    def reserve(self) -> Iterator[bool]:
        """Take the place of a stream; yields False if all are taken."""
        with self._changed:
            free = self._count < MAX_STREAMS and not self._stopping.is_set()
            self._count += free
        try:
            yield free
        finally:
            with self._changed:
                self._count -= free
                self._changed.notify_all()

    def stop(self, seconds: float) -> None:
        """Have all streams send what is left and end."""
        self._stopping.set()
        with self._changed:
            self._changed.wait_for(lambda: self._count == 0, timeout=seconds)

    def run(self, connection: socket.socket) -> None:
        """Send events until the browser or the server goes."""
        send_in_pieces(connection, f"retry: {RETRY}\n\n".encode())
        version, sent = 0, None
        last_sent = time.monotonic()
        while _is_connected(connection):
            stopping = self._stopping.is_set()
            latest, view = self._feed.wait(version, 0.0 if stopping else CHECK)
            if view is not None and latest > version:
                began = time.thread_time()
                now = snapshot(view)
                name, content = ("snapshot", now) if sent is None else ("update", compare(sent, now))
                version, sent = latest, now
                if content:
                    send_in_pieces(connection, f"id: {version}\nevent: {name}\ndata: {as_json(content)}\n\n".encode())
                    last_sent = time.monotonic()
                self._rest(time.thread_time() - began)
            if stopping:
                send_in_pieces(connection, b"event: end\ndata: {}\n\n")
                return
            if time.monotonic() - last_sent > HEARTBEAT:
                send_in_pieces(connection, b": still here\n\n")
                last_sent = time.monotonic()

    def _rest(self, work: float) -> None:
        self._stopping.wait(min(max(PAUSE, rest_after(work * self._count, PAGE_SHARE)), MAX_PAUSE))


def _is_connected(connection: socket.socket) -> bool:
    """False once the other side has closed; a browser sends nothing more on this connection."""
    connection.setblocking(False)
    try:
        return bool(connection.recv(1024))
    except BlockingIOError:
        return True
