"""One decision of the members of a membership, by single-decree Paxos over gossip.

Lamport 1998, "The part-time parliament"; Lamport 2001, "Paxos made simple". A ballot is a round and the agent that
began it; ballots are ordered. Every vote is signed by its agent and spreads from neighbour to neighbour, so that
members need not be connected directly. Of an agent and a kind only the vote of the highest ballot counts: losing,
doubling and reordering messages does no harm.

    prepare    a proposer begins a ballot
    promise    an acceptor will vote in no lower ballot; it names the last value that it has accepted, if any
    proposal   with the promises of a majority: the value of the highest ballot among them or, if there is none, its own
    accepted   an acceptor's vote for a proposal, unless it has promised a higher ballot

A value that a majority has accepted in one ballot is decided; these votes are its certificate, which convinces whoever
knows the members' keys. Promises and acceptances are stored before anyone sees them. An agent that meets a vote of its
own that its disk does not hold has lost that disk, and votes no more.
"""

import struct
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Protocol

from gossamer.peers.protocol.signatures import Signatures
from gossamer.peers.protocol.statements import bind_to_run
from gossamer.peers.protocol.wire import RefusedError

Ballot = tuple[int, int]  # round, and the number of the agent that began it
NO_BALLOT: Ballot = (0, 0)
MAX_ROUND_JUMP = 1 << 20  # rounds that one vote can skip, so that no member can use the numbers up
MAX_VALUE_BYTES = 1 << 20
_VOTE = struct.Struct("<BIQI")  # kind, agent, ballot
_BALLOT = struct.Struct("<QI")  # of the value that a promise names


class VoteKind(IntEnum):
    """Kinds of votes, apart from the kinds of statements.py: both are signed with the same key."""

    PREPARE = 16
    PROMISE = 17
    PROPOSAL = 18
    ACCEPTED = 19
    HEARTBEAT = 20  # a sign of life of an agent, with its links; its round only grows
    LEAVING = 21  # an agent wants to leave
    SPONSORED = 22  # agents that want to join over a link to this one; its round only grows


STATED = frozenset((VoteKind.HEARTBEAT, VoteKind.LEAVING, VoteKind.SPONSORED))  # of an agent itself, outside ballots
BALLOTED = frozenset(VoteKind) - STATED


@dataclass(frozen=True, slots=True)
class Vote:
    kind: VoteKind
    agent: int
    ballot: Ballot
    content: bytes  # with the signature, as it is passed on
    accepted: Ballot = NO_BALLOT  # of a promise: the ballot of the value that the agent has accepted last
    value: bytes = b""


class VoteStore(Protocol):
    """The votes that an agent has stored, by kind; they survive a crash."""

    def votes(self) -> Mapping[int, bytes]: ...
    def set_vote(self, kind: int, content: bytes) -> None: ...


