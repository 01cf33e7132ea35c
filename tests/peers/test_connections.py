"""Limits on the number of connections and on the bytes of each, without ZeroMQ and without a clock."""

import contextlib
import errno
import os
import resource
import socket
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from gossamer.machine import raise_descriptor_limit
from gossamer.peers.network import connections as module
from gossamer.peers.network.connections import (
    ACCEPT_BURST,
    MAX_HANDSHAKE_BYTES,
    MAX_PENDING,
    MAX_PENDING_PER_HOST,
    MAX_PER_NEIGHBOUR,
    MAX_REPLY_BYTES,
    WELCOME_BYTES,
    Connections,
)
from gossamer.peers.process import DESCRIPTOR_LIMIT

LINUX = pytest.mark.skipif(not hasattr(socket, "TCP_INFO"), reason="the kernel does not tell what it has received")
SHARE = 1000


@dataclass
class Line:
    """A listening port, the connections to it, and what was shut."""

    server: socket.socket
    neighbours: int = 1
    shut: list[tuple[str, str]] = field(default_factory=list)
    ends: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)

    def __post_init__(self) -> None:
        self.connections = Connections(SHARE, self.neighbours, True, lambda *told: self.shut.append(told))
        self.port = self.server.getsockname()[1]

    def come(self, host: str = "127.0.0.1", here: str = "127.0.0.1") -> tuple[socket.socket, socket.socket]:
        """A connection from a host: its far and its near end."""
        far = self.ends.enter_context(socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET))
        far.bind((host, 0))
        far.connect((here, self.port))
        near = self.ends.enter_context(self.server.accept()[0])
        self.connections.on_accepted(near.fileno(), self.port)
        return far, near

    def finish(self, far: socket.socket, near: socket.socket) -> None:
        """Let its handshake be over: more has been sent than anyone gets who has no key."""
        pass_on(near, far, WELCOME_BYTES + 1)


def pass_on(sender: socket.socket, receiver: socket.socket, size: int) -> None:
    sender.sendall(bytes(size))
    while size:
        size -= len(receiver.recv(size))


def is_open(far: socket.socket) -> bool:
    far.setblocking(False)
    try:
        return far.recv(1) != b""
    except BlockingIOError:
        return True


@pytest.fixture
def line() -> Iterator[Line]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        made = Line(server)
        with made.ends:
            yield made
            made.connections.close()


def test_the_oldest_pending_connections_of_a_host_make_room(line: Line) -> None:
    ends = [line.come()[0] for _ in range(MAX_PENDING_PER_HOST + 8)]
    assert [is_open(far) for far in ends] == [False] * 8 + [True] * MAX_PENDING_PER_HOST
    assert len(line.shut) == 8
    host, port = ends[0].getsockname()
    assert line.shut[0] == (f"{host}:{port}", "too many without a message")


def test_all_neighbours_may_come_at_once_from_one_host() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        line = Line(server, neighbours=MAX_PENDING_PER_HOST)
        with line.ends:
            ends = [line.come()[0] for _ in range(MAX_PER_NEIGHBOUR * MAX_PENDING_PER_HOST)]
            assert all(map(is_open, ends))
            line.connections.close()


def test_a_number_of_a_socket_of_another_family_is_no_connection(line: Line) -> None:
    near, far = socket.socketpair(socket.AF_UNIX)
    with near, far:
        line.connections.on_accepted(near.fileno(), line.port)
        assert line.connections.on_closed(near.fileno()) == ("unknown", False)


@pytest.mark.skipif(sys.platform != "linux", reason="other hosts of the loopback interface")
def test_many_hosts_do_not_drive_out_one_that_has_few(line: Line) -> None:
    honest = line.come("127.0.0.2")[0]
    for number in range(2 * MAX_PENDING):
        line.come(f"127.0.1.{number % 8}")
    assert is_open(honest)
    assert line.connections._pending.size == MAX_PENDING


