"""Memoised training runs: Algorithm 1 is a pure function of the weights and messages that go in.

The exchanges and checkpoints of a run are looked up by the bits of everything that it was given; for new bits they are
computed. A protocol that lets a wrong message through is detected all the same.
"""

from collections.abc import Callable, Generator
from dataclasses import dataclass, field, replace
from typing import Any

from peers.disks import FakeDisk, copied
from torch import Tensor

from gossamer.agents import Inbox
from gossamer.agents.exchange import join_parts
from gossamer.agents.selection import restore_best
from gossamer.model import Params
from gossamer.peers.evaluation import NetworkEvaluation, PeerEvaluation
from gossamer.peers.program import Checkpoints, closing_step, label_exchanges, train_from
from gossamer.peers.protocol.exchanges import PlannedExchange, Program
from gossamer.peers.protocol.relaying import Relays


@dataclass
class Stage:
    """A run between two inboxes: checkpoints and records, then an exchange, or the end."""

    saved: list[tuple[int, Params, Params]]
    records: list[PeerEvaluation]
    planned: PlannedExchange | None
    later: "dict[bytes, Stage]" = field(default_factory=dict)  # by the bits of the inbox


@dataclass
class _Recorder:
    """Stands in for a disk with one checkpoint: saves become part of a stage."""

    first: tuple[Params, Params]
    saved: list[tuple[int, Params, Params]] = field(default_factory=list)
    records: list[PeerEvaluation] = field(default_factory=list)

    def load(self, step: int) -> tuple[Params, Params]:
        params, state = self.first
        return copied(params), copied(state)

    def save(self, step: int, params: Params, state: Params) -> None:
        self.saved.append((step, copied(params), copied(state)))

    def add(self, found: PeerEvaluation) -> None:
        self.records.append(found)

    def stage(self, run: Generator[PlannedExchange, Inbox, object], inbox: Inbox | None) -> Stage:
        self.saved, self.records = [], []
        try:
            plan, step, exchange = next(run) if inbox is None else run.send(inbox)
        except StopIteration:
            return Stage(self.saved, self.records, None)
        # Copies, because the run may overwrite its own.
        messages = {link: join_parts(message).clone() for link, message in exchange.messages.items()}
        return Stage(self.saved, self.records, PlannedExchange(plan, step, replace(exchange, messages=messages)))


def train_and_close(
    host: Any,
    settings: Any,
    disk: Checkpoints,
    step: int,
    record: Callable[[PeerEvaluation], None],
    evaluation: NetworkEvaluation,
    relays: Relays,
) -> Program:
    """The program of a peer, without what it writes at the end."""
    last = yield from relays.relay(train_from(host, settings, disk, step, record, evaluation))
    moment = closing_step(settings)
    yield from relays.relay(label_exchanges("closing", moment, evaluation.close(restore_best(last), moment)))


def memoise_program(
    memory: dict[bytes, Stage],
    host: Any,
    settings: Any,
    disk: FakeDisk,
    step: int,
    record: Callable[[PeerEvaluation], None],
    evaluation: NetworkEvaluation,
    relays: Relays,
) -> Program:
    """`train_and_close`, with what `memory` holds of earlier runs; boxes must be the same in every session."""
    params, state = disk.load(step)
    name = b"%d %d " % (host.agents[0], step) + _bits(params) + _bits(state)
    given: list[Inbox] = []
    recorder, run = _Recorder((params, state)), None
    stages = memory
    while True:
        stage = stages.get(name)
        if stage is None:
            if run is None:
                run = train_and_close(host, settings, recorder, step, recorder.add, evaluation, relays)
                for inbox in [None, *given][: len(given)]:
                    recorder.stage(run, inbox)
            stage = stages[name] = recorder.stage(run, given[-1] if given else None)
        elif run is not None:
            recorder.stage(run, given[-1] if given else None)
        for saved in stage.saved:
            disk.save(*saved)
        for found in stage.records:
            record(found)
        if stage.planned is None:
            return
        inbox = yield stage.planned
        given.append(inbox)
        stages, name = stage.later, b"".join(rows.numpy().tobytes() for rows in inbox.values())


def _bits(parts: dict[str, Tensor]) -> bytes:
    return b"".join(part.numpy().tobytes() for part in parts.values())
