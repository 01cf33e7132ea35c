"""The log of what an agent refused: enough to see who and why, and bounded, so that a flood does not fill the disk."""

import contextlib
import os
import threading
import time
from collections import Counter
from pathlib import Path

from gossamer.files import PRIVATE
from gossamer.runs.documents import to_json

FIRST = 5  # refusals of a kind that are all written; then the 8th, 16th, 32nd ...
LARGEST = 1 << 20  # bytes of the file; the one before it is kept beside it
COMMON = ("old", "early", "duplicate")  # reasons that are part of every recovery


class Refusals:
    """`refused.jsonl`: time, sender, reason, detail, and how many of this kind there have been."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._times: Counter[tuple[int | None, str]] = Counter()
        self._lock = threading.Lock()  # handshakes are watched in a thread of their own

    def note(self, sender: int | str, reason: str, detail: str = "") -> None:
        """A refusal of a neighbour's message, or of an address. All addresses together are one sender: a stranger may
        have many."""
        agent = sender if isinstance(sender, int) else None
        with self._lock:
            self._times[agent, reason] += 1
            times = self._times[agent, reason]
            if times <= FIRST or times & (times - 1) == 0:
                who = {"address": sender} if agent is None else {"agent": agent}
                now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
                self._write(to_json({"time": now, **who, "reason": reason, "detail": detail[:200], "times": times}))

    def by_sender(self) -> dict[str, dict[str, int]]:
        """How often each reason has been noted, by agent; those of all addresses under `address`."""
        found: dict[str, dict[str, int]] = {}
        with self._lock:
            for (agent, reason), times in self._times.items():
                found.setdefault("address" if agent is None else str(agent), {})[reason] = times
        return found

    def _write(self, line: str) -> None:
        with contextlib.suppress(OSError):  # a log that cannot be written is no reason to end a training
            if self._path.is_file() and self._path.stat().st_size > LARGEST:
                self._path.replace(self._path.with_suffix(".old.jsonl"))
            with os.fdopen(os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, PRIVATE), "a") as file:
                file.write(line + "\n")
