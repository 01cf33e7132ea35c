"""Persistent state of an agent, to recover from after a crash: its epoch, who is done, and its latest checkpoints."""

import logging
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from gossamer.agents.rules import StateDict
from gossamer.errors import GossamerError
from gossamer.files import PRIVATE, read_bytes, set_aside, write_atomically
from gossamer.model import Params
from gossamer.runs.checkpoints import fill_best_loss
from gossamer.runs.tensors import check_tensors, pack_state, read_file, unpack_state, write_tensors

EPOCH_FILE = "epoch"
MAX_DONE_BYTES = 1 << 22  # of the statements of all agents that they are done
CHECKPOINT_NAME = re.compile(r"checkpoint-(0|[1-9][0-9]{0,15})\.safetensors")
_logger = logging.getLogger(__name__)


def find_checkpoints(folder: Path) -> list[int]:
    """The steps of the checkpoints in a folder, ascending."""
    names = (CHECKPOINT_NAME.fullmatch(path.name) for path in folder.iterdir()) if folder.is_dir() else ()
    return sorted(int(name[1]) for name in names if name is not None)


@dataclass(frozen=True)
class EpochStore:
    """An agent's epoch, and who is done. Files are written whole or not at all."""

    folder: Path

    def epoch(self) -> int:
        epoch = self._read_number(EPOCH_FILE, 0)
        if not 0 <= epoch < 2**62:
            path = self.folder / EPOCH_FILE
            raise GossamerError(f"{path} should hold the number of an epoch; remove it only if all agents start anew")
        return epoch

    def _read_number(self, name: str, default: int) -> int:
        """Read the number in a file: the default if there is no file, -1 if it holds no number."""
        path = self.folder / name
        try:
            return int(read_bytes(path, 100)) if path.exists() else default
        except (OSError, ValueError):
            return -1

    def set_epoch(self, epoch: int) -> None:
        write_atomically(self.folder / EPOCH_FILE, f"{epoch}\n".encode(), PRIVATE)

    def is_done(self) -> bool:
        """Return whether the run's result is in the folder."""
        return (self.folder / "done").is_file()

    def set_done(self) -> None:
        write_atomically(self.folder / "done", b"", PRIVATE)

    def all_done(self) -> list[bytes]:
        """The signed statements of all agents that they are done, if they were stored."""
        path = self.folder / "all-done"
        try:
            return [bytes.fromhex(line.decode()) for line in read_bytes(path, MAX_DONE_BYTES).split()]
        except FileNotFoundError:
            return []
        except (OSError, ValueError):
            raise GossamerError(f"{path} is damaged; remove it, and the agent asks the others again") from None

    def set_all_done(self, statements: Sequence[bytes]) -> None:
        write_atomically(self.folder / "all-done", "".join(f"{one.hex()}\n" for one in statements).encode(), PRIVATE)


@dataclass(frozen=True)
class CheckpointStore(EpochStore):
    """An agent's checkpoints as well; step 0 can always be restored, from the initial weights.

    Each file is read once when the agent starts, and a damaged one is set aside, so that those left are intact.
    """

    keep: int  # checkpoints, at most
    params: Params  # at step 0
    state: StateDict

    def __post_init__(self) -> None:
        damaged: dict[Path, GossamerError] = {}
        for step in self._stored():
            try:
                self._read(self._path(step))
            except GossamerError as error:
                damaged[set_aside(self._path(step))] = error
        for aside, reason in damaged.items():
            _logger.warning(
                "%s; it is now %s. The latest step that this agent can restore is %d",
                reason,
                aside.name,
                self.steps()[-1],
            )

    def steps(self) -> list[int]:
        """The steps that can be restored: the latest, should a crash have left more files than `keep`."""
        return sorted({0, *self._stored()[-self.keep :]})

    def save(self, step: int, params: Params, state: StateDict) -> None:
        """Write a checkpoint, and remove those that are not needed any more."""
        write_tensors(self._path(step), pack_state(params, state), PRIVATE, step=str(step))
        stored = self._stored()
        needed = [s for s in stored if s <= step][-self.keep :]  # later ones are of before a rollback
        for other in set(stored) - set(needed):
            self._path(other).unlink(missing_ok=True)

    def discard(self, diverged: int, start: int) -> None:
        """Remove checkpoints that may have led to a divergence, of a training that began at step `start`.

        The latest one is removed; all from `start` on if the last training diverged at this step or later.
        """
        stored = self._stored()
        further = diverged > self._read_number("diverged", -1)
        for step in stored[-1:] if further else [s for s in stored if s >= start]:
            self._path(step).unlink(missing_ok=True)
        write_atomically(self.folder / "diverged", f"{diverged}\n".encode(), PRIVATE)

    def load(self, step: int) -> tuple[Params, StateDict]:
        if step == 0 and not self._path(step).is_file():
            return {name: t.clone() for name, t in self.params.items()}, {n: t.clone() for n, t in self.state.items()}
        return self._read(self._path(step))

    def _read(self, path: Path) -> tuple[Params, StateDict]:
        """Read a checkpoint and check it: of this agent, and of the step in its file name, which older files lack."""
        tensors, metadata = read_file(path)
        fill_best_loss(tensors)
        expected = {name: (part.dtype, tuple(part.shape)) for name, part in pack_state(self.params, self.state).items()}
        check_tensors(tensors, expected, str(path))
        step = path.stem.partition("-")[2]
        if metadata.get("step", step) != step:
            raise GossamerError(f"{path} holds the checkpoint of step {metadata['step']}")
        if not all(bool(part.isfinite().all()) for part in tensors.values()):
            raise GossamerError(f"{path} holds NaN or infinite numbers")
        return unpack_state(tensors)

    def _stored(self) -> list[int]:
        return find_checkpoints(self.folder)

    def _path(self, step: int) -> Path:
        return self.folder / f"checkpoint-{step}.safetensors"
