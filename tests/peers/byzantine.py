"""A Byzantine agent: whoever has its key sends its neighbours messages that it would never send, or changes its own.

A lie is made from what the agent knows at that moment: its neighbours' positions, the statements that have passed it.
"""

from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from random import Random
from typing import Any

import msgpack
import torch
from peers.frames import is_frame
from peers.network import RUN, Network, keyring

from gossamer.peers.protocol.magnitudes import GROWTH_FLOOR, GROWTH_LIMIT, MAGNITUDE_LIMIT
from gossamer.peers.protocol.member import Member
from gossamer.peers.protocol.statements import Statement, sign_done, sign_restorable
from gossamer.peers.protocol.wire import DTYPES, HEADER, Frame, Status, decode, encode, read_payload

LASTS = 3.0  # seconds from the beginning in which lies are sent
FLOOD = 340  # statuses a second
BROKEN = 255  # a byte of no box, and of numbers that are not finite


class Lie(StrEnum):
    HUGE = "a number beyond the bound"
    JUMP = "weights far beyond those of before"
    NOT_FINITE = "a number that is not finite"
    IN_PLACE = "huge numbers in place of its own, again and again"
    FORGED_DONE = "that another is done, with its own signature"
    TORN_DONE = "that another is done, with a random signature"
    FORGED_STEPS = "steps that another can restore, with its own signature"
    OWN_DONE = "that it is done, and is not"
    OTHER_STEPS = "other steps that it can restore, as if in another incarnation"
    TWO_STEPS = "other steps that it can restore, in the same incarnation"
    EPOCH = "a new epoch"
    OLD_STATUS = "a status that was sent before"
    OLD_STATEMENTS = "statements of an earlier epoch, in this one"
    KNOWN_STATEMENTS = "statements of this epoch, in the next"
    FLOOD = "hundreds of statuses that ask for everything again"


def read_statements(message: bytes) -> list[bytes]:
    return list(msgpack.unpackb(message[HEADER.size :])["facts"])


