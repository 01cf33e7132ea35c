"""Limits on TCP connections that ZeroMQ does not have: on their number, and on the bytes held of each.

ZeroMQ accepts every connection. It bounds the size of a message's part and the number of complete messages that wait to
be read, but neither the number of connections nor that of a message's parts, which it holds until the last one arrives.
So a stranger could exhaust file descriptors, and a neighbour memory.

This module follows connections beside ZeroMQ, by the file descriptors that its events name, and shuts down those beyond
a limit; ZeroMQ then frees what it holds of them. An accepted connection is in one of three states:
    pending   the handshake is not complete: from anyone; at most MAX_PENDING in all and MAX_PENDING_PER_HOST of a host
    idle      the handshake is complete: from a neighbour, not yet known which; MAX_PER_NEIGHBOUR for each
    active    a message has been read and names the neighbour: at most MAX_PER_NEIGHBOUR of one neighbour
In each state the oldest connection gives way to a new one. While connections come faster than ACCEPT_RATE, the listener
is paused (listener.py).

The bytes that ZeroMQ holds of a connection are those that the kernel has received less those of the messages read. That
count, and the completion of a handshake, come from Linux's TCP_INFO. On other systems a connection is pending until its
first message has been read, and the bytes held are not bounded here.

Sizes of handshakes and frames are those of ZMTP 3.1 (ZeroMQ RFC 37/ZMTP) and of CURVE (ZeroMQ RFC 26/CURVEZMQ).
"""

import contextlib
import errno
import os
import socket
import struct
import threading
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import NamedTuple

from gossamer.peers.network.listener import Listener

MAX_PENDING, MAX_PENDING_PER_HOST = 128, 32  # connections whose handshake is not complete
ACCEPT_RATE, ACCEPT_BURST = 250.0, 250.0  # of a token bucket: new connections a second, and at once
MAX_PER_NEIGHBOUR = 2  # connections of one neighbour: the one in use, and one that is broken or about to break
MAX_HANDSHAKE_BYTES = 1 << 12  # that may arrive before the first message; a handshake takes less than 1000
MAX_REPLY_BYTES = 1 << 9  # that may arrive over an outgoing connection: a handshake takes 301
CURVE_OVERHEAD = 33  # bytes that CURVE adds to a part: command name 8, nonce 8, authentication 16, flags 1
SHORT_HEADER, LONG_HEADER = 2, 9  # bytes of a frame's header, short for a body below LONG_BODY
LONG_BODY = 256
GREETING_BYTES = 64  # that a listener sends to anyone
WELCOME_BYTES = GREETING_BYTES + 170 + 32  # the most that it sends without an allowed key: greeting, WELCOME, ERROR
_TCP_INFO_FIELDS = struct.Struct("@B119xQQ")  # tcpi_state, tcpi_bytes_acked, tcpi_bytes_received of linux/tcp.h
_ESTABLISHED = 1  # TCP_ESTABLISHED
_TCP_INFO = getattr(socket, "TCP_INFO", None)
OnShutdown = Callable[[str, str], None]  # takes an address, and the reason to shut its connection down


class _TcpInfo(NamedTuple):
    state: int
    acked: int  # bytes sent that have arrived
    received: int  # bytes


@dataclass(eq=False)
class _Connection:
    socket: socket.socket  # a duplicate: ZeroMQ may close its own at any time, and its number then be another's
    host: str
    port: int
    delivered_bytes: int = 0  # of messages that were read
    group: "_Group | None" = None
    owner: Hashable = None

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"


@dataclass
class _Group:
    """Connections in one state, by owner (a host or a neighbour) in order of arrival, and limits on their number."""

    max_size: float
    max_per_owner: float
    size: int = 0
    by_owner: dict[Hashable, dict[int, _Connection]] = field(default_factory=dict)

    def add(self, descriptor: int, connection: _Connection, owner: Hashable) -> None:
        self.by_owner.setdefault(owner, {})[descriptor] = connection
        self.size += 1
        connection.group, connection.owner = self, owner

    def remove(self, descriptor: int, connection: _Connection) -> None:
        owned = self.by_owner[connection.owner]
        del owned[descriptor]
        self.size -= 1
        if not owned:
            del self.by_owner[connection.owner]

    def find_excess(self, owner: Hashable) -> int | None:
        """Find a connection to drop if a limit is exceeded: the oldest of this owner, or of the owner with the most.

        The cost is bounded by `max_size`, however many connections arrive.
        """
        if len(self.by_owner.get(owner, ())) > self.max_per_owner:
            return next(iter(self.by_owner[owner]))
        if self.size > self.max_size:
            return next(iter(self.by_owner[max(self.by_owner, key=lambda owner: len(self.by_owner[owner]))]))
        return None

    def items(self) -> list[tuple[int, _Connection]]:
        return [item for owned in self.by_owner.values() for item in owned.items()]


