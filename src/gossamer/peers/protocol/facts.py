"""Facts about agents, signed by their subjects and passed on: the steps that one can restore in an epoch, and "done".

A fact is a few bytes, a statement and the signature of the agent that it is about; a status carries those that its
sender knows. Whoever passes a fact on cannot change it, and a fact of another run or epoch is told by its statement.
Each is verified once: what is known already is compared by its bytes.
"""

import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise

from gossamer.peers.protocol.config import ProtocolConfig
from gossamer.peers.protocol.signatures import Signatures
from gossamer.peers.protocol.wire import RefusedError, digest_of

DONE, RESTORABLE = 0, 1
SUBJECT = struct.Struct("<BI")  # the kind of fact, and the agent that it is about
MOMENT = struct.Struct("<QQ")  # of restorable steps: the epoch, and the agent's life
STEP = struct.Struct("<Q")


@dataclass(frozen=True, slots=True)
class Fact:
    agent: int
    content: bytes  # as it is passed on
    epoch: int | None = None  # of restorable steps; None: the agent is done, whatever the epoch
    life: int = 0
    steps: tuple[int, ...] = ()


@dataclass(frozen=True)
class Heard:
    """The facts of one status, verified."""

    restorable: dict[int, Fact] = field(default_factory=dict)
    done: dict[int, Fact] = field(default_factory=dict)


def restorable_fact(run: str, signatures: Signatures, agent: int, epoch: int, life: int, steps: Iterable[int]) -> Fact:
    """An agent's statement of the steps that it can restore in an epoch."""
    chosen = tuple(steps)
    statement = SUBJECT.pack(RESTORABLE, agent) + MOMENT.pack(epoch, life) + b"".join(map(STEP.pack, chosen))
    return Fact(agent, statement + signatures.sign(_signed(run, statement)), epoch, life, chosen)


def done_fact(run: str, signatures: Signatures, agent: int) -> Fact:
    """An agent's statement that its result is on its disk."""
    statement = SUBJECT.pack(DONE, agent)
    return Fact(agent, statement + signatures.sign(_signed(run, statement)))


class Facts:
    """The facts that an agent knows: those of the current epoch, and who is done."""

    def __init__(self, config: ProtocolConfig) -> None:
        self._config = config
        self.restorable: dict[int, Fact] = {}
        self.done: dict[int, Fact] = {}
        self.contents: tuple[bytes, ...] = ()  # to pass on

    def open_epoch(self, epoch: int, steps: Iterable[int]) -> None:
        """Forget the steps of the last epoch, and state one's own."""
        config, agent = self._config, self._config.membership.agent
        own = restorable_fact(config.membership.run, config.signatures, agent, epoch, config.incarnation, steps)
        self.restorable = {agent: own}
        self._gather()

    def finish(self) -> None:
        """State that this agent is done."""
        config, agent = self._config, self._config.membership.agent
        self.add(Heard(done={agent: done_fact(config.membership.run, config.signatures, agent)}))

    def add(self, heard: Heard) -> None:
        """Learn; of two facts about an agent the first stays."""
        self.restorable = {**heard.restorable, **self.restorable}
        self.done = {**heard.done, **self.done}
        self._gather()

    def read(self, contents: Iterable[bytes], epoch: int, now: int) -> Heard:
        """The facts of a status of an epoch, verified; steps of one that is over, before `now`, are left out."""
        known = {fact.content: fact for table in (self.restorable, self.done) for fact in table.values()}
        heard = Heard()
        for content in contents:
            fact = known.get(content) or self._parsed(content)
            if fact.epoch not in (None, epoch):  # one that is known may be of the epoch before
                raise RefusedError("signature", f"agent {fact.agent}'s steps of epoch {fact.epoch} in {epoch}")
            if content not in known:
                if fact.epoch is not None and epoch < now:
                    continue
                self._verify(fact)
            table = heard.done if fact.epoch is None else heard.restorable
            if fact.agent in table:
                raise RefusedError("malformed", "two facts of a kind about one agent")
            table[fact.agent] = fact
        return heard

    def contradicted(self, heard: Mapping[int, Fact]) -> Fact | None:
        """A fact about another agent that says something else than is known of it in the same epoch."""
        for agent, fact in heard.items():
            if agent != self._config.membership.agent and self.restorable.get(agent, fact).content != fact.content:
                return fact
        return None

    def _parsed(self, content: bytes) -> Fact:
        end = len(content) - self._config.signatures.size
        if end < SUBJECT.size:
            raise RefusedError("malformed", "a fact that is cut off")
        kind, agent = SUBJECT.unpack_from(content)
        if agent >= self._config.membership.num_agents:
            raise RefusedError("malformed", "an agent that does not exist")
        if kind == DONE and end == SUBJECT.size:
            return Fact(agent, content)
        begin = SUBJECT.size + MOMENT.size
        if kind != RESTORABLE or end < begin or (end - begin) % STEP.size:
            raise RefusedError("malformed", "a fact of no kind")
        epoch, life = MOMENT.unpack_from(content, SUBJECT.size)
        steps = tuple(number for (number,) in STEP.iter_unpack(content[begin:end]))
        rising = all(a < b for a, b in pairwise(steps))
        if not rising or steps[:1] != (0,) or len(steps) > self._config.keep + 1 or steps[-1] > self._config.steps:
            raise RefusedError("malformed", "steps that nobody can restore")
        return Fact(agent, content, epoch, life, steps)

    def _verify(self, fact: Fact) -> None:
        config, end = self._config, len(fact.content) - self._config.signatures.size
        statement, signature = fact.content[:end], fact.content[end:]
        if not config.signatures.holds(fact.agent, _signed(config.membership.run, statement), signature):
            what = "that it is done" if fact.epoch is None else f"its steps of epoch {fact.epoch}"
            raise RefusedError("signature", f"agent {fact.agent} has not signed {what}")

    def _gather(self) -> None:
        self.contents = tuple(fact.content for table in (self.restorable, self.done) for fact in table.values())


def largest_facts(config: ProtocolConfig) -> tuple[int, int]:
    """Bytes of the longest facts about an agent: the steps of all its checkpoints and step 0, and that it is done."""
    done = SUBJECT.size + config.signatures.size
    return done + MOMENT.size + STEP.size * (config.keep + 1), done


def _signed(run: str, statement: bytes) -> bytes:
    """What is signed: a statement of one run and of no other."""
    return b"gossamer" + digest_of(run) + statement
