"""Pads that pairs of agents share: equal at both, unknown to others, never drawn twice."""

import hashlib
from typing import Any

import numpy as np
import pytest
import torch
from nacl.public import Box
from nacl.secret import SecretBox
from peers.disks import Kill
from peers.memberships import make_membership
from peers.network import Faults, Network, keyring
from peers.problems import M, problem

from gossamer.errors import GossamerError
from gossamer.peers.protocol.config import ProtocolConfig
from gossamer.peers.protocol.pads import PairKeys, SessionPads, make_pair_keys
from gossamer.peers.protocol.signatures import UNSIGNED
from gossamer.peers.protocol.statements import StatementTable, VerifiedStatements, sign_restorable
from gossamer.peers.protocol.wire import digest_run

COMPLETE = {k: tuple(z for z in range(M) if z != k) for k in range(M)}
SESSION = bytes(range(32))


def pads_of(agent: int, session: bytes = SESSION, run: str = "run") -> SessionPads:
    return SessionPads(PairKeys(keyring(agent), agent), run, session, [COMPLETE])


def draw(agent: int, *what: int, session: bytes = SESSION, run: str = "run") -> torch.Tensor:
    return pads_of(agent, session, run)(agent, *what)


def test_the_pads_of_all_senders_cancel() -> None:
    total = sum(draw(z, 2, 5, 1, 100) for z in COMPLETE[2])
    assert torch.equal(torch.as_tensor(total), torch.zeros(100, dtype=torch.int64))
    assert not torch.equal(draw(0, 2, 5, 1, 100) + draw(1, 2, 5, 1, 100), torch.zeros(100, dtype=torch.int64))


def test_a_pad_is_the_keystream_that_its_definition_says() -> None:
    """Of agents 0 and 1 for agent 2, from one side's secret key and the other's public one, by PyNaCl's own boxes."""
    one, other = keyring(0).signing, keyring(1).signing
    box = Box(one.to_curve25519_private_key(), other.verify_key.to_curve25519_public_key())
    label = (5).to_bytes(8, "little") + (1).to_bytes(4, "little") + (2).to_bytes(4, "little")
    key = hashlib.blake2b(
        label + digest_run("run") + SESSION, digest_size=32, key=box.shared_key(), person=b"gossamer pads"
    ).digest()
    stream = SecretBox(key).encrypt(bytes(80), bytes(24)).ciphertext[16:]
    expected = np.frombuffer(stream, "<i8")
    pads = SessionPads(PairKeys(keyring(0), 0), "run", SESSION, [{2: (0, 1)}])(0, 2, 5, 1, 10)
    np.testing.assert_array_equal(pads, expected)
    pads = SessionPads(PairKeys(keyring(1), 1), "run", SESSION, [{2: (0, 1)}])(1, 2, 5, 1, 10)
    np.testing.assert_array_equal(pads, -expected)


def test_what_a_pad_depends_on() -> None:
    """Receiver, step, exchange, session, run and both agents: whatever changes, all its numbers do."""
    drawn = [
        draw(0, 2, 5, 1, 50),
        draw(0, 1, 5, 1, 50),
        draw(0, 2, 6, 1, 50),
        draw(0, 2, 5, 0, 50),
        draw(0, 2, 5, 1, 50, session=bytes(32)),
        draw(0, 2, 5, 1, 50, run="other"),
        draw(1, 2, 5, 1, 50),
    ]
    for i, one in enumerate(drawn):
        for other in drawn[:i]:
            assert not (one == other).any()


def test_a_pad_is_not_drawn_twice() -> None:
    pads = pads_of(0)
    for step in range(3):
        pads(0, 2, step, 0, 4), pads(0, 2, step, 1, 4), pads(0, 3, step, 0, 4)
    assert (pads.used, pads.repeated) == (9, 0)
    with pytest.raises(GossamerError, match="agent 0 would use its pads of step 2 for agent 2 again"):
        pads(0, 2, 2, 1, 4)
    with pytest.raises(GossamerError, match="of step 1 for agent 3"):
        pads(0, 3, 1, 0, 4)
    assert (pads.used, pads.repeated) == (9, 2)
    with pytest.raises(AssertionError):
        pads(1, 2, 9, 0, 4)