class Connections:
    """The connections of one agent, by file descriptor. Called from two threads: the transport's and the monitor's.

    The listener and its token bucket need no lock: no limit depends on when the listener is paused.
    """

    def __init__(self, max_held: int, neighbours: int, encrypted: bool, on_shutdown: OnShutdown) -> None:
        """`max_held` is the number of bytes that may be held of one connection once its handshake is complete."""
        self._max_held = max_held
        self._encrypted = encrypted
        self._on_shutdown = on_shutdown
        self._accepted: dict[int, _Connection] = {}
        self._outgoing: dict[int, _Connection] = {}  # by neighbour
        self._closing: set[int] = set()  # shut down here, but not yet closed by ZeroMQ
        needed = MAX_PER_NEIGHBOUR * neighbours  # all of them may come at once, and from one host
        self._pending = _Group(max(MAX_PENDING, needed), max(MAX_PENDING_PER_HOST, needed))
        self._idle = _Group(needed, needed)
        self._active = _Group(float("inf"), MAX_PER_NEIGHBOUR)
        self._listener: Listener | None = None
        self._tokens = ACCEPT_BURST  # of the token bucket for new connections
        self._lock = threading.Lock()

    def on_listening(self, descriptor: int) -> None:
        """Handle the start of the listener, which is paused while connections arrive faster than ACCEPT_RATE."""
        self._listener = Listener(descriptor)

    def on_accepted(self, descriptor: int, port: int) -> None:
        """Handle a new connection to the listener's port, in constant time."""
        self._tokens = max(self._tokens - 1, -ACCEPT_BURST)
        if self._tokens < 0 and self._listener is not None and not self._listener.paused:
            self._listener.pause()
        connection = _open_duplicate(descriptor, local_port=port)
        if connection is None:
            return
        with self._lock:
            self._remove(descriptor)
            self._closing.discard(descriptor)
            self._accepted[descriptor] = connection
            self._move(descriptor, connection, self._pending, connection.host)

    def on_connected(self, neighbour: int, descriptor: int, port: int) -> None:
        """Handle a new outgoing connection, over which nothing but the handshake may arrive."""
        connection = _open_duplicate(descriptor, peer_port=port)
        with self._lock:
            self._drop_outgoing(neighbour)
            if connection is not None:
                self._outgoing[neighbour] = connection

    def on_disconnected(self, neighbour: int) -> None:
        with self._lock:
            self._drop_outgoing(neighbour)

    def on_closed(self, descriptor: int) -> tuple[str, bool] | None:
        """Handle the end of a connection, and return its address and whether a message was read; None if it was shut
        down here."""
        with self._lock:
            if descriptor in self._closing:
                self._closing.remove(descriptor)
                return None
            found = self._remove(descriptor)
            return ("unknown", False) if found is None else (found.address, found.delivered_bytes > 0)

    def on_delivered(self, descriptor: int, sender: int | str, sizes: list[int]) -> None:
        """Handle a message of a sender that was read, with parts of these sizes."""
        overhead = CURVE_OVERHEAD * self._encrypted
        with self._lock:
            connection = self._accepted.get(descriptor)
            if connection is None:
                return
            if connection.group is self._pending and self._handshake_complete(connection) is False:
                return  # the message is of an earlier connection with this descriptor
            for body in (size + overhead for size in sizes):
                connection.delivered_bytes += body + (SHORT_HEADER if body < LONG_BODY else LONG_HEADER)
            if connection.group is not self._active:
                self._move(descriptor, connection, self._active, sender)

    def enforce_limits(self, elapsed: float = 0.0) -> list[int]:
        """Shut down the connections that hold too much, and return the neighbours whose connection is broken. `elapsed`
        is the time in seconds since the last call."""
        self._tokens = min(self._tokens + ACCEPT_RATE * elapsed, ACCEPT_BURST)
        if self._tokens >= 0 and self._listener is not None and self._listener.paused:
            self._listener.resume()
        broken = []
        with self._lock:
            for descriptor, connection in self._pending.items():
                if self._handshake_complete(connection):
                    self._move(descriptor, connection, self._idle, connection.host)
                elif _read_info(connection.socket).received > MAX_HANDSHAKE_BYTES:
                    self._close(descriptor, "too many bytes before the end of its handshake")
            for descriptor, connection in self._idle.items() + self._active.items():
                held = _read_info(connection.socket).received - connection.delivered_bytes
                if held > self._max_held + MAX_HANDSHAKE_BYTES:
                    self._close(descriptor, "parts of a message without an end")
            for neighbour, connection in self._outgoing.items():
                info = _read_info(connection.socket)
                if info.received > MAX_REPLY_BYTES and info.state == _ESTABLISHED:
                    self._on_shutdown(connection.address, "messages over the connection that is only for sending to it")
                    _shutdown(connection.socket)
                if info.state != _ESTABLISHED:  # ZeroMQ does not notice while it is not reading
                    broken.append(neighbour)
        return broken

    def close(self) -> None:
        if self._listener is not None:
            self._listener.close()
        with self._lock:
            for descriptor in list(self._accepted):
                self._remove(descriptor)
            for neighbour in list(self._outgoing):
                self._drop_outgoing(neighbour)

    def _move(self, descriptor: int, connection: _Connection, group: _Group, owner: Hashable) -> None:
        """Move a connection into a group, and shut down others beyond the group's limits."""
        if connection.group is not None:
            connection.group.remove(descriptor, connection)
        group.add(descriptor, connection, owner)
        while (victim := group.find_excess(owner)) is not None:
            other = self._accepted[victim]
            if group is self._pending and self._handshake_complete(other):
                self._move(victim, other, self._idle, other.host)
            else:
                self._close(victim, "too many connections" if group is self._active else "too many without a message")

    def _close(self, descriptor: int, why: str) -> None:
        connection = self._accepted[descriptor]
        self._on_shutdown(connection.address, why)
        _shutdown(connection.socket)
        self._remove(descriptor)
        self._closing.add(descriptor)

    def _remove(self, descriptor: int) -> _Connection | None:
        found = self._accepted.pop(descriptor, None)
        if found is not None:
            found.socket.close()
            assert found.group is not None
            found.group.remove(descriptor, found)
        return found

    def _drop_outgoing(self, neighbour: int) -> None:
        found = self._outgoing.pop(neighbour, None)
        if found is not None:
            found.socket.close()

    def _handshake_complete(self, connection: _Connection) -> bool | None:
        """Return whether the handshake is complete, by the bytes sent; None where the kernel does not count them."""
        acked = _read_info(connection.socket).acked
        return acked > (WELCOME_BYTES if self._encrypted else GREETING_BYTES) if acked else None


