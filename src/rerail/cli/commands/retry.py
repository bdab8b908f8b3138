"""`rerail retry`: one run, here or in a worker; with --all-failed, every failed run by a few workers (contract T4).

Rules of this file:
- A run is retried and reserved here when a worker is about to be free for it; the history says what it came to.
- A worker that dies loses the run it was on and nothing else: it is replaced, and the rest goes on.
- Ctrl-C hands out no more runs; those under way are left as a crash would leave them, and can be resumed.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections import Counter, deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

from rich.text import Text

from rerail.api import Engine
from rerail.cli.background.launcher import (
    END_WITHIN,
    LOOK_EVERY,
    WorkerHandle,
    detaches,
    leave_to_worker,
    reservation_of,
)
from rerail.cli.commands.run import foreseen, handed_over
from rerail.cli.display.follow import FAILED, OK, WAITING, exit_code, follow_up_of, stay
from rerail.cli.display.report import RetryReport, refusal, warnings
from rerail.cli.display.run_view import Picture
from rerail.cli.input_files import has_terminal, require_yes
from rerail.cli.options import JOBS, PLAIN, Common, Detached, Flag, Listed, Out, Yes
from rerail.cli.output import Output, one_line
from rerail.cli.session import Session, ownership
from rerail.cli.style import icon, style_of
from rerail.errors import Refused, RerailError
from rerail.i18n import tell
from rerail.kernel.commands import Retry
from rerail.kernel.step_state import RunStatus

if TYPE_CHECKING:
    from rich.live import Live

MAX_WORKERS = 8  # unless `worker.jobs` or --jobs sets it
FOLLOW_UP_WITHIN = 5.0  # seconds that a worker gets to start a completed run's follow-up

WAIT_FOR_A_PERSON = ("RUN_WAITS_CONFIRM", "RUN_PAUSED", "RUN_IN_DOUBT")

Row = dict[str, Any]


async def retry(
    run: str | None = None,
    /,
    *,
    step: Listed = (),
    stage: str | None = None,
    clean: Flag = False,
    force: Flag = False,
    dry_run: Flag = False,
    yes: Yes = False,
    all_failed: Flag = False,
    jobs: Annotated[int | None, JOBS] = None,
    wait: Flag = False,
    detached: Detached = False,
    take_over: Flag = False,
    common: Common = PLAIN,
    out: Out,
) -> int:
    """Do again exactly what failed and what depends on it."""
    wanted = Retry(steps=step, stage=stage, clean=clean, force=force, take_over=take_over)
    if run is not None and all_failed:
        return out.usage(tell("cli.retry.not_both", run=run), f"rerail retry {run}")
    if run is None and not all_failed:
        return out.usage(tell("cli.retry.which"), "rerail ls --status failed")
    session = Session(common, out)
    if run is None:
        if wanted.steps or wanted.stage or wait or detached or take_over:
            return out.usage(out.say("cli.retry.all_or_one"), "rerail retry RUN --step ID")
        if jobs is not None and jobs < 1:
            return out.usage(out.say("cli.retry.no_jobs", jobs=jobs), "rerail retry --all-failed --jobs 4")
        return await retry_all(session, wanted, dry_run=dry_run, yes=yes, jobs=jobs)
    if jobs is not None:
        return out.usage(out.say("cli.retry.jobs_for_all"), "rerail retry --all-failed --jobs 4")
    if wait and detached:
        return out.usage(out.say("cli.worker.wait_or_detach"), f"rerail retry {run} --wait")
    try:
        async with session.reopened(run) as (engine, found):
            if dry_run:
                return await foreseen(engine, out, found, wanted)
            await _confirmed(engine, out, found, wanted, yes=yes)
            state = await engine.internals.state(found)
            behind = detaches(session, staged=state.staged, wait=wait, detach=detached)
            return await _retried(session, engine, found, wanted, behind=behind)
    except Refused as refused:
        return out.fail(refused, refusal(out, run, refused))


async def _retried(session: Session, engine: Engine, run: str, wanted: Retry, *, behind: bool) -> int:
    """Retry a run, here or ``behind``, in a worker; report it, and stay or leave."""
    out = session.out
    picture, below = Picture.of(run, await engine.events(run)), await _below(engine, run)
    report = await _report(engine, run, wanted) if picture.state.staged and not out.json else None
    if report is not None:
        out.print(*report.opening(out), *([] if behind else [Text()]))
    if behind:
        engine.internals.reserve()
    owner = (await ownership(engine, run)).owner if wanted.steps else ""  # else no owner would be asked
    target, preview = await engine.do(run, wanted)
    if preview is None and not engine.internals.drives(target) and engine.internals.reservation(target) is None:
        return await handed_over(engine, out, target, owner)
    if preview is not None and preview.passed and not (behind and report):
        out.note(Text(out.say("cli.retry.passed", checks=", ".join(preview.passed)), "yellow"))
    if preview is not None and (behind or not wanted.clean):  # a clean retry was announced and asked for before
        out.note(*warnings(out, preview.once, preview.edited, done=True))
    if target != run and not (behind and report):
        out.note(_other_run(out, run, target))
    before = picture.seq if target == run else below.get(target, 0)  # earlier events are no news
    if behind:
        return await leave_to_worker(session, engine, target, before, report)
    if target != run:
        picture = Picture.of(target, [record for record in await engine.events(target) if record.seq <= before])
    return await stay(engine, out, picture, last=preview is not None and preview.mending)


def _other_run(out: Output, run: str, target: str) -> str:
    """Explain why a retry moved from the named run to its follow-up or parent."""
    parent = run.startswith(f"{target}-f")
    return out.say("cli.retry.parent" if parent else "cli.retry.follow_up", run=run, target=target)


async def _below(engine: Engine, run: str) -> dict[str, int]:
    """Return a run's follow-ups and their last events."""
    found: dict[str, int] = {}
    while heads := await engine.internals.heads(parent=run, limit=1):
        run = heads[0].run
        found[run] = heads[0].seq
    return found


