"""`rerail retry --all-failed`: a few workers do every failed run, one after another each (SPEC T4).

Rules of this file:
- A worker that dies loses the run it was on and nothing else: it is replaced, and the rest goes on.
- Ctrl-C hands out no more runs; those under way are left as a crash would leave them, and can be resumed.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections import Counter, deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rich.text import Text

from rerail.cli.launch import Hand, under
from rerail.cli.output import Output, clean, one_line
from rerail.cli.session import Session
from rerail.cli.style import icon, style_of, table
from rerail.core.command import Retry
from rerail.errors import Refused, RerailError

if TYPE_CHECKING:
    from rich.live import Live

MOST = 8  # workers, where nobody says how many

# How bad an exit code is: a failed run is worse than a refused retry, and that is worse than one that waits.
_BADNESS = {0: 0, 3: 1, 2: 2, 1: 3}

Row = dict[str, Any]


async def retry_all(session: Session, wanted: Retry, *, dry_run: bool, yes: bool, jobs: int | None) -> int:
    """Retry every run that failed or was interrupted; returns the worst exit code."""
    out = session.out
    if wanted.clean and not (yes or dry_run):
        raise Refused(out.say("cli.clean.all"), "CONFIRM_NEEDED", hint="rerail retry --all-failed --clean --yes")
    session.require_store()
    async with session.engine() as engine:
        rows = [row.to_dict() for row in await engine.to_retry()]
    if dry_run:
        done = [await _foreseen(session, row, wanted) for row in rows]
    else:
        done = await _Many(session, wanted, rows).all_done(jobs or workers_for(session))
    if out.json:
        out.document([{name: value for name, value in row.items() if name != "said"} for row in done])
    elif done:
        out.print(*_table(out, done))
    else:
        out.print(out.say("cli.retry.none"))
    return max((row["exit_code"] for row in done), key=lambda code: _BADNESS.get(code, 3), default=0)


def workers_for(session: Session) -> int:
    """How many workers there are at once: as set, else twice the cores, eight at most."""
    return session.settings.worker.jobs or min(MOST, 2 * (os.cpu_count() or 1))


async def _foreseen(session: Session, row: Row, wanted: Retry) -> Row:
    """What would become of one run."""
    told = _told(row)
    try:
        async with session.reopened(row["run_id"]) as (engine, run):
            _, preview = await engine.do(run, wanted, dry_run=True)
    except RerailError as error:
        return {**told, "status": told["before"], "exit_code": 2 if isinstance(error, Refused) else 1,
                "reason": str(error), "said": _said(session.out, error)}  # fmt: skip
    assert preview is not None
    return {**told, "status": told["before"], "exit_code": 0, "reason": None, "preview": preview.to_dict()}


def _said(out: Output, error: RerailError) -> str:
    """A refusal and what to do instead, in the user's language."""
    hint = out.told(error.hint)
    return error.message_in(out.lang) + (f" ({hint})" if hint else "")


def _told(row: Row) -> Row:
    before = "interrupted" if row["interrupted"] else row["status"]
    return {"run_id": row["run_id"], "objective": row["objective"], "before": before}


# -- Workers and what they are given ------------------------------------------------------------------------------


