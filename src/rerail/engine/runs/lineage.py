"""The lineage of a run: which runs follow which, and what that allows (contract T6).

Rules of this file:
- A follow-up, and what follows that, works in its parent's folder: no run is touched while a relative is at work.
- Of the runs that follow one run the newest counts; the others are superseded, and so is all that follows them.
- Each run has a lease of its own. After an acquire the relatives are read once more, and the lease is released if one
  of them is held: of two acquires at the same instant at least one sees the other (contract T7).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from rerail.engine.files.retention import old_drafts, sweep
from rerail.engine.parts import EngineParts
from rerail.engine.run_loop import RunLoop
from rerail.engine.runs.leases import RELEASE_GRACE, Leases, holding
from rerail.engine.runs.owner import is_silent
from rerail.engine.runs.reader import AT_REST, Heads, RunReader, RunRows, store_errors
from rerail.errors import Refused
from rerail.i18n import tell
from rerail.kernel import retry
from rerail.kernel.commands import Command
from rerail.kernel.state import State
from rerail.kernel.step_state import RunStatus
from rerail.ports import Head
from rerail.workspace import OWN

DRAFT_TTL = 24 * 3600.0  # seconds after which a draft that is not on record is an orphan


def follow_up_id(state: State) -> str:
    """Return the id of the run that follows a completion; each completion has its own."""
    return f"{state.run}-f{state.rested_at}"


def _follows(head: Head) -> bool:
    """Whether a run was started because its parent completed, and not by a user."""
    return bool(head.parent) and head.run.startswith(f"{head.parent}-f")


@dataclass(eq=False)
class Lineage:
    """Knows the ancestors and descendants of runs."""

    _parts: EngineParts
    _reader: RunReader
    _leases: Leases

    # -- Relatives ------------------------------------------------------------------------------------------------

    async def parent_state(self, state: State) -> State | None:
        return await self._reader.state(state.parent) if state.parent else None

    async def descendants(self, run: str) -> Heads:
        """Return what follows a run, what follows that, and so on: the newest of each."""
        line: Heads = []
        while (newest := await self._newest_follow_up(run)) is not None:
            line.append(newest)
            run = newest.run
        return line

    async def ancestors(self, head: Head) -> Heads:
        """Return what a run follows, what that follows, and so on, as far as each started the next."""
        line: Heads = []
        while _follows(head):
            head = await self._reader.head(head.parent)
            line.append(head)
        return line

    async def _newest_follow_up(self, run: str) -> Head | None:
        with store_errors():
            children = await self._parts.store.heads(parent=run, prefix=f"{run}-f", limit=1)
        return children[0] if children else None

    async def is_begun(self, run: str) -> bool:
        """Whether a run has its plan, or a living process is about to give it one."""
        with store_errors():
            head = await self._parts.store.head(run)
        return head is not None and self._has_plan(head)

    def _has_plan(self, head: Head) -> bool:
        return head.seq > 0 or self._leases.is_held(head)

    async def starter_of(self, head: Head) -> Head:
        """Return the run that has to start this one, if a crash left it without a plan; else this one."""
        return await self._reader.head(head.parent) if _follows(head) and not self._has_plan(head) else head

    async def once_calls_below(self, state: State) -> list[str]:
        """Return the `once` steps that a run's descendants have done: they start anew with it (contract T6)."""
        found = []
        for head in await self.descendants(state.run) if state.follow_up is not None else ():
            below = await self._reader.state(head.run)
            found += [f"{step} ({head.run})" for step in retry.acted_once(below) if step in below.tracks]
        return found

    async def retry_target(self, head: Head, steps: Sequence[str] | None, stage: str | None) -> Head:
        """Return the run that a retry means: for a completed one, the first descendant that is not (contract T6).

        With a stage it is the first one that has such a stage.
        """
        given = head
        while head.status == RunStatus.COMPLETED and not steps:
            with store_errors():
                children = await self._parts.store.heads(parent=head.run, limit=1)
            if not children:
                break
            head = children[0]
            if stage is not None:
                if stage in {track.step.stage for track in (await self._reader.state(head.run)).tracks.values()}:
                    return head
            elif head.status != RunStatus.COMPLETED:
                return head
        return given

    # -- Relatives at work ----------------------------------------------------------------------------------------

    async def acquire(self, seen: Head, known: State | None = None, *, take_over: bool = False) -> RunLoop:
        """Become the owner of a run, if no run that shares its folder is held (contract T6, T7)."""
        await self.wait_for_relatives(seen)
        loop = await self._leases.acquire(seen.run, seen, known, take_over=take_over)
        async with self._leases.kept(loop):
            await self.require_relatives_idle(seen)
        return loop

    async def wait_for_relatives(self, head: Head) -> None:
        """Wait until it is certain which owners of ancestors and descendants live.

        This comes before the acquire: an acquired run is not renewed until it is driven.
        """
        for relative in [*await self.descendants(head.run), *await self.ancestors(head)]:
            await self._leases.settled(relative)

    async def require_idle_below(self, run: str) -> None:
        """Refuse to repeat a run while a descendant is at work in its folder (contract T6, T7)."""
        for head in await self.descendants(run):
            if self._leases.driven_elsewhere(head) or self._leases.drives(head.run):
                raise self._leases.refusal(head, tell("hint.run.run_live", run=head.run))

    async def require_relatives_idle(self, head: Head, *, even_superseded: bool = False) -> None:
        """Refuse to go on with an acquired run if a relative is held, or if it was superseded.

        ``even_superseded``: the run may have been superseded.
        """
        # An ancestor gives up earlier: of two runs that block each other, the descendant goes on.
        for relative in await self.descendants(head.run):
            await self._require_released(relative, RELEASE_GRACE / 2)
        ancestors = await self.ancestors(head)
        for relative in ancestors:
            await self._require_released(relative, RELEASE_GRACE)
        if not even_superseded and ancestors:
            await self.refuse_superseded(head)
            await self._refuse_outrun(head)

    async def _require_released(self, head: Head, patience: float) -> None:
        """Refuse if a run is held; one at rest is about to be acquired, or to be released."""
        waited = 0.0
        while self._leases.is_held(head := await self._leases.settled(head)):
            if head.status in AT_REST and is_silent(head, self._parts.clock.now()):
                with store_errors(), holding(head.run):  # its release failed; a later one comes too late
                    lease = await self._leases.take_over(head)
                await self._leases.release(lease)
                return
            if head.status not in AT_REST or waited >= patience:
                raise self._leases.refusal(head, tell("hint.run.run_live", run=head.run))
            await asyncio.sleep(0.05)
            waited += 0.05
            head = await self._reader.head(head.run)

    # -- Superseded runs ------------------------------------------------------------------------------------------

    async def to_retry(self) -> RunRows:
        """Return every run that failed or was interrupted, oldest first, without superseded ones (contract T4)."""
        rows = []
        for head in reversed(await self._reader.heads(status=("failed", "running"), limit=100_000)):
            row = await self._reader.row(head)
            if (row.status == RunStatus.FAILED or row.interrupted) and await self._superseded(head) is None:
                rows.append(row)
        return rows

    async def is_superseded(self, run: str) -> str:
        """Return the newer run that took the place of a follow-up, or of an ancestor (contract T6)."""
        found = await self._superseded(await self._reader.head(run))
        return found[0] if found is not None else ""

    async def _superseded(self, head: Head) -> tuple[str, str] | None:
        """Return the run that took the place of this one or of an ancestor, and the parent of both."""
        found = None
        while _follows(head):
            parent, newest = await self._reader.head(head.parent), await self._newest_follow_up(head.parent)
            if newest is not None and newest.run != head.run:
                found = (newest.run, parent.run)
            elif parent.status != RunStatus.COMPLETED:
                # The parent is being repeated, or its repetition failed: a newer follow-up is yet to come.
                found = (parent.run, parent.run)
            head = parent
        return found  # the one nearest to the first ancestor: from there on everything is done anew

    async def refuse_superseded(self, head: Head) -> None:
        """Refuse a command for a superseded run."""
        if (found := await self._superseded(head)) is not None:
            raise _superseded_refusal(head.run, *found)

    async def _refuse_outrun(self, head: Head) -> None:
        """Refuse if a parent has completed again, and its new follow-up is not created yet."""
        run = head.run
        while _follows(head):
            newest = follow_up_id(await self._reader.state(head.parent))
            if newest != head.run:
                raise _superseded_refusal(run, newest, head.parent)
            head = await self._reader.head(head.parent)

    # -- Drafts ---------------------------------------------------------------------------------------------------

    async def sweep_drafts(self, state: State) -> None:
        """Remove the drafts of edits and attempts that a crash orphaned before they were recorded (contract T2)."""
        folder, before = self._parts.workspaces(state.home), self._parts.clock.now() - DRAFT_TTL
        if not (folder / OWN).is_dir():
            return
        old = await asyncio.to_thread(old_drafts, folder, before)
        if old:
            await asyncio.to_thread(sweep, folder, old, await self.drafts_of(state.home))

    async def drafts_of(self, home: str) -> set[str]:
        """Return the drafts that a run and its descendants have on record, in an inbox, or under way."""
        named: set[str] = set()
        runs = [home]
        for run in runs:  # which grows
            with store_errors():
                runs += [head.run for head in await self._parts.store.heads(parent=run, limit=100_000)]
        for run in runs:
            state = await self._reader.state(run)
            named.update(file.draft for file in state.drafts.values())
            named.update(track.call.staged for track in state.tracks.values() if track.call is not None)
            with store_errors():
                asked = [data for _, data in await self._parts.store.inbox(run)]
            for data in asked:
                with contextlib.suppress(msgspec.MsgspecError):
                    named.update(file.draft for file in msgspec.json.decode(data, type=Command).files)
        return named


def _superseded_refusal(run: str, newest: str, parent: str) -> Refused:
    hint = tell("hint.run.superseded", parent=parent)
    return Refused(tell("refuse.run.superseded", run=run, newest=newest), "RUN_SUPERSEDED", hint=hint)
