"""The tools of the demo's plan, most of which have a bad day, and their world: a folder that outlives any process.

They are ordinary Rerail tools: functions that know nothing of retries, rounds or resumes. What a tool has to say about
itself is said once, where it is declared: what calling it twice would do, and how to look whether it has acted.

Rules of this file:
- A side effect is one line in a log, written in one go: after any death, the line is complete or absent.
- The world keeps its own account of every call, apart from the run's history, so that each can check the other.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import rerail
from rerail.i18n import tell

EFFECTS = ("reservations.log", "payments.log", "bookings.log", "mails.log")
CALLS = "calls.log"
SETUP = "world.json"
PACE = "RERAIL_DEMO_PACE"  # for runs of the plan outside of the demo, as in crash tests


class DemoWorld:
    """One run's folder: logs of side effects, an account of calls, and the pace of time."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @classmethod
    def make(cls, folder: Path, pace: float) -> DemoWorld:
        """Create a world; `pace` stretches or shrinks every wait in it."""
        folder.mkdir(parents=True, exist_ok=True)
        world = cls(folder)
        world.write(SETUP, {"pace": pace})
        return world

    @property
    def pace(self) -> float:
        """Return the length of a second here; without a set-up file, from the environment."""
        found = self.read(SETUP)
        return float(found["pace"]) if found is not None else float(os.environ.get(PACE, "1"))

    # -- Files --------------------------------------------------------------------------------------------------------

    def write(self, name: str, value: Any) -> None:
        draft = self.folder / f".{name}.{os.getpid()}"
        draft.write_text(json.dumps(value), encoding="utf-8")
        draft.replace(self.folder / name)

    def read(self, name: str) -> Any:
        """Return a file's value; None if it is absent."""
        path = self.folder / name
        return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None

    def append(self, log: str, line: dict[str, Any]) -> None:
        target = os.open(self.folder / log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            os.write(target, json.dumps(line).encode() + b"\n")
        finally:
            os.close(target)

    def lines(self, log: str) -> list[dict[str, Any]]:
        path = self.folder / log
        return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []

    def find(self, log: str, key: str) -> dict[str, Any] | None:
        """Return the line of the call with this idempotency key, if any."""
        return next((line for line in self.lines(log) if line.get("key") == key), None)

    # -- Calls --------------------------------------------------------------------------------------------------------

    def called(self, step: str) -> int:
        """Record a call; return this step's number of calls so far."""
        self.append(CALLS, {"step": step, "pid": os.getpid()})
        return sum(1 for line in self.lines(CALLS) if line["step"] == step)


ORDER: dict[str, Any] = {
    "number": 1042,
    "books": ["The Left Hand of Darkness", "Momo"],
    "currency": "SEK",
    "card": "**** 4242",
    "address": "Storgatan 7, Umea",
    "mail": "ada@example.org",
}
PRICES = {"The Left Hand of Darkness": 12.5, "Momo": 11.0}
SHELVES = {"berlin": "B-17"}


async def at_work(ctx: rerail.Context, seconds: float) -> tuple[DemoWorld, int]:
    """Note the call and spend some time; gives the world and which call of this step it is."""
    world = DemoWorld(ctx.workspace)
    count = world.called(ctx.step)
    await asyncio.sleep(seconds * world.pace)
    return world, count


@rerail.tool(effect="read")
async def read_order(number: int, ctx: rerail.Context) -> dict[str, Any]:
    """Read an order."""
    await at_work(ctx, 0.5)
    return {**ORDER, "number": number}


@rerail.tool(effect="read")
async def exchange_rate(currency: str, ctx: rerail.Context) -> dict[str, float]:
    """Today's rate; the first caller of the day comes too soon."""
    world, count = await at_work(ctx, 0.4)
    if count == 1:
        raise rerail.RateLimited(tell("error.demo.too_many"), retry_after=1.5 * world.pace)
    return {"rate": 11.4}


@rerail.tool(effect="read")
async def find_stock(warehouse: str, books: list[str], ctx: rerail.Context) -> dict[str, Any]:
    """The shelf where the books are; an unknown warehouse is answered with the one that was meant."""
    await at_work(ctx, 0.5)
    if warehouse not in SHELVES:
        raise rerail.ToolError(tell("error.demo.warehouse", name=warehouse), suggest={"warehouse": "berlin"})
    return {"shelf": SHELVES[warehouse], "books": books}


@rerail.tool(effect="read")
async def reading_ideas(books: list[str], ctx: rerail.Context) -> dict[str, list[str]]:
    """What to read next; the service has been gone for weeks."""
    await at_work(ctx, 0.3)
    raise ConnectionRefusedError(tell("error.demo.refused", host="ideas.example"))


@rerail.tool(effect="read")
async def total_price(books: list[str], rate: float, ctx: rerail.Context) -> dict[str, float]:
    """The price of the books in the customer's currency."""
    await at_work(ctx, 0.4)
    return {"total": round(sum(PRICES[book] for book in books) * rate, 2)}


@rerail.tool(effect="once")
async def reserve_books(shelf: str, books: list[str], ctx: rerail.Context) -> dict[str, str]:
    """Take books off the shelf."""
    world, _ = await at_work(ctx, 0.6)
    world.append("reservations.log", {"key": ctx.key, "shelf": shelf, "books": books})
    return {"from": shelf}


async def was_charged(ctx: rerail.Context) -> rerail.Verified | bool:
    """Look at the bank statement for the charge with this key."""
    line = DemoWorld(ctx.workspace).find("payments.log", ctx.key)
    return rerail.Verified(output={"receipt": line["receipt"]}) if line is not None else False


@rerail.tool(effect="once", verify=was_charged)
async def charge_card(card: str, amount: float, ctx: rerail.Context) -> dict[str, str]:
    """Charge a card: the bank takes the money, and then the line goes dead."""
    world, count = await at_work(ctx, 1.6)
    world.append("payments.log", {"key": ctx.key, "card": card, "amount": amount, "receipt": "R-2207"})
    if count == 1:
        raise ConnectionResetError(tell("error.demo.reset"))
    return {"receipt": "R-2207"}


@rerail.tool(effect="repeatable")
async def print_service(number: int, total: float, ctx: rerail.Context) -> dict[str, str]:
    """Print an invoice in the cloud; the cloud is down."""
    await at_work(ctx, 0.2)
    raise ConnectionRefusedError(tell("error.demo.refused", host="print.example"))


@rerail.tool(effect="repeatable")
async def print_here(number: int, total: float, ctx: rerail.Context) -> dict[str, str]:
    """Print an invoice on the old machine in the corner."""
    world, _ = await at_work(ctx, 0.6)
    world.write("invoice.json", {"number": number, "total": total})
    return {"file": "invoice.json"}


async def was_booked(ctx: rerail.Context) -> rerail.Verified | bool:
    """Ask the courier for a booking with this key."""
    line = DemoWorld(ctx.workspace).find("bookings.log", ctx.key)
    return rerail.Verified(output={"tracking": line["tracking"]}) if line is not None else False


@rerail.tool(effect="once", verify=was_booked)
async def book_courier(address: str, ctx: rerail.Context) -> dict[str, str]:
    """Book a courier: the booking is made at once, the confirmation takes long enough for something to happen."""
    world, _ = await at_work(ctx, 0.4)
    world.append("bookings.log", {"key": ctx.key, "address": address, "tracking": "T-88015"})
    await asyncio.sleep(min(60.0, 400 * world.pace))  # at any pace that people watch, a minute
    return {"tracking": "T-88015"}


@rerail.tool(effect="repeatable")
async def pack_parcel(books: list[str], ctx: rerail.Context) -> dict[str, str]:
    """Pack books into a box; packing them anew does no harm."""
    world, _ = await at_work(ctx, 2.5)
    world.write("parcel.json", {"books": books})
    return {"parcel": "parcel.json"}


@rerail.tool(effect="repeatable")
async def print_label(parcel: str, tracking: str, ctx: rerail.Context) -> dict[str, str]:
    """Print a label and stick it on."""
    world, _ = await at_work(ctx, 0.5)
    world.write("label.json", {"parcel": parcel, "tracking": tracking})
    return {"tracking": tracking}


async def was_sent(args: Mapping[str, Any], ctx: rerail.Context) -> bool:
    """Look into the outbox."""
    return DemoWorld(ctx.workspace).find("mails.log", ctx.key) is not None


@rerail.tool(effect="once", verify=was_sent)
async def send_mail(
    to: str, invoice: str, tracking: str, ctx: rerail.Context, ideas: list[str] | None = None
) -> dict[str, str]:
    """Tell the customer that the parcel is on its way."""
    world, _ = await at_work(ctx, 0.5)
    world.append("mails.log", {"key": ctx.key, "to": to, "tracking": tracking, "ideas": ideas or []})
    return {"to": to}


TOOLS = [
    read_order, exchange_rate, find_stock, reading_ideas, total_price, reserve_books, charge_card, print_service,
    print_here, book_courier, pack_parcel, print_label, send_mail,
]  # fmt: skip
