"""Signed statements of agents about themselves: the steps that one can restore in an epoch, and that it is done.

A statement is a few bytes followed by the signature of the agent that it is about. A status carries all that its sender
knows, so that statements spread through the network by gossip. An agent that passes one on cannot change it; the bytes
that are signed name the run and the epoch, so that a replayed statement is recognised. Each is verified once: one that
is known already is compared by its bytes.
"""

import hashlib
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise

from gossamer.errors import GossamerError
from gossamer.peers.protocol.config import ProtocolConfig
from gossamer.peers.protocol.signatures import Signatures
from gossamer.peers.protocol.wire import RefusedError, digest_run, max_status_length

DONE, RESTORABLE = 0, 1  # kinds of statements
SUBJECT = struct.Struct("<BI")  # kind, and the agent that the statement is about
EPOCH = struct.Struct("<QQ")  # of restorable steps: the epoch, and the agent's incarnation
STEP = struct.Struct("<Q")


@dataclass(frozen=True, slots=True)
class Statement:
    agent: int
    content: bytes  # with the signature, as it is passed on
    epoch: int | None = None  # of restorable steps; None: the agent is done, whatever the epoch
    incarnation: int = 0
    steps: tuple[int, ...] = ()


@dataclass(frozen=True)
class VerifiedStatements:
    """The statements of one status, by agent."""

    restorable: dict[int, Statement] = field(default_factory=dict)
    done: dict[int, Statement] = field(default_factory=dict)


def sign_restorable(
    run: str, signatures: Signatures, agent: int, epoch: int, incarnation: int, steps: Iterable[int]
) -> Statement:
    """An agent's statement of the steps that it can restore in an epoch."""
    chosen = tuple(steps)
    body = SUBJECT.pack(RESTORABLE, agent) + EPOCH.pack(epoch, incarnation) + b"".join(map(STEP.pack, chosen))
    return Statement(agent, body + signatures.sign(bind_to_run(run, body)), epoch, incarnation, chosen)


def sign_done(run: str, signatures: Signatures, agent: int) -> Statement:
    """An agent's statement that its result is on its disk."""
    body = SUBJECT.pack(DONE, agent)
    return Statement(agent, body + signatures.sign(bind_to_run(run, body)))


