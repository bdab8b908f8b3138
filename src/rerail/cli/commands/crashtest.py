"""The command that kills a plan at every moment, to see what becomes of it: crashtest."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated

from rich.text import Text

from rerail.cli.input_files import has_terminal, load_plan, require_yes
from rerail.cli.options import JOBS, PLAIN, Common, Out, Yes
from rerail.cli.output import Output, clean
from rerail.cli.session import Session
from rerail.cli.style import icon, table
from rerail.errors import PlanError, Refused
from rerail.i18n import span, tell
from rerail.plan.model import Plan
from rerail.plan.step import Effect, Step
from rerail.plan.tool_spec import ToolSpec
from rerail.plan.warnings import plans_in
from rerail.testing.crash_testing.trials import crashtest as run_crashtest
from rerail.testing.crash_testing.verdict import Came, CrashReport, ToolRow, Trial, tools_that

SHOWN = 5  # broken points that are told of one by one
TOLD_EVERY = 10  # trials
ROWS = ("tried", "not_reached", "lost", "repeated", "missing", "different", "unfinished", "doubts", "open")
FAULTS = ("lost", "repeated", "missing", "different")
BAD = ("lost", "repeated", "missing", "different", "unfinished")


async def crashtest(
    plan: str,
    /,
    *,
    points: int | None = None,
    seed: int = 0,
    jobs: Annotated[int, JOBS] = 1,
    keep: Path | None = None,
    yes: Yes = False,
    common: Common = PLAIN,
    out: Out,
) -> int:
    """Kill a plan's process (kill -9) at every moment, resume it, and see whether every guarantee was kept."""
    if (points is not None and points < 1) or jobs < 1:
        return out.usage(tell("refuse.crash.counts"), "rerail crashtest PLAN --tools FILE.py --points 20")
    session = Session(common, out)
    loaded = load_plan(plan)
    specs = await session.specs()
    if specs is None:
        return out.usage(tell("refuse.crash.no_tools"), f"rerail crashtest {plan} --tools FILE.py")
    if faults := loaded.check(specs):
        raise PlanError(tell("refuse.run.plan_faulty"), faults)
    await _agreed(out, loaded, specs, points, yes=yes)

    def heard(done: int, total: int) -> None:
        if not out.quiet and (done % TOLD_EVERY == 0 or done == total):
            out.note(Text(out.say("cli.crash.progress", done=done, total=total), "dim"))

    report = await run_crashtest(
        loaded, session.given, session.settings, points=points, seed=seed, jobs=jobs, keep=keep, heard=heard
    )
    if out.json:
        out.document(report.to_dict())
    else:
        _show(out, report)
    return 0 if report.ok else 1


# -- Before -------------------------------------------------------------------------------------------------------


async def _agreed(out: Output, plan: Plan, specs: Mapping[str, ToolSpec], points: int | None, *, yes: bool) -> None:
    """Ask before tools are called again and again."""
    if yes:
        return
    if not has_terminal():
        raise Refused(tell("refuse.crash.no_terminal"), "CONFIRM_NEEDED", hint="rerail crashtest PLAN --yes")
    many = out.say("cli.crash.all_points") if points is None else out.say("cli.crash.some_points", n=points)
    names = list(dict.fromkeys(name for part in plans_in(plan) for step in part.steps for name in _tools(step)))
    out.note(clean(out.say("cli.crash.about", points=many, tools=", ".join(names))))
    if once := [name for name in names if name in specs and specs[name].effect is Effect.ONCE]:
        out.note(Text(clean(out.say("cli.crash.once", tools=", ".join(once))), "yellow"))
    await require_yes(out, out.say("cli.crash.ask"), tell("cli.clean.declined"))


def _tools(step: Step) -> Iterator[str]:
    yield step.tool
    yield from step.alternatives
    for call in (step.fallback, step.verify):
        if call is not None and call.tool:
            yield call.tool


# -- After --------------------------------------------------------------------------------------------------------


