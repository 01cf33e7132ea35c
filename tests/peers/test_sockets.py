"""Keys decide who is heard: strangers, and bytes that are no ZeroMQ at all, change nothing."""

import os
import socket
import time
from collections.abc import Iterator

import pytest

from gossamer.peers.local_processes import find_free_ports
from gossamer.peers.network.addresses import Contact
from gossamer.peers.network.curve import make_curve_keys
from gossamer.peers.network.sockets import Sockets

LARGEST = 100_000  # bytes of the largest planned message of `pair`


@pytest.fixture
def pair() -> Iterator[tuple[Sockets, Contact, str]]:
    """An agent 0 with one neighbour, agent 1, and the neighbour's secret key."""
    (mine, my_secret), (public, secret) = make_curve_keys(), make_curve_keys()
    here, there = find_free_ports(2)
    contact = Contact(f"127.0.0.1:{here}", mine)
    sockets = Sockets(0, contact.address, {1: Contact(f"127.0.0.1:{there}", public)}, my_secret, LARGEST)
    yield sockets, contact, secret
    sockets.close()


def arrivals(sockets: Sockets, seconds: float = 2.0) -> list[tuple[int, bytes]]:
    deadline = time.monotonic() + seconds
    found: list[tuple[int, bytes]] = []
    while time.monotonic() < deadline and not found:
        found += [(sender, bytes(message)) for sender, message in sockets.receive(0.05)]
    return found


@pytest.mark.parametrize("who", ["wrong key", "no key", "garbage"])
def test_strangers_are_kept_out(pair: tuple[Sockets, Contact, str], who: str) -> None:
    sockets, contact, secret = pair
    host, port = contact.address.split(":")
    if who == "garbage":
        with socket.create_connection((host, int(port))) as raw:
            for _ in range(50):
                try:
                    raw.sendall(os.urandom(1000))
                except OSError:
                    break
        assert arrivals(sockets, 0.5) == []
    else:
        key = None if who == "no key" else make_curve_keys()[1]
        stranger = Sockets(1, f"127.0.0.1:{find_free_ports(1)[0]}", {0: contact}, key, 1000)
        stranger.send(0, b"header")
        assert arrivals(sockets, 1.0) == []
        stranger.close()
        if who == "wrong key":
            assert sockets.refused["handshake"] > 0
    friend = Sockets(1, f"127.0.0.1:{find_free_ports(1)[0]}", {0: contact}, secret, 1000)  # and the training goes on
    friend.send(0, b"welcome")
    assert arrivals(sockets) == [(1, b"welcome")]
    friend.close()
