"""Checkpoints of a run directory: the newest, and the previous one in case the newest is damaged."""

import math
import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from gossamer.errors import GossamerError, GossamerWarning
from gossamer.files import set_aside
from gossamer.runs.run import Run
from gossamer.runs.tensors import Expected, check_tensors, pack_state, read_file, unpack_state, write_tensors

NEWEST, PREVIOUS = "checkpoint.safetensors", "checkpoint.previous.safetensors"


@dataclass(frozen=True)
class Checkpoint:
    path: Path
    params: dict[str, Tensor]
    state: dict[str, Tensor]
    step: int
    seconds: float  # of training so far


def write_checkpoint(
    folder: Path, params: Mapping[str, Tensor], state: Mapping[str, Tensor], step: int, seconds: float
) -> None:
    """Write the newest checkpoint; the one before becomes the previous."""
    tensors = pack_state(params, state)
    write_tensors(folder / NEWEST, tensors, previous=folder / PREVIOUS, step=str(step), seconds=str(seconds))


def read_newest_checkpoint(folder: Path, run: Run) -> Checkpoint | None:
    """Newest whole checkpoint that fits the run, or None if there is none.

    A damaged newer one is renamed, with a warning; it keeps its name if no whole one is left.
    """
    damaged: dict[Path, GossamerError] = {}
    for path in (folder / NEWEST, folder / PREVIOUS):
        if not path.exists():
            continue
        try:
            found = _read(path, run)
        except GossamerError as error:
            damaged[path] = error
            continue
        for other, reason in damaged.items():
            if run.engine.leads:
                aside = set_aside(other)
                warnings.warn(
                    f"{reason}; it is now {aside.name}, and the run goes on from step {found.step}, which {path.name} "
                    "holds",
                    GossamerWarning,
                    stacklevel=2,
                )
        return found
    for reason in damaged.values():
        raise GossamerError(f"{reason}; no whole checkpoint is left: move it away to begin again at step 0")
    return None


def _read(path: Path, run: Run) -> Checkpoint:
    tensors, about = read_file(path)
    host = run.host
    expected: Expected = {
        name: (part.dtype, (host.num_agents, *part.shape[1:]))
        for name, part in pack_state(host.params, host.state).items()
    }
    check_tensors(tensors, expected, str(path))
    if not re.fullmatch("[0-9]{1,15}", about.get("step", "")):
        raise GossamerError(f"{path} says no step; it is not a checkpoint of Gossamer")
    try:
        seconds = float(about.get("seconds", ""))
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds < math.inf:
        raise GossamerError(f"{path} says no seconds; it is not a checkpoint of Gossamer")
    return Checkpoint(path, *unpack_state(tensors), int(about["step"]), seconds)
