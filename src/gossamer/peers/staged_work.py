"""The work of a peer whose run has an encoder: its stages one after the other, with a hand-over between two.

A stage of S steps has S + 1 steps of the protocol, the last of them for its last evaluation and the hand-over; the next
stage's step t comes so many steps later. All of it recovers as one run: agents go back to the latest step that everyone
can restore, in whichever stage. A stage before the last has its files in a folder of the run with its name, and what it
hands over in handed.safetensors there.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from gossamer.agents.host import Host
from gossamer.agents.salts import Secrets
from gossamer.files import PRIVATE, make_private
from gossamer.peers.checkpoints import EpochStore
from gossamer.peers.evaluation_log import EvaluationLog
from gossamer.peers.program import MessageSchedule, label_exchanges, list_expected, make_schedule
from gossamer.peers.protocol.exchanges import ExpectedMessages, Program
from gossamer.peers.protocol.signatures import UNSIGNED, Signatures
from gossamer.peers.protocol.wire import Position
from gossamer.peers.shard_work import ShardWork, Work, shift_steps
from gossamer.peers.shards.shard import Shard
from gossamer.runs.arrays import StoredArrays
from gossamer.runs.handover import hand_over
from gossamer.runs.hosts import build_stage_host
from gossamer.runs.secret_files import take_own_secret
from gossamer.runs.settings import Settings
from gossamer.runs.stages import GRAPH, check_encoded_data, find_private_settings, list_stages, stage_settings
from gossamer.runs.tensors import read_arrays, write_tensors

HANDED_FILE = "handed.safetensors"


def make_work(
    shard: Shard, folder: Path, log: EvaluationLog, signatures: Signatures = UNSIGNED, record: bool = False
) -> Work:
    """The work of a shard, in one stage or in several; with `record`, what arrives in the last one is kept."""
    settings = find_private_settings(shard.settings)  # noise that spends more than the budget is refused
    private = settings.privacy_spec is not None
    secrets = None if settings.public_randomness else take_own_secret(folder, shard.membership.agent, private)
    if settings.encodes:
        share, weighted = shard.share, shard.share.example_weights is not None
        check_encoded_data(settings, share.task, share.batch, weighted, str(folder))
        return StagedWork(replace(shard, settings=settings), folder, log, signatures, secrets, record)
    host = build_stage_host(GRAPH, shard.share, None, settings, secrets)
    return ShardWork(shard, host, settings, folder, log, signatures, record)


def read_handed(folder: Path) -> NDArray[Any]:
    """What a stage, whose folder this is, has handed over."""
    return read_arrays(folder / HANDED_FILE)["handed"]


def count_protocol_steps(settings: Settings) -> int:
    """Steps of the protocol in which a run is trained."""
    stages = list_stages(settings)
    return sum(stage_settings(settings, stage).steps for stage in stages) + len(stages) - 1


@dataclass(frozen=True)
class StagePlan:
    """What is known of a stage before it begins: its place among the protocol's steps, and its messages."""

    name: str
    settings: Settings
    offset: int  # the protocol's step at which it begins
    schedule: MessageSchedule
    hand_over: tuple[ExpectedMessages, ...]  # the exchanges after its last evaluation
    handed: tuple[int, ...]  # shape of what it hands over

    @property
    def last(self) -> int:
        """The protocol's step of its last evaluation."""
        return self.offset + self.settings.steps

    def expectations(self, position: Position) -> ExpectedMessages | None:
        """The messages that the agent expects at a position of this stage."""
        step, number = position[0] - self.offset, position[1]
        expected = self.schedule((step, number))
        if expected is not None or position[0] < self.last:
            return expected
        before = next(n for n in range(number + 1) if self.schedule((step, n)) is None)
        return self.hand_over[number - before] if number - before < len(self.hand_over) else None

    @property
    def largest(self) -> int:
        """Bytes of the largest message that may arrive."""
        sizes = [
            torch.Size(shape).numel() * (expected.dtype or self.settings.torch_dtype).itemsize
            for expected in self.hand_over
            for shape in expected.shapes.values()
        ]
        return max(self.schedule.largest, *sizes, 0)


@dataclass(frozen=True)
class StagedStore(EpochStore):
    """Persistent state of all stages."""

    plans: tuple[StagePlan, ...]
    works: Sequence[ShardWork]  # of the stages that have begun

    def steps(self) -> list[int]:
        begun = zip(self.plans, self.works, strict=False)
        return [plan.offset + step for plan, work in begun for step in work.store.steps()]

    def discard(self, diverged: int, start: int) -> None:
        number = max(n for n, plan in enumerate(self.plans[: len(self.works)]) if n == 0 or plan.offset <= diverged)
        offset = self.plans[number].offset
        self.works[number].store.discard(diverged - offset, max(0, start - offset))


