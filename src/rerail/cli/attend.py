"""Staying with a run: show it while it goes on, wait for its end, report, and say so with the exit code."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import Any

from rerail.cli.live import View, make_view
from rerail.cli.output import Output
from rerail.cli.picture import Picture
from rerail.cli.render import report, verdict_line
from rerail.cli.session import ownership
from rerail.core.state import State
from rerail.core.track import RunStatus
from rerail.core.views import RunResult, result
from rerail.errors import RerailError
from rerail.wiring import Engine

# How far each run was followed on this screen: the shell does not tell that a second time (contract T11).
_seen: dict[str, int] = {}
OK, FAILED, WAITING = 0, 1, 3
_CODES = {"completed": OK, "waiting": WAITING}


def exit_code(status: str) -> int:
    """What a run's status means to a script (T4)."""
    return _CODES.get(status, FAILED)


class Attended:
    """A run that was waited for: its result and the picture of it."""

    def __init__(self, result: RunResult, picture: Picture, *, interrupted: bool) -> None:
        self.result, self.picture, self.interrupted = result, picture, interrupted

    @property
    def code(self) -> int:
        """The exit code it deserves."""
        return exit_code(self.result.status)


async def attend(engine: Engine, out: Output, picture: Picture, *, driving: bool = True) -> Attended:
    """Show a run from what the picture knows on, until it is at rest or waits for a person."""
    run = picture.state.run
    if driving:
        out.driving.append(run)
    view = make_view(out, picture)
    view.open()
    followers = [asyncio.create_task(_follow(engine, picture, view)), asyncio.create_task(_tick(view))]
    try:
        found = await engine.wait(run)
        await _stop(followers)
        for record in await engine.events(run, picture.seq):
            picture.feed(record)
            view.feed(record)
    finally:
        await _stop(followers)
        view.close()
        saw(run, picture.seq)
    if driving:
        out.driving.remove(run)
    interrupted = found.status == RunStatus.RUNNING and (await ownership(engine, run)).interrupted
    return Attended(found, picture, interrupted=interrupted)


async def _follow(engine: Engine, picture: Picture, view: View) -> None:
    async for record in engine.watch(picture.state.run, picture.seq):
        picture.feed(record)
        view.feed(record)


async def _tick(view: View) -> None:
    while view.interval:
        view.draw()
        await asyncio.sleep(view.interval)


async def _stop(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    for task in tasks:
        with contextlib.suppress(asyncio.CancelledError, RerailError):  # what is wrong with the store, `wait` tells
            await task


async def stay(engine: Engine, out: Output, picture: Picture, *, last: bool = False, **extra: Any) -> int:
    """Wait for a run, for what follows it and what follows that, and report; returns the exit code.

    ``last``: it was what follows that somebody wanted, and its parent is only mended for it.
    """
    first = newest = await attend(engine, out, picture, driving=engine.drives(picture.state.run))
    document = inner = {**first.result.to_dict(), **extra} if out.json else {}
    show_report(out, first)
    while (follow_up := await follow_up_of(engine, newest.picture.state)) is not None:
        newest = await attend(engine, out, Picture(follow_up), driving=engine.drives(follow_up))
        show_report(out, newest)
        inner["follow_up"] = newest.result.to_dict()
        inner = inner["follow_up"]
    if out.json:
        out.document(document)
    return (newest if last else first).code  # a follow-up's failure never changes what its parent came to (T6)


async def follow_up_of(engine: Engine, state: State) -> str | None:
    """The run that was started because this one completed."""
    if state.follow_up is None or state.rest is None or state.rest.status != RunStatus.COMPLETED:
        return None
    children = await engine.list(parent=state.run, limit=1)
    return children[0].run_id if children else None


def show_report(out: Output, attended: Attended) -> None:
    """The report; under `--json` only its first line, since the document says the rest."""
    now = attended.picture.state.at if attended.interrupted else time.time()  # the dead spend no time
    if out.json:
        if out.quiet:
            return
        found = result(attended.picture.state, {}, now, out.lang)
        out.note(verdict_line(out, found, "interrupted" if attended.interrupted else found.status))
    else:
        if out.out.is_terminal:
            out.print("")  # apart from what was drawn above
        waits_for = attended.result.waiting_on
        out.print(*report(out, attended.picture, now, interrupted=attended.interrupted, waits_for=waits_for))


def saw(run: str, seq: int) -> None:
    """A run was followed on the screen as far as this event."""
    _seen[run] = max(seq, _seen.get(run, 0))


def has_seen(run: str, seq: int) -> bool:
    """Whether an event was on the screen."""
    return seq <= _seen.get(run, 0)
