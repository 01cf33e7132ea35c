"""Checkpoints of a run directory: the newest, and the previous one in case the newest is damaged."""

import math
import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from gossamer.agents.host import BEST_LOSS, BEST_SCORE, NO_SCORE
from gossamer.errors import GossamerError, GossamerWarning
from gossamer.files import set_aside
from gossamer.runs.run import Run
from gossamer.runs.tensors import (
    Expected,
    check_tensors,
    pack_state,
    read_file,
    read_metadata,
    unpack_state,
    write_tensors,
)

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
    """Write the newest checkpoint; the one that was newest becomes the previous one."""
    tensors = pack_state(params, state)
    write_tensors(folder / NEWEST, tensors, previous=folder / PREVIOUS, step=str(step), seconds=str(seconds))


def read_progress(folder: Path) -> tuple[int, float]:
    """Step and seconds of training of the newest checkpoint, from its header alone; zeros without one."""
    try:
        metadata = read_metadata(folder / NEWEST)
        return int(metadata["step"]), float(metadata["seconds"])
    except (OSError, GossamerError, KeyError, ValueError):  # damaged, or being replaced
        return 0, 0.0


def read_newest_checkpoint(folder: Path, run: Run) -> Checkpoint | None:
    """Newest intact checkpoint, or None if there is no checkpoint; it must fit the run.

    If only the previous one is intact, the damaged newest one is renamed, with a warning. If none is intact, nothing is
    renamed, and an error names all.
    """
    damaged: dict[Path, GossamerError] = {}
    for path in (folder / NEWEST, folder / PREVIOUS):
        if not path.exists():
            continue
        try:
            checkpoint = _read_checkpoint(path, run)
        except GossamerError as error:
            damaged[path] = error
            continue
        for other, reason in damaged.items():
            if run.engine.leads:  # of the processes of a run one renames and warns
                aside = set_aside(other)
                warnings.warn(
                    f"{reason}; it is now {aside.name}, and the run goes on from step {checkpoint.step}, which "
                    f"{path.name} holds",
                    GossamerWarning,
                    stacklevel=2,
                )
        return checkpoint
    if damaged:
        reasons = "; ".join(map(str, damaged.values()))
        them = "it" if len(damaged) == 1 else "them"
        raise GossamerError(f"{reasons}; no whole checkpoint is left: move {them} away to begin again at step 0")
    return None


def fill_best_loss(tensors: dict[str, Tensor]) -> None:
    """Add the loss that checkpoints lack from before it broke ties: the best so far keeps its place."""
    score, loss = (f"state.{name}" for name in (BEST_SCORE, BEST_LOSS))
    if score in tensors:
        tensors.setdefault(loss, torch.full(tensors[score].shape, NO_SCORE, dtype=torch.float64))


def _read_checkpoint(path: Path, run: Run) -> Checkpoint:
    tensors, metadata = read_file(path)
    fill_best_loss(tensors)
    host = run.host
    expected: Expected = {  # the file holds the rows of all agents, a host those of its own
        name: (part.dtype, (host.num_agents, *part.shape[1:]))
        for name, part in pack_state(host.params, host.state).items()
    }
    check_tensors(tensors, expected, str(path))
    if not re.fullmatch("[0-9]{1,15}", metadata.get("step", "")):  # exact as a float
        raise GossamerError(f"{path} has no step in its header; it is not a checkpoint of Gossamer")
    try:
        seconds = float(metadata.get("seconds", ""))
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds < math.inf:
        raise GossamerError(f"{path} has no seconds in its header; it is not a checkpoint of Gossamer")
    return Checkpoint(path, *unpack_state(tensors), int(metadata["step"]), seconds)
