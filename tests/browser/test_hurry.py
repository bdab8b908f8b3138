"""People who hurry: focus where it is wanted, two windows at once, many runs at once, files that are put right (I4)."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect
from tests.browser.looks import act, address, drawer, is_now, live, run_is, send
from tests.browser.served import Served
from tests.browser.stories import trip

Open = Callable[..., Page]


def test_what_there_is_to_type_has_the_focus(server: Callable[..., Served], window: Open) -> None:
    """I4: a dialog begins at its field, or at its title, and never at the way out; then the focus goes back."""
    served = server(token="s3cret")
    run = served.begin([{"id": "a", "tool": "note", "args": {"gate": "never"}}], "To be typed at")
    page = window(address(served.url, run))
    expect(page.get_by_role("textbox", name="Token")).to_be_focused()
    page.keyboard.type("s3cret")
    page.keyboard.press("Enter")
    is_now(page, "a", "running")
    page.locator("[data-action='cancel']").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_label("Reason (optional)")).to_be_focused()
    page.keyboard.press("Escape")
    expect(page.locator("[data-action='cancel']")).to_be_focused()
    page.keyboard.press("?")
    expect(page.get_by_role("heading", name="Keyboard")).to_be_focused()
    page.keyboard.press("Escape")
    page.keyboard.press("n")
    expect(page.get_by_label("Plan, as YAML or JSON")).to_be_focused()
    page.keyboard.type("objective: typed")
    expect(page.get_by_label("Plan, as YAML or JSON")).to_have_value("objective: typed")


@pytest.mark.parametrize(("width", "least"), [(1280, 180), (1100, 130)])
def test_names_have_room_beside_the_drawer(shared: Served, window: Open, width: int, least: int) -> None:
    """I4: with a step open, the table still tells which step is which."""
    run = shared.begin(trip("room"), "Beside a drawer")
    page = window(address(shared.url, run, "steps", "sky"), viewport={"width": width, "height": 800})
    expect(drawer(page)).to_be_visible()
    title = page.locator("tr[data-step=wishes] .c-title")
    expect(title).to_be_visible()
    box = title.bounding_box()
    assert box is not None and box["width"] >= least
    cut = page.locator(".cell-title").evaluate_all(
        "all => all.filter((one) => one.scrollWidth > one.clientWidth).length"
    )
    assert cut == 0, f"{cut} titles are cut off"
    shared.api("POST", f"/runs/{run}/cancel", {})


def test_the_summary_of_a_run_that_waits_is_a_sentence(shared: Served, window: Open) -> None:
    """V7: no words of the protocol; each thing that waits in plain words, in both languages."""
    run = shared.begin([
        {"id": "g", "tool": "note", "confirm": True},
        {"id": "p", "tool": "send", "args": {"to": "doubt-in-words", "lost": True}},
    ], "Waits twice")  # fmt: skip
    shared.wait(run, "waiting")
    page = window(address(shared.url, run))
    expect(page.locator(".verdict-text")).to_have_text("waits for a person: g has to be confirmed, p is in doubt")
    chinese = window(address(shared.url, run), locale="zh-CN")
    expect(chinese.locator(".verdict-text")).to_have_text("需要人工处理：g：等待确认, p：结果不明")


def test_events_are_told_in_the_readers_language(shared: Served, window: Open) -> None:
    """I4, T12: types and what they say, also of what comes while one looks; the event itself stays as it is."""
    run = shared.begin(
        [*trip("told"), {"id": "last", "tool": "note", "needs": [{"step": "route", "when": "done"}]}], "自己的话"
    )
    page = window(address(shared.url, run, "events"), locale="zh-CN")
    row = page.locator("[data-type=step_failed]").first
    expect(row).to_contain_text("步骤失败")
    before = page.locator("[data-seq]").last.get_attribute("data-seq")
    shared.open("told")
    page.wait_for_function(
        f"() => Number([...document.querySelectorAll('[data-seq]')].at(-1).dataset.seq) > {before} + 3"
    )
    page.locator("[data-type=waiting]").first.wait_for()
    shown = page.locator(".event-row").evaluate_all(
        "all => all.map((row) => [row.dataset.type, row.querySelector('.event-type').textContent,"
        " row.querySelector('.event-brief').textContent])"
    )
    english = [one for one in shown if re.search("[a-z]{3}", one[1])]
    assert english == [] and len(shown) > 20
    told = {kind: words for kind, _, words in shown}
    assert "调用" in told["step_started"] or re.search("[一-鿿]", told["step_started"])
    assert all(re.search("[一-鿿]", told[kind]) for kind in ("step_succeeded", "artifact_created", "waiting"))
    row.click()
    detail = page.locator(".event-detail .value")
    expect(detail).to_contain_text('"type": "step_failed"')
    expect(detail).not_to_contain_text('"words"')


def test_two_windows_act_at_once(shared: Served, window: Open) -> None:
    """X7, T7: the second word on the same gate is refused with its code; nothing happens twice, both see the same."""
    run = shared.begin([{"id": "gate", "tool": "send", "args": {"to": "both"}, "confirm": True}], "Two hands")
    shared.wait(run, "waiting")
    one, two = window(address(shared.url, run)), window(address(shared.url, run))
    for page in (one, two):
        act(page, "waiting-confirm")
        expect(page.locator("dialog .value")).to_be_visible()
    one.locator("dialog [data-action='send']").click(no_wait_after=True)
    two.locator("dialog [data-action='refuse']").click(no_wait_after=True)
    shared.wait(run, "completed", "failed")
    for page in (one, two):
        expect(page.locator(".waiting-card")).to_have_count(0)
        expect(page.locator(".toast").first).to_be_visible()
    told = [page.locator(".toast.bad").count() for page in (one, two)]
    assert sorted(told) == [0, 1], told
    assert shared.count("send-both") <= 1


def test_every_failed_run_is_retried_with_one_button(server: Callable[..., Served], window: Open) -> None:
    """T4, R7: all are shown before anything happens, with what cannot be retried and why; then they go on."""
    served = server("--set", "retry.max_retry_rounds=0")
    page = window(served.url)
    live(page)
    expect(page.locator("[data-action='retry-all']")).to_have_count(0)
    runs = [
        served.begin([{"id": "a", "tool": "closed", "args": {"name": name}, "retries": 0}], f"Fails as {name}")
        for name in ("one", "two")
    ]
    final = served.begin([{"id": "a", "tool": "broken", "args": {"name": "final"}}], "Fails for good")
    good = served.begin([{"id": "a", "tool": "note"}], "Does not fail")
    for run in (*runs, final):
        served.wait(run, "failed")
    act(page, "retry-all")
    preview = page.locator("[data-preview=ready]")
    expect(preview.locator("[data-ok=true]")).to_have_count(2)
    refused = preview.locator("[data-ok=false]")
    expect(refused).to_have_count(1)
    expect(refused).to_contain_text("Fails for good")
    expect(refused.locator("code").nth(1)).to_have_text("NOT_RETRYABLE")
    assert served.count("one") == served.count("two") == 1, "nothing has happened yet"
    served.open("mended-one", "mended-two")
    expect(page.locator("dialog [data-action='send']")).to_have_text("Retry 2 runs")
    send(page)
    expect(page.locator(".toast")).to_contain_text("2 runs go on")
    for run in (*runs, good):
        expect(page.locator(f"[data-run='{run}'] .chip")).to_have_class("chip s-completed")
    expect(page.locator(f"[data-run='{final}'] .chip")).to_have_class("chip s-failed")
    assert served.count("one") == served.count("two") == 2


GATED = [
    {
        "id": "draft",
        "tool": "report",
        "args": {"name": "letter.md"},
        "produces": [{"path": "letter.md", "non_empty": True}],
    },
    {"id": "post", "tool": "reads", "args": {"path": "letter.md"}, "needs": ["draft"], "confirm": "Post it?"},
]


def test_a_gate_is_confirmed_with_other_files(shared: Served, window: Open, tmp_path: Path) -> None:
    """T2, X7: the text of a file is changed on the page, or another file is given; bad ones are refused."""
    run = shared.begin(GATED, "Put right first")
    shared.wait(run, "waiting")
    page = window(address(shared.url, run))
    act(page, "waiting-confirm")
    act(page, "edit")
    field = page.get_by_label("What letter.md should say")
    expect(field).to_have_value("# letter.md\n\nAll is well.\n")
    field.fill("")
    send(page)
    expect(page.locator(".toast.bad code")).to_have_text("FILE_DAMAGED")
    field.fill("Dear Ada, 好的")
    expect(page.locator("[data-file='letter.md'] .tag")).to_have_text("changed")
    expect(page.locator("dialog [data-action='send']")).to_have_text("Agree, with the changes")
    send(page)
    run_is(page, "completed")
    assert shared.api("GET", f"/runs/{run}")["steps"]["post"]["output"] == {"read": "Dear Ada, 好的"}
    acted = [one for one in shared.api("GET", f"/runs/{run}/events")["events"] if one["type"] == "acted"]
    assert acted[0]["action"] == "confirm" and [file["path"] for file in acted[0]["files"]] == ["letter.md"]

    run = shared.begin(GATED, "Another file")
    shared.wait(run, "waiting")
    page.goto(address(shared.url, run))
    act(page, "waiting-confirm")
    (tmp_path / "other.md").write_bytes("From a file, ü".encode())
    page.locator("dialog input[type=file]").set_input_files(tmp_path / "other.md")
    expect(page.locator("[data-file='letter.md'] .tag")).to_have_text("replaced by other.md")
    act(page, "undo")
    expect(page.locator("dialog [data-action='send']")).to_have_text("Agree")
    page.locator("dialog input[type=file]").set_input_files(tmp_path / "other.md")
    send(page)
    run_is(page, "completed")
    assert shared.api("GET", f"/runs/{run}")["steps"]["post"]["output"] == {"read": "From a file, ü"}


def test_tools_settings_and_memory_are_shown(server: Callable[..., Served], window: Open) -> None:
    """I7, H10: what plans may call, how the server is set, what failures taught; and the memory can be cleared."""
    (served := server("--set", "run.max_attempts=77")).wait(
        served.begin([{"id": "f", "tool": "flaky", "args": {"name": "taught"}}]), "completed"
    )
    page = window(served.url)
    page.get_by_role("link", name="Tools, settings, memory").click()
    flaky = page.locator("[data-tool=flaky]")
    expect(flaky).to_contain_text("Fail a few times in each run")
    expect(flaky).to_contain_text("name needed")
    row = page.locator("[data-setting='run.max_attempts']")
    expect(row).to_contain_text("77")
    expect(page.locator("[data-setting='retry.max_retries']")).to_be_visible()
    act(page, "changed")
    expect(page.locator("[data-setting='retry.max_retries']")).to_have_count(0)
    memory = page.locator("[data-part=memory] tbody tr")
    expect(memory).to_have_count(1)
    expect(memory).to_contain_text("flaky")
    expect(memory).to_contain_text("retry")
    page.get_by_role("searchbox").fill("max_attempts")
    expect(page.locator("[data-setting]")).to_have_count(1)
    page.get_by_role("searchbox").fill("")
    act(page, "forget")
    send(page)
    expect(page.locator("[data-part=memory]")).to_contain_text("Nothing was learnt yet")
    assert served.api("GET", "/memory")["memory"] == []


def test_a_run_that_is_removed_while_it_is_shown(server: Callable[..., Served], window: Open) -> None:
    """I4: the page says so, offers nothing that cannot be done, and the list lets go of it."""
    served = server()
    run = served.begin([{"id": "a", "tool": "note", "confirm": True}], "Soon gone")
    served.wait(run, "waiting")
    page, runs = window(address(served.url, run)), window(served.url)
    expect(page.locator("[data-action='cancel']")).to_be_visible()
    expect(runs.locator(f"[data-run='{run}']")).to_be_visible()
    [store] = (served.folder / ".rerail").glob("*.db")
    with sqlite3.connect(store) as database:
        database.execute("DELETE FROM events WHERE run = ?", (run,))
        database.execute("DELETE FROM runs WHERE run = ?", (run,))
    expect(page.locator(".run-problem")).to_contain_text(f"there is no run '{run}'")
    expect(page.locator("[data-action='cancel']")).to_have_count(0)
    expect(runs.locator(f"[data-run='{run}']")).to_have_count(0)
