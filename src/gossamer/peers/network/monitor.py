"""Connection monitor: ZeroMQ's events about the connections of sockets, handled in a thread of their own.

ZeroMQ blocks once about a thousand events are unread, so that it accepts no more connections than that before they have
been handled. An event takes constant work; `on_interval` is called at a fixed rate, however many events come.
"""

import struct
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

import zmq

EVENTS_PER_ROUND = 256  # that are read of one socket before the others, at most
ROUND_INTERVAL = 0.05  # seconds between two calls of `on_interval`
HANDSHAKE_FAILURES: dict[int, str] = {
    zmq.EVENT_HANDSHAKE_FAILED_AUTH: "a key that is no neighbour's",
    zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL: "no CurveZMQ",
    zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL: "left before its end",
}
INCOMING_EVENTS = zmq.EVENT_LISTENING | zmq.EVENT_ACCEPTED | zmq.EVENT_DISCONNECTED | sum(HANDSHAKE_FAILURES)
OUTGOING_EVENTS = (
    zmq.EVENT_CONNECTED
    | zmq.EVENT_DISCONNECTED
    | zmq.EVENT_CONNECT_RETRIED
    | zmq.EVENT_HANDSHAKE_FAILED_AUTH  # the listener there does not let this agent in
)
_EVENT = struct.Struct("=HI")  # its kind, and a file descriptor or an error
_NOBLOCK = int(zmq.NOBLOCK)


class ConnectionMonitor:
    """Reads the events of some sockets and calls their handlers."""

    def __init__(self, context: zmq.Context[Any], on_interval: Callable[[], None]) -> None:
        self.error: Exception | None = None  # of a handler, to be raised elsewhere
        self._context, self._on_interval = context, on_interval
        self._handlers: dict[Any, Callable[[int, int], None]] = {}  # by reader; the thread's own
        self._new: deque[tuple[Any, Callable[[int, int], None]]] = deque()  # readers that the thread has not seen yet
        self._followed: list[Any] = []  # sockets
        self._thread = threading.Thread(target=self._run, daemon=True)

    def follow(self, socket: Any, events: int, on_event: Callable[[int, int], None]) -> None:
        """Handle the events of a socket, from the next round on. `on_event` takes an event's kind and number."""
        name = f"inproc://monitor-{len(self._followed)}"
        socket.monitor(name, events | zmq.EVENT_MONITOR_STOPPED)
        reader = self._context.socket(zmq.PAIR)
        reader.setsockopt(zmq.RCVHWM, 1)
        reader.connect(name)
        self._followed.append(socket)
        self._new.append((reader, on_event))

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread; a second call does nothing."""
        if self._thread.ident is None:
            self._thread.start()  # it closes the sockets that it reads from
        for socket in self._followed:
            socket.disable_monitor()  # while events are still being read: ZeroMQ may block until they are
        self._followed.clear()
        self._thread.join()

    def _run(self) -> None:
        poller = zmq.Poller()
        due = time.monotonic()
        while self._handlers or self._new:
            while self._new:
                reader, on_event = self._new.popleft()
                self._handlers[reader] = on_event
                poller.register(reader, zmq.POLLIN)
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
        on_event = self._handlers[reader]
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
