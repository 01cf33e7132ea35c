"""A network in one thread, decided by a seed: delays, reorderings, drops, doubles, partitions, kills and restarts.

Every agent runs the real training step and the real protocol; only sockets, disks and clocks are pretended. What must
hold at every moment is checked at every event.
"""

import heapq
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import numpy as np
import torch
from peers.disks import DamagedDisk, FakeDisk, Kill, Killed, copied
from peers.frames import is_frame
from peers.memberships import make_membership
from peers.memo import Stage, memoise_program, train_and_close
from peers.problems import M, Problem

from gossamer.peers.protocol.boxes import make_boxes, make_seals
from gossamer.peers.protocol.config import ProtocolConfig
from gossamer.peers.protocol.detours import Detours
from gossamer.peers.protocol.member import DEPARTURE_TIMEOUT, ISOLATION_TIMEOUT, Member
from gossamer.peers.protocol.relaying import Relays
from gossamer.peers.protocol.resending import RESEND_INTERVAL
from gossamer.peers.protocol.signatures import UNSIGNED, Keyring, derive_verify_key, make_keyring
from gossamer.peers.protocol.wire import PAYLOAD_OFFSET, RefusedError
from gossamer.peers.shards.shard import checkpoints_to_keep, diameter, max_step_gap

RUN = "run"
DEADLINE = ISOLATION_TIMEOUT + DEPARTURE_TIMEOUT + 50  # seconds
SECRETS = [f"{k}".rjust(40, "0") for k in range(M)]  # of the agents, in Z85


@cache
def keyring(agent: int) -> Keyring:
    return make_keyring(SECRETS[agent], [derive_verify_key(secret) for secret in SECRETS], agent)


SENDING = {
    ("train", "forward"): (Kill.FORWARD, Kill.FORWARD),  # before and after
    ("train", "backward"): (Kill.BACKWARD, Kill.BACKWARD),
    ("train", "consensus"): (Kill.CONSENSUS_UNSENT, Kill.CONSENSUS_SENT),
    ("full", "forward"): (Kill.EVALUATION, Kill.EVALUATION),
    ("full", "scores"): (Kill.MEASURES, Kill.MEASURES),
    ("full", "measures"): (Kill.MEASURES, Kill.MEASURES),
    ("closing", "forward"): (Kill.CLOSING, Kill.CLOSING),
    ("closing", "measures"): (Kill.CLOSING, Kill.CLOSING),
    ("closing", "scores"): (Kill.CLOSING, Kill.CLOSING),
}


@dataclass(frozen=True)
class Faults:
    drop: float = 0.0  # probability that a message is lost
    double: float = 0.0  # that it arrives twice, the second time much later
    delay: float = 0.01  # mean seconds on the way; exponential, so that messages overtake each other
    steady: bool = False  # or always the same
    kills: tuple[tuple[Kill, int], ...] = ()  # where, and at which occasion of all agents' there
    forget: float = 0.0  # probability that the disk is lost with the agent
    power_cut: float | None = None  # when all die at once
    partition: float = 0.0  # seconds during which one link carries nothing
    down: tuple[tuple[int, int], ...] = ()  # links that carry nothing that way, while agents take detours
    damage: float = 0.0  # probability that a checkpoint is damaged when an agent starts


