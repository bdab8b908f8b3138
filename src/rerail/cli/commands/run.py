"""Commands that start, continue or drive runs: run, start, check, resume, worker (contract T7, I6).

Rules of this file:
- A worker that is told to stop hands its runs over: no new call starts, calls under way get a while to end. Told twice,
  it leaves them as a crash would.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Annotated, Any

from rich.text import Text

from rerail.api import Engine
from rerail.cli.display.follow import stay
from rerail.cli.display.report import outlook_lines, preview_lines
from rerail.cli.display.run_view import Picture
from rerail.cli.input_files import load_plan
from rerail.cli.options import JOBS, PLAIN, Common, Detached, Flag, Out
from rerail.cli.output import Output, clean
from rerail.cli.session import Session
from rerail.engine.runs.starter import plan_faults
from rerail.errors import PlanError, Refused
from rerail.i18n import tell
from rerail.kernel import events as ev
from rerail.kernel.commands import Command, Resume, Retry
from rerail.kernel.events import Record
from rerail.plan.step import Fault
from rerail.plan.warnings import effect_warnings, hole_warnings
from rerail.views.graph import Graph

if TYPE_CHECKING:
    from rerail.engine.workers import WorkerPool


async def run(
    plan: str | None = None,
    /,
    *,
    objective: str | None = None,
    fallback: str | None = None,
    parent: str | None = None,
    common: Common = PLAIN,
    out: Out,
) -> int:
    """Run a plan and stay with it until it is at rest or waits for a person."""
    if (plan is None) == (objective is None):
        raise Refused(tell("cli.error.plan_or_objective"), "USAGE")
    session = Session(common, out)
    async with _started(session, plan, parent, objective, fallback) as (engine, started):
        return await stay(engine, out, Picture(started))


@asynccontextmanager
async def _started(
    session: Session,
    plan: str | None,
    parent: str | None,
    objective: str | None = None,
    fallback: str | None = None,
    *,
    reserved: bool = False,
    queued: bool = False,
) -> AsyncIterator[tuple[Engine, str]]:
    """Start a run in an open engine; a ``reserved`` one waits for its worker, a ``queued`` one for any."""
    loaded = load_plan(plan) if plan is not None else None
    second = load_plan(fallback) if fallback is not None else None
    async with session.started() as engine:
        if reserved:
            engine.internals.reserve()
        above = await engine.find(parent) if parent is not None else None
        try:
            started = await engine.start(loaded, objective=objective, fallback=second, parent=above, queued=queued)
        except PlanError as error:
            plans = [plan for plan in (loaded, second) if plan is not None]
            hints = [hint for plan in plans for hint in session.undecorated(plan, engine.tools)]
            error.hint = hints[0] if len(hints) == 1 else "; ".join(hints) or error.hint
            raise
        yield engine, started


async def start(
    plan: str,
    /,
    *,
    parent: str | None = None,
    wait: Flag = False,
    queue: Flag = False,
    common: Common = PLAIN,
    out: Out,
) -> int:
    """Start a plan in a process of its own, and leave it to itself; or leave it to a worker that shares the store."""
    if wait and not queue:
        return await run(plan, parent=parent, common=common, out=out)
    from rerail.cli.background.launcher import leave_to_worker, refuse_memory

    session = Session(common, out)
    refuse_memory(session, "cli.work.memory_hint" if queue else "cli.worker.memory_hint")
    async with _started(session, plan, parent, reserved=not queue, queued=queue) as (engine, started):
        if not queue:
            return await leave_to_worker(session, engine, started, 0)
        if wait:
            out.note(out.say("cli.work.queued", run=started))
            return await stay(engine, out, Picture(started))
    document = {"run_id": started, "queued": True}
    return out.done(document, out.say("cli.work.queued", run=started), f"rerail watch {started}")


async def check(plan: str, /, *, common: Common = PLAIN, out: Out) -> int:
    """List every fault of a plan; run nothing."""
    session = Session(common, out)
    loaded = load_plan(plan)
    specs = await session.specs()
    faults = plan_faults(loaded, specs, session.settings.policy())
    hints = session.undecorated(loaded, specs) if faults and specs is not None else []
    warnings = [] if faults or specs is None else [*hole_warnings(loaded, specs), *effect_warnings(loaded, specs)]
    depth, width = (0, 0) if faults else Graph.of_plan(loaded).measures()
    if out.json:
        found = {"ok": not faults, "steps": len(loaded.steps), "depth": depth, "width": width}
        listed = {"faults": [one.to_dict() for one in faults], "warnings": [one.to_dict() for one in warnings]}
        out.document({**found, "tools_checked": specs is not None, **listed, "hints": hints})
    elif faults:
        out.print(Text(out.say("cli.check.faults", count=len(faults)), "bold red"))
        out.print(*(Text.assemble("  - ", clean(fault.said(out.lang)), ("  " + fault.code, "dim")) for fault in faults))
        out.print(*(out.hint(out.told(hint)) for hint in hints))
    else:
        out.print(Text(out.say("cli.check.ok", steps=len(loaded.steps), depth=depth, width=width), "green"))
        out.print(*(_warning(out, one) for one in warnings))
        if specs is None:
            out.note(Text(out.say("cli.check.no_tools"), "dim"))
    return 2 if faults else 0


def _warning(out: Output, fault: Fault) -> Text:
    said = clean(fault.said(out.lang))
    return Text.assemble((out.say("cli.check.warning"), "yellow"), " ", said, ("  " + fault.code, "dim"))


async def resume(
    run: str, /, *, detached: Detached = False, take_over: Flag = False, common: Common = PLAIN, out: Out
) -> int:
    """Continue an interrupted or paused run; nothing that is done is called again."""
    session = Session(common, out)
    async with session.reopened(run) as (engine, found):
        picture = Picture.of(found, await engine.events(found))
        if detached:
            from rerail.cli.background.launcher import leave_to_worker, refuse_memory

            refuse_memory(session)
            engine.internals.reserve()
            await engine.do(found, Resume(take_over=take_over))
            return await leave_to_worker(session, engine, found, picture.seq)
        await engine.do(found, Resume(take_over=take_over))
        return await stay(engine, out, picture)


async def foreseen(engine: Engine, out: Output, run: str, command: Command) -> int:
    """Show a command's preview."""
    target, preview = await engine.do(run, command, dry_run=True)
    assert preview is not None
    if out.json:
        out.document({"run_id": target, **preview.to_dict()})
    else:
        lines = preview_lines if isinstance(command, Retry) else outlook_lines
        out.print(*lines(out, Picture.of(target, await engine.events(target)), preview))
    return 0


