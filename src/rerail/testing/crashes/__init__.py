"""Crash tests of a plan: it is run once undisturbed, and then once for every moment at which a process may die.

    report = await crashtest("plan.yaml", ["tools.py"])          # real processes, real kill -9, real calls
    report = crash_in_process(plan, lambda: [tool, …])           # the engine abandoned in the middle: for tests

Both call the tools for real, many times over.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from rerail.core.codec import decode
from rerail.core.events import Record
from rerail.core.fold import fold
from rerail.core.plan import Plan as CorePlan
from rerail.engine.family import follow_up_id
from rerail.errors import Refused
from rerail.i18n import tell
from rerail.plans import Plan
from rerail.ports import Row, Store
from rerail.settings import NotifyTable, Settings
from rerail.testing.crashes.child import Job, home_in, ledger_in, store_in
from rerail.testing.crashes.cuts import KINDS, Came, CutTrial, judge_cut, tools_that
from rerail.testing.crashes.driving import RUN, drive
from rerail.testing.crashes.judging import Evidence, ToolRow, Trial, at_rest, judge, tools_of
from rerail.testing.crashes.ledger import Count, Death, Ledger, Line, Watching, read
from rerail.testing.crashes.points import Points, perilous
from rerail.wiring import Engine, make_store

__all__ = ["CrashReport", "ToolRow", "Trial", "crash_in_process", "crashtest"]

# -P: a file in the working folder that is named like a standard module must not be taken for it.
COMMAND = (sys.executable, "-P", "-m", "rerail.testing.crashes.child")
PATIENCE = 60.0  # seconds that a process may take, beside ten times what the undisturbed one took
CALM = "undisturbed"  # the folder of the run without a crash
SAID = 2000  # characters of what a process said last


@dataclass(frozen=True, slots=True)
class CrashReport:
    """What came of all crashes."""

    points: int  # that there are
    trials: tuple[Trial, ...]
    tools: tuple[ToolRow, ...]
    status: str  # of the undisturbed run
    seconds: float
    cuts: tuple[CutTrial, ...] = ()  # answers that were cut off after the effect

    @property
    def broken(self) -> tuple[Trial, ...]:
        """The trials in which a guarantee was broken."""
        return tuple(trial for trial in self.trials if not trial.kept)

    @property
    def tested(self) -> bool:
        """Whether a process died at all: where no point was reached, nothing was shown."""
        return any(trial.what for trial in self.trials)

    @property
    def ok(self) -> bool:
        """Whether every guarantee was kept, and that was put to the test."""
        return self.tested and not self.broken and not self.harmed

    @property
    def harmed(self) -> tuple[CutTrial, ...]:
        """The answers that were cut off and led to a doubled effect, a wrong success, or no end."""
        return tuple(cut for cut in self.cuts if cut.problem or cut.came in (Came.DOUBLED, Came.WRONG))

    @property
    def unsafe(self) -> tuple[ToolRow, ...]:
        """The tools that may be called again, by what they say of themselves, and should not be."""
        return tuple(row for row in self.tools if row.safe is False)

    def counts(self) -> dict[str, int]:
        """How often each thing happened."""
        trials = self.trials
        return {
            "points": self.points,
            "tried": sum(bool(trial.what) for trial in trials),
            "not_reached": sum(not trial.what for trial in trials),  # the run went otherwise, and there was no crash
            "died": sum(bool(trial.what) for trial in trials),
            "lost": sum(len(trial.lost) for trial in trials),
            "repeated": sum(len(trial.repeated) for trial in trials),
            "missing": sum(len(trial.missing) for trial in trials),
            "doubts": sum(len(trial.doubts) for trial in trials),
            "open": sum(len(trial.open) for trial in trials),
            "different": sum(bool(trial.different) for trial in trials),
            "unfinished": sum(bool(trial.problem) for trial in trials),
        }

    def to_dict(self) -> dict[str, Any]:
        """As plain data; of the trials, those that broke a guarantee or led to a doubt."""
        told = [trial.to_dict() for trial in self.trials if not trial.kept or trial.doubts]
        return {
            "ok": self.ok,
            "tested": self.tested,
            "status": self.status,
            **self.counts(),
            "trials": told,
            "tools": [row.to_dict() for row in self.tools],
            "unsafe": [row.tool for row in self.unsafe],
            "cut_off": {
                "tried": sum(bool(cut.step) for cut in self.cuts),
                **{str(came): tools_that(came, self.cuts) for came in Came},
                "unfinished": sum(bool(cut.problem) for cut in self.cuts),
                "trials": [cut.to_dict() for cut in self.cuts if cut.came is not Came.SAFE or cut.problem],
            },
            "seconds": round(self.seconds, 1),
        }


Heard = Callable[[int, int], None]


def _chosen(total: int, points: int | None, seed: int) -> list[int]:
    """The moments that are tried: all, or some that the seed draws."""
    everyone = range(1, total + 1)
    if points is None or points >= total:
        return list(everyone)
    return sorted(random.Random(seed).sample(everyone, points))  # noqa: S311 - the same for the same seed is the point


def _require_rest(calm: Evidence) -> None:
    """Refuse to go on if the undisturbed run did not come to rest: then there is nothing to compare with."""
    if calm.problem or not at_rest(calm):
        said = calm.problem or ", ".join(f"{one.run_id}: {one.status}" for one in calm.results()) or "-"
        raise Refused(tell("refuse.crash.undisturbed", said=said), "CRASHTEST_UNDISTURBED")


Cuts = Mapping[tuple[int, str], Evidence]


def _chosen_cuts(calm: Evidence, points: int | None, seed: int) -> list[tuple[int, str]]:
    """The calls whose answers are cut off, each in every way; as many as crash points, where those are counted."""
    calls = next(line.calls for line in calm.lines if isinstance(line, Count))
    every = [(call, kind) for call in range(1, calls + 1) for kind in KINDS]
    return [every[number - 1] for number in _chosen(len(every), points, seed)]


def _report(calm: Evidence, total: int, found: Mapping[int, Evidence], cuts: Cuts, began: float) -> CrashReport:
    trials = tuple(judge(point, seen, calm) for point, seen in sorted(found.items()))
    tools = tuple(tools_of(calm, [seen for _, seen in sorted(found.items())]))
    cut = tuple(judge_cut(*place, seen) for place, seen in sorted(cuts.items()))
    return CrashReport(total, trials, tools, calm.results()[0].status, time.monotonic() - began, cut)


async def _histories(store: Store) -> dict[str, list[Row]]:
    """What the store holds: the run, what follows it, what follows that; then whatever else there is."""
    rows: dict[str, list[Row]] = {}
    for head in await store.heads(limit=100_000):
        found: list[Row] = []
        while more := await store.read(head.run, found[-1].seq if found else 0):
            found += more
        rows[head.run] = found
    chain, run = [], RUN
    while run in rows:
        chain.append(run)
        state = fold(run, [Record(run, row.seq, row.at, decode(row.data)) for row in rows[run]])
        run = follow_up_id(state) if state.follow_up is not None else ""
    return {run: rows[run] for run in (*chain, *(run for run in rows if run not in chain))}


# -- Real processes -----------------------------------------------------------------------------------------------


async def crashtest(
    plan: Any,
    tools: Sequence[str],
    settings: Settings | Mapping[str, Any] | None = None,
    *,
    points: int | None = None,
    seed: int = 0,
    jobs: int = 1,
    keep: Path | None = None,
    heard: Heard | None = None,
) -> CrashReport:
    """Kill a plan at every crash point, or at so many that the seed draws, and see what becomes of it.

    Then cut off the answer of every call that ends well, or of as many, after its effect: no process dies of it.

    ``tools`` says where they come from, as `--tools` does: they are loaded by processes of their own, ``jobs`` at a
    time. ``keep`` is a folder for the stores and files of all trials, which are thrown away otherwise. ``heard`` is
    told how many trials are done, and of how many.
    """
    began = time.monotonic()
    settings = settings if isinstance(settings, Settings) else Settings.load(settings)
    stage = _Stage(Plan.load(plan), list(tools), settings)
    with _folder(keep) as folder:
        calm = await stage.trial(folder / CALM, 0)
        _require_rest(calm)
        total = next(line.points for line in calm.lines if isinstance(line, Count))
        stage.patience = PATIENCE + 10 * (time.monotonic() - began)
        wanted = _chosen(total, points, seed)
        found: dict[int, Evidence] = {}
        gate = asyncio.Semaphore(max(1, jobs))

        async def tried(point: int) -> None:
            async with gate:
                place = folder / f"point-{point}"
                found[point] = await stage.trial(place, point)
                if keep is None:
                    await asyncio.to_thread(shutil.rmtree, place, ignore_errors=True)
            if heard is not None:
                heard(len(found), len(wanted))

        async def cut_off(place: tuple[int, str]) -> None:
            async with gate:
                home = folder / f"cut-{place[0]}-{place[1]}"
                cuts[place] = await stage.trial(home, 0, place)
                if keep is None:
                    await asyncio.to_thread(shutil.rmtree, home, ignore_errors=True)

        cuts: dict[tuple[int, str], Evidence] = {}
        async with asyncio.TaskGroup() as group:
            for point in wanted:
                group.create_task(tried(point))
            for place in _chosen_cuts(calm, points, seed):
                group.create_task(cut_off(place))
        return await asyncio.to_thread(_report, calm, total, found, cuts, began)


@contextlib.contextmanager
def _folder(keep: Path | None) -> Iterator[Path]:
    if keep is not None:
        if keep.exists() and any(keep.iterdir()) and not ledger_in(keep / CALM).exists():
            raise Refused(tell("refuse.crash.not_empty", folder=keep), "USAGE")
        keep.mkdir(parents=True, exist_ok=True)
        yield keep.resolve()
        return
    with tempfile.TemporaryDirectory(prefix="rerail-crashtest-", ignore_cleanup_errors=True) as name:
        yield Path(name).resolve()


def _emptied(folder: Path) -> None:
    """Make a folder anew; one of an earlier test may be there."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)


