"""Memberships that follow each other: one agent's side, without I/O or a clock.

Membership 0 has all agents of the run. In each, the agents train by the protocol of member.py, and decide once what
follows (paxos.py, changes.py): the members of the next membership, or that the run has finished. So there is one
history, however proposals compete and links fail. What was decided is passed on as a certificate to every neighbour
that still sends messages of the membership before.

An agent that is not a member asks its neighbours to become one: one that is new, or that was removed while it was away.
A member whose address or key has changed asks to be replaced by itself; until then it takes part as before, if it still
has its former key. So does a member that had joined and has lost its checkpoints, once the others have none from before
it joined: it takes over a neighbour's weights again, and nobody goes back to step 0. Who has left is at its end.
"""

import math
from collections import Counter
from collections.abc import Callable

from gossamer.errors import GossamerError
from gossamer.peers.protocol import wire
from gossamer.peers.protocol.change_messages import Ballots, Decision, decode_change, encode_change
from gossamer.peers.protocol.changes import Change
from gossamer.peers.protocol.group_config import GroupConfig, GroupStore, MakeMember, refuse_stranger
from gossamer.peers.protocol.history import History, make_check
from gossamer.peers.protocol.member import DEPARTURE_TIMEOUT, ISOLATION_TIMEOUT, Member
from gossamer.peers.protocol.notices import Notices
from gossamer.peers.protocol.paxos import Decree
from gossamer.peers.protocol.terms import Entry, Term
from gossamer.peers.protocol.wire import Buffer, RefusedError

