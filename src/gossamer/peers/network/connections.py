"""TCP connections beside ZeroMQ: how many there may be, and how much each may make this process hold.

ZeroMQ accepts every connection, and bounds the size of a message's part and the number of whole messages that wait to
be read, but not the number of connections, nor that of a message's parts, which it holds back until the last has come.
Here connections are followed by file number, as ZeroMQ reports them, and those past a limit are shut; ZeroMQ then frees
what it holds of them. An accepted connection is *pending* until its handshake is finished, *silent* until its first
message has been read, and then its sender's. What ZeroMQ holds of one is what the kernel has received less the messages
that were handed over; both this and the end of a handshake are read off Linux's TCP_INFO. Where there is none, a
connection is pending until its first message has been read, and what it holds is not bounded here.
"""

import contextlib
import errno
import os
import resource
import socket
import struct
import threading
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import NamedTuple

from gossamer.peers.network.listener import Listener

PENDING, PENDING_EACH = 128, 32  # connections whose handshake is not finished: in all, and of one host
DESCRIPTORS = 1 << 14  # ZeroMQ accepts about a thousand connections before it waits for them to be looked at
RATE, BURST = 250.0, 250.0  # connections a second that are accepted for long, and at once
EACH = 2  # connections of one neighbour: the one that serves, and one that it has lost or will soon lose
EARLY = 1 << 12  # bytes that may arrive before the first message; a handshake takes less than 1000
BACK = 1 << 9  # bytes that may arrive over an outgoing connection: a handshake takes 301
SEALED = 33  # bytes that encryption adds to a part
GREETING = 64  # bytes that a listener sends to anyone
WELCOME = GREETING + 170 + 32  # at most so many to whoever has not shown an allowed key: CURVE's WELCOME, and an ERROR
_TOLD = struct.Struct("@B119xQQ")  # the fields of `_Info` in Linux's tcp_info
_ESTABLISHED = 1
_TCP_INFO = getattr(socket, "TCP_INFO", None)
Shut = Callable[[str, str], None]  # an address, and why its connection was shut


class _Info(NamedTuple):
    state: int
    acked: int  # bytes sent that have arrived
    received: int  # bytes


@dataclass(eq=False)
class _Connection:
    socket: socket.socket  # a number of our own: ZeroMQ's may belong to another connection by the time it is used
    host: str
    port: int
    handed_over: int = 0
    group: "_Group | None" = None
    owner: Hashable = None

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"


@dataclass
class _Group:
    """Connections by owner, in the order of their coming: at most so many in all, and of one owner."""

    most: float
    most_each: float
    size: int = 0
    members: dict[Hashable, dict[int, _Connection]] = field(default_factory=dict)

    def add(self, number: int, one: _Connection, owner: Hashable) -> None:
        self.members.setdefault(owner, {})[number] = one
        self.size += 1
        one.group, one.owner = self, owner

    def remove(self, number: int, one: _Connection) -> None:
        mine = self.members[one.owner]
        del mine[number]
        self.size -= 1
        if not mine:
            del self.members[one.owner]

    def excess(self, owner: Hashable) -> int | None:
        """The one that has to go: the oldest of this owner, or of the one that has the most. Its cost is bounded by
        `most`, however many connections come."""
        if len(self.members.get(owner, ())) > self.most_each:
            return next(iter(self.members[owner]))
        if self.size > self.most:
            return next(iter(self.members[max(self.members, key=lambda one: len(self.members[one]))]))
        return None

    def all(self) -> list[tuple[int, _Connection]]:
        return [member for mine in self.members.values() for member in mine.items()]


