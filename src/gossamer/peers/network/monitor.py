"""What ZeroMQ reports of the connections of sockets as they come and go, read by a thread of its own.

ZeroMQ waits for the thread once about a thousand reports are unread, so that it accepts no more connections than that
before they have been looked at. A report takes constant work; `on_look` is called at a fixed rate, whatever comes.
"""

import struct
import threading
import time
from collections.abc import Callable
from typing import Any

import zmq

BATCH = 256  # reports that are read between two looks, at most
LOOK = 0.05  # seconds between two looks
EVENT = struct.Struct("=HI")  # a report: its kind, and a file number or an error
NOW = int(zmq.NOBLOCK)


class Watcher:
    """Reads the reports of some sockets."""

    def __init__(self, context: zmq.Context[Any], on_look: Callable[[], None]) -> None:
        self.error: Exception | None = None  # what a handler failed with
        self._context, self._on_look = context, on_look
        self._followed: dict[Any, tuple[Any, Callable[[int, int], None]]] = {}
        self._thread = threading.Thread(target=self._run, daemon=True)

    def follow(self, socket: Any, events: int, on_event: Callable[[int, int], None]) -> None:
        """To be called before `start`; `on_event` takes an event's kind and number."""
        name = f"inproc://monitor-{len(self._followed)}"
        socket.monitor(name, events | zmq.EVENT_MONITOR_STOPPED)
        reports = self._context.socket(zmq.PAIR)
        reports.setsockopt(zmq.RCVHWM, 1)
        reports.connect(name)
        self._followed[reports] = socket, on_event

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Once more does nothing."""
        if self._thread.ident is None:
            self._thread.start()  # which closes what it reads from
        for socket, _ in list(self._followed.values()):
            socket.disable_monitor()  # while reports are still being read: ZeroMQ may be waiting for that
        self._thread.join()

    def _run(self) -> None:
        poller = zmq.Poller()
        for reports in self._followed:
            poller.register(reports, zmq.POLLIN)
        due = time.monotonic()
        while self._followed:
            for reports, _ in poller.poll(int(1000 * LOOK)):
                if not self._read(reports):
                    poller.unregister(reports)
                    reports.close(linger=0)
                    del self._followed[reports]
            if time.monotonic() >= due:
                self._try(self._on_look)
                due = time.monotonic() + LOOK

    def _read(self, reports: Any) -> bool:
        """Handle what has come, up to a bound; whether there may be more."""
        on_event = self._followed[reports][1]
        for _ in range(BATCH):
            try:
                kind, number = EVENT.unpack(reports.recv(NOW))
            except zmq.Again:
                break
            reports.recv()  # the listening address
            if kind == zmq.EVENT_MONITOR_STOPPED:
                return False
            self._try(on_event, kind, number)
        return True

    def _try(self, handler: Callable[..., None], *arguments: int) -> None:
        try:
            handler(*arguments)
        except OSError:  # of a connection that is gone by now; none may end the process
            pass
        except Exception as error:  # the reports must still be read, or ZeroMQ would wait for ever
            self.error = self.error or error