def test_every_topology_has_its_own_senders() -> None:
    pads = SessionPads(PairKeys(keyring(0), 0), "run", SESSION, [{2: (0, 1)}, {2: (0, 3)}])
    for step, other in ((0, 1), (1, 3), (2, 1)):
        alone = SessionPads(PairKeys(keyring(0), 0), "run", SESSION, [{2: (0, other)}])(0, 2, step, 0, 8)
        assert torch.equal(pads(0, 2, step, 0, 8), alone)


def test_an_agent_without_keys_has_no_pads() -> None:
    with pytest.raises(GossamerError, match="agent 3 runs without any; leave out --insecure"):
        make_pair_keys(UNSIGNED, 3)


def open_session(epoch: int, incarnations: tuple[int, ...], steps: tuple[int, ...] = (0,)) -> bytes:
    """The session that agent 0 enters with these statements of all agents."""
    config = ProtocolConfig(make_membership(0, M, (1,)), torch.float32, 10, 3, incarnations[0], signatures=keyring(0))
    table = StatementTable(config)
    table.open_epoch(epoch, steps)
    others = {k: sign_restorable("run", keyring(k), k, epoch, incarnations[k], steps) for k in range(1, M)}
    table.add(VerifiedStatements(restorable=dict(reversed(others.items()))))
    return table.name_session()


def test_a_session_is_named_by_epoch_and_incarnations() -> None:
    """So an agent that has lost its disk, and is sent the statements of an old epoch again, has pads of its own."""
    assert open_session(3, (7, 8, 9, 10)) == open_session(3, (7, 8, 9, 10))
    others = [
        open_session(3, (7, 8, 9, 10)),
        open_session(4, (7, 8, 9, 10)),
        open_session(3, (6, 8, 9, 10)),
        open_session(3, (7, 8, 9, 11)),
        open_session(3, (8, 7, 9, 10)),
        open_session(3, (7, 8, 9, 10), (0, 2)),
    ]
    assert len(set(others)) == len(others)


@pytest.mark.parametrize("forget", [0.0, 1.0], ids=["disks kept", "disks lost"])
@pytest.mark.parametrize("seed", range(3))
def test_agents_that_die_enter_no_session_twice_and_agree_on_each(
    seed: int, forget: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever dies and whatever disk is lost: an agent's sessions differ, and those of all who train in an epoch are
    the same, so that their pads cancel."""
    entered: list[tuple[int, int, bytes]] = []
    start = Network._start

    def watch(network: Network, k: int) -> None:
        start(network, k)
        member = network.members[k]
        inner: Any = member._begin

        def note(step: int, session: bytes, unable: tuple[int, ...]) -> Any:
            entered.append((k, member.epoch, session))
            return inner(step, session, unable)

        member._begin = note

    monkeypatch.setattr(Network, "_start", watch)
    kills = tuple((kill, 2 + seed) for kill in (Kill.FORWARD, Kill.CONSENSUS_SENT, Kill.OPENING, Kill.RECEIVING))
    network = Network(problem(topology="ring"), Faults(drop=0.05, double=0.05, kills=kills, forget=forget), seed)
    network.run()
    assert sum(network.killed.values()) >= 2
    assert len({(k, session) for k, _, session in entered}) == len(entered)
    by_epoch: dict[int, set[bytes]] = {}
    for _, epoch, session in entered:
        by_epoch.setdefault(epoch, set()).add(session)
    assert len(by_epoch) >= 2
    assert all(len(sessions) == 1 for sessions in by_epoch.values())
