"""Commands that only read: ls, show, why, logs, watch, graph, artifacts, replay."""

from __future__ import annotations

import asyncio
import heapq
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
from cyclopts import Parameter
from rich.text import Text

from rerail.api import Engine
from rerail.cli.display.follow import attend, exit_code, follow_up_of, saw, show_report
from rerail.cli.display.graph import mermaid, tree
from rerail.cli.display.live import LogLines
from rerail.cli.display.report import report, runs_table, status_words, steps_table, verdict_line
from rerail.cli.display.run_view import Picture
from rerail.cli.input_files import is_plan, load_plan
from rerail.cli.options import FLAG, PLAIN, Common, Every, Out
from rerail.cli.output import Output, clean, one_line
from rerail.cli.session import Session, ownership
from rerail.cli.style import moment, table
from rerail.engine.printed import LogReader, Printed, log_file
from rerail.engine.runs.reader import AT_REST
from rerail.errors import PlanError
from rerail.i18n import span, tell
from rerail.kernel.events import Record
from rerail.kernel.stages import PAUSED, shown_status
from rerail.kernel.state import State
from rerail.kernel.verdict import run_status
from rerail.settings.loading import overrides_from
from rerail.values.json_values import size
from rerail.views.graph import Graph
from rerail.views.replay.outcome import Replay, Spent, UnknownAnswer
from rerail.views.results import RunRow, result
from rerail.views.why import failures

FEW_EVENTS = 5_000  # largest history that a list folds
FOLLOW_EVERY = 0.2  # seconds between two polls of a followed run

RunWord = Literal["pending", "running", "waiting", "completed", "failed", "cancelled", "interrupted"]


async def ls(
    *,
    status: Annotated[tuple[RunWord, ...], FLAG] = (),
    limit: Annotated[int, Parameter(name=["--limit", "-n"])] = 20,
    common: Common = PLAIN,
    out: Out,
) -> int:
    """List the runs, newest first; interrupted ones are marked."""
    session = Session(common, out)
    session.require_store()
    async with session.engine() as engine:
        rows = await _chosen(engine, status, limit)
        live = [
            row for row in rows[: limit or None] if row.status in ("running", "waiting") and row.events < FEW_EVENTS
        ]
        stages = {row.run_id: shown_status(await engine.internals.state(row.run_id)) for row in live}
        others = len(await engine.internals.heads(limit=1_000_000)) if status and not rows else 0
        paused = {run: Picture.of(run, await engine.events(run)) for run, stage in stages.items() if stage == PAUSED}
    more = len(rows) > limit > 0
    rows = rows[:limit] if limit > 0 else rows
    if out.json:
        out.document([row.to_dict() for row in rows])
    elif not rows and others:
        words = ", ".join(status_words(out, word) for word in status)
        out.print(out.say("cli.ls.none_of", status=words, count=others))
    elif not rows:
        out.print(out.say("cli.ls.none"))
        out.note(Text("  rerail run plan.yaml --tools tools.py", "cyan"))
    else:
        out.print(*runs_table(out, rows, stages, {run: picture.paused_by for run, picture in paused.items()}))
        for run in list(paused)[:3]:
            out.note(Text(out.say("cli.ls.paused", run=run), "dim"))
            out.suggest(f"rerail resume {run}")
        if more:
            out.note(Text(out.say("cli.ls.more"), "dim"))
    return 0


async def _chosen(engine: Engine, status: tuple[str, ...], limit: int) -> list[RunRow]:
    """Return the runs of these statuses, one more than asked for; `interrupted` is a kind of running."""
    stored = tuple(dict.fromkeys("running" if word == "interrupted" else word for word in status))
    odd = "interrupted" in status or "running" in status  # the store does not tell these two apart
    rows = await engine.list(status=stored, limit=limit + 1 if limit > 0 and not odd else 1_000_000)
    if odd:
        rows = [row for row in rows if ("interrupted" if row.interrupted else row.status) in status]
    return rows


