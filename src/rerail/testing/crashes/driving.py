"""Bringing a run to its end from wherever it is: start it, go on with it, and answer what it asks, honestly.

Rules of this file:
- It does what a person would type: `run`, `resume`, `confirm`, `resolve`; `retry` where a follow-up was not started.
- Gates are confirmed. A doubt is answered by what the ledger knows; what nobody can know is left open, and reported.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rerail.core.track import RunStatus
from rerail.core.views import RunResult
from rerail.engine.family import follow_up_id
from rerail.errors import Refused
from rerail.plans import Plan
from rerail.testing.crashes.ledger import Call, End, Line, calls_of
from rerail.wiring import Engine

RUN = "crashtest"
AT_REST = (RunStatus.COMPLETED, RunStatus.FAILED, RunStatus.CANCELLED)


async def drive(engine: Engine, plan: Plan, lines: Callable[[], Sequence[Line]]) -> None:
    """Bring the run, and what follows it, as far as it goes without an answer that nobody has."""
    run: str | None = await _begun(engine, plan)
    while run is not None:
        result = await _rested(engine, run)
        if result.status != RunStatus.WAITING:
            run = await _follower(engine, run, result)
        elif not await _answered(engine, run, result, lines()):
            return


async def _begun(engine: Engine, plan: Plan) -> str:
    """Start the run, unless it is there already; one that was made and got no plan is started again (E4)."""
    heads = [head for head in await engine.heads(limit=100_000) if head.run == RUN]
    if not heads or not heads[0].seq:
        await engine.start(plan, run_id=RUN)
    return RUN


async def _rested(engine: Engine, run: str) -> RunResult:
    """Go on with a run until it is at rest or waits for a person."""
    if not engine.drives(run):
        result = await engine.show(run)
        if result.status in AT_REST or result.status == RunStatus.WAITING:
            return result
        await engine.begin_resume(run)
    return await engine.wait(run)


async def _follower(engine: Engine, run: str, result: RunResult) -> str | None:
    """What follows a completed run; started by a retry, if whoever was to start it died before (T6)."""
    state = await engine.state(run)
    if state.follow_up is None or result.status != RunStatus.COMPLETED:
        return None
    child = follow_up_id(state)
    heads = {head.run: head.seq for head in await engine.heads(parent=run, limit=100_000)}
    if not heads.get(child):
        await engine.begin_retry(run)
    return child


async def _answered(engine: Engine, run: str, result: RunResult, lines: Sequence[Line]) -> bool:
    """Answer what a run waits for; False if there is nothing that could be answered."""
    some = False
    for item in result.waiting_on:
        step = str(item["step"])
        if item["for"] == "confirm":
            await engine.confirm(run, step)
            some = True
        elif item["for"] == "in_doubt":
            some |= await _resolved(engine, run, step, *calls_of(lines, run, step, result.steps[step].attempts))
    return some


async def _resolved(engine: Engine, run: str, step: str, call: Call | None, end: End | None) -> bool:
    """Tell what became of a call, if the ledger knows: it was never made, or it ended with an output."""
    try:
        if call is None:
            await engine.resolve(run, step, rerun=True)
        elif end is not None and not end.error and end.shown:
            await engine.resolve(run, step, succeeded=end.output)
        else:
            return False
    except Refused:
        return False  # its files are not as they should be: then it is not as if it had succeeded
    return True
