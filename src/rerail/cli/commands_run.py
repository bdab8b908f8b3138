"""Commands that make runs go: run, start, check, retry, resume."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from cyclopts import Parameter
from rich.text import Text

from rerail.cli.attend import attend, stay
from rerail.cli.graph import Graph
from rerail.cli.inputs import load_plan
from rerail.cli.options import FLAG, PLAIN, Common
from rerail.cli.output import Output, clean, one_line
from rerail.cli.picture import Picture
from rerail.cli.render import once_warning, preview_lines
from rerail.cli.session import Session, ownership
from rerail.cli.style import icon, style_of, table
from rerail.core.commands import Preview
from rerail.core.holes import hole_warnings
from rerail.core.plan import Fault, servers_of
from rerail.core.tools import ToolSpec
from rerail.core.views import RunRow
from rerail.errors import PlanError, Refused, RerailError
from rerail.plans import Plan
from rerail.wiring import Engine

Hidden = Parameter(parse=False)

# How bad an exit code is: a failed run is worse than a refused retry, and that is worse than one that waits.
_BADNESS = {0: 0, 3: 1, 2: 2, 1: 3}


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

    Exit code: 0 success (degraded too), 1 failed or cancelled, 2 refused, 3 waiting.

    Parameters
    ----------
    plan
        A YAML or JSON file; - for stdin.
    objective
        What is to be reached, in words; the model makes the plan.
    fallback
        The plan to run if the model makes none; the verdict says degraded then.
    parent
        The run that this one follows up.
    """
    if (plan is None) == (objective is None):
        raise Refused(out.say("cli.error.plan_or_objective"), "USAGE")
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
            hints = [hint for plan in plans for hint in session.undecorated(plan, engine.tools_for(servers_of(plan)))]
            error.hint = "; ".join(hints) or error.hint
            raise
        return await stay(engine, out, Picture(started))


async def start(
    plan: str, /, *, parent: str | None = None, common: Common = PLAIN, out: Annotated[Output, Hidden]
) -> int:
    """Start a plan; for now it stays attached, as run does.

    Parameters
    ----------
    plan
        A YAML or JSON file; - for stdin.
    parent
        The run that this one follows up.
    """
    return await run(plan, parent=parent, common=common, out=out)


async def check(plan: str, /, *, common: Common = PLAIN, out: Annotated[Output, Hidden]) -> int:
    """List every fault of a plan; run nothing.

    With --tools the tools and their arguments are checked as well, and warnings tell what may go wrong: an argument
    that is made from an optional step's output and does not accept null. Warnings leave the exit code at 0.

    Parameters
    ----------
    plan
        A YAML or JSON file; - for stdin.
    """
    session = Session(common, out)
    loaded = load_plan(plan)
    specs, faults = await _checked(session, loaded)
    hints = session.undecorated(loaded, specs) if faults and specs is not None else []
    warnings = hole_warnings(loaded, specs) if not faults and specs is not None else []
    depth, width = (0, 0) if faults else Graph.of_plan(loaded).measures()
    if out.json:
        found = {"ok": not faults, "steps": len(loaded.steps), "depth": depth, "width": width}
        listed = {"faults": [one.to_dict() for one in faults], "warnings": [one.to_dict() for one in warnings]}
        out.document({**found, "tools_checked": specs is not None, **listed, "hints": hints})
    elif faults:
        out.print(Text(out.say("cli.check.faults", count=len(faults)), "bold red"))
        out.print(*(Text.assemble("  - ", clean(fault.said(out.lang)), ("  " + fault.code, "dim")) for fault in faults))
        out.print(*(Text.assemble((out.say("cli.hint"), "cyan"), " ", clean(hint)) for hint in hints))
    else:
        out.print(Text(out.say("cli.check.ok", steps=len(loaded.steps), depth=depth, width=width), "green"))
        out.print(*(_warning(out, one) for one in warnings))
        if specs is None:
            out.note(Text(out.say("cli.check.no_tools"), "dim"))
    return 2 if faults else 0


