"""Retention: the files that a retry keeps, and the backup before a run starts over (contract T3, T4, T9)."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import shutil
from collections.abc import AsyncIterator, Collection, Mapping
from pathlib import Path
from typing import Any

import msgspec

from rerail.engine.files.placement import Seen, Wanted, damaged, files_of, look, look_at, put_all_in_place, written_to
from rerail.engine.parts import EngineParts
from rerail.errors import Refused, RerailError
from rerail.i18n import about, as_text, one_by_one, tell
from rerail.kernel.events import FileMade
from rerail.kernel.retry import FileDamage
from rerail.kernel.stages import task_view
from rerail.kernel.state import State
from rerail.kernel.step_state import Phase, Track
from rerail.plan.step import Produced
from rerail.workspace import (
    CLEARED,
    EDIT,
    STAGE,
    Backup,
    Outside,
    back_up,
    kept_in,
    make_home,
    remove,
    stamp,
    would_back_up,
    write_whole,
)


async def damage_of(parts: EngineParts, state: State) -> list[FileDamage]:
    """Return the files of finished steps that cannot be kept: missing, changed or invalid."""
    wanted = [item for track in state.tracks.values() if track.phase is Phase.SUCCEEDED for item in files_of(track)]
    return await _looked_at(parts, state, wanted)


async def damage_above(parts: EngineParts, state: State, parent: State) -> list[FileDamage]:
    """Return the same for the files of its parent, if a follow-up reads any of them."""
    return await damage_of(parts, parent) if state.inherited else []


async def _looked_at(parts: EngineParts, state: State, wanted: list[Wanted]) -> list[FileDamage]:
    if not wanted:
        return []
    with parts.clock.external():
        return await asyncio.to_thread(damaged, wanted, parts.workspaces(state.home), state.drafts)


async def to_back_up(parts: EngineParts, state: State) -> tuple[str, ...]:
    """Return the files that would be backed up and removed if the run started over."""
    folder = parts.workspaces(state.home)
    with parts.clock.external():
        found = await asyncio.to_thread(would_back_up, folder, _own_files(state))
    return tuple(os.fsencode(name).decode("utf-8", "backslashreplace") for name in found)  # in printable form


def _own_files(state: State) -> list[str] | None:
    """Return the files that a run may start over with; None: all. A follow-up works in its parent's folder (T6)."""
    if state.home == state.run:
        return None
    return [file.path for track in state.tracks.values() for file in track.step.produces]


async def backed_up(parts: EngineParts, state: State) -> Backup | None:
    """Back up all files of a run that starts over; `Refused`, without a change, if that is impossible.

    A follow-up works in its parent's folder, and may start over only with its own files (T6).
    """
    folder = parts.workspaces(state.home)
    if not folder.is_dir():
        return None
    try:
        with parts.clock.external():
            label = stamp(parts.clock.now())
            await asyncio.to_thread(put_all_in_place, folder, list(state.drafts.values()))
            return await asyncio.to_thread(back_up, folder, label, _own_files(state))
    except (OSError, Outside) as error:
        hint = tell("hint.run.no_backup", folder=folder)
        raise Refused(tell("refuse.run.no_backup", reason=error), "BACKUP_FAILED", hint=hint) from error


async def cleared(parts: EngineParts, state: State) -> None:
    """Remove the backed-up files, after the new start is recorded, and before its first step starts.

    Once: files put there later are kept, even if a user restores them from the backup.
    """
    if state.uncleared:
        with parts.clock.external():
            await asyncio.to_thread(_clear, parts.workspaces(state.home), Path(state.uncleared))


def _clear(folder: Path, backup: Path) -> None:
    note = folder / CLEARED
    with contextlib.suppress(OSError):
        if note.read_text() == backup.name:
            return
    remove(folder, kept_in(backup))
    with contextlib.suppress(OSError):  # the removal runs again, and finds nothing
        write_whole(note, backup.name.encode())


def discard(backup: Backup) -> None:
    """Remove a backup that is not needed; the files themselves were not touched."""
    shutil.rmtree(backup.folder, ignore_errors=True)


async def _refuse_unseen(parts: EngineParts, state: State, gate: Track, edit: Collection[str]) -> None:
    """Refuse an approval if files differ from what their steps left: a rerun would replace them unseen."""
    wanted = [item for need, _ in gate.needs for item in files_of(need)]
    wanted = [item for item in wanted if not {item.file.path, Path(item.file.path).name} & set(edit)]
    found = await _looked_at(parts, state, wanted)
    if found:
        path = parts.workspaces(state.home) / found[0].path
        hint = tell("hint.run.unseen", run=state.run, path=path, step=found[0].step)
        reason = one_by_one(about(item.path, item.reason) for item in found)
        raise Refused(tell("refuse.run.unseen", step=gate.id, reason=reason), "FILE_DAMAGED", hint=hint)


