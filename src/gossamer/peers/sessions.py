"""Log of an agent's sessions with masked consensus: `pads.jsonl` has a line for each, and none should come twice."""

import json
import os
from pathlib import Path

from gossamer.files import PRIVATE, read_text
from gossamer.runs.documents import to_json

SESSION_LOG = "pads.jsonl"
MAX_SESSION_BYTES = 1 << 26


def log_session(folder: Path, epoch: int, step: int, session: bytes) -> None:
    """Add a session that begins at a step, before any of its pads is drawn."""
    line = to_json({"session": session.hex(), "epoch": epoch, "step": step})
    with os.fdopen(os.open(folder / SESSION_LOG, os.O_WRONLY | os.O_CREAT | os.O_APPEND, PRIVATE), "a") as file:
        file.write(line + "\n")


def count_repeated_sessions(folder: Path) -> int:
    """Sessions in an agent's run folder that came before, whose pads have hidden two values each; 0 is expected."""
    path = folder / SESSION_LOG
    lines = read_text(path, MAX_SESSION_BYTES).splitlines() if path.exists() else []
    sessions = [json.loads(line)["session"] for line in lines]
    return len(sessions) - len(set(sessions))
