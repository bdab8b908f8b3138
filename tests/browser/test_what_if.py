"""What would have been different under other settings, in the page (I4, I7)."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from playwright.sync_api import Page, expect
from tests.browser.looks import address
from tests.browser.served import Served

Open = Callable[..., Page]


def looked_at(page: Page, name: str) -> None:
    """Take a picture, if somebody wants to look."""
    if (folder := os.environ.get("RERAIL_SCREENSHOTS", "")) not in ("", "1"):
        page.screenshot(path=str(Path(folder) / f"what-if-{name}.png"))


def test_a_finished_run_is_decided_again_under_other_settings(shared: Served, window: Open) -> None:
    """I7: several settings, both sides, the step that would differ; nothing is called, and a wrong key is told."""
    steps = [
        {"id": "try", "tool": "flaky", "args": {"name": "what-if", "fails": 2}},
        {"id": "after", "tool": "note", "args": {"text": "done"}, "needs": ["try"]},
    ]
    run = shared.begin(steps, "Succeed at the third try")
    shared.wait(run, "completed")
    called = shared.count("what-if")
    page = window(address(shared.url, run, "whatif"))
    page.locator("input[name=key]").first.fill("reflection.max_step_retries")
    page.locator("input[name=value]").fill("0")
    page.get_by_role("button", name="Another setting").click()
    page.locator("input[name=key]").nth(1).fill("retry.max_retry_rounds")
    page.locator("input[name=value]").nth(1).fill("0")
    page.get_by_role("button", name="Show what would differ").click()
    found = page.get_by_label("What would have been different")
    expect(found).to_contain_text("another way from event")
    expect(found.get_by_role("row").filter(has_text="Outcome")).to_contain_text("completed")
    expect(found.get_by_role("row").filter(has_text="Outcome")).to_contain_text("failed")
    expect(found.get_by_role("row").filter(has_text="max_step_retries")).to_contain_text("0")
    expect(found.get_by_role("button", name="try")).to_be_visible()
    looked_at(page, "light")
    page.locator("input[name=key]").first.fill("reflection.no_such_key")
    page.get_by_role("button", name="Show what would differ").click()
    expect(page.get_by_role("alert")).to_contain_text("no_such_key")
    expect(found).to_have_count(0)
    assert shared.count("what-if") == called

    looks = {
        "dark": {"color_scheme": "dark"},
        "phone": {"phone": True},
        "zh": {"locale": "zh-CN", "phone": True, "color_scheme": "dark"},
    }
    for name, how in looks.items():
        other = window(address(shared.url, run, "whatif"), **how)
        other.locator(".whatif button[type=submit]").click()
        expect(other.locator(".whatif-found")).to_be_visible()
        assert other.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
        looked_at(other, name)


def test_a_run_that_is_not_at_rest_is_not_decided_again(shared: Served, window: Open) -> None:
    """I4: there is nothing to hold the other against yet, and that is said."""
    run = shared.begin([{"id": "gate", "tool": "note", "args": {"text": "x"}, "confirm": True}], "Wait for a word")
    shared.wait(run, "waiting")
    page = window(address(shared.url, run, "whatif"))
    expect(page.locator("#view")).to_contain_text("once it is at rest")
