"""A run is understood at a glance, while it happens (I4)."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable

from playwright.sync_api import Page, expect
from tests.browser.looks import act, address, drawer, is_now, live, node, run_is, send
from tests.browser.served import TOOLS, Served
from tests.browser.stories import trip

Open = Callable[..., Page]

PLAN = """
objective: See every status go by
steps:
  - {id: first, title: First things first, tool: note, args: {text: hello, gate: one}}
  - {id: second, tool: note, args: {text: "${first.text}", gate: two}}
  - {id: gate, tool: note, needs: [second], confirm: "Go on?"}
  - {id: bad, tool: broken, needs: [second]}
  - {id: after, tool: note, needs: [bad]}
"""


def test_a_run_is_started_from_the_page_and_every_change_of_status_is_seen(shared: Served, window: Open) -> None:
    """I4, P5: faults are shown while a plan is typed; then each step's status, as it changes, without a reload."""
    page = window(shared.url)
    live(page)
    act(page, "start")
    text = page.locator("dialog textarea")
    text.fill(PLAN.replace("tool: broken", "tool: brokn"))
    expect(page.locator("[data-check=bad]")).to_contain_text("brokn")
    expect(page.locator("dialog [data-action='send']")).to_be_disabled()
    text.fill(PLAN)
    expect(page.locator("[data-check=good]")).to_contain_text("5 steps")
    send(page)

    expect(page.get_by_role("heading", level=1)).to_have_text("See every status go by")
    run_is(page, "running")
    is_now(page, "first", "running")
    is_now(page, "second", "pending")
    shared.open("one")
    is_now(page, "first", "succeeded")
    is_now(page, "second", "running")
    shared.open("two")
    is_now(page, "second", "succeeded")
    is_now(page, "bad", "failed")
    is_now(page, "after", "skipped")
    is_now(page, "gate", "waiting")
    run_is(page, "waiting")
    page.locator("[data-action='waiting-confirm']").click()
    expect(page.locator("dialog")).to_contain_text("Go on?")
    send(page)
    is_now(page, "gate", "succeeded")
    run_is(page, "failed")
    expect(page.locator("[data-verdict=bad]")).to_contain_text("bad")
    expect(page.locator("[data-count=succeeded] b")).to_have_text("3")


def test_runs_of_other_programs_appear_in_the_list_and_can_be_searched(shared: Served, window: Open) -> None:
    """I4: what the command line starts on the same store appears live; words and a status narrow the list."""
    page = window(shared.url)
    live(page)
    plan = shared.folder / "plan.yaml"
    plan.write_text("objective: Started by hand\nsteps:\n  - {id: only, tool: note, args: {gate: by-hand}}\n")
    command = [sys.executable, "-m", "rerail.cli", "run", str(plan), "--tools", str(TOOLS)]
    env = {**os.environ, "RERAIL_TEST_GATES": str(shared.gates)}
    with subprocess.Popen(command, cwd=shared.folder, env=env, stdout=-3, stderr=-3) as process:
        row = page.locator(".run-row", has_text="Started by hand")
        expect(row.locator(".chip")).to_have_class("chip s-running")
        shared.open("by-hand")
        expect(row.locator(".chip")).to_have_class("chip s-completed")
        assert process.wait(30) == 0
    failed = shared.begin([{"id": "a", "tool": "broken", "args": {"name": "listed"}}], "Bound to fail")
    expect(page.locator(f"[data-run='{failed}'] .chip")).to_have_class("chip s-failed")

    page.get_by_role("button", name="failed", exact=True).click()
    expect(row).to_have_count(0)
    expect(page.locator(f"[data-run='{failed}']")).to_be_visible()
    page.get_by_role("button", name="all", exact=True).click()
    page.get_by_role("searchbox").fill("by HAND")
    expect(row).to_be_visible()
    expect(page.locator(f"[data-run='{failed}']")).to_have_count(0)
    page.get_by_role("searchbox").fill("nothing is called that")
    expect(page.get_by_text("No run fits")).to_be_visible()


