"""What an agent keeps on disk to come back after a crash: its epoch, and its latest checkpoints."""

import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from gossamer.agents.rules import State
from gossamer.errors import GossamerError, GossamerWarning
from gossamer.files import PRIVATE, read_bytes, set_aside, write_atomically
from gossamer.model import Params
from gossamer.runs.tensors import check_tensors, pack_state, read_file, unpack_state, write_tensors

MOST_DONE = 1 << 22  # bytes of the statements of all agents that they are done


@dataclass(frozen=True)
class Ledger:
    """What an agent must not forget of a run: its epoch, and who is done. Written whole or not at all."""

    folder: Path

    def epoch(self) -> int:
        epoch = self._number("epoch", 0)
        if not 0 <= epoch < 2**62:
            path = self.folder / "epoch"
            raise GossamerError(f"{path} should hold the number of an epoch; remove it only if all agents start anew")
        return epoch

    def _number(self, name: str, missing: int) -> int:
        """The number in a file; -1 if it holds none."""
        path = self.folder / name
        try:
            return int(read_bytes(path, 100)) if path.exists() else missing
        except (OSError, ValueError):
            return -1

    def set_epoch(self, epoch: int) -> None:
        write_atomically(self.folder / "epoch", f"{epoch}\n".encode(), PRIVATE)

    def is_done(self) -> bool:
        """Whether the run's result is in the folder."""
        return (self.folder / "done").is_file()

    def set_done(self) -> None:
        write_atomically(self.folder / "done", b"", PRIVATE)

    def all_done(self) -> list[bytes]:
        """The statements of all agents that they are done, once this agent has known them; none before."""
        path = self.folder / "all-done"
        try:
            return [bytes.fromhex(line.decode()) for line in read_bytes(path, MOST_DONE).split()]
        except FileNotFoundError:
            return []
        except (OSError, ValueError):
            raise GossamerError(f"{path} is damaged; remove it, and the agent asks the others again") from None

    def set_all_done(self, facts: Sequence[bytes]) -> None:
        write_atomically(self.folder / "all-done", "".join(f"{fact.hex()}\n" for fact in facts).encode(), PRIVATE)


@dataclass(frozen=True)
class Disk(Ledger):
    """An agent's checkpoints as well; step 0 can always be restored, from the initial weights.

    Only whole ones are there: each is read once when the agent starts, and a damaged one is set aside.
    """

    keep: int
    params: Params  # at step 0
    state: State

    def __post_init__(self) -> None:
        damaged: dict[Path, GossamerError] = {}
        for step in self._stored():
            try:
                self._read(self._path(step))
            except GossamerError as error:
                damaged[set_aside(self._path(step))] = error
        for aside, reason in damaged.items():
            warnings.warn(
                f"{reason}; it is now {aside.name}. The latest step that this agent can restore is {self.steps()[-1]}",
                GossamerWarning,
                stacklevel=2,
            )

    def steps(self) -> list[int]:
        """What can be restored: the latest, should a crash have left more than are kept."""
        return sorted({0, *self._stored()[-self.keep :]})

    def save(self, step: int, params: Params, state: State) -> None:
        """Keep a checkpoint, and as many before it as are needed."""
        write_tensors(self._path(step), pack_state(params, state), PRIVATE, step=str(step))
        stored = self._stored()
        kept = [s for s in stored if s <= step][-self.keep :]  # later ones are of before a rollback
        for other in set(stored) - set(kept):
            self._path(other).unlink(missing_ok=True)

    def discard(self, diverged: int, begun: int) -> None:
        """Give checkpoints up that may have led to where the training has diverged, which began at the step `begun`:
        the latest, or, if it has come no further than the last time, all from `begun` on."""
        stored = self._stored()
        further = diverged > self._number("diverged", -1)
        for step in stored[-1:] if further else [s for s in stored if s >= begun]:
            self._path(step).unlink(missing_ok=True)
        write_atomically(self.folder / "diverged", f"{diverged}\n".encode(), PRIVATE)

    def load(self, step: int) -> tuple[Params, State]:
        if step == 0 and not self._path(step).is_file():
            return {name: t.clone() for name, t in self.params.items()}, {n: t.clone() for n, t in self.state.items()}
        return self._read(self._path(step))

    def _read(self, path: Path) -> tuple[Params, State]:
        """A checkpoint of this agent and of the step that its name says; one of an older version says none inside."""
        tensors, about = read_file(path)
        expected = {name: (part.dtype, tuple(part.shape)) for name, part in pack_state(self.params, self.state).items()}
        check_tensors(tensors, expected, str(path))
        if about.get("step", path.stem.partition("-")[2]) != path.stem.partition("-")[2]:
            raise GossamerError(f"{path} holds the checkpoint of step {about['step']}")
        if not all(bool(part.isfinite().all()) for part in tensors.values()):
            raise GossamerError(f"{path} holds NaN or infinite numbers")
        return unpack_state(tensors)

    def _stored(self) -> list[int]:
        names = (re.fullmatch(r"checkpoint-(0|[1-9][0-9]{0,15})\.safetensors", p.name) for p in self.folder.iterdir())
        return sorted(int(name[1]) for name in names if name is not None)

    def _path(self, step: int) -> Path:
        return self.folder / f"checkpoint-{step}.safetensors"
