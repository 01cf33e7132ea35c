"""How a process that exchanges large messages keeps its memory."""

import contextlib
import ctypes

MMAP_THRESHOLD, TRIM_THRESHOLD, TOP_PAD = -3, -1, -2  # names of glibc's mallopt
LARGEST = 32 << 20  # bytes, as much as glibc takes


def keep_memory() -> None:
    """Let malloc keep what it has been given, for the messages of the next step.

    Else every message of some hundred kilobytes comes in fresh pages and gives them back: with CORA on six agents a
    thousand page faults a step, a quarter of an agent's processor time. Without glibc nothing changes.
    """
    with contextlib.suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(MMAP_THRESHOLD, LARGEST)
        mallopt(TRIM_THRESHOLD, 2**31 - 1)
        mallopt(TOP_PAD, 2 * LARGEST)
