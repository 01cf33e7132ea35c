"""Batch scheduling of a peer that shares a machine with others (Linux)."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress


@contextmanager
def batch_scheduling() -> Iterator[None]:
    """Run this thread, and those that it starts, under SCHED_BATCH where the system has it.

    A thread that a message wakes then does not preempt another agent's arithmetic. That matters where more agents share
    a machine than it has cores; on an idle core nothing changes.
    """
    if not hasattr(os, "SCHED_BATCH"):
        yield
        return
    before = os.sched_getscheduler(0), os.sched_getparam(0)
    with suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
    try:
        yield
    finally:
        with suppress(OSError):
            os.sched_setscheduler(0, *before)