class _Stage:
    """Runs trials in processes: one that dies, and one that goes on."""

    def __init__(self, plan: Plan, tools: list[str], settings: Settings) -> None:
        self._plan = CorePlan(plan.objective, plan.steps, plan.follow_up, plan.faults, plan.mcp)
        self._tools = tools
        # Nobody is told of these runs, and their files are beside their store.
        quiet = msgspec.structs.replace(
            settings, notify=NotifyTable(), store=msgspec.structs.replace(settings.store, workspace=None)
        )
        self._settings = msgspec.to_builtins(quiet)
        self.patience: float | None = None  # seconds; None: as long as it takes

    async def trial(self, folder: Path, at: int, cut: tuple[int, str] | None = None) -> Evidence:
        """Run the plan in a new folder until it dies, and then to its end; or with one answer cut off."""
        await asyncio.to_thread(_emptied, folder)
        problem = await self._life(folder, 1, at, cut)
        lines = read(ledger_in(folder))
        if any(isinstance(line, Death) for line in lines):
            problem = await self._life(folder, 2, 0)
        return Evidence(read(ledger_in(folder)), await self._left(folder), problem)

    async def _life(self, folder: Path, life: int, at: int, cut: tuple[int, str] | None = None) -> str:
        """One process, from its beginning to its end; what it died of, if it was not the death it was meant to die."""
        job = msgspec.json.encode(Job(self._plan, self._tools, self._settings, str(folder), life, at, cut))
        said = folder / f"process-{life}.log"
        with said.open("wb") as log:
            child = await asyncio.create_subprocess_exec(
                *COMMAND, stdin=asyncio.subprocess.PIPE, stdout=log, stderr=log, start_new_session=True
            )
        try:
            async with asyncio.timeout(self.patience):
                await child.communicate(job)
        except TimeoutError:
            return tell("crash.problem.hangs", seconds=round(self.patience or 0))
        finally:
            if child.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(child.pid, signal.SIGKILL)  # with what its tools have started: it leads its own group
                await child.wait()
        lines = read(ledger_in(folder))
        if child.returncode == 0 or any(isinstance(line, Death) and line.life == life for line in lines):
            return ""
        tail = said.read_text(errors="replace").strip()[-SAID:]
        return tell("crash.problem.broke", status=child.returncode, said=tail)

    async def _left(self, folder: Path) -> dict[str, list[Row]]:
        if not (home_in(folder) / "runs.db").exists():
            return {}
        store = make_store(store_in(folder))
        await store.open()
        try:
            return await _histories(store)
        finally:
            await store.close()