async def _report(engine: Engine, run: str, wanted: Retry) -> RetryReport | None:
    """Return a retry's report before it happens; None where only the retry itself can tell."""
    try:
        target, preview = await engine.do(run, wanted, dry_run=True)
    except Refused as refused:
        if refused.code not in ("RUN_COMPLETED", "NOTHING_TO_RETRY"):
            raise
        return None  # its follow-up may be missing, or its end unrecorded
    return RetryReport(run, await engine.internals.state(target), preview) if preview is not None else None


async def _confirmed(engine: Engine, out: Output, run: str, wanted: Retry, *, yes: bool) -> None:
    """Ask before a run starts over, and list the effects that would happen twice (contract T4)."""
    if not wanted.clean or yes:
        return
    _, preview = await engine.do(run, wanted, dry_run=True)
    assert preview is not None
    if not has_terminal():
        told = tell("cli.clean.no_terminal", run=run)
        raise Refused(told, "CONFIRM_NEEDED", hint=f"rerail retry {run} --clean --yes")
    out.note(Text(out.say("cli.clean.about", run=run, count=len(preview.rerun))))
    out.note(*warnings(out, preview.once, preview.edited))
    await require_yes(out, out.say("cli.clean.ask"), tell("cli.clean.declined"))


# -- All that failed --------------------------------------------------------------------------------------------------


async def retry_all(session: Session, wanted: Retry, *, dry_run: bool, yes: bool, jobs: int | None) -> int:
    """Retry every run that failed or was interrupted; return 1 if one failed or was refused, else 3 if one waits."""
    out = session.out
    if wanted.clean and not (yes or dry_run):
        raise Refused(out.say("cli.clean.all"), "CONFIRM_NEEDED", hint="rerail retry --all-failed --clean --yes")
    session.require_store()
    async with session.engine() as engine:
        rows = [row.to_dict() for row in await engine.internals.to_retry()]
        for row in rows:
            row["before"] = "interrupted" if row["interrupted"] else row["status"]
        if dry_run:
            done = [await _previewed(session, row, wanted) for row in rows]
        else:
            jobs = jobs or session.settings.worker.jobs or min(MAX_WORKERS, 2 * (os.cpu_count() or 1))
            done = await _Many(session, wanted, rows, engine).all_done(jobs)
    if out.json:
        out.document([{name: value for name, value in row.items() if name != "said"} for row in done])
    elif done:
        out.print(*_table(out, done))
    else:
        out.print(out.say("cli.retry.none"))
    codes = {row["exit_code"] for row in done} - {OK}
    return FAILED if codes - {WAITING} else max(codes, default=OK)


async def _previewed(session: Session, row: Row, wanted: Retry) -> Row:
    try:
        async with session.reopened(row["run_id"]) as (engine, run):
            _, preview = await engine.do(run, wanted, dry_run=True)
    except RerailError as error:
        return {**_refused(session.out, row, error), "reason": str(error)}
    assert preview is not None
    return {**_row(row, row["before"], 0), "preview": preview.to_dict()}


def _row(row: Row, status: str, code: int, reason: str | None = None) -> Row:
    told = {name: row[name] for name in ("run_id", "objective", "before")}
    return {**told, "status": status, "exit_code": code, "reason": reason}


def _refused(out: Output, row: Row, error: RerailError) -> Row:
    """Return the row of a run that cannot be retried: reason and hint, in the user's language."""
    _, message, hint, code = out.said(error)
    code = WAITING if error.code in WAIT_FOR_A_PERSON else code
    said = f"{message} ({out.typed(hint)})" if hint else message
    return {**_row(row, row["before"], code, said), "said": said}


# -- Workers and what they are given ------------------------------------------------------------------------------


