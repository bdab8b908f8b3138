"""A stuck run is acted on with one click, and nothing happens before it was shown what would (X7, R7, I4)."""

from __future__ import annotations

import re
from collections.abc import Callable

from playwright.sync_api import Page, expect
from tests.browser.looks import act, address, drawer, is_now, node, run_is, send
from tests.browser.served import Served

Open = Callable[..., Page]


def test_a_retry_is_shown_before_it_happens(shared: Served, window: Open) -> None:
    """R2, R7: the dry run names what would run again and calls nothing; the retry then runs that and no more."""
    run = shared.begin([
        {"id": "good", "tool": "flaky", "args": {"name": "kept", "fails": 0}},
        {"id": "bad", "tool": "closed", "args": {"name": "retried"}, "needs": ["good"], "retries": 0},
        {"id": "after", "tool": "note", "args": {"text": "done"}, "needs": ["bad"]},
    ], "Fail, and be retried")  # fmt: skip
    shared.wait(run, "failed")
    page = window(address(shared.url, run))
    act(page, "retry")
    preview = page.locator("[data-preview=ready]")
    expect(preview.locator(".rerun li")).to_have_count(2)
    expect(preview.locator(".rerun li").nth(0)).to_contain_text("bad")
    expect(preview.locator(".rerun li").nth(0)).to_contain_text("root")
    expect(preview.locator(".rerun li").nth(1)).to_contain_text("after")
    expect(preview.locator(".kept")).to_contain_text("1 step kept")
    called = shared.count("retried")
    page.keyboard.press("Escape")
    run_is(page, "failed")
    assert shared.count("retried") == called, "nothing has happened yet"

    shared.open("mended-retried")
    act(page, "retry")
    expect(page.locator("dialog [data-action='send']")).to_have_text("Run 2 steps again")
    send(page)
    run_is(page, "completed")
    is_now(page, "after", "succeeded")
    expect(page.locator(".run-line")).to_contain_text("round 3")
    assert shared.count("retried") == called + 1
    assert shared.count("kept") == 1


def test_effects_that_would_happen_twice_are_named(shared: Served, window: Open) -> None:
    """R7, E3: before a run starts over, the calls that must not happen twice are named."""
    run = shared.begin([{"id": "mail", "tool": "send", "args": {"to": "ada"}}], "Write once")
    shared.wait(run, "completed")
    page = window(address(shared.url, run))
    act(page, "retry")
    expect(page.locator("[data-preview=refused]")).to_be_visible()
    expect(page.locator("dialog [data-action='send']")).to_be_disabled()
    page.get_by_label("From scratch").check()
    page.get_by_label("Force").check()
    expect(page.locator("dialog [role=alert]")).to_contain_text("1 effect would happen again")
    expect(page.locator("dialog [role=alert]")).to_contain_text("mail")
    assert shared.count("send-ada") == 1
    send(page)
    expect(page.locator(".run-line")).to_contain_text("round 2")
    run_is(page, "completed")
    assert shared.count("send-ada") == 2


def test_a_step_is_skipped(shared: Served, window: Open) -> None:
    """X7: what depends on the step is named first; the reason is in the history."""
    run = shared.begin([
        {"id": "slow", "tool": "note", "args": {"gate": "never"}},
        {"id": "stuck", "tool": "note", "needs": ["slow"]},
        {"id": "end", "tool": "note", "needs": [{"step": "stuck", "when": "done"}]},
    ], "Do without")  # fmt: skip
    page = window(address(shared.url, run, step="stuck"))
    act(page, "step-skip")
    expect(page.locator("dialog")).to_contain_text("1 step needs it: end")
    preview = page.locator("[data-preview=ready]")
    expect(preview.locator("[data-becomes=skipped]")).to_contain_text("stuck")
    expect(preview.locator(".rerun li").nth(1)).to_contain_text("end")
    expect(preview.locator("h3 .chip")).to_have_text("run: running")
    assert [one["type"] for one in shared.api("GET", f"/runs/{run}/events")["events"]].count("acted") == 0
    page.locator("dialog input").fill("nobody wants it")
    send(page)
    is_now(page, "stuck", "skipped")
    acted = [event for event in shared.api("GET", f"/runs/{run}/events")["events"] if event["type"] == "acted"]
    assert [(event["action"], event["step"], event["reason"]) for event in acted] == [
        ("skip", "stuck", "nobody wants it")
    ]
    shared.api("POST", f"/runs/{run}/cancel", {})


