"""Accepted connections, seen beside ZeroMQ: where they come from, and what came in over them without being handed over.

ZeroMQ bounds the size of a message's part and the number of whole messages that wait to be read, but not the number of
a message's parts, which it holds back until the last has come. What it holds is what the kernel has received, less the
messages that were handed over. A connection that makes it hold more than its share is shut; ZeroMQ then frees it all.
"""

import contextlib
import os
import socket
import struct
import threading
from dataclasses import dataclass

SEALED = 33  # bytes that encryption adds to a part
KEPT_ALIVE = 128  # bytes a second that heartbeats may take
HANDSHAKE = 1 << 13  # bytes before the first message, at most
_RECEIVED = struct.Struct("@Q")
_RECEIVED_AT = 128  # of tcpi_bytes_received in Linux's tcp_info


@dataclass
class _Connection:
    socket: socket.socket
    address: str
    since: float
    handed_over: int = 0


class Connections:
    """By file number. Called from two threads: the one that reads messages and the one that watches."""

    def __init__(self, share: int) -> None:
        """`share` is what may be held of one connection, in bytes."""
        self._share = share
        self._open: dict[int, _Connection] = {}
        self._lock = threading.Lock()

    def accepted(self, number: int, now: float) -> None:
        try:
            mine = socket.socket(fileno=os.dup(number))
            host, port = mine.getpeername()[:2]  # an IPv4 address may come dressed as an IPv6 one
        except OSError:  # it is gone already
            return
        self.closed(number)
        with self._lock:
            self._open[number] = _Connection(mine, f"{host.removeprefix('::ffff:')}:{port}", now)

    def closed(self, number: int) -> tuple[str, bool]:
        """Forget a connection, and tell where it came from and whether a message ever did."""
        with self._lock:
            found = self._open.pop(number, None)
        if found is None:
            return "unknown", False
        found.socket.close()
        return found.address, found.handed_over > 0

    def handed_over(self, number: int, sizes: list[int], sealed: bool) -> None:
        """A message with parts of these sizes has been read."""
        bodies = [size + SEALED * sealed for size in sizes]
        with self._lock:
            if number in self._open:
                self._open[number].handed_over += sum(body + (2 if body < 256 else 9) for body in bodies)

    def shut_overfull(self, now: float) -> list[str]:
        """Shut the connections that hold more than their share; their addresses."""
        shut = []
        with self._lock:
            for one in self._open.values():
                allowed = self._share + HANDSHAKE + KEPT_ALIVE * (now - one.since)
                if _received(one.socket) - one.handed_over > allowed:
                    shut.append(one.address)
                    with contextlib.suppress(OSError):  # the other end may have left at this moment
                        one.socket.shutdown(socket.SHUT_RDWR)
                    one.handed_over = _received(one.socket)  # once is enough; ZeroMQ tells when it has closed it
        return shut

    def close(self) -> None:
        for number in list(self._open):
            self.closed(number)


def _received(connection: socket.socket) -> int:
    """Bytes that the kernel has received over a connection; 0 where it does not tell."""
    option = getattr(socket, "TCP_INFO", None)
    if option is None:
        return 0
    try:
        told = connection.getsockopt(socket.IPPROTO_TCP, option, _RECEIVED_AT + _RECEIVED.size)
    except OSError:
        return 0
    return int(_RECEIVED.unpack_from(told, _RECEIVED_AT)[0]) if len(told) >= _RECEIVED_AT + _RECEIVED.size else 0