ANNOUNCE_INTERVAL, JOIN_INTERVAL = 1.0, 2.0  # seconds between two announcements of the end, or requests to join


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
        """`send` takes the id of a neighbour, and `make_member` the memberships and since which one the agent is in."""
        self.config, self._store, self._make_member, self._send = config, store, make_member, send
        self.agent = config.agent
        self._on_refused, self.refused = on_refused, Counter[str]()
        self.history = History(config.run, config.founders)
        self.entry = Entry(config.agent, store.profile())
        self.ended = self.leaving = self.left = False
        self.member: Member | None = None  # None: this agent is no member
        self.change: Change | None = None
        self._notices = Notices(self.agent, self.history, config.founder_keys, send)
        self._decided_at = self._outside_since = self._last_received = self._join_at = self._announce_at = now
        for certificate in store.certificates():
            self._pass(certificate, self.history.verify(certificate, config.sign), now)
        self._prepare_to_join(config.moved)
        self._enter(now)

    @property
    def term(self) -> Term:
        """The last membership that this agent knows of."""
        return self.history.last

    @property
    def neighbours(self) -> tuple[int, ...]:
        """Ids of the agents that it exchanges messages with, or asks to join."""
        if self.member is None and not self.ended:
            return self._linked
        return self.term.find_neighbours(self.agent, self.config.neighbours)

    @property
    def _linked(self) -> tuple[int, ...]:  # whom it asks to join
        profile = self.entry.profile
        return tuple(sorted({*self.config.neighbours, *(profile.links if profile else ())} - {self.agent}))

    @property
    def _asks(self) -> bool:  # to join, to be replaced by itself, or what it has missed while it was split off
        missing = self.change is not None and self.change.split and self.entry.packed != b""
        return not self.all_done and not self.leaving and (missing or self.term.find(self.agent) != self.entry)

    @property
    def wake_at(self) -> float:
        """When to call `tick`."""
        if self.all_done:
            return self._announce_at if self.history.certificates else self._outside_since
        wakes = [self._join_at] if self._asks else []
        if self.member is not None and self.change is not None:
            wakes += [self.member.wake_at, self.change.wake_at]
        return min(wakes, default=self._join_at)

    @property
    def all_done(self) -> bool:
        """Return whether nothing follows for this agent: the run has finished, or it has left."""
        return self.ended or self.left

    @property
    def waiting_for(self) -> tuple[int, ...]:
        """Ids of the agents that this one waits for."""
        if self.all_done or self.member is None:
            return () if self.all_done else self.neighbours
        return tuple(map(self.term.ids.__getitem__, self.member.waiting_for))

    @property
    def waiting_since(self) -> float:
        return self.member.waiting_since if self.member else self._outside_since

    def leave(self, now: float) -> None:
        """Ask the others to go on without this agent."""
        self.leaving = True
        if self.change is not None and not self.all_done:
            self.change.leave()
        elif self.member is None and not self.all_done:
            self.left, self._decided_at = True, now if self.history.has_just_removed(self.agent) else -math.inf

    def may_leave(self, now: float) -> bool:
        """Return whether the process can end: the neighbours know the decision, or this agent hears nobody any more."""
        if self.all_done:
            informed, late = self._notices.informed & {*self.term.ids}, now > self._decided_at + DEPARTURE_TIMEOUT
            needed = self.left and self.history.has_just_removed(self.agent) and not informed  # they may lack its vote
            alone = now > self._last_received + ISOLATION_TIMEOUT
            return informed >= {*self.neighbours} & {*self.term.ids} or (late and (alone or not needed))
        return self.member is not None and self.member.finished and now > self._last_received + ISOLATION_TIMEOUT

    def receive(self, sender: int | str, message: Buffer, now: float) -> None:
        """Handle a message of a neighbour, by its id, or of an agent that may ask to join, by its key."""
        try:
            self._receive(sender, message, now)
        except RefusedError as refused:
            self.refused[refused.reason] += 1
            self._on_refused(sender, refused)

    def tick(self, now: float) -> None:
        """Request what has not arrived, watch who is there, and propose what should follow."""
        if self.all_done:
            if now >= self._announce_at and self.history.certificates:
                self._announce_at = now + ANNOUNCE_INTERVAL
                for z in set(self.neighbours) - self._notices.informed:
                    self._notices.send(z, len(self.history.certificates) - 1)
            return
        if self.member is not None and self.member.lost and not self.leaving and not self._asks:
            self._prepare_to_join(anew=True)
        if self._asks and now >= self._join_at:
            self._join_at = now + JOIN_INTERVAL
            for z in self._linked:
                self._send(z, self.config.ask(z, self.entry, len(self.history.certificates)))
        if self.member is not None and self.change is not None:
            self.member.tick(now)
            self.change.tick(now)
            self._notices.remind(self.neighbours, now)
            self._follow(now)

    def _receive(self, sender: int | str, message: Buffer, now: float) -> None:
        if wire.find_kind(message) == wire.JOIN:
            return self._on_join_request(sender, message, now)
        decides = wire.find_kind(message) == wire.DECISION
        digest = wire.find_run_digest(message)
        number = self.history.find_number(digest)
        if number is None:
            raise RefusedError("run" if digest is None else "early", "another membership")
        if isinstance(sender, str) and not decides:
            raise refuse_stranger(wire.find_sender(message), self.history.terms[number], self.term)
        if isinstance(sender, str):  # it may have become a member while this agent was away
            self._notices.limits.take(f"decision {sender}", "decisions", now)
            return self._on_decision(sender, wire.find_sender(message), number, message, now)
        self._last_received = now
        if decides:
            return self._on_decision(sender, sender, number, message, now)
        term = self.history.terms[number]
        if sender not in term.ids:
            raise RefusedError("sender", f"agent {sender} is no member")
        if number < len(self.history.certificates):
            return self._notices.answer(sender, number, now)
        if self.member is None or self.change is None:
            raise RefusedError("early", "this agent is no member yet")
        self._notices.heard.add(sender)
        self.change.see(term.ids.index(sender), now)
        if wire.find_kind(message) != wire.BALLOTS:
            self.member.receive(term.ids.index(sender), message, now)
        else:
            ballots = decode_change(message, term.name, term.ids.index(sender), self.config.max_message_bytes)
            assert isinstance(ballots, Ballots)
            self.change.receive(ballots.votes, now)
        self._follow(now)

    def _on_decision(self, sender: int | str, claimed: int, number: int, message: Buffer, now: float) -> None:
        found = decode_change(message, self.history.terms[number].name, claimed, self.config.max_message_bytes)
        assert isinstance(found, Decision)
        known, linked = len(self.history.certificates), claimed == sender
        if number < known:
            self._notices.informed |= {claimed} if self.all_done and linked and number == known - 1 else set()
            return
        learns = found.founders and number == 0 and self.agent not in self.config.founders and linked
        learnt = learns and self.config.learn_founders(found.founders)
        try:
            self._pass_on(found.certificate, now)
        except RefusedError:
            if learnt:
                self.config.learn_founders(())  # these keys may be wrong
            raise
        self._notices.informed |= {claimed} if self.all_done and linked else set()

    def _on_join_request(self, sender: int | str, message: Buffer, now: float) -> None:
        entry, request = self.config.read_request(sender, message, self.term.ids)
        self._notices.limits.take(f"join {sender}", "requests to join", now)
        if self.change is not None:
            self.change.check_takeover(entry, now)
        self.config.admit(sender, entry, request.terms, request.edges)
        if request.known < len(self.history.certificates):
            self._notices.answer(entry.agent, request.known, now)
        elif self.change is None or self.all_done:
            raise RefusedError("early", "this agent is no member")
        elif entry not in self.term.entries:
            if self.history.has_had(entry):
                raise RefusedError("old", f"agent {entry.agent} was a member with this profile, and was removed")
            self.change.sponsor(entry, now)
            self._follow(now)

    def _follow(self, now: float) -> None:
        """Go on as was decided, if it was; pass on what is new."""
        assert self.change is not None
        decree, term = self.change.decree, self.term
        votes = self.change.take_votes(now)
        if votes:
            message = encode_change(Ballots(term.ids.index(self.agent), votes), term.name)
            for z in self.neighbours:
                self._send(z, message)
        if decree.decided is not None:
            self._pass_on(decree.certificate, now)

    def _pass_on(self, certificate: tuple[bytes, ...], now: float) -> None:
        """Take over a decision, and send it to all neighbours."""
        before, number = self.neighbours, self.term.number
        self._decide(certificate, now)
        for z in before:
            self._notices.send(z, number)

    def _decide(self, certificate: tuple[bytes, ...], now: float) -> None:
        """Take over the decision of the last membership, and go on in the next."""
        following = self.history.verify(certificate, self.config.sign)
        self._store.add_certificate(self.term, certificate, following)
        self._pass(certificate, following, now)
        if self.leaving and following is not None and self.history.has_just_removed(self.agent):
            self.left, self._decided_at = True, now
        self._prepare_to_join(anew=False)
        self._enter(now)

    def _pass(self, certificate: tuple[bytes, ...], following: tuple[Entry, ...] | None, now: float) -> None:
        """Go to the next membership, of which this agent may be no member, or to the end."""
        self.history.add(certificate, following)
        if following is None:
            self.ended = True
            self._decided_at = self._announce_at = now

    def _prepare_to_join(self, anew: bool) -> None:
        """Make a new profile, unlike any before, if this agent was removed with its last one, or is to join anew."""
        present = self.term.find(self.agent)
        removed = present != self.entry and self.history.has_had(self.entry)
        if not removed and (self.ended or not anew):
            return
        fresh = Entry(self.agent, self.config.make_profile())
        if removed and present is not None and not self.config.is_same(present, fresh):
            raise GossamerError(
                f"the number {self.agent} now belongs to an agent with another key, which took its place while it was "
                "away: put a newer key of this site back, or join with a number that nobody has"
            )
        self.entry = fresh
        self._store.set_profile(fresh.packed)

    def _may_take_part(self, entry: Entry) -> bool:
        """Return whether this agent has the key of its entry, and the votes cast with it, which go with the profile:
        without one nobody can tell. Of two members each is in every majority."""
        terms = [one.number for one in self.history.terms if entry in one.entries]
        knows = entry == self.entry or not entry.packed or any(map(self._store.has_entered, terms))
        return (knows or len(self.term.ids) <= 2) and self.config.signs_for(entry)

    def _enter(self, now: float) -> None:
        """Begin as a member of the last membership, or wait outside."""
        entry, term = self.term.find(self.agent), self.term
        if not self.ended or (self.member is not None and not self.member.finished):  # it has lost its result
            self.member = None
            self._join_at = self._outside_since = now
        self.change = None
        self._notices.begin(now)
        if self.member is not None or entry is None or not self._may_take_part(entry):
            return
        first = self.history.find_first(entry)
        self.member = self._make_member(
            self.history.terms, first, lambda receiver, message: self._send(term.ids[receiver], message), now
        )
        if self.ended:
            self.member = self.member if self.member.finished else None
            return
        signatures, votes = self.config.sign(term), self._store.votes(term.number)
        number, m = term.ids.index(self.agent), len(term.ids)
        decree = Decree(term.name, number, m, signatures, votes, make_check(term, signatures.size > 0))
        self.change = Change(term, self.config, self.neighbours, decree, self.member)
        if self.leaving:
            self.change.leave()
