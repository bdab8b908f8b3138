"""The tools of the refund. Each says what calling it twice would do; one of them is wrong about itself.

    rerail crashtest examples/refund/plan.yaml --tools examples/refund/tools.py --yes

finds which: it kills the run at every moment, resumes it, and looks what was called again, and what came of that.
"""

from __future__ import annotations

import json
from typing import Any

import rerail


def lines(ctx: rerail.Context, name: str) -> list[Any]:
    """What somebody else's log says: the bank's, the shop's."""
    path = ctx.workspace / name
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def add(ctx: rerail.Context, name: str, line: Any) -> None:
    """Something happens out there."""
    with (ctx.workspace / name).open("a") as file:
        file.write(json.dumps(line) + "\n")


@rerail.tool(effect="read")
def find_order(number: int) -> dict[str, Any]:
    """Look an order up."""
    return {"number": number, "customer": "Ada", "account": "SE45 5000", "amount": 49.5}


@rerail.tool  # repeatable, if nothing else is said. It is not: each call uses up a number.
def next_number(ctx: rerail.Context) -> int:
    """Draw the next number of the book of credit notes."""
    number = len(lines(ctx, "numbers.log")) + 1
    add(ctx, "numbers.log", number)
    return number


def was_made(ctx: rerail.Context) -> rerail.Verified | bool:
    """Ask the bank for a transfer with this key."""
    made = [line for line in lines(ctx, "bank.log") if line["key"] == ctx.key]
    return rerail.Verified(output={"receipt": made[0]["receipt"]}) if made else False


@rerail.tool(effect="once", verify=was_made)
def transfer(account: str, amount: float, ctx: rerail.Context) -> dict[str, str]:
    """Give money back: once, and the bank can be asked whether it did."""
    receipt = f"T-{len(lines(ctx, 'bank.log')) + 1}"
    add(ctx, "bank.log", {"key": ctx.key, "account": account, "amount": amount, "receipt": receipt})
    return {"receipt": receipt}


@rerail.tool
def write_note(number: int, amount: float, ctx: rerail.Context) -> dict[str, str]:
    """Write the credit note; another one in its place does no harm."""
    ctx.write_json("note.json", {"number": number, "amount": amount})
    return {"file": "note.json"}


@rerail.tool(effect="once")
def post_letter(to: str, ctx: rerail.Context) -> dict[str, str]:
    """Post the credit note: once, and nobody can be asked whether it is on its way."""
    ctx.write_text("envelope.txt", f"To {to}: {ctx.read_json('note.json')}\n")
    add(ctx, "letters.log", to)
    return {"to": to}
