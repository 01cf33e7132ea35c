"""Floods of real connections: strangers, an impostor in a neighbour's place, and neighbours that send much."""

import contextlib
import os
import resource
import socket
import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import zmq
from peers.processes import FORKS, LIMIT, wait_until

from gossamer.files import write_atomically
from gossamer.peers.local_processes import find_free_ports
from gossamer.peers.network import connections
from gossamer.peers.network.addresses import Contact
from gossamer.peers.network.connections import MAX_PENDING_PER_HOST, MAX_REPLY_BYTES
from gossamer.peers.network.curve import derive_public_key, make_curve_keys
from gossamer.peers.network.sockets import Sockets

LARGEST = 10_000
GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x00" + b"CURVE".ljust(20, b"\0") + bytes(32)
DESCRIPTORS = 300  # of the process that is flooded
linux = pytest.mark.skipif(not hasattr(socket, "TCP_INFO"), reason="the kernel does not tell what it has received")


class Place(NamedTuple):
    """An agent 0 and its neighbours 1 and 2: contacts and secret keys."""

    contacts: list[Contact]
    secrets: list[str]

    def open(self, agent: int) -> Sockets:
        around = {z: contact for z, contact in enumerate(self.contacts) if (z == 0) != (agent == 0)}
        return Sockets(agent, self.contacts[agent].address, around, self.secrets[agent], LARGEST)

    def port(self, agent: int) -> int:
        return int(self.contacts[agent].address.rpartition(":")[2])


@pytest.fixture
def place() -> Place:
    keys = [make_curve_keys() for _ in range(3)]
    ports = find_free_ports(3)
    contacts = [Contact(f"127.0.0.1:{port}", public) for port, (public, _) in zip(ports, keys, strict=True)]
    return Place(contacts, [secret for _, secret in keys])