@dataclass
class ByzantineAgent:
    """Reads what its agent sends and receives; sends lies at times that a seed decides."""

    network: Network
    agent: int
    random: Random
    lies: tuple[Lie, ...]
    seen: list[bytes] = field(default_factory=list)  # statuses
    count: Counter[Lie] = field(default_factory=Counter)
    replaces: bool = False

    def __post_init__(self) -> None:
        self.network.overhear = self._follow
        for lie in self.lies:
            when = self.random.uniform(0, LASTS)
            if lie is Lie.FLOOD:
                for number in range(FLOOD):
                    self.network.later(when + number / FLOOD, lambda: self._send_lie(Lie.FLOOD))
            else:
                self.network.later(when, partial(self._send_lie, lie))

    def _follow(self, sender: int, receiver: int, message: bytes) -> bytes:
        if self.agent in (sender, receiver) and not is_frame(message):
            self.seen.append(message)
        if self.replaces and sender == self.agent and is_frame(message):
            return self._spoil(message)
        return message

    def _send_lie(self, lie: Lie, tries: int = 30) -> None:
        """Send a lie, or try again a little later if it cannot be made now."""
        victim = self.network.members.get(self.random.choice(self.network.neighbours[self.agent]))
        if lie is Lie.IN_PLACE:
            self.replaces = True
            self.count[lie] += 1
        elif victim is not None and (message := self._make_message(lie, victim)) is not None:
            self.network.deliver(self.agent, victim.membership.agent, message)
            self.count[lie] += 1
        elif tries:
            self.network.later(self.network.now + 0.01, lambda: self._send_lie(lie, tries - 1))

    def _make_message(self, lie: Lie, victim: Member) -> bytes | None:
        if lie in (Lie.HUGE, Lie.JUMP, Lie.NOT_FINITE):
            return self._frame(lie, victim)
        if lie is Lie.OLD_STATUS:
            return self.random.choice(self.seen) if self.seen else None
        if lie is Lie.KNOWN_STATEMENTS:
            return encode(Status(self.agent, victim.epoch + 1, victim.statements.contents, (0, 0)), RUN)
        epoch = victim.epoch + (self.random.randrange(1, 5) if lie is Lie.EPOCH else 0)
        statements = self._make_statements(lie, victim, epoch)
        own = sign_restorable(RUN, keyring(self.agent), self.agent, epoch, *self._own_statement(victim, epoch))
        about = {one.agent for one in statements if one.epoch is not None}
        contents = [one.content for one in statements] + ([] if self.agent in about else [own.content])
        if lie is Lie.OLD_STATEMENTS:
            known = victim.statements.contents
            old = [one for message in self.seen for one in read_statements(message) if one not in known]
            contents += [self.random.choice(old)] if old else []
        return encode(Status(self.agent, epoch, tuple(contents), (0, 0)), RUN)

    def _own_statement(self, victim: Member, epoch: int) -> tuple[int, tuple[int, ...]]:
        """The incarnation and the steps that the agent has stated in this epoch, or would state."""
        known = victim.statements.restorable.get(self.agent)
        if known is not None and known.epoch == epoch:
            return known.incarnation, known.steps
        honest = self.network.members.get(self.agent)
        return (honest.config.incarnation, honest.statements.restorable[self.agent].steps) if honest else (1, (0,))

    def _make_statements(self, lie: Lie, victim: Member, epoch: int) -> list[Statement]:
        mine, other = keyring(self.agent), self.random.randrange(victim.membership.num_agents)
        other = (self.agent + 1) % victim.membership.num_agents if other == self.agent else other
        incarnation, _ = self._own_statement(victim, epoch)
        steps = (0, *sorted(self.random.sample(range(1, 8), self.random.randrange(3))))
        match lie:
            case Lie.FORGED_DONE:
                return [sign_done(RUN, mine, other)]
            case Lie.TORN_DONE:
                whole = sign_done(RUN, mine, other).content
                return [Statement(other, whole[:-64] + self.random.randbytes(64))]
            case Lie.FORGED_STEPS:
                return [sign_restorable(RUN, mine, other, epoch, self.random.randrange(99), steps)]
            case Lie.OWN_DONE:
                return [sign_done(RUN, mine, self.agent)]
            case Lie.OTHER_STEPS:
                return [sign_restorable(RUN, mine, self.agent, epoch, incarnation + 10**9, steps)]
            case Lie.TWO_STEPS:
                return [sign_restorable(RUN, mine, self.agent, epoch, incarnation, steps)]
        return []

    def _frame(self, lie: Lie, victim: Member) -> bytes | None:
        """A frame that the victim waits for or will soon, with one number that no honest agent has."""
        exchanges = victim.exchanges
        if not exchanges.running:
            return None
        now, slot = exchanges.position
        positions = [(now + ahead, other) for ahead in (0, 1) for other in range(12) if ahead or other >= slot]
        planned = [
            (one, what) for one in positions if (what := victim._expectations(one)) and self.agent in what.shapes
        ]
        if lie is Lie.JUMP:  # which the first consensus of an epoch does not know
            known = exchanges._bounds._received
            planned = [
                (one, what) for one, what in planned if what.phase == "consensus" and (what.index, self.agent) in known
            ]
        if not planned:
            return None
        position, what = self.random.choice(planned)
        rows = torch.zeros(what.shapes[self.agent], dtype=what.dtype or victim.config.dtype)
        if not rows.numel():
            return None
        if rows.dtype == torch.uint8:  # rows and boxes of a relayed exchange
            rows.fill_(BROKEN)
        else:
            rows.view(-1)[self.random.randrange(rows.numel())] = self._number(lie)
        return encode(Frame(self.agent, victim.epoch, position, what.plan, what.phase, what.index, rows), RUN)

    def _number(self, lie: Lie) -> float:
        if lie is Lie.NOT_FINITE:
            return self.random.choice([float("nan"), float("inf"), -float("inf")])
        low, high = 1.01 * MAGNITUDE_LIMIT, 1e300
        if lie is Lie.JUMP:
            low, high = 1.01 * GROWTH_LIMIT * GROWTH_FLOOR, MAGNITUDE_LIMIT
        return float(self.random.choice([-1, 1]) * low * (high / low) ** self.random.random())

    def _spoil(self, message: bytes) -> bytes:
        header: Any = decode(message, RUN, self.agent)
        rows = read_payload(header, message)[0].clone()
        if not rows.numel():
            return message
        if header.dtype == torch.uint8:
            rows.fill_(BROKEN)
        elif header.dtype in DTYPES[:2]:
            rows.view(-1)[0] = self._number(Lie.HUGE)
        else:
            return message
        what = header.position, header.plan, header.phase, header.index
        return encode(Frame(self.agent, header.epoch, *what, rows), RUN)
