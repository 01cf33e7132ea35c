"""Agents that leave, are lost, join and move, on a pretended network: the real protocol with a small program.

Messages are delayed, reordered, lost and doubled; agents die at any point of the protocol and of Paxos, some for good;
the network splits and heals. All of it follows from a seed. The program is a chain of hashes over steps, members and
messages, so that a wrong message, step or membership changes its end. `replay` computes that end from the history.
"""

import heapq
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache, partial
from typing import Any

import torch
from peers.disks import Killed
from peers.memberships import make_membership
from torch import Tensor

from gossamer.agents.exchange import Outbox, Phase
from gossamer.agents.links import Link
from gossamer.peers.protocol.config import ProtocolConfig
from gossamer.peers.protocol.exchanges import ExpectedMessages, PlannedExchange, Program
from gossamer.peers.protocol.group import Group
from gossamer.peers.protocol.group_config import GroupConfig
from gossamer.peers.protocol.member import Member
from gossamer.peers.protocol.paxos import VoteKind
from gossamer.peers.protocol.signatures import Keyring, derive_verify_key, make_keyring
from gossamer.peers.protocol.terms import Entry, Profile, Term, make_entries
from gossamer.peers.protocol.wire import Position
from gossamer.peers.steps import StepCodes

STEPS, EVERY, KEEP = 12, 2, 8
EVICT_AFTER = 4.0  # seconds
NO_WEIGHTS = -1  # what an agent sends that takes over the weights of another
Links = tuple[tuple[int, int], ...]
Base = tuple[int, int] | None  # membership and step of the checkpoint that another membership began from
Bases = dict[int, tuple[Base, tuple[int, ...]]]  # of memberships, with the members that took over others' weights


class Point(StrEnum):
    """Where an agent can die."""

    EPOCH = "around writing its epoch"
    CHECKPOINT = "around writing a checkpoint"
    DONE = "around writing that it is done"
    PROMISE = "around writing a promise"
    ACCEPTED = "around writing an acceptance"
    CERTIFICATE = "around writing a decision"
    PROFILE = "around writing the profile that it joins with"
    SENDING = "while it sends"
    RECEIVING = "before it takes a message in"


@cache
def secret(agent: int) -> str:
    return f"{agent}".rjust(40, "0")


@cache
def sign(agent: int, ids: tuple[int, ...]) -> Keyring:
    number = ids.index(agent) if agent in ids else 0  # who is no member verifies alone
    return make_keyring(secret(ids[number]), [derive_verify_key(secret(z)) for z in ids], number)


@dataclass
class Disk:
    """What survives an agent's death; `dies` may end it before or after a write."""

    dies: Callable[[Point], None]
    numbers: dict[int, int] = field(default_factory=dict)  # recovery epoch of each membership
    done: dict[int, bool] = field(default_factory=dict)
    ends: dict[int, tuple[bytes, ...]] = field(default_factory=dict)
    checkpoints: dict[tuple[int, int], Tensor] = field(default_factory=dict)  # by membership and step
    bases: Bases = field(default_factory=dict)
    ballots: dict[int, dict[int, bytes]] = field(default_factory=dict)
    decided: list[tuple[bytes, ...]] = field(default_factory=list)
    members: list[tuple[Entry, ...] | None] = field(default_factory=list)
    results: dict[int, Tensor] = field(default_factory=dict)  # at the end of a membership
    packed: bytes = b""
    check: Callable[[], None] = lambda: None  # that there is one history

    def certificates(self) -> list[tuple[bytes, ...]]:
        return self.decided

    def add_certificate(self, term: Term, certificate: Sequence[bytes], following: Sequence[Entry] | None) -> None:
        self.dies(Point.CERTIFICATE)
        assert term.number == len(self.decided)
        self.decided.append(tuple(certificate))
        self.members.append(None if following is None else tuple(following))
        self.check()
        self.dies(Point.CERTIFICATE)

    def votes(self, number: int) -> "Votes":
        return Votes(self, number)

    def profile(self) -> bytes:
        return self.packed

    def set_profile(self, packed: bytes) -> None:
        self.dies(Point.PROFILE)
        self.packed = packed
        self.dies(Point.PROFILE)

    def has_entered(self, number: int) -> bool:
        return number in self.numbers


@dataclass
class Votes:
    disk: Disk
    number: int

    def votes(self) -> dict[int, bytes]:
        return self.disk.ballots.get(self.number, {})

    def set_vote(self, kind: int, content: bytes) -> None:
        point = Point.PROMISE if kind == VoteKind.PROMISE else Point.ACCEPTED
        self.disk.dies(point)
        self.disk.ballots.setdefault(self.number, {})[kind] = content
        self.disk.dies(point)