def test_a_gate_shows_the_call_that_waits(shared: Served, window: Open) -> None:
    """X7: the call is shown as it would be made, its arguments resolved; agreeing runs it, refusing fails it."""
    steps = [
        {"id": "draft", "tool": "note", "args": {"text": "Dear Ada"}},
        {"id": "post", "tool": "send", "args": {"to": "{to}", "text": "${draft.text}"}, "confirm": "Send it?"},
    ]  # fmt: skip
    agreed = shared.begin([steps[0], {**steps[1], "args": {"to": "agreed", "text": "${draft.text}"}}], "Ask first")
    shared.wait(agreed, "waiting")
    page = window(address(shared.url, agreed))
    expect(page.locator(".waiting-card")).to_contain_text("Send it?")
    act(page, "waiting-confirm")
    expect(page.locator("dialog .value")).to_contain_text('"text": "Dear Ada"')
    expect(page.locator("[data-preview=ready]")).to_have_count(2)
    agree, refuse = page.locator("[data-preview=ready]").all()
    expect(agree).to_contain_text("If you agree")
    expect(agree.locator(".rerun li")).to_contain_text("post")
    expect(refuse.locator("[data-becomes=failed]")).to_contain_text("post")
    expect(refuse.locator("h3 .chip")).to_have_text("run: failed")
    assert shared.count("send-agreed") == 0
    send(page)
    run_is(page, "completed")
    assert shared.count("send-agreed") == 1

    refused = shared.begin(
        [steps[0], {**steps[1], "args": {"to": "refused", "text": "${draft.text}"}}], "Ask, and hear no"
    )
    shared.wait(refused, "waiting")
    page.goto(address(shared.url, refused, step="post"))
    act(page, "step-confirm")
    page.locator("dialog [data-action='refuse']").click()
    is_now(page, "post", "failed")
    expect(drawer(page).locator(".card.bad")).to_contain_text("CONFIRM_REFUSED")
    assert shared.count("send-refused") == 0


def test_x10_a_gate_that_opens_again_shows_both_calls_and_takes_edits(shared: Served, window: Open) -> None:
    """X10: a hint of the tool asks again, with what was agreed to; arguments are edited, checked, and agreed to."""
    city = [{"id": "look", "tool": "forecast", "args": {"city": "Reykjavík"}, "confirm": "Look there?"}]
    run = shared.begin(city, "Ask before looking")
    shared.wait(run, "waiting")
    page = window(address(shared.url, run))
    expect(page.locator(".waiting-card .gate-call")).to_have_text('forecast(city="Reykjavík")')
    act(page, "waiting-confirm")
    expect(page.locator("dialog [data-before]")).to_have_count(0)
    send(page)
    expect(page.locator(".waiting-card .gate-call")).to_have_text('forecast(city="Reykjavik")')
    act(page, "waiting-confirm")
    before = page.locator("dialog [data-before]")
    expect(before).to_contain_text("Agreed to before: forecast")
    expect(before).to_contain_text('"city": "Reykjavík"')
    expect(page.locator("dialog .card-head").first).to_contain_text("Now it would be: forecast")
    act(page, "edit-args")
    typed = page.get_by_label("Arguments")
    agree = page.locator("dialog [data-action='send']")
    typed.fill("{}")
    expect(page.locator("dialog [role=alert]").last).to_contain_text("cannot be taken away here: city")
    expect(agree).to_be_disabled()
    typed.fill('{"city": 7}')
    expect(page.locator("[data-preview=refused]")).to_contain_text("city")
    expect(agree).to_be_disabled()
    typed.fill('{"city": "Reykjavik", "colour": "red"}')
    expect(page.locator("[data-preview=refused]")).to_contain_text("colour")
    typed.fill('{"city": "Akureyri"}')
    expect(agree).to_have_text("Agree, with the changes")
    expect(agree).to_be_enabled()
    send(page)
    for _ in range(100):  # the page is told before the list is
        acted = [one for one in shared.api("GET", f"/runs/{run}/events")["events"] if one["type"] == "acted"]
        if len(acted) == 2:
            break
        page.wait_for_timeout(100)
    assert len(acted) == 2 and acted[-1]["call"]["args"] == {"city": "Akureyri"}


def test_a_doubt_is_resolved(shared: Served, window: Open) -> None:
    """E3: a lost answer of a call that must not be repeated waits for somebody who looked, and takes each answer."""

    def doubt(to: str) -> str:
        run = shared.begin([
            {"id": "pay", "tool": "send", "args": {"to": to, "lost": True}},
            {"id": "thank", "tool": "note", "args": {"text": "${pay.sent}"}},
        ], "Pay once")  # fmt: skip
        shared.wait(run, "waiting")
        return run

    page = window(address(shared.url, doubt("happened")))
    is_now(page, "pay", "in_doubt")
    act(page, "waiting-in_doubt")
    expect(page.locator("dialog input:checked")).to_have_count(0)
    expect(page.locator("dialog [data-action='send']")).to_be_disabled()
    expect(page.locator("dialog [data-preview]")).to_be_hidden()
    page.get_by_label("It happened").check()
    expect(page.locator("[data-preview=ready] [data-becomes=succeeded]")).to_contain_text("pay")
    page.get_by_role("textbox").fill('{"sent": "by hand"}')
    send(page)
    run_is(page, "completed")
    node(page, "thank").click()
    expect(drawer(page)).to_contain_text("by hand")
    assert shared.count("send-happened") == 1

    page.goto(address(shared.url, doubt("again"), step="pay"))
    act(page, "step-resolve")
    page.get_by_label("call it again").check()
    expect(page.locator("dialog .notice.warn").first).to_be_visible()
    expect(page.locator("[data-preview=ready] [role=alert]")).to_contain_text("pay")
    send(page)
    run_is(page, "completed")
    assert shared.count("send-again") == 2

    page.goto(address(shared.url, doubt("lost"), step="pay"))
    act(page, "step-resolve")
    page.get_by_label("count as failed").check()
    expect(page.locator("[data-preview=ready] [data-becomes=skipped]")).to_contain_text("thank")
    send(page)
    run_is(page, "failed")
    is_now(page, "thank", "skipped")
    assert shared.count("send-lost") == 1


