"""Settings of glibc's malloc by which a training process reuses freed memory instead of returning it to the kernel."""

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

TRIM_THRESHOLD, TOP_PAD, MMAP_THRESHOLD, MMAP_MAX = -1, -2, -3, -4  # options of mallopt(3), from malloc.h
REUSE = {MMAP_MAX: 0, TRIM_THRESHOLD: -1, TOP_PAD: 64 << 20}  # map no array by itself, never trim, grow by 64 MiB
# Defaults of glibc, and the upper ends of the thresholds that it adapts: once one is set it adapts no more.
RESTORED = {
    MMAP_MAX: 65536,
    MMAP_THRESHOLD: 32 << 20,
    TRIM_THRESHOLD: 64 << 20,
    TOP_PAD: 128 << 10,
}


@contextmanager
def keep_memory() -> Iterator[None]:
    """Let malloc keep freed memory for the next step.

    Otherwise malloc maps and unmaps every large array in every step: on a graph of a million vertices half a million
    page faults, a third of the step's time (`gossamer docs scaling`). Without glibc nothing changes.

    malloc's settings are process-wide, and glibc cannot restore them exactly. So only processes of Gossamer's own
    call this: commands, workers and benchmarks, not the library in a user's process.
    """
    libc = _load_glibc()
    if libc is None:
        yield
        return
    for option, value in REUSE.items():
        libc.mallopt(option, value)
    try:
        yield
    finally:
        for option, value in RESTORED.items():
            libc.mallopt(option, value)
        libc.malloc_trim(ctypes.c_size_t(0))


def _load_glibc() -> Any:
    try:
        libc = ctypes.CDLL(None)
        return libc if libc.mallopt and libc.malloc_trim else None
    except (OSError, AttributeError, TypeError):  # another C library, such as musl; Windows, where CDLL takes no None
        return None