@dataclass
class Store:
    """The part of a disk that belongs to one membership, for the protocol of member.py."""

    disk: Disk
    codes: StepCodes
    since: int  # the membership since which the agent is a member

    @property
    def number(self) -> int:
        return self.codes.number

    def epoch(self) -> int:
        return self.disk.numbers.get(self.number, 0)

    def set_epoch(self, epoch: int) -> None:
        self.disk.dies(Point.EPOCH)
        self.disk.numbers[self.number] = epoch
        self.disk.dies(Point.EPOCH)

    def steps(self) -> list[int]:
        found = {self.codes.encode(*key) for key in self.disk.checkpoints if key[0] >= self.since}
        return sorted({*([] if self.since else [0]), *found})[-KEEP:]

    def discard(self, diverged: int, start: int) -> None:
        raise AssertionError("nothing diverges")

    def is_done(self) -> bool:
        return self.disk.done.get(self.number, False)

    def set_done(self) -> None:
        self.disk.dies(Point.DONE)
        self.disk.done[self.number] = True
        self.disk.dies(Point.DONE)

    def all_done(self) -> tuple[bytes, ...]:
        return self.disk.ends.get(self.number, ())

    def set_all_done(self, statements: Sequence[bytes]) -> None:
        self.disk.dies(Point.DONE)
        self.disk.ends[self.number] = tuple(statements)
        self.disk.dies(Point.DONE)

    def save(self, step: int, w: Tensor) -> None:
        self.disk.dies(Point.CHECKPOINT)
        self.disk.checkpoints[self.number, step] = w.clone()
        kept = sorted(key for key in self.disk.checkpoints if key <= (self.number, step))[-KEEP + 1 :]
        self.disk.checkpoints = {key: self.disk.checkpoints[key] for key in kept}
        self.disk.dies(Point.CHECKPOINT)


def first_weights(agent: int) -> Tensor:
    return torch.tensor([agent + 1], dtype=torch.int64)


def plan(w: Tensor, received: dict[int, Tensor], entries: tuple[Entry, ...]) -> Tensor:
    """What planning makes of the weights: it depends on all members and on the neighbours' weights."""
    return mix(w, received, 1000 + len(entries), sum(entry.agent for entry in entries))


def mix(w: Tensor, received: dict[int, Tensor], step: int, number: int) -> Tensor:
    total = sum((7 + z) * int(part[0]) for z, part in received.items())
    return torch.tensor([(31 * int(w[0]) + total + 13 * step + 17 * number) % 1_000_003], dtype=torch.int64)


def adopt(w: Tensor, received: dict[int, Tensor]) -> Tensor:
    """The weights of an agent, which takes over those of its first neighbour that has some if it has none."""
    found = [part for _, part in sorted(received.items()) if int(part[0]) != NO_WEIGHTS]
    return w if int(w[0]) != NO_WEIGHTS else [*found, w][0]


@cache
def find_linked(agent: int, links: Links) -> tuple[int, ...]:
    return tuple(sorted({z for pair in links for z in pair if agent in pair and z != agent}))


def find_neighbours(term: Term, agent: int, links: Links) -> list[int]:
    """Numbers of an agent's neighbours in a membership."""
    return [term.ids.index(z) for z in term.find_neighbours(agent, find_linked(agent, links))]


def replay(terms: Sequence[Term], bases: Bases, links: Links) -> dict[int, Tensor]:
    """The weights at the end of the last membership, given where those that have trained began."""

    def train(number: int) -> dict[int, dict[int, Tensor]]:
        """Weights of a membership's members by step."""
        term, (base, adopters) = terms[number], bases[number]
        if base is None:
            weights = {k: first_weights(k) for k in term.ids}
        else:
            before = trained(base[0])[base[1]]
            none = torch.tensor([NO_WEIGHTS], dtype=torch.int64)
            weights = {k: none if k in adopters else before[k] for k in term.ids}
            for _ in adopters:  # the farthest are so many links away
                weights = exchange(weights, term, adopt)
        weights = exchange(weights, term, lambda w, received: plan(w, received, term.entries))
        found = {}
        for step in range(0 if base is None else base[1], STEPS + 1):
            found[step] = weights
            weights = exchange(weights, term, lambda w, received, step=step: mix(w, received, step, number))
        return found

    def exchange(weights: dict[int, Tensor], term: Term, act: Callable[..., Tensor]) -> dict[int, Tensor]:
        near = {k: find_neighbours(term, k, links) for k in term.ids}
        return {k: act(weights[k], {z: weights[term.ids[z]] for z in near[k]}) for k in term.ids}

    trained = cache(train)
    return trained(len(terms) - 1)[STEPS]


