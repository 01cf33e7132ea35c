"""An agent's wish to leave its run, a file that its process looks for (changing.py)."""

from pathlib import Path

from gossamer.errors import GossamerError
from gossamer.files import PRIVATE, is_in_use, make_private, write_atomically
from gossamer.peers.agent_folders import run_folder
from gossamer.peers.shards.sites import SiteShard, is_site, read_site_shard
from gossamer.peers.term_folders import read_log
from gossamer.runs.shares import find_agent_folder, is_agent_folder

LEAVE_FILE = "leave"


def read_changing_shard(folder: Path) -> SiteShard:
    """The shard of an agent in a run whose agents may leave and join."""
    inside = find_agent_folder(folder)
    if not is_agent_folder(inside):
        raise GossamerError(f"{folder} is not the folder of an agent; expected one that gossamer shard has written")
    shard = read_site_shard(inside) if is_site(inside) else None
    if shard is None or shard.settings.evict_after is None:
        raise GossamerError(
            f"the agents of {folder}'s run stay the same; let them leave and join with the setting evict_after "
            "(gossamer shard --evict-after SECONDS, or in the site files)"
        )
    return shard


def ask_to_leave(folder: Path) -> tuple[int, bool]:
    """Leave the wish to leave, and return the agent and whether its process runs."""
    shard, inside = read_changing_shard(folder), find_agent_folder(folder)
    state = run_folder(inside, shard.membership)
    log = read_log(state)
    if log and log[-1].following is None:
        raise GossamerError(f"the run of agent {shard.membership.agent} has finished; there is nothing to leave")
    agent, runs = shard.membership.agent, is_in_use(state)
    if (
        log
        and not runs
        and (state / LEAVE_FILE).exists()
        and agent not in {one.agent for one in log[-1].following or ()}
    ):
        raise GossamerError(
            f"agent {agent} has left already; gossamer leave {folder} --undo, and gossamer peer {folder}, to come back"
        )
    make_private(state)
    write_atomically(state / LEAVE_FILE, b"", PRIVATE)
    return agent, runs


def take_back(folder: Path) -> None:
    """Remove the wish to leave."""
    shard = read_changing_shard(folder)
    path = run_folder(find_agent_folder(folder), shard.membership) / LEAVE_FILE
    if not path.exists():
        raise GossamerError(f"agent {shard.membership.agent} has not been asked to leave")
    path.unlink()
