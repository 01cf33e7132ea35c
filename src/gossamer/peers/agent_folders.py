"""Folders of an agent: its shard, and in it the folder of its run."""

from pathlib import Path

from gossamer.errors import GossamerError
from gossamer.peers.shards.membership import Membership
from gossamer.peers.shards.shard import Shard, read_shard
from gossamer.peers.shards.sites import is_site, read_site_shard
from gossamer.runs.shares import MANIFEST

EVALUATIONS_FILE = "evaluations.jsonl"


def run_folder(folder: Path, membership: Membership) -> Path:
    """The folder within a shard for the persistent state and the results of its run."""
    return folder / f"run-{membership.run}"


def read_trained_shard(folder: Path) -> tuple[Shard, Path]:
    """The shard of an agent, as a site has planned it if no one has cut it, and the folder of its run."""
    if not is_site(folder):
        shard = read_shard(folder)
        return shard, run_folder(folder, shard.membership)
    state = run_folder(folder, read_site_shard(folder).membership)
    if not (state / "planned" / MANIFEST).is_file():
        raise GossamerError(
            f"the site of {folder} has not planned its share with the others yet; run gossamer peer {folder}"
        )
    return read_shard(state / "planned"), state
