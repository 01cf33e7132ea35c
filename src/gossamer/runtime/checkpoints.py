"""What an agent keeps on disk to come back after a crash: its epoch, and its latest checkpoints."""

from dataclasses import dataclass
from pathlib import Path

from gossamer.agents.rules import State
from gossamer.errors import GossamerError
from gossamer.files import write_atomically
from gossamer.model import Params
from gossamer.runtime.tensors import pack_state, read_tensors, unpack_state, write_tensors


@dataclass(frozen=True)
class Ledger:
    """What an agent must not forget of a run: its epoch, and who is done. Written whole or not at all."""

    folder: Path

    def epoch(self) -> int:
        path = self.folder / "epoch"
        try:
            epoch = int(path.read_text()) if path.is_file() else 0
        except ValueError:
            epoch = -1
        if not 0 <= epoch < 2**62:
            raise GossamerError(f"{path} should hold the number of an epoch; remove it only if all agents start anew")
        return epoch

    def set_epoch(self, epoch: int) -> None:
        write_atomically(self.folder / "epoch", f"{epoch}\n".encode())

    def is_done(self) -> bool:
        """Whether the run's result is in the folder."""
        return (self.folder / "done").is_file()

    def set_done(self) -> None:
        write_atomically(self.folder / "done", b"")

    def are_all_done(self) -> bool:
        """Whether this agent has known that every agent has its result."""
        return (self.folder / "all-done").is_file()

    def set_all_done(self) -> None:
        write_atomically(self.folder / "all-done", b"")


@dataclass(frozen=True)
class Disk(Ledger):
    """An agent's checkpoints as well; step 0 can always be restored, from the initial weights."""

    keep: int
    params: Params  # at step 0
    state: State

    def steps(self) -> list[int]:
        """What can be restored."""
        found = (path.stem.removeprefix("checkpoint-") for path in self.folder.glob("checkpoint-*.safetensors"))
        return sorted({0, *(int(number) for number in found if number.isdigit())})

    def save(self, step: int, params: Params, state: State) -> None:
        """Keep a checkpoint, and as many before it as are needed."""
        write_tensors(self._path(step), pack_state(params, state))
        kept = [s for s in self.steps() if s <= step][-self.keep :]  # later ones are of before a rollback
        for other in set(self.steps()) - set(kept):
            self._path(other).unlink(missing_ok=True)

    def load(self, step: int) -> tuple[Params, State]:
        if not self._path(step).is_file():
            return {name: t.clone() for name, t in self.params.items()}, {n: t.clone() for n, t in self.state.items()}
        return unpack_state(read_tensors(self._path(step)))

    def _path(self, step: int) -> Path:
        return self.folder / f"checkpoint-{step}.safetensors"
