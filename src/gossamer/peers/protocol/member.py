"""One agent's side of the protocol between neighbours, without I/O or a clock: bytes in, bytes out, time given.

Training. Every exchange of Algorithm 1 has a position (step, slot), the same for all agents. A frame goes out when its
exchange begins and is kept until the neighbour has shown that it has left the step; a neighbour that misses one says in
its status what it waits for and is sent it again. So a lost message costs time only.

Epochs. An agent that starts has lost what it had received, so it opens a new epoch: all agents stop, tell which steps
they can restore, pass on what they are told, and when an agent knows the answer of all m, it goes back to the latest
step that everyone can restore. A message of another epoch is told by its number. A first start, a restart of one agent
and of all are this one rule.

The end. An agent is done when its result is on its disk, whatever the epoch; that all are done is passed on like the
steps. Who knows it leaves as soon as its neighbours know it too, or after a while without them.

Trust. Of another agent only what it has signed itself is believed (facts.py), and numbers only within bounds that every
honest agent keeps (magnitudes.py). How often something is sent again does not depend on how often it is asked for
(kept.py). A run goes on from a state that was within the bounds: a diverged one is not kept, and the checkpoint before
it, which may have led there, is given up.
"""

from collections import Counter
from collections.abc import Callable
from functools import partial

from gossamer.errors import DivergedError, GossamerError
from gossamer.peers.protocol import wire
from gossamer.peers.protocol.config import ProtocolConfig, Store
from gossamer.peers.protocol.exchanges import Exchanges, Program, Schedule
from gossamer.peers.protocol.facts import Fact, Facts, Heard, largest_facts
from gossamer.peers.protocol.resending import ANSWERS, Allowance
from gossamer.peers.protocol.wire import Announced, Bytes, Position, RefusedError, Status

PATIENCE = (1.0, 10.0)  # seconds to wait before asking again: the least, and the most; TCP seldom loses anything
GRACE = 30.0  # seconds that an agent stays for neighbours that have not said that they know that all are done
SILENCE = 120.0  # seconds after which an agent that is done leaves if it hears of nobody
LEAP = 1 << 20  # epochs that one message can skip
ASKS = 8  # times that a message is asked for after one that was impossible, before the sender is given up


