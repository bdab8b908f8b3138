"""Which run follows which, and what may be done to one of them because of the others (SPEC T6).

Rules of this file:
- What follows a run, and what follows that, works in its folder, so nothing is done to the one while another of them is
  at work.
- Of the runs that follow one run, the newest counts; the others are over, and so is all that follows them.
- Each run has a lease of its own. So whoever takes one looks at the others once more when it has it, and gives it back
  if one of them is held: of two at the same instant at least one sees the other (T7).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from rerail.core import commands
from rerail.core.command import Command
from rerail.core.state import State
from rerail.core.track import RunStatus
from rerail.engine.keeping import old_drafts, sweep
from rerail.engine.loop import RunLoop
from rerail.engine.owner import is_silent
from rerail.engine.reading import AT_REST, Heads, RunRows, store_errors
from rerail.engine.taking import LETTING_GO, Taker, reaching
from rerail.errors import Refused
from rerail.i18n import tell
from rerail.ports import Head
from rerail.workspace import OWN

ORPHANED = 24 * 3600.0  # seconds after which what is not on record will not be put there any more


def follow_up_id(state: State) -> str:
    """The id of the run that follows a completion; it tells which, whatever was written down after it."""
    return f"{state.run}-f{state.rested_at}"


def _follows(head: Head) -> bool:
    """Whether a run was started because its parent completed, and not by somebody's hand."""
    return bool(head.parent) and head.run.startswith(f"{head.parent}-f")


class Superseded(NamedTuple):
    """That the place of a run, or of one that it follows, is taken: by which, and what both of these follow."""

    newest: str
    parent: str