class Decree:
    """One agent's part in the decision of a membership: proposer, acceptor and learner."""

    def __init__(
        self,
        run: str,
        agent: int,
        num_agents: int,
        signatures: Signatures,
        store: VoteStore,
        check_value: Callable[[VoteKind, bytes], None],
    ) -> None:
        """`run` names the run and the membership; `check_value` refuses what a vote of a kind cannot carry."""
        self._run, self._agent, self._num_agents = run, agent, num_agents
        self._signatures, self._store, self._check_value = signatures, store, check_value
        self.votes: dict[tuple[VoteKind, int], Vote] = {}
        self.changed: set[tuple[VoteKind, int]] = set()  # since `take_changes`
        self.decided: bytes | None = None
        self.certificate: tuple[bytes, ...] = ()
        self.abstains = False
        self._ballot, self._wanted = NO_BALLOT, b""  # of this agent's own proposal, in this process
        for content in store.votes().values():
            self._add(self._parse(content))

    @property
    def majority(self) -> int:
        return self._num_agents // 2 + 1

    @property
    def contents(self) -> tuple[bytes, ...]:
        return tuple(vote.content for vote in self.votes.values())

    def take_changes(self) -> tuple[bytes, ...]:
        """The votes that are new or have changed since the last call."""
        found = tuple(self.votes[key].content for key in sorted(self.changed))
        self.changed.clear()
        return found

    def propose(self, value: bytes) -> None:
        """Begin a ballot above all that are known, for this value or one that may have been decided already."""
        if self.abstains or self.decided is not None:
            return
        highest = max((vote.ballot[0] for vote in self._ballots()), default=0)
        self._ballot, self._wanted = (highest + 1, self._agent), value
        self._vote(VoteKind.PREPARE, self._ballot)
        self._react()

    def state(self, kind: VoteKind, number: int, value: bytes = b"") -> None:
        """State something outside ballots; of an agent's statements of a kind that with the highest number counts."""
        self._vote(kind, (number, self._agent), value=value)

    def receive(self, contents: Iterable[bytes]) -> list[Vote]:
        """Take in votes, and return those that are new."""
        known = {vote.content for vote in self.votes.values()}
        unknown = [content for content in dict.fromkeys(contents) if content not in known]
        if len(unknown) > len(VoteKind) * self._num_agents:
            raise RefusedError("malformed", "more votes than there can be")
        new = []
        for vote in map(self._parse, unknown):
            self._check_round(vote)
            self._check_signature(vote)
            if vote.agent == self._agent:
                self._meet_own(vote)
            elif self._add(vote):
                new.append(vote)
        self._react()
        return new

    def learn(self, certificate: Iterable[bytes]) -> None:
        """Take over a decision from its certificate."""
        contents = tuple(certificate)
        if not self.majority <= len(contents) <= self._num_agents:
            raise RefusedError("malformed", "a certificate without the votes of a majority, or of more than all")
        votes = [self._parse(content) for content in contents]
        alike = {(vote.kind, vote.ballot, vote.value) for vote in votes}
        if len({vote.agent for vote in votes}) != len(votes) or len(alike) != 1 or votes[0].kind != VoteKind.ACCEPTED:
            raise RefusedError("malformed", "a certificate without the votes of a majority for one value")
        for vote in votes:
            self._check_signature(vote)
        self._decide(votes)

    def _react(self) -> None:
        """Vote as acceptor, propose as proposer, and learn, until nothing more follows."""
        before = None
        while before != (before := {key: vote.ballot for key, vote in self.votes.items()}) and self.decided is None:
            self._promise()
            self._propose_if_promised()
            self._accept()
            self._learn_if_accepted()

    @property
    def _promised(self) -> Ballot:
        """The lowest ballot that this agent may still vote in."""
        own = (self.votes.get((kind, self._agent)) for kind in (VoteKind.PROMISE, VoteKind.ACCEPTED))
        return max((vote.ballot for vote in own if vote), default=NO_BALLOT)

    def _promise(self) -> None:
        highest = max((vote.ballot for vote in self._of_kind(VoteKind.PREPARE)), default=NO_BALLOT)
        if highest > self._promised and not self.abstains:
            last = self.votes.get((VoteKind.ACCEPTED, self._agent))
            given = (last.ballot, last.value) if last else (NO_BALLOT, b"")
            self._vote(VoteKind.PROMISE, highest, *given)

    def _propose_if_promised(self) -> None:
        promises = [vote for vote in self._of_kind(VoteKind.PROMISE) if vote.ballot == self._ballot]
        own = self.votes.get((VoteKind.PROPOSAL, self._agent))
        if self._ballot == NO_BALLOT or len(promises) < self.majority or (own and own.ballot >= self._ballot):
            return
        highest = max(promises, key=lambda vote: vote.accepted)
        value = highest.value if highest.accepted > NO_BALLOT else self._wanted
        self._vote(VoteKind.PROPOSAL, self._ballot, value=value)

    def _accept(self) -> None:
        last = self.votes.get((VoteKind.ACCEPTED, self._agent))
        open_ = [
            vote
            for vote in self._of_kind(VoteKind.PROPOSAL)
            if vote.ballot >= self._promised and (last is None or vote.ballot > last.ballot)
        ]
        if open_ and not self.abstains:
            best = max(open_, key=lambda vote: vote.ballot)
            self._vote(VoteKind.ACCEPTED, best.ballot, value=best.value)

    def _learn_if_accepted(self) -> None:
        by_ballot: dict[tuple[Ballot, bytes], list[Vote]] = defaultdict(list)
        for vote in self._of_kind(VoteKind.ACCEPTED):
            by_ballot[vote.ballot, vote.value].append(vote)
        for votes in by_ballot.values():
            if len(votes) >= self.majority:
                self._decide(votes)

    def _decide(self, votes: list[Vote]) -> None:
        self.decided, self.certificate = votes[0].value, tuple(vote.content for vote in votes)

    def _meet_own(self, vote: Vote) -> None:
        """Notice a vote of before this process: its disk must hold a promise or an acceptance at least as high."""
        known = self.votes.get((vote.kind, self._agent))
        stored = vote.kind in (VoteKind.PROMISE, VoteKind.ACCEPTED)
        if stored and (known is None or vote.ballot > known.ballot):
            self.abstains = True
        if not stored:
            self._add(vote)  # so that the next ballot or sign of life is above it

    def _vote(self, kind: VoteKind, ballot: Ballot, accepted: Ballot = NO_BALLOT, value: bytes = b"") -> None:
        body = _VOTE.pack(kind, self._agent, *ballot)
        body += _BALLOT.pack(*accepted) + value if kind == VoteKind.PROMISE else value
        content = body + self._signatures.sign(bind_to_run(self._run, body))
        if kind in (VoteKind.PROMISE, VoteKind.ACCEPTED):
            self._store.set_vote(kind, content)  # before anyone sees it
        self._add(Vote(kind, self._agent, ballot, content, accepted, value))

    def _add(self, vote: Vote) -> bool:
        key = vote.kind, vote.agent
        known = self.votes.get(key)
        if known is not None and known.ballot >= vote.ballot:
            if known.ballot == vote.ballot and known.content != vote.content:
                raise RefusedError("contradiction", f"agent {vote.agent} has voted twice in one ballot")
            return False
        self.votes[key] = vote
        self.changed.add(key)
        return True

    def _of_kind(self, kind: VoteKind) -> list[Vote]:
        return [vote for (found, _), vote in self.votes.items() if found == kind]

    def _ballots(self) -> list[Vote]:
        """The votes whose rounds are those of ballots."""
        return [vote for (kind, _), vote in self.votes.items() if kind in BALLOTED]

    def _parse(self, content: bytes) -> Vote:
        end = len(content) - self._signatures.size
        if not _VOTE.size <= end <= MAX_VALUE_BYTES:
            raise RefusedError("malformed", "a vote that is cut off or too long")
        number, agent, *ballot = _VOTE.unpack_from(content)
        if number not in list(VoteKind) or max(agent, ballot[1]) >= self._num_agents:
            raise RefusedError("malformed", "a vote of no kind, or of nobody")
        kind, rest, accepted = VoteKind(number), content[_VOTE.size : end], NO_BALLOT
        if kind == VoteKind.PROMISE:
            if len(rest) < _BALLOT.size:
                raise RefusedError("malformed", "a promise that is cut off")
            accepted, rest = _BALLOT.unpack_from(rest), rest[_BALLOT.size :]
        if kind not in (VoteKind.PROMISE, VoteKind.ACCEPTED) and ballot[1] != agent:
            raise RefusedError("malformed", "a ballot of another agent")
        carries = (VoteKind.PROPOSAL, VoteKind.ACCEPTED, VoteKind.HEARTBEAT, VoteKind.SPONSORED)
        if kind in carries or accepted > NO_BALLOT:
            self._check_value(kind, rest)
        elif rest:
            raise RefusedError("malformed", "a vote with a value that it cannot have")
        return Vote(kind, agent, (ballot[0], ballot[1]), content, accepted, rest)

    def _check_round(self, vote: Vote) -> None:
        """Refuse to skip many rounds, so that no member can use the numbers up; those of a decision are not limited."""
        highest = max((known.ballot[0] for known in self._ballots()), default=0)
        if vote.kind in BALLOTED and vote.ballot[0] > highest + MAX_ROUND_JUMP:
            raise RefusedError("malformed", "a round far away")

    def _check_signature(self, vote: Vote) -> None:
        end = len(vote.content) - self._signatures.size
        body, signature = vote.content[:end], vote.content[end:]
        if not self._signatures.verifies(vote.agent, bind_to_run(self._run, body), signature):
            raise RefusedError("signature", f"agent {vote.agent} has not signed a vote")