def _show(out: Output, report: CrashReport) -> None:
    counts, broken = report.counts(), report.broken
    sign = icon("succeeded" if report.ok else "failed", fancy=out.fancy)
    bad = "cli.crash.broken" if broken else "cli.crash.cut.broken"
    key = "cli.crash.kept" if report.ok else bad if report.tested else "cli.crash.untested"
    told = {**counts, "broken": len(broken), "seconds": span(report.seconds)}
    out.print(Text.assemble(sign, " ", (out.say(key, **told), "bold green" if report.ok else "bold red")), "")
    if report.status != "completed":  # the guarantees cover the finished part alone
        out.print(Text(out.say("cli.crash.undisturbed", status=out.say(f"status.{report.status}")), "yellow"), "")
    tried = out.say("cli.crash.of", **counts)
    cells: list[list[Text | str]] = [
        ["  " + out.say(f"cli.crash.row.{name}"), _counted(name, counts[name], tried if name == "tried" else "")]
        for name in ROWS
    ]
    out.print(*table([], cells, out.out.width))
    for trial in broken[:SHOWN]:
        out.print("", *_trial(out, trial))
    if len(broken) > SHOWN:
        out.print("", out.say("cli.crash.more", n=len(broken) - SHOWN))
    _tool_table(out, report)
    _cut_off(out, report)
    if not report.tested:
        out.print("", out.hint(out.say("cli.crash.hint_untested")))


def _counted(name: str, count: int, said: str) -> Text:
    return Text(said or str(count), "bold red" if count and name in BAD else "yellow" if count and not said else "")


def _trial(out: Output, trial: Trial) -> Iterator[Text]:
    what = clean(trial.what) or out.say("cli.crash.not_reached")
    yield Text(out.say("cli.crash.point", point=trial.point, what=what), "bold")
    for name in FAULTS:
        if found := getattr(trial, name):
            names = ", ".join(out.told(one) for one in found)
            yield Text("  " + clean(out.say(f"cli.crash.fault.{name}", names=names)), "red")
    if trial.problem:
        yield Text("  " + clean(out.told(trial.problem)), "red")


def _tool_table(out: Output, report: CrashReport) -> None:
    head = [
        "  " + out.say("cli.head.tool"),
        *(out.say(f"cli.crash.head.{name}") for name in ("effect", "again", "seen")),
    ]
    cells = [
        [Text("  " + clean(row.tool)), Text(row.effect), Text(str(row.again)), _seen(out, row)] for row in report.tools
    ]
    out.print("", Text(out.say("cli.crash.tools"), "bold"), *table(head, cells, out.out.width))
    if report.unsafe:
        names = ", ".join(row.tool for row in report.unsafe)
        out.print("", out.hint(out.say("cli.crash.hint", tools=names)))


STYLES = {Came.DOUBLED: "bold red", Came.WRONG: "bold red", Came.DOUBT: "yellow", Came.SAFE: "green"}


def _cut_off(out: Output, report: CrashReport) -> None:
    """Print the worst outcome of each tool with cut answers."""
    tried = [cut for cut in report.cuts if cut.step]
    if not tried:
        return
    worst: dict[str, Came] = {}
    for came in STYLES:
        for tool in tools_that(came, tried):
            worst.setdefault(tool, came)
    cells = [[Text("  " + clean(t)), Text(out.say(f"cli.crash.cut.{c}"), STYLES[c])] for t, c in worst.items()]
    head = out.say("cli.crash.cut.head", n=len({cut.call for cut in tried}))
    out.print("", Text(head, "bold"), *table([], cells, out.out.width))
    if unfinished := sum(bool(cut.problem) for cut in report.cuts):
        out.print(Text("  " + out.say("cli.crash.cut.unfinished", n=unfinished), "bold red"))
    if harmed := [tool for tool, came in worst.items() if came is not Came.SAFE]:
        out.print("", out.hint(out.say("cli.crash.cut.hint", tools=", ".join(harmed))))


def _seen(out: Output, row: ToolRow) -> Text:
    if row.effect == Effect.ONCE:
        return Text(out.say("cli.crash.tool.once"), "dim")
    if row.safe is False:
        return Text(out.say("cli.crash.tool.unsafe", other=row.other_output, failed=row.failed), "yellow")
    if row.safe:
        return Text(out.say("cli.crash.tool.same"), "green")
    return Text(out.say("cli.crash.tool.varies" if row.varies else "cli.crash.tool.unknown"), "dim")