def _warning(out: Output, fault: Fault) -> Text:
    said = clean(fault.said(out.lang))
    return Text.assemble((out.say("cli.check.warning"), "yellow"), " ", said, ("  " + fault.code, "dim"))


async def _checked(session: Session, plan: Plan) -> tuple[Mapping[str, ToolSpec] | None, list[Fault]]:
    """The tools that the plan meets, and its faults; servers that it may not bring are one of them."""
    try:
        specs = await session.specs(plan)
    except PlanError as refused:
        return None, [*refused.faults, *plan.check()]
    return specs, plan.check(specs)


async def resume(run: str, /, *, common: Common = PLAIN, out: Annotated[Output, Hidden]) -> int:
    """Continue an interrupted or paused run; nothing that is done is called again.

    Parameters
    ----------
    run
        The run's id, or the beginning of it.
    """
    async with Session(common, out).reopened(run) as (engine, found):
        picture = Picture.of(found, await engine.events(found))
        await engine.begin_resume(found)
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
    common: Common = PLAIN,
    out: Annotated[Output, Hidden],
) -> int:
    """Do again exactly what failed and what depends on it.

    Parameters
    ----------
    run
        The run's id, or the beginning of it.
    step
        A step to run again; may be given several times.
    stage
        Resume from this stage.
    clean
        Start over: everything runs again. Asks first.
    force
        Pass the retry limit, an error that cannot be mended by trying again, or a success.
    dry_run
        Only show what would run again and why, what is kept, and which effects would happen twice.
    yes
        Do not ask.
    all_failed
        Retry every run that failed or was interrupted.
    """
    wanted = _Wanted(step, stage, clean, force)
    if (run is None) is not all_failed:
        return out.usage(out.say("cli.retry.which"), "rerail ls --status failed")
    session = Session(common, out)
    if run is None:
        return await _retry_all(session, wanted, dry_run=dry_run, yes=yes)
    async with session.reopened(run) as (engine, found):
        if dry_run:
            return await _preview(engine, out, found, wanted)
        await _confirmed(engine, out, found, wanted, yes=yes)
        owner = (await ownership(engine, found)).owner
        picture = Picture.of(found, await engine.events(found))
        target, preview = await engine.begin_retry(found, **wanted.arguments())
        if preview is None:
            return await handed_over(engine, out, target, owner)
        _say_passed(out, preview)
        if preview.once and not wanted.clean:  # said, and asked, before a clean one
            out.note(once_warning(out, preview.once))
        if target != found:
            out.note(out.say("cli.retry.follow_up", run=found, target=target))
            picture = Picture(target)
        return await stay(engine, out, picture)


class _Wanted:
    """What a retry is asked to take."""

    def __init__(self, steps: Sequence[str], stage: str | None, clean: bool, force: bool) -> None:
        self.steps, self.stage, self.clean, self.force = list(steps), stage, clean, force

    def arguments(self) -> dict[str, Any]:
        """The façade's arguments."""
        return {"steps": self.steps or None, "stage": self.stage, "clean": self.clean, "force": self.force}


async def _foreseen(engine: Engine, run: str, wanted: _Wanted) -> tuple[str, Preview]:
    target, preview = await engine.begin_retry(run, **wanted.arguments(), dry_run=True)
    assert preview is not None
    return target, preview


async def _preview(engine: Engine, out: Output, run: str, wanted: _Wanted) -> int:
    target, preview = await _foreseen(engine, run, wanted)
    if out.json:
        out.document({"run_id": target, **preview.to_dict()})
    else:
        out.print(*preview_lines(out, Picture.of(target, await engine.events(target)), preview))
    return 0


