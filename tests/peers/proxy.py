"""A TCP proxy between two neighbours that can reset every connection, or carry nothing for a while."""

import contextlib
import selectors
import socket
import struct
import threading
from types import TracebackType

RESET = struct.pack("ii", 1, 0)  # SO_LINGER: closing sends RST


class Proxy:
    """Forwards connections to a port of this machine, in a thread of its own."""

    def __init__(self, port: int) -> None:
        self.resets = 0
        self._target = ("127.0.0.1", port)
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self._other: dict[socket.socket, socket.socket] = {}
        self._resetting, self._blocked, self._ends = threading.Event(), threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> "Proxy":
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ends.set()
        self._thread.join()
        for one in (self._listening, *self._other):
            one.close()

    def reset(self, on: bool) -> None:
        """Reset all connections, and every new one, until told otherwise."""
        (self._resetting.set if on else self._resetting.clear)()

    def block(self, on: bool) -> None:
        """Carry nothing in either direction, and tell nobody, until told otherwise."""
        (self._blocked.set if on else self._blocked.clear)()

    def _run(self) -> None:
        with selectors.DefaultSelector() as ready:
            ready.register(self._listening, selectors.EVENT_READ)
            while not self._ends.is_set():
                if self._blocked.is_set():
                    self._ends.wait(0.02)
                    continue
                found = ready.select(timeout=0.02)
                if self._resetting.is_set():
                    for one in list(self._other):
                        self._drop(ready, one)
                for key, _ in found:
                    assert isinstance(key.fileobj, socket.socket)
                    one = key.fileobj
                    if one is self._listening:
                        self._accept(ready)
                    elif one in self._other:
                        self._forward(ready, one)

    def _accept(self, ready: selectors.BaseSelector) -> None:
        client, _ = self._listening.accept()
        try:
            server = socket.create_connection(self._target, timeout=5)
        except OSError:  # its agent has not started
            client.close()
            return
        for one, other in ((client, server), (server, client)):
            one.settimeout(5)
            self._other[one] = other
            ready.register(one, selectors.EVENT_READ)

    def _forward(self, ready: selectors.BaseSelector, one: socket.socket) -> None:
        try:
            data = one.recv(1 << 16)
            if data:
                return self._other[one].sendall(data)
        except OSError:
            pass
        self._drop(ready, one)

    def _drop(self, ready: selectors.BaseSelector, one: socket.socket) -> None:
        other = self._other.pop(one, None)
        if other is None:
            return
        self._other.pop(other)
        self.resets += self._resetting.is_set()
        for end in (one, other):
            ready.unregister(end)
            with contextlib.suppress(OSError):
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            end.close()
