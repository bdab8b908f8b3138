"""Tools of the refund. Each declares what a second call does, or leaves it to the default; one of them is wrong.

    rerail crashtest examples/refund/plan.yaml --tools examples/refund/tools.py --yes

finds it: the command kills the run at every crash point, resumes it, and compares the calls that were repeated.
"""

from __future__ import annotations

import json
from typing import Any

import rerail


def lines(ctx: rerail.Context, name: str) -> list[Any]:
    """Read a log outside of the run: the bank's or the shop's."""
    path = ctx.workspace / name
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def add(ctx: rerail.Context, name: str, line: Any) -> None:
    """Append an effect to an outside log."""
    with (ctx.workspace / name).open("a") as file:
        file.write(json.dumps(line) + "\n")


@rerail.tool(effect="read")
def find_order(number: int) -> dict[str, Any]:
    """Look up an order."""
    return {"number": number, "customer": "Ada", "account": "SE45 5000", "amount": 49.5}


@rerail.tool  # assumed to be repeatable, which is wrong: each call uses up a number
def next_number(ctx: rerail.Context) -> int:
    """Take the next credit note number."""
    number = len(lines(ctx, "numbers.log")) + 1
    add(ctx, "numbers.log", number)
    return number


def was_made(ctx: rerail.Context) -> rerail.Verified | bool:
    """Ask the bank whether it made a transfer with this key."""
    made = [line for line in lines(ctx, "bank.log") if line["key"] == ctx.key]
    return rerail.Verified(output={"receipt": made[0]["receipt"]}) if made else False


@rerail.tool(effect="once", verify=was_made)
def transfer(account: str, amount: float, ctx: rerail.Context) -> dict[str, str]:
    """Refund the money: once, and the bank can confirm it."""
    receipt = f"T-{len(lines(ctx, 'bank.log')) + 1}"
    add(ctx, "bank.log", {"key": ctx.key, "account": account, "amount": amount, "receipt": receipt})
    return {"receipt": receipt}


@rerail.tool
def write_note(number: int, amount: float, ctx: rerail.Context) -> dict[str, str]:
    """Write the credit note; writing it again does no harm."""
    ctx.write_json("note.json", {"number": number, "amount": amount})
    return {"file": "note.json"}


@rerail.tool(effect="once")
def post_letter(to: str, ctx: rerail.Context) -> dict[str, str]:
    """Post the credit note: once, and there is no way to check it afterwards."""
    ctx.write_text("envelope.txt", f"To {to}: {ctx.read_json('note.json')}\n")
    add(ctx, "letters.log", to)
    return {"to": to}
