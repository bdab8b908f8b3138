"""What would come of a wish, before anybody is asked to grant it (R7, X7, I4).

Rules of this file:
- Nothing is written, nothing is taken: what is foreseen is found out on a state of its own.
- A wish is refused here as it would be refused by whoever has the run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from rerail.core.commands import Faulty, Preview, Refusal
from rerail.core.replay import Replay, replay
from rerail.core.state import State
from rerail.core.tools import ToolSpec
from rerail.engine.family import Family
from rerail.engine.today import pretend_mended, unseen
from rerail.engine.wishes import Wish, foresee, grant, refusals
from rerail.errors import PlanError, Refused
from rerail.i18n import tell


class Foreseer(Family):
    """Looks ahead."""

    async def _outlook(self, run: str, wish: Wish) -> Preview:
        """What a wish would lead to, found out on a state of its own."""
        state = await self._folded(run)
        specs: Mapping[str, ToolSpec] = self._host.specs
        if run in self._live or self._driven_elsewhere(await self.head(run)):
            specs = {**unseen(state), **specs}
        else:
            refuse_without_plan(state)
            await self._refuse_below(run)
            pretend_mended(state)
        with refusals():
            return foresee(state, specs, wish, self._host.clock.now())

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

    async def _refuse_foreign(self, run: str, wish: Wish) -> None:
        """Refuse to bring a change that uses tools which are not here: the run's owner would not know who asks (I4)."""
        state = await self.state(run)
        try:
            grant(state, self._host.specs, wish)
        except Faulty as faulty:
            changed = [fault for fault in faulty.faults if fault.step == wish.step or fault.step not in state.tracks]
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
