"""Promises of every transport to a peer, in memory and over ZeroMQ."""

import time
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

import pytest
from peers.harness import check, deployed, in_threads, over, simulated
from peers.memory import Hub

from gossamer.peers.local_processes import find_free_ports, write_local_shards
from gossamer.peers.network.addresses import Contact
from gossamer.peers.network.curve import make_curve_keys
from gossamer.peers.network.sockets import Sockets
from gossamer.peers.network.transport import Transport
from gossamer.peers.process import run_peer

LARGEST = 100_000  # bytes of the largest message that an agent takes
Open = Callable[[int, Collection[int]], Transport]  # an agent's end, from its number and its neighbours'
KINDS = ["in memory", "zeromq"]


@pytest.fixture(params=KINDS)
def end(request: pytest.FixtureRequest) -> Iterator[Open]:
    """Opens the ends of agents 0, 1 and 2, of which 0 and 1 are neighbours; all are closed after the test."""
    opened: list[Transport] = []
    hub = Hub()
    contacts = [Contact(f"127.0.0.1:{port}", "") for port in find_free_ports(3)]
    keys = [make_curve_keys() for _ in contacts]
    contacts = [Contact(contact.address, public) for contact, (public, _) in zip(contacts, keys, strict=True)]

    def make(agent: int, neighbours: Collection[int]) -> Transport:
        if request.param == "in memory":
            made: Transport = hub.open(agent, neighbours, LARGEST)
        else:
            around = {z: contacts[z] for z in neighbours}
            made = Sockets(agent, contacts[agent].address, around, keys[agent][1], LARGEST)
        opened.append(made)
        return made

    yield make
    for one in opened:
        one.close()


def arrivals(transport: Transport, count: int = 1, seconds: float = 10.0) -> list[tuple[int, bytes]]:
    """At least so many messages, or what has come by then."""
    deadline, found = time.monotonic() + seconds, list[tuple[int, bytes]]()
    while time.monotonic() < deadline and len(found) < count:
        found += [(sender, bytes(message)) for sender, message in transport.receive(0.05)]
    return found


def exchanged(sender: Transport, receiver: Transport, name: bytes, seconds: float = 20.0) -> bool:
    """Return whether a message to agent 0 comes through that is sent again until it does."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        sender.send(0, name)
        if any(message == name for _, message in arrivals(receiver, seconds=0.2)):
            return True
    return False


@pytest.mark.parametrize("size", [0, 1, LARGEST])
def test_a_message_arrives_whole_with_its_senders_number(end: Open, size: int) -> None:
    receiver, sender = end(0, [1]), end(1, [0])
    sender.send(0, b"x" * size)
    assert arrivals(receiver) == [(1, b"x" * size)]


def test_a_link_keeps_the_order(end: Open) -> None:
    receiver, sender = end(0, [1]), end(1, [0])
    for number in range(50):
        sender.send(0, b"%d" % number)
    assert arrivals(receiver, 50) == [(1, b"%d" % number) for number in range(50)]


def test_who_is_no_neighbour_is_refused(end: Open) -> None:
    receiver, stranger, friend = end(0, [1]), end(2, [0]), end(1, [0])
    stranger.send(0, b"let me in")
    assert arrivals(receiver, seconds=1.0) == []
    assert receiver.refused["handshake"] > 0
    friend.send(0, b"hello")
    assert arrivals(receiver) == [(1, b"hello")]
    assert set(receiver.bytes_in) == {1}


def test_a_message_that_is_too_large_never_arrives_and_later_ones_do(end: Open) -> None:
    receiver, sender = end(0, [1]), end(1, [0])
    sender.send(0, b"x" * (LARGEST + 1000))
    assert arrivals(receiver, seconds=1.0) == []
    assert exchanged(sender, receiver, b"small")


def test_a_full_queue_drops_and_never_blocks(end: Open) -> None:
    sender = end(1, [0])
    for number in range(1000):  # would wait here for ever
        sender.send(0, b"%03d" % number)
    taken = sender.bytes_out[0] // 3
    assert 0 < taken < 1000
    found = arrivals(end(0, [1]), taken)
    assert found == [(1, b"%03d" % number) for number in range(len(found))]  # the first ones, in order
    assert len(found) == taken


def test_a_receiver_that_starts_later_or_comes_back_gets_messages_again(end: Open) -> None:
    sender = end(1, [0])
    sender.send(0, b"early")
    for life in (b"first", b"second", b"third"):
        receiver = end(0, [1])
        assert exchanged(sender, receiver, life)
        receiver.close()


def test_the_bytes_counted_at_both_ends_agree(end: Open) -> None:
    receiver, sender = end(0, [1]), end(1, [0])
    for size in (0, 1, 100, LARGEST):
        sender.send(0, b"x" * size)
    arrivals(receiver, 4)
    assert dict(receiver.bytes_in) == {1: sender.bytes_out[0]}
    assert sender.bytes_out[0] == 101 + LARGEST


def test_receiving_waits_no_longer_than_told(end: Open) -> None:
    """With room for a busy machine: without the bound it would wait for ever."""
    receiver = end(0, [1])
    for seconds in (0.0, 0.3):
        began = time.monotonic()
        assert receiver.receive(seconds) == []
        assert time.monotonic() - began < seconds + 5


def test_closing_with_unread_messages_is_quick_and_may_be_repeated(end: Open) -> None:
    receiver, sender, lonely = end(0, [1]), end(1, [0]), end(2, [0])
    for _ in range(10):
        sender.send(0, b"unread")
        lonely.send(0, b"never let in")
    arrivals(receiver)
    began = time.monotonic()
    for one in (receiver, sender, lonely):
        one.close()
        one.close()
    assert time.monotonic() - began < 20


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("changes", [{"update": "adam", "step_size": 0.01, "dropout": 0.5}], ids=str)
def test_training_over_it_gives_the_simulations_weights(tmp_path: Path, kind: str, changes: dict[str, Any]) -> None:
    deployment, settings = deployed(**changes)
    folders = write_local_shards(tmp_path, deployment, settings)
    assert in_threads(folders, run=over(Hub()) if kind == "in memory" else run_peer) == []
    check(folders, simulated(deployment, settings))