def _open_duplicate(
    descriptor: int, *, local_port: int | None = None, peer_port: int | None = None
) -> _Connection | None:
    """Duplicate ZeroMQ's descriptor, so that its reuse cannot mislead.

    Return None if it no longer belongs to a connection with the given local port or peer's port. If this process has no
    descriptor left, shut the connection down.
    """
    try:
        theirs = _wrap_descriptor(descriptor)
    except OSError:
        return None
    try:
        host, port = theirs.getpeername()[:2]
        if local_port not in (None, theirs.getsockname()[1]) or peer_port not in (None, port):
            return None
        host = host.removeprefix("::ffff:")  # an IPv4 address may come as an IPv6 one
        return _Connection(_wrap_descriptor(os.dup(descriptor)), host, port)
    except (ValueError, IndexError):  # the descriptor is by now of a socket of another family
        return None
    except OSError as error:
        if error.errno in (errno.EMFILE, errno.ENFILE):
            _shutdown(theirs)
        return None
    finally:
        theirs.detach()


def _wrap_descriptor(descriptor: int) -> socket.socket:
    """Make a socket object of a descriptor. With a given family Python makes no system calls; AF_INET6, because its
    addresses have room for those of IPv4."""
    return socket.socket(socket.AF_INET6, socket.SOCK_STREAM, socket.IPPROTO_TCP, descriptor)


def _shutdown(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):  # the other end may have left at this moment
        connection.shutdown(socket.SHUT_RDWR)


def _read_info(connection: socket.socket) -> _TcpInfo:
    """Counters of a connection by Linux's TCP_INFO; elsewhere, as if nothing had been sent or received."""
    if _TCP_INFO is not None:
        with contextlib.suppress(OSError, struct.error):  # an old kernel has fewer fields
            content = connection.getsockopt(socket.IPPROTO_TCP, _TCP_INFO, _TCP_INFO_FIELDS.size)
            return _TcpInfo(*_TCP_INFO_FIELDS.unpack(content))
    return _TcpInfo(_ESTABLISHED, 0, 0)