class StagedWork:
    """Training of the stages of a run with an encoder."""

    first = 0

    def __init__(
        self,
        shard: Shard,
        folder: Path,
        log: EvaluationLog,
        signatures: Signatures,
        secrets: Secrets | None,
        record: bool = False,
    ) -> None:
        self._shard, self._folder, self._log, self._record = shard, folder, log, record
        self._signatures, self._secrets, self._settings = signatures, secrets, shard.settings
        self._plans = self._plan_stages()
        self._works: list[ShardWork] = []  # of the stages that have begun
        self.keep = len(self._plans) * (shard.keep + 1)
        self.steps = count_protocol_steps(shard.settings)
        self.max_message_bytes = max(plan.largest for plan in self._plans)
        self.store = StagedStore(folder, self._plans, self._works)
        handed: NDArray[Any] | None = None
        for plan in self._plans:
            self._begin(plan, handed)
            path = self._find_folder(plan) / HANDED_FILE
            if plan.name == GRAPH or not path.is_file():
                break
            stored = StoredArrays(path, read_arrays(path), "remove it, and all agents train this stage again")
            handed = stored.take_finite("handed", self._settings.dtype, *plan.handed)

    def program(self, step: int, session: bytes) -> Program:
        current = max(n for n, plan in enumerate(self._plans) if plan.offset <= step)
        for plan in self._plans[current:-1]:  # of these, what was handed over belongs to another course of the run
            (self._find_folder(plan) / HANDED_FILE).unlink(missing_ok=True)
        del self._works[current + 1 :]
        if len(self._works) <= current:
            raise AssertionError("a stage cannot be trained before those that it follows")
        for plan in self._plans[current:]:
            work = self._works[-1]
            named = session if plan.name == GRAPH else session + f" {plan.name}".encode()  # steps are counted anew
            kept = yield from shift_steps(work.train(max(0, step - plan.offset), named), plan.offset)
            if plan.name != GRAPH:
                finish = hand_over(plan.name, kept, self._shard.share, self._settings, self._secrets)
                handed = yield from label_exchanges("hand-over", plan.last, finish)
                write_tensors(self._find_folder(plan) / HANDED_FILE, {"handed": handed}, PRIVATE)
                self._begin(self._plans[len(self._works)], handed.numpy())
            else:
                yield from shift_steps(work.close(kept), plan.offset)

    def expectations(self, position: Position) -> ExpectedMessages | None:
        plan = max((one for one in self._plans if one.offset <= position[0]), key=lambda one: one.offset)
        return plan.expectations(position)

    def _plan_stages(self) -> tuple[StagePlan, ...]:
        """Plan all stages, with zeros for what the one before hands over: messages depend on shapes alone."""
        plans: list[StagePlan] = []
        offset, handed, share = 0, None, self._shard.share
        for name in list_stages(self._settings):
            settings, host = stage_settings(self._settings, name), self._build(name, handed)
            exchanges: tuple[ExpectedMessages, ...] = ()
            if name != GRAPH:
                found: list[torch.Tensor] = []
                finish = hand_over(name, host, share, self._settings, self._secrets)
                exchanges = list_expected("hand-over", _note(finish, found), settings.torch_dtype)
                handed = np.zeros(found[0].shape, dtype=self._settings.dtype)
            shape = () if handed is None else handed.shape
            plans.append(
                StagePlan(name, settings, offset, make_schedule(host, settings, share, name == GRAPH), exchanges, shape)
            )
            offset = plans[-1].last + 1
        return tuple(plans)

    def _build(self, name: str, handed: NDArray[Any] | None) -> Host:
        return build_stage_host(name, self._shard.share, handed, self._settings, self._secrets)

    def _begin(self, plan: StagePlan, handed: NDArray[Any] | None) -> None:
        """Set up the work of a stage."""
        folder = self._find_folder(plan)
        make_private(folder)
        log = self._log if plan.name == GRAPH else EvaluationLog(folder / "evaluations.jsonl")
        host, record = self._build(plan.name, handed), self._record and plan.name == GRAPH
        self._works.append(
            ShardWork(self._shard, host, plan.settings, folder, log, self._signatures, record, plan.name == GRAPH)
        )

    def _find_folder(self, plan: StagePlan) -> Path:
        return self._folder if plan.name == GRAPH else self._folder / plan.name


def _note(finish: Any, found: list[torch.Tensor]) -> Any:
    """The same generator; its result is added to `found`."""
    found.append((yield from finish))
