"""The pace of those who show a run: they rest after work, so that all take at most one percent of a processor.

Where more threads want to run than there are processors, the run that is shown gets a part of one only. The share is
of that part: on a machine that is busy, a page moves less often.
"""

import os

VIEW_SHARE = 0.004  # of a processor, for making views of the run
BESIDE_SHARE = 0.02  # for them in a process that trains nothing itself, beside agents with a process each
PAGE_SHARE = 0.003  # for sending what is new of them to browsers
METRICS_SHARE = 0.003  # for writing them as Prometheus text
LONGEST_REST = 10.0  # seconds


def rest_after(work: float, share: float) -> float:
    """Seconds to rest after some seconds of a thread's processor time, for a share of the processor."""
    return min(work / share * max(1.0, _crowding()), LONGEST_REST)


def _crowding() -> float:
    """Threads that wanted to run in the last minute, for each processor; 1 where the system does not say."""
    try:
        return os.getloadavg()[0] / (os.cpu_count() or 1)
    except (AttributeError, OSError):
        return 1.0
