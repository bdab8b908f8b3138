"""A worker: takes up runs that wait for somebody, so many at once, until it is told to stop (SPEC T7, I6).

Rules of this file:
- Nothing is handed out: whoever gets a run's lease has it, and the store sees to it that this is one.
- The store rings when a run is given back. A holder that died rings nobody, so there is a look every few seconds.
- Who has no room looks for nothing, but goes on watching owners that seem gone (`silence`).
- Workers that look at the same time do not all try the same run first.
- A run whose tools are not here is left to others, and that is said once.
- A store that is out of reach is no store without runs: who works until there is nothing to do waits for it, and fails
  if it does not come back (E4).
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable
from typing import Final

from rerail.engine.engine import Engine
from rerail.errors import PlanError, RerailError
from rerail.i18n import Told, one_by_one, tell, words_of

LOOK_SECONDS: Final = 5.0  # between two looks, if nobody rings
REST_SECONDS: Final = 0.2  # between two looks, however often somebody rings
WINDOW: Final = 64  # runs of about the same age, among which the order is by chance
STALE: Final = 8  # runs in a row that others had taken, after which it is time to look again
CHANCE: Final = random.Random()  # noqa: S311 - no secret depends on it


class Crew:
    """The runs that one worker drives."""

    def __init__(self, engine: Engine, jobs: int, said: Callable[[Told], None], patience: float = 30.0) -> None:
        """``said`` is told which runs are left to others, and why; ``patience`` is for a store that is out of reach."""
        self._engine, self._jobs, self._said, self._patience = engine, jobs, said, patience
        self._left: dict[str, str] = {}  # runs that others have to do → why; once they found somebody, no more
        self._unseen: RerailError | None = None  # why the latest look saw nothing, if it did
        self._unseen_since = 0.0
        self._waiting: deque[str] = deque()
        self._stopping = asyncio.Event()
        self._looked = self._watched = 0.0
        self.taken = 0

    @property
    def left(self) -> dict[str, str]:
        """The runs that this worker has no tools for, and why."""
        return dict(self._left)

    def stop(self) -> None:
        """Take up nothing more."""
        self._stopping.set()

    async def work(self, *, until_idle: bool = False) -> None:
        """Take up runs until told to stop, or until there is nothing more to do here."""
        stopping = asyncio.create_task(self._stopping.wait())
        bell: asyncio.Task[bool] | None = None
        try:
            while not self._stopping.is_set():
                if bell is None or bell.done():
                    bell = asyncio.create_task(self._freed())
                    await asyncio.sleep(0)  # whoever rings from here on is heard
                await self._fill()
                busy = self._engine.under_way()
                if until_idle and not busy and not self._waiting and self._is_idle():
                    return
                full = len(busy) >= self._jobs
                news = [stopping, *busy.values()] if full else [stopping, bell, *busy.values()]
                watching = full and self._engine.is_watching
                rest = LOOK_SECONDS if watching else None
                await asyncio.wait(news, timeout=rest, return_when=asyncio.FIRST_COMPLETED)
                if watching:
                    await self._watch_on()
        finally:
            for task in (stopping, bell):
                if task is not None:
                    task.cancel()
                    await asyncio.gather(task, return_exceptions=True)

    async def _watch_on(self) -> None:
        """Go on watching owners that seem gone: whoever begins anew at each look never sees one gone."""
        now = asyncio.get_running_loop().time()
        if now - self._watched < LOOK_SECONDS / 2:
            return
        self._watched = now
        try:
            self._waiting.extendleft(await self._engine.outlived())  # older than what was found to wait meanwhile
        except RerailError as error:
            self._missed(error)

    def _is_idle(self) -> bool:
        """Whether there is nothing to do; raises if nobody could tell for too long."""
        if self._unseen is None:
            return True
        if asyncio.get_running_loop().time() - self._unseen_since > self._patience:
            raise self._unseen
        return False

    def _missed(self, problem: RerailError) -> None:
        """The store is out of reach; that is said once."""
        if self._unseen is None:
            self._unseen_since = asyncio.get_running_loop().time()
            self._said(tell("reason.work.no_store", error=problem))
        self._unseen = problem

    async def _freed(self) -> bool:
        """Whether somebody rang; a store that is out of reach rings nobody."""
        loop = asyncio.get_running_loop()
        try:
            rang = await self._engine.freed(LOOK_SECONDS)
        except RerailError:
            rang = False
            await asyncio.sleep(LOOK_SECONDS)
        await asyncio.sleep(max(0.0, self._looked + REST_SECONDS - loop.time()))
        return rang

    async def _fill(self) -> None:
        """Take up runs as long as there is room for them."""
        looked, stale = False, 0
        while len(self._engine.under_way()) < self._jobs and not self._stopping.is_set():
            if not self._waiting or stale >= STALE:
                if (looked and stale < STALE) or not await self._look():
                    return  # all that there was, was seen
                looked, stale = True, 0
            taken = await self._taken_up(self._waiting.popleft())
            stale = 0 if taken else stale + 1

    async def _look(self) -> bool:
        """Find the runs that nobody drives; False if there are none for this worker."""
        self._waiting.clear()
        self._looked = asyncio.get_running_loop().time()
        left = set(self._left)
        try:
            runs = [head.run for head in await self._engine.unattended(left)]
        except RerailError as error:
            self._missed(error)
            return False
        self._unseen = None
        self._left = {run: why for run, why in self._left.items() if run in left}
        for first in range(0, len(runs), WINDOW):
            some = runs[first : first + WINDOW]
            CHANCE.shuffle(some)
            self._waiting.extend(some)
        return bool(runs)

    async def _taken_up(self, run: str) -> bool:
        try:
            taken = await self._engine.take_up(run)
        except PlanError as missing:
            why = one_by_one(fault.message for fault in missing.faults)
            self._left[run] = why
            self._said(tell("reason.work.left", run=run, why=why))
            return False
        except RerailError as error:
            if error.code == "STORE_FAILED":
                self._missed(error)
                return False
            self._left[run] = words_of(error)
            self._said(tell("reason.work.left", run=run, why=error))
            return False
        self.taken += taken
        return taken
