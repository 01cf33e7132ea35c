"""The system's Chromium, and pages in it that may log no error and ask no other origin for anything."""

import shutil
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

LIMIT = 20_000  # milliseconds that anything in a page may take
# Chromium's own services may ask for nothing while pages are tested.
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
OpenPage = Callable[..., "Page"]


@pytest.fixture(scope="session")
def browser() -> Iterator["Browser"]:
    """Chromium, driven by playwright; tests skip where either is missing (CONTRIBUTING.md says how to install them)."""
    playwright = pytest.importorskip(
        "playwright.sync_api", reason="playwright is not installed: pip install playwright"
    )
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if program is None:
        pytest.skip("there is no Chromium: apt-get install chromium")
    with playwright.sync_playwright() as running:
        chromium = running.chromium.launch(executable_path=program, args=list(FLAGS))
        yield chromium
        chromium.close()


@pytest.fixture
def open_page(browser: "Browser") -> Iterator[OpenPage]:
    """Open pages at a URL; at the end none of them has logged an error, but for those `allowed`, and all requests went
    to the origin of the URL."""
    contexts, errors, requests = [], [], []
    allowed: list[str] = []
    origins = set()

    def open_one(url: str, errors_allowed: tuple[str, ...] = (), **options: Any) -> "Page":
        context = browser.new_context(**({"viewport": {"width": 1280, "height": 900}} | options))
        contexts.append(context)
        context.set_default_timeout(LIMIT)
        page = context.new_page()
        page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("request", lambda request: requests.append(request.url))
        allowed.extend(errors_allowed)
        origins.add(urlsplit(url).netloc)
        page.goto(url)
        return page

    yield open_one
    for context in contexts:
        context.close()
    assert [error for error in errors if not any(text in error for text in allowed)] == []
    assert {urlsplit(url).netloc for url in requests if not url.startswith("data:")} == origins