def serve(place: Place, folder: Path, pipe: Connection, arithmetic: float) -> None:
    """Agent 0 in a process of its own that has few descriptors: it computes for so many seconds, writes a file, sends
    and receives until it is told to end, and then tells what it refused; how many descriptors it has with a message."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (DESCRIPTORS, DESCRIPTORS))
    sockets, heard = place.open(0), 0
    pipe.send("listening")
    while not pipe.poll(arithmetic):
        heard += len(sockets.receive(0.01))
        sockets.send(1, b"to one")
        write_atomically(folder / "file", b"content")
        if heard:
            pipe.send(len(os.listdir("/proc/self/fd")))  # noqa: PTH208
            heard = 0
    pipe.send(sockets.refused)
    sockets.close()
    pipe.send("closed")


@contextlib.contextmanager
def served(place: Place, folder: Path, arithmetic: float = 0.0) -> Iterator[tuple[Any, Connection]]:
    ours, theirs = FORKS.Pipe()
    process = FORKS.Process(target=serve, args=(place, folder, theirs, arithmetic))
    process.start()
    try:
        assert ours.poll(LIMIT)
        assert ours.recv() == "listening"
        yield process, ours
    finally:
        process.kill()
        process.join()


def ended(process: Any, pipe: Connection) -> dict[str, int]:
    """End an agent, and return its refusals."""
    pipe.send("end")
    told = []
    while "closed" not in told:
        assert pipe.poll(LIMIT), "it does not end"
        told.append(pipe.recv())
    process.join(LIMIT)
    assert process.exitcode == 0
    return dict(told[-2])


@linux
def test_strangers_do_not_take_all_descriptors(place: Place, tmp_path: Path) -> None:
    with served(place, tmp_path) as (process, pipe), contextlib.ExitStack() as held:
        for _ in range(2 * DESCRIPTORS):
            one = held.enter_context(socket.socket())
            one.settimeout(LIMIT)
            with contextlib.suppress(ConnectionError):  # it may be shut at once
                one.connect(("127.0.0.1", place.port(0)))
                one.sendall(b"\xff")
        friend = place.open(1)
        few = DESCRIPTORS

        def is_back_to_few() -> bool:
            nonlocal few
            friend.send(0, b"hello")
            while pipe.poll(0.1):
                few = pipe.recv()
            return few < 2 * MAX_PENDING_PER_HOST + 60

        wait_until(is_back_to_few, "a neighbour is heard, and most connections have been shut")
        friend.close()
        assert process.is_alive()
        refused = ended(process, pipe)
    assert refused["flood"] + refused["handshake"] >= 2 * DESCRIPTORS - 2 * MAX_PENDING_PER_HOST
    assert (tmp_path / "file").read_bytes() == b"content"


@pytest.mark.parametrize("kernel", ["tells", "does not tell"])
def test_an_impostor_is_left_and_the_neighbour_found_when_it_comes_back(
    place: Place, kernel: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if kernel == "does not tell":
        monkeypatch.setattr(connections, "_TCP_INFO", None)
    sockets = place.open(0)
    sent = 0
    with socket.create_server(("127.0.0.1", place.port(1))) as server:
        server.settimeout(LIMIT)
        with server.accept()[0] as one, contextlib.suppress(ConnectionError):
            one.settimeout(LIMIT)
            one.sendall(GREETING + b"\x06" + (1 << 30).to_bytes(8, "big"))  # a message of 1 GB
            while sent < 100_000_000:
                sent += one.send(bytes(1 << 16))
    assert sent < 20_000_000  # what the kernel holds
    neighbour = place.open(1)
    arrived = []

    def is_heard() -> bool:
        sockets.receive(0.05)
        sockets.send(1, b"hello")
        arrived.extend(neighbour.receive(0.05))
        return bool(arrived)

    wait_until(is_heard, "the neighbour is connected again")
    assert sockets.refused["handshake"] > 0
    neighbour.close()
    sockets.close()


@linux
def test_what_is_pushed_back_over_an_outgoing_connection_costs_the_neighbour_its_connection(
    place: Place, tmp_path: Path
) -> None:
    """And the process lives, though it reads nothing for longer than ZeroMQ's heartbeats would wait."""
    context = zmq.Context()
    server = context.socket(zmq.ROUTER)
    server.curve_server, server.curve_secretkey = True, place.secrets[1].encode()
    server.bind(f"tcp://{place.contacts[1].address}")
    seen: set[bytes] = set()
    with served(place, tmp_path, arithmetic=2.5) as (process, pipe):

        def has_come_again() -> bool:
            if server.poll(100):
                name, _ = server.recv_multipart()
                if name not in seen:
                    seen.add(name)
                    for _ in range(100):
                        server.send_multipart([name, bytes(MAX_REPLY_BYTES - 100)])
            return len(seen) >= 2 or not process.is_alive()

        wait_until(has_come_again, "the connection is made anew")
        assert process.is_alive()
        refused = ended(process, pipe)
    context.destroy(linger=0)
    assert refused["flood"] >= 1


@linux
def test_many_connections_of_one_neighbour_are_two(place: Place) -> None:
    sockets, honest = place.open(0), place.open(2)
    context = zmq.Context()
    flood = [context.socket(zmq.DEALER) for _ in range(40)]
    for one in flood:
        one.curve_serverkey, one.curve_secretkey = str(place.contacts[0].key).encode(), place.secrets[1].encode()
        one.curve_publickey = derive_public_key(place.secrets[1]).encode()
        one.reconnect_ivl = -1
        one.connect(f"tcp://{place.contacts[0].address}")
        one.send(b"hello")
    found: list[int] = []

    def flooded(enough: Callable[[], bool]) -> bool:
        found.extend(sender for sender, _ in sockets.receive(0.05))
        heard, silent = sockets._connections._active, sockets._connections._idle
        assert all(len(mine) <= 2 for mine in heard.by_owner.values())
        assert silent.size <= 4
        return enough()

    wait_until(lambda: flooded(lambda: sockets.refused["flood"] >= 40 - 6), "those past the limit are shut")
    honest.send(0, b"hello")
    wait_until(lambda: flooded(lambda: 2 in found), "the other neighbour is heard")
    assert 1 in found
    context.destroy(linger=0)
    honest.close()
    sockets.close()


def test_leaving_while_connections_pour_in_is_quick(place: Place) -> None:
    """ZeroMQ waits for its reports to be read, so they must be until it has stopped."""
    sockets = place.open(0)
    with contextlib.ExitStack() as held:
        for _ in range(200):
            one = held.enter_context(socket.socket())
            one.setblocking(False)
            one.connect_ex(("127.0.0.1", place.port(0)))
        began = time.monotonic()
        sockets.close()
        assert time.monotonic() - began < 20