def test_a_failing_step_shows_its_ladder(shared: Served, window: Open) -> None:
    """H1, H3, H5: each attempt with its error, what was thought of it, the rung, the changed arguments."""
    run = shared.begin(trip(), "A trip north")
    shared.wait(run, "waiting")
    page = window(address(shared.url, run))

    node(page, "sky").click()
    tries = drawer(page).locator(".attempt")
    expect(tries).to_have_count(2)
    expect(tries.nth(0)).to_have_attribute("data-outcome", "failed")
    expect(tries.nth(0)).to_contain_text("no city 'Reykjavk'")
    expect(tries.nth(0).locator(".thought")).to_contain_text("adjusted arguments")
    expect(tries.nth(1)).to_have_attribute("data-outcome", "succeeded")
    expect(tries.nth(1).locator("del")).to_have_text("Reykjavk")
    expect(tries.nth(1).locator("ins")).to_have_text("Reykjavik")
    expect(drawer(page)).to_contain_text("northern lights over Reykjavik")

    node(page, "flights").click()
    expect(drawer(page).locator(".attempt")).to_have_count(3)
    expect(drawer(page).locator(".attempt").nth(2)).to_contain_text("retry")
    expect(drawer(page).locator(".story")).to_contain_text("connection reset by flights")
    node(page, "hotel").click()
    expect(drawer(page).locator(".attempt").nth(1)).to_contain_text("another tool")
    node(page, "permit").click()
    expect(drawer(page).locator(".card.bad")).to_contain_text("the office wants another key")
    expect(drawer(page).locator(".card.bad")).to_contain_text("permanent")
    node(page, "visa").click()
    expect(drawer(page)).to_contain_text("SKIP_UPSTREAM_FAILED")
    page.keyboard.press("Escape")
    expect(drawer(page)).to_have_count(0)

    act(page, "verdict")
    expect(page.locator(".verdict-rows")).to_contain_text("permit")
    expect(page.locator(".verdict-rows")).to_contain_text("visa")


def test_the_other_views_tell_the_same_run(shared: Served, window: Open) -> None:
    """I1, I4: the timeline has every attempt and wait, the events are all there once, files can be saved."""
    run = shared.begin(trip(), "The same in other words")
    view = shared.wait(run, "waiting")
    page = window(address(shared.url, run, "timeline"))
    expect(page.locator(".span.o-succeeded")).to_have_count(
        sum(span["outcome"] == "succeeded" for step in view["steps"].values() for span in step["spans"])
    )
    assert page.locator(".span.o-wait").count() == sum(len(step["waits"]) for step in view["steps"].values())

    page.get_by_role("tab", name="Steps").click()
    expect(page.locator("tr[data-step]")).to_have_count(11)
    page.get_by_role("searchbox").fill("permit")
    expect(page.locator("tr[data-step]")).to_have_count(1)
    page.get_by_role("searchbox").fill("")
    page.get_by_role("button", name="Attempts").click()
    assert page.locator("tr[data-step]").first.get_attribute("data-step") == "flights"

    page.get_by_role("tab", name="Events").click()
    written = [event["seq"] for event in shared.api("GET", f"/runs/{run}/events?limit=1000")["events"]]
    expect(page.get_by_role("combobox")).to_contain_text(f"All {len(written)} events")
    page.get_by_role("combobox").select_option("step_failed")
    page.locator("[data-type=step_failed]").first.click()
    expect(page.locator(".event-detail")).to_contain_text('"type": "step_failed"')

    page.get_by_role("tab", name="Logs & artifacts").click()
    expect(page.locator(".log-box")).to_contain_text("writing budget.md")
    file = page.locator(".artifact-list li", has_text="budget.md")
    with page.expect_download() as saved:
        file.get_by_role("button", name="Save").click()
    assert saved.value.path().read_text() == "# budget.md\n\nAll is well.\n"
    file.get_by_role("button", name="View").click()
    expect(page.locator("dialog")).to_contain_text("All is well.")
    page.keyboard.press("Escape")
    expect(page.locator("dialog")).to_have_count(0)


def test_revisions_of_the_plan_stand_side_by_side(shared: Served, window: Open) -> None:
    """P5, X7: what a person changed is marked, step by step, and who did it is said."""
    steps = [
        {"id": "a", "tool": "broken", "args": {"name": "old"}},
        {"id": "b", "tool": "note", "needs": ["a"], "args": {"gate": "b"}},
    ]
    run = shared.begin(steps, "A plan that changes")
    shared.wait(run, "failed")
    page = window(address(shared.url, run, "plan"))
    expect(page.get_by_text("there is one revision")).to_be_visible()
    page.goto(address(shared.url, run, "plan", "a"))
    act(page, "step-repair")
    page.locator("dialog input").fill("spare")
    send(page)
    row = page.locator("[data-change=changed]")
    expect(row).to_contain_text("tool")
    expect(row.locator(".diff.gone")).to_have_text(re.compile('"tool": "broken"'))
    expect(row.locator(".diff.new")).to_have_text(re.compile('"tool": "spare"'))
    expect(page.locator("[data-change=same]")).to_have_count(0)
    page.get_by_label("Changes only").uncheck()
    expect(page.locator("[data-change=same]")).to_have_count(1)
    shared.open("b")
    run_is(page, "completed")