def test_an_event_takes_the_same_work_however_many_came(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: Counter[str] = Counter()
    ours = {name: getattr(module, name) for name in ("_read_info", "_shutdown")}
    for name, function in ours.items():
        monkeypatch.setattr(module, name, lambda one, n=name, f=function: (calls.update([n]), f(one))[1])

    class Nothing:
        def getsockopt(self, *arguments: int) -> bytes:
            return bytes(1000)

        def shutdown(self, how: int) -> None:
            pass

        def close(self) -> None:
            calls["close"] += 1

    def open_nothing(descriptor: int, local_port: int) -> Any:
        return module._Connection(cast("Any", Nothing()), f"10.0.0.{descriptor % 200}", descriptor)

    monkeypatch.setattr(module, "_open_duplicate", open_nothing)
    connections = Connections(SHARE, 1, True, lambda address, why: calls.update(["shut"]))
    for number in range(4000):
        before = calls.total()
        connections.on_accepted(number, 1)
        assert calls.total() - before <= 4  # one other is looked at, shut and closed
        assert len(connections._accepted) <= MAX_PENDING
    assert calls["shut"] == 4000 - MAX_PENDING


@LINUX
def test_before_its_handshake_is_finished_a_connection_may_send_little(line: Line) -> None:
    (far, near), (other, end) = line.come(), line.come()
    pass_on(far, near, MAX_HANDSHAKE_BYTES)
    pass_on(other, end, MAX_HANDSHAKE_BYTES)
    line.connections.enforce_limits()
    assert is_open(far)
    pass_on(far, near, 1)
    line.finish(other, end)
    pass_on(other, end, 1)
    line.connections.enforce_limits()
    assert not is_open(far)
    assert is_open(other)
    assert [why for _, why in line.shut] == ["too many bytes before the end of its handshake"]
    line.connections.on_accepted(near.fileno(), line.port + 1)  # a number that by now has another use
    assert near.fileno() not in line.connections._accepted


@LINUX
def test_a_connection_is_shut_at_its_share_and_not_before(line: Line) -> None:
    far, near = line.come()
    line.finish(far, near)
    pass_on(far, near, MAX_HANDSHAKE_BYTES + SHARE)
    line.connections.enforce_limits()
    pass_on(far, near, 200)
    line.connections.on_delivered(near.fileno(), 1, [165])  # 200 with 33 for its encryption and 2 for its header
    line.connections.enforce_limits()
    assert is_open(far)
    pass_on(far, near, 1)
    line.connections.enforce_limits()
    host, port = far.getsockname()
    assert line.shut == [(f"{host}:{port}", "parts of a message without an end")]
    assert not is_open(far)
    assert line.connections.on_closed(near.fileno()) is None  # it was told already
    assert line.connections.on_closed(near.fileno()) == ("unknown", False)


@LINUX
def test_a_neighbour_has_two_connections_and_the_newest_stay(line: Line) -> None:
    ends = [line.come() for _ in range(4)]
    for far, near in ends:
        line.finish(far, near)
        line.connections.on_delivered(near.fileno(), 7, [10])
    assert [is_open(far) for far, _ in ends] == [False, False, True, True]
    other, end = line.come()
    line.finish(other, end)
    line.connections.on_delivered(end.fileno(), 8, [10])  # another neighbour's do not count
    assert [is_open(far) for far, _ in [*ends[2:], (other, end)]] == [True, True, True]
    assert line.connections.on_closed(end.fileno()) == (f"127.0.0.1:{other.getsockname()[1]}", True)


@LINUX
def test_connections_without_a_message_are_few(line: Line) -> None:
    ends = [line.come() for _ in range(MAX_PER_NEIGHBOUR + 3)]
    for far, near in ends:
        line.finish(far, near)
    line.connections.enforce_limits()
    assert [is_open(far) for far, _ in ends] == [False] * 3 + [True] * MAX_PER_NEIGHBOUR
    assert line.connections._pending.size == 0


@LINUX
def test_a_message_of_a_connection_that_had_the_number_before_names_nobody(line: Line) -> None:
    far, near = line.come()
    pass_on(near, far, WELCOME_BYTES)
    line.connections.on_delivered(near.fileno(), 7, [10])
    assert line.connections._pending.size == 1
    assert line.connections.on_closed(near.fileno())[1] is False  # type: ignore[index]


def test_where_the_kernel_does_not_tell_a_message_ends_the_handshake(
    line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_TCP_INFO", None)
    ends = [line.come() for _ in range(4)]
    line.connections.enforce_limits()
    assert line.connections._pending.size == 4
    for _, near in ends:
        line.connections.on_delivered(near.fileno(), 7, [10])
    assert [is_open(far) for far, _ in ends] == [False, False, True, True]


@pytest.mark.skipif(sys.platform != "linux", reason="Linux's packet filter")
def test_connections_that_come_too_fast_wait(line: Line) -> None:
    line.connections.on_listening(line.server.fileno())
    before = line.come()[0]
    for _ in range(int(ACCEPT_BURST)):
        line.connections.on_accepted(1_000_000, line.port)  # which are gone by now
    with socket.socket() as far:
        far.settimeout(0.2)
        with pytest.raises(TimeoutError):
            far.connect(line.server.getsockname())
    assert is_open(before)
    line.connections.enforce_limits(elapsed=1.0)
    assert is_open(line.come()[0])


@LINUX
def test_next_to_nothing_is_taken_from_an_outgoing_connection(line: Line) -> None:
    far, near = line.come()
    line.connections.on_connected(3, far.fileno(), line.port)
    pass_on(near, far, MAX_REPLY_BYTES)
    assert line.connections.enforce_limits() == []
    pass_on(near, far, 1)
    line.connections.enforce_limits()
    assert line.shut == [(f"127.0.0.1:{line.port}", "messages over the connection that is only for sending to it")]
    assert line.connections.enforce_limits() == [3]  # until ZeroMQ makes another
    line.connections.on_disconnected(3)
    assert line.connections.enforce_limits() == []


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="needs IPv6")
def test_addresses_are_those_of_either_protocol() -> None:
    with socket.create_server(("", 0), family=socket.AF_INET6, dualstack_ipv6=True) as server:
        line = Line(server)
        with line.ends:
            ends = [line.come(host, host) for host in ("127.0.0.1", "::1")]
            for far, near in ends:
                assert line.connections.on_closed(near.fileno()) == (
                    f"{far.getsockname()[0]}:{far.getsockname()[1]}",
                    False,
                )
            line.connections.close()


def test_a_connection_that_is_gone_is_none(line: Line) -> None:
    _, near = line.come()
    line.connections.on_closed(near.fileno())
    number = near.fileno()
    near.close()
    line.connections.on_accepted(number, line.port)
    line.connections.on_connected(1, number, line.port)
    assert line.connections._accepted == {}
    assert line.connections.enforce_limits() == []


def test_without_a_descriptor_left_a_connection_is_shut_at_once(line: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_more(number: int) -> int:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(os, "dup", no_more)
    far, _ = line.come()
    assert not is_open(far)
    assert line.connections._accepted == {}


def test_a_peer_may_have_as_many_descriptors_as_the_system_allows() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert hard == resource.RLIM_INFINITY or hard > 512
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (512, hard))
        raise_descriptor_limit(DESCRIPTOR_LIMIT)
        raised = resource.getrlimit(resource.RLIMIT_NOFILE)
        assert raised == (DESCRIPTOR_LIMIT if hard == resource.RLIM_INFINITY else min(hard, DESCRIPTOR_LIMIT), hard)
        raise_descriptor_limit(DESCRIPTOR_LIMIT)
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == raised
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
