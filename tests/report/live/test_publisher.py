"""The thread that publishes a run's views."""

import logging

import pytest
from report.live.sources import SeenFeed

from gossamer.errors import GossamerError
from gossamer.report.live import publisher
from gossamer.report.live.log_lines import LogLines
from gossamer.report.live.publisher import Publisher
from gossamer.report.live.view import RunView, starting_view

LIMIT = 30.0  # seconds; no test waits so long unless it fails


class Source:
    """A source whose title is the number of the view."""

    def __init__(self) -> None:
        self.count, self.broken = 0, False

    def build(self) -> RunView:
        if self.broken:
            raise GossamerError("the folder has gone")
        self.count += 1
        return starting_view(str(self.count))


def test_what_is_urgent_does_not_wait_for_the_next_view(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publisher, "EVERY", 1e6)
    feed, source = SeenFeed(), Source()
    with Publisher(feed, LogLines(), source.build) as one:
        assert feed.wait(0, LIMIT)[0] == 1
        one.hurry()
        assert feed.wait(1, LIMIT)[0] == 2
        one.note()
    assert [view["title"] for view in feed.seen] == ["1", "2", "3"]  # the last one at the end


def test_changes_that_can_wait_come_with_the_next_view(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publisher, "EVERY", 0.2)
    feed, source = SeenFeed(), Source()
    with Publisher(feed, LogLines(), source.build) as one:
        assert feed.wait(0, LIMIT)[0] == 1
        one.note()
        assert feed.wait(1, LIMIT)[0] == 2
        assert feed.wait(2, 0.5)[0] == 2  # nothing has changed


def test_a_view_that_cannot_be_made_ends_nothing_and_is_told_once() -> None:
    feed, source, log = SeenFeed(), Source(), LogLines()
    logger = logging.getLogger(publisher.__name__)
    logger.addHandler(log)
    try:
        source.broken = True
        with Publisher(feed, log, source.build, always=True) as one:
            one.hurry()
        assert feed.seen == []
        assert [line["text"] for line in log.last()] == ["the run is shown as it was before: the folder has gone"]
        source.broken = False
        with Publisher(feed, log, source.build, always=True) as one:
            assert feed.wait(0, LIMIT)[0] == 1
            source.broken = True
    finally:
        logger.removeHandler(log)
    assert [view["title"] for view in feed.seen] == ["1", "1"]  # the page says so, too, and once
    assert [line["text"] for line in feed.last["log"]] == ["the run is shown as it was before: the folder has gone"] * 2
