"""Where things are on the page, in the words of the tests."""

from __future__ import annotations

import json

from playwright.sync_api import Locator, Page, expect


def address(url: str, run: str, tab: str = "graph", step: str | None = None) -> str:
    """The address of a view of a run."""
    return f"{url}#/runs/{run}/{tab}" + ("" if step is None else f"?step={step}")


def node(page: Page, step: str) -> Locator:
    """A step in the graph."""
    return page.locator(f".step-node[data-step={json.dumps(step)}]")


def is_now(page: Page, step: str, status: str) -> None:
    """Wait until the graph shows a step like this."""
    expect(node(page, step)).to_have_attribute("data-status", status)


def run_is(page: Page, status: str) -> None:
    """Wait until the head of the page says so."""
    expect(page.locator(".run-line .chip")).to_have_class(f"chip s-{status}")


def live(page: Page) -> None:
    """Wait until the page hears its server."""
    expect(page.locator("[data-connection]")).to_have_attribute("data-connection", "live")


def act(page: Page, name: str) -> None:
    """Press the button of an action."""
    page.locator(f"[data-action='{name}']").first.click()


def send(page: Page) -> None:
    """Press the button that does what a dialog is about."""
    page.locator("dialog [data-action='send']").click()


def drawer(page: Page) -> Locator:
    """What is open of a step."""
    return page.locator("aside.drawer")
