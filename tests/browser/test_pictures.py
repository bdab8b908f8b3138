"""The pictures of the docs: taken of real runs, so that they cannot show what is not there.

`RERAIL_SCREENSHOTS=1` writes those that the docs use to docs/images; `RERAIL_SCREENSHOTS=FOLDER` writes every view
there, in both themes, both languages and both widths, to be looked at.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect
from tests.browser.looks import act, address, drawer, is_now, live, run_is
from tests.browser.served import Served
from tests.browser.stories import trip
from tests.browser.test_large import large

Open = Callable[..., Page]
WANTED = os.environ.get("RERAIL_SCREENSHOTS", "")
LARGEST = 200_000 if WANTED == "1" else 1_000_000  # bytes; those in the repository are small
VIEWS = ("graph", "timeline", "steps", "events", "plan", "files")


@pytest.fixture
def album(tmp_path: Path) -> Path:
    """Where pictures go: into the docs if asked for, else nowhere that stays."""
    if WANTED == "1":
        return Path(__file__).parents[2] / "docs/images"
    return tmp_path if WANTED in ("", "0") else Path(WANTED)


@pytest.fixture(scope="module")
def runs(shared: Served) -> dict[str, str]:
    """Runs worth looking at: one at work, one that waits, one that failed, one in doubt, one that completed."""
    found = {"busy": shared.begin(trip("slow"), "Plan a trip to see the northern lights, and book it")}
    doubt = [{"id": "charge", "title": "Charge the card", "tool": "send", "args": {"to": "bank", "lost": True}}]
    found["doubt"] = shared.begin(doubt, "Settle the bill of order 1042")
    words = [{"id": f"w{n}", "tool": "note", "args": {"text": n}} for n in range(6)]
    found["done"] = shared.begin(words, "Translate the guide into six languages")
    failing = [step for step in trip() if step["id"] not in ("book", "tell")]
    found["failed"] = shared.begin(failing, "Check what a trip in March would cost")
    found["waits"] = shared.begin(trip(), "Plan a trip for the whole office")
    shared.wait(found["failed"], "failed")
    shared.wait(found["waits"], "waiting")
    return found


def take(page: Page, album: Path, name: str, most: int = 1_000_000) -> None:
    """A picture of what is there now."""
    album.mkdir(parents=True, exist_ok=True)
    path = album / f"{name}.png"
    page.screenshot(path=path, animations="disabled", caret="hide")
    size = path.stat().st_size
    assert 5_000 < size < most, f"{name} has {size} bytes"


def test_the_pictures_of_the_docs(shared: Served, window: Open, runs: dict[str, str], album: Path) -> None:
    """I4: a run at work, a step with its attempts, a retry before it happens; dark, in Chinese, on a phone."""
    page = window(address(shared.url, runs["busy"]))
    is_now(page, "route", "running")
    is_now(page, "budget", "succeeded")
    expect(page.locator(".react-flow__edge").first).to_be_attached()
    take(page, album, "page-graph", LARGEST)
    page.goto(address(shared.url, runs["waits"], "timeline", "flights"))
    expect(drawer(page).locator(".attempt")).to_have_count(3)
    take(page, album, "page-step", LARGEST)
    page.goto(address(shared.url, runs["failed"]))
    run_is(page, "failed")
    act(page, "retry")
    page.get_by_label("Force").check()
    expect(page.locator("[data-preview=ready]")).to_be_visible()
    take(page, album, "page-retry", LARGEST)
    dark = window(address(shared.url, runs["waits"], "graph", "sky"), color_scheme="dark")
    expect(drawer(dark).locator(".attempt")).to_have_count(2)
    is_now(dark, "book", "waiting")  # the graph comes later than the drawer
    expect(dark.locator(".react-flow__edge").first).to_be_attached()
    take(dark, album, "page-dark", LARGEST)
    chinese = window(address(shared.url, runs["waits"]), locale="zh-CN")
    is_now(chinese, "book", "waiting")
    take(chinese, album, "page-zh", LARGEST)
    phone = window(address(shared.url, runs["busy"]), phone=True)
    is_now(phone, "route", "running")
    take(phone, album, "page-phone", LARGEST)


@pytest.mark.parametrize("lang", ["en-GB", "zh-CN"])
@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("phone", [False, True], ids=["desk", "phone"])
def look_at_every_view(
    shared: Served, window: Open, runs: dict[str, str], album: Path, lang: str, theme: str, phone: bool
) -> None:
    """Every view there is, to be looked at by somebody."""
    page = window(shared.url, phone=phone, locale=lang, color_scheme=theme)
    kind = f"{'phone' if phone else 'desk'}-{lang[:2]}-{theme}"
    live(page)
    expect(page.locator(".run-row").first).to_be_visible()
    take(page, album, f"{kind}-list")
    for view in VIEWS:
        page.goto(address(shared.url, runs["waits"], view))
        live(page)
        page.wait_for_timeout(500)
        take(page, album, f"{kind}-{view}")
    page.goto(address(shared.url, runs["waits"], "graph", "permit"))
    expect(drawer(page).locator(".attempt").first).to_be_visible()
    take(page, album, f"{kind}-drawer")
    page.goto(address(shared.url, runs["doubt"]))
    act(page, "waiting-in_doubt")
    take(page, album, f"{kind}-resolve")
    page.locator("dialog input[value=rerun]").check()
    expect(page.locator("[data-preview=ready]")).to_be_visible()
    take(page, album, f"{kind}-resolve-rerun")
    page.goto(address(shared.url, runs["failed"], "graph", "permit"))
    act(page, "step-skip")
    expect(page.locator("[data-preview=ready]")).to_be_visible()
    take(page, album, f"{kind}-skip")
    page.keyboard.press("Escape")
    act(page, "step-repair")
    page.locator("dialog textarea").fill('{"name": "permit office", "massage": 1}')
    expect(page.locator("[data-preview=refused], [data-preview=ready]")).to_be_visible()
    take(page, album, f"{kind}-repair")
    page.keyboard.press("Escape")
    page.goto(address(shared.url, runs["failed"]))
    act(page, "verdict")
    take(page, album, f"{kind}-verdict")
    act(page, "retry")
    page.locator("dialog input[type=checkbox]").last.check()
    expect(page.locator("[data-preview=ready]")).to_be_visible()
    take(page, album, f"{kind}-retry")
    page.goto(address(shared.url, runs["waits"]))
    act(page, "waiting-confirm")
    expect(page.locator("[data-preview=ready]")).to_have_count(2)
    page.wait_for_timeout(300)
    take(page, album, f"{kind}-confirm")
    page.keyboard.press("Escape")
    page.keyboard.press("n")
    page.locator("dialog textarea").fill("objective: x\nsteps:\n  - {id: a, tool: nothing}\n")
    expect(page.locator("[data-check=bad]")).to_be_visible()
    take(page, album, f"{kind}-start")
    page.keyboard.press("Escape")
    page.keyboard.press("?")
    take(page, album, f"{kind}-help")


def look_at_a_large_run(shared: Served, window: Open, album: Path) -> None:
    """Two thousand steps, folded, opened and unfolded."""
    run = shared.begin(large(), "A large workflow")
    shared.wait(run, "completed", within=120)
    page = window(address(shared.url, run))
    expect(page.locator(".group-node").first).to_be_visible()
    page.wait_for_timeout(600)
    take(page, album, "large-folded")
    page.locator(".group-node").first.click()
    page.wait_for_timeout(900)
    take(page, album, "large-opened")
    page.goto(address(shared.url, run, "timeline"))
    page.wait_for_timeout(600)
    take(page, album, "large-timeline")


if WANTED not in ("", "0", "1"):  # not a test that is skipped: it proves nothing, it is for somebody's eyes
    test_every_view, test_a_large_run = look_at_every_view, look_at_a_large_run
