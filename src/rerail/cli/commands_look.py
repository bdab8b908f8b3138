"""Commands that only look: ls, show, why, logs, watch, graph, artifacts."""

from __future__ import annotations

import asyncio
import heapq
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
from cyclopts import Parameter
from rich.text import Text

from rerail.cli.attend import attend, exit_code, follow_up_of, saw, show_report
from rerail.cli.commands_run import Hidden
from rerail.cli.graph import mermaid, tree
from rerail.cli.inputs import is_plan, load_plan
from rerail.cli.lines import Teller
from rerail.cli.options import FLAG, PLAIN, Common
from rerail.cli.output import Output, clean
from rerail.cli.picture import Picture
from rerail.cli.render import report, runs_table, steps_table, verdict_line
from rerail.cli.session import Session, ownership
from rerail.cli.style import moment, table
from rerail.core.events import Record
from rerail.core.graph import Graph
from rerail.core.lines import size
from rerail.core.pipeline import PAUSED, shown_status
from rerail.core.state import State
from rerail.core.views import RunRow, result
from rerail.core.why import failures
from rerail.engine.printed import LogReader, Printed, log_file
from rerail.engine.reading import AT_REST
from rerail.errors import PlanError
from rerail.i18n import tell
from rerail.wiring import Engine

FEW_EVENTS = 5_000  # of a run that is folded for a list
FOLLOW_EVERY = 0.2  # seconds between two looks at a run that somebody follows

RunWord = Literal["pending", "running", "waiting", "completed", "failed", "cancelled", "interrupted"]


async def ls(
    *,
    status: Annotated[tuple[RunWord, ...], FLAG] = (),
    limit: Annotated[int, Parameter(name=["--limit", "-n"])] = 20,
    common: Common = PLAIN,
    out: Annotated[Output, Hidden],
) -> int:
    """List the runs, newest first; interrupted ones are marked."""
    session = Session(common, out)
    session.require_store()
    async with session.engine() as engine:
        rows = await _chosen(engine, status, limit)
        live = [
            row for row in rows[: limit or None] if row.status in ("running", "waiting") and row.events < FEW_EVENTS
        ]
        stages = {row.run_id: shown_status(await engine.state(row.run_id)) for row in live}
        paused = {run: Picture.of(run, await engine.events(run)) for run, stage in stages.items() if stage == PAUSED}
    more = len(rows) > limit > 0
    rows = rows[:limit] if limit > 0 else rows
    if out.json:
        out.document([row.to_dict() for row in rows])
    elif not rows:
        out.print(out.say("cli.ls.none"))
        out.note(Text("  rerail run plan.yaml --tools tools.py", "cyan"))
    else:
        out.print(*runs_table(out, rows, stages, {run: picture.paused_by for run, picture in paused.items()}))
        for run in list(paused)[:3]:
            out.note(
                Text(out.say("cli.ls.paused", run=run), "dim"), Text("  " + out.typed(f"rerail resume {run}"), "cyan")
            )
        if more:
            out.note(Text(out.say("cli.ls.more"), "dim"))
    return 0


async def _chosen(engine: Engine, status: tuple[str, ...], limit: int) -> list[RunRow]:
    """The runs of these words, one more than asked for; `interrupted` is a kind of running."""
    stored = tuple(dict.fromkeys("running" if word == "interrupted" else word for word in status))
    odd = "interrupted" in status or "running" in status  # the store does not tell these two apart
    rows = await engine.list(status=stored, limit=limit + 1 if limit > 0 and not odd else 1_000_000)
    if odd:
        rows = [row for row in rows if ("interrupted" if row.interrupted else row.status) in status]
    return rows


async def show(
    run: str,
    /,
    *,
    output: str | None = None,
    everything: Annotated[bool, Parameter(name="--all", negative="", show_default=False)] = False,
    common: Common = PLAIN,
    out: Annotated[Output, Hidden],
) -> int:
    """Show a run: its steps, its verdict, and what to do next."""
    async with Session(common, out).engine(run=run) as engine:
        found = await engine.find(run)
        if output is not None:
            return _print_value(out, await engine.artifact(found, output))
        if out.json:
            owned = await ownership(engine, found)
            shown = (await engine.show(found)).to_dict()
            out.document({**shown, "owner": owned.owner or None, "interrupted": owned.interrupted})
            return 0
        picture = Picture.of(found, await engine.events(found))
        owned = await ownership(engine, found)
        waits_for = (await engine.show(found)).waiting_on if picture.state.waiting else ()
        after = await follow_up_of(engine, picture.state)
        later = Picture.of(after, await engine.events(after)) if after is not None else None
    state = picture.state
    now = state.at if owned.interrupted else time.time()  # time that nobody spends is not spent
    facts = {"run": state.run, "at": moment(state.created_at), "revision": state.revision}
    facts |= {"retries": state.retries, "limit": state.policy.max_retries}
    out.print(Text(out.say("cli.show.title", **facts), "dim"))
    if state.objective:
        out.print(Text(clean(state.objective), "bold"))
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
    """A step's output: texts as they are where nobody looks, safe ones on a terminal."""
    if out.json:
        out.document(value)
        return 0
    text = value if isinstance(value, str) else msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
    if out.out.is_terminal:
        out.print(Text(clean(text, lines=True)))
    else:
        out.raw(text + "\n")
    return 0