async def _confirmed(engine: Engine, out: Output, run: str, wanted: _Wanted, *, yes: bool) -> None:
    """Starting over needs somebody's word, given in sight of what would happen twice (T4)."""
    if not wanted.clean or yes:
        return
    _, preview = await _foreseen(engine, run, wanted)
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise Refused(
            out.say("cli.clean.no_terminal", run=run), "CONFIRM_NEEDED", hint=f"rerail retry {run} --clean --yes"
        )
    out.note(Text(out.say("cli.clean.about", run=run, count=len(preview.rerun))))
    if preview.once:
        out.note(once_warning(out, preview.once))
    out.err.print(out.say("cli.clean.ask"), end=" ")
    if (await _line()).strip().lower() not in ("y", "yes", "是"):
        raise Refused(out.say("cli.clean.declined"), "CONFIRM_NEEDED")


async def _line() -> str:
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
        out.note(Text(f"  rerail watch {run}{out.where}", "cyan"))
    return 0


# -- All that failed ----------------------------------------------------------------------------------------------


async def _retry_all(session: Session, wanted: _Wanted, *, dry_run: bool, yes: bool) -> int:
    out = session.out
    if wanted.steps or wanted.stage:
        return out.usage(out.say("cli.retry.all_or_steps"), "rerail retry RUN --step ID")
    if wanted.clean and not (yes or dry_run):
        raise Refused(out.say("cli.clean.all"), "CONFIRM_NEEDED", hint="rerail retry --all-failed --clean --yes")
    session.require_store()
    async with session.engine() as engine:
        rows = await engine.list(status=("failed", "running"), limit=100_000)
    rows = [row for row in rows if row.status == "failed" or row.interrupted]
    done = [await _retry_one(session, row, wanted, dry_run=dry_run) for row in reversed(rows)]
    if out.json:
        out.document(done)
    elif done:
        out.print(*_all_table(out, done))
    else:
        out.print(out.say("cli.retry.none"))
    return max((row["exit_code"] for row in done), key=lambda code: _BADNESS.get(code, 3), default=0)


async def _retry_one(session: Session, row: RunRow, wanted: _Wanted, *, dry_run: bool) -> dict[str, Any]:
    """One run of many: what became of it, or why not."""
    before = "interrupted" if row.interrupted else row.status
    told = {"run_id": row.run_id, "objective": row.objective, "before": before}
    try:
        async with session.reopened(row.run_id) as (engine, run):
            if dry_run:
                _, preview = await _foreseen(engine, run, wanted)
                return {**told, "status": before, "exit_code": 0, "reason": None, "preview": preview.to_dict()}
            picture = Picture.of(run, await engine.events(run))
            target = await _begin(engine, run, wanted, interrupted=row.interrupted)
            attended = await attend(engine, session.out, picture if target == run else Picture(target))
    except RerailError as error:
        code = 2 if isinstance(error, Refused) else 1
        return {**told, "status": before, "exit_code": code, "reason": str(error)}
    found = attended.result
    return {**told, "status": found.status, "exit_code": attended.code, "reason": found.summary}


async def _begin(engine: Engine, run: str, wanted: _Wanted, *, interrupted: bool) -> str:
    """Retry a run; one that was merely interrupted, with nothing failed, just goes on."""
    try:
        target, _ = await engine.begin_retry(run, **wanted.arguments())
    except Refused as refused:
        if not interrupted or refused.code != "NOTHING_TO_RETRY":
            raise
        return await engine.begin_resume(run)
    return target


def _all_table(out: Output, done: Sequence[dict[str, Any]]) -> list[Text]:
    rows: list[list[Text | str]] = []
    for row in done:
        shown = Text.assemble(icon(row["status"], fancy=out.fancy), " ", out.say(f"cli.status.{row['status']}"))
        shown.stylize(style_of(row["status"]))
        would = out.say("cli.retry.would", count=len(row["preview"]["rerun"])) if "preview" in row else ""
        words = row["reason"] or would
        before = out.say(f"cli.status.{row['before']}")
        rows.append([Text(row["run_id"], "bold"), before, shown, one_line(row["objective"], 40), one_line(words)])
    head = [out.say(f"cli.head.{name}") for name in ("run", "before", "status", "objective", "note")]
    return table(head, rows, out.out.width)
