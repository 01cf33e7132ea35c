"""How a peer shares a machine with others."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress


@contextmanager
def taking_turns() -> Iterator[None]:
    """Let whoever runs finish its turn when a message wakes this thread, or one that it starts (Linux).

    Where more agents share a machine than it has cores, each message would interrupt another agent's arithmetic. On an
    idle core nothing changes.
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