class Network:
    """Agents on one pretended clock."""

    def __init__(self, problem: Problem, faults: Faults, seed: int, memory: dict[bytes, Stage] | None = None) -> None:
        """With a memory of the problem's earlier runs, what was computed from the same bits is not computed again."""
        self.random, self.faults, self.problem, self.memory = random.Random(seed), faults, problem, memory
        self.settings = problem.settings
        self.now, self.count = 0.0, 0
        self.events: list[tuple[float, int, str, Any]] = []
        hosts, links = problem.hosts, problem.links
        self.neighbours = {k: tuple(int(z) for z in np.flatnonzero(links[k])) for k in hosts}
        self.records: dict[int, dict[int, Any]] = {k: {} for k in hosts}
        self.planned = frozenset(faults.kills)
        self.occasions: Counter[Kill] = Counter()  # for an agent to die
        self.killed: Counter[Kill] = Counter()
        self.happened: Counter[str] = Counter()  # other faults
        self.most_held = 0  # messages held for one neighbour, or for later
        self.overhear: Callable[[int, int, bytes], bytes | None] | None = None  # may give another message in its place
        self.sent: dict[tuple[int, int, bytes], tuple[float, int]] = {}  # frames: when first, and how often
        keep = checkpoints_to_keep(diameter(links), self.settings)
        kind = partial(DamagedDisk, damage=faults.damage) if faults.damage else FakeDisk
        self.disks = {k: kind(keep, (copied(h.params), copied(h.state)), self._maybe_die) for k, h in hosts.items()}
        self.members: dict[int, Member] = {}
        self.last: dict[int, Member] = {}
        self.detours: dict[int, Detours] = {}
        self.gone: set[int] = set()
        self.progress: tuple[float, dict[int, Any]] = (0.0, {})  # when it was last made, and where agents stood
        self.isolated = (-1, 0.0)
        self.finals: dict[int, dict[str, torch.Tensor]] = {}
        self.sending: dict[int, tuple[str, str, int]] = {}  # plan, phase, and how many messages are still to go
        self.cut = (self.random.choice([(k, z) for k in hosts for z in self.neighbours[k]]), 0.0, 0.0)
        if faults.partition:
            start = self.random.uniform(0, 0.5)
            self.cut = (self.cut[0], start, start + faults.partition)
        for k in hosts:
            self._at(self.random.uniform(0, 0.05), "start", k)
        if faults.power_cut is not None:
            self._at(faults.power_cut, "power cut", -1)

    def run(self) -> None:
        """Until every agent has left; much pretended time in which nobody gets further is a failure, and so is a flood
        of messages."""
        while len(self.gone) < len(self.problem.hosts):
            self.step()
            assert self.now < self.progress[0] + DEADLINE, f"no progress: {self.describe()}"
            assert self.count < 100_000, f"a flood: {self.describe()}"

    def step(self) -> None:
        """The next event."""
        assert self.events, f"nothing more happens: {self.describe()}"
        self.now, _, kind, what = heapq.heappop(self.events)
        if kind == "call":
            what()
            return
        if kind == "power cut":
            for agent in list(self.members):
                self.kill(agent)
            self.happened[kind] += 1
            return
        agent = what if kind in ("start", "tick") else what[1]
        try:
            self._handle(kind, what, agent)
        except Killed:
            if not self.disks[agent].done and self.random.random() < self.faults.forget:
                self.disks[agent].forget()
                self.happened["disk lost"] += 1
            self.kill(agent)

    def kill(self, agent: int) -> None:
        """End an agent as it is; it is started again a little later."""
        self.members.pop(agent, None)
        self.gone.discard(agent)
        self._at(self.now + self.random.uniform(0.01, 0.3), "start", agent)

    def isolate(self, agent: int, until: float) -> None:
        """Cut an agent off from everyone."""
        self.isolated = (agent, until)

    def deliver(self, sender: int, receiver: int, message: bytes, epoch: int | None = None) -> None:
        """Bring a message now, whoever sent it."""
        self._at(self.now, "message", (sender, receiver, message, epoch))

    def later(self, when: float, call: Callable[[], None]) -> None:
        """Do something at a time."""
        self._at(when, "call", call)

    def describe(self) -> str:
        return "; ".join(
            f"{k}: epoch {m.epoch} at {m.position} waits for {m.waiting_for}, {len(m.statements.done)} done"
            for k, m in sorted(self.members.items())
        )

    def _handle(self, kind: str, what: Any, k: int) -> None:
        if kind == "start":
            self._start(k)
        elif k not in self.members:
            return
        elif kind == "tick":
            called = self.faults.down and self.detours[k].wake_at <= self.now
            if called:
                self.detours[k].tick(self.now)
            if self.members[k].wake_at <= self.now:
                self.members[k].tick(self.now)
            elif not called:
                return
        else:
            self._receive(*what)
        member = self.last[k] = self.members[k]
        self._check_memory(member)
        stands = (member.epoch, member.position, len(member.statements.restorable), len(member.statements.done))
        if self.progress[1].get(k) != stands:
            self.progress[1][k] = stands
            self.progress = (self.now, self.progress[1])
        if member.may_leave(self.now):
            self._maybe_die(Kill.LEAVING)
            self.members.pop(k)
            self.gone.add(k)
            if not member.all_done:  # its exit code makes systemd start it again
                self.happened["left before all had finished"] += 1
                self.kill(k)
        else:
            wake_at = min(member.wake_at, self.detours[k].wake_at) if self.faults.down else member.wake_at
            self._at(max(wake_at, self.now + 1e-4), "tick", k)

    def _start(self, k: int) -> None:
        self.happened["checkpoint damaged"] += self.disks[k].start(self.random)
        config = ProtocolConfig(
            make_membership(k, len(self.problem.hosts), self.neighbours[k], RUN),
            self.settings.torch_dtype,
            self.settings.steps,
            self.disks[k].keep,
            self.count,  # grows with every event
            max_step_gap(self.settings),
            signatures=keyring(k),
        )
        seals = make_seals(keyring(k), k, RUN)

        def over_link(receiver: int, message: bytes) -> None:
            self._sends(k, receiver, message)

        self.detours[k] = Detours(k, M, self.neighbours[k], RUN, seals, over_link, self.now, 1 << 20)
        self.members[k] = Member(
            config,
            self.disks[k],
            lambda step, session, unable: self._program(k, step, session),
            self.problem.schedules[k],
            self.detours[k].send if self.faults.down else over_link,
            self.now,
        )

    def _receive(self, sender: int, k: int, message: bytes, epoch: int | None) -> None:
        """Hand a message over; `epoch` is the one that a frame was sent in."""
        member = self.members[k]
        if is_frame(message):
            self._maybe_die(Kill.RECEIVING)
        elif member.finished:
            self._maybe_die(Kill.DONE_KNOWN)
        elif len(member.statements.restorable) < len(self.problem.hosts):
            self._maybe_die(Kill.OPENING)
        refused, now_in = sum(member.refused.values()), member.epoch
        if self.faults.down:
            try:
                taken = self.detours[k].receive(sender, memoryview(bytearray(message)), self.now)
            except RefusedError as refusal:
                if refusal.reason != "old":  # as messages for a process that has died are
                    raise
                taken = None
            if taken is None:
                return
            sender, message = taken[0], bytes(taken[1])
        member.receive(sender, message, self.now)
        accepted = sum(member.refused.values()) == refused
        assert not (accepted and epoch not in (None, now_in)), f"agent {k} took a frame of epoch {epoch} in {now_in}"

    def _check_repetition(self, sender: int, receiver: int, message: bytes) -> None:
        """However often it is asked for, a frame goes out once, and again once a second at most."""
        frame = (self.members[sender].config.incarnation, receiver, message[:PAYLOAD_OFFSET])
        first, count = self.sent.get(frame, (self.now, 0))
        self.sent[frame] = first, count + 1
        assert count <= 1 + (self.now - first) / RESEND_INTERVAL + 1e-9, (
            f"agent {sender} sent a frame {count + 1} times"
        )

    def _check_memory(self, member: Member) -> None:
        """Messages that are held for a neighbour or for later belong to steps that neighbours can be apart."""
        held = max(len(member.exchanges.inbox), member.exchanges.resend_buffer.largest)
        self.most_held = max(self.most_held, held)
        agent = member.membership.agent
        closing = len(self.problem.schedules[agent].closing)
        (schedule,) = self.problem.schedules[agent].topologies
        in_a_step = len(schedule.full) + max(len(schedule.plain), len(schedule.mixed))
        assert held <= (member.config.max_step_gap + 1) * in_a_step + closing, f"agent {agent} holds {held} messages"

    def _program(self, k: int, step: int, session: bytes) -> Any:
        """The training run; who reads its exchanges learns which messages come next. What is taken from memory does
        not depend on the session: boxes are open there."""
        start = train_and_close if self.memory is None else partial(memoise_program, self.memory)
        boxes = make_boxes(keyring(k) if self.memory is None else UNSIGNED, k, RUN, session)
        exchanges: Any = start(
            self.problem.hosts[k],
            self.settings,
            self.disks[k],
            step,
            lambda found: self.records[k].update({found.step: found.own}),
            self.problem.evaluations[k],
            Relays(self.problem.routes[k], self.settings.torch_dtype, boxes),
        )
        inbox = None
        while True:
            try:
                planned = exchanges.send(inbox)
            except StopIteration:
                break
            plan, _, exchange = planned
            self.sending[k] = (plan, str(exchange.phase), len(exchange.messages))
            inbox = yield planned
        self.finals[k] = copied(self.disks[k].load(self.settings.steps)[0])

    def _sends(self, sender: int, receiver: int, message: bytes) -> None:
        assert receiver in self.neighbours[sender], "a message to someone who is not a neighbour"
        before = after = None
        if is_frame(message):
            plan, phase, left = self.sending[sender]
            before, after = SENDING[plan, phase] if left else (Kill.SENDING_AGAIN, Kill.SENDING_AGAIN)
            self.sending[sender] = (plan, phase, max(0, left - 1))
            self._maybe_die(before)
        epoch = self.members[sender].epoch if is_frame(message) else None
        self._send(sender, receiver, message, epoch)
        if after is not None:
            self._maybe_die(after)

    def _send(self, sender: int, receiver: int, message: bytes, epoch: int | None) -> None:
        if is_frame(message):
            self._check_repetition(sender, receiver, message)
        if self.overhear is not None:
            message = self.overhear(sender, receiver, message) or message
        if self.now < self.isolated[1] and self.isolated[0] in (sender, receiver):
            return
        if (sender, receiver) in self.faults.down:
            return
        link, start, end = self.cut
        if {sender, receiver} == set(link) and start <= self.now < end:
            return
        if self.random.random() < self.faults.drop:
            self.happened["message lost"] += 1
            return
        delay = self.faults.delay if self.faults.steady else self.random.expovariate(1 / self.faults.delay)
        self._at(self.now + delay, "message", (sender, receiver, message, epoch))
        if self.random.random() < self.faults.double:
            self.happened["message doubled"] += 1
            later = self.random.expovariate(0.05 / self.faults.delay)
            self._at(self.now + later, "message", (sender, receiver, message, epoch))

    def _maybe_die(self, where: Kill) -> None:
        self.occasions[where] += 1
        if (where, self.occasions[where]) in self.planned:
            self.killed[where] += 1
            raise Killed(where)

    def _at(self, when: float, kind: str, what: Any) -> None:
        self.count += 1
        heapq.heappush(self.events, (when, self.count, kind, what))
