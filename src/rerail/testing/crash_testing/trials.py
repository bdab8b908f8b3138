"""Trials of a plan: in processes that are killed, or in this process with an engine that is abandoned."""

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
from pathlib import Path
from typing import Any

import msgspec

from rerail.api import Engine
from rerail.engine.runs.lineage import follow_up_id
from rerail.errors import Refused
from rerail.factory import make_store
from rerail.i18n import tell
from rerail.kernel.codec import decode
from rerail.kernel.events import Record
from rerail.kernel.fold import fold
from rerail.plan.model import Plan
from rerail.ports import Row, Store
from rerail.settings.loading import Settings
from rerail.settings.tables import NotifyTable
from rerail.testing.crash_testing.child import RUN, Job, drive, home_in, ledger_in, store_in
from rerail.testing.crash_testing.ledger import CallLedger, Count, Death, Line, Points, Watching, perilous, read
from rerail.testing.crash_testing.verdict import KINDS, CrashEvidence, CrashReport, at_rest, judge, judge_cut, tools_of

# -P: a file in the working folder that is named like a standard module must not shadow it.
COMMAND = (sys.executable, "-P", "-m", "rerail.testing.crash_testing.child")
PATIENCE = 60.0  # seconds of a process, beside ten times the undisturbed duration
CALM = "undisturbed"  # the folder of the run without a crash
SAID = 2000  # characters of a process's last output


Heard = Callable[[int, int], None]


def _chosen(total: int, points: int | None, seed: int) -> list[int]:
    """Return the tested moments: all, or a sample drawn by the seed."""
    everyone = range(1, total + 1)
    if points is None or points >= total:
        return list(everyone)
    return sorted(random.Random(seed).sample(everyone, points))  # noqa: S311 - the same for the same seed is the point


def _counted(calm: CrashEvidence) -> Count:
    """Return the numbers of an undisturbed run; one that did not come to rest is no basis for comparison."""
    if calm.problem or not at_rest(calm):
        said = calm.problem or ", ".join(f"{one.run_id}: {one.status}" for one in calm.results()) or "-"
        raise Refused(tell("refuse.crash.undisturbed", said=said), "CRASHTEST_UNDISTURBED")
    return next(line for line in calm.lines if isinstance(line, Count))


Place = tuple[int, str]  # the number of a call to cut off, and the kind of cut


def _chosen_cuts(calls: int, points: int | None, seed: int) -> list[Place]:
    """Return the calls and kinds of cuts to test; as many as crash points, where those are limited."""
    every = [(call, kind) for call in range(1, calls + 1) for kind in KINDS]
    return [every[number - 1] for number in _chosen(len(every), points, seed)]


def _report(
    calm: CrashEvidence, found: Mapping[int, CrashEvidence], cuts: Mapping[Place, CrashEvidence], began: float
) -> CrashReport:
    trials = tuple(judge(point, seen, calm) for point, seen in sorted(found.items()))
    tools = tuple(tools_of(calm, [seen for _, seen in sorted(found.items())]))
    cut = tuple(judge_cut(*place, seen) for place, seen in sorted(cuts.items()))
    return CrashReport(_counted(calm).points, trials, tools, calm.results()[0].status, time.monotonic() - began, cut)