@dataclass(frozen=True)
class Scenario:
    """What happens to a network of agents."""

    agents: int
    links: Links  # of strangers, too: those have the numbers that follow
    drop: float = 0.0
    double: float = 0.0
    delay: float = 0.01
    kills: tuple[tuple[Point, int], ...] = ()  # where, and at which occasion; such agents come back
    lost: tuple[tuple[int, float], ...] = ()  # agents that are lost for good, and when
    leaving: tuple[tuple[int, float], ...] = ()
    joining: tuple[tuple[int, float], ...] = ()  # strangers, and when they start
    moving: tuple[tuple[int, float], ...] = ()  # agents that come back with another address
    wiped: tuple[tuple[int, float], ...] = ()  # agents that come back without their checkpoints
    erased: tuple[tuple[int, float], ...] = ()  # agents that had joined and come back with an empty disk
    splits: tuple[tuple[frozenset[int], float, float], ...] = ()  # parts that are cut off, from when to when


class GroupNetwork:
    """Agents on one pretended clock."""

    def __init__(self, scenario: Scenario, seed: int) -> None:
        self.scenario, self.random, self.now, self.count = scenario, random.Random(seed), 0.0, 0
        self.events: list[tuple[float, int, str, Any]] = []
        self.founders = tuple(range(scenario.agents))
        self.ids = tuple(range(scenario.agents + len(scenario.joining)))
        self.occasions: Counter[Point] = Counter()
        self.killed: Counter[Point] = Counter()
        self.happened: Counter[str] = Counter()
        self.disks = {k: Disk(self._maybe_die, check=self._check_histories) for k in self.ids}
        self.groups: dict[int, Group] = {}
        self.gone: set[int] = set()  # lost, left or finished
        self.moved: set[int] = set()
        self.without_key: set[int] = set()
        self.without_votes: set[int] = set()
        self.is_same: Callable[[Entry, Entry], bool] = lambda entry, other: True
        self.finished: dict[int, Tensor] = {}
        self.terms = [Term(0, make_entries(self.founders), "")]  # of the longest history so far
        self.looked_at = self.ended_at = 0.0  # when somebody has finished last
        self.healed_at = max([end for _, _, end in scenario.splits], default=0.0)
        starts = dict(scenario.joining)
        for k in self.ids:
            self._at(starts.get(k, self.random.uniform(0, 0.1)), "start", k)
        for kind in ("lost", "leaving", "moving", "wiped", "erased"):
            for k, when in getattr(scenario, kind):
                self._at(when, kind, k)

    def run(self, deadline: float = 900.0) -> None:
        """Until everyone who is not lost has finished or left, but for those that came back when all others had."""
        while not self._is_over():
            assert self.events, f"nothing more happens: {self.describe()}"
            self.now, _, kind, what = heapq.heappop(self.events)
            assert self.now < deadline, f"no end: {self.describe()}"
            assert self.count < 400_000, f"a flood: {self.describe()}"
            agent = what[1] if kind == "message" else what
            try:
                self._handle(kind, what, agent)
            except Killed:
                self.groups.pop(agent, None)
                self._at(self.now + self.random.uniform(0.01, 1.0), "start", agent)

    def _is_over(self) -> bool:
        left = set(self.ids) - self.gone
        if not left:
            return True
        if self.now < max(self.healed_at + 60, self.looked_at + 1):
            return False
        self.looked_at = self.now
        members = self.terms[-1].ids
        if self.finished:
            if self.now < self.ended_at + 100:
                return False
            self.happened["came back when all others had finished"] += len(left)
        elif 2 * self._count_connected(left & set(members)) <= len(members):
            self.happened["without a majority for ever"] += 1
        else:
            return False
        return True

    def _count_connected(self, agents: set[int]) -> int:
        """The most of these agents that links connect and that still have the keys and the votes of the last
        membership."""
        last = self.terms[-1]
        lacking = self.without_key | (self.without_votes if len(last.ids) > 2 else set())
        able = {k for k in agents if k not in lacking or last.find(k) == Entry(k, self.disks[k].packed)}
        most = 0
        for k in able:
            reached, new = set[int](), {k}
            while new:
                reached |= new
                term, links = self.terms[-1], self.scenario.links
                new = {term.ids[z] for one in new for z in find_neighbours(term, one, links)} & able - reached
            most = max(most, len(reached))
        return most

    def check(self) -> None:
        """Whoever has finished has the weights of the replay."""
        if not self.finished:
            return
        bases: Bases = {}
        number, holders = len(self.terms) - 1, set(self.finished)  # agents that had the checkpoint of a membership
        while number >= 0:
            base, adopters = bases[number] = self.disks[min(holders)].bases[number]
            holders = set(self.terms[number].ids) - set(adopters)
            number = -1 if base is None else base[0]
        expected = replay(self.terms, bases, self.scenario.links)
        for k, w in self.finished.items():
            assert torch.equal(w, expected[k]), f"agent {k} ends with {w}, the replay with {expected[k]}"
        self.happened["finished"] += len(self.finished)
        self.happened["memberships"] += len(self.terms)

    def describe(self) -> str:
        return f"at {self.now:.1f} s: " + "; ".join(
            f"{k}: membership {g.term.number} {g.term.ids} "
            + (
                f"epoch {g.member.epoch} at {g.member.position} waits for {g.waiting_for}, suspects {g.change.suspects}"
                if g.member and g.change
                else "outside"
            )
            for k, g in sorted(self.groups.items())
        )

    def _check_histories(self) -> None:
        """No two agents have decided differently."""
        longest = max((disk.members for disk in self.disks.values()), key=len)
        for k, disk in self.disks.items():
            assert disk.members == longest[: len(disk.members)], f"two histories: {k} {disk.members}, {longest}"

    def _handle(self, kind: str, what: Any, k: int) -> None:
        if kind == "lost" and k not in self.gone:
            if len(self.disks[k].checkpoints) < 2 and self.now < 60:  # it has never been there for the others
                return self._at(self.now + 0.5, kind, k)
            self.groups.pop(k, None)
            self.gone.add(k)
            self.happened["lost for good"] += 1
            return
        if k in self.gone:
            return
        if kind == "moving":
            self.moved.add(k)
            self.happened["moved"] += 1
            if self.random.random() < 0.5:
                self.without_key.add(k)
            self.start(k)
        elif kind == "wiped":
            self.happened["lost all checkpoints"] += 1
            self.disks[k].checkpoints.clear()
            self.start(k)
        elif kind == "erased":
            self.happened["lost its disk"] += 1
            self.without_votes.add(k)
            self.disks[k] = Disk(self._maybe_die, check=self._check_histories)
            self.start(k)
        elif kind == "start":
            self.start(k)
        elif k not in self.groups:
            return
        elif kind == "tick":
            if self.groups[k].wake_at > self.now:
                return
            self.groups[k].tick(self.now)
        elif kind == "leaving":
            self.groups[k].leave(self.now)
        else:
            self._maybe_die(Point.RECEIVING)
            group = self.groups[k]
            known = what[0] in {*group.neighbours, *group.config.neighbours}
            group.receive(what[0] if known else f"key of {what[0]}", what[2], self.now)
            group.tick(self.now)
        self._follow(k)

    def _follow(self, k: int) -> None:
        group = self.groups[k]
        if len(group.history.terms) > len(self.terms):
            for entry in set(group.term.entries) - set(self.terms[-1].entries):
                self.happened["joined anew" if entry.agent in self.founders else "joined"] += 1
            self.terms = list(group.history.terms)
        if not group.may_leave(self.now):
            return self._at(max(group.wake_at, self.now + 1e-4), "tick", k)
        self.groups.pop(k)
        if not group.all_done:  # it hears nobody; its exit code makes systemd start it again
            return self._at(self.now + 1.0, "start", k)
        self.gone.add(k)
        if group.left:
            self.happened["left"] += 1
        elif group.term.find(k) == group.entry:
            self.ended_at = self.now
            self.finished[k] = self.disks[k].results[group.term.number]
        else:
            self.happened["outside at the end"] += 1

    def start(self, k: int) -> None:
        mine = tuple(z for z in find_linked(k, self.scenario.links) if z < max(k, self.scenario.agents))  # it can name
        config = GroupConfig(
            "run",
            k,
            self.founders,
            mine,
            EVICT_AFTER,
            lambda term: sign(k, term.ids),
            partial(self._make_profile, k, mine),
            1 << 18,
            k in self.moved,
            lambda entry: k not in self.without_key or entry.packed == self.disks[k].packed,
            founder_keys=lambda: (b"key",),
            is_same=self.is_same,
        )
        self.moved.discard(k)
        disk = self.disks[k]
        if k >= self.scenario.agents and not disk.packed:
            disk.set_profile(self._make_profile(k, mine))
        self.groups.pop(k, None)
        group = Group(config, disk, partial(self._make_member, k), partial(self._send, k), self.now)
        self.groups[k] = group
        for agent, when in self.scenario.leaving:
            if agent == k and when < self.now:
                group.leave(self.now)

    def _make_profile(self, k: int, mine: Sequence[int]) -> bytes:
        key = 2 * derive_verify_key(secret(k))
        return Profile(f"here:{k + 1}", key, dict.fromkeys(mine, 1), self.random.getrandbits(62)).pack()

    def _make_member(
        self, k: int, terms: Sequence[Term], since: int, send: Callable[[int, bytes], None], now: float
    ) -> Member:
        term = terms[-1]
        codes = StepCodes(term.number, STEPS)
        store, number = Store(self.disks[k], codes, since), term.ids.index(k)
        near = find_neighbours(term, k, self.scenario.links)
        planned_at: list[int] = []  # exchanges before the one that plans, and the step of all of these

        def begin(step: int, session: bytes, unable: tuple[int, ...]) -> Program:
            adopters = tuple(term.ids[one] for one in unable) if step else ()
            return self._program(k, terms, store, near, step, adopters, planned_at)

        def expect(position: Position) -> ExpectedMessages | None:
            step, slot = position
            if not codes.first - 1 <= step < codes.first + STEPS:
                return None
            plans = planned_at[-1:] == [step]
            if slot > (planned_at[0] if plans else 0):
                return None
            phase = Phase.PLANNING if plans else Phase.CONSENSUS
            what, shapes = "site" if plans else "train", dict.fromkeys(near, (1,))
            return ExpectedMessages(what, str(phase), slot, torch.int64, shapes)

        config = ProtocolConfig(
            make_membership(number, len(term.ids), near, term.name),
            torch.int64,
            codes.last,
            KEEP,
            self.count,
            signatures=sign(k, term.ids),
            joined=term.joined,
            first=codes.first,
        )
        return Member(config, store, begin, expect, send, now)

    def _program(
        self,
        k: int,
        terms: Sequence[Term],
        store: Store,
        near: list[int],
        step: int,
        adopters: tuple[int, ...],
        planned_at: list[int],
    ) -> Program:
        term = terms[-1]
        codes, number, disk = store.codes, term.ids.index(k), self.disks[k]
        planned_at.clear()

        def swap(what: str, phase: Phase, moment: int, slot: int, w: Tensor) -> Any:
            messages = {Link(number, z): w for z in near}
            expected = {Link(z, number): (1,) for z in near}
            inbox = yield PlannedExchange(what, moment, Outbox(phase, slot, messages, expected))
            return {link.sender: part for link, part in inbox.items()}

        base = codes.decode(step)
        if base is None or base[0] < term.number:
            if base is None:
                w, t = first_weights(k), 0
            else:
                w, t = torch.tensor([NO_WEIGHTS]) if k in adopters else disk.checkpoints[base], base[1]
            moment = codes.first - 1 + t
            planned_at += [len(adopters), moment]
            received: Any
            for slot in range(len(adopters)):
                received = yield from swap("site", Phase.PLANNING, moment, slot, w)
                w = adopt(w, received)
            received = yield from swap("site", Phase.PLANNING, moment, len(adopters), w)
            w = plan(w, received, term.entries)
            disk.bases[term.number] = base, adopters
            for key in [key for key in disk.checkpoints if key[0] == term.number]:
                del disk.checkpoints[key]
        else:
            w, t = disk.checkpoints[base], base[1]
        while True:
            if t % EVERY == 0 or t == STEPS:
                store.save(t, w)
            if t == STEPS:
                disk.results[term.number] = w
                return
            received = yield from swap("train", Phase.CONSENSUS, codes.first + t, 0, w)
            w, t = mix(w, received, t, term.number), t + 1

    def _send(self, sender: int, receiver: int, message: bytes) -> None:
        assert receiver in find_linked(sender, self.scenario.links), "a message to someone who is no neighbour"
        self._maybe_die(Point.SENDING)
        for part, start, end in self.scenario.splits:
            if start <= self.now < end and (sender in part) != (receiver in part):
                return
        if self.random.random() < self.scenario.drop:
            return
        for _ in range(2 if self.random.random() < self.scenario.double else 1):
            delay = self.random.expovariate(1 / self.scenario.delay)
            self._at(self.now + delay, "message", (sender, receiver, message))

    def _maybe_die(self, where: Point) -> None:
        self.occasions[where] += 1
        if (where, self.occasions[where]) in self.scenario.kills:
            self.killed[where] += 1
            raise Killed(where)

    def _at(self, when: float, kind: str, what: Any) -> None:
        self.count += 1
        heapq.heappush(self.events, (when, self.count, kind, what))