# -- In this process ----------------------------------------------------------------------------------------------


def crash_in_process(
    plan: Any,
    tools: Callable[[], Iterable[Any]],
    settings: Settings | Mapping[str, Any] | None = None,
    *,
    points: int | None = None,
    seed: int = 0,
) -> CrashReport:
    """The same without processes: at the moment the engine is abandoned where it stands, and another one goes on.

    A store in memory, and no files: a hundred times as fast, and not the real thing. ``tools`` makes the tools anew for
    every trial, with a world of their own if they have one; the engine before a crash and the one after it share them.
    """
    began = time.monotonic()
    loaded = Plan.load(plan)
    calm = _trial_here(loaded, list(tools()), settings, 0)
    _require_rest(calm)
    total = next(line.points for line in calm.lines if isinstance(line, Count))
    found = {point: _trial_here(loaded, list(tools()), settings, point) for point in _chosen(total, points, seed)}
    places = _chosen_cuts(calm, points, seed)
    cuts = {place: _trial_here(loaded, list(tools()), settings, 0, place) for place in places}
    return _report(calm, total, found, cuts, began)


def _trial_here(plan: Plan, tools: list[Any], settings: Any, at: int, cut: tuple[int, str] | None = None) -> Evidence:
    store, lines = make_store("memory://"), list[Line]()
    problem = _life_here(store, lines, plan, tools, settings, 1, at, cut)
    if any(isinstance(line, Death) for line in lines):
        asyncio.run(_bury(store))
        problem = _life_here(store, lines, plan, tools, settings, 2, 0)
    return Evidence(lines, asyncio.run(_histories(store)), problem)


