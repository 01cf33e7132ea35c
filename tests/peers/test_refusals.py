"""Refusals leave a trace and cost little: the log is bounded, and so is the memory that a flood can take."""

import json
import os
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
import zmq

from gossamer.errors import GossamerError
from gossamer.peers import refusals as log
from gossamer.peers.evaluation import PeerEvaluation
from gossamer.peers.evaluation_log import EvaluationLog, read_evaluation_log
from gossamer.peers.local_processes import find_free_ports
from gossamer.peers.network.addresses import Contact
from gossamer.peers.network.connections import MAX_HANDSHAKE_BYTES
from gossamer.peers.network.curve import make_curve_keys
from gossamer.peers.network.sockets import NOT_ADMITTED, RECEIVE_QUEUE, Sockets
from gossamer.peers.refusals import RefusalLog

LARGEST = 10_000


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_the_first_refusals_of_a_kind_are_written_and_then_ever_fewer(tmp_path: Path) -> None:
    refusals = RefusalLog(tmp_path / "refused.jsonl", 0)
    for _ in range(1000):
        refusals.add(3, "checksum", "d" * 1000)
    for number in range(100):
        refusals.add(f"10.0.0.{number}:9", "handshake", "no CurveZMQ")  # many addresses, one kind
    found = lines(tmp_path / "refused.jsonl")
    times = [1, 2, 3, 4, 5, 8, 16, 32, 64, 128, 256, 512]
    assert [line["times"] for line in found if line["reason"] == "checksum"] == times
    assert [line["times"] for line in found if line["reason"] == "handshake"] == times[:9]
    assert set(found[0]) == {"time", "agent", "reason", "detail", "times"}
    assert found[0]["agent"] == 3
    assert len(found[0]["detail"]) == 200
    assert found[-1]["address"] == "10.0.0.63:9"


def test_a_log_that_is_full_makes_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log, "MAX_LOG_BYTES", 1000)
    for start in range(50):  # an agent that is started again and again begins to count anew
        RefusalLog(tmp_path / "refused.jsonl", 0).add(start, "run")
    sizes = [path.stat().st_size for path in tmp_path.iterdir()]
    assert len(sizes) == 2
    assert all(size < 1200 for size in sizes)


