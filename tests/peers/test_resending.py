"""Retransmission is bounded by the time that has passed, not by the number of requests."""

import pytest
from peers import network as simulated
from peers.byzantine import FLOOD
from peers.frames import is_frame
from peers.network import RUN, Faults, Network
from peers.problems import problem
from peers.schedules import check, quiet

from gossamer.peers.protocol import resending
from gossamer.peers.protocol.resending import REPLY_BURST, REPLY_RATE, RESEND_INTERVAL, ResendBuffer, TokenBucket
from gossamer.peers.protocol.wire import Status, encode


def test_a_frame_is_sent_again_at_once_and_then_once_a_second() -> None:
    frames = ResendBuffer([1, 2])
    for position in ((0, 0), (0, 1), (1, 0)):
        frames.add(1, position, b"%d%d" % position)
    assert frames.due(1, (0, 1), 5.0) == [b"01", b"10"]
    assert frames.due(1, (0, 0), 5.1) == [b"00"]  # what has just been sent again is not
    assert frames.due(1, (0, 0), 5.99) == []
    assert frames.due(1, (0, 0), 5.0 + RESEND_INTERVAL) == [b"01", b"10"]
    assert frames.due(2, (0, 0), 9.0) == []
    frames.release(1, 1)
    assert frames.largest == 1
    assert frames.due(1, (0, 0), 99.0) == [b"10"]


def test_a_token_bucket_fills_with_time_and_not_beyond_its_capacity() -> None:
    bucket = TokenBucket(10.0, REPLY_RATE, 3)
    assert [bucket.take(10.0) for _ in range(5)] == [True] * 3 + [False] * 2
    assert [bucket.take(10.5) for _ in range(5)] == [True] * 2 + [False] * 3  # four a second
    assert [bucket.take(99.0) for _ in range(5)] == [True] * 3 + [False] * 2
    assert not bucket.take(98.0)  # a clock that goes back gives nothing


def test_a_flood_of_statuses_is_answered_as_one_a_second_is() -> None:
    """Ten seconds of statuses that ask for everything, to an agent in the middle of its training."""
    network = Network(problem(), Faults(), seed=0)
    while len(network.disks[0].checkpoints) < 2:
        network.step()
    victim, flooder = network.members[0], network.neighbours[0][0]
    sent: list[bytes] = []
    network.overhear = lambda sender, receiver, message: sent.append(message) if sender == 0 else None
    known = victim.statements.restorable[flooder].content
    message = encode(Status(flooder, victim.epoch, (known,), (0, 0)), RUN)
    held, began = victim.exchanges.resend_buffer.largest, network.now
    for number in range(10 * FLOOD):
        network.now = began + number / FLOOD
        victim.receive(flooder, message, network.now)
    frames = [one for one in sent if is_frame(one)]
    assert held <= len(frames) <= 10 * held
    assert len(sent) - len(frames) <= REPLY_BURST + 10 * REPLY_RATE
    assert victim.refused["too often"] >= 10 * FLOOD - REPLY_BURST - 10 * REPLY_RATE
    network.run()
    check(network)


def test_a_lossy_network_is_no_slower_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Against sending everything again whenever it is asked for: who waits has waited for a second at least."""
    made, _, memory = quiet(0)

    def seconds() -> float:
        networks = [Network(made, Faults(drop=0.2), seed, memory) for seed in range(20)]
        for network in networks:
            network.run()
            check(network)
        return sum(network.now for network in networks)

    limited = seconds()
    monkeypatch.setattr(resending, "RESEND_INTERVAL", 0.0)
    monkeypatch.setattr(simulated, "RESEND_INTERVAL", 1e-9)
    assert limited < 1.1 * seconds()
