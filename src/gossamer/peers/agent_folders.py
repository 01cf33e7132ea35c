"""Folders of an agent: its shard, and in it the folder of its run."""

import math
import time
from pathlib import Path

from gossamer.errors import GossamerError
from gossamer.files import PRIVATE, write_atomically
from gossamer.peers.shards.membership import Membership
from gossamer.peers.shards.shard import Shard, read_shard
from gossamer.peers.shards.sites import is_site, read_site_shard
from gossamer.peers.term_folders import read_log, term_folder
from gossamer.runs.shares import MANIFEST

EVALUATIONS_FILE = "evaluations.jsonl"
STARTED_FILE = "started"


def run_folder(folder: Path, membership: Membership) -> Path:
    """The folder within a shard for the persistent state and the results of its run."""
    return folder / f"run-{membership.run}"


def note_first_start(state: Path) -> None:
    """Keep the time of an agent's first start in the folder of its run."""
    path = state / STARTED_FILE
    if not path.exists():
        write_atomically(path, f"{time.time():.3f}\n".encode(), PRIVATE)


def read_first_start(state: Path) -> float | None:
    """Time of an agent's first start, in seconds since 1970; None before it."""
    try:
        found = float((state / STARTED_FILE).read_text())
    except (OSError, ValueError):
        return None
    return found if math.isfinite(found) else None


def find_last_membership(state: Path) -> Path:
    """The folder of the last membership in which an agent has trained, in the folder of its run."""
    return next((term_folder(state, v) for v in range(len(read_log(state)), 0, -1) if _is_planned(state, v)), state)


def _is_planned(state: Path, number: int) -> bool:
    return (term_folder(state, number) / "planned" / MANIFEST).is_file()


def read_trained_shard(folder: Path) -> tuple[Shard, Path]:
    """The shard of an agent, as a site has planned it if no one has cut it, and the folder of its state at the
    end: that of its run, or of the run's last membership."""
    if not is_site(folder):
        shard = read_shard(folder)
        return shard, run_folder(folder, shard.membership)
    state = find_last_membership(run_folder(folder, read_site_shard(folder).membership))
    if not (state / "planned" / MANIFEST).is_file():
        raise GossamerError(
            f"the site of {folder} has not planned its share with the others yet; run gossamer peer {folder}"
        )
    return read_shard(state / "planned"), state
