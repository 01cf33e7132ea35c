"""A feed whose page a browser opens."""

import pytest

from gossamer.report.live.feed import Feed


@pytest.fixture
def feed() -> Feed:
    return Feed()
