"""Notifications: a run ended or waits for a user (contract T10).

Rules of this file:
- A notice is made from a durable state and sent beside the run: only the closing of the engine waits for it, and its
  failure does not reach the run.
- The owner that recorded the end sends it: a later owner does not send it again.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Collection
from itertools import islice
from typing import Any

from rerail.errors import RerailError
from rerail.kernel import events as ev
from rerail.kernel.state import State
from rerail.kernel.step_state import RunStatus
from rerail.kernel.verdict import summary, verdict
from rerail.ports import Notice, Notifier
from rerail.values.json_values import plain_text
from rerail.views.results import informed

MAX_STEPS = 20  # steps in a notice
NoteDown = Callable[[State, list[ev.Notified]], Awaitable[None]]


def notice_of(state: State) -> Notice | None:
    """Return the notice about a run's state; None while it runs."""
    if state.rest is not None:
        status = state.rest.status
        about = "done" if status == RunStatus.COMPLETED else "failed"
    elif state.waiting:
        status, about = str(RunStatus.WAITING), "waiting"
    else:
        return None
    found = verdict(state)
    name = f"{state.run}-{state.rested_at}"
    document = {
        "id": name, "event": about, "run": state.run, "status": status,
        "objective": plain_text(state.objective, 2000), "summary": plain_text(str(summary(state, found)), 2000),
        "parent": state.parent or None, "success": found.success and about == "done", "complete": found.complete,
        "degraded": found.degraded,
        "failed_steps": [_short(row) for row in found.failed_steps[:MAX_STEPS]],
        "waiting_on": [_short(row) for row in islice(informed(state), MAX_STEPS)] if about == "waiting" else [],
        "seq": state.rested_at, "at": state.at,
    }  # fmt: skip
    return Notice(name, about, state.run, document)


def _short(row: Any) -> dict[str, Any]:
    return {key: plain_text(value, 500) if isinstance(value, str) else value for key, value in row.items()}


class Notifications:
    """The notices of one engine that are on their way."""

    def __init__(self, notifier: Notifier, note_down: NoteDown) -> None:
        self._notifier, self._note_down = notifier, note_down
        self._sending: set[asyncio.Task[None]] = set()

    def announce(self, state: State, since: int) -> None:
        """Send a notice if the run ended, or began to wait, after that sequence number; returns at once."""
        if state.rested_at <= since:
            return
        notice = notice_of(state)
        if notice is None or notice.about not in self._notifier.on:
            return
        # Earlier ones of the run, and those of its parent, come first: readers see the notices in order.
        before = [task for task in self._sending if task.get_name() in (state.run, state.parent)]
        task = asyncio.get_running_loop().create_task(self._send(notice, state, before), name=state.run)
        self._sending.add(task)
        task.add_done_callback(self._sent)

    def _sent(self, task: asyncio.Task[None]) -> None:
        self._sending.discard(task)
        if not task.cancelled():
            task.exception()  # retrieved, else asyncio logs it

    async def _send(self, notice: Notice, state: State, before: Collection[asyncio.Task[None]]) -> None:
        if before:
            await asyncio.wait(before)
        told = [
            ev.Notified(
                sent.kind, plain_text(sent.target, 200), sent.ok, sent.attempts, plain_text(sent.error, 500),
                notice.about, notice.id,
            )
            for sent in await self._notifier.send(notice)
        ]  # fmt: skip
        with contextlib.suppress(RerailError):  # the store is out of reach; the run itself reports that
            await self._note_down(state, told)

    async def close(self) -> None:
        """Wait for the notices on their way, as long as their delivery may take."""
        if self._sending:
            _, late = await asyncio.wait(set(self._sending), timeout=self._notifier.patience)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)