async def _histories(store: Store) -> dict[str, list[Row]]:
    """Return the store's runs: the run, its follow-ups in order, then all others."""
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
    """Kill a plan at every crash point, or at a sample drawn by the seed, and judge the results.

    Then cut off the answer of every successful call, or of a sample, after its effect: no process dies of it.

    ``tools`` gives their sources, as `--tools` does: processes of their own load them, ``jobs`` at a time. ``keep`` is
    a folder for the stores and files of all trials, which are deleted otherwise. ``heard`` gets the number of finished
    trials and the total.
    """
    began = time.monotonic()
    settings = settings if isinstance(settings, Settings) else Settings.load(settings)
    stage = _Stage(Plan.load(plan), list(tools), settings)
    with _folder(keep) as folder:
        calm = await stage.trial(folder / CALM, 0)
        count = _counted(calm)
        stage.patience = PATIENCE + 10 * (time.monotonic() - began)
        wanted = _chosen(count.points, points, seed)
        found: dict[int, CrashEvidence] = {}
        cuts: dict[Place, CrashEvidence] = {}
        gate = asyncio.Semaphore(max(1, jobs))

        async def trial(home: Path, at: int, cut: Place | None = None) -> CrashEvidence:
            async with gate:
                seen = await stage.trial(home, at, cut)
                if keep is None:
                    await asyncio.to_thread(shutil.rmtree, home, ignore_errors=True)
            return seen

        async def killed(point: int) -> None:
            found[point] = await trial(folder / f"point-{point}", point)
            if heard is not None:
                heard(len(found), len(wanted))

        async def cut_off(place: Place) -> None:
            cuts[place] = await trial(folder / f"cut-{place[0]}-{place[1]}", 0, place)

        async with asyncio.TaskGroup() as group:
            for point in wanted:
                group.create_task(killed(point))
            for place in _chosen_cuts(count.calls, points, seed):
                group.create_task(cut_off(place))
        return await asyncio.to_thread(_report, calm, found, cuts, began)


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
    """Make a folder anew; an earlier test may have left one."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)


class _Stage:
    """Runs trials in processes: one that dies, and one that goes on."""

    def __init__(self, plan: Plan, tools: list[str], settings: Settings) -> None:
        self._plan = plan
        self._tools = tools
        # No notifications for these runs, and their files are beside their store.
        quiet = msgspec.structs.replace(
            settings, notify=NotifyTable(), store=msgspec.structs.replace(settings.store, workspace=None)
        )
        self._settings = msgspec.to_builtins(quiet)
        del self._settings["given"]  # a process that loads all of this was given all of it
        self.patience: float | None = None  # seconds; None: no limit

    async def trial(self, folder: Path, at: int, cut: Place | None = None) -> CrashEvidence:
        """Run the plan in a new folder until it dies, and then to its end; or with one answer cut off."""
        await asyncio.to_thread(_emptied, folder)
        problem = await self._life(folder, 1, at, cut)
        lines = read(ledger_in(folder))
        if any(isinstance(line, Death) for line in lines):
            problem = await self._life(folder, 2, 0)
        return CrashEvidence(read(ledger_in(folder)), await self._left(folder), problem)

    async def _life(self, folder: Path, life: int, at: int, cut: Place | None = None) -> str:
        """Run one process to its end; return the cause of an unplanned death."""
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
                    os.killpg(child.pid, signal.SIGKILL)  # with its tools' children: it leads its own group
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
    """Run the same test without processes: abandon the engine at the moment, and let another one go on.

    A store in memory, and no files: a hundred times as fast, but no real crash. ``tools`` makes the tools anew for
    every trial, with a world of their own if they have one; the engine before a crash and the one after it share them.
    """
    began = time.monotonic()
    loaded = Plan.load(plan)
    given = settings if isinstance(settings, Settings) else Settings.load(settings)
    # An abandoned engine acts no more, and its verify calls need no wait.
    given = msgspec.structs.replace(given, workers=msgspec.structs.replace(given.workers, silent_is_dead=True))

    def trial(at: int, cut: Place | None = None) -> CrashEvidence:
        return _trial_here(loaded, list(tools()), given, at, cut)

    calm = trial(0)
    count = _counted(calm)
    found = {point: trial(point) for point in _chosen(count.points, points, seed)}
    cuts = {place: trial(0, place) for place in _chosen_cuts(count.calls, points, seed)}
    return _report(calm, found, cuts, began)


def _trial_here(plan: Plan, tools: list[Any], settings: Settings, at: int, cut: Place | None = None) -> CrashEvidence:
    store, lines = make_store("memory://"), list[Line]()

    def life(number: int, at: int, cut: Place | None = None) -> str:
        """Run one engine on an event loop of its own; return its error, if any."""
        ledger = CallLedger(number, lines=lines)
        points = _Mortal(at, ledger)

        async def whole() -> None:
            executor, near = Watching(ledger, points, cut=cut), perilous(store, points, ledger.acknowledged)
            engine = Engine(near, tools, settings, executor=executor, by="crashtest")
            points.task = asyncio.current_task()
            await engine.open()
            await drive(engine, plan, ledger.lines)
            await engine.close()
            ledger.add(Count(number, points.seen, executor.ended))

        try:
            asyncio.run(whole())
        except asyncio.CancelledError:
            return "" if ledger.closed else tell("crash.problem.hangs", seconds=0)
        except Refused as refused:
            return str(refused)
        return ""

    problem = life(1, at, cut)
    if any(isinstance(line, Death) for line in lines):
        asyncio.run(_bury(store))
        problem = life(2, 0)
    return CrashEvidence(lines, asyncio.run(_histories(store)), problem)


class _Mortal(Points):
    """Moments of an engine that can only be abandoned: once dead, it stays dead at every later one."""

    task: asyncio.Task[Any] | None = None

    def __init__(self, at: int, ledger: CallLedger) -> None:
        super().__init__(at, self._abandon)
        self._ledger, self._dead = ledger, False

    def pass_by(self, what: str) -> None:
        """Pass one moment; a dead engine stops here."""
        if self._dead:
            raise asyncio.CancelledError
        super().pass_by(what)

    def _abandon(self, point: int, what: str) -> None:
        self._ledger.add(Death(self._ledger.life, point, what))
        self._ledger.closed = self._dead = True
        if self.task is not None and self.task is not asyncio.current_task():
            self.task.cancel()
        raise asyncio.CancelledError


async def _bury(store: Store) -> None:
    """Take every run over from the dead engine: its process, which is this one, lives."""
    for head in await store.heads(limit=100_000):
        if head.owner is not None:
            await store.release(await store.claim(head.run, head.owner, time.time(), over=head.fence))
