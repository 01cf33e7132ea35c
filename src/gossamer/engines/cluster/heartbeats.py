"""Heartbeats of the ranks of a job: a rank that falls silent ends all others, which name it.

A deadline on messages cannot distinguish a slow step from a process that is stopped or cut off. So a thread of every
rank increments a counter in the job's store, however long the arithmetic takes, and watches the others' counters.
"""

import os
import sys
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

GIVE_UP = 120.0  # seconds; a call that holds the interpreter for longer than this is silence, too
BEATS = 10  # of a rank in that time
LEFT = 1 << 40  # added to the counter of a rank that has left, more than any counts to
SILENT_RANK_EXIT = 4  # exit code
SILENT_RANKS = "silent"  # the store's key for the ranks that some rank has found silent
OnSilence = Callable[[str], None]  # of a message that names the silent rank


def end_process(message: str) -> None:
    """Exit at once with an error: a call that waits for the silent rank cannot be interrupted."""
    print(f"error: {message}", file=sys.stderr, flush=True)
    os._exit(SILENT_RANK_EXIT)


class Heartbeats:
    """A context within which this rank sends heartbeats, and calls `on_silence` when another has sent none for
    `give_up` seconds."""

    def __init__(self, store: Any, rank: int, size: int, give_up: float, on_silence: OnSilence = end_process) -> None:
        self._store = store.clone()  # a connection of its own: the other may wait for something
        self._store.set_timeout(timedelta(seconds=give_up))
        self._rank, self._give_up, self._on_silence = rank, give_up, on_silence
        self._others = [other for other in range(size) if other != rank]
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> "Heartbeats":
        self._thread.start()
        return self

    def __exit__(self, *reason: object) -> None:
        self._closing.set()
        self._thread.join(timeout=self._give_up)

    def describe_silence(self) -> str | None:
        """A message that names the ranks that any rank has found silent; None if there are none."""
        try:
            silent = self._store.get(SILENT_RANKS).decode() if self._store.check([SILENT_RANKS]) else None
        except RuntimeError:
            return None
        if silent is None:
            return None
        return (
            f"rank {self._rank} and the others have had no sign of life from rank {silent} for {self._give_up:g} s "
            "(--give-up): its process is stopped, or its machine cut off. Started again, the job goes on from its last "
            "checkpoint"
        )

    def _watch(self) -> None:
        counts = dict.fromkeys(self._others, -1)
        missed = dict.fromkeys(self._others, 0)  # in a row; counted in looks, so that this rank's own sleep is one
        beat = self._give_up / BEATS
        try:
            while not self._closing.wait(beat):
                self._store.add(_key(self._rank), 1)
                for other in self._others:
                    count = self._store.add(_key(other), 0)
                    alive = count != counts[other] or count >= LEFT
                    counts[other], missed[other] = count, 0 if alive else missed[other] + 1
                silent = [other for other in self._others if missed[other] > BEATS]
                if silent and not self._store.check([SILENT_RANKS]):
                    self._store.set(SILENT_RANKS, ", ".join(map(str, silent)))
                message = self.describe_silence()
                if message is not None:
                    if not self._closing.wait(2 * beat):  # else the others would find this rank silent
                        self._on_silence(message)
                    return
            self._store.add(_key(self._rank), LEFT)
        except RuntimeError as error:
            if not self._closing.is_set():
                reason = str(error).partition("\n")[0][:200]
                self._on_silence(
                    f"rank {self._rank} cannot reach the job's store any more ({reason}); see whether torchrun runs"
                )


def _key(rank: int) -> str:
    return f"alive-{rank}"
