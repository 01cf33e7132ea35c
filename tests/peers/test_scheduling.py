"""A peer lets others finish their turns, and its caller is as before when it has ended."""

import os
import threading

import pytest

from gossamer.peers.scheduling import batch_scheduling


@pytest.mark.skipif(not hasattr(os, "SCHED_BATCH"), reason="the system has no such policy")
def test_threads_that_start_within_take_turns_too_and_then_all_is_as_before() -> None:
    found: list[int] = []

    def look() -> None:
        found.append(os.sched_getscheduler(0))

    before = os.sched_getscheduler(0)
    with batch_scheduling():
        look()
        thread = threading.Thread(target=look)
        thread.start()
        thread.join()
    assert found == [os.SCHED_BATCH, os.SCHED_BATCH]
    assert os.sched_getscheduler(0) == before
