"""The table of docs/concepts.md: what a call came to and what follows, from the data and the code.

`python -m tests.outcomes.table` writes it; `tests/outcomes/test_table.py` holds the page to it.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from tests.outcomes.ways import GROUPS, RAY, WAYS

from rerail.kernel.outcome import Case, Certainty, Follows, Saw, follows
from rerail.plan.step import Effect

PAGE = Path(__file__).resolve().parents[2] / "docs" / "concepts.md"
PLACE = re.compile(r"(<!-- outcomes: [^\n]*-->\n).*?(<!-- /outcomes -->)", re.DOTALL)
CAME_TO = {Certainty.DONE: "done", Certainty.NOT_DONE: "not done", Certainty.LOST: "lost"}
FOLLOWS = {
    Follows.SUCCEED: "succeeds",
    Follows.LADDER: "ladder",
    Follows.SAME_KEY: "again, same key",
    Follows.DOUBT: "in doubt",
}
# The columns: what stands above, and what a look found, if there is one, with the rest of the case.
COLUMNS: tuple[tuple[str, Saw, dict[str, bool]], ...] = (
    ("no look", Saw.NONE, {}),
    ("there", Saw.THERE, {}),
    ("there, with `probe`", Saw.THERE, {"probed": True}),
    ("not there, settled", Saw.ABSENT, {}),
    ("not there, `settle: never`", Saw.DISBELIEVED, {}),
    ("cannot tell", Saw.UNKNOWN, {}),
    ("partly done", Saw.PARTIAL, {}),
    ("within `idempotent_for`", Saw.NONE, {"covered": True}),
)

# Rows that no single way to end makes: what came before, and what may still come.
BESIDES: tuple[tuple[str, Certainty, dict[str, bool]], ...] = (
    ("*not done*, after an attempt that was lost", Certainty.NOT_DONE, {"lost_before": True}),
    (
        "a call that may still act: its owner fell silent, or it runs on past twice its timeout",
        Certainty.LOST,
        {"acting": True},
    ),
)


def certainty_of(group: str) -> Certainty:
    """What every way of a group came to."""
    (found,) = {way.certainty for way in (*WAYS, *RAY) if way.group == group}
    return found


def repeated(certainty: Certainty) -> str:
    """What follows for tools that may be called again: the same for both effects."""
    (found,) = {follows(Case(effect, certainty)) for effect in (Effect.READ, Effect.REPEATABLE)}
    return FOLLOWS[found]


def row(group: str, certainty: Certainty, **known: bool) -> str:
    """One row."""
    cells = [FOLLOWS[follows(Case(Effect.ONCE, certainty, saw, **more, **known))] for _, saw, more in COLUMNS]
    return f"| {group} | **{CAME_TO[certainty]}** | {repeated(certainty)} | {' | '.join(cells)} |"


def table() -> str:
    """The table as Markdown."""
    heads = ["how the call ended", "it came to", "`read`, `repeatable`", *(f"`once`: {head}" for head, *_ in COLUMNS)]
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    lines += [row(group, certainty_of(group)) for group in GROUPS]
    lines += [row(group, certainty, **known) for group, certainty, known in BESIDES]
    return "\n".join(lines) + "\n"


def page(text: str) -> str:
    """The page with the table in its place."""
    written, number = PLACE.subn(lambda found: f"{found[1]}\n{table()}\n{found[2]}", text)
    if number != 1:
        raise ValueError(f"{PAGE.name} has {number} places for the table; keep one")
    return written


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text("utf-8")), "utf-8")
    sys.stdout.write(f"{PAGE}\n")