class StatementTable:
    """The statements that an agent knows: of the current epoch about restorable steps, and of any about being done."""

    def __init__(self, config: ProtocolConfig) -> None:
        self._config, self._membership = config, config.membership
        self.restorable: dict[int, Statement] = {}
        self.done: dict[int, Statement] = {}
        self.contents: tuple[bytes, ...] = ()  # to pass on

    def open_epoch(self, epoch: int, steps: Iterable[int]) -> None:
        """Forget the steps of the last epoch, and state this agent's own."""
        config, agent = self._config, self._membership.agent
        own = sign_restorable(self._membership.run, config.signatures, agent, epoch, config.incarnation, steps)
        self.restorable = {agent: own}
        self._collect_contents()

    def add_own_done(self) -> None:
        """State that this agent is done."""
        agent = self._membership.agent
        own = sign_done(self._membership.run, self._config.signatures, agent)
        self.add(VerifiedStatements(done={agent: own}))

    def restore_done(self, contents: Iterable[bytes]) -> None:
        """Take back the statements of all agents that they are done, as they were stored."""
        try:
            self.add(self.verify(contents, 0, 0))  # being done has no epoch
        except RefusedError as refused:
            raise GossamerError(
                f"the folder of agent {self._membership.agent} holds statements that the other agents' keys have not "
                f"signed ({refused}): it is of other keys; move it away"
            ) from None

    def add(self, received: VerifiedStatements) -> None:
        """Add statements; of two about one agent the first stays."""
        self.restorable = {**received.restorable, **self.restorable}
        self.done = {**received.done, **self.done}
        self._collect_contents()

    def verify(self, contents: Iterable[bytes], epoch: int, current: int) -> VerifiedStatements:
        """Verify the statements of a status of an epoch; restorable steps from before the current one are left out."""
        known = {one.content: one for table in (self.restorable, self.done) for one in table.values()}
        verified = VerifiedStatements()
        for content in contents:
            statement = known.get(content) or self._parse(content)
            if statement.epoch not in (None, epoch):  # one that is known may be of the epoch before
                raise RefusedError(
                    "signature", f"agent {statement.agent}'s steps of epoch {statement.epoch} in {epoch}"
                )
            if content not in known:
                if statement.epoch is not None and epoch < current:
                    continue
                self._check_signature(statement)
            table = verified.done if statement.epoch is None else verified.restorable
            if statement.agent in table:
                raise RefusedError("malformed", "two statements of a kind about one agent")
            table[statement.agent] = statement
        return verified

    def drop_own_done(self, received: VerifiedStatements) -> None:
        """Forget that this agent has finished, as its result is lost. One that has joined can join anew."""
        agent = self._membership.agent
        if agent in received.done and agent not in self._config.joined:
            raise GossamerError(
                f"agent {agent} has stated that it has finished, but its folder holds no result. Put it back, or let "
                "all agents start anew from fresh shards"
            )
        received.done.pop(agent, None)

    def name_session(self) -> bytes:
        """Digest of what all agents state in this epoch: no two sessions of an agent have the same, as its incarnation
        is in it."""
        digest = hashlib.blake2b(digest_size=32)
        for agent, one in sorted(self.restorable.items()):
            digest.update(SUBJECT.pack(RESTORABLE, agent) + EPOCH.pack(one.epoch or 0, one.incarnation))
            digest.update(STEP.pack(len(one.steps)) + b"".join(map(STEP.pack, one.steps)))
        return digest.digest()

    def find_common_step(self) -> int | None:
        """The latest step that all agents can restore. One that has joined and can restore none takes over the weights
        of another when the agents plan, and so goes along with every step before; None if the others have trained on
        so long that they have no such step any more but the first."""
        able = {agent: set(one.steps) for agent, one in self.restorable.items() if one.steps}
        common = set.intersection(*able.values()) if able else set()
        if common and len(able) == len(self.restorable):
            return max(common)
        founders = [steps for agent, steps in able.items() if agent not in self._config.joined]
        for steps in (common, set.intersection(*founders) if founders else set()):
            older = {step for step in steps if step < self._config.first}
            if older:
                return None if older == {0} and max(common, default=0) >= self._config.first else max(older)
        return None if max(common, default=0) >= self._config.first else 0

    def find_lost(self) -> tuple[int, ...]:
        """The agents without a checkpoint that keep the others from going on with theirs."""
        complete = len(self.restorable) == self._membership.num_agents
        if not complete or self.find_common_step() is not None:
            return ()
        return tuple(agent for agent, one in sorted(self.restorable.items()) if not one.steps)

    def find_unable(self, step: int) -> tuple[int, ...]:
        """The agents that cannot restore a step."""
        return tuple(agent for agent, one in sorted(self.restorable.items()) if step not in one.steps)

    def contradicts_own(self, received: Mapping[int, Statement]) -> bool:
        """Return whether a statement about this agent differs from its own in the same epoch: it made it before it lost
        its disk."""
        agent = self._membership.agent
        return agent in received and received[agent].content != self.restorable[agent].content

    def find_contradiction(self, received: Mapping[int, Statement]) -> Statement | None:
        """A statement about another agent that differs from the one known in the same epoch."""
        for agent, statement in received.items():
            known = self.restorable.get(agent, statement)
            if agent != self._membership.agent and known.content != statement.content:
                return statement
        return None

    def _parse(self, content: bytes) -> Statement:
        end = len(content) - self._config.signatures.size
        if end < SUBJECT.size:
            raise RefusedError("malformed", "a statement that is cut off")
        kind, agent = SUBJECT.unpack_from(content)
        if agent >= self._membership.num_agents:
            raise RefusedError("malformed", "an agent that does not exist")
        if kind == DONE and end == SUBJECT.size:
            return Statement(agent, content)
        begin = SUBJECT.size + EPOCH.size
        if kind != RESTORABLE or end < begin or (end - begin) % STEP.size:
            raise RefusedError("malformed", "a statement of no kind")
        epoch, incarnation = EPOCH.unpack_from(content, SUBJECT.size)
        steps = tuple(number for (number,) in STEP.iter_unpack(content[begin:end]))
        ascending = all(a < b for a, b in pairwise(steps))
        begins = steps[:1] == (0,) or agent in self._config.joined
        if not ascending or not begins or len(steps) > self._config.keep + 1 or steps[-1:] > (self._config.steps,):
            raise RefusedError("malformed", "steps that nobody can restore")
        return Statement(agent, content, epoch, incarnation, steps)

    def _check_signature(self, statement: Statement) -> None:
        signatures = self._config.signatures
        end = len(statement.content) - signatures.size
        body, signature = statement.content[:end], statement.content[end:]
        if not signatures.verifies(statement.agent, bind_to_run(self._membership.run, body), signature):
            what = "that it is done" if statement.epoch is None else f"its steps of epoch {statement.epoch}"
            raise RefusedError("signature", f"agent {statement.agent} has not signed {what} with the key known here")

    def _collect_contents(self) -> None:
        self.contents = tuple(one.content for table in (self.restorable, self.done) for one in table.values())


def max_status_bytes(config: ProtocolConfig) -> int:
    """Bytes of the longest status of a run: of every agent the steps of all its checkpoints and step 0, and "done"."""
    done = SUBJECT.size + config.signatures.size
    restorable = done + EPOCH.size + STEP.size * (config.keep + 1)
    return max_status_length(config.membership.num_agents, (restorable, done))


def bind_to_run(run: str, body: bytes) -> bytes:
    """The bytes that are signed: a statement of one run and of no other."""
    return b"gossamer" + digest_run(run) + body
