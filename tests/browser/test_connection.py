"""The page comes back to where it was, and misses nothing (I1, I4)."""

from __future__ import annotations

from collections.abc import Callable

from playwright.sync_api import Page, expect
from tests.browser.looks import address, drawer, is_now, live, node, run_is, send
from tests.browser.served import Served

Open = Callable[..., Page]
CHAIN = [
    {"id": f"s{n}", "tool": "note", "args": {"gate": f"s{n}"}, "needs": [f"s{n - 1}"] if n else []} for n in range(5)
]


def test_a_reload_in_the_middle_comes_back_to_the_same_place(shared: Served, window: Open) -> None:
    """I4: the run, the tab and the step that were open are open again, as they are by then."""
    run = shared.begin(CHAIN, "Reloaded")
    page = window(address(shared.url, run))
    is_now(page, "s0", "running")
    node(page, "s1").click()
    expect(drawer(page)).to_be_visible()
    shared.open("s0")
    is_now(page, "s1", "running")
    page.reload()
    live(page)
    is_now(page, "s0", "succeeded")
    is_now(page, "s1", "running")
    expect(drawer(page)).to_have_attribute("data-drawer", "s1")
    shared.open("s1", "s2", "s3", "s4")
    run_is(page, "completed")


def test_a_server_that_was_killed_is_found_again_and_nothing_is_missed(
    server: Callable[..., Served], window: Open
) -> None:
    """I1, E1: kill -9 in the middle, and back: the page says so and reconnects, the run goes on, nothing is missed."""
    served = server()
    run = served.begin(CHAIN, "Killed in the middle")
    graph, events, runs = (
        window(address(served.url, run)),
        window(address(served.url, run, "events")),
        window(served.url),
    )
    is_now(graph, "s0", "running")
    live(events)
    live(runs)
    served.open("s0")
    is_now(graph, "s1", "running")
    served.kill()
    for page in (graph, events, runs):
        expect(page.locator("[data-connection]")).to_have_attribute("data-connection", "lost")
    is_now(graph, "s1", "running")  # what was known stays on the page

    served.start()
    for page in (graph, events, runs):
        live(page)
    run_is(graph, "running")
    served.open("s1", "s2", "s3", "s4")
    run_is(graph, "completed")
    for step in CHAIN:
        is_now(graph, str(step["id"]), "succeeded")
    expect(runs.locator(f"[data-run='{run}'] .chip")).to_have_class("chip s-completed")

    written = [event["seq"] for event in served.api("GET", f"/runs/{run}/events?limit=1000")["events"]]
    expect(events.get_by_role("combobox")).to_contain_text(f"All {len(written)} events")
    shown = [int(row.get_attribute("data-seq") or 0) for row in events.locator("[data-seq]").all()]
    assert shown == written[-len(shown) :]
    assert shown[0] == 1, "so few events are all on the page"


def test_a_token_is_asked_for_taken_from_the_address_and_kept_out_of_it(
    server: Callable[..., Served], window: Open
) -> None:
    """I4: without the token nothing is shown; one in the fragment is taken and leaves the address at once."""
    served = server(token="s3cret/ä")
    run = served.begin(CHAIN[:1], "Behind a token")
    page = window(address(served.url, run))
    dialog = page.get_by_role("dialog", name="This server wants a token")
    dialog.get_by_label("Token").fill("wrong")
    expect(dialog.get_by_role("alert")).to_have_count(0)
    send(page)
    expect(dialog.get_by_role("alert")).to_have_text("That token is not the right one.")
    dialog.get_by_label("Token").fill("s3cret/ä")
    send(page)
    is_now(page, "s0", "running")

    other = window(f"{served.url}#token=s3cret%2F%C3%A4")
    expect(other.locator(f"[data-run='{run}']")).to_be_visible()
    assert "s3cret" not in other.evaluate("location.href")
    other.reload()
    expect(other.locator(f"[data-run='{run}']")).to_be_visible()
