"""The refusal log: who sent a message that was refused, and why. It is bounded, so that a flood does not fill the disk.

Each entry goes to refused.jsonl and to the logger of this module: reasons that belong to every recovery at INFO, others
at WARNING.
"""

import contextlib
import logging
import os
import threading
import time
from collections import Counter
from pathlib import Path

from gossamer.files import PRIVATE
from gossamer.runs.documents import to_json

LOG_EVERY = 5  # refusals of a kind that are all logged; then the 8th, 16th, 32nd ...
MAX_LOG_BYTES = 1 << 20  # of the file; then it becomes refused.old.jsonl
RECOVERY_REASONS = ("old", "early", "duplicate")  # that belong to every recovery
_logger = logging.getLogger(__name__)


class RefusalLog:
    """`refused.jsonl`: time, sender, reason, detail, and the number of such refusals so far. Used from two threads."""

    def __init__(self, path: Path, agent: int) -> None:
        """`agent` is the one that refuses."""
        self._path, self._agent = path, agent
        self._counts: Counter[tuple[int | None, str]] = Counter()
        self._lock = threading.Lock()

    def add(self, sender: int | str, reason: str, detail: str = "") -> None:
        """Count the refusal of a neighbour's message, or of an address. All addresses together count as one sender: a
        stranger may have many."""
        agent = sender if isinstance(sender, int) else None
        with self._lock:
            self._counts[agent, reason] += 1
            times = self._counts[agent, reason]
            if times > LOG_EVERY and times & (times - 1) != 0:
                return
            source = {"address": sender} if agent is None else {"agent": agent}
            now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
            self._write(to_json({"time": now, **source, "reason": reason, "detail": detail[:200], "times": times}))
        _logger.log(
            logging.INFO if reason in RECOVERY_REASONS else logging.WARNING,
            "agent %d refused a message of %s: %s (%d so far)",
            self._agent,
            sender if agent is None else f"agent {agent}",
            f"{reason}, {detail[:200]}" if detail else reason,
            times,
        )

    def by_sender(self) -> dict[str, dict[str, int]]:
        """The number of refusals by agent and reason; those of all addresses under `address`."""
        found: dict[str, dict[str, int]] = {}
        with self._lock:
            for (agent, reason), times in self._counts.items():
                found.setdefault("address" if agent is None else str(agent), {})[reason] = times
        return found

    def _write(self, line: str) -> None:
        with contextlib.suppress(OSError):  # a log that cannot be written is no reason to end a training
            if self._path.is_file() and self._path.stat().st_size > MAX_LOG_BYTES:
                self._path.replace(self._path.with_suffix(".old.jsonl"))
            with os.fdopen(os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, PRIVATE), "a") as file:
                file.write(line + "\n")
