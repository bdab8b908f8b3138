"""Whatever a run's ids, titles, outputs and errors say, it is text (M4, I4)."""

from __future__ import annotations

from collections.abc import Callable

from playwright.sync_api import Page, expect
from tests.browser.conftest import Complaints
from tests.browser.looks import address, drawer, live
from tests.browser.served import Served

Open = Callable[..., Page]

IMAGE = "<img src=x onerror=alert(1)>"
SCRIPT = "</script><script>window.hurt=1;alert(1)</script>"
FRAME = '"><iframe srcdoc="<script>parent.hurt=1</script>"></iframe>'
LINK = "javascript:alert(document.domain)"
ODD = "__proto__"
BIDI = "\u202eevil\u202c \u0007 {{x}}"
INTRUDER = """() => {
  const box = document.createElement("div");
  box.innerHTML = '<img src=x onerror="window.hurt=1">';
  const script = document.createElement("script");
  script.textContent = "window.hurt=2";
  document.body.append(box, script);
}"""
NASTY = [IMAGE, SCRIPT, FRAME, LINK, ODD, BIDI, "constructor", "..", "../../etc/passwd", "a b/c?d#e%00"]


def test_nothing_of_a_hostile_run_is_executed(shared: Served, window: Open, complaints: Complaints) -> None:
    """M4, I4: markup and scripts in every place there is are shown as what they are, in every view, and run nowhere."""
    steps = [
        {"id": name, "title": f"{SCRIPT}{name}", "tool": "echo", "args": {"value": {name: NASTY}}, "stage": IMAGE}
        for name in NASTY
    ]
    steps += [
        {"id": "fails", "tool": "shout", "args": {"text": SCRIPT + IMAGE}},
        {"id": "behind", "title": IMAGE, "tool": "echo", "needs": ["fails"]},
        {"id": "asks", "tool": "note", "args": {"text": FRAME}, "confirm": f"{IMAGE}{SCRIPT}"},
    ]  # fmt: skip
    run = shared.begin(steps, f"{IMAGE}{SCRIPT}{FRAME}")
    shared.wait(run, "waiting")
    page = window(shared.url)
    live(page)
    expect(page.locator(f"[data-run='{run}'] .run-objective")).to_have_text(f"{IMAGE}{SCRIPT}{FRAME}")
    for tab in ("graph", "timeline", "steps", "events", "plan", "files"):
        page.goto(address(shared.url, run, tab))
        expect(page.locator("#view")).to_be_visible()
        expect(page.get_by_role("heading", level=1)).to_have_text(f"{IMAGE}{SCRIPT}{FRAME}")
        if tab == "events":
            page.locator("[data-type=step_failed]").first.click()
            expect(page.locator(".event-detail")).to_contain_text(IMAGE)
        if tab == "files":
            expect(page.locator(".artifact-list li")).to_have_count(len(NASTY))
    page.get_by_role("tab", name="Steps").click()
    for name in [*NASTY, "fails"]:
        page.locator("tr[data-step]", has=page.get_by_text(name, exact=True)).get_by_role("button").first.click()
        expect(drawer(page)).to_have_attribute("data-drawer", name)
        expect(drawer(page).locator(".attempt").first).to_be_visible()
        expect(drawer(page)).to_contain_text(IMAGE)
    page.locator("[data-action='waiting-confirm']").click()
    expect(page.locator("dialog")).to_contain_text(f"{IMAGE}{SCRIPT}")
    page.keyboard.press("Escape")
    page.locator("[data-action='verdict']").click()
    expect(page.locator(".verdict-rows")).to_contain_text(SCRIPT)

    assert page.evaluate("window.hurt") is None
    assert page.locator("iframe, img, #root script, [onerror], a[href^='javascript']").count() == 0
    assert list(complaints) == []


def test_a_script_that_got_in_would_not_run(shared: Served, window: Open, complaints: Complaints) -> None:
    """I4: the page's policy refuses inline scripts and handlers; and the watch of these tests sees it."""
    page = window(shared.url)
    live(page)
    page.evaluate(INTRUDER)
    page.wait_for_function("() => document.querySelector('img[src=x]').complete")
    assert page.evaluate("window.hurt") is None
    assert any("Content Security Policy" in text for text in complaints), "the refusal is heard"
    complaints.clear()
