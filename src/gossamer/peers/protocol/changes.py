"""Change from one membership to the next, as a member sees it: who is gone, wants to leave or to join; proposals.

Failure detection by gossip (van Renesse, Minsky and Hayden 1998, "A gossip-style failure detection service"): agents
that wait send signs of life, which spread along the links. A member of which nothing new has come for `evict_after`
seconds, while this agent made no progress, is suspected, and this agent proposes to go on without it. Whoever can be
heard is connected by agents that live; the smaller part of a split hears too few for a majority, and waits.

An agent that wants to join asks the members that it has links to; each states that it sponsors it. With the consent of
all of them, any member may propose it.
"""

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

from gossamer.peers.protocol.group_config import GroupConfig, refuse_taken
from gossamer.peers.protocol.member import Member
from gossamer.peers.protocol.paxos import Decree, VoteKind
from gossamer.peers.protocol.terms import (
    FINISHED,
    Entry,
    Term,
    check_decision,
    check_keys,
    pack_entries,
    pack_ids,
    pack_members,
    unpack_entries,
    unpack_ids,
)

HEARTBEATS = 4  # signs of life within `evict_after`
GOSSIP_INTERVAL = 0.05  # seconds within which votes that have changed are sent together
REPEAT_INTERVAL = 1.0  # seconds after which all votes are sent again, while something is to be decided
WATCH_INTERVAL = 0.25  # seconds between two looks at who is missing
FIRST_PROPOSAL, PROPOSAL_INTERVAL, MAX_PROPOSAL_INTERVAL = 0.5, 1.0, 16.0  # seconds, randomised
MAX_FIRST_WAITS = 8  # times FIRST_PROPOSAL, after which all propose at once
TAKEOVER_SILENCE = 10.0  # seconds after which another may take the place of a member with its number and another key
SPONSORING_TIMEOUT = 20.0  # seconds for which a request to join that is not repeated counts


@dataclass
class _Sponsored:
    entry: Entry
    asked_at: float


