"""Links of an agent that are cut for a rehearsal: a file in the folder of its run names the agents to which its process
sends nothing. Where both endpoints of a link do so, no message passes, as if the network had failed.
"""

from collections.abc import Iterable
from pathlib import Path

from gossamer.errors import GossamerError
from gossamer.files import PRIVATE, make_private, read_bytes, write_atomically

CUT_FILE = "cut"
MAX_CUT_BYTES = 1 << 20


def read_cut(state: Path) -> frozenset[int]:
    """Ids of the agents to which an agent sends nothing; `state` is the folder of its run."""
    path = state / CUT_FILE
    try:
        words = read_bytes(path, MAX_CUT_BYTES).decode(errors="replace").split()
    except FileNotFoundError:
        return frozenset()
    if not all(word.isdecimal() and len(word) < 11 for word in words):
        raise GossamerError(f"{path}: expected numbers of agents, found {' '.join(words)[:80]!r}; remove the file")
    return frozenset(map(int, words))


def write_cut(state: Path, agents: Iterable[int]) -> None:
    """Let an agent send nothing to others; with none of them its links are whole again."""
    cut = sorted(agents)
    if not cut:
        return (state / CUT_FILE).unlink(missing_ok=True)
    make_private(state)
    write_atomically(state / CUT_FILE, " ".join(map(str, cut)).encode(), PRIVATE, durable=False)