class _Many:
    """The remaining runs, and the results of the others."""

    def __init__(self, session: Session, wanted: Retry, rows: Sequence[Row], engine: Engine) -> None:
        self._session, self._out, self._engine = session, session.out, engine
        self._wanted = wanted
        self._rows, self._left = rows, deque(rows)
        self._done: dict[str, Row] = {}
        self._progress = _Progress(session.out, len(rows))

    async def all_done(self, jobs: int) -> list[Row]:
        """Retry all of them; if interrupted, report the finished ones."""
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
        """Let one worker drive run after run, until none is left; replace a worker that dies."""
        slot: list[WorkerHandle] = []  # the worker at work, once there is one
        try:
            while self._left:
                row = self._left.popleft()
                if slot and slot[0].is_dead:
                    slot.pop().forget()
                try:
                    told = await self._one(slot, row)
                except RerailError as error:
                    told = await self._by_now(row, error)
                self._done[row["run_id"]] = told
                self._progress.advance(told)
            for worker in slot:
                worker.forget()
                await worker.wait(END_WITHIN)
        except asyncio.CancelledError:
            for worker in slot:
                await worker.end()
            raise

    async def _one(self, slot: list[WorkerHandle], row: Row) -> Row:
        """Retry one run, leave it to the worker, and wait for its result."""
        async with self._session.reopened(row["run_id"]) as (engine, run):
            after = (await engine.internals.head(run)).seq
            engine.internals.reserve()
            try:
                target, preview = await engine.do(run, self._wanted)
            except Refused as refused:
                if not row["interrupted"] or refused.code != "NOTHING_TO_RETRY":
                    raise
                target, preview = await engine.begin_resume(run), None  # it just goes on
            mending = preview is not None and preview.mending
            if (reserved := reservation_of(engine, self._out, target, after)) is None:
                return await self._ended(None, row, target, mending=mending)
            self._out.driving.append(run)
            if slot:
                slot[0].give(reserved)
            else:
                slot.append(WorkerHandle(self._session.common, reserved, self._out))
            taken = await slot[0].takes_up(engine, reserved)
        told = await self._ended(slot[0], row, target, mending=mending) if taken else self._died(slot[0], row)
        self._out.driving.remove(run)
        return told

    async def _ended(self, worker: WorkerHandle | None, row: Row, run: str, *, mending: bool) -> Row:
        """Wait until a run and its follow-ups are over; return the row of its result.

        ``mending``: the follow-up was wanted, and its parent is only retried for it.
        """
        found = last = await self._engine.wait(run)
        while (child := await self._follow_up(worker, last.run_id)) is not None:
            last = await self._engine.wait(child)
        if RunStatus.RUNNING in (found.status, last.status) and worker is not None and await worker.wait(END_WITHIN):
            return self._died(worker, row)
        found = last if mending else found
        status = "interrupted" if found.status == RunStatus.RUNNING else found.status
        return _row(row, status, exit_code(found.status), found.summary)

    async def _follow_up(self, worker: WorkerHandle | None, run: str) -> str | None:
        """Return a completed run's follow-up, once its worker has started it."""
        state = await self._engine.internals.state(run)
        due = state.follow_up is not None and state.rest is not None and state.rest.status == RunStatus.COMPLETED
        for _ in range(round(FOLLOW_UP_WITHIN / LOOK_EVERY) if due else 0):
            child = await follow_up_of(self._engine, state)
            if child is not None or worker is None or worker.is_dead:
                return child
            await asyncio.sleep(LOOK_EVERY)
        return None

    def _died(self, worker: WorkerHandle, row: Row) -> Row:
        words = self._out.say("cli.worker.died_on", pid=worker.pid, status=worker.status())
        return _row(row, "interrupted", 1, words)

    async def _by_now(self, row: Row, error: RerailError) -> Row:
        """Return the row of a run that could not be retried: another process may have been faster."""
        refused = _refused(self._out, row, error)
        with contextlib.suppress(RerailError):
            status = (await self._engine.internals.head(row["run_id"])).status
            if status in ("completed", "cancelled", "waiting"):
                refused["status"] = status
        return {**refused, "exit_code": 0} if refused["status"] == "completed" else refused


class _Progress:
    """Progress: a line that is redrawn on a terminal, one line a run elsewhere."""

    def __init__(self, out: Output, total: int) -> None:
        self._out, self._total = out, total
        self._ends: Counter[str] = Counter()
        self._live: Live | None = None

    def open(self) -> None:
        if self._total and self._out.err.is_terminal and not self._out.err.is_dumb_terminal and not self._out.quiet:
            from rich.live import Live

            self._live = Live(self._line(), console=self._out.err, auto_refresh=False, transient=True)
            self._live.start(refresh=True)

    def advance(self, row: Row) -> None:
        self._ends[row["status"]] += 1
        if self._live is not None:
            self._live.update(self._line(), refresh=True)
        elif not self._out.quiet:
            line = self._line()
            line.append(f"  {row['run_id']}: {self._out.say('cli.status.' + row['status'])}")
            self._out.note(line)

    def close(self) -> None:
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
    title, *lines = out.listing(("run", "before", "status", "objective"), rows)
    return [title, *(line for row, below in zip(lines, said, strict=True) for line in (row, *below))]


def _wrapped(out: Output, words: str) -> list[Text]:
    """Return the details of a run, on lines of its own: a reason is printed in full."""
    if not words:
        return []
    return [Text("    ").append_text(line) for line in Text(words, "dim").wrap(out.out, max(20, out.out.width - 4))]
