"""Connection monitor: ZeroMQ's events about the connections of sockets, handled in a thread of their own.

ZeroMQ blocks once about a thousand events are unread, so that it accepts no more connections than that before they have
been handled. An event takes constant work; `on_interval` is called at a fixed rate, however many events come.
"""

import struct
import threading
import time
from collections.abc import Callable
from typing import Any

import zmq

EVENTS_PER_ROUND = 256  # that are read of one socket before the others, at most
ROUND_INTERVAL = 0.05  # seconds between two calls of `on_interval`
_EVENT = struct.Struct("=HI")  # its kind, and a file descriptor or an error
_NOBLOCK = int(zmq.NOBLOCK)


class ConnectionMonitor:
    """Reads the events of some sockets and calls their handlers."""

    def __init__(self, context: zmq.Context[Any], on_interval: Callable[[], None]) -> None:
        self.error: Exception | None = None  # of a handler, to be raised elsewhere
        self._context, self._on_interval = context, on_interval
        self._handlers: dict[Any, tuple[Any, Callable[[int, int], None]]] = {}
        self._thread = threading.Thread(target=self._run, daemon=True)

    def follow(self, socket: Any, events: int, on_event: Callable[[int, int], None]) -> None:
        """Handle the events of a socket; to be called before `start`. `on_event` takes an event's kind and number."""
        name = f"inproc://monitor-{len(self._handlers)}"
        socket.monitor(name, events | zmq.EVENT_MONITOR_STOPPED)
        reader = self._context.socket(zmq.PAIR)
        reader.setsockopt(zmq.RCVHWM, 1)
        reader.connect(name)
        self._handlers[reader] = socket, on_event

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread; a second call does nothing."""
        if self._thread.ident is None:
            self._thread.start()  # it closes the sockets that it reads from
        for socket, _ in list(self._handlers.values()):
            socket.disable_monitor()  # while events are still being read: ZeroMQ may block until they are
        self._thread.join()

    def _run(self) -> None:
        poller = zmq.Poller()
        for reader in self._handlers:
            poller.register(reader, zmq.POLLIN)
        due = time.monotonic()
        while self._handlers:
            for reader, _ in poller.poll(int(1000 * ROUND_INTERVAL)):
                if not self._read(reader):
                    poller.unregister(reader)
                    reader.close(linger=0)
                    del self._handlers[reader]
            if time.monotonic() >= due:
                self._try(self._on_interval)
                due = time.monotonic() + ROUND_INTERVAL

    def _read(self, reader: Any) -> bool:
        """Handle events, up to EVENTS_PER_ROUND; return False once the socket's monitor has stopped."""
        on_event = self._handlers[reader][1]
        for _ in range(EVENTS_PER_ROUND):
            try:
                kind, number = _EVENT.unpack(reader.recv(_NOBLOCK))
            except zmq.Again:
                break
            reader.recv()  # the listening address
            if kind == zmq.EVENT_MONITOR_STOPPED:
                return False
            self._try(on_event, kind, number)
        return True

    def _try(self, handler: Callable[..., None], *arguments: int) -> None:
        try:
            handler(*arguments)
        except OSError:  # the connection is gone by now; that must not end the process
            pass
        except Exception as error:  # events must still be read, or ZeroMQ would block for ever
            self.error = self.error or error
