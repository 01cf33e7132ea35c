"""Single-decree Paxos over gossip: one decision, whatever is lost, doubled, reordered or restarted."""

import contextlib
import random
from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest

from gossamer.peers.protocol.paxos import NO_BALLOT, Ballot, Decree, VoteKind
from gossamer.peers.protocol.signatures import UNSIGNED, derive_verify_key, make_keyring
from gossamer.peers.protocol.wire import RefusedError


@dataclass
class Votes:
    """Stored votes; a mutation forgets some."""

    stored: dict[int, bytes] = field(default_factory=dict)
    forgets: VoteKind | None = None

    def votes(self) -> Mapping[int, bytes]:
        return dict(self.stored)

    def set_vote(self, kind: int, content: bytes) -> None:
        if kind != self.forgets:
            self.stored[kind] = content


def check_value(kind: VoteKind, value: bytes) -> None:
    if value[:1] != b"v":
        raise RefusedError("malformed", "no value")


def make(agent: int, num_agents: int, votes: Votes) -> Decree:
    return Decree("run", agent, num_agents, UNSIGNED, votes, check_value)


def run_randomly(seed: int, forgets: VoteKind | None = None) -> set[bytes]:
    """What is decided by agents that propose, lose messages and restart as the seed has it."""
    draw = random.Random(seed)
    m = draw.choice([2, 3, 4, 5])
    stores = [Votes(forgets=forgets) for _ in range(m)]
    decrees = [make(k, m, stores[k]) for k in range(m)]
    decided: set[bytes] = set()
    waiting: list[tuple[int, tuple[bytes, ...]]] = []
    for _ in range(draw.randrange(20, 150)):
        k = draw.randrange(m)
        match draw.randrange(6):
            case 0:
                decrees[k].propose(b"v%d" % draw.randrange(3))
            case 1 if draw.random() < 0.3:
                decrees[k] = make(k, m, stores[k])
            case 2:
                decrees[k].changed.update(decrees[k].votes)
            case _ if waiting:
                receiver, votes = waiting.pop(draw.randrange(len(waiting)))
                with contextlib.suppress(RefusedError):  # a contradiction, if votes are forgotten
                    decrees[receiver].receive(votes if draw.random() < 0.8 else ())
        for z, decree in enumerate(decrees):
            votes = decree.take_changes()
            waiting += [(other, votes) for other in range(m) if other != z and votes and draw.random() < 0.7]
            decided |= {decree.decided} if decree.decided is not None else set()
    return decided


def test_at_most_one_value_is_decided() -> None:
    found = [run_randomly(seed) for seed in range(1500)]
    assert max(map(len, found)) == 1
    assert sum(map(len, found)) > 300  # most decide something


def test_a_forgotten_acceptance_would_decide_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Decree, "_meet_own", lambda decree, vote: decree._add(vote))
    assert any(len(run_randomly(seed, VoteKind.ACCEPTED)) > 1 for seed in range(4000))


def test_a_forgotten_promise_would_decide_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    def find_accepted(decree: Decree) -> Ballot:
        last = decree.votes.get((VoteKind.ACCEPTED, decree._agent))
        return last.ballot if last else NO_BALLOT

    monkeypatch.setattr(Decree, "_promised", property(find_accepted))
    assert any(len(run_randomly(seed)) > 1 for seed in range(4000))


def test_who_has_lost_its_disk_votes_no_more() -> None:
    first, other = make(0, 3, Votes()), make(1, 3, Votes())
    other.propose(b"v1")
    first.receive(other.take_changes())
    promised = first.take_changes()
    assert first.votes[VoteKind.PROMISE, 0].ballot == (1, 1)
    lost = make(0, 3, Votes())
    lost.receive(promised)
    assert lost.abstains
    lost.propose(b"v2")
    assert not [kind for kind, agent in lost.votes if agent == 0]


def test_a_new_proposer_takes_over_what_may_have_been_decided() -> None:
    stores = [Votes() for _ in range(3)]
    a, b, c = (make(k, 3, stores[k]) for k in range(3))
    a.propose(b"v1")
    b.receive(a.take_changes())
    a.receive(b.take_changes())
    b.receive(a.take_changes())  # b has accepted v1: with a, a majority that only b knows of
    assert b.decided == b"v1"
    c.propose(b"v2")
    fresh = make(1, 3, stores[1])  # b comes back from its disk
    fresh.receive(c.take_changes())
    c.receive(fresh.take_changes())
    assert c.votes[VoteKind.PROPOSAL, 2].value == b"v1"


def test_a_certificate_convinces_and_less_does_not() -> None:
    secrets = [f"{k}".rjust(40, "0") for k in range(3)]
    keys = [derive_verify_key(secret) for secret in secrets]
    signed = [make_keyring(secret, keys, k) for k, secret in enumerate(secrets)]
    a, b = (Decree("run", k, 3, signed[k], Votes(), check_value) for k in range(2))
    a.propose(b"v1")
    b.receive(a.take_changes())
    a.receive(b.take_changes())
    b.receive(a.take_changes())
    assert b.decided == b"v1"
    third = Decree("run", 2, 3, signed[2], Votes(), check_value)
    with pytest.raises(RefusedError, match="majority"):
        third.learn(b.certificate[:1])
    with pytest.raises(RefusedError, match="majority"):
        third.learn((*b.certificate[:1], *b.certificate[:1]))
    with pytest.raises(RefusedError, match="more than all"):
        third.learn(b.certificate * 2)
    with pytest.raises(RefusedError, match="more votes than there can be"):
        third.receive(b"%d" % number for number in range(22))
    forged = b.certificate[1][:-1] + bytes([b.certificate[1][-1] ^ 1])
    with pytest.raises(RefusedError, match="signed"):
        third.learn((b.certificate[0], forged))
    with pytest.raises(RefusedError, match="signed"):  # the votes of another run
        Decree("other", 2, 3, signed[2], Votes(), check_value).learn(b.certificate)
    third.learn(b.certificate)
    assert third.decided == b"v1"


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x00" * 3,
        b"\xff" * 40,
        b"\x10" + b"\x00" * 16 + b"\x09",
        b"\x13" + b"\x00" * 16,
    ],
)
def test_what_is_no_vote_is_refused(content: bytes) -> None:
    with pytest.raises(RefusedError):
        make(0, 3, Votes()).receive([content])
