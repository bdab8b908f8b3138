"""What a retry may keep of a workspace, and what has to be kept before a run starts over (SPEC T3, T4, T9)."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import shutil
from collections.abc import Collection
from pathlib import Path
from typing import Any

import msgspec

from rerail.core.commands import FileDamage
from rerail.core.events import FileMade
from rerail.core.pipeline import task_view
from rerail.core.state import State
from rerail.core.texts import tell
from rerail.core.track import Phase, Track
from rerail.engine.files import Wanted, damaged, files_of, look_at
from rerail.engine.loop import Host
from rerail.errors import Refused
from rerail.ports import Clock
from rerail.workspace import OWN, Backup, Outside, back_up, inside, put_aside, remove, stamp, write_whole


async def damage_of(host: Host, state: State) -> list[FileDamage]:
    """The files of finished steps that cannot be kept: missing, changed or not valid."""
    wanted = [item for track in state.tracks.values() if track.phase is Phase.SUCCEEDED for item in files_of(track)]
    return await _looked_at(host, state, wanted)


async def damage_above(host: Host, state: State, parent: State) -> list[FileDamage]:
    """The same for the files of its parent, if a follow-up reads any of them."""
    return await damage_of(host, parent) if state.inherited else []


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


def discard(backup: Backup) -> None:
    """Take a backup back that was made for nothing; the files themselves were not touched."""
    shutil.rmtree(backup.folder, ignore_errors=True)


async def refuse_unseen(host: Host, state: State, gate: Track, edit: Collection[str]) -> None:
    """Refuse a yes to files that are not what their steps left: nobody agrees to what would be made again unseen."""
    wanted = [item for need, _ in gate.needs for item in files_of(need)]
    wanted = [item for item in wanted if not {item.file.path, Path(item.file.path).name} & set(edit)]
    found = await _looked_at(host, state, wanted)
    if found:
        path = host.workspaces(state.home) / found[0].path
        hint = tell("hint.run.unseen", run=state.run, path=path, step=found[0].step)
        reason = "; ".join(f"{item.path}: {item.reason}" for item in found)
        raise Refused(tell("refuse.run.unseen", step=gate.id, reason=reason), "FILE_DAMAGED", hint=hint)


class Edit:
    """A file that a person gives another content, before the step that reads it may run (T2)."""

    def __init__(self, host: Host, state: State, gate: Track, name: str) -> None:
        self._host, self._folder = host, host.workspaces(state.home)
        tracks = (need for need, _ in gate.needs)
        offered = {item.file.path: item for track in tracks for item in files_of(track)}
        by_name = {Path(path).name: path for path in offered}
        found = offered.get(by_name.get(name, name))
        if found is None:
            names = ", ".join(offered) or "-"
            hint = tell("hint.run.no_such_file", run=state.run, name=next(iter(offered), "NAME"), file=name)
            message = tell("refuse.run.no_such_file", step=gate.id, name=name, files=names)
            raise Refused(message, "FILE_UNKNOWN", hint=hint)
        self.wanted = found
        self._before: bytes | None = None

    async def write(self, content: bytes) -> FileMade:
        """Check the content and put it in place; the old file goes to the archive. `Refused` leaves all as it is."""
        file, path = self.wanted.file, inside(self._folder, self.wanted.file.path)
        draft = self._folder / OWN / "edit" / secrets.token_hex(4) / path.name
        with self._host.clock.external():
            await asyncio.to_thread(write_whole, draft, content)
        try:
            seen = await asyncio.to_thread(look_at, file, draft)
            faults = [*seen.faults, *(await self._host.performer.checked(file, draft) if file.check else ())]
            if faults:
                reason = "; ".join(faults)
                raise Refused(tell("refuse.run.edit_invalid", path=file.path, reason=reason), "FILE_DAMAGED")
            self._before = path.read_bytes() if path.is_file() else None
            put_aside(self._folder, [file.path], f"{stamp(self._host.clock.now())}-{self.wanted.step}-edited")
            path.parent.mkdir(parents=True, exist_ok=True)
            draft.replace(path)
        finally:
            shutil.rmtree(draft.parent, ignore_errors=True)
        return FileMade(file.path, seen.digest, self.wanted.step)

    def undo(self) -> None:
        """The person's word was not taken: the old content is back in place."""
        if self._before is not None:
            write_whole(inside(self._folder, self.wanted.file.path), self._before)


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
