"""Workers: drive runs without an owner, a number at once, until told to stop (contract T7, I6).

Rules of this file:
- There is no dispatcher: the worker that gets a run's lease drives it, and the store gives the lease to one worker.
- The store signals each release. A dead holder signals nothing, so workers also search every few seconds.
- A worker without room does not search, but goes on watching owners that seem dead (`LeaseWatch`).
- Workers that search at the same time do not all try the same run first.
- A run with tools that are missing here is left to other workers, and that is reported once.
- An unreachable store is not an idle one: `until_idle` waits for it, and fails if it does not come back
  (contract E4).
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable
from typing import Final

from rerail.engine.runs.commands import Internals
from rerail.errors import PlanError, RerailError
from rerail.i18n import Told, one_by_one, tell, words_of

SEARCH_EVERY: Final = 5.0  # seconds between two searches without a signal
SEARCH_GAP: Final = 0.2  # seconds between two searches, at any rate of signals
WINDOW: Final = 64  # runs of about the same age, tried in random order
STALE: Final = 8  # runs in a row already taken by other workers, after which a new search pays
CHANCE: Final = random.Random()  # noqa: S311 - no secret depends on it


class WorkerPool:
    """The runs that one worker drives."""

    def __init__(
        self, engine: Internals, jobs: int, on_notice: Callable[[Told], None], patience: float = 30.0, only: str = ""
    ) -> None:
        """``on_notice`` hears which runs are left to other workers, and why; ``only`` is the one run to take up.

        ``patience`` is the time limit for an unreachable store.
        """
        self._engine, self._jobs, self._on_notice, self._patience = engine, jobs, on_notice, patience
        self._only = only
        self._left: dict[str, str] = {}  # runs for other workers → the reason; until they find an owner
        self._unseen: RerailError | None = None  # why the latest search failed, if it did
        self._unseen_since = 0.0
        self._waiting: deque[str] = deque()
        self._stopping = asyncio.Event()
        self._looked = self._watched = 0.0
        self.taken = 0

    @property
    def left(self) -> dict[str, str]:
        """Return the runs without tools in this worker, with the reasons."""
        return dict(self._left)

    def stop(self) -> None:
        self._stopping.set()

    async def work(self, *, until_idle: bool = False) -> None:
        """Take up runs until told to stop, or until no work is left here."""
        stopping = asyncio.create_task(self._stopping.wait())
        bell: asyncio.Task[bool] | None = None
        try:
            while not self._stopping.is_set():
                if bell is None or bell.done():
                    bell = asyncio.create_task(self._freed())
                    await asyncio.sleep(0)  # a signal from here on is heard
                await self._fill()
                busy = self._engine.under_way()
                if until_idle and not busy and not self._waiting and self._is_idle():
                    return
                full = len(busy) >= self._jobs
                news = [stopping, *busy.values()] if full else [stopping, bell, *busy.values()]
                watching = full and self._engine.is_watching
                rest = SEARCH_EVERY if watching else None
                await asyncio.wait(news, timeout=rest, return_when=asyncio.FIRST_COMPLETED)
                if watching:
                    await self._watch_on()
        finally:
            for task in (stopping, bell):
                if task is not None:
                    task.cancel()
                    await asyncio.gather(task, return_exceptions=True)

    async def _watch_on(self) -> None:
        """Go on watching owners that seem dead: a watch that starts again at each search finds none dead."""
        now = asyncio.get_running_loop().time()
        if now - self._watched < SEARCH_EVERY / 2:
            return
        self._watched = now
        try:
            self._waiting.extendleft(await self._engine.outlived())  # older than the runs found meanwhile
        except RerailError as error:
            self._missed(error)

    def _is_idle(self) -> bool:
        """True if there is no work; raises if the store was unreachable for too long."""
        if self._unseen is None:
            return True
        if asyncio.get_running_loop().time() - self._unseen_since > self._patience:
            raise self._unseen
        return False

    def _missed(self, problem: RerailError) -> None:
        """Report once that the store is unreachable."""
        if self._unseen is None:
            self._unseen_since = asyncio.get_running_loop().time()
            self._on_notice(tell("reason.work.no_store", error=problem))
        self._unseen = problem

    async def _freed(self) -> bool:
        """Wait for a signal of the store, at most until the next search."""
        loop = asyncio.get_running_loop()
        try:
            rang = await self._engine.freed(SEARCH_EVERY)
        except RerailError:
            rang = False
            await asyncio.sleep(SEARCH_EVERY)
        # A store that cannot be written (a full disk) signals each lease that is given back.
        gap = SEARCH_GAP if self._unseen is None else SEARCH_EVERY
        await asyncio.sleep(max(0.0, self._looked + gap - loop.time()))
        return rang

    async def _fill(self) -> None:
        """Take up runs as long as there is room."""
        looked, stale = False, 0
        while len(self._engine.under_way()) < self._jobs and not self._stopping.is_set():
            if not self._waiting or stale >= STALE:
                if (looked and stale < STALE) or not await self._look():
                    return  # every run was tried
                looked, stale = True, 0
            taken = await self._taken_up(self._waiting.popleft())
            stale = 0 if taken else stale + 1
            if self._unseen is not None:
                self._waiting.clear()  # the store fails: the next search tries again
                return

    async def _look(self) -> bool:
        """Search for runs without an owner; False if there are none for this worker."""
        self._waiting.clear()
        self._looked = asyncio.get_running_loop().time()
        left = set(self._left)
        try:
            heads = await self._engine.unattended(left)
            runs = [head.run for head in heads if self._only in ("", head.run)]
        except RerailError as error:
            self._missed(error)
            return False
        self._unseen = None if not runs else self._unseen  # a run that is taken up shows that it can be written, too
        self._left = {run: why for run, why in self._left.items() if run in left}
        for first in range(0, len(runs), WINDOW):
            some = runs[first : first + WINDOW]
            CHANCE.shuffle(some)
            self._waiting.extend(some)
        return bool(runs)

    async def _taken_up(self, run: str) -> bool:
        try:
            taken = await self._engine.take_up(run)
            self._unseen = None if taken else self._unseen
        except PlanError as missing:
            why = one_by_one(fault.message for fault in missing.faults)
            self._left[run] = why
            self._on_notice(tell("reason.work.left", run=run, why=why))
            return False
        except RerailError as error:
            if error.code == "STORE_FAILED":
                self._missed(error)
                return False
            self._left[run] = words_of(error)
            self._on_notice(tell("reason.work.left", run=run, why=error))
            return False
        self.taken += taken
        return taken
