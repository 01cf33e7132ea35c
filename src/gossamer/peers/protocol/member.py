"""One agent's side of the protocol between neighbours: a state machine without I/O or a clock.

It is fed messages and the time, and calls `send`; what all must know spreads by gossip.
Training. Algorithm 1 runs in lock step: every exchange has a position (step, number within the step), the same for all
agents. A frame is held in the resend buffer until the neighbour's own messages show that it has left the step. An agent
that waits for a frame sends its neighbour a status with the position that it waits in, and is sent the frame again. So
a lost message costs time and nothing else; a duplicate is refused.

Rollback (Elnozahy, Alvisi, Wang and Johnson 2002, "A survey of rollback-recovery protocols in message-passing
systems"). An agent that starts has lost the messages it had received, so it opens a new recovery epoch (no pass over
the data), with a number that it stores before anyone sees it. All agents that learn of the epoch stop training and
state, signed, which steps they can restore from checkpoints. These statements spread in statuses; an agent that has
those of all m agents rolls back to the latest step that everyone can restore and trains from there. Frames of another
epoch are refused by their number. A first start and a restart of one agent or of all are this one rule.

The end. An agent is done when its result is on disk, in whatever epoch; signed statements of that spread likewise. Who
knows that all are done leaves as soon as its neighbours know it too, or after DEPARTURE_TIMEOUT.

Faulty and hostile neighbours. Of another agent only its own signed statements are used (statements.py), numbers only
within the bounds of every honest agent (magnitudes.py). Retransmissions, replies and new epochs are rate limited
(resending.py). A diverged state is never saved, and the checkpoint before it is removed.
"""

from collections import Counter
from collections.abc import Callable
from functools import partial

from gossamer.errors import DivergedError, GossamerError
from gossamer.peers.protocol import wire
from gossamer.peers.protocol.config import ProtocolConfig, RecoveryStore
from gossamer.peers.protocol.exchanges import EpochExchanges, Expectations, Program
from gossamer.peers.protocol.resending import REPLY_BURST, REPLY_RATE, RequestTimeout, TokenBucket
from gossamer.peers.protocol.statements import StatementTable, VerifiedStatements, max_status_bytes
from gossamer.peers.protocol.wire import Buffer, FrameHeader, Position, RefusedError, Status

DEPARTURE_TIMEOUT = 30.0  # seconds that an agent stays for neighbours that may not know that all are done
ISOLATION_TIMEOUT = 120.0  # seconds without any message after which an agent that is done leaves
MAX_EPOCH_JUMP = 1 << 20  # epochs that one message can skip, so that no neighbour can use the numbers up
MAX_VIOLATION_REQUESTS = 8  # for a message in place of one that violated the bounds, before the run ends


