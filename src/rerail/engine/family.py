"""Which run follows which, and what may be done to one of them because of the others (SPEC T6).

Rules of this file:
- What follows a run works in its folder, so nothing is done to the one while the other is at work.
- Of the runs that follow one run, the newest counts; the others are over.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence

import msgspec

from rerail.core import commands
from rerail.core.state import State
from rerail.core.texts import tell
from rerail.core.track import RunStatus
from rerail.engine.keeping import old_drafts, sweep
from rerail.engine.reading import RunRows, store_errors
from rerail.engine.taking import Taker
from rerail.engine.wishes import Wish
from rerail.errors import Refused
from rerail.workspace import OWN

ORPHANED = 24 * 3600.0  # seconds after which what is not on record will not be put there any more


def follow_up_id(state: State) -> str:
    """The id of the run that follows a completion; it tells which, whatever was written down after it."""
    return f"{state.run}-f{state.rested_at}"


class Family(Taker):
    """Knows the runs before and after a run."""

    async def _drafts_of(self, home: str) -> set[str]:
        """What a run, or what follows it, has on record, or is still to be asked about, and where its calls write."""
        named: set[str] = set()
        with store_errors():
            runs = [home, *(head.run for head in await self._host.store.heads(parent=home, limit=100_000))]
        for run in runs:
            state = await self.state(run)
            named.update(file.draft for file in state.drafts.values())
            named.update(track.call.staged for track in state.tracks.values() if track.call is not None)
            with store_errors():
                asked = [data for _, data in await self._host.store.inbox(run)]
            for data in asked:
                with contextlib.suppress(msgspec.MsgspecError):
                    named.update(file.draft for file in msgspec.json.decode(data, type=Wish).files)
        return named

    async def _sweep_drafts(self, state: State) -> None:
        """Take away what a `confirm --edit` left that died before anybody had agreed to it, or an attempt (T2)."""
        folder, before = self._host.workspaces(state.home), self._host.clock.now() - ORPHANED
        if not (folder / OWN).is_dir():
            return
        old = await asyncio.to_thread(old_drafts, folder, before)
        if old:
            await asyncio.to_thread(sweep, folder, old, await self._drafts_of(state.home))

    async def _effects_below(self, state: State) -> list[str]:
        """What must not happen twice, and was done by what follows a run: that starts anew with it (T6)."""
        newest = await self._newest_follow_up(state.run) if state.follow_up is not None else None
        if newest is None:
            return []
        below = await self.state(newest)
        return [f"{step} ({newest})" for step in commands.acted_once(below) if step in below.tracks]

    async def _newest_follow_up(self, run: str) -> str | None:
        with store_errors():
            children = await self._host.store.heads(parent=run, prefix=f"{run}-f", limit=1)
        return children[0].run if children else None

    async def _refuse_below(self, run: str) -> None:
        """Refuse to do a run again while what follows it is at work in the same folder (T6, T7)."""
        newest = await self._newest_follow_up(run)
        head = await self.head(newest) if newest is not None else None
        if head is not None and (head.run in self._live or self._driven_elsewhere(head)):
            raise self._is_live(head, tell("hint.run.run_live", run=head.run))

    async def to_retry(self) -> RunRows:
        """Every run that failed or was interrupted, the oldest first; not those whose place a newer one took (T4)."""
        rows = await self.list(status=("failed", "running"), limit=100_000)
        wanted = [row for row in reversed(rows) if row.status == RunStatus.FAILED or row.interrupted]
        return [row for row in wanted if not await self.is_superseded(row.run_id)]

    async def is_superseded(self, run: str) -> str:
        """The newer run that took a follow-up's place, as its parent has completed again since (T6); or nothing."""
        parent = (await self.head(run)).parent
        if not parent or not run.startswith(f"{parent}-f"):
            return ""
        newest = await self._newest_follow_up(parent)
        if newest is not None and newest != run:
            return newest
        # Its parent is being done again, or failed when it was: a newer one is yet to come.
        return parent if (await self.head(parent)).status != RunStatus.COMPLETED else ""

    async def _refuse_superseded(self, run: str) -> None:
        if newest := await self.is_superseded(run):
            hint = tell("hint.run.superseded", parent=(await self.head(run)).parent)
            raise Refused(tell("refuse.run.superseded", run=run, newest=newest), "RUN_SUPERSEDED", hint=hint)

    async def _retry_target(self, run: str, steps: Sequence[str] | None, stage: str | None, *, force: bool) -> str:
        """The run a retry is meant for: a completed run whose follow-up is not done stands for its follow-up (T6)."""
        head = await self.head(run)
        if head.status != RunStatus.COMPLETED or steps:
            return run
        with store_errors():
            children = await self._host.store.heads(parent=run, limit=1)
        latest = children[0] if children else None
        if latest is None:
            return run
        if stage is not None:
            known = {track.step.stage for track in (await self.state(latest.run)).tracks.values()}
            return latest.run if stage in known else run
        return run if latest.status == RunStatus.COMPLETED else latest.run

    async def _above(self, state: State) -> State | None:
        """The state of the run that this one follows, if it follows one."""
        return await self.state(state.parent) if state.parent else None