class Edit:
    """A user's replacement of a file, before the step that reads it may run (T2)."""

    def __init__(self, parts: EngineParts, state: State, gate: Track, name: str) -> None:
        self.name, self._parts, self._folder = name, parts, parts.workspaces(state.home)
        offered = {item.file.path: item for need, _ in gate.needs for item in files_of(need)}
        named = [path for path in offered if name in (path, Path(path).name)]
        found = offered.get(name) or (offered[named[0]] if len(named) == 1 else None)
        if found is None:
            names = ", ".join(offered) or "-"
            hint = tell("hint.run.no_such_file", run=state.run, name=next(iter(offered), "NAME"), file=name)
            message = tell("refuse.run.no_such_file", step=gate.id, name=name, files=names)
            raise Refused(message, "FILE_UNKNOWN", hint=hint)
        self._wanted = found
        self._draft = EDIT / secrets.token_hex(4) / Path(found.file.path).name

    async def draft(self, content: bytes) -> FileMade:
        """Check the content and stage it for the owner; the file itself is not touched."""
        file, draft = self._wanted.file, self._folder / self._draft
        try:
            with self._parts.clock.external():
                await asyncio.to_thread(write_whole, draft, content)
                seen = await asyncio.to_thread(look_at, file, draft)
        except OSError as error:
            message = tell("refuse.run.edit_invalid", path=file.path, reason=error.strerror or error)
            raise Refused(message, "FILE_DAMAGED") from error
        faults = [*seen.faults, *(await self._parts.performer.checked(file, draft) if file.check else ())]
        if faults:
            message = tell("refuse.run.edit_invalid", path=file.path, reason=one_by_one(faults))
            raise Refused(message, "FILE_DAMAGED")
        return FileMade(file.path, seen.digest, self._wanted.step, self._draft.as_posix(), seen.size)

    def discard(self) -> None:
        """Remove the draft; the file stays as it was."""
        shutil.rmtree((self._folder / self._draft).parent, ignore_errors=True)


@contextlib.asynccontextmanager
async def drafted(
    parts: EngineParts, state: State, gate: Track, edit: Mapping[str, bytes], *, dry_run: bool = False
) -> AsyncIterator[tuple[FileMade, ...]]:
    """Stage a user's replacement files as drafts; remove them if the command fails (T2, X10)."""
    await _refuse_unseen(parts, state, gate, edit)
    edits = [Edit(parts, state, gate, name) for name in edit]
    try:
        yield () if dry_run else tuple([await one.draft(edit[one.name]) for one in edits])
    except RerailError:
        for one in edits:
            one.discard()
        raise


def _left(file: Produced, folder: Path, staged: str) -> tuple[Seen, str]:
    """A file that a step left, and the place of its content if it is not in its final place."""
    seen = look(file, folder)
    own = look(file, written_to(folder, folder / staged, file)) if seen.faults and staged else seen
    return (seen, "") if own is seen or own.faults else (own, f"{staged}/{file.path}")


def old_drafts(folder: Path, before: float) -> list[Path]:
    """Return the folders of edits and attempts begun before a time, and still present."""
    old: list[Path] = []
    for home in (folder / EDIT, folder / STAGE):
        with contextlib.suppress(OSError):
            old += [path for path in home.iterdir() if path.lstat().st_mtime < before]
    return old


def sweep(folder: Path, old: Collection[Path], named: Collection[str]) -> None:
    """Remove folders that are not recorded, and no longer can be."""
    for path in old:
        if not any(Path(draft).is_relative_to(path.relative_to(folder)) for draft in named):
            shutil.rmtree(path, ignore_errors=True)


async def left_behind(parts: EngineParts, state: State, track: Track) -> tuple[FileMade, ...]:
    """Return the files of a step that a user declares successful; `Refused` if one of them is invalid.

    The file in the workspace counts, else the one of the latest attempt with a lost answer.
    """
    folder = parts.workspaces(state.home)
    staged = track.call.staged if track.call is not None else ""
    with parts.clock.external():
        found = [await asyncio.to_thread(_left, file, folder, staged) for file in track.step.produces]
    reason = one_by_one(about(one.path, fault) for one, _ in found for fault in one.faults)
    if reason:
        raise Refused(tell("refuse.run.no_files", step=track.id, reason=reason), "FILE_DAMAGED")
    return tuple(FileMade(one.path, one.digest, track.id, draft, one.size) for one, draft in found)


class Snapshot:
    """`task.json` in the workspace of a pipeline: written when it changes, never read back (T9)."""

    def __init__(self, folder: Path, parent: State | None = None) -> None:
        self._path, self._parent = folder / "task.json", parent
        self._seen: tuple[Any, ...] = ()
        self._written = b""

    def write(self, state: State) -> None:
        """Update the file; a failed write is ignored: it is only a view."""
        if not state.staged or not state.revision:
            return
        # One event must not cost a pass over every step: the snapshot changes only with these.
        seen = (
            state.stage, state.waiting, state.rest, state.round, state.retries, len(state.row), len(state.doubts),
            bool(state.round_calls), state.paused,
        )  # fmt: skip
        if seen == self._seen:
            return
        self._seen = seen
        view = task_view(state) if self._parent is None else task_view(self._parent, state)
        data = msgspec.json.format(msgspec.json.encode(view, enc_hook=as_text), indent=2) + b"\n"
        if data != self._written:
            with contextlib.suppress(OSError):
                make_home(self._path.parent)
                write_whole(self._path, data)
                self._written = data