class Member:
    """Drives one agent's program with its neighbours' messages, and sends its own by `send`."""

    def __init__(
        self,
        config: ProtocolConfig,
        store: RecoveryStore,
        begin: Callable[[int, bytes, tuple[int, ...]], Program],
        expectations: Expectations,
        send: Callable[[int, bytes], None],
        now: float = 0.0,
        on_refused: Callable[[int, RefusedError], None] = lambda sender, refused: None,
    ) -> None:
        """`begin` makes the program from a step of a session, given the agents that cannot restore that step."""
        self.config, self.membership, self.store = config, config.membership, store
        self.agent = config.membership.agent
        self._begin, self._expectations, self._send, self.on_refused = begin, expectations, send, on_refused
        self._max_status_bytes = max_status_bytes(config)
        self.refused = Counter[str]()
        self.sent_bytes = Counter[tuple[int, str]]()  # of payloads, by neighbour and kind, each sent once
        self.statements = StatementTable(config)
        if store.is_done():
            self.statements.add_own_done()
        self.statements.restore_done(store.all_done())
        capacity = max(REPLY_BURST, 2 * self.membership.num_agents)
        self._replies, self._new_epochs = (
            {z: TokenBucket(now, REPLY_RATE, capacity) for z in self.membership.neighbours} for _ in range(2)
        )
        self._informed = set[int]()  # neighbours that know that all are done
        self._timeout, self._last_received = RequestTimeout(), now
        self.waiting_since, self._requests, self.wake_at = now, 0, now  # when to call `tick`
        self._open_epoch(store.epoch() + 1, now)

    @property
    def finished(self) -> bool:
        """Return whether this agent's result is on its disk."""
        return self.membership.agent in self.statements.done

    @property
    def all_done(self) -> bool:
        """Return whether every agent has finished, as far as is known here."""
        return len(self.statements.done) == self.membership.num_agents

    @property
    def position(self) -> Position:
        """The exchange that the agent's program waits in."""
        return self.exchanges.position

    @property
    def waiting_for(self) -> tuple[int, ...]:
        """The agents whose messages are missing: neighbours in training, any agent while an epoch opens."""
        if self.exchanges.running:
            return self.exchanges.waiting_for
        known = self.statements.done if self.finished else self.statements.restorable
        missing = tuple(k for k in range(self.membership.num_agents) if k not in known)
        return missing or (() if self._program_ended else self.statements.find_lost())

    @property
    def lost(self) -> bool:
        """Return whether this agent has lost its checkpoints, and the others cannot go on before it joins anew."""
        return not self.exchanges.running and not self._program_ended and self.agent in self.statements.find_lost()

    def may_leave(self, now: float) -> bool:
        """Return whether the process can end: all are done, and the neighbours know it or had time to; or this agent is
        done and has received nothing for ISOLATION_TIMEOUT."""
        if self.all_done:
            return self._informed >= set(self.membership.neighbours) or now > self.waiting_since + DEPARTURE_TIMEOUT
        return self.finished and now > self._last_received + ISOLATION_TIMEOUT

    def receive(self, sender: int, message: Buffer, now: float) -> None:
        """Handle a neighbour's message; one that the protocol does not allow is counted and dropped."""
        try:
            decoded = wire.decode(message, self.membership.run, sender, self._max_status_bytes)
            self._last_received = now
            if isinstance(decoded, Status):
                self._on_status(decoded, now)
            else:
                self._on_frame(decoded, message, now)
        except RefusedError as refused:
            self._refuse(sender, refused)

    def tick(self, now: float) -> None:
        """Request what has not arrived; end the run if a neighbour sends nothing but violations of the bounds."""
        if now < self.wake_at or self._advance_if_complete(now):
            return
        self._check_violations(now)
        for neighbour in sorted(self.exchanges.waiting_for or self.membership.neighbours):
            self._send_status(neighbour)
        self._requests += 1
        self.wake_at = now + self._timeout.after(self._requests)

    def demand(self, now: float) -> None:
        """Begin the next step of a run on demand."""
        self.exchanges.demand()
        self._advance_if_complete(now)

    def _refuse(self, sender: int, refused: RefusedError) -> None:
        self.refused[refused.reason] += 1
        self.on_refused(sender, refused)

    def _check_violations(self, now: float) -> None:
        for sender in self.exchanges.waiting_for if self._requests >= MAX_VIOLATION_REQUESTS else ():
            refused = self.exchanges.find_violation(sender)
            if refused is not None:
                raise GossamerError(
                    f"agent {sender} has sent agent {self.membership.agent} what no honest agent sends ({refused}) at "
                    f"step {self.position[0]}, and nothing else for {now - self.waiting_since:.0f} s; find out what "
                    f"agent {sender} runs, and start again"
                )

    def _open_epoch(self, epoch: int, now: float) -> None:
        self.store.set_epoch(epoch)  # before anyone learns of it: an agent makes one statement in an epoch
        self.epoch = epoch
        self.statements.open_epoch(epoch, self.store.steps())
        expectations, send = self._expectations, self._send
        self.exchanges = EpochExchanges(self.config, epoch, expectations, send, self._refuse, self.sent_bytes)
        self._program_ended = self.all_done  # when all are done, none is needed
        self._reset_timer(now)
        self._broadcast_status()
        self._train_if_agreed(now)

    def _on_status(self, status: Status, now: float) -> None:
        received, table = self._verify(status), self.statements
        if self.all_done:
            received = VerifiedStatements(done=received.done)  # a late agent is informed, and no epoch opens for it
        else:
            self._follow_epoch(status, received, now)
        same_epoch, num_restorable, num_done = status.epoch == self.epoch, len(table.restorable), len(table.done)
        table.add(received if same_epoch else VerifiedStatements(done=received.done))
        if len(received.done) == self.membership.num_agents:
            self._informed.add(status.sender)
        if len(table.done) != num_done:
            self._reset_timer(now)
        if len(table.restorable) != num_restorable or len(table.done) != num_done:
            self._broadcast_status()
        elif self._needs_reply(status, received):
            self._reply(status.sender, now)
        self._train_if_agreed(now)
        if same_epoch and status.waiting is not None:
            for frame in self.exchanges.resend_buffer.due(status.sender, status.waiting, now):
                self._send(status.sender, frame)

    def _needs_reply(self, status: Status, received: VerifiedStatements) -> bool:
        """Return whether the sender lacks statements, or is done before this agent: it would leave as isolated."""
        table = self.statements
        behind = status.epoch < self.epoch or len(received.restorable) < len(table.restorable)
        lacks_statements = len(received.done) < len(table.done) or (behind and not self.all_done)
        return lacks_statements or (status.sender in received.done and not self.finished)

    def _follow_epoch(self, status: Status, received: VerifiedStatements, now: float) -> None:
        """Open the epoch that a status calls for, if any, within a rate limit: each is written to the disk."""
        if status.epoch > self.epoch:
            # An agent makes one statement in an epoch. If it has made one in this, its disk was lost since: skip it.
            epoch = status.epoch + 1 if self.membership.agent in received.restorable else status.epoch
        elif status.epoch == self.epoch and self._contradicts(status.sender, received):
            epoch = self.epoch + 1
        else:
            return
        if not self._new_epochs[status.sender].take(now):
            raise RefusedError("too often", "new epochs")
        self._open_epoch(epoch, now)

    def _verify(self, status: Status) -> VerifiedStatements:
        """The statements of a status. Refuse what no agent of this run would send, before any of it is used."""
        if status.epoch > self.epoch + MAX_EPOCH_JUMP:
            raise RefusedError("malformed", "an epoch far away")
        received = self.statements.verify(status.statements, status.epoch, self.epoch)
        if status.epoch >= self.epoch and status.sender not in received.restorable:
            raise RefusedError("signature", f"no statement of agent {status.sender} about itself in its epoch")
        if not self.store.is_done():
            self.statements.drop_own_done(received)
        return received

    def _contradicts(self, sender: int, received: VerifiedStatements) -> bool:
        """Return whether an agent, maybe this one, has made two statements in this epoch, as after losing its disk."""
        found = self.statements.find_contradiction(received.restorable)
        if found is None:
            return self.statements.contradicts_own(received.restorable)
        known = self.statements.restorable[found.agent]
        self._refuse(sender, RefusedError("contradiction", f"agent {found.agent} has stated two things in this epoch"))
        if found.incarnation == known.incarnation and self.config.signatures.size:  # unsigned ones may be forged
            raise GossamerError(
                f"agent {found.agent} has signed two different statements in epoch {self.epoch}, that it can restore "
                f"the steps {list(known.steps)} and {list(found.steps)}; find out what agent {found.agent} runs, and "
                "start again"
            )
        return True

    def _train_if_agreed(self, now: float) -> None:
        """Begin the program of this epoch once the statements of all agents are known."""
        restorable = self.statements.restorable
        if not self.exchanges.running and not self._program_ended and len(restorable) == self.membership.num_agents:
            step, session = self.statements.find_common_step(), self.statements.name_session()
            if step is None:
                return
            unable = self.statements.find_unable(step)
            self._run(lambda: self.exchanges.begin(self._begin(step, session, unable), step), now)
            self._advance_if_complete(now)

    def _on_frame(self, header: FrameHeader, message: Buffer, now: float) -> None:
        if header.epoch > self.epoch:
            self._reply(header.sender, now)  # which it answers with a status of that epoch
        if header.epoch != self.epoch:
            raise RefusedError("old" if header.epoch < self.epoch else "early", "epoch")
        if not self.exchanges.running:
            raise RefusedError("old" if self.finished else "early", "not training")
        self.exchanges.accept(header, message)
        self._advance_if_complete(now)

    def _advance_if_complete(self, now: float) -> bool:
        """Go through as many exchanges as all messages have arrived for. One without neighbours makes a single step, so
        that messages of others are read between two; return whether another can follow at once."""
        step, alone = self.position[0], not self.membership.neighbours
        while (inbox := self.exchanges.complete_inbox()) is not None:
            if alone and self.position[0] > step:
                return True
            self._timeout.add_exchange(now - self.waiting_since, self._requests)
            self._run(partial(self.exchanges.advance, inbox), now)
        return False

    def _run(self, advance: Callable[[], bool], now: float) -> None:
        """Run the program to its next exchange or to its end."""
        self._reset_timer(now)
        try:
            ended = advance()
        except DivergedError as diverged:
            self.store.discard(self.position[0], self.exchanges.start)  # so that a restart begins before the divergence
            raise self.exchanges.describe_divergence(diverged) from None
        if ended:
            self.store.set_done()
            self._program_ended = True
            self.statements.add_own_done()
            self._broadcast_status()

    def _reset_timer(self, now: float) -> None:
        """Start waiting anew, after progress."""
        self.waiting_since, self._requests = now, 0
        self.wake_at = now + (self._timeout.after(self._requests) if self.membership.neighbours else 0.0)

    def _broadcast_status(self) -> None:
        if self.all_done:  # stored before anyone learns of it: they may leave, and nobody could send it again
            self.store.set_all_done([one.content for one in self.statements.done.values()])
        for neighbour in self.membership.neighbours:
            self._send_status(neighbour)

    def _reply(self, neighbour: int, now: float) -> None:
        """Send a status to a neighbour that is behind, within a rate limit."""
        if self._replies[neighbour].take(now):
            self._send_status(neighbour)
        else:
            self._refuse(neighbour, RefusedError("too often", "more statuses than are answered"))

    def _send_status(self, neighbour: int) -> None:
        waiting = self.position if neighbour in self.exchanges.waiting_for else None
        status = Status(self.agent, self.epoch, self.statements.contents, waiting)
        self._send(neighbour, wire.encode(status, self.membership.run))
