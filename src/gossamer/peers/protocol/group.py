"""Memberships that follow each other: one agent's side, without I/O or a clock.

Membership 0 has all agents of the run. In each, the agents train by the protocol of member.py, and decide once what
follows (paxos.py, changes.py): the members of the next membership, or that the run has finished. So there is one
history, however proposals compete and links fail. What was decided is passed on as a certificate to every neighbour
that still sends messages of the membership before.

An agent that is not a member asks its neighbours to become one: one that is new, or that was removed while it was away.
A member whose address or key has changed asks to be replaced by itself; until then it takes part as before, if it still
has its former key. Who has asked to leave and was removed is at its end.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from gossamer.peers.protocol import wire
from gossamer.peers.protocol.changes import Change, check_vote
from gossamer.peers.protocol.member import DEPARTURE_TIMEOUT, ISOLATION_TIMEOUT, Member
from gossamer.peers.protocol.paxos import Decree, VoteKind, VoteStore
from gossamer.peers.protocol.resending import REPLY_BURST, REPLY_RATE, TokenBucket
from gossamer.peers.protocol.signatures import Signatures
from gossamer.peers.protocol.terms import (
    Entry,
    Term,
    make_entries,
    name_term,
    pack_entries,
    unpack_entries,
    unpack_members,
)
from gossamer.peers.protocol.wire import Ballots, Buffer, Decision, JoinRequest, RefusedError

ANNOUNCE_INTERVAL = 1.0  # seconds after which the end of a run is announced again
JOIN_INTERVAL = 2.0  # seconds between two requests to join
MAX_DECISIONS = 16  # that answer one message


class GroupStore(Protocol):
    """Persistent state of an agent across memberships."""

    def certificates(self) -> Sequence[tuple[bytes, ...]]:
        """Return the certificates of all decisions, from that of membership 0 on."""

    def add_certificate(self, term: Term, certificate: Sequence[bytes], following: Sequence[Entry] | None) -> None:
        """Store the decision of a membership: what follows it, or None if the run has finished."""

    def votes(self, number: int) -> VoteStore: ...

    def profile(self) -> bytes:
        """Return the profile that the agent joins or has joined with; empty: that of membership 0."""

    def set_profile(self, packed: bytes) -> None: ...


@dataclass(frozen=True)
class GroupConfig:
    """Parameters of one agent across memberships."""

    run: str
    agent: int  # its id
    founders: tuple[int, ...]  # ids of the members of membership 0, ascending
    neighbours: tuple[int, ...]  # ids of the agents that its shard names as neighbours
    evict_after: float  # seconds; 0: nobody is removed for being silent
    sign: Callable[[Term], Signatures]  # makes the signatures of a membership, by numbers in it
    make_profile: Callable[[], bytes]  # a new one of this agent, to join with
    max_message_bytes: int  # of votes and decisions
    moved: bool = False  # its address or key is another than the one that it joined with
    signs_for: Callable[[Entry], bool] = lambda entry: True  # whether it has the key of an entry with its id
    admit: Callable[[int | str, Entry], None] = lambda sender, entry: None  # refuses who may not join
    founder_keys: tuple[bytes, ...] = ()  # as `learn_founders` takes them
    learn_founders: Callable[[tuple[bytes, ...]], None] = lambda keys: None


MakeMember = Callable[[Sequence[Term], int, Callable[[int, bytes], None], float], Member]


class Group:
    """Drives an agent through the memberships of a run."""

    def __init__(
        self,
        config: GroupConfig,
        store: GroupStore,
        make_member: MakeMember,
        send: Callable[[int, bytes], None],
        now: float,
        on_refused: Callable[[int | str, RefusedError], None] = lambda sender, refused: None,
    ) -> None:
        """`send` takes the id of a neighbour; `make_member` makes the side of member.py in the last of the memberships,
        given since which of them the agent has been a member."""
        self.config, self._store, self._make_member, self._send = config, store, make_member, send
        self._on_refused = on_refused
        self.refused: Counter[str] = Counter()
        self.terms = [name_term(config.run, 0, make_entries(config.founders))]
        self._certificates: list[tuple[bytes, ...]] = []
        self._replies: dict[int | str, TokenBucket] = {}
        self.entry = Entry(config.agent, store.profile())
        self.ended = self.leaving = self.left = False
        self.member: Member | None = None  # None: this agent is no member
        self.change: Change | None = None
        self._informed: set[int] = set()  # neighbours that know that the run has finished
        self._decided_at = self._outside_since = self._last_received = self._join_at = self._announce_at = now
        for certificate in store.certificates():
            self._pass(certificate, now)
        if config.moved and self.term.find(config.agent) == self.entry:
            self._renew_profile()
        self._enter(now)

    @property
    def term(self) -> Term:
        """The last membership that this agent knows of."""
        return self.terms[-1]

    @property
    def neighbours(self) -> tuple[int, ...]:
        """Ids of the agents that it exchanges messages with, or asks to join."""
        if self.member is None and not self.ended:
            return self._linked
        return self.term.find_neighbours(self.config.agent, self.config.neighbours)

    @property
    def _linked(self) -> tuple[int, ...]:
        """Ids of the agents that it asks to join."""
        profile = self.entry.profile
        return tuple(sorted({*self.config.neighbours, *(profile.links if profile else ())} - {self.config.agent}))

    @property
    def _asks(self) -> bool:
        """Return whether this agent asks to join, or to be replaced by itself."""
        return not self.all_done and not self.leaving and self.term.find(self.config.agent) != self.entry

    @property
    def wake_at(self) -> float:
        """When to call `tick`."""
        if self.ended:
            return self._announce_at
        wakes = [self._join_at] if self._asks else []
        if self.member is not None and self.change is not None:
            wakes += [self.member.wake_at, self.change.wake_at]
        return min(wakes, default=self._join_at)

    @property
    def agent(self) -> int:
        return self.config.agent

    @property
    def all_done(self) -> bool:
        """Return whether nothing follows for this agent: the run has finished, or it has left."""
        return self.ended or self.left

    @property
    def split(self) -> bool:
        """Return whether too few members can be heard to decide anything."""
        return self.change is not None and not self.ended and self.change.split

    @property
    def waiting_for(self) -> tuple[int, ...]:
        """Ids of the agents that this one waits for: to go on, or to join."""
        if self.all_done:
            return ()
        if self.member is None:
            return self.neighbours
        return tuple(self.term.ids[number] for number in self.member.waiting_for)

    @property
    def waiting_since(self) -> float:
        return self._outside_since if self.member is None else self.member.waiting_since

    def leave(self, now: float) -> None:
        """Ask the others to go on without this agent."""
        self.leaving = True
        if self.change is not None and not self.all_done:
            self.change.leave()
        elif self.member is None and not self.ended:
            self.left = True

    def may_leave(self, now: float) -> bool:
        """Return whether the process can end: nothing follows, and the neighbours know it or had time to learn of it;
        or this agent has finished and hears nobody."""
        if self.left:
            return True
        if self.ended:
            return self._informed >= set(self.neighbours) or now > self._decided_at + DEPARTURE_TIMEOUT
        return self.member is not None and self.member.finished and now > self._last_received + ISOLATION_TIMEOUT

    def receive(self, sender: int | str, message: Buffer, now: float) -> None:
        """Handle a message of a neighbour, by its id, or of one that may ask to join, by its key; what the protocol
        does not allow is counted and dropped."""
        try:
            self._receive(sender, message, now)
        except RefusedError as refused:
            self.refused[refused.reason] += 1
            self._on_refused(sender, refused)

    def tick(self, now: float) -> None:
        """Request what has not arrived, watch who is there, and propose what should follow."""
        if self.ended:
            if now >= self._announce_at:
                self._announce_at = now + ANNOUNCE_INTERVAL
                for z in set(self.neighbours) - self._informed:
                    self._send_decisions(z, self.term.number)
            return
        if self._asks and now >= self._join_at:
            self._join_at = now + JOIN_INTERVAL
            request = JoinRequest(self.config.agent, len(self._certificates), self.entry.packed)
            for z in self._linked:
                self._send(z, wire.encode(request, name_joining(self.config.run)))
        if self.member is not None and self.change is not None:
            self.member.tick(now)
            self.change.tick(now)
            self._follow(now)

    def _receive(self, sender: int | str, message: Buffer, now: float) -> None:
        if wire.find_kind(message) == wire.JOIN:
            return self._on_join_request(sender, message, now)
        if isinstance(sender, str):
            raise RefusedError("sender", "no member, and no request to join")
        digest = wire.find_run_digest(message)
        number = next((one.number for one in reversed(self.terms) if wire.digest_run(one.name) == digest), None)
        if number is None:
            raise RefusedError("run" if digest is None else "early", "another membership")
        self._last_received = now
        if wire.find_kind(message) == wire.DECISION:
            return self._on_decision(sender, number, message, now)
        term = self.terms[number]
        if sender not in term.ids:
            raise RefusedError("sender", f"agent {sender} is no member")
        if number < len(self._certificates):
            return self._answer(sender, number, now)
        if self.member is None or self.change is None:
            raise RefusedError("early", "this agent is no member yet")
        self.change.see(term.ids.index(sender), now)
        if wire.find_kind(message) != wire.BALLOTS:
            self.member.receive(term.ids.index(sender), message, now)
        else:
            ballots = wire.decode_change(message, term.name, term.ids.index(sender), self.config.max_message_bytes)
            assert isinstance(ballots, Ballots)
            self.change.receive(ballots.votes, now)
        self._follow(now)

    def _on_decision(self, sender: int, number: int, message: Buffer, now: float) -> None:
        found = wire.decode_change(message, self.terms[number].name, sender, self.config.max_message_bytes)
        assert isinstance(found, Decision)
        if number < len(self._certificates):
            if self.ended and number == self.term.number:
                self._informed.add(sender)
            return
        if found.founders and number == 0 and self.config.agent not in self.config.founders:
            self.config.learn_founders(found.founders)
        self._decide(found.certificate, now)

    def _on_join_request(self, sender: int | str, message: Buffer, now: float) -> None:
        claimed = sender if isinstance(sender, int) else wire.find_sender(message)
        request = wire.decode_change(message, name_joining(self.config.run), claimed, self.config.max_message_bytes)
        assert isinstance(request, JoinRequest)
        (entry,) = unpack_entries(pack_entries([Entry(claimed, request.entry)]))  # refuses what cannot be read
        if entry.profile is None:
            raise RefusedError("malformed", "a request to join without a profile")
        self.config.admit(sender, entry)
        if request.known < len(self._certificates):
            self._answer(claimed, request.known, now)
        elif self.change is None or self.all_done:
            raise RefusedError("early", "this agent is no member")
        elif entry not in self.term.entries:
            if self.config.agent not in entry.profile.links:
                raise RefusedError("unplanned", f"agent {claimed} names no link to this agent")
            self.change.sponsor(entry, now)
            self._follow(now)

    def _answer(self, receiver: int, number: int, now: float) -> None:
        """Send the decisions from a membership on to an agent that may not know them, within a rate limit."""
        bucket = self._replies.setdefault(receiver, TokenBucket(now, REPLY_RATE, REPLY_BURST))
        if not bucket.take(now):
            raise RefusedError("too often", "messages of an earlier membership")
        for later in range(number, min(number + MAX_DECISIONS, len(self._certificates))):
            self._send_decisions(receiver, later)

    def _send_decisions(self, receiver: int, number: int) -> None:
        founders = self.config.founder_keys if number == 0 else ()
        decision = Decision(self.config.agent, self._certificates[number], founders)
        self._send(receiver, wire.encode(decision, self.terms[number].name))

    def _follow(self, now: float) -> None:
        """Go on as was decided, if it was; pass on what is new."""
        assert self.change is not None
        decree, term = self.change.decree, self.term
        votes = self.change.take_votes(now)
        if votes:
            message = wire.encode(Ballots(term.ids.index(self.config.agent), votes), term.name)
            for z in self.neighbours:
                self._send(z, message)
        if decree.decided is not None:
            before = self.neighbours
            self._decide(decree.certificate, now)
            for z in before:
                self._send_decisions(z, term.number)

    def _decide(self, certificate: tuple[bytes, ...], now: float) -> None:
        """Take over the decision of the last membership, and go on in the next."""
        term = self.term
        following = unpack_members(self._verify(certificate))
        self._store.add_certificate(term, certificate, following)
        self._pass(certificate, now)
        self._enter(now)

    def _verify(self, certificate: tuple[bytes, ...]) -> bytes:
        """The decision that a certificate proves, of the last membership."""
        decree = self._make_decree()
        decree.learn(certificate)
        assert decree.decided is not None
        return decree.decided

    def _pass(self, certificate: tuple[bytes, ...], now: float) -> None:
        """Go to the next membership, of which this agent may be no member, or to the end."""
        following = unpack_members(self._verify(certificate))
        self._certificates.append(certificate)
        if following is None:
            self.ended = True
            self._decided_at = self._announce_at = now
            return
        was_member = self.term.find(self.config.agent) is not None
        self.terms.append(name_term(self.config.run, len(self.terms), following))
        if was_member and self.term.find(self.config.agent) is None:
            self.left = self.leaving
            self._renew_profile()

    def _renew_profile(self) -> None:
        """Prepare to join anew: no two profiles are alike."""
        self.entry = Entry(self.config.agent, self.config.make_profile())
        self._store.set_profile(self.entry.packed)

    def _enter(self, now: float) -> None:
        """Begin as a member of the last membership, or wait outside."""
        if self.ended:
            self.change = None
            return
        self.member = self.change = None
        self._join_at = self._outside_since = now
        term, agent = self.term, self.config.agent
        entry = term.find(agent)
        if entry is None or not self.config.signs_for(entry):
            return
        since = next(one.number for one in self.terms if one.find(agent) == entry)
        self.member = self._make_member(
            self.terms, since, lambda number, message: self._send(term.ids[number], message), now
        )
        decree = self._make_decree()
        self.change = Change(term, agent, self.neighbours, self.config.evict_after, decree, self.member)
        if self.leaving:
            self.change.leave()

    def _make_decree(self) -> Decree:
        term, agent = self.term, self.config.agent

        def check(kind: VoteKind, value: bytes) -> None:
            check_vote(kind, value, term)

        number = term.ids.index(agent) if agent in term.ids else -1
        return Decree(term.name, number, len(term.ids), self.config.sign(term), self._store.votes(term.number), check)


def name_joining(run: str) -> str:
    """The name that requests to join carry in place of a membership's."""
    return f"{run} joining"


def max_change_bytes(num_agents: int) -> int:
    """Bytes of the longest message with votes or a decision: of every agent a vote of each kind, with a value."""
    entry = 8 + 500 + 8 * num_agents
    return 1 << 12 | num_agents * len(VoteKind) * (128 + entry * num_agents)