def _life_here(
    store: Store,
    lines: list[Line],
    plan: Plan,
    tools: list[Any],
    settings: Any,
    life: int,
    at: int,
    cut: tuple[int, str] | None = None,
) -> str:
    """One engine on an event loop of its own, which ends with it; what was wrong, if something was."""
    ledger = Ledger(life, lines=lines)

    def die(point: int, what: str) -> None:
        if not ledger.closed:
            ledger.add(Death(life, point, what))
            ledger.closed = True
        raise asyncio.CancelledError

    points = _Mortal(at, die)

    async def whole() -> None:
        near = perilous(store, points, ledger.acknowledged)
        executor = Watching(ledger, points, cut=cut)
        # An engine that was abandoned acts no more, and no look has to wait for it.
        given = settings if isinstance(settings, Settings) else Settings.load(settings)
        workers = msgspec.structs.replace(given.workers, silent_is_dead=True)
        given = msgspec.structs.replace(given, workers=workers)
        engine = Engine(near, tools, given, executor=executor, by="crashtest")
        points.task = asyncio.current_task()
        await engine.open()
        await drive(engine, plan, ledger.lines)
        await engine.close()
        ledger.add(Count(life, points.seen, executor.ended))

    try:
        asyncio.run(whole())
    except asyncio.CancelledError:
        return "" if ledger.closed else tell("crash.problem.hangs", seconds=0)
    except Refused as refused:
        return str(refused)
    return ""


class _Mortal(Points):
    """Moments of an engine that can only be abandoned: once it is dead, it is so at every one that follows."""

    task: asyncio.Task[Any] | None = None
    dead = False

    def pass_by(self, what: str) -> None:
        """One moment; whoever is dead does not get past it."""
        if self.dead:
            raise asyncio.CancelledError
        try:
            super().pass_by(what)
        except asyncio.CancelledError:
            self.dead = True
            if self.task is not None and self.task is not asyncio.current_task():
                self.task.cancel()
            raise


async def _bury(store: Store) -> None:
    """Take every run away from the engine that is dead: its process, which is this one, lives."""
    for head in await store.heads(limit=100_000):
        if head.owner is not None:
            await store.release(await store.claim(head.run, head.owner, time.time(), over=head.fence))