class Family(Taker):
    """Knows the runs before and after a run."""

    async def _drafts_of(self, home: str) -> set[str]:
        """What a run, or what follows it, has on record, or is still to be asked about, and where its calls write."""
        named: set[str] = set()
        runs = [home]
        for run in runs:  # which grows
            with store_errors():
                runs += [head.run for head in await self._host.store.heads(parent=run, limit=100_000)]
        for run in runs:
            state = await self.state(run)
            named.update(file.draft for file in state.drafts.values())
            named.update(track.call.staged for track in state.tracks.values() if track.call is not None)
            with store_errors():
                asked = [data for _, data in await self._host.store.inbox(run)]
            for data in asked:
                with contextlib.suppress(msgspec.MsgspecError):
                    named.update(file.draft for file in msgspec.json.decode(data, type=Command).files)
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
        found = []
        for head in await self._line_below(state.run) if state.follow_up is not None else ():
            below = await self.state(head.run)
            found += [f"{step} ({head.run})" for step in commands.acted_once(below) if step in below.tracks]
        return found

    async def _newest_follow_up(self, run: str) -> Head | None:
        with store_errors():
            children = await self._host.store.heads(parent=run, prefix=f"{run}-f", limit=1)
        return children[0] if children else None

    async def _is_begun(self, run: str) -> bool:
        """Whether a run has its plan, or a living process is about to give it one."""
        with store_errors():
            head = await self._host.store.head(run)
        return head is not None and (head.seq > 0 or self._is_held(head))

    async def _beginner(self, run: str) -> str:
        """The run that is to start this one, if whoever began to do so died before it had a plan; else this one."""
        head = await self.head(run)
        return head.parent if _follows(head) and not await self._is_begun(run) else run

    async def _line_below(self, run: str) -> Heads:
        """What follows a run, what follows that, and so on: of each the newest."""
        line: Heads = []
        while (newest := await self._newest_follow_up(run)) is not None:
            line.append(newest)
            run = newest.run
        return line

    async def _line_above(self, run: str) -> Heads:
        """What a run follows, what that follows, and so on, as far as each was started by the one before."""
        line: Heads = []
        head = await self.head(run)
        while _follows(head):
            head = await self.head(head.parent)
            line.append(head)
        return line

    async def _refuse_below(self, run: str) -> None:
        """Refuse to do a run again while what follows it is at work in the same folder (T6, T7)."""
        for head in await self._line_below(run):
            if head.run in self._live or self._driven_elsewhere(head):
                raise self._is_live(head, tell("hint.run.run_live", run=head.run))

    async def _take_alone(
        self, run: str, seen: Head, known: State | None = None, *, take_over: bool = False
    ) -> RunLoop:
        """Become the owner of a run, if nobody has any of those that share its folder with it (T6, T7)."""
        await self._kin_settled(run)
        loop = await self._take(run, seen, known, take_over=take_over)
        try:
            await self._refuse_kin(run)
        except BaseException:
            await self._give_back(loop.lease, loop.predecessor)
            raise
        return loop

    async def _kin_settled(self, run: str) -> None:
        """Wait until it is known who of those lives that have what is before or after a run.

        Before we hold the run itself: others may want it meanwhile, and nobody renews it until it is driven.
        """
        for head in [*await self._line_below(run), *await self._line_above(run)]:
            await self._settled(head.run)

    async def _refuse_kin(self, run: str, *, outlived: bool = False) -> None:
        """Refuse to go on with a run that we hold, if one before or after it is held too, or its place is taken.

        ``outlived``: what took its place does not matter.
        """
        # The one before gives up earlier: of two that stand in each other's way, the one that follows goes on.
        for head in await self._line_below(run):
            await self._refuse_held(head.run, LETTING_GO / 2)
        for head in await self._line_above(run):
            await self._refuse_held(head.run, LETTING_GO)
        if not outlived:
            await self._refuse_superseded(run)
            await self._refuse_outrun(run)

    async def _refuse_held(self, run: str, patience: float) -> None:
        """Refuse if somebody has a run; who has one at rest is about to begin with it, or to let go of it."""
        waited = 0.0
        while self._is_held(head := await self._settled(run)):
            if head.status not in AT_REST:
                raise self._is_live(head, tell("hint.run.run_live", run=run))
            if is_silent(head, self._host.clock.now()):
                with store_errors(), reaching(run):  # it failed to give it back; if it wakes up, it is too late
                    lease = await self._take_over(run, head)
                await self._let_go(lease)
                return
            if waited >= patience:
                raise self._is_live(head, tell("hint.run.run_live", run=run))
            await asyncio.sleep(0.05)
            waited += 0.05

    async def to_retry(self) -> RunRows:
        """Every run that failed or was interrupted, the oldest first; not those whose place a newer one took (T4)."""
        rows = await self.list(status=("failed", "running"), limit=100_000)
        wanted = [row for row in reversed(rows) if row.status == RunStatus.FAILED or row.interrupted]
        return [row for row in wanted if not await self.is_superseded(row.run_id)]

    async def is_superseded(self, run: str) -> str:
        """The newer run that took the place of a follow-up, or of what it follows, as a parent completed again (T6)."""
        found = await self._superseded(run)
        return found.newest if found is not None else ""

    async def _superseded(self, run: str) -> Superseded | None:
        found, head = None, await self.head(run)
        while _follows(head):
            parent, newest = await self.head(head.parent), await self._newest_follow_up(head.parent)
            if newest is not None and newest.run != head.run:
                found = Superseded(newest.run, parent.run)
            elif parent.status != RunStatus.COMPLETED:
                # It is being done again, or failed when it was: a newer one is yet to come.
                found = Superseded(parent.run, parent.run)
            head = parent
        return found  # the one nearest to the beginning: from there on all is done anew

    async def _refuse_superseded(self, run: str) -> None:
        if (found := await self._superseded(run)) is not None:
            hint = tell("hint.run.superseded", parent=found.parent)
            raise Refused(tell("refuse.run.superseded", run=run, newest=found.newest), "RUN_SUPERSEDED", hint=hint)

    async def _refuse_outrun(self, run: str) -> None:
        """Refuse if a parent has completed again, and what follows it now is only about to be started."""
        head = await self.head(run)
        while _follows(head):
            newest = follow_up_id(await self.state(head.parent))
            if newest != head.run:
                hint = tell("hint.run.superseded", parent=head.parent)
                raise Refused(tell("refuse.run.superseded", run=run, newest=newest), "RUN_SUPERSEDED", hint=hint)
            head = await self.head(head.parent)

    async def _retry_target(self, run: str, steps: Sequence[str] | None, stage: str | None) -> str:
        """The run a retry is meant for: completed runs stand for the first that follows and is not done (T6).

        With a stage it is the first that follows and has such a stage.
        """
        head = await self.head(run)
        while head.status == RunStatus.COMPLETED and not steps:
            with store_errors():
                children = await self._host.store.heads(parent=head.run, limit=1)
            if not children:
                break
            head = children[0]
            if stage is not None:
                if stage in {track.step.stage for track in (await self.state(head.run)).tracks.values()}:
                    return head.run
            elif head.status != RunStatus.COMPLETED:
                return head.run
        return run

    async def _above(self, state: State) -> State | None:
        """The state of the run that this one follows, if it follows one."""
        return await self.state(state.parent) if state.parent else None
