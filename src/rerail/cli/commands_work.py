"""Leaving runs to workers, and being one: `start --queue`, `worker` (SPEC T7, I6).

Rules of this file:
- A worker that is told to stop hands its runs over: nothing new starts, calls under way get a while to end. Told twice,
  it leaves them as a crash would.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Iterator
from typing import Annotated, Any

from cyclopts import Parameter
from rich.text import Text

from rerail.cli.attend import stay
from rerail.cli.inputs import load_plan
from rerail.cli.options import FLAG, PLAIN, Common
from rerail.cli.output import Output, clean
from rerail.cli.picture import Picture
from rerail.cli.session import Session
from rerail.core import events as ev
from rerail.core.events import Record
from rerail.engine.working import Crew
from rerail.errors import PlanError, Refused

Hidden = Parameter(parse=False)


async def queued(session: Session, plan: str, parent: str | None, *, wait: bool) -> int:
    """Put a run into the store, and leave it to whoever takes it up."""
    out = session.out
    _refuse_memory(session)
    loaded, sources = load_plan(plan), session.given
    async with session.engine(sources, session.load(sources), making=True, driving=True) as engine:
        above = await engine.find(parent) if parent is not None else None
        try:
            run = await engine.submit(loaded, parent=above)
        except PlanError as error:
            error.hint = error.hint or "; ".join(session.undecorated(loaded, engine.tools))
            raise
        if wait:
            return await stay(engine, out, Picture(run))
    if out.json:
        out.document({"run_id": run, "queued": True})
    else:
        out.print(out.say("cli.work.queued", run=run))
        out.note(Text("  " + out.typed(f"rerail watch {run}"), "cyan"))
    return 0


async def worker(
    *,
    jobs: Annotated[int | None, Parameter(name=["--jobs", "-j"])] = None,
    until_idle: Annotated[bool, FLAG] = False,
    common: Common = PLAIN,
    out: Annotated[Output, Hidden],
) -> int:
    """Drive runs that wait for somebody, until told to stop."""
    if jobs is not None and jobs < 1:
        return out.usage(out.say("cli.work.no_jobs", jobs=jobs), "rerail worker --jobs 4")
    ends: dict[str, str] = {}
    session = Session(common, out, observe=_Ends(out, ends))
    _refuse_memory(session)
    settings, sources = session.settings.worker, session.given
    async with session.engine(sources, session.load(sources), making=True, driving=True) as engine:
        patience = session.settings.store.reconnect_seconds
        crew = Crew(engine, jobs or settings.runs, out.notice, patience)
        out.note(Text(out.say("cli.work.begun", pid=os.getpid(), jobs=jobs or settings.runs, count=len(engine.tools))))
        with _told(crew):
            await crew.work(until_idle=until_idle)
            if engine.under_way():
                out.note(Text(out.say("cli.work.leaving", count=len(engine.under_way()), seconds=settings.grace)))
            await engine.hand_over(settings.grace)
            left = sorted(engine.under_way())
    if out.json:
        out.document({"taken": crew.taken, "ended": ends, "left_to_others": crew.left, "cut_short": left})
    else:
        out.print(out.say("cli.work.ended", taken=crew.taken, ended=len(ends), others=len(crew.left)))
    return 0


class _Ends:
    """Says of each run that this worker drives that it was taken up, and what it came to."""

    def __init__(self, out: Output, ends: dict[str, str]) -> None:
        self._out, self._ends = out, ends

    def __call__(self, record: Record) -> None:
        match record.event:
            case ev.Resumed(by=_):
                self._note("cli.work.took", run=record.run)
            case ev.Done(status=status):
                self._ends[record.run] = str(status)
                self._note("cli.work.rest", run=record.run, status=self._out.say(f"cli.status.{status}"))
            case ev.Waiting():
                self._ends[record.run] = "waiting"
                self._note("cli.work.rest", run=record.run, status=self._out.say("cli.status.waiting"))
            case _:
                pass

    def _note(self, key: str, **values: Any) -> None:
        if not self._out.quiet:
            self._out.note(Text(clean(self._out.say(key, **values)), "dim"))


def _refuse_memory(session: Session) -> None:
    if session.settings.store.url == "memory://":
        words = session.out.say("cli.worker.memory")
        raise Refused(words, "USAGE", hint=session.out.say("cli.work.memory_hint"))


@contextlib.contextmanager
def _told(crew: Crew) -> Iterator[None]:
    """The first signal to stop is a wish to hand over; the second one ends the command."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    told = 0

    def stop() -> None:
        nonlocal told
        told += 1
        if told == 1:
            crew.stop()
        elif told == 2:
            task.cancel()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    try:
        yield
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)
