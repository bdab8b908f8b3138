"""Following a run: show its progress, wait for its end, report, set the exit code."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import Any, NamedTuple

from rerail.api import Engine
from rerail.cli.display.live import RunDisplay, make_view
from rerail.cli.display.report import report, verdict_line
from rerail.cli.display.run_view import Picture
from rerail.cli.output import Output
from rerail.errors import RerailError
from rerail.kernel.state import State
from rerail.kernel.step_state import RunStatus
from rerail.views.results import RunResult, result

# How far each run was followed on this screen: the shell does not print that part again (contract T11).
_seen: dict[str, int] = {}
OK, FAILED, WAITING = 0, 1, 3
_CODES = {"completed": OK, "waiting": WAITING}


def exit_code(status: str) -> int:
    return _CODES.get(status, FAILED)


class Attended(NamedTuple):
    """A finished wait for a run: its result and its picture."""

    result: RunResult
    picture: Picture

    @property
    def interrupted(self) -> bool:
        """True if it should be running, and no process drives it."""
        return self.result.interrupted

    @property
    def code(self) -> int:
        return exit_code(self.result.status)


async def attend(engine: Engine, out: Output, picture: Picture, *, driving: bool = True) -> Attended:
    """Show a run from the picture's last event on, until it is at rest or waits for a person."""
    run = picture.state.run
    if driving:
        out.driving.append(run)
    view = make_view(out, picture)
    view.open()
    followers = [asyncio.create_task(_follow(engine, picture, view)), asyncio.create_task(_tick(view))]
    try:
        found = await engine.wait(run)
        await _stop(followers)
        while records := await engine.internals.page(run, picture.seq):
            for record in records:
                picture.feed(record)
                view.feed(record)
    finally:
        await _stop(followers)
        view.close()
        saw(run, picture.seq)
    if driving:
        out.driving.remove(run)
    return Attended(found, picture)


async def _follow(engine: Engine, picture: Picture, view: RunDisplay) -> None:
    async for record in engine.watch(picture.state.run, picture.seq):
        picture.feed(record)
        view.feed(record)


async def _tick(view: RunDisplay) -> None:
    while view.interval:
        view.draw()
        await asyncio.sleep(view.interval)


async def _stop(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    for task in tasks:
        with contextlib.suppress(asyncio.CancelledError, RerailError):  # `wait` reports a failure of the store
            await task


async def stay(engine: Engine, out: Output, picture: Picture, *, last: bool = False, **extra: Any) -> int:
    """Wait for a run and all its follow-ups, and report; return the exit code.

    ``last``: the follow-up was wanted, and its parent is only retried for it.
    """
    first = newest = await attend(engine, out, picture, driving=engine.internals.drives(picture.state.run))
    document = inner = {**first.result.to_dict(), **extra} if out.json else {}
    show_report(out, first)
    while (follow_up := await follow_up_of(engine, newest.picture.state)) is not None:
        newest = await attend(engine, out, Picture(follow_up), driving=engine.internals.drives(follow_up))
        show_report(out, newest)
        inner["follow_up"] = newest.result.to_dict()
        inner = inner["follow_up"]
    if out.json:
        out.document(document)
    return (newest if last else first).code  # a follow-up's failure never changes its parent's result (contract T6)


async def follow_up_of(engine: Engine, state: State) -> str | None:
    """Return the follow-up run that started after this one completed."""
    if state.follow_up is None or state.rest is None or state.rest.status != RunStatus.COMPLETED:
        return None
    children = await engine.list(parent=state.run, limit=1)
    return children[0].run_id if children else None


def show_report(out: Output, attended: Attended) -> None:
    """Print the report; under `--json` only its first line, since the document has the rest."""
    now = attended.picture.state.at if attended.interrupted else time.time()  # a dead process spends no time
    if out.json:
        if out.quiet:
            return
        found = result(attended.picture.state, {}, now, out.lang)
        out.note(verdict_line(out, found, "interrupted" if attended.interrupted else found.status))
    else:
        if out.out.is_terminal:
            out.print("")  # apart from the drawing above
        waits_for = attended.result.waiting_on
        out.print(*report(out, attended.picture, now, interrupted=attended.interrupted, waits_for=waits_for))


def saw(run: str, seq: int) -> None:
    _seen[run] = max(seq, _seen.get(run, 0))


def has_seen(run: str, seq: int) -> bool:
    return seq <= _seen.get(run, 0)
