"""What a retry may keep of a workspace, and what has to be kept before a run starts over (SPEC T3, T4, T9)."""

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

from rerail.core.commands import FileDamage
from rerail.core.events import FileMade
from rerail.core.pipeline import task_view
from rerail.core.plan import Produced
from rerail.core.state import State
from rerail.core.track import Phase, Track
from rerail.engine.files import Seen, Wanted, damaged, files_of, look, look_at, put_all_in_place, written_to
from rerail.engine.loop import Host
from rerail.errors import Refused, RerailError
from rerail.i18n import about, as_text, one_by_one, tell
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
        return await asyncio.to_thread(damaged, wanted, host.workspaces(state.home), state.drafts)


async def to_back_up(host: Host, state: State) -> tuple[str, ...]:
    """The files that would be backed up, and taken away, if the run started over."""
    folder = host.workspaces(state.home)
    with host.clock.external():
        found = await asyncio.to_thread(would_back_up, folder, _own_files(state))
    return tuple(os.fsencode(name).decode("utf-8", "backslashreplace") for name in found)  # as it can be shown


def _own_files(state: State) -> list[str] | None:
    """The files that a run may start over with; None: all. A follow-up works in its parent's folder (T6)."""
    if state.home == state.run:
        return None
    return [file.path for track in state.tracks.values() for file in track.step.produces]


async def backed_up(host: Host, state: State) -> Backup | None:
    """Keep all files of a run that starts over; `Refused`, and nothing has changed, if that cannot be done.

    A follow-up works in its parent's folder, and only what it made itself is its own to start over (T6).
    """
    folder = host.workspaces(state.home)
    if not folder.is_dir():
        return None
    try:
        with host.clock.external():
            label = stamp(host.clock.now())
            await asyncio.to_thread(put_all_in_place, folder, list(state.drafts.values()))
            return await asyncio.to_thread(back_up, folder, label, _own_files(state))
    except (OSError, Outside) as error:
        hint = tell("hint.run.no_backup", folder=folder)
        raise Refused(tell("refuse.run.no_backup", reason=error), "BACKUP_FAILED", hint=hint) from error


async def cleared(host: Host, state: State) -> None:
    """Take away what was backed up, once it is on record that the run starts over, and before its first step does.

    Once: what is put there later is wanted, even if somebody brings it back from the backup.
    """
    if state.uncleared:
        with host.clock.external():
            await asyncio.to_thread(_clear, host.workspaces(state.home), Path(state.uncleared))


def _clear(folder: Path, backup: Path) -> None:
    note = folder / CLEARED
    with contextlib.suppress(OSError):
        if note.read_text() == backup.name:
            return
    remove(folder, kept_in(backup))
    with contextlib.suppress(OSError):  # then it is done again, and finds nothing
        write_whole(note, backup.name.encode())


def discard(backup: Backup) -> None:
    """Take a backup back that was made for nothing; the files themselves were not touched."""
    shutil.rmtree(backup.folder, ignore_errors=True)


async def _refuse_unseen(host: Host, state: State, gate: Track, edit: Collection[str]) -> None:
    """Refuse a yes to files that are not what their steps left: nobody agrees to what would be made again unseen."""
    wanted = [item for need, _ in gate.needs for item in files_of(need)]
    wanted = [item for item in wanted if not {item.file.path, Path(item.file.path).name} & set(edit)]
    found = await _looked_at(host, state, wanted)
    if found:
        path = host.workspaces(state.home) / found[0].path
        hint = tell("hint.run.unseen", run=state.run, path=path, step=found[0].step)
        reason = one_by_one(about(item.path, item.reason) for item in found)
        raise Refused(tell("refuse.run.unseen", step=gate.id, reason=reason), "FILE_DAMAGED", hint=hint)