async def show(
    run: str, /, *, output: str | None = None, everything: Every = False, common: Common = PLAIN, out: Out
) -> int:
    """Show a run: its steps, its verdict, and what to do next."""
    async with Session(common, out).engine(run=run) as engine:
        found = await engine.find(run)
        if output is not None:
            return _print_value(out, await engine.artifact(found, output))
        if out.json:
            owned = await ownership(engine, found)
            shown = (await engine.show(found)).to_dict()
            out.document({**shown, "owner": owned.owner or None})
            return 0
        picture = Picture.of(found, await engine.events(found))
        owned = await ownership(engine, found)
        known = await engine.show(found) if picture.state.waiting or not picture.seq else None
        waits_for = known.waiting_on if known is not None else ()
        after = await follow_up_of(engine, picture.state)
        later = Picture.of(after, await engine.events(after)) if after is not None else None
    state = picture.state
    now = state.at if owned.interrupted else time.time()  # a run without a driver spends no time
    made_at, objective = (known or state).created_at, (known or state).objective
    facts = {"run": state.run, "at": moment(made_at), "revision": state.revision}
    facts |= {"retries": state.retries, "limit": state.policy.max_retries}
    out.print(Text(out.say("cli.show.title", **facts), "dim"))
    if objective:
        out.print(Text(clean(objective), "bold"))
    if owned.owner:
        out.print(Text(out.say("cli.show.owner", owner=owned.owner), "cyan"))
    out.print(*steps_table(out, picture, now, everything=everything))
    out.print(*report(out, picture, now, interrupted=owned.interrupted, waits_for=waits_for))
    if later is not None:
        out.print(Text(out.say("cli.report.follow_up"), "bold"))
        came_to = result(later.state, {}, now, out.lang)
        out.print(Text("  ").append_text(verdict_line(out, came_to, came_to.status)))
        next_ones = {"failed": f"rerail retry {state.run}", "waiting": f"rerail show {came_to.run_id}"}
        next_one = next_ones.get(came_to.status)
        out.print(*([Text("  " + out.typed(next_one), "cyan")] if next_one else []))
    return 0


def _print_value(out: Output, value: Any) -> int:
    """Print a step's output: raw for a pipe, safe on a terminal."""
    if out.json:
        out.document(value)
        return 0
    text = value if isinstance(value, str) else msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
    if out.out.is_terminal:
        out.print(Text(clean(text, lines=True)))
    else:
        out.raw(text + "\n")
    return 0


async def why(run: str, step: str | None = None, /, *, common: Common = PLAIN, out: Out) -> int:
    """Tell the story of a run, or of one of its steps: what happened, in order, and why."""
    async with Session(common, out).engine(run=run) as engine:
        found = await engine.find(run)
        if out.json:
            told = await engine.why(found, step)  # JSON never changes with the language
            failed = failures(await engine.events(found), step)
            out.document({"run_id": found, "step": step, "story": told.splitlines(), "failures": failed})
        else:
            lines, ours = (await engine.why(found, step, out.lang)).splitlines(), out.say("why.next", command="")
            out.print(*(Text(clean(out.typed(line) if line.startswith(ours) else line)) for line in lines))
            if (await ownership(engine, found)).interrupted:
                out.print(Text(out.say("cli.logs.interrupted", run=found), "yellow"))
    return 0


async def logs(
    run: str,
    /,
    *,
    tail: Annotated[int | None, Parameter(name=["--tail", "-n"])] = None,
    follow: Annotated[bool, Parameter(name=["--follow", "-f"], negative="", show_default=False)] = False,
    step: str | None = None,
    common: Common = PLAIN,
    out: Out,
) -> int:
    """Print everything that happened, one line an event, and what tools and workers printed."""
    if tail is not None and tail < 0:
        return out.usage(out.say("cli.logs.tail"), f"rerail logs {run} --tail 20")
    async with Session(common, out).engine(run=run) as engine:
        one = await _told(engine, out, await engine.find(run), step, last=not follow)
        after = await _later(engine, out, one.picture.state, step)  # for people the two are one task (contract T6)
        lines = one.lines + (after.lines if after is not None else [])
        one.log.show(lines if tail is None else lines[max(0, len(lines) - tail) :])
        if follow and after is None:
            await _follow(engine, out, one.log, one.picture)
            after = await _later(engine, out, await engine.internals.state(one.picture.state.run), step)
            one.log.show(after.lines if after is not None else [])
        if follow and after is not None:
            await _follow(engine, out, after.log, after.picture)
    one.log.end(tail)
    return exit_code(str(run_status(one.picture.state))) if follow and not out.closed else 0


class _Told(NamedTuple):
    """A run's log, its lines so far, and the state that they tell."""

    picture: Picture
    log: _Log
    lines: list[Text]


async def _told(engine: Engine, out: Output, run: str, step: str | None, *, last: bool = False) -> _Told:
    records = await engine.events(run)
    picture = Picture.of(run, records)
    file = log_file(engine.internals.workspace(picture.state.home))
    log = _Log(out, picture, step, LogReader(file, picture.state.run, engine.internals.scrub))
    return _Told(picture, log, log.lines(records, last=last))


