"""Memory that a training process of Gossamer keeps from step to step (glibc)."""

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

TRIM_THRESHOLD, TOP_PAD, MMAP_THRESHOLD, MMAP_MAX = -1, -2, -3, -4  # names of glibc's mallopt
KEPT = {MMAP_MAX: 0, TRIM_THRESHOLD: -1, TOP_PAD: 64 << 20}
USUAL = {  # thresholds that glibc adapts to in a process with large arrays; once one is set it adapts no more
    MMAP_MAX: 65536,
    MMAP_THRESHOLD: 32 << 20,
    TRIM_THRESHOLD: 64 << 20,
    TOP_PAD: 128 << 10,
}


@contextmanager
def keep_memory() -> Iterator[None]:
    """Let malloc keep freed memory for the next step.

    Else every large array comes in new pages and returns them, step after step: on a million vertices half a million
    page faults, a third of the time. Without glibc nothing changes.

    The settings of malloc are the process's, and glibc cannot restore them exactly. So only processes of Gossamer's own
    call this: commands, workers and benchmarks, not the library in a user's process.
    """
    libc = _glibc()
    if libc is None:
        yield
        return
    for option, value in KEPT.items():
        libc.mallopt(option, value)
    try:
        yield
    finally:
        for option, value in USUAL.items():
            libc.mallopt(option, value)
        libc.malloc_trim(ctypes.c_size_t(0))


def _glibc() -> Any:
    try:
        libc = ctypes.CDLL(None)
        return libc if libc.mallopt and libc.malloc_trim else None
    except (OSError, AttributeError, TypeError):  # other libraries, and Windows, which takes no None
        return None
