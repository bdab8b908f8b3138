"""Retries: what they are about, their dry run, and their start (contract R7, T4, I4).

Rules of this file:
- A dry run writes nothing and acquires nothing: its result is computed on a state of its own.
- Everything that takes time comes before the acquire: an acquired run is either driven or released soon.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from rerail.engine.files.retention import backed_up, cleared, damage_above, damage_of, discard, to_back_up
from rerail.engine.parts import EngineParts
from rerail.engine.refusals import refusals
from rerail.engine.run_loop import RunLoop
from rerail.engine.runs.commands import Commands, refuse_without_plan
from rerail.engine.runs.definition_drift import DefinitionDrift, pretend_resumed
from rerail.engine.runs.leases import Leases
from rerail.engine.runs.lineage import Lineage
from rerail.engine.runs.reader import RunReader
from rerail.engine.runs.starter import Starter
from rerail.engine.runs.supervisor import Supervisor
from rerail.errors import Refused, RerailError
from rerail.i18n import tell
from rerail.kernel import commands as cmd
from rerail.kernel import retry
from rerail.kernel.preview import within_budget
from rerail.kernel.retry import Preview
from rerail.kernel.rights import require_rights
from rerail.kernel.state import State
from rerail.ports import Head


@dataclass(frozen=True, slots=True)
class Aim:
    """What a retry is about: the run as it was seen, its parent, and the options."""

    head: Head
    state: State
    above: State | None
    asked: dict[str, Any]


@dataclass(eq=False)
class Retries:
    """Retries the runs of one engine. ``expects_tools``: a dry run refuses a retry with tools that are missing here."""

    _parts: EngineParts
    _reader: RunReader
    _leases: Leases
    _lineage: Lineage
    _drift: DefinitionDrift
    _supervisor: Supervisor
    _starter: Starter
    _commands: Commands
    _by: str
    _expects_tools: bool

    async def retry(self, run: str, command: cmd.Retry, *, dry_run: bool) -> tuple[str, Preview | None]:
        """Start a retry; return the run that it is for, and what it will do."""
        head = await self._reader.find_head(run)
        steps, take_over, by = list(command.steps) or None, command.take_over, command.by
        narrowed = steps or command.stage or command.clean or command.force
        if not dry_run and not narrowed and (started := await self._starter.late_follow_up(head)):
            return started, None
        head = await self._lineage.retry_target(head, steps, command.stage)
        run = head.run
        self._leases.refuse_arriving(head)
        refuse_without_plan(run, head.seq)
        await self._lineage.refuse_superseded(head)
        if self._leases.drives(run) or self._leases.driven_elsewhere(head, take_over=take_over):
            return run, await self._retry_live(head, command, dry_run=dry_run)
        asked = {"steps": steps, "stage": command.stage, "clean": command.clean, "force": command.force}
        aim = await self._aimed(head, {**asked, "actor": command.actor}, take_over=take_over)
        with refusals():
            require_rights(aim.state, command)
        again = await self._lineage.once_calls_below(aim.state)
        if dry_run or command.clean:
            preview = await self._pretended(aim, by)
        if not dry_run:
            try:
                preview = await self._begin(aim, by, take_over=take_over)
            except Refused as refused:
                if steps and refused.code == "RUN_LIVE":
                    head = await self._leases.found_alive(run, refused)
                    return run, await self._retry_live(head, command, dry_run=False)
                if refused.code != "NOTHING_TO_RETRY" or aim.state.rest is not None or aim.state.waiting:
                    raise
                # Every step is done, and a crash came before the end was recorded: only that is left to do.
                return await self._commands.resume(aim.state.run, cmd.Resume(by=by, take_over=take_over)), None
        return aim.state.run, replace(preview, once=(*preview.once, *again))

    async def _aimed(self, head: Head, asked: dict[str, Any], *, take_over: bool) -> Aim:
        """Return what a retry is about: the run, or its parent if the parent's files are damaged."""
        clean, state = asked.get("clean", False), await self._reader.state(head.run)
        await self._lineage.require_idle_below(head.run)
        above = await self._lineage.parent_state(state)
        if above is not None and not clean and await damage_above(self._parts, state, above):
            # The parent is repaired first, and then this run starts anew (contract T3, T6).
            options = {**asked, "mending": True, "steps": None, "stage": None}
            parent = await self._reader.head(above.run)
            return await self._aimed(parent, options, take_over=take_over)
        if self._leases.driven_elsewhere(head, take_over=take_over):
            raise self._leases.refusal(head, tell("hint.run.run_live", run=head.run))
        damage = [] if clean else await damage_of(self._parts, state)
        return Aim(head, state, above, {**asked, "damage": damage})

    async def _pretended(self, aim: Aim, by: str) -> Preview:
        state = await self._reader.folded(aim.state.run)
        pretend_resumed(state)
        preview = self._preview(state, by, aim.asked)
        if self._expects_tools:
            self._need_tools(state, preview)
        if aim.asked.get("clean"):
            preview = replace(preview, backs_up=await to_back_up(self._parts, state))
        if not self._drift.is_capped(aim.state):
            return preview
        with refusals():
            return within_budget(state, self._parts.specs, preview, self._parts.clock.now())

    def _preview(self, state: State, by: str, asked: Mapping[str, Any]) -> Preview:
        with refusals():
            return retry.retry(state, by, **asked, **self._drift.changes(state))

    def _need_tools(self, state: State, preview: Preview | None = None) -> None:
        self._drift.need_tools(state, {row["step"] for row in preview.rerun} if preview is not None else ())

    async def _begin(self, aim: Aim, by: str, *, take_over: bool) -> Preview:
        """Back up, acquire the run, record the retry, and drive the run on."""
        self._need_tools(aim.state)
        if self._drift.is_capped(aim.state):
            await self._pretended(aim, by)  # no retry is used up for nothing
        backup = await backed_up(self._parts, aim.state) if aim.asked.get("clean") else None
        asked = {**aim.asked, "backup": str(backup.folder) if backup is not None else ""}
        try:
            loop, preview = await self._acquire(aim, by, asked, take_over=take_over)
        except RerailError:
            if backup is not None:
                discard(backup)
            raise
        try:
            await cleared(self._parts, loop.state)
        except BaseException:
            await self._leases.release(loop.lease)
            raise
        self._supervisor.drive(loop, aim.above)
        return preview

    async def _acquire(
        self, aim: Aim, by: str, asked: Mapping[str, Any], *, take_over: bool
    ) -> tuple[RunLoop, Preview]:
        """Become the owner, and record the retry: no other process can repeat it."""
        loop = await self._lineage.acquire(aim.head, aim.state, take_over=take_over)
        async with self._leases.kept(loop, commits=True):
            loop.note(*self._drift.resume_events(loop.state, self._by, loop.predecessor))
            preview = self._preview(loop.state, by, asked)
            self._need_tools(loop.state, preview)
            loop.note(*preview.events)
            await loop.commit()  # an announced retry survives a crash
        return loop, preview

    async def _retry_live(self, head: Head, command: cmd.Retry, *, dry_run: bool) -> Preview | None:
        """Retry steps of a run that is driven."""
        if not command.steps or command.clean or command.stage is not None:  # only an idle run can start over
            raise self._leases.refusal(head, tell("hint.run.driven_by", run=head.run))
        if dry_run:
            state = await self._reader.state(head.run)
            with refusals():
                return retry.retry(state, command.by, steps=command.steps, force=command.force)
        await self._commands.deliver(head.run, command)
        return None