class Edit:
    """A file that a person gives another content, before the step that reads it may run (T2)."""

    def __init__(self, host: Host, state: State, gate: Track, name: str) -> None:
        self.name, self._host, self._folder = name, host, host.workspaces(state.home)
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
        """Check the content and leave it where the owner finds it; the file itself is not touched."""
        file, draft = self._wanted.file, self._folder / self._draft
        try:
            with self._host.clock.external():
                await asyncio.to_thread(write_whole, draft, content)
                seen = await asyncio.to_thread(look_at, file, draft)
        except OSError as error:
            message = tell("refuse.run.edit_invalid", path=file.path, reason=error.strerror or error)
            raise Refused(message, "FILE_DAMAGED") from error
        faults = [*seen.faults, *(await self._host.performer.checked(file, draft) if file.check else ())]
        if faults:
            message = tell("refuse.run.edit_invalid", path=file.path, reason=one_by_one(faults))
            raise Refused(message, "FILE_DAMAGED")
        return FileMade(file.path, seen.digest, self._wanted.step, self._draft.as_posix(), seen.size)

    def discard(self) -> None:
        """Nobody agreed: the draft goes, and the file is what it was."""
        shutil.rmtree((self._folder / self._draft).parent, ignore_errors=True)


@contextlib.asynccontextmanager
async def drafted(
    host: Host, state: State, gate: Track, edit: Mapping[str, bytes], *, dry_run: bool = False
) -> AsyncIterator[tuple[FileMade, ...]]:
    """The files that a person gives another content, as drafts; they go if what is done with them fails (T2, X10)."""
    await _refuse_unseen(host, state, gate, edit)
    edits = [Edit(host, state, gate, name) for name in edit]
    try:
        yield () if dry_run else tuple([await one.draft(edit[one.name]) for one in edits])
    except RerailError:
        for one in edits:
            one.discard()
        raise


def _left(file: Produced, folder: Path, staged: str) -> tuple[Seen, str]:
    """A file that a step left, and where its content lies if that is not its place."""
    seen = look(file, folder)
    own = look(file, written_to(folder, folder / staged, file)) if seen.faults and staged else seen
    return (seen, "") if own is seen or own.faults else (own, f"{staged}/{file.path}")


def old_drafts(folder: Path, before: float) -> list[Path]:
    """The folders of edits and attempts that were begun before a moment, and are still there."""
    old: list[Path] = []
    for home in (folder / EDIT, folder / STAGE):
        with contextlib.suppress(OSError):
            old += [path for path in home.iterdir() if path.lstat().st_mtime < before]
    return old


def sweep(folder: Path, old: Collection[Path], named: Collection[str]) -> None:
    """Take away what nobody put on record, and nobody can any more."""
    for path in old:
        if not any(Path(draft).is_relative_to(path.relative_to(folder)) for draft in named):
            shutil.rmtree(path, ignore_errors=True)


async def left_behind(host: Host, state: State, track: Track) -> tuple[FileMade, ...]:
    """The files of a step that a person declares to have succeeded; `Refused` if one of them does not do.

    What lies in the workspace counts, else what the latest attempt wrote, whose answer was lost.
    """
    folder = host.workspaces(state.home)
    staged = track.call.staged if track.call is not None else ""
    with host.clock.external():
        found = [await asyncio.to_thread(_left, file, folder, staged) for file in track.step.produces]
    reason = one_by_one(about(one.path, fault) for one, _ in found for fault in one.faults)
    if reason:
        raise Refused(tell("refuse.run.no_files", step=track.id, reason=reason), "FILE_DAMAGED")
    return tuple(FileMade(one.path, one.digest, track.id, draft, one.size) for one, draft in found)


class Snapshot:
    """`task.json` in the workspace of a pipeline: written when it would read differently, never read back (T9)."""

    def __init__(self, folder: Path, parent: State | None = None) -> None:
        self._path, self._parent = folder / "task.json", parent
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
        data = msgspec.json.format(msgspec.json.encode(view, enc_hook=as_text), indent=2) + b"\n"
        if data != self._written:
            with contextlib.suppress(OSError):
                make_home(self._path.parent)
                write_whole(self._path, data)
                self._written = data