def test_an_argument_that_is_deleted_is_gone(shared: Served, window: Open) -> None:
    """H7, X7: a repair calls the step as it stands in the dialog, and not with what was taken out of it."""
    args = {"name": "repaired", "message": "not this one"}
    run = shared.begin([{"id": "a", "tool": "broken", "args": args}], "Too many words")
    shared.wait(run, "failed")
    page = window(address(shared.url, run, step="a"))
    act(page, "step-repair")
    typed = page.locator("dialog textarea")
    expect(typed).to_have_value(re.compile("not this one"))
    expect(page.locator("dialog [data-action='send']")).to_be_disabled()
    typed.fill("[1]")
    expect(page.locator("dialog [role=alert]")).to_contain_text("no JSON object")
    typed.fill('{"name": "repaired", "massage": 1}')
    expect(page.locator("[data-preview=refused]")).to_contain_text("massage")
    expect(page.locator("dialog [data-action='send']")).to_be_disabled()
    typed.fill('{"name": "repaired"}')
    expect(page.locator("[data-preview=ready] .rerun li")).to_contain_text("a")
    assert shared.count("repaired") == 1, "nothing has happened yet"
    send(page)
    expect(drawer(page).locator(".card.bad")).to_contain_text("the key is missing")
    assert shared.api("GET", f"/runs/{run}/steps/a")["args"] == {"name": "repaired"}


def test_a_run_is_paused_resumed_added_to_and_cancelled(shared: Served, window: Open) -> None:
    """X7, P5: each from the page; steps with faults are refused with their codes, and the run goes on."""
    run = shared.begin([
        {"id": "a", "tool": "note", "args": {"gate": "pause-a"}},
        {"id": "b", "tool": "note", "needs": ["a"], "args": {"gate": "pause-b"}},
    ], "Be interrupted")  # fmt: skip
    page = window(address(shared.url, run))
    is_now(page, "a", "running")
    act(page, "pause")
    send(page)
    shared.open("pause-a")
    is_now(page, "a", "succeeded")
    run_is(page, "waiting")
    is_now(page, "b", "ready")
    act(page, "waiting-paused")
    send(page)
    is_now(page, "b", "running")

    act(page, "add")
    page.locator("dialog textarea").fill('[{"id": "c", "tool": "note", "needs": ["nowhere"]}]')
    send(page)
    expect(page.locator("dialog .faults")).to_contain_text("nowhere")
    page.locator("dialog textarea").fill("- id: c\n  tool: note\n  needs: [b]\n")
    send(page)
    is_now(page, "c", "pending")

    act(page, "cancel")
    page.locator("dialog input").fill("enough")
    send(page)
    run_is(page, "cancelled")
    is_now(page, "b", "cancelled")


def test_a_refusal_is_told_with_its_code(shared: Served, window: Open) -> None:
    """X7, I4: what the server refuses is told with its code, and what to do; nothing is lost of what was typed."""
    run = shared.begin(
        [{"id": "a", "tool": "note", "args": {"gate": "refusal"}}, {"id": "b", "tool": "note", "needs": ["a"]}]
    )
    page = window(address(shared.url, run, step="b"))
    act(page, "step-skip")
    page.locator("dialog input").fill("too late")
    shared.api("POST", f"/runs/{run}/skip", {"step": "b"})
    shared.open("refusal")
    shared.wait(run, "completed", "failed")
    send(page)
    toast = page.locator(".toast.bad")
    expect(toast.locator("code")).to_be_visible()
    expect(page.locator("dialog input")).to_have_value("too late")
    toast.get_by_role("button").click()
    expect(toast).to_have_count(0)


def test_a_server_that_may_only_be_looked_at_offers_nothing_else(
    server: Callable[..., Served], window: Open, shared: Served
) -> None:
    """I4: read only means no buttons that would be refused."""
    served = server(read_only=True)
    page = window(served.url)
    expect(page.get_by_text("read only")).to_be_visible()
    expect(page.locator("[data-action='start']")).to_have_count(0)
