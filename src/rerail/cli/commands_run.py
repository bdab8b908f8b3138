"""Commands that make runs go: run, start, check, retry, resume."""

from __future__ import annotations

import asyncio
import sys
from typing import Annotated

from cyclopts import Parameter
from rich.text import Text

from rerail.cli.attend import stay
from rerail.cli.commands_many import retry_all
from rerail.cli.commands_work import queued
from rerail.cli.inputs import load_plan, read_plan
from rerail.cli.jobs import Job
from rerail.cli.launch import detach, detaches, other_run, under
from rerail.cli.options import FLAG, PLAIN, Common
from rerail.cli.output import Output, clean
from rerail.cli.picture import Picture
from rerail.cli.render import preview_lines, warnings
from rerail.cli.retry_report import RetryReport, refusal
from rerail.cli.session import Session, ownership
from rerail.core.assumed import effect_warnings
from rerail.core.command import Resume, Retry
from rerail.core.commands import Preview
from rerail.core.graph import Graph
from rerail.core.holes import hole_warnings
from rerail.core.plan import Fault
from rerail.errors import PlanError, Refused
from rerail.i18n import tell
from rerail.wiring import Engine

Hidden = Parameter(parse=False)
DETACH = Parameter(name="--detach", negative="", show_default=False)


async def run(
    plan: str | None = None,
    /,
    *,
    objective: str | None = None,
    fallback: str | None = None,
    parent: str | None = None,
    common: Common = PLAIN,
    out: Annotated[Output, Hidden],
) -> int:
    """Run a plan and stay with it until it is at rest or waits for a person.

    Exit code: 0 success (degraded too), 1 failed or cancelled, 2 refused, 3 waiting."""
    if (plan is None) == (objective is None):
        raise Refused(tell("cli.error.plan_or_objective"), "USAGE")
    session = Session(common, out)
    loaded = load_plan(plan) if plan is not None else None
    second = load_plan(fallback) if fallback is not None else None
    sources = session.given
    async with session.engine(sources, session.load(sources), making=True, driving=True) as engine:
        above = await engine.find(parent) if parent is not None else None
        try:
            started = await engine.start(loaded, objective=objective, fallback=second, parent=above)
        except PlanError as error:
            plans = [plan for plan in (loaded, second) if plan is not None]
            hints = [hint for plan in plans for hint in session.undecorated(plan, engine.tools)]
            error.hint = hints[0] if len(hints) == 1 else "; ".join(hints) or error.hint
            raise
        return await stay(engine, out, Picture(started))


async def start(
    plan: str,
    /,
    *,
    parent: str | None = None,
    wait: Annotated[bool, FLAG] = False,
    queue: Annotated[bool, FLAG] = False,
    common: Common = PLAIN,
    out: Annotated[Output, Hidden],
) -> int:
    """Start a plan in a process of its own, and leave it to itself; or leave it to whoever is there to do it."""
    if queue:
        return await queued(Session(common, out), plan, parent, wait=wait)
    if wait:
        return await run(plan, parent=parent, common=common, out=out)
    given = read_plan(plan)
    return await detach(Session(common, out), Job.under(common, out.lang, plan=given, parent=parent or ""))


async def check(plan: str, /, *, common: Common = PLAIN, out: Annotated[Output, Hidden]) -> int:
    """List every fault of a plan; run nothing.

    With --tools the tools and their arguments are checked as well, and warnings tell what may go wrong: an argument
    that is made from an optional step's output and does not accept null. Warnings leave the exit code at 0."""
    session = Session(common, out)
    loaded = load_plan(plan)
    specs = await session.specs()
    faults = loaded.check(specs)
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
        out.print(*(Text.assemble((out.say("cli.hint"), "cyan"), " ", clean(out.told(hint))) for hint in hints))
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
    run: str,
    /,
    *,
    detached: Annotated[bool, DETACH] = False,
    take_over: Annotated[bool, FLAG] = False,
    common: Common = PLAIN,
    out: Annotated[Output, Hidden],
) -> int:
    """Continue an interrupted or paused run; nothing that is done is called again."""
    session = Session(common, out)
    if detached:
        return await detach(session, under(session, run, Resume(take_over=take_over)))
    async with session.reopened(run) as (engine, found):
        picture = Picture.of(found, await engine.events(found))
        await engine.do(found, Resume(take_over=take_over))
        return await stay(engine, out, picture)


# -- Retry --------------------------------------------------------------------------------------------------------