def test_records_are_appended_and_a_torn_line_is_none(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    records = EvaluationLog(path)
    for step in (0, 10, 20):
        records.add(PeerEvaluation(step, _sums(step)))
    whole = path.read_bytes()
    path.write_bytes(whole[:-5])  # a crash in the middle of a line
    assert [record["step"] for record in read_evaluation_log(path)] == [0, 10]
    again = EvaluationLog(path)
    assert again.last == {
        "step": 10,
        **{name: [10.0, 1.0, 2.0, 0.5, 0.0, 1.0] for name in ("train", "validation", "test")},
    }
    again.add(PeerEvaluation(10, _sums(10)))  # back at step 10
    again.add(PeerEvaluation(20, _sums(20)))
    assert path.read_bytes().startswith(whole[: whole.rindex(b"{")])  # nothing is written anew
    assert [record["step"] for record in read_evaluation_log(path)] == [0, 10, 20]
    path.write_text('{"step": 0, "train": [1, 2, 3], "validation": [1, 2, 3], "test": [1, 2, 3]}\n')
    with pytest.raises(GossamerError, match=r"train: .* at least 6 items .*finish the run with the version that wrote"):
        read_evaluation_log(path)  # of an older version
    path.write_bytes(b"[]\n" + whole)
    with pytest.raises(GossamerError, match=r"metrics\.jsonl, line 1 should hold an object, found .*; remove"):
        read_evaluation_log(path)


def _sums(step: int) -> dict[str, torch.Tensor]:
    return {name: torch.tensor([step, 1.0, 2.0, 0.5, 0.0, 1.0]) for name in ("train", "validation", "test")}


class Heard:
    """Refusals of sockets."""

    def __init__(self) -> None:
        self.found: list[tuple[int | str, str, str]] = []

    def __call__(self, sender: int | str, reason: str, detail: str) -> None:
        self.found.append((sender, reason, detail))

    def wait(self, sockets: Sockets, seconds: float = 20.0) -> tuple[int | str, str, str]:
        deadline = time.monotonic() + seconds
        while not self.found:
            assert time.monotonic() < deadline, "nothing was refused"
            sockets.receive(0.05)
        return self.found[0]


Pair = tuple[Sockets, Contact, str, Heard]


@pytest.fixture
def pair() -> Iterator[Pair]:
    """An agent 0 with one neighbour, agent 1, the neighbour's secret key, and what agent 0 refuses."""
    (mine, my_secret), (public, secret) = make_curve_keys(), make_curve_keys()
    here, there = find_free_ports(2)
    contact, heard = Contact(f"127.0.0.1:{here}", mine), Heard()
    sockets = Sockets(0, contact.address, {1: Contact(f"127.0.0.1:{there}", public)}, my_secret, LARGEST, heard)
    yield sockets, contact, secret, heard
    sockets.close()


@pytest.mark.parametrize("who", ["wrong key", "no key", "garbage"])
def test_a_failed_handshake_is_told_with_its_address(pair: Pair, who: str) -> None:
    sockets, contact, _, heard = pair
    if who == "garbage":
        host, port = contact.address.split(":")
        with socket.create_connection((host, int(port))) as raw:
            raw.sendall(b"GET / HTTP/1.1\r\n\r\n" + bytes(500))
            told = heard.wait(sockets)
    else:
        key = None if who == "no key" else make_curve_keys()[1]
        stranger = Sockets(1, f"127.0.0.1:{find_free_ports(1)[0]}", {0: contact}, key, LARGEST)
        told = heard.wait(sockets)
        stranger.close()
    address, reason, detail = told
    assert str(address).startswith("127.0.0.1:") or address == "unknown"  # if it was gone at once
    assert reason == "handshake"
    assert (detail == "a key that is no neighbour's") == (who == "wrong key")
    assert sockets.refused["handshake"] > 0


def test_an_agent_that_is_not_admitted_is_told_so(pair: Pair) -> None:
    sockets, contact, _, there = pair
    sockets._takes_strangers = True  # of a run whose agents may join
    heard = Heard()
    stranger = Sockets(7, f"127.0.0.1:{find_free_ports(1)[0]}", {0: contact}, make_curve_keys()[1], LARGEST, heard)
    assert heard.wait(stranger) == (contact.address, "handshake", NOT_ADMITTED)
    assert there.wait(sockets)[1:] == ("handshake", "a key that is no neighbour's, and that is not admitted")
    stranger.close()


def test_without_an_answer_on_who_may_come_in_nobody_does(pair: Pair) -> None:
    sockets, contact, secret, heard = pair
    assert sockets._authenticator is not None
    sockets._authenticator.stop()
    friend = Sockets(1, f"127.0.0.1:{find_free_ports(1)[0]}", {0: contact}, secret, LARGEST)
    friend.send(0, b"hello")
    assert heard.wait(sockets)[1] == "handshake"
    assert sockets.receive(0.5) == []
    friend.close()


def test_a_neighbour_that_starts_again_is_heard_again(pair: Pair) -> None:
    """Without handing names over: with keys, a connection's name is chosen here."""
    sockets, contact, secret, _ = pair
    first = Sockets(1, f"127.0.0.1:{find_free_ports(1)[0]}", {0: contact}, secret, LARGEST)
    second = Sockets(
        1, f"127.0.0.1:{find_free_ports(1)[0]}", {0: contact}, secret, LARGEST
    )  # before the first is closed
    for one in (first, second):
        one.send(0, b"hello")
    heard: list[int] = []
    deadline = time.monotonic() + 20
    while len(heard) < 2 and time.monotonic() < deadline:
        heard += [sender for sender, _ in sockets.receive(0.05)]
    assert heard == [1, 1]
    first.close()
    second.close()


def test_a_message_of_many_parts_is_refused_and_the_next_one_heard(pair: Pair) -> None:
    sockets, contact, secret, heard = pair
    friend = Sockets(1, f"127.0.0.1:{find_free_ports(1)[0]}", {0: contact}, secret, LARGEST)
    friend._outgoing[0].send_multipart([b"part"] * 1000)
    friend.send(0, b"whole")
    deadline = time.monotonic() + 20
    found: Sequence[tuple[int, memoryview]] = []
    while not found and time.monotonic() < deadline:
        found = sockets.receive(0.05)
    assert [(sender, bytes(message)) for sender, message in found] == [(1, b"whole")]
    assert heard.found == [(1, "malformed", "1000 parts")]
    assert sockets.refused["malformed"] == 1
    assert sockets.bytes_in[1] == 4005
    friend.close()


FLOOD = """
import sys, zmq
address, server, public, secret, size = sys.argv[1:]
socket = zmq.Context().socket(zmq.DEALER)
socket.curve_serverkey, socket.curve_publickey, socket.curve_secretkey = (k.encode() for k in (server, public, secret))
socket.sndhwm = 1
socket.connect("tcp://" + address)
socket.send(b"hello")
part = bytes(int(size))
for _ in range(20_000):  # 200 MB, in one message
    socket.send(part, zmq.SNDMORE)
socket.send(b"the end")
sys.stdin.read()
"""


@pytest.mark.skipif(not hasattr(socket, "TCP_INFO"), reason="the kernel does not tell what it has received")
def test_a_flood_of_parts_is_cut_off_before_it_fills_the_memory(pair: Pair) -> None:
    sockets, contact, secret, heard = pair
    public = zmq.curve_public(secret.encode()).decode()
    arguments = [contact.address, str(contact.key), public, secret, str(LARGEST)]
    before = memory()
    flood = subprocess.Popen([sys.executable, "-c", FLOOD, *arguments], stdin=subprocess.PIPE)
    try:
        most = 0
        deadline = time.monotonic() + 40
        while not heard.found:
            assert time.monotonic() < deadline, "the flood was not noticed"
            sockets.receive(0.02)
            most = max(most, memory() - before)
    finally:
        flood.kill()
        flood.communicate()
    assert heard.found[0][1:] == ("flood", "parts of a message without an end")
    assert most < 100_000_000


def memory() -> int:
    """Bytes that this process holds (Linux)."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_what_encryption_adds_to_a_part_is_known(pair: Pair) -> None:
    """Thousands of messages pass a connection whose share is a few: what is handed over is counted to the byte."""
    sockets, contact, secret, heard = pair
    friend = Sockets(1, f"127.0.0.1:{find_free_ports(1)[0]}", {0: contact}, secret, LARGEST)
    count, arrived = 0, 0
    total = 30 * (RECEIVE_QUEUE + 1) * 2
    deadline = time.monotonic() + 40
    while arrived < total:
        assert time.monotonic() < deadline
        if count < min(total, arrived + RECEIVE_QUEUE):
            friend.send(0, b"y" * (LARGEST if count % 2 else 200))
            count += 1
        else:
            came = len(sockets.receive(1.0))
            arrived += came
            count = count if came else arrived  # what a busy machine lost on the way is sent again
    (connection,) = sockets._connections._accepted.values()
    told = connection.socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 136)
    assert 0 <= struct.unpack_from("@Q", told, 128)[0] - connection.delivered_bytes < MAX_HANDSHAKE_BYTES
    assert heard.found == []
    friend.close()
