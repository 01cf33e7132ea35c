"""An agent that lies: someone who has its key sends its neighbours what it would never send, beside it or in its place.

A lie is drawn from what is known to the agent at that moment: its neighbours' positions, the facts that have passed it.
"""

from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum
from random import Random
from typing import Any

import msgpack
import torch
from peers.frames import is_frame
from peers.network import RUN, Network, keyring

from gossamer.peers.protocol.facts import Fact, done_fact, restorable_fact
from gossamer.peers.protocol.magnitudes import FLOOR, JUMP, LARGEST
from gossamer.peers.protocol.member import Member
from gossamer.peers.protocol.wire import DTYPES, HEAD, Frame, Status, decode, encode, payload

LASTS = 3.0  # seconds from the beginning in which lies are told
FLOOD = 340  # statuses a second


class Lie(StrEnum):
    HUGE = "a number beyond the bound"
    JUMP = "weights far beyond those of before"
    NOT_FINITE = "a number that is not finite"
    IN_PLACE = "huge numbers in place of its own, again and again"
    FORGED_DONE = "that another is done, with its own signature"
    TORN_DONE = "that another is done, with a random signature"
    FORGED_STEPS = "steps that another can restore, with its own signature"
    OWN_DONE = "that it is done, and is not"
    OTHER_STEPS = "other steps that it can restore, as if in another life"
    TWO_STEPS = "other steps that it can restore, in the same life"
    EPOCH = "a new epoch"
    OLD_STATUS = "a status that was sent before"
    OLD_FACTS = "facts of an earlier epoch, in this one"
    KNOWN_FACTS = "facts of this epoch, in the next"
    FLOOD = "hundreds of statuses that ask for everything again"


def facts_of(message: bytes) -> list[bytes]:
    return list(msgpack.unpackb(message[HEAD.size :])["facts"])


