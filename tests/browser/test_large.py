"""Two thousand steps are drawn, followed and searched without the page getting slow (I4)."""

from __future__ import annotations

import gzip
import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from playwright.sync_api import Page, expect
from tests.browser.looks import address, drawer, live, run_is
from tests.browser.served import Served

Open = Callable[..., Page]
SIZE = 2000


def large() -> list[dict[str, Any]]:
    """A workflow from the field of about this size, if there are any here; else one that looks like them."""
    folder = os.environ.get("RERAIL_FIELD_DATA", "")
    if folder:
        with gzip.open(Path(folder) / "wfinstances_plans.jsonl.gz", "rt", encoding="utf-8") as file:
            plans = [json.loads(line)["steps"] for line in file]
        steps = min(plans, key=lambda found: abs(len(found) - SIZE))
        return [
            {"id": step["id"], "title": step["tool"], "tool": "echo", "needs": step["depends_on"]} for step in steps
        ]
    wide = SIZE // 4 - 1
    rows: list[dict[str, Any]] = [{"id": "split", "tool": "echo"}]
    for n in range(wide):
        last = "split"
        for what, tool in (("filter", "echo"), ("map", "note"), ("sort", "spare"), ("check", "echo")):
            rows.append({"id": f"{what}{n}", "tool": tool, "needs": [last]})
            last = f"{what}{n}"
    return [*rows, {"id": "merge", "tool": "echo", "needs": [f"check{n}" for n in range(wide)]}]


# What the page did for longer than a frame should take.
WATCH = """() => {
  window.slow = [];
  const note = (list) => window.slow.push(...list.getEntries().map((entry) => entry.duration));
  new PerformanceObserver(note).observe({ type: "longtask", buffered: true });
}"""


def drags_without_painting(page: Page) -> None:
    """Move the view a little: what is drawn is moved as it is, and sharp again at the end."""
    page.wait_for_timeout(500)  # until the view stands still
    canvas, flow = page.locator(".many-edges canvas"), page.locator(".react-flow")
    canvas.evaluate("one => { one.width = 1 }")  # whoever paints it makes it as wide as it should be
    view = page.locator(".react-flow__viewport").evaluate("one => one.style.transform")
    box = page.locator(".react-flow__pane").bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 300, box["y"] + box["height"] - 20)
    page.mouse.down()
    page.mouse.move(box["x"] + 200, box["y"] + box["height"] - 60, steps=5)
    expect(flow).to_have_class(re.compile("moving"))
    assert page.locator(".react-flow__viewport").evaluate("one => one.style.transform") != view
    assert canvas.evaluate("one => one.style.transform").startswith("translate(-")
    assert canvas.evaluate("one => one.width") == 1
    page.mouse.up()
    expect(flow).not_to_have_class(re.compile("moving"))
    page.keyboard.press("+")
    page.wait_for_function("() => document.querySelector('.many-edges canvas').width > 1000")
    page.keyboard.press("-")


def test_two_thousand_steps(shared: Served, window: Open) -> None:
    """I4: folded into groups, opened one by one, all shown on demand; only what can be seen is in the page."""
    steps = large()
    run = shared.begin(steps, "A large workflow")
    page = window()
    page.add_init_script(f"({WATCH})()")
    page.goto(address(shared.url, run))
    live(page)
    expect(page.locator(".group-node").first).to_be_visible()
    drawn = page.locator(".react-flow__node").count()
    assert drawn < 160, f"{drawn} boxes for {len(steps)} steps"
    shared.wait(run, "completed", within=120)
    run_is(page, "completed")
    expect(page.locator("[data-count=succeeded] b")).to_have_text(str(len(steps)))
    expect(page.locator(".group-node:not(.s-succeeded)")).to_have_count(0)
    slow = page.evaluate("window.slow")
    assert max(slow, default=0) < 3000, f"the page stood still for {max(slow):.0f} ms"

    page.locator(".group-node").first.click()
    expect(page.locator(".step-node").first).to_be_visible()
    page.locator("[data-action='fold']").click()
    page.locator("[data-action='fold']").click()
    expect(page.locator(".group-node")).to_have_count(0)
    page.wait_for_function("() => document.querySelectorAll('.react-flow__node').length < 400")
    drags_without_painting(page)
    for _ in range(6):
        page.keyboard.press("-")
    expect(page.locator(".step-node.far").first).to_be_visible()
    expect(page.locator(".node-title")).to_have_count(0)
    for _ in range(6):
        page.keyboard.press("+")
    expect(page.locator(".node-title").first).to_be_visible()

    page.get_by_role("tab", name="Steps").click()
    expect(page.locator("tr[data-step]").first).to_be_visible()
    assert page.locator("tr[data-step]").count() < 100
    last = steps[-1]["id"]
    page.locator(".table-box").evaluate("box => { box.scrollTop = box.scrollHeight }")
    expect(page.locator(f"tr[data-step={json.dumps(last)}]")).to_be_visible()
    page.get_by_role("searchbox").fill(last)
    page.locator(f"tr[data-step={json.dumps(last)}]").click()
    expect(drawer(page)).to_have_attribute("data-drawer", last)
    page.get_by_role("tab", name="Timeline").click()
    expect(page.locator(".timeline-row").first).to_be_visible()
    assert page.locator(".timeline-row").count() < 100
