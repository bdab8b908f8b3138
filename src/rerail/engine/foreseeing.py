"""What would come of a command, before it is given (R7, X7, I4).

Rules of this file:
- Nothing is written, nothing is taken: what is foreseen is found out on a state of its own.
- A command is refused here as the run's owner would refuse it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from rerail.core import commands
from rerail.core.command import Add, Command, Repair, handle, preview
from rerail.core.commands import Faulty, Preview, Refusal
from rerail.core.replay import Replay, replay
from rerail.core.state import State
from rerail.core.tools import ToolSpec
from rerail.engine.family import Family
from rerail.engine.keeping import damage_above, damage_of, to_back_up
from rerail.engine.refusals import refusals
from rerail.engine.today import Today, pretend_mended, unseen
from rerail.errors import PlanError, Refused
from rerail.i18n import tell
from rerail.ports import Head


@dataclass(frozen=True, slots=True)
class Aim:
    """What a retry is about: the run as it was seen, the one that it follows, and what was asked for."""

    head: Head
    state: State
    above: State | None
    asked: dict[str, Any]


class Foreseer(Family):
    """Looks ahead."""

    _today: Today
    looks_only: bool  # it has no tools, and tells what a process that has them will do

    async def _preview(self, run: str, command: Command) -> Preview:
        """What a command would lead to, found out on a state of its own."""
        state = await self._folded(run)
        specs: Mapping[str, ToolSpec] = self._host.specs
        if run in self._live or self._driven_elsewhere(await self.head(run)):
            specs = {**unseen(state), **specs}
        else:
            refuse_without_plan(state)
            await self._refuse_below(run)
            pretend_mended(state)
        with refusals():
            return preview(state, specs, command, self._host.clock.now())

    async def _aimed(self, run: str, asked: dict[str, Any], *, take_over: bool) -> Aim:
        """What a retry is about: the run, or the one that it follows if that is spoilt, and what cannot be kept."""
        clean, state = asked.get("clean", False), await self.state(run)
        refuse_without_plan(state)
        await self._refuse_below(run)
        above = await self._above(state)
        if above is not None and not clean and await damage_above(self._host, state, above):
            # What it follows is spoilt: that is made again first, and then this is started anew (T3, T6).
            return await self._aimed(above.run, {"mending": True, "force": asked["force"]}, take_over=take_over)
        if self._driven_elsewhere(head := await self.head(run), take_over=take_over):
            raise self._is_live(head, tell("hint.run.run_live", run=run))  # somebody took it while we looked
        damage = [] if clean else await damage_of(self._host, state)
        return Aim(head, state, above, {**asked, "damage": damage})

    async def _pretended(self, aim: Aim, who: str) -> Preview:
        """What a retry would do, found out on a state of its own."""
        state = await self.state(aim.state.run)
        pretend_mended(state)
        preview = self._foreseen(state, who, aim.asked)
        if not self.looks_only:
            self._need_tools(state, preview)
        return replace(preview, backs_up=await to_back_up(self._host, state)) if aim.asked.get("clean") else preview

    def _foreseen(self, state: State, who: str, asked: Mapping[str, Any]) -> Preview:
        """What a retry would do to a run."""
        with refusals():
            return commands.retry(state, who, **asked, **self._today.changes(state))

    def _need_tools(self, state: State, preview: Preview | None = None) -> None:
        self._today.need_tools(state, {row["step"] for row in preview.rerun} if preview is not None else ())

    async def decided_again(self, run: str, changes: Mapping[str, Any]) -> Replay:
        """A recorded run with some of its policy changed: what would have been different, as far as it is known."""
        run = await self.find(run)
        records = await self.events(run)
        state = await self.state(run)
        refuse_without_plan(state)
        named, here = unseen(state), self._host.specs
        missing = [name for name in named if name not in here]
        # A long history takes its time.
        return await asyncio.to_thread(replay, run, records, {**named, **here}, changes, missing=missing)

    async def _refuse_foreign(self, run: str, command: Add | Repair) -> None:
        """Refuse to bring a change that uses tools which are not here: the run's owner would not know who asks (I4)."""
        state = await self.state(run)
        try:
            handle(state, self._host.specs, command)
        except Faulty as faulty:
            step = command.step if isinstance(command, Repair) else ""
            changed = [fault for fault in faulty.faults if fault.step == step or fault.step not in state.tracks]
            foreign = [fault for fault in changed if fault.code in ("UNKNOWN_TOOL", "UNKNOWN_ALTERNATIVE")]
            if foreign:
                raise PlanError(tell("refuse.run.foreign"), foreign) from None
        except Refusal:
            return  # whoever has the run says why


def refuse_without_plan(state: State) -> None:
    """A run whose process died before its plan was there is started again; nothing else can be done to it."""
    if not state.revision:
        raise Refused(
            tell("refuse.run.run_without_plan", run=state.run),
            "RUN_UNKNOWN",
            hint=tell("hint.run.run_without_plan"),
        )