@dataclass
class Liar:
    """Follows what its agent sends and is sent; tells lies at times that a seed decides."""

    network: Network
    agent: int
    random: Random
    lies: tuple[Lie, ...]
    seen: list[bytes] = field(default_factory=list)  # statuses
    told: Counter[Lie] = field(default_factory=Counter)
    replaces: bool = False

    def __post_init__(self) -> None:
        self.network.overhear = self._follow
        for lie in self.lies:
            when = self.random.uniform(0, LASTS)
            if lie is Lie.FLOOD:
                for number in range(FLOOD):
                    self.network.later(when + number / FLOOD, lambda: self._tell(Lie.FLOOD))
            else:
                self.network.later(when, lambda lie=lie: self._tell(lie))

    def _follow(self, sender: int, receiver: int, message: bytes) -> bytes:
        if self.agent in (sender, receiver) and not is_frame(message):
            self.seen.append(message)
        if self.replaces and sender == self.agent and is_frame(message):
            return self._spoilt(message)
        return message

    def _tell(self, lie: Lie, tries: int = 30) -> None:
        """Tell a lie, or try again a little later if this is no moment for it."""
        victim = self.network.members.get(self.random.choice(self.network.neighbours[self.agent]))
        if lie is Lie.IN_PLACE:
            self.replaces = True
            self.told[lie] += 1
        elif victim is not None and (message := self._made(lie, victim)) is not None:
            self.network.deliver(self.agent, victim.membership.agent, message)
            self.told[lie] += 1
        elif tries:
            self.network.later(self.network.now + 0.01, lambda: self._tell(lie, tries - 1))

    def _made(self, lie: Lie, victim: Member) -> bytes | None:
        if lie in (Lie.HUGE, Lie.JUMP, Lie.NOT_FINITE):
            return self._frame(lie, victim)
        if lie is Lie.OLD_STATUS:
            return self.random.choice(self.seen) if self.seen else None
        if lie is Lie.KNOWN_FACTS:
            return encode(Status(self.agent, victim.epoch + 1, victim.facts.contents, (0, 0)), RUN)
        epoch = victim.epoch + (self.random.randrange(1, 5) if lie is Lie.EPOCH else 0)
        facts = self._facts(lie, victim, epoch)
        own = restorable_fact(RUN, keyring(self.agent), self.agent, epoch, *self._standing(victim, epoch))
        about = {fact.agent for fact in facts if fact.epoch is not None}
        contents = [fact.content for fact in facts] + ([] if self.agent in about else [own.content])
        if lie is Lie.OLD_FACTS:
            old = [fact for message in self.seen for fact in facts_of(message) if fact not in victim.facts.contents]
            contents += [self.random.choice(old)] if old else []
        return encode(Status(self.agent, epoch, tuple(contents), (0, 0)), RUN)

    def _standing(self, victim: Member, epoch: int) -> tuple[int, tuple[int, ...]]:
        """The life and the steps that the agent has stated in this epoch, or would state."""
        known = victim.facts.restorable.get(self.agent)
        if known is not None and known.epoch == epoch:
            return known.life, known.steps
        honest = self.network.members.get(self.agent)
        return (honest.config.incarnation, honest.facts.restorable[self.agent].steps) if honest else (1, (0,))

    def _facts(self, lie: Lie, victim: Member, epoch: int) -> list[Fact]:
        mine, other = keyring(self.agent), self.random.randrange(victim.membership.num_agents)
        other = (self.agent + 1) % victim.membership.num_agents if other == self.agent else other
        life, _ = self._standing(victim, epoch)
        steps = (0, *sorted(self.random.sample(range(1, 8), self.random.randrange(3))))
        match lie:
            case Lie.FORGED_DONE:
                return [done_fact(RUN, mine, other)]
            case Lie.TORN_DONE:
                whole = done_fact(RUN, mine, other).content
                return [Fact(other, whole[:-64] + self.random.randbytes(64))]
            case Lie.FORGED_STEPS:
                return [restorable_fact(RUN, mine, other, epoch, self.random.randrange(99), steps)]
            case Lie.OWN_DONE:
                return [done_fact(RUN, mine, self.agent)]
            case Lie.OTHER_STEPS:
                return [restorable_fact(RUN, mine, self.agent, epoch, life + 10**9, steps)]
            case Lie.TWO_STEPS:
                return [restorable_fact(RUN, mine, self.agent, epoch, life, steps)]
        return []

    def _frame(self, lie: Lie, victim: Member) -> bytes | None:
        """What the victim waits for or will soon, with one number that no honest agent has."""
        exchanges = victim.exchanges
        if not exchanges.running:
            return None
        now, slot = exchanges.position
        places = [(now + ahead, other) for ahead in (0, 1) for other in range(12) if ahead or other >= slot]
        planned = [(place, what) for place in places if (what := victim._schedule(place)) and self.agent in what[4]]
        if lie is Lie.JUMP:  # which the first consensus of an epoch does not know
            known = exchanges._magnitudes._received
            planned = [one for one in planned if one[1][1] == "consensus" and (one[1][2], self.agent) in known]
        if not planned:
            return None
        position, (plan, phase, index, dtype, shapes) = self.random.choice(planned)
        rows = torch.zeros(shapes[self.agent], dtype=dtype or victim.config.dtype)
        if not rows.numel():
            return None
        rows.view(-1)[self.random.randrange(rows.numel())] = self._number(lie)
        return encode(Frame(self.agent, victim.epoch, position, plan, phase, index, rows), RUN)

    def _number(self, lie: Lie) -> float:
        if lie is Lie.NOT_FINITE:
            return self.random.choice([float("nan"), float("inf"), -float("inf")])
        low, high = (1.01 * JUMP * FLOOR, LARGEST) if lie is Lie.JUMP else (1.01 * LARGEST, 1e300)
        return self.random.choice([-1, 1]) * low * (high / low) ** self.random.random()

    def _spoilt(self, message: bytes) -> bytes:
        announced: Any = decode(message, RUN, self.agent)
        rows = payload(announced, message)[0].clone()
        if announced.dtype not in DTYPES[:2] or not rows.numel():
            return message
        rows.view(-1)[0] = self._number(Lie.HUGE)
        what = announced.position, announced.plan, announced.phase, announced.index
        return encode(Frame(self.agent, announced.epoch, *what, rows), RUN)
