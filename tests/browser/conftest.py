"""A real Chromium on a real server; without one of them, or without the built page, these tests skip and say why.

Rules of this file:
- Playwright runs an event loop of its own as long as it is open, so it is never open longer than one module's tests:
  tests of other modules in the same process want loops of theirs.
- Whatever a page complains about (an error, a refused script, a dialog) fails the test that saw it.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright
from tests.browser.served import Served

PAGE = Path(__file__).parents[2] / "src/rerail/server/page/index.html"
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
DESK = {"width": 1360, "height": 850}
PHONE = {"width": 390, "height": 844}

expect.set_options(timeout=20_000)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything in this folder needs a browser."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.browser)


def chromium() -> str:
    """Where Chromium is."""
    given = os.environ.get("RERAIL_CHROMIUM", "")
    found = given or next((path for name in NAMES if (path := shutil.which(name))), "")
    if not found:
        pytest.skip("no Chromium on this machine (apt install chromium, or name one: RERAIL_CHROMIUM)")
    return found


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A browser for the tests of one module."""
    if not PAGE.exists():
        pytest.skip("the page is not built (make web)")
    path = chromium()
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-dev-shm-usage"])
        yield opened
        opened.close()


class Complaints(list[str]):
    """What pages complained about."""

    def watch(self, page: Page) -> None:
        """Listen to a page."""
        page.on("pageerror", lambda error: self.append(f"error: {error}"))
        page.on("dialog", lambda dialog: (self.append(f"dialog: {dialog.message}"), dialog.dismiss()))
        page.on("console", lambda message: self._said(message.type, message.text))
        page.on("request", lambda request: self._asked(page, request.url))

    def _said(self, kind: str, text: str) -> None:
        # A connection that is refused while a server is away is told by the browser, whatever the page does about it;
        # so is every answer that is a refusal.
        told = ("net::ERR", "Failed to load resource", "Failed to fetch")
        if kind in ("error", "warning") and not any(words in text for words in told):
            self.append(f"{kind}: {text}")

    def _asked(self, page: Page, url: str) -> None:
        if not url.startswith(("http://127.0.0.1:", "blob:http://127.0.0.1:", "data:image/")):
            self.append(f"asked somebody else: {url}")


Open = Callable[..., Page]


@pytest.fixture
def complaints() -> Complaints:
    """What the pages of this test complained about."""
    return Complaints()


@pytest.fixture
def window(browser: Browser, complaints: Complaints) -> Iterator[Open]:
    """Opens pages, each with nothing kept from before; what one of them complains about fails the test."""
    contexts = []

    def opened(url: str = "", *, phone: bool = False, **options: Any) -> Page:
        settings = {"viewport": PHONE if phone else DESK, "locale": "en-GB", "timezone_id": "UTC", **options}
        context = browser.new_context(**settings, has_touch=phone, is_mobile=phone)
        context.set_default_timeout(20_000)
        contexts.append(context)
        page = context.new_page()
        complaints.watch(page)
        if url:
            page.goto(url)
        return page

    yield opened
    for context in contexts:
        context.close()
    assert list(complaints) == []


@pytest.fixture(scope="module")
def shared(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """One server for all tests of a module."""
    served = Served(tmp_path_factory.mktemp("served")).start()
    yield served
    served.stop()


@pytest.fixture
def server(browser: Browser, tmp_path: Path) -> Iterator[Callable[..., Served]]:
    """Servers of a test's own."""
    running: list[Served] = []

    def started(*options: str, **how: Any) -> Served:
        served = Served(tmp_path / f"served-{len(running)}", *options, **how)
        running.append(served)
        return served.start()

    yield started
    for served in running:
        served.stop()