async def _later(engine: Engine, out: Output, state: State, step: str | None) -> _Told | None:
    """Return the log of a run's follow-up, for people; a document is of one run alone."""
    follower = None if out.json else await follow_up_of(engine, state)
    return await _told(engine, out, follower, step) if follower is not None else None


async def _follow(engine: Engine, out: Output, log: _Log, picture: Picture) -> None:
    """Print events from the picture's last one on, until the run is at rest."""
    run = picture.state.run
    while not out.closed:
        head = await engine.internals.head(run)
        waits = head.status == "waiting" and head.owner is None
        over = head.status in AT_REST or waits or (await ownership(engine, run)).interrupted
        new = await engine.events(run, picture.seq)
        for record in new:
            picture.feed(record)
        log.show(log.lines(new, last=over))
        saw(run, picture.seq)
        if over:
            if head.status not in AT_REST and not waits:
                out.note(Text(out.say("cli.logs.interrupted", run=run), "yellow"))
            return
        await asyncio.sleep(FOLLOW_EVERY)


class _Log:
    """Prints events as lines and printed output between them; or collects events for one document."""

    def __init__(self, out: Output, picture: Picture, step: str | None, printed: LogReader) -> None:
        self._out, self._step = out, step
        self._told = LogLines(out, picture.state)
        self._printed = printed
        self._collected: list[Record] = []

    def lines(self, records: list[Record], *, last: bool = False) -> list[Text]:
        """Print these events and new output; for a document only collect them."""
        chosen = [record for record in records if self._step is None or getattr(record.event, "step", "") == self._step]
        if self._out.json:
            self._collected += chosen
            return []
        printed = self._printed.read(last=last) if self._step is None else ()
        both: list[Iterable[Record | Printed]] = [chosen, printed]
        merged = heapq.merge(*both, key=lambda one: one.at)
        return [line for one in merged for line in self._lines(one)]

    def show(self, lines: Iterable[Text]) -> None:
        for line in lines:
            if self._out.closed:
                return
            self._out.print(line)

    def _lines(self, one: Record | Printed) -> list[Text]:
        if isinstance(one, Printed):
            if one.worker:
                return [self._told.beside(one.at, "act", one.text)]
            return [self._told.beside(None, "say", one.text)]
        return self._told.lines(one)

    def end(self, tail: int | None) -> None:
        if self._out.json:
            left_out = 0 if tail is None else max(0, len(self._collected) - tail)
            self._out.document([record.to_dict() for record in self._collected[left_out:]])


async def watch(run: str, /, *, common: Common = PLAIN, out: Out) -> int:
    """Follow a run live, in any process, until it is at rest or waits for a person."""
    async with Session(common, out).engine(run=run) as engine:
        found = await engine.find(run)
        attended = await attend(engine, out, Picture(found), driving=False)
        show_report(out, attended)
        if out.json:
            out.document([record.to_dict() for record in await engine.events(found)])
        return exit_code(attended.result.status)


async def graph(
    run_or_plan: str,
    /,
    *,
    as_mermaid: Annotated[bool, Parameter(name="--mermaid", negative="", show_default=False)] = False,
    common: Common = PLAIN,
    out: Out,
) -> int:
    """Draw the steps of a run, with what each of them is now, or of a plan."""
    drawn = await _graph_of(run_or_plan, common, out)
    if out.json:
        out.document({"text": mermaid(drawn)} if as_mermaid else drawn.to_dict())
    elif as_mermaid:
        out.raw(mermaid(drawn) + "\n")
    else:
        out.print(*tree(drawn, out))
    return 0


async def _graph_of(word: str, common: Common, out: Output) -> Graph:
    if is_plan(word):
        plan = load_plan(word)
        faults = plan.check()
        if faults:
            raise PlanError(tell("cli.graph.faulty"), faults)
        return Graph.of_plan(plan)
    async with Session(common, out).engine(run=word) as engine:
        found = await engine.find(word)
        return Graph.of_state(Picture.of(found, await engine.events(found)).state)


async def artifacts(run: str, name: str | None = None, /, *, common: Common = PLAIN, out: Out) -> int:
    """List what the steps of a run made, or print one of them."""
    async with Session(common, out).engine(run=run) as engine:
        found = await engine.find(run)
        if name is not None:
            track = (await engine.internals.state(found)).tracks.get(name)
            is_output = track is not None and track.result is not None
            if not (is_output or out.json or out.out.is_terminal):
                out.raw((await engine.internals.artifact_bytes(found, name))[0])
                return 0
            return _print_value(out, await engine.artifact(found, name))
        rows = await engine.artifacts(found)
    if out.json:
        out.document(rows)
    elif not rows:
        out.print(out.say("cli.artifacts.none"))
    else:
        cells = [[clean(r["name"]), clean(r["step"]), size(r["size"]), clean(r["media"]), r["digest"]] for r in rows]
        out.print(*out.listing(("artifact", "step", "size", "media", "digest"), cells))
    return 0


