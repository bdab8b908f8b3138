"""Rows out of measured cases: shares with intervals, tables as text and Markdown, everything as JSON."""

from __future__ import annotations

import json
import random
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from benchmarks.recovery.faults import GROUPS
from benchmarks.recovery.measure import OUTCOMES, Measured

RESAMPLES = 1000
NEEDLESS = ("redone", "hopeless", "below")
COUNTS = (*NEEDLESS, "duplicates", "rerun")


def intervals(cases: Sequence[Measured], seed: int) -> dict[str, tuple[float, float]]:
    """95 % of the shares that samples of base tasks give: variants of a task and cases on it are not independent."""
    by_base: dict[str, list[int]] = {}
    for case in cases:
        row = by_base.setdefault(case.base, [0] * len(OUTCOMES))
        row[OUTCOMES.index(case.outcome)] += 1
    rows = list(by_base.values())
    chance = random.Random(seed)
    found: list[list[float]] = []
    for _ in range(RESAMPLES):
        sums = [sum(column) for column in zip(*chance.choices(rows, k=len(rows)), strict=True)]
        found.append([one / sum(sums) for one in sums])
    low, high = int(RESAMPLES * 0.025), int(RESAMPLES * 0.975) - 1
    sorted_shares = [sorted(shares) for shares in zip(*found, strict=True)]
    return {name: (shares[low], shares[high]) for name, shares in zip(OUTCOMES, sorted_shares, strict=True)}


def summary(cases: Sequence[Measured], seed: int) -> dict[str, Any]:
    """A row: shares of the outcomes with intervals, sums and means of the rest."""
    row: dict[str, Any] = {"cases": len(cases)}
    for outcome, (low, high) in intervals(cases, seed).items():
        share = sum(case.outcome == outcome for case in cases) / len(cases)
        row[outcome] = {"share": round(share, 4), "low": round(low, 4), "high": round(high, 4)}
    for name in COUNTS:
        row[name] = sum(getattr(case, name) for case in cases)
    row["waited"] = round(sum(case.waited for case in cases) / len(cases), 4)
    row["calls"] = sum(case.calls for case in cases)
    row["seconds"] = round(sum(case.seconds for case in cases), 1)
    return row


def results(measures: Iterable[Measured], seed: int) -> dict[str, Any]:
    """Contender → its row over all cases, over all but silent no-ops, and by group."""
    by_contender: dict[str, list[Measured]] = defaultdict(list)
    for one in measures:
        by_contender[one.contender].append(one)
    return {name: _rows(cases, seed) for name, cases in by_contender.items()}


def _rows(cases: list[Measured], seed: int) -> dict[str, Any]:
    groups: dict[str, list[Measured]] = defaultdict(list)
    for case in cases:
        groups[case.group].append(case)
        if half := _half(case):
            groups[f"{case.group}, {half}"].append(case)
    seen = [case for case in cases if not case.silent]
    return {
        "all": summary(cases, seed),
        "but_silent": summary(seen, seed) if seen else None,
        "groups": {name: summary(found, seed) for name, found in groups.items()},
    }


def _half(case: Measured) -> str:
    """Which half of its group a case is in, where the two are not the same thing at all."""
    if case.group.startswith(("lost", "slow", "kill")):
        return "once" if case.effect == "once" else "other"
    if case.group.endswith(" faults"):
        return "one silent" if case.silent else "none silent"
    return ""


def compact(about: dict[str, Any], found: dict[str, Any]) -> str:
    """The results as JSON of a line for each row; a share is `[share, low, high]`."""
    lines = []
    for name, row in found.items():
        cells = {"all": row["all"], "silent aside": row["but_silent"], **row["groups"]}
        for group, cell in cells.items():
            shares = {key: list(cell[key].values()) for key in OUTCOMES if cell[key]["high"]}
            counts = {key: cell[key] for key in ("cases", *COUNTS, "waited") if cell[key]}
            lines.append(json.dumps({"who": name, "group": group, **counts, **shares}))
    return f'{{"about": {json.dumps(about)}, "rows": [\n' + ",\n".join(lines) + "\n]}\n"


def percent(cell: dict[str, float], *, interval: bool = False) -> str:
    """A share for people."""
    text = f"{100 * cell['share']:.1f}"
    return f"{text} [{100 * cell['low']:.0f}, {100 * cell['high']:.0f}]" if interval else text


HEAD = (
    "who", "correct %", "false success %", "silent aside", "asks %", "honest failure %", "false failure %",
    "redone", "hopeless", "below", "with no fault", "twice", "rerun", "waited s",
)  # fmt: skip


def overall(found: dict[str, Any]) -> list[list[str]]:
    """The table over all cases."""
    rows = []
    for name, row in found.items():
        cell, seen = row["all"], row["but_silent"]
        calm = row["groups"].get("none")
        rows.append([
            name, percent(cell["correct"], interval=True), percent(cell["false_success"], interval=True),
            percent(seen["false_success"]) if seen else "", percent(cell["waiting"]), percent(cell["honest_failure"]),
            percent(cell["false_failure"]), *(f"{cell[key] / cell['cases']:.2f}" for key in NEEDLESS),
            str(sum(calm[key] for key in NEEDLESS)) if calm else "",
            str(cell["duplicates"]), str(cell["rerun"]), f"{cell['waited']:.3f}",
        ])  # fmt: skip
    return rows


def by_group(found: dict[str, Any], what: str) -> tuple[list[str], list[list[str]]]:
    """One outcome, or the needless calls, by kind of fault: a row for each kind, a column for each contender."""

    def shown(cell: dict[str, Any] | None) -> str:
        if cell is None:
            return ""
        if what == "needless":
            return f"{sum(cell[key] for key in NEEDLESS) / cell['cases']:.1f}"
        return f"{100 * cell[what]['share']:.0f}"

    names = list(found)
    groups = list(dict.fromkeys(group for row in found.values() for group in row["groups"]))
    groups.sort(key=lambda group: (_place(group), group))
    rows = [[group, *(shown(found[name]["groups"].get(group)) for name in names)] for group in groups]
    return ["", *names], rows


def _place(group: str) -> int:
    """Where a group stands: as it was drawn, its halves right after it."""
    return GROUPS.index(group.split(",", maxsplit=1)[0])


def text(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table for a terminal."""
    widths = [max(len(row[at]) for row in (head, *rows)) for at in range(len(head))]
    lines = [
        "  ".join(cell.ljust(width) if at == 0 else cell.rjust(width)
                  for at, (cell, width) in enumerate(zip(row, widths, strict=True)))
        for row in (head, *rows)
    ]  # fmt: skip
    return "\n".join(lines) + "\n"


def markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table for the docs."""
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join(lines) + "\n"
