"""Playwright's pages and expectations; a module of tests that imports them is skipped where it is not installed."""

from typing import TYPE_CHECKING

import pytest
from report.conftest import LIMIT

if TYPE_CHECKING:
    from playwright.sync_api import Page, expect
else:
    _api = pytest.importorskip("playwright.sync_api", reason="playwright is missing: pip install playwright")
    Page, expect = _api.Page, _api.expect

expect.set_options(timeout=LIMIT)

__all__ = ["Page", "expect"]
