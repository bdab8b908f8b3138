"""Notices: that a run ended or waits, for people who are not looking (SPEC T10).

Rules of this file:
- A notice is made from a state whose last word is durable, and sent beside the run: nothing waits for it but the
  closing of the engine, and nothing that goes wrong with it reaches the run.
- It is the owner's who wrote that word: whoever takes the run over later does not send it again.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from itertools import islice
from typing import Any

from rerail.core import events as ev
from rerail.core.state import State
from rerail.core.track import RunStatus
from rerail.core.values import plain_text
from rerail.core.verdict import summary, verdict
from rerail.core.views import informed
from rerail.errors import RerailError
from rerail.ports import Notice, Notifier

MOST = 20  # steps that are named in a notice
NoteDown = Callable[[State, list[ev.Notified]], Awaitable[None]]


def notice_of(state: State) -> Notice | None:
    """What there is to tell of a run; None while it runs."""
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
        "failed_steps": [_short(row) for row in found.failed_steps[:MOST]],
        "waiting_on": [_short(row) for row in islice(informed(state), MOST)] if about == "waiting" else [],
        "seq": state.rested_at, "at": state.at,
    }  # fmt: skip
    return Notice(name, about, state.run, document)


def _short(row: Any) -> dict[str, Any]:
    return {key: plain_text(value, 500) if isinstance(value, str) else value for key, value in row.items()}


class Notices:
    """The notices of one engine that are on their way."""

    def __init__(self, notifier: Notifier | None, note_down: NoteDown) -> None:
        self._notifier, self._note_down = notifier, note_down
        self._sending: set[asyncio.Task[None]] = set()

    def announce(self, state: State, since: int) -> None:
        """Tell of a run that came to rest, or began to wait, after that sequence number; returns at once."""
        if self._notifier is None or state.rested_at <= since:
            return
        notice = notice_of(state)
        if notice is None or notice.about not in self._notifier.on:
            return
        task = asyncio.get_running_loop().create_task(self._send(self._notifier, notice, state))
        self._sending.add(task)
        task.add_done_callback(self._sent)

    def _sent(self, task: asyncio.Task[None]) -> None:
        self._sending.discard(task)
        if not task.cancelled():
            task.exception()  # seen: there is nobody to tell of it

    async def _send(self, notifier: Notifier, notice: Notice, state: State) -> None:
        told = [
            ev.Notified(
                sent.kind, plain_text(sent.target, 200), sent.ok, sent.attempts, plain_text(sent.error, 500),
                notice.about, notice.id,
            )
            for sent in await notifier.send(notice)
        ]  # fmt: skip
        with contextlib.suppress(RerailError):  # the store is out of reach: that is told where it matters
            await self._note_down(state, told)

    async def close(self) -> None:
        """Wait for what is on its way, as long as that can take; a process that ended at once would tell nobody."""
        if self._sending and self._notifier is not None:
            _, late = await asyncio.wait(set(self._sending), timeout=self._notifier.patience)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)
