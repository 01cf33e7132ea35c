"""The processor time that showing a run may take."""

import os

import pytest

from gossamer.report.live.pace import LONGEST_REST, METRICS_SHARE, PAGE_SHARE, VIEW_SHARE, rest_after


def test_all_shares_are_one_percent() -> None:
    assert sum((VIEW_SHARE, PAGE_SHARE, METRICS_SHARE)) == pytest.approx(0.01)


@pytest.mark.parametrize("busy", [0.0, 1.0, 4.0])
def test_work_and_rest_make_the_share_of_what_a_thread_gets(busy: float, monkeypatch: pytest.MonkeyPatch) -> None:
    processors = os.cpu_count() or 1
    monkeypatch.setattr(os, "getloadavg", lambda: (busy * processors, 0.0, 0.0))
    assert rest_after(0.001, 0.01) == pytest.approx(0.1 * max(1.0, busy))
    assert rest_after(1e6, 0.01) == LONGEST_REST


def test_a_system_that_does_not_say_is_no_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise OSError

    monkeypatch.setattr(os, "getloadavg", fail)
    assert rest_after(0.001, 0.01) == pytest.approx(0.1)
