"""Points of the protocol where a simulated agent can die, and the disk that it leaves behind."""

import logging
import random
import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

import torch

from gossamer.model import Params
from gossamer.peers import checkpoints
from gossamer.peers.checkpoints import CheckpointStore


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
    MEASURES = "while all sum scores and measures"
    CLOSING = "while the run ends"
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


@contextmanager
def capture_log(name: str) -> Iterator[list[str]]:
    """The lines of a logger."""
    lines: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    logger = logging.getLogger(name)
    logger.addHandler(handler)
    try:
        yield lines
    finally:
        logger.removeHandler(handler)


def copied(parts: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: part.clone() for name, part in parts.items()}


@dataclass
class FakeDisk:
    """Content of an agent's disk; `dies` may end the agent before or after a write, never within one."""

    keep: int
    first: tuple[Params, Params]
    dies: Callable[[Kill], None]
    checkpoints: dict[int, tuple[Params, Params]] = field(default_factory=dict)
    number: int = 0
    diverged: int = -1
    done: bool = False
    ends: tuple[bytes, ...] = ()  # what all agents have stated, once it is known that all are done

    def is_done(self) -> bool:
        return self.done

    def set_done(self) -> None:
        self.dies(Kill.DONE_UNWRITTEN)
        self.done = True
        self.dies(Kill.DONE_UNKNOWN)

    def all_done(self) -> tuple[bytes, ...]:
        return self.ends

    def set_all_done(self, statements: Sequence[bytes]) -> None:
        self.dies(Kill.ALL_DONE)
        self.ends = tuple(statements)
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

    def save(self, step: int, params: Params, state: Params) -> None:
        self.dies(Kill.CHECKPOINT_UNWRITTEN)
        self.checkpoints[step] = (copied(params), copied(state))
        kept = sorted({0, *(s for s in self.checkpoints if s <= step)})[-self.keep :]
        self.checkpoints = {s: part for s, part in self.checkpoints.items() if s in kept}
        self.dies(Kill.CHECKPOINT_WRITTEN)

    def discard(self, diverged: int, start: int) -> None:
        last = diverged > self.diverged
        given_up = sorted(self.checkpoints)[-1:] if last else [s for s in self.checkpoints if s >= start]
        self.checkpoints = {s: part for s, part in self.checkpoints.items() if s not in given_up}
        self.diverged = diverged

    def load(self, step: int) -> tuple[Params, Params]:
        params, state = self.checkpoints.get(step, self.first)
        return copied(params), copied(state)

    def forget(self) -> None:
        """The disk is replaced by an empty one."""
        self.checkpoints.clear()
        self.number = 0

    def start(self, draw: random.Random) -> int:
        """Damage the disk before the agent starts again, and return the number of spoilt checkpoints."""
        return 0


@dataclass
class DamagedDisk(FakeDisk):
    """Checkpoints in real files, of which one may be damaged when the agent starts: it sets that aside and goes back
    further."""

    damage: float = 0.0  # its probability
    folder: Path = field(default_factory=lambda: Path(tempfile.mkdtemp()))

    def __post_init__(self) -> None:
        weakref.finalize(self, shutil.rmtree, self.folder, ignore_errors=True)

    def start(self, draw: random.Random) -> int:
        stored = sorted(self.folder.glob("checkpoint-*.safetensors"))
        spoilt = bool(stored) and draw.random() < self.damage
        if spoilt:
            path = draw.choice(stored)
            content = bytearray(path.read_bytes())
            place = draw.randrange(len(content))
            if draw.random() < 0.5:
                del content[place:]
            else:
                content[place] ^= 1 << draw.randrange(8)
            path.write_bytes(content)
        with capture_log(checkpoints.__name__) as lines:
            self.files = CheckpointStore(self.folder, self.keep, *self.first)
        assert len(lines) == spoilt, f"damaged: {spoilt}, logged: {lines}"
        return int(spoilt)

    def steps(self) -> list[int]:
        return self.files.steps()

    def save(self, step: int, params: Params, state: Params) -> None:
        self.dies(Kill.CHECKPOINT_UNWRITTEN)
        self.files.save(step, params, state)
        self.checkpoints = dict.fromkeys(self.files.steps(), ({}, {}))
        self.dies(Kill.CHECKPOINT_WRITTEN)

    def discard(self, diverged: int, start: int) -> None:
        self.files.discard(diverged, start)
        self.checkpoints = dict.fromkeys(self.files.steps(), ({}, {}))

    def load(self, step: int) -> tuple[Params, Params]:
        return self.files.load(step)

    def forget(self) -> None:
        super().forget()
        for path in self.folder.iterdir():
            path.unlink()
