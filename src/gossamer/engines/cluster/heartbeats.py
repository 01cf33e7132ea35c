"""Heartbeats of the ranks of a job: one that falls silent ends all others, which name it.

No deadline on a message tells a slow step from a process that is stopped or cut off. So a thread of every rank counts
up a number in the job's store, however long the arithmetic takes, and watches the numbers of the others.
"""

import os
import sys
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

GIVE_UP = 120.0  # seconds; a call that holds the interpreter for longer than this is silence, too
BEATS = 10  # of a rank in that time
LEFT = 1 << 40  # more than any rank counts to: it has left, and is missed by nobody
SILENT = 4  # exit code
SILENCE = "silent"  # the store's key for the ranks that somebody has missed
Silence = Callable[[str], None]


def end_process(told: str) -> None:
    """End at once, with an error: what waits for the silent rank cannot be woken up."""
    print(f"error: {told}", file=sys.stderr, flush=True)
    os._exit(SILENT)


class Heartbeats:
    """A context within which the other ranks know that this one lives, and `on_silence` is called when one of them has
    been silent for `give_up` seconds."""

    def __init__(self, store: Any, rank: int, size: int, give_up: float, on_silence: Silence = end_process) -> None:
        self._store = store.clone()  # a connection of its own: the other may wait for something
        self._store.set_timeout(timedelta(seconds=give_up))
        self._rank, self._give_up, self._on_silence = rank, give_up, on_silence
        self._others = [other for other in range(size) if other != rank]
        self._closing = threading.Event()
        self._watching = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> "Heartbeats":
        self._watching.start()
        return self

    def __exit__(self, *reason: object) -> None:
        self._closing.set()
        self._watching.join(timeout=self._give_up)

    def explained(self) -> str | None:
        """Why another rank may have left: what any rank has told of silent ones."""
        try:
            found = self._store.get(SILENCE).decode() if self._store.check([SILENCE]) else None
        except RuntimeError:
            return None
        return None if found is None else self._told(found)

    def _watch(self) -> None:
        counts = dict.fromkeys(self._others, -1)
        missed = dict.fromkeys(self._others, 0)  # looks in a row, so that one's own sleep counts as one
        beat = self._give_up / BEATS
        try:
            while not self._closing.wait(beat):
                self._store.add(_key(self._rank), 1)
                for other in self._others:
                    count = self._store.add(_key(other), 0)
                    alive = count != counts[other] or count >= LEFT
                    counts[other], missed[other] = count, 0 if alive else missed[other] + 1
                silent = [other for other in self._others if missed[other] > BEATS]
                if silent and not self._store.check([SILENCE]):
                    self._store.set(SILENCE, ", ".join(map(str, silent)))
                told = self.explained()
                if told is not None:
                    if not self._closing.wait(2 * beat):  # else the others would miss this rank
                        self._on_silence(told)
                    return
            self._store.add(_key(self._rank), LEFT)
        except RuntimeError as error:
            if not self._closing.is_set():
                reason = str(error).partition("\n")[0][:200]
                self._on_silence(
                    f"rank {self._rank} cannot reach the job's store any more ({reason}); see whether torchrun runs"
                )

    def _told(self, silent: str) -> str:
        return (
            f"rank {self._rank} and the others have had no sign of life from rank {silent} for {self._give_up:g} s "
            "(--give-up): its process is stopped, or its machine cut off. Started again, the job goes on from its last "
            "checkpoint"
        )


def _key(rank: int) -> str:
    return f"alive-{rank}"
