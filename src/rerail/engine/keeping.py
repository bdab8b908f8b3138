"""What a retry may keep of a workspace, and what has to be kept before a run starts over (SPEC T3, T4, T9)."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import Any

import msgspec

from rerail.core.commands import FileDamage
from rerail.core.pipeline import task_view
from rerail.core.state import State
from rerail.core.texts import tell
from rerail.core.track import Phase
from rerail.engine.files import Wanted, damaged, files_of
from rerail.engine.loop import Host
from rerail.errors import Refused
from rerail.ports import Clock
from rerail.workspace import Backup, Outside, back_up, remove, stamp, write_whole


async def damage_of(host: Host, state: State) -> list[FileDamage]:
    """The files of finished steps that cannot be kept: missing, changed or not valid."""
    wanted = [item for track in state.tracks.values() if track.phase is Phase.SUCCEEDED for item in files_of(track)]
    return await _looked_at(host, state, wanted)


async def damage_above(host: Host, state: State, parent: State) -> list[FileDamage]:
    """The same for the files of its parent that a follow-up reads."""
    inherited = {file.path for file in state.inherited}
    tracks = [track for track in parent.tracks.values() if track.phase is Phase.SUCCEEDED]
    wanted = [item for track in tracks for item in files_of(track) if item.file.path in inherited]
    return await _looked_at(host, parent, wanted)


async def _looked_at(host: Host, state: State, wanted: list[Wanted]) -> list[FileDamage]:
    if not wanted:
        return []
    with host.clock.external():
        found = await asyncio.to_thread(damaged, wanted, host.workspaces(state.home))
    return [FileDamage(item.step, item.path, item.reason) for item in found]


async def backed_up(host: Host, state: State) -> Backup | None:
    """Keep all files of a run that starts over; `Refused`, and nothing has changed, if that cannot be done.

    A follow-up works in its parent's folder, and only what it made itself is its own to start over (T6).
    """
    folder = host.workspaces(state.home)
    own = [file.path for track in state.tracks.values() for file in track.step.produces]
    if not folder.is_dir():
        return None
    try:
        with host.clock.external():
            label = stamp(host.clock.now())
            return await asyncio.to_thread(back_up, folder, label, own if state.home != state.run else None)
    except (OSError, Outside) as error:
        hint = tell("hint.run.no_backup", folder=folder)
        raise Refused(tell("refuse.run.no_backup", reason=error), "BACKUP_FAILED", hint=hint) from error


async def cleared(host: Host, state: State, backup: Backup) -> None:
    """Take away what was backed up, now that it is on record that the run starts over."""
    with host.clock.external():
        await asyncio.to_thread(remove, host.workspaces(state.home), backup)


class Snapshot:
    """`task.json` in the workspace of a pipeline: written when it would read differently, never read back (T9)."""

    def __init__(self, folder: Path, clock: Clock, parent: State | None = None) -> None:
        self._path, self._clock, self._parent = folder / "task.json", clock, parent
        self._seen: tuple[Any, ...] = ()
        self._written = b""

    def write(self, state: State) -> None:
        """Bring the file up to date; what cannot be written is left: it is only a view."""
        if not state.staged or not state.revision:
            return
        # One event must not cost a look at every step: what the snapshot tells of changes only with these.
        seen = (
            state.stage, state.waiting, state.rest, state.round, state.retries, len(state.row), len(state.doubts),
            bool(state.round_calls), state.paused,
        )  # fmt: skip
        if seen == self._seen:
            return
        self._seen = seen
        view = task_view(state) if self._parent is None else task_view(self._parent, state)
        data = msgspec.json.format(msgspec.json.encode(view), indent=2) + b"\n"
        if data != self._written:
            with contextlib.suppress(OSError):
                write_whole(self._path, data)
                self._written = data
