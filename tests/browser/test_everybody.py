"""The page can be used with a keyboard, a screen reader, a phone, and in two languages (I4)."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect
from tests.browser.looks import act, address, drawer, is_now, live, node
from tests.browser.served import Served
from tests.browser.stories import trip

Open = Callable[..., Page]
TABS = ("graph", "timeline", "steps", "events", "plan", "files", "whatif")

UNNAMED = Path(__file__).with_name("unnamed.js").read_text()


@pytest.fixture(scope="module")
def stuck(shared: Served) -> str:
    """A run with something of everything, waiting for a word."""
    run = shared.begin(trip(), "A trip for everybody")
    shared.wait(run, "waiting")
    return run


def test_the_tools_of_the_graph_cover_no_step(shared: Served, window: Open) -> None:
    """I4: on a phone a long plan is fitted between its tools and its key, under neither."""
    steps = [{"id": f"s{n}", "tool": "note", "needs": [f"s{n - 1}"] if n else []} for n in range(14)]
    run = shared.begin(steps, "A long way down")
    shared.wait(run, "completed")
    page = window(address(shared.url, run), phone=True)
    is_now(page, "s13", "succeeded")
    page.wait_for_function(
        """() => {
            const of = (one) => one.getBoundingClientRect();
            const nodes = [...document.querySelectorAll(".step-node")].map(of);
            const panels = [...document.querySelectorAll(".graph-tools, .legend")].map(of);
            const apart = (a, b) => a.bottom <= b.top || b.bottom <= a.top || a.right <= b.left || b.right <= a.left;
            return nodes.length === 14 && panels.length === 2 && nodes.every((a) => panels.every((b) => apart(a, b)));
        }"""
    )


@pytest.mark.parametrize("tab", TABS)
def test_everything_has_a_role_and_a_name(shared: Served, window: Open, stuck: str, tab: str) -> None:
    """I4: one main part, one first heading, a name for whatever can be used, a status that is spoken."""
    page = window(address(shared.url, stuck, tab, "sky"))
    expect(drawer(page).locator(".attempt").first).to_be_visible()
    assert page.evaluate(UNNAMED) == []
    assert page.get_by_role("main").count() == 1
    assert page.get_by_role("banner").count() >= 1
    assert page.get_by_role("navigation").count() == 1
    assert page.get_by_role("heading", level=1).count() == 1
    assert page.get_by_role("tab", selected=True).count() == 1
    expect(page.get_by_role("complementary", name="Step Ask for the sky")).to_be_visible()
    expect(page.locator("[role=status][aria-live=polite]").first).to_have_text("The run is waiting")


def test_the_graph_has_a_table_beside_it(shared: Served, window: Open, stuck: str) -> None:
    """I4: a step in the graph says what it is in words; the table has every step, with headers for rows and columns."""
    page = window(address(shared.url, stuck))
    expect(page.get_by_role("button", name="Get the permit, broken: failed")).to_be_visible()
    page.get_by_role("tab", name="Steps").click()
    table = page.get_by_role("table")
    expect(table.get_by_role("rowheader")).to_have_count(11)
    expect(table.get_by_role("columnheader")).to_have_count(6)
    expect(table.get_by_role("row", name=re.compile("failed.*Get the permit"))).to_be_visible()


def test_a_dialog_keeps_the_focus_and_gives_it_back(shared: Served, window: Open, stuck: str) -> None:
    """I4: the focus stays inside while it is open, Escape closes it, and the focus is where it was."""
    page = window(address(shared.url, stuck))
    button = page.locator("[data-action='cancel']")
    button.focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog", name="Cancel the run")).to_be_visible()
    for _ in range(8):
        page.keyboard.press("Tab")
        inside = "document.activeElement === document.body || !!document.activeElement.closest('dialog')"
        assert page.evaluate(inside)
    page.keyboard.press("Escape")
    expect(page.locator("dialog")).to_have_count(0)
    expect(button).to_be_focused()


def test_the_keyboard_is_enough(shared: Served, window: Open, stuck: str) -> None:
    """I4: the list, the tabs, the steps and the search by keys alone; what is typed is never taken for a command."""
    page = window(shared.url)
    live(page)
    expect(page.locator(f"[data-run='{stuck}']")).to_be_visible()
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keyboard")).to_be_visible()
    page.keyboard.press("Escape")
    page.keyboard.press("/")
    page.keyboard.type("jk? g l everybody")
    expect(page.get_by_role("searchbox")).to_have_value("jk? g l everybody")
    page.get_by_role("searchbox").fill("for everybody")
    expect(page.locator(".run-row")).to_have_count(1)
    page.keyboard.press("Escape")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    is_now(page, "permit", "failed")
    for key, tab in {"t": "timeline", "s": "steps", "e": "events", "p": "plan", "a": "files", "g": "graph"}.items():
        page.keyboard.press("g")
        page.keyboard.press(key)
        expect(page.locator(f"#tab-{tab}")).to_have_attribute("aria-selected", "true")
    page.keyboard.press("j")
    expect(drawer(page)).to_have_attribute("data-drawer", "wishes")
    page.keyboard.press("j")
    expect(drawer(page)).to_have_attribute("data-drawer", "sky")
    page.keyboard.press("k")
    expect(drawer(page)).to_have_attribute("data-drawer", "wishes")
    page.keyboard.press("Escape")
    expect(drawer(page)).to_have_count(0)
    page.locator("#tab-graph").focus()
    page.keyboard.press("ArrowRight")
    expect(page.locator("#tab-timeline")).to_be_focused()
    page.keyboard.press("g")
    page.keyboard.press("l")
    expect(page.get_by_role("heading", level=1)).to_have_text("Runs")


ENGLISH = re.compile(r"[A-Za-z]{3,}(?: [A-Za-z]{2,}){2,}")


def test_the_page_speaks_chinese(shared: Served, window: Open, stuck: str) -> None:
    """I4: by the browser's language or by a button; the server's sentences too; nothing stays English."""
    page = window(address(shared.url, stuck, "steps", "permit"), locale="zh-CN")
    expect(page.get_by_role("tab", name="步骤")).to_be_visible()
    assert page.evaluate("document.documentElement.lang") == "zh-CN"
    expect(page.locator(".run-line .chip")).to_have_text("等待中")
    expect(page.locator(".verdict-text")).to_contain_text("等待确认")
    expect(drawer(page).locator(".story")).to_contain_text("失败")
    said_by_tools = ["the office wants another key", "is out of service", "connection reset by", "writing budget"]
    given = [*(step["title"] for step in trip()), "A trip for everybody", "Book the trip for", *said_by_tools]
    data = "|".join([*given, r"rerail retry [a-z0-9]+ [-\w ]+"])
    for tab in set(TABS) - {"events"}:  # the history is shown as it is written
        page.goto(address(shared.url, stuck, tab, "permit"))
        expect(drawer(page).locator(".attempt").first).to_be_visible()
        said = re.sub(data, "", page.locator("body").inner_text())
        assert ENGLISH.findall(said) == []
    act(page, "cancel")
    expect(page.get_by_role("dialog", name="取消任务")).to_be_visible()
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Switch to English").click()
    expect(page.get_by_role("tab", name="Steps")).to_be_visible()
    expect(page.locator(".run-line .chip")).to_have_text("waiting")


@pytest.mark.parametrize("tab", TABS)
def test_a_phone_is_wide_enough(shared: Served, window: Open, stuck: str, tab: str) -> None:
    """I4: nothing is wider than the screen, and every step can be opened and closed."""
    page = window(address(shared.url, stuck, tab), phone=True)
    live(page)
    expect(page.locator("#view")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert page.locator(".run-main").evaluate("box => box.scrollWidth <= box.clientWidth")
    page.goto(address(shared.url, stuck, tab, "sky"))
    expect(drawer(page).locator(".attempt").first).to_be_visible()
    box: Any = drawer(page).bounding_box()
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= 390
    drawer(page).get_by_role("button", name="Close").click()
    expect(drawer(page)).to_have_count(0)


def test_themes_follow_the_system_and_the_button(shared: Served, window: Open) -> None:
    """I4: dark where the system is dark, and as chosen after that, over a reload."""
    page = window(shared.url, color_scheme="dark")
    ground = "getComputedStyle(document.body).backgroundColor"
    dark = page.evaluate(ground)
    page.get_by_role("button", name="Theme: as the system").click()
    light = page.evaluate(ground)
    assert light != dark
    page.reload()
    assert page.evaluate(ground) == light
    page.get_by_role("button", name="Theme: light").click()
    assert page.evaluate(ground) == dark


def test_nothing_moves_for_those_who_do_not_want_it(shared: Served, window: Open) -> None:
    """I4: with reduced motion, what runs does not spin."""
    run = shared.begin(
        [{"id": "a", "tool": "note"}, {"id": "b", "tool": "note", "args": {"gate": "still"}, "needs": ["a"]}]
    )
    moving = "document.getAnimations().filter(one => one.playState === 'running').length"
    page = window(address(shared.url, run))
    is_now(page, "b", "running")
    assert page.evaluate(moving) > 0
    calm = window(address(shared.url, run), reduced_motion="reduce")
    is_now(calm, "b", "running")
    assert node(calm, "b").is_visible()
    assert calm.evaluate(moving) == 0
    shared.open("still")