class Change:
    """Drives one agent's part in the decision of what follows a membership."""

    def __init__(
        self, term: Term, config: GroupConfig, neighbours: Sequence[int], decree: Decree, member: Member
    ) -> None:
        """`neighbours` are ids."""
        agent = config.agent
        self.term, self.agent, self.neighbours, self.decree, self._member = term, agent, neighbours, decree, member
        self._limit, self._is_same = config.evict_after or math.inf, config.is_same
        self._number = term.ids.index(agent)
        self._random = random.Random(f"{term.name} {agent} {member.config.incarnation}")
        now = member.waiting_since
        self._alive_at = dict.fromkeys(range(len(term.ids)), now)
        self.suspects: set[int] = set()  # numbers of the members that seem to be gone
        self._sponsored: dict[int, _Sponsored] = {}
        self._signs = self._sponsorings = self._proposals = 0
        self._watch_at = self._beat_at = self._propose_at = self._repeat_at = now
        self._flush_at = math.inf  # when votes that have changed are sent

    @property
    def wake_at(self) -> float:
        return min(self._watch_at, self._flush_at)

    @property
    def split(self) -> bool:
        """Return whether too few members can be heard to decide anything."""
        return len(self.term.ids) - len(self.suspects) < self.decree.majority

    def hears(self, agent: int, now: float) -> bool:
        """Return whether there has been a sign of life of a member lately."""
        return now < self._alive_at[self.term.ids.index(agent)] + TAKEOVER_SILENCE

    def check_takeover(self, entry: Entry, now: float) -> None:
        """Refuse to support an agent in the place of a member that has another key, unless this agent is a neighbour of
        that member and has heard nothing of it for a while."""
        member = self.term.find(entry.agent)
        if member is None or self._is_same(member, entry):
            return
        if entry.agent not in self.neighbours or self.hears(entry.agent, now):
            raise refuse_taken(entry.agent)

    def see(self, number: int, now: float) -> None:
        """Note a sign of life of a member."""
        self._alive_at[number] = now

    def leave(self) -> None:
        """Ask the others to go on without this agent."""
        if (VoteKind.LEAVING, self._number) not in self.decree.votes:
            self.decree.state(VoteKind.LEAVING, 1)

    def sponsor(self, entry: Entry, now: float) -> None:
        """Support an agent that asks to join over a link to this one."""
        before = self._sponsored.get(entry.agent)
        self._sponsored[entry.agent] = _Sponsored(entry, now)
        if before is None or before.entry != entry:
            self._state_sponsored()

    def receive(self, votes: Sequence[bytes], now: float) -> None:
        for vote in self.decree.receive(votes):
            self._alive_at[vote.agent] = now

    def tick(self, now: float) -> None:
        """Look around and propose what should follow, if it is time."""
        if now >= self._watch_at:
            self._watch_at = now + WATCH_INTERVAL
            self._watch(now)

    def take_votes(self, now: float) -> tuple[bytes, ...]:
        """The votes that are to be sent to all neighbours now: those that have changed, a little while after."""
        if self.decree.changed and self._flush_at == math.inf:
            self._flush_at = now + GOSSIP_INTERVAL
        if now < self._flush_at:
            return ()
        self._flush_at = math.inf
        return self.decree.take_changes()

    def _watch(self, now: float) -> None:
        """Find who is missing or wants to join, and propose what should follow; repeat what has been voted."""
        stalled = now - self._member.waiting_since if self._member.waiting_for else 0.0
        self._expire(now)
        if now >= self._beat_at and (stalled > self._limit / HEARTBEATS or self._leavers or self._find_joiners()):
            self._beat_at = now + min(self._limit / HEARTBEATS, REPEAT_INTERVAL)
            self._signs += 1
            links = pack_ids({self.agent, *self.neighbours})
            self.decree.state(VoteKind.HEARTBEAT, (self._member.epoch << 24) + self._signs, links)
        known = self._member.statements.restorable  # one that has never been there is waited for
        begun = self.term.number > 0 or len(self._member.store.steps()) > 1
        self.suspects = {
            number
            for number, at in self._alive_at.items()
            if number != self._number and min(stalled, now - at) > self._limit and (number in known or begun)
        }
        wanted = self._find_wanted()
        if wanted is None:
            self._proposals = 0
            first = min(self._number, MAX_FIRST_WAITS) + self._draw()  # one after the other, if all want the same
            self._propose_at = now + FIRST_PROPOSAL * first
        elif now >= self._propose_at:
            interval = min(PROPOSAL_INTERVAL * 2.0**self._proposals, MAX_PROPOSAL_INTERVAL)
            self._proposals += 1
            self._propose_at = now + (1 + self._draw()) * interval
            self.decree.propose(wanted)
        if self.decree.votes and now >= self._repeat_at:
            self._repeat_at = now + REPEAT_INTERVAL
            self.decree.changed.update(self.decree.votes)

    def _draw(self) -> float:
        """A random number from 0 to 1: of agents that want to propose, one does so first."""
        return self._random.random()

    def _expire(self, now: float) -> None:
        """Give up agents that have not asked again."""
        stale = [one for one, found in self._sponsored.items() if now > found.asked_at + SPONSORING_TIMEOUT]
        for one in stale:
            del self._sponsored[one]
        if stale:
            self._state_sponsored()

    def _state_sponsored(self) -> None:
        self._sponsorings += 1
        entries = pack_entries(one.entry for one in self._sponsored.values())
        self.decree.state(VoteKind.SPONSORED, (self._member.epoch << 24) + self._sponsorings, entries)

    def _stated(self, kind: VoteKind) -> dict[int, bytes]:
        """Statements of members, by their numbers."""
        return {agent: vote.value for (found, agent), vote in self.decree.votes.items() if found == kind}

    @property
    def _leavers(self) -> set[int]:
        """Numbers of the agents that want to leave."""
        return set(self._stated(VoteKind.LEAVING))

    def _find_joiners(self) -> list[Entry]:
        """Agents whose joining all members sponsor that they have links to, if these are there."""
        sponsored = {
            self.term.ids[number]: set(unpack_entries(value))
            for number, value in self._stated(VoteKind.SPONSORED).items()
        }
        present = {z for number, z in enumerate(self.term.ids) if number not in self.suspects | self._leavers}
        found: dict[int, Entry] = {}
        for entry in sorted(set().union(*sponsored.values()) - set(self.term.entries)):
            named = set(entry.profile.links if entry.profile else ()) & present - {entry.agent}
            if named and all(entry in sponsored.get(z, ()) for z in named):
                found[entry.agent] = entry
        return list(found.values())

    def _find_wanted(self) -> bytes | None:
        """The decision that this agent wants, if any."""
        if self._member.all_done:
            return FINISHED
        for leavers in (self._leavers, set[int]()):  # who leaves stays as long as the others need its links
            for joiners in (self._find_joiners(), list[Entry]()):
                following = self._list_following(self.suspects | leavers, joiners)
                if following not in ((), self.term.entries) and not self.split and self._are_connected(following):
                    return pack_members(following)
        return None

    def _list_following(self, gone: set[int], joiners: Sequence[Entry]) -> tuple[Entry, ...]:
        """The members without those that are gone, by their numbers, and with others; none without one that stays."""
        replaced = {entry.agent for entry in joiners}
        staying = [
            entry
            for number, entry in enumerate(self.term.entries)
            if number not in gone and entry.agent not in replaced
        ]
        return tuple(sorted([*staying, *joiners])) if staying else ()

    def _are_connected(self, following: Sequence[Entry]) -> bool:
        """Return whether links join these agents, as far as signs of life and profiles show."""
        links = {
            self.term.ids[number]: set(unpack_ids(value)) for number, value in self._stated(VoteKind.HEARTBEAT).items()
        }
        for entry in following:
            if entry not in self.term.entries and entry.profile:
                links[entry.agent] = set(entry.profile.links)
                for z in entry.profile.links:
                    links.setdefault(z, set()).add(entry.agent)
        ids = {entry.agent for entry in following}
        reached, new = set[int](), {min(ids)}
        while new:
            reached |= new
            new = set[int]().union(*(links.get(z, set()) for z in new)) & ids - reached
        return reached == ids


def check_vote(kind: VoteKind, value: bytes, term: Term, encrypted: bool = False) -> None:
    """Refuse what a vote of a kind cannot carry."""
    if kind == VoteKind.HEARTBEAT:
        unpack_ids(value)
    elif kind == VoteKind.SPONSORED:
        check_keys(unpack_entries(value), encrypted)
    else:
        check_decision(value, term, encrypted)