async def why(run: str, step: str | None = None, /, *, common: Common = PLAIN, out: Annotated[Output, Hidden]) -> int:
    """Tell the story of a run, or of one of its steps: what happened, in order, and why.

    With --json the failed attempts come along, each with its traceback."""
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
    out: Annotated[Output, Hidden],
) -> int:
    """Print everything that happened, one line an event, and what tools and workers printed.

    With --json one document is printed, a list of events; with --follow too, at the end, when the run is at rest."""
    if tail is not None and tail < 0:
        return out.usage(out.say("cli.logs.tail"), f"rerail logs {run} --tail 20")
    async with Session(common, out).engine(run=run) as engine:
        found = await engine.find(run)
        records = await engine.events(found)
        picture = Picture.of(found, records)
        log = _Log(out, picture, step, log_file(engine.workspace(picture.state.home)))
        lines = log.lines(records, last=not follow)
        after = await _later(engine, out, picture.state, step)  # to people the two are one task (T6)
        lines += after.first if after is not None else []
        log.show(lines if tail is None else lines[max(0, len(lines) - tail) :])
        if follow and after is None:
            await _follow(engine, out, log, picture)
            after = await _later(engine, out, await engine.state(found), step)
            log.show(after.first if after is not None else [])
        if follow and after is not None:
            await _follow(engine, out, after.log, after.picture)
    log.end(tail)
    return 0


class _Later(NamedTuple):
    """The run that followed another, as far as it has come."""

    picture: Picture
    log: _Log
    first: list[Text]


async def _later(engine: Engine, out: Output, state: State, step: str | None) -> _Later | None:
    """The run that followed, for people; a document is of one run alone."""
    follower = None if out.json else await follow_up_of(engine, state)
    if follower is None:
        return None
    records = await engine.events(follower)
    picture = Picture.of(follower, records)
    log = _Log(out, picture, step, log_file(engine.workspace(picture.state.home)))
    return _Later(picture, log, log.lines(records))


async def _follow(engine: Engine, out: Output, log: _Log, picture: Picture) -> None:
    """Print what happens from what the picture knows on, until the run is at rest."""
    run = picture.state.run
    while not out.closed:
        head = await engine.head(run)
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
    """The events as lines, between them what was printed; or the events alone, collected for one document."""

    def __init__(self, out: Output, picture: Picture, step: str | None, file: Path) -> None:
        self._out, self._step = out, step
        self._teller = Teller(out, picture.state)
        self._printed = LogReader(file, picture.state.run)
        self._collected: list[Record] = []

    def lines(self, records: list[Record], *, last: bool = False) -> list[Text]:
        """These events and what was printed since the last time; for a document they are only collected."""
        chosen = [record for record in records if self._step is None or getattr(record.event, "step", "") == self._step]
        if self._out.json:
            self._collected += chosen
            return []
        printed = self._printed.read(last=last) if self._step is None else ()
        both: list[Iterable[Record | Printed]] = [chosen, printed]
        merged = heapq.merge(*both, key=lambda one: one.at)
        return [line for one in merged for line in self._lines(one)]

    def show(self, lines: Iterable[Text]) -> None:
        """Print lines, as long as somebody reads them."""
        for line in lines:
            if self._out.closed:
                return
            self._out.print(line)

    def _lines(self, one: Record | Printed) -> list[Text]:
        if isinstance(one, Printed):
            if one.worker:
                return [self._teller.beside(one.at, "act", one.text)]
            return [self._teller.beside(None, "say", one.text)]
        line = self._teller.line(one)
        details = self._teller.details(one) if self._out.verbose else []
        return [line, *details] if line is not None else []

    def end(self, tail: int | None) -> None:
        """The document, if one is wanted."""
        if self._out.json:
            kept = self._collected if tail is None else self._collected[max(0, len(self._collected) - max(0, tail)) :]
            self._out.document([record.to_dict() for record in kept])


async def watch(run: str, /, *, common: Common = PLAIN, out: Annotated[Output, Hidden]) -> int:
    """Follow a run live, whoever drives it, until it is at rest or waits for a person.

    With --json one document is printed, at the end: a list of the run's events. The exit code is that of the run."""
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
    out: Annotated[Output, Hidden],
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


async def artifacts(
    run: str, name: str | None = None, /, *, common: Common = PLAIN, out: Annotated[Output, Hidden]
) -> int:
    """List what the steps of a run made, or print one of them."""
    async with Session(common, out).engine(run=run) as engine:
        found = await engine.find(run)
        if name is not None:
            return _print_value(out, await engine.artifact(found, name))
        rows = await engine.artifacts(found)
    if out.json:
        out.document(rows)
    elif not rows:
        out.print(out.say("cli.artifacts.none"))
    else:
        cells = [[clean(r["name"]), clean(r["step"]), size(r["size"]), clean(r["media"]), r["digest"]] for r in rows]
        head = [out.say(f"cli.head.{word}") for word in ("artifact", "step", "size", "media", "digest")]
        out.print(*table(head, cells, out.out.width))
    return 0