class Connections:
    """Called from two threads: the one that reads messages and the one that watches."""

    def __init__(self, share: int, neighbours: int, sealed: bool, on_shut: Shut) -> None:
        """`share` is what may be held of one connection, in bytes, once its handshake is finished."""
        self._share = share
        self._sealed = sealed
        self._on_shut = on_shut
        self._accepted: dict[int, _Connection] = {}
        self._outgoing: dict[int, _Connection] = {}  # by neighbour
        self._shut: set[int] = set()  # numbers of those that ZeroMQ has yet to close
        each = EACH * neighbours  # all of them may come at once, and from one host
        self._pending = _Group(max(PENDING, each), max(PENDING_EACH, each))
        self._silent = _Group(EACH * neighbours, EACH * neighbours)
        self._heard = _Group(float("inf"), EACH)
        self._listener: Listener | None = None
        self._credit = BURST  # connections that may still come at once
        self._lock = threading.Lock()

    def listening(self, number: int) -> None:
        """The listener has this number; it is paused while connections come faster than `RATE`."""
        self._listener = Listener(number)

    def accepted(self, number: int, port: int) -> None:
        """A connection to the port has come. Constant work, however many there are."""
        self._credit = max(self._credit - 1, -BURST)
        if self._credit < 0 and self._listener is not None and not self._listener.paused:
            self._listener.pause(True)
        one = _duplicate(number, near=port)
        if one is None:
            return
        with self._lock:
            self._forget(number)
            self._shut.discard(number)
            self._accepted[number] = one
            self._move(number, one, self._pending, one.host)

    def connected(self, neighbour: int, number: int, port: int) -> None:
        """The connection to a neighbour stands; nothing but its handshake may arrive over it."""
        one = _duplicate(number, far=port)
        with self._lock:
            self._drop_outgoing(neighbour)
            if one is not None:
                self._outgoing[neighbour] = one

    def disconnected(self, neighbour: int) -> None:
        with self._lock:
            self._drop_outgoing(neighbour)

    def closed(self, number: int) -> tuple[str, bool] | None:
        """Forget a connection, and tell where it came from and whether a message ever did; None if it was shut."""
        with self._lock:
            if number in self._shut:
                self._shut.remove(number)
                return None
            found = self._forget(number)
            return ("unknown", False) if found is None else (found.address, found.handed_over > 0)

    def handed_over(self, number: int, sender: int, sizes: list[int]) -> None:
        """A message of a sender with parts of these sizes has been read."""
        bodies = [size + SEALED * self._sealed for size in sizes]
        with self._lock:
            one = self._accepted.get(number)
            if one is None or (one.group is self._pending and self._is_finished(one) is False):
                return  # the message is of a connection that had the number before
            one.handed_over += sum(body + (2 if body < 256 else 9) for body in bodies)
            if one.group is not self._heard:
                self._move(number, one, self._heard, sender)

    def look(self, elapsed: float = 0.0) -> list[int]:
        """Shut the connections that hold more than their share; the neighbours whose connection is broken. `elapsed`
        is the time in seconds since the last look."""
        self._credit = min(self._credit + RATE * elapsed, BURST)
        if self._credit >= 0 and self._listener is not None and self._listener.paused:
            self._listener.pause(False)
        broken = []
        with self._lock:
            for number, one in self._pending.all():
                if self._is_finished(one):
                    self._move(number, one, self._silent, one.host)
                elif _info(one.socket).received > EARLY:
                    self._close(number, "more than a handshake before its end")
            for number, one in self._silent.all() + self._heard.all():
                if _info(one.socket).received - one.handed_over > self._share + EARLY:
                    self._close(number, "parts of a message without an end")
            for neighbour, one in self._outgoing.items():
                told = _info(one.socket)
                if told.received > BACK and told.state == _ESTABLISHED:
                    self._on_shut(one.address, "messages over the connection that leads to it")
                    _shutdown(one.socket)
                if told.state != _ESTABLISHED:  # ZeroMQ does not see it where it has stopped reading
                    broken.append(neighbour)
        return broken

    def close(self) -> None:
        if self._listener is not None:
            self._listener.close()
        with self._lock:
            for number in list(self._accepted):
                self._forget(number)
            for neighbour in list(self._outgoing):
                self._drop_outgoing(neighbour)

    def _move(self, number: int, one: _Connection, group: _Group, owner: Hashable) -> None:
        """Into a group, out of which others go to make room."""
        if one.group is not None:
            one.group.remove(number, one)
        group.add(number, one, owner)
        while (victim := group.excess(owner)) is not None:
            other = self._accepted[victim]
            if group is self._pending and self._is_finished(other):
                self._move(victim, other, self._silent, other.host)
            else:
                self._close(victim, "too many connections" if group is self._heard else "too many without a message")

    def _close(self, number: int, why: str) -> None:
        one = self._accepted[number]
        self._on_shut(one.address, why)
        _shutdown(one.socket)
        self._forget(number)
        self._shut.add(number)

    def _forget(self, number: int) -> _Connection | None:
        found = self._accepted.pop(number, None)
        if found is not None:
            found.socket.close()
            assert found.group is not None
            found.group.remove(number, found)
        return found

    def _drop_outgoing(self, neighbour: int) -> None:
        found = self._outgoing.pop(neighbour, None)
        if found is not None:
            found.socket.close()

    def _is_finished(self, one: _Connection) -> bool | None:
        """Whether its handshake is finished, as what we have sent shows; None where the kernel does not tell."""
        acked = _info(one.socket).acked
        return acked > (WELCOME if self._sealed else GREETING) if acked else None


def allow_descriptors() -> None:
    """Let this process have as many descriptors as the system lets it take, up to a number that suffices."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _duplicate(number: int, *, near: int | None = None, far: int | None = None) -> _Connection | None:
    """The connection with this number and port at this end or the other; None if there is no such any more. Without a
    descriptor left for it, it is shut at once."""
    try:
        theirs = _named(number)
    except OSError:
        return None
    try:
        host, port = theirs.getpeername()[:2]
        if near not in (None, theirs.getsockname()[1]) or far not in (None, port):
            return None
        host = host.removeprefix("::ffff:")  # an IPv4 address may come as an IPv6 one
        return _Connection(_named(os.dup(number)), host, port)
    except (ValueError, IndexError):  # the number is by now of a socket of another family
        return None
    except OSError as error:
        if error.errno in (errno.EMFILE, errno.ENFILE):
            _shutdown(theirs)
        return None
    finally:
        theirs.detach()


def _named(number: int) -> socket.socket:
    """A socket by its number, as it is: told its family, Python asks for little and sets nothing. Addresses of the old
    Internet Protocol have room in those of the new."""
    return socket.socket(socket.AF_INET6, socket.SOCK_STREAM, socket.IPPROTO_TCP, number)


def _shutdown(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):  # the other end may have left at this moment
        connection.shutdown(socket.SHUT_RDWR)


def _info(connection: socket.socket) -> _Info:
    """What Linux tells of a connection; elsewhere, as if nothing had been sent or received over it."""
    if _TCP_INFO is not None:
        with contextlib.suppress(OSError, struct.error):  # an old kernel tells less
            return _Info(*_TOLD.unpack(connection.getsockopt(socket.IPPROTO_TCP, _TCP_INFO, _TOLD.size)))
    return _Info(_ESTABLISHED, 0, 0)