class _Many:
    """The runs that are left, and what became of the others."""

    def __init__(self, session: Session, wanted: Retry, rows: Sequence[Row]) -> None:
        self._session, self._out = session, session.out
        self._wanted = wanted
        self._rows, self._left = rows, deque(rows)
        self._done: dict[str, Row] = {}
        self._progress = _Progress(session.out, len(rows))

    async def all_done(self, jobs: int) -> list[Row]:
        """Do all of them; if it is cut short, tell what was done."""
        self._progress.open()
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(min(jobs, len(self._rows))):
                    group.create_task(self._work())
        except asyncio.CancelledError:
            self._progress.close()
            if not self._out.json and self._done:
                self._out.print(*_table(self._out, self._in_order()))
            raise
        finally:
            self._progress.close()
        return self._in_order()

    def _in_order(self) -> list[Row]:
        return [self._done[row["run_id"]] for row in self._rows if row["run_id"] in self._done]

    async def _work(self) -> None:
        """One worker after another does run after run, until none is left."""
        hand: Hand | None = None
        try:
            while self._left:
                row = self._left.popleft()
                hand = hand or Hand("all-failed")
                told, alive = await self._one(hand, row)
                self._done[row["run_id"]] = told
                self._progress.advance(told)
                if not alive:
                    hand.forget()
                    hand = None
            if hand is not None:
                hand.dismiss()
                await hand.left()
                hand.forget()
                hand = None
        finally:
            if hand is not None:
                await hand.end()
                hand.forget()

    async def _one(self, hand: Hand, row: Row) -> tuple[Row, bool]:
        """What became of one run, and whether its worker lives."""
        told, run = _told(row), row["run_id"]
        status = told["before"]
        self._out.driving.append(run)
        hand.give(under(self._session, run, self._wanted, resumes=row["interrupted"]))
        while (said := await hand.hear()) is not None:
            if said.kind == "notice":
                self._out.note(Text(clean(said.text), "yellow"))
            elif said.kind == "accepted":
                status = "interrupted"  # until the worker says better
            else:
                self._out.driving.remove(run)
                reason = f"{said.text} ({said.hint})" if said.hint else said.text
                status = said.status or await self._by_now(run, status)
                code = 0 if status == "completed" else said.code  # somebody else's retry did it
                return {**told, "status": status, "exit_code": code, "reason": reason}, True
        died = self._out.say("cli.worker.died_on", pid=hand.pid, status=await hand.ended())
        self._out.driving.remove(run)
        return {**told, "status": status, "exit_code": 1, "reason": died}, False

    async def _by_now(self, run: str, status: str) -> str:
        """The status of a run that its worker could not have: somebody else may have been faster."""
        with contextlib.suppress(RerailError):
            async with self._session.engine() as engine:
                head = await engine.head(run)
                status = head.status if head.status in ("completed", "cancelled", "waiting") else status
        return status


class _Progress:
    """How far it is: a line that is drawn again on a terminal, one line a run elsewhere."""

    def __init__(self, out: Output, total: int) -> None:
        self._out, self._total = out, total
        self._ends: Counter[str] = Counter()
        self._live: Live | None = None

    def open(self) -> None:
        """Begin, if somebody looks."""
        if self._total and self._out.err.is_terminal and not self._out.err.is_dumb_terminal and not self._out.quiet:
            from rich.live import Live

            self._live = Live(self._line(), console=self._out.err, auto_refresh=False, transient=True)
            self._live.start(refresh=True)

    def advance(self, row: Row) -> None:
        """One more run is done."""
        self._ends[row["status"]] += 1
        if self._live is not None:
            self._live.update(self._line(), refresh=True)
        elif not self._out.quiet:
            line = self._line()
            line.append(f"  {row['run_id']}: {self._out.say('cli.status.' + row['status'])}")
            self._out.note(line)

    def close(self) -> None:
        """The table says the rest."""
        if self._live is not None:
            with contextlib.suppress(OSError):
                self._live.stop()
            self._live = None

    def _line(self) -> Text:
        line = Text(self._out.say("cli.worker.so_far", done=self._ends.total(), total=self._total))
        for status, count in self._ends.items():
            line.append("  ")
            line.append_text(icon(status, fancy=self._out.fancy))
            line.append(f" {count}", style_of(status))
        return line


def _table(out: Output, done: Sequence[Row]) -> list[Text]:
    rows: list[list[Text | str]] = []
    said: list[list[Text]] = []
    for row in done:
        shown = Text.assemble(icon(row["status"], fancy=out.fancy), " ", out.say(f"cli.status.{row['status']}"))
        shown.stylize(style_of(row["status"]))
        would = out.say("cli.retry.would", count=len(row["preview"]["rerun"])) if "preview" in row else ""
        words = row.get("said") or out.told(row["reason"] or "") or would
        before = out.say(f"cli.status.{row['before']}")
        rows.append([Text(row["run_id"], "bold"), before, shown, one_line(row["objective"], 80)])
        said.append(_wrapped(out, one_line(words)))
    head = [out.say(f"cli.head.{name}") for name in ("run", "before", "status", "objective")]
    title, *lines = table(head, rows, out.out.width)
    return [title, *(line for row, below in zip(lines, said, strict=True) for line in (row, *below))]


def _wrapped(out: Output, words: str) -> list[Text]:
    """What there is to say of a run, on lines of its own: a reason is read to its end."""
    if not words:
        return []
    return [Text("    ").append_text(line) for line in Text(words, "dim").wrap(out.out, max(20, out.out.width - 4))]