async def handed_over(engine: Engine, out: Output, run: str, owner: str) -> int:
    """Report that another process, the run's owner, took the command; return the exit code."""
    document = {**(await engine.show(run)).to_dict(), "handed_to": owner or None} if out.json else {}
    return out.done(document, out.say("cli.handed_over", run=run, owner=owner or "?"), f"rerail watch {run}")


async def worker(
    *,
    jobs: Annotated[int | None, JOBS] = None,
    until_idle: Flag = False,
    only: str | None = None,
    common: Common = PLAIN,
    out: Out,
) -> int:
    """Drive runs that wait for a worker, until told to stop."""
    from rerail.cli.background.launcher import refuse_memory
    from rerail.engine.workers import WorkerPool

    if jobs is not None and jobs < 1:
        return out.usage(out.say("cli.work.no_jobs", jobs=jobs), "rerail worker --jobs 4")
    ends: dict[str, str] = {}
    session = Session(common, out, observe=_noting(out, ends), patient=True)
    refuse_memory(session, "cli.work.memory_hint")
    settings = session.settings.worker
    async with _engine(session, only) as (engine, run):
        patience = session.settings.store.reconnect_seconds
        pool = WorkerPool(engine.internals, jobs or settings.runs, out.notice, patience, run)
        out.note(Text(out.say("cli.work.begun", pid=os.getpid(), jobs=jobs or settings.runs, count=len(engine.tools))))
        with _told(pool):
            await pool.work(until_idle=until_idle or only is not None)
            if engine.internals.under_way():
                out.note(
                    Text(out.say("cli.work.leaving", count=len(engine.internals.under_way()), seconds=settings.grace))
                )
            await engine.internals.hand_over(settings.grace)
            left = sorted(engine.internals.under_way())
    if out.json:
        out.document({"taken": pool.taken, "ended": ends, "left_to_others": pool.left, "cut_short": left})
    else:
        out.print(out.say("cli.work.ended", taken=pool.taken, ended=len(ends), others=len(pool.left)))
    return 0


@contextlib.asynccontextmanager
async def _engine(session: Session, only: str | None) -> AsyncIterator[tuple[Engine, str]]:
    """Open an engine for the runs of the store, or for ``only`` one; return it with the id of that one."""
    if only is not None:
        async with session.reopened(only) as reopened:
            yield reopened
        return
    async with session.started() as engine:
        yield engine, ""


def _noting(out: Output, ends: dict[str, str]) -> Callable[[Record], None]:
    """Return an observer that prints the start and the result of each run that this worker drives."""

    def note(key: str, **values: Any) -> None:
        if not out.quiet:
            out.note(Text(clean(out.say(key, **values)), "dim"))

    def observe(record: Record) -> None:
        match record.event:
            case ev.Resumed():
                note("cli.work.took", run=record.run)
            case ev.Done(status=status):
                ends[record.run] = str(status)
                note("cli.work.rest", run=record.run, status=out.say(f"cli.status.{status}"))
            case ev.Waiting():
                ends[record.run] = "waiting"
                note("cli.work.rest", run=record.run, status=out.say("cli.status.waiting"))
            case _:
                pass

    return observe


@contextlib.contextmanager
def _told(pool: WorkerPool) -> Iterator[None]:
    """Hand runs over at the first signal to stop; end the command at the second."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    told = 0

    def stop() -> None:
        nonlocal told
        told += 1
        if told == 1:
            pool.stop()
        elif told == 2:
            task.cancel()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    try:
        yield
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)
