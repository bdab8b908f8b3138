"""The tools of the demo's plan. Most of them have a bad day.

They are ordinary Rerail tools: functions that know nothing of retries, rounds or resumes. What a tool has to say about
itself is said once, where it is declared: what calling it twice would do, and how to look whether it has acted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import rerail
from rerail.demo.world import World
from rerail.i18n import tell

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


async def at_work(ctx: rerail.Context, seconds: float) -> tuple[World, int]:
    """Note the call and spend some time; gives the world and which call of this step it is."""
    world = World(ctx.workspace)
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
    line = World(ctx.workspace).find("payments.log", ctx.key)
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
    line = World(ctx.workspace).find("bookings.log", ctx.key)
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
    return World(ctx.workspace).find("mails.log", ctx.key) is not None


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