async def replay(run: str, /, *, common: Common = PLAIN, out: Out) -> int:
    """Decide a recorded run again under other settings, and tell what would have been different."""
    changes = overrides_from(list(common.set))  # for the run, not for this command
    async with Session(replace(common, set=()), out).replaying(run) as (engine, found):
        told = await engine.replay(found, changes)
    if out.json:
        out.document(told.to_dict())
    else:
        out.print(*_lines(out, told))
    return 0


def _lines(out: Output, told: Replay) -> Iterator[Text]:
    yield Text(out.say("cli.replay.title", run=told.run), "bold")
    for name, (old, new) in told.settings.items():
        yield Text(out.say("cli.replay.setting", name=name, old=_value(old), new=_value(new)))
    if not told.branch:
        yield Text(out.say("cli.replay.same"), "green")
    else:
        yield Text(out.say("cli.replay.branch", seq=told.branch))
        for action in told.instead:
            what = " ".join(_said(value) for key, value in action.items() if key != "does" and value is not None)
            does = out.say("cli.replay.does", does=action["does"], what=what)
            yield Text("  " + one_line(does, max(20, out.out.width - 2)), "cyan")
    if told.drift:
        yield Text(out.say("cli.replay.drift", seq=told.drift), "yellow")
    yield from _sums(out, told)
    yield from _steps(out, told)
    yield from _unknown(out, told)
    if told.not_replayed:
        yield Text(out.say("cli.replay.not_replayed", n=told.not_replayed), "dim")


def _said(value: object) -> str:
    return span(value) if isinstance(value, float) else str(value)  # the only number there is a delay


def _sums(out: Output, told: Replay) -> Iterator[Text]:
    def row(name: str, old: str, new: str) -> list[Text]:
        shown = new if told.known or name == "outcome" else out.say("cli.replay.at_least", value=new)
        return [Text(out.say(f"cli.replay.{name}")), Text(old), Text(shown, "" if old == new else "bold")]

    was, would = told.recorded, told.replayed
    rows = [
        row("outcome", out.say(f"status.{was.status}"), out.say(f"status.{would.status}")),
        row("calls", str(was.calls), str(would.calls)),
        row("waited", span(was.waited), span(would.waited)),
        row("seconds", span(was.seconds), span(would.seconds)),
    ]
    if was.tokens or would.tokens:
        rows.append(row("tokens", f"{was.tokens:,}", f"{would.tokens:,}"))
    if was.cost or would.cost:
        rows.append(row("cost", f"{was.cost:.4f}", f"{would.cost:.4f}"))
    yield from table(["", out.say("cli.head.recorded"), out.say("cli.head.replayed")], rows, out.out.width)


def _steps(out: Output, told: Replay) -> Iterator[Text]:
    rows = [
        [Text(clean(row.step)), Text(_step(out, row.recorded)), Text(_step(out, row.replayed), "bold")]
        for row in told.steps
        if row.changed
    ]
    if rows:
        yield from out.listing(("step", "recorded", "replayed"), rows)
    elif told.branch:
        yield Text(out.say("cli.replay.unchanged"))


def _step(out: Output, spent: Spent) -> str:
    if not spent.status:
        return "-"  # it is not part of the plan there
    words = out.say(f"status.{spent.status}")
    return out.say("cli.replay.step", status=words, calls=spent.calls, waited=span(spent.waited))


def _unknown(out: Output, told: Replay) -> Iterator[Text]:
    if told.unknown:
        yield Text(out.say("cli.replay.unknown"), "yellow")
        yield from (Text(clean(_missing(out, one))) for one in told.unknown[:20])
    elif not told.known:
        yield Text(out.say("cli.replay.unfinished"), "yellow")


def _missing(out: Output, one: UnknownAnswer) -> str:
    key = one.what if one.what in ("call", "look", "person", "tool") else "mind"
    return out.say(
        f"cli.replay.unknown.{key}", what=one.what, step=one.step, tool=one.tool, call=one.call, round=one.round
    )


def _value(value: Any) -> str:
    return msgspec.json.encode(value).decode()