async def retry(
    run: str | None = None,
    /,
    *,
    step: Annotated[tuple[str, ...], FLAG] = (),
    stage: str | None = None,
    clean: Annotated[bool, FLAG] = False,
    force: Annotated[bool, FLAG] = False,
    dry_run: Annotated[bool, FLAG] = False,
    yes: Annotated[bool, Parameter(name=["--yes", "-y"], negative="", show_default=False)] = False,
    all_failed: Annotated[bool, FLAG] = False,
    jobs: Annotated[int | None, Parameter(name=["--jobs", "-j"])] = None,
    wait: Annotated[bool, FLAG] = False,
    detached: Annotated[bool, DETACH] = False,
    take_over: Annotated[bool, FLAG] = False,
    common: Common = PLAIN,
    out: Annotated[Output, Hidden],
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
    try:
        if not dry_run and await detaches(session, run, wait=wait, detach=detached):
            return await _retry_detached(session, run, wanted, yes=yes)
        return await _retry_here(session, run, wanted, yes=yes, dry_run=dry_run)
    except Refused as refused:
        return out.fail(refused, refusal(out, run, refused))


async def _retry_detached(session: Session, run: str, wanted: Retry, *, yes: bool) -> int:
    """Let a worker do it; what can be said is said before."""
    ready = await _ready(session, run, wanted, yes=yes)
    if isinstance(ready, int):
        return ready
    if ready is not None:
        session.out.print(*ready.opening(session.out))
    return await detach(session, under(session, run, wanted), ready)


async def _retry_here(session: Session, run: str, wanted: Retry, *, yes: bool, dry_run: bool) -> int:
    """Do it in this process, and stay."""
    out = session.out
    async with session.reopened(run) as (engine, found):
        if dry_run:
            return await _preview(engine, out, found, wanted)
        await _confirmed(engine, out, found, wanted, yes=yes)
        owner = (await ownership(engine, found)).owner
        picture, below = Picture.of(found, await engine.events(found)), await _below(engine, found)
        if picture.state.staged and not out.json and (report := await _report(engine, found, wanted)) is not None:
            out.print(*report.opening(out), Text())
        target, preview = await engine.do(found, wanted)
        if preview is None and not engine.drives(target):
            return await handed_over(engine, out, target, owner)
        if preview is not None:
            _say_passed(out, preview)
        if preview is not None and not wanted.clean:  # said, and asked, before a clean one
            out.note(*warnings(out, preview.once, preview.edited, done=True))
        if target != found:
            out.note(other_run(out, found, target))
            told = below.get(target, 0)  # what happened to it earlier is no news
            picture = Picture.of(target, [record for record in await engine.events(target) if record.seq <= told])
        return await stay(engine, out, picture, last=preview is not None and preview.mending)


async def _below(engine: Engine, run: str) -> dict[str, int]:
    """The runs that follow a run, and how far each is."""
    found: dict[str, int] = {}
    while heads := await engine.heads(parent=run, limit=1):
        run = heads[0].run
        found[run] = heads[0].seq
    return found


async def _report(engine: Engine, run: str, wanted: Retry) -> RetryReport | None:
    """What there is to tell about a retry before it happens; None where only doing it can tell."""
    try:
        target, preview = await engine.do(run, wanted, dry_run=True)
    except Refused as refused:
        if refused.code not in ("RUN_COMPLETED", "NOTHING_TO_RETRY"):
            raise
        return None  # unless its follow-up was never started, or its end never written down
    return RetryReport(run, await engine.state(target), preview) if preview is not None else None


async def _ready(session: Session, run: str, wanted: Retry, *, yes: bool) -> RetryReport | int | None:
    """What has to happen before a worker may take a run up: starting over is asked for, named steps go to the owner.

    Returns the exit code if that was all, else what there is to tell, if the plan has stages.
    """
    out = session.out
    if wanted.clean and not yes:
        async with session.reopened(run) as (engine, found):
            await _confirmed(engine, out, found, wanted, yes=yes)
    if wanted.steps and not wanted.take_over:
        async with session.engine(run=run) as engine:
            found = await engine.find(run)
            owner = (await ownership(engine, found)).owner
            if owner and (await engine.head(found)).status in ("running", "waiting"):
                await engine.do(found, wanted)
                return await handed_over(engine, out, found, owner)
    # Whether a tool was changed since only its file can tell; that matters to a forced retry alone.
    opened = session.reopened(run) if wanted.force else session.looking(run)
    async with opened as (engine, found):
        staged = (await engine.state(found)).staged
        return await _report(engine, found, wanted) if staged and not out.json else None


async def _foreseen(engine: Engine, run: str, wanted: Retry) -> tuple[str, Preview]:
    target, preview = await engine.do(run, wanted, dry_run=True)
    assert preview is not None
    return target, preview


async def _preview(engine: Engine, out: Output, run: str, wanted: Retry) -> int:
    target, preview = await _foreseen(engine, run, wanted)
    if out.json:
        out.document({"run_id": target, **preview.to_dict()})
    else:
        out.print(*preview_lines(out, Picture.of(target, await engine.events(target)), preview))
    return 0


async def _confirmed(engine: Engine, out: Output, run: str, wanted: Retry, *, yes: bool) -> None:
    """Starting over needs somebody's word, given in sight of what would happen twice (T4)."""
    if not wanted.clean or yes:
        return
    _, preview = await _foreseen(engine, run, wanted)
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise Refused(
            tell("cli.clean.no_terminal", run=run), "CONFIRM_NEEDED", hint=f"rerail retry {run} --clean --yes"
        )
    out.note(Text(out.say("cli.clean.about", run=run, count=len(preview.rerun))))
    out.note(*warnings(out, preview.once, preview.edited))
    out.err.print(out.say("cli.clean.ask"), end=" ")
    if (await typed_line()).strip().lower() not in ("y", "yes", "是"):
        raise Refused(tell("cli.clean.declined"), "CONFIRM_NEEDED")


async def typed_line() -> str:
    """A line typed on the terminal. No thread is left reading if the user presses Ctrl-C instead."""
    loop, typed = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(sys.stdin.fileno(), typed.set)
    try:
        await typed.wait()
    finally:
        loop.remove_reader(sys.stdin.fileno())
    return sys.stdin.readline()


def _say_passed(out: Output, preview: Preview) -> None:
    if preview.passed:
        out.note(Text(out.say("cli.retry.passed", checks=", ".join(preview.passed)), "yellow"))


async def handed_over(engine: Engine, out: Output, run: str, owner: str) -> int:
    """Say that the run's owner, another process, took the wish; returns the exit code."""
    if out.json:
        out.document({**(await engine.show(run)).to_dict(), "handed_to": owner or None})
    else:
        out.print(out.say("cli.handed_over", run=run, owner=owner or "?"))
        out.note(Text("  " + out.typed(f"rerail watch {run}"), "cyan"))
    return 0
