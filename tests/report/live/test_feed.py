"""The feed between a run and those who watch it."""

import threading

import pytest

from gossamer.report.live.feed import Feed
from gossamer.report.live.view import RunView

LIMIT = 30.0  # seconds; none of these tests waits so long unless it fails


def a_view(step: int) -> RunView:
    return {
        "title": "digits, 2 agents",
        "own": None,
        "state": "training",
        "activity": "",
        "step": step,
        "steps": 10,
        "seconds": 1.0,
        "score": "accuracy",
        "agents": [],
        "positions": {},
        "evaluations": [],
        "references": {},
        "memberships": [],
        "certificate": None,
        "log": [],
    }


def test_an_empty_feed_has_no_view_and_a_wait_ends() -> None:
    feed = Feed()
    assert feed.latest() == (0, None)
    assert feed.wait(0, 0.01) == (0, None)


def test_a_reader_that_fell_behind_gets_the_latest_view_at_once() -> None:
    feed = Feed()
    for step in range(3):
        feed.publish(a_view(step))
    version, view = feed.wait(1, LIMIT)
    assert version == 3
    assert view == a_view(2)


def test_a_view_wakes_every_reader_that_waits() -> None:
    feed = Feed()
    seen: list[int] = []

    def read() -> None:
        seen.append(feed.wait(0, LIMIT)[0])

    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    feed.publish(a_view(1))
    for reader in readers:
        reader.join(LIMIT)
    assert seen == [1, 1, 1]


def test_the_age_counts_from_the_latest_view(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    feed = Feed()
    now[0] = 130.0
    feed.publish(a_view(1))
    assert feed.age() == 0
    now[0] = 137.5
    assert feed.age() == 7.5