class Member:
    """Drives one agent's program with its neighbours' messages, and sends its own by `send`."""

    def __init__(
        self,
        config: ProtocolConfig,
        store: Store,
        begin: Callable[[int], Program],
        schedule: Schedule,
        send: Callable[[int, bytes], None],
        now: float = 0.0,
        on_refused: Callable[[int, RefusedError], None] = lambda sender, refused: None,
    ) -> None:
        """`begin` starts the program at a restorable step; `schedule` tells what a position expects."""
        self.config, self.membership, self.store = config, config.membership, store
        self._begin, self._schedule, self._send, self._on_refused = begin, schedule, send, on_refused
        self._longest = longest_status(config)
        self.refused: Counter[str] = Counter()
        self.sent_bytes: Counter[str] = Counter()  # of payloads, by phase, without what is sent again
        self.facts = Facts(config)
        if store.is_done():
            self.facts.finish()
        self._remember_all_done()
        most = max(ANSWERS[1], 2 * self.membership.num_agents)
        self._answers, self._openings = (
            {z: Allowance(now, most) for z in self.membership.neighbours} for _ in range(2)
        )
        self._settled: set[int] = set()  # neighbours that know that all are done
        self._pace = 0.0  # how long the longest of the last exchanges took
        self._heard = now  # from any neighbour
        self.waiting_since, self._asked = now, 0
        self.wake_at = now  # when to call `tick`
        self._open_epoch(store.epoch() + 1, now)

    @property
    def finished(self) -> bool:
        """Whether this agent's result is on its disk."""
        return self.membership.agent in self.facts.done

    @property
    def all_done(self) -> bool:
        """Whether every agent has finished, as far as is known here."""
        return len(self.facts.done) == self.membership.num_agents

    @property
    def position(self) -> Position:
        """The exchange, (step, slot), that the agent's program waits in."""
        return self.exchanges.position

    @property
    def waiting_for(self) -> tuple[int, ...]:
        """The agents without whose message nothing goes on: neighbours in training, any while an epoch opens."""
        if self.exchanges.running:
            return self.exchanges.waiting_for
        known = self.facts.done if self.finished else self.facts.restorable
        return tuple(k for k in range(self.membership.num_agents) if k not in known)

    def leaves(self, now: float) -> bool:
        """Whether this agent's work is over: all are done and the neighbours know it or stay away, or it is done
        itself and has been alone for long."""
        if self.all_done:
            return self._settled >= set(self.membership.neighbours) or now > self.waiting_since + GRACE
        return self.finished and now > self._heard + SILENCE

    def receive(self, sender: int, arrived: Bytes, now: float) -> None:
        """A neighbour's message; one that does not belong is counted and forgotten."""
        try:
            message = wire.decode(arrived, self.membership.run, sender, self._longest)
            self._heard = now
            if isinstance(message, Status):
                self._on_status(message, now)
            else:
                self._on_frame(message, arrived, now)
        except RefusedError as refused:
            self._refuse(sender, refused)

    def _remember_all_done(self) -> None:
        try:
            self.facts.add(self.facts.read(self.store.all_done(), 0, 0))
        except RefusedError as refused:
            raise GossamerError(
                f"what agent {self.membership.agent} keeps of the others' ends is not theirs ({refused}): its folder "
                "belongs to other keys; move it away"
            ) from None

    def _refuse(self, sender: int, refused: RefusedError) -> None:
        self.refused[refused.reason] += 1
        self._on_refused(sender, refused)

    def tick(self, now: float) -> None:
        """Ask again what has not come; give a neighbour up that sends only what is impossible."""
        if now < self.wake_at:
            return
        self._give_up_liars(now)
        for neighbour in sorted(self.exchanges.waiting_for or self.membership.neighbours):
            self._tell(neighbour)
        self._asked += 1
        self.wake_at = now + self._patience()

    def _give_up_liars(self, now: float) -> None:
        for sender in self.exchanges.waiting_for if self._asked >= ASKS else ():
            refused = self.exchanges.impossible(sender)
            if refused is not None:
                raise GossamerError(
                    f"agent {sender} has sent agent {self.membership.agent} what no honest agent sends ({refused}) at "
                    f"step {self.position[0]}, and nothing else for {now - self.waiting_since:.0f} s; find out what "
                    f"agent {sender} runs, and start again"
                )

    def _open_epoch(self, epoch: int, now: float) -> None:
        self.store.set_epoch(epoch)  # before anyone hears of it: an agent never says two things in one epoch
        self.epoch = epoch
        self.facts.open_epoch(epoch, self.store.steps())
        self.exchanges = Exchanges(self.config, epoch, self._schedule, self._send, self._refuse, self.sent_bytes)
        self._ended = self.all_done  # whether the program of this epoch has run; when all are done, none is needed
        self._turned(now)
        self._tell_all()
        self._maybe_train(now)

    def _on_status(self, status: Status, now: float) -> None:
        heard = self._read(status)
        mine = heard.restorable.get(self.membership.agent)
        if self.all_done:
            heard = Heard(done=heard.done)  # who comes late is told, and joined no more
        elif status.epoch > self.epoch:
            # If this agent has spoken there already, it was in an earlier life, and its disk forgot the epoch.
            self._follow(status.sender, status.epoch + (mine is not None), now)
        elif status.epoch == self.epoch and (self._contradicts(status.sender, heard) or self._is_old(mine)):
            self._follow(status.sender, self.epoch + 1, now)
        same, facts = status.epoch == self.epoch, self.facts
        known = (len(facts.restorable), len(facts.done))
        facts.add(heard if same else Heard(done=heard.done))
        if len(heard.done) == self.membership.num_agents:
            self._settled.add(status.sender)
        behind = status.epoch < self.epoch or len(heard.restorable) < known[0]
        ahead = status.sender in heard.done
        if (len(facts.restorable), len(facts.done)) != known:
            if len(facts.done) != known[1]:
                self._turned(now)
            self._tell_all()
        elif len(heard.done) < known[1] or (behind and not self.all_done) or (ahead and not self.finished):
            self._answer(status.sender, now)  # to one that is ahead, lest it think that it is alone and leave
        self._maybe_train(now)
        if same and status.waiting is not None:
            for message in self.exchanges.kept.again(status.sender, status.waiting, now):
                self._send(status.sender, message)

    def _follow(self, sender: int, epoch: int, now: float) -> None:
        """Open an epoch on a neighbour's word, which costs writing to the disk: not more often than is allowed."""
        if not self._openings[sender].take(now):
            raise RefusedError("too often", "new epochs")
        self._open_epoch(epoch, now)

    def _read(self, status: Status) -> Heard:
        """The facts of a status. Refuse what no agent of this run would say, before anything is done with it."""
        if status.epoch > self.epoch + LEAP:
            raise RefusedError("malformed", "an epoch far away")
        heard = self.facts.read(status.facts, status.epoch, self.epoch)
        if status.epoch >= self.epoch and status.sender not in heard.restorable:
            raise RefusedError("signature", f"nothing that agent {status.sender} states of itself in this epoch")
        if self.membership.agent in heard.done and not self.store.is_done():
            raise GossamerError(
                f"agent {self.membership.agent} has stated that it has finished, but its folder holds no result. "
                "Put it back, or let all agents start anew from fresh shards"
            )
        return heard

    def _is_old(self, mine: Fact | None) -> bool:
        """Whether a statement of this agent is one of an earlier life in the same epoch, which its disk forgot."""
        return mine is not None and mine.content != self.facts.restorable[self.membership.agent].content

    def _contradicts(self, sender: int, heard: Heard) -> bool:
        """Whether an agent has stated two things in this epoch. One that has lost its disk may, in two lives."""
        found = self.facts.contradicted(heard.restorable)
        if found is None:
            return False
        known = self.facts.restorable[found.agent]
        self._refuse(sender, RefusedError("contradiction", f"agent {found.agent} has stated two things in this epoch"))
        if found.life == known.life and self.config.signatures.size:
            raise GossamerError(
                f"agent {found.agent} has signed two different statements in epoch {self.epoch}, that it can restore "
                f"the steps {list(known.steps)} and {list(found.steps)}; find out what agent {found.agent} runs, and "
                "start again"
            )
        return True

    def _maybe_train(self, now: float) -> None:
        facts = self.facts.restorable
        if not self.exchanges.running and not self._ended and len(facts) == self.membership.num_agents:
            step = max(set.intersection(*(set(fact.steps) for fact in facts.values())))
            self._go_on(lambda: self.exchanges.begin(self._begin(step), step), now)
            self._advance_if_ready(now)

    def _on_frame(self, frame: Announced, whole: Bytes, now: float) -> None:
        if frame.epoch > self.epoch:
            self._answer(frame.sender, now)  # whoever is behind is told the epoch
        if frame.epoch != self.epoch:
            raise RefusedError("old" if frame.epoch < self.epoch else "early", "epoch")
        if not self.exchanges.running:
            raise RefusedError("old" if self.finished else "early", "not training")
        self.exchanges.take(frame, whole)
        self._advance_if_ready(now)

    def _advance_if_ready(self, now: float) -> None:
        """Go through as many exchanges as everything has arrived for."""
        while (inbox := self.exchanges.ready()) is not None:
            taken = now - self.waiting_since
            # A time with a loss in it tells less of the pace; but if all are long, they are the pace.
            self._pace = max(0.95 * self._pace, min(taken, 2 * self._pace + 0.1) if self._asked else taken)
            self._go_on(partial(self.exchanges.advance, inbox), now)

    def _go_on(self, advance: Callable[[], bool], now: float) -> None:
        """To the next exchange, or to the end."""
        self._turned(now)
        try:
            ended = advance()
        except DivergedError as diverged:
            self.store.discard(self.position[0], self.exchanges.begun)  # who starts again goes further back
            raise self.exchanges.explain(diverged) from None
        if ended:
            self.store.set_done()
            self._ended = True
            self.facts.finish()
            self._tell_all()

    def _turned(self, now: float) -> None:
        """Something has changed: waiting begins anew."""
        self.waiting_since, self._asked = now, 0
        self.wake_at = now + self._patience()

    def _patience(self) -> float:
        """How long to wait before asking again: four times the usual, and twice as long with every time."""
        return min(max(PATIENCE[0], 4 * self._pace) * 2.0**self._asked, PATIENCE[1])

    def _tell_all(self) -> None:
        if self.all_done:  # before anyone hears of it: they may leave, and nobody could say it again
            self.store.set_all_done([fact.content for fact in self.facts.done.values()])
        for neighbour in self.membership.neighbours:
            self._tell(neighbour)

    def _answer(self, neighbour: int, now: float) -> None:
        """Tell a neighbour that is behind, if it has not been told too often."""
        if self._answers[neighbour].take(now):
            self._tell(neighbour)
        else:
            self._refuse(neighbour, RefusedError("too often", "more statuses than are answered"))

    def _tell(self, neighbour: int) -> None:
        waiting = self.position if neighbour in self.exchanges.waiting_for else None
        status = Status(self.membership.agent, self.epoch, self.facts.contents, waiting)
        self._send(neighbour, wire.encode(status, self.membership.run))


def longest_status(config: ProtocolConfig) -> int:
    """Bytes of the longest status of a run."""
    return wire.largest_status(config.membership.num_agents, largest_facts(config))
