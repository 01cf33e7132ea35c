"""Where a pretended agent can die, named after the steps of the protocol, and the disk that it leaves behind."""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum

import torch


class Kill(StrEnum):
    """A step of the protocol within which an agent dies."""

    OPENING = "while an epoch opens"
    EPOCH_UNWRITTEN = "before its epoch is written"
    EPOCH_WRITTEN = "after its epoch is written"
    FORWARD = "while it sends forward rows"
    BACKWARD = "while it sends gradients backward"
    CONSENSUS_UNSENT = "before it sends its weights"
    CONSENSUS_SENT = "after it sent its weights"
    EVALUATION = "while it sends rows for an evaluation"
    RECEIVING = "before it takes rows or weights in"
    SENDING_AGAIN = "while it sends again"
    CHECKPOINT_UNWRITTEN = "before a checkpoint is written"
    CHECKPOINT_WRITTEN = "after a checkpoint is written"
    DONE_UNWRITTEN = "before it is done on its disk"
    DONE_UNKNOWN = "done, before anyone knows"
    DONE_KNOWN = "done, before it hears of the others"
    ALL_DONE = "around writing that all are done"
    LEAVING = "as it leaves"


class Killed(Exception):  # noqa: N818
    """The process is gone."""


def copied(parts: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: part.clone() for name, part in parts.items()}


@dataclass
class PretendedDisk:
    """What an agent's disk holds; `dies` may end the agent before or after a write, never within one."""

    keep: int
    first: tuple[dict, dict]
    dies: Callable[[Kill], None]
    checkpoints: dict[int, tuple[dict, dict]] = field(default_factory=dict)
    number: int = 0
    done: bool = False
    all_done: bool = False

    def is_done(self) -> bool:
        return self.done

    def set_done(self) -> None:
        self.dies(Kill.DONE_UNWRITTEN)
        self.done = True
        self.dies(Kill.DONE_UNKNOWN)

    def are_all_done(self) -> bool:
        return self.all_done

    def set_all_done(self) -> None:
        self.dies(Kill.ALL_DONE)
        self.all_done = True
        self.dies(Kill.ALL_DONE)

    def epoch(self) -> int:
        return self.number

    def set_epoch(self, epoch: int) -> None:
        self.dies(Kill.EPOCH_UNWRITTEN)
        assert epoch > self.number, "an epoch for the second time"
        self.number = epoch
        self.dies(Kill.EPOCH_WRITTEN)

    def steps(self) -> list[int]:
        return sorted({0, *self.checkpoints})

    def save(self, step: int, params: dict, state: dict) -> None:
        self.dies(Kill.CHECKPOINT_UNWRITTEN)
        self.checkpoints[step] = (copied(params), copied(state))
        kept = sorted({0, *(s for s in self.checkpoints if s <= step)})[-self.keep :]
        self.checkpoints = {s: part for s, part in self.checkpoints.items() if s in kept}
        self.dies(Kill.CHECKPOINT_WRITTEN)

    def load(self, step: int) -> tuple[dict, dict]:
        params, state = self.checkpoints.get(step, self.first)
        return copied(params), copied(state)

    def forget(self) -> None:
        """The disk is replaced by an empty one."""
        self.checkpoints.clear()
        self.number = 0
