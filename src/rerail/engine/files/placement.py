"""Output and file validity, and the placement of produced files (contract V6, T1)."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import shutil
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from rerail.context import excerpt
from rerail.errors import StoreError
from rerail.i18n import about, one_by_one, tell
from rerail.kernel.events import FileMade
from rerail.kernel.retry import FileDamage
from rerail.kernel.state import State
from rerail.kernel.step_state import Phase, Track
from rerail.plan.step import Check, Produced
from rerail.ports import Clock
from rerail.values.schema import Schema
from rerail.workspace import (
    EDIT,
    STAGE,
    UNTOUCHED,
    Outside,
    digest_of,
    entry,
    inside,
    names_in,
    part_of,
    plain_name,
    put_aside,
)

NO_DRAFTS: Mapping[str, FileMade] = {}
MAX_PARSED = 64 * 1024 * 1024  # bytes of a file that is parsed
MAX_NODES = 1_000_000  # values of a YAML file with aliases; each counts as often as it is referenced


def unmet(check: Check | Produced, output: Any) -> list[str]:
    """Return what a value lacks to pass a check."""
    faults: list[str] = []
    if check.non_empty and (output is None or output in ("", [], {})):
        faults.append(tell("reason.file.empty"))
    if check.keys:
        missing = [key for key in check.keys if not isinstance(output, Mapping) or key not in output]
        if missing:
            faults.append(tell("reason.file.lacks", keys=", ".join(map(repr, missing))))
    if check.schema is not None:
        try:
            faults += [fault.said for fault in Schema(check.schema, noun="key").faults(output)[:5]]
        except ValueError as unusable:  # recorded by a version that could use it
            faults.append(unusable.args[0])
    return faults


@dataclass(frozen=True, slots=True)
class Seen:
    """A file on disk: its properties, or its fault."""

    path: str
    digest: str = ""
    size: int = 0
    faults: tuple[str, ...] = ()


def look(file: Produced, folder: Path) -> Seen:
    """Read a file of the workspace and check it."""
    try:
        path = inside(folder, file.path)
        if not path.is_file():
            gone = tell("reason.file.missing", reason=os.strerror(errno.ENOENT))
            return Seen(file.path, faults=(tell("reason.file.no_file") if path.exists() else gone,))
        return look_at(file, path)
    except Outside:
        return Seen(file.path, faults=(tell("reason.file.outside"),))
    except OSError as error:
        return Seen(file.path, faults=(tell("reason.file.missing", reason=error.strerror or str(error)),))


def look_at(file: Produced, path: Path) -> Seen:
    digest, size = digest_of(path)
    return Seen(file.path, digest, size, tuple(_invalid(file, path, size)))


def _invalid(file: Produced, path: Path, size: int) -> list[str]:
    if file.kind == "text" and file.format != "text":
        return [tell("reason.file.empty")] if file.non_empty and not size else []
    if size > MAX_PARSED:
        return [tell("reason.file.too_large", limit=MAX_PARSED)]
    data = path.read_bytes()
    if file.kind == "text":
        try:
            return unmet(file, data.decode())
        except UnicodeDecodeError:
            return [tell("reason.file.not_text")]
    if file.kind == "yaml":
        return _invalid_yaml(file, data)
    try:
        return unmet(file, msgspec.json.decode(data))
    except (msgspec.DecodeError, RecursionError) as error:
        return [tell("reason.file.not_json", reason=excerpt(str(error), 200))]


def _invalid_yaml(file: Produced, data: bytes) -> list[str]:
    import yaml

    try:
        loader = yaml.SafeLoader(data)
        try:
            node = loader.get_single_node()
            if node is not None and _swells(node):
                return [tell("reason.file.aliases", limit=MAX_NODES)]
            return unmet(file, loader.construct_document(node) if node is not None else None)
        finally:
            loader.dispose()
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        return [tell("reason.file.not_yaml", reason=excerpt(" ".join(str(error).split()), 200))]


def _swells(document: Any) -> bool:
    """True if aliases expand a document far beyond its written size, or contain themselves.

    A few lines can stand for billions of values, and visiting each of them, as a schema check does, takes a
    lifetime. Nodes are counted, which aliases share: that takes as long as reading the file did.
    """
    sizes: dict[int, int] = {}
    under: set[int] = set()

    def size(node: Any) -> int:
        known = sizes.get(id(node))
        if known is not None:
            return known
        if id(node) in under:
            return MAX_NODES + 1  # it contains itself: it has no end
        under.add(id(node))
        parts = node.value if not isinstance(node.value, str) else ()
        total = 1 + sum(size(part) if not isinstance(part, tuple) else size(part[0]) + size(part[1]) for part in parts)
        under.discard(id(node))
        sizes[id(node)] = total
        return total

    whole = size(document)
    return whole > MAX_NODES and whole > len(sizes)


@dataclass(frozen=True, slots=True)
class Wanted:
    """A required file: its step ("": a step of the parent run), and its properties when it was written."""

    step: str
    file: Produced
    digest: str


def damaged(wanted: Iterable[Wanted], folder: Path, drafts: Mapping[str, FileMade] = NO_DRAFTS) -> list[FileDamage]:
    """Return the missing, changed or invalid ones of these files; reads the disk.

    A user's recorded replacement is put in its place first: the process that should have placed it may have died.
    """
    found = []
    for want in wanted:
        if want.file.path in drafts:
            with contextlib.suppress(OSError):  # the check that follows reports it
                put_in_place(folder, drafts[want.file.path])
        seen = look(want.file, folder)
        if seen.faults:
            found.append(FileDamage(want.step, want.file.path, one_by_one(seen.faults)))
        elif seen.digest != want.digest:
            found.append(FileDamage(want.step, want.file.path, tell("reason.file.changed")))
    return found


class NotPlaced(OSError):
    """A recorded content that cannot take its file's place."""


def put_in_place(folder: Path, file: FileMade) -> None:
    """Move a recorded content into its file's place; of several attempts the first one wins.

    The existing file is kept aside. The recorded digest decides: a late process may still write to the draft, and
    that content no longer counts. `NotPlaced` if only such content is left, and the file differs from the record.
    """
    draft = folder / file.draft
    homes = ((folder / home).resolve() for home in (EDIT, STAGE))
    if not os.path.lexists(draft) or not any(draft.parent.resolve().is_relative_to(home) for home in homes):
        return  # it was done before
    try:
        if draft.is_symlink() or digest_of(draft)[0] != file.digest:
            if look(Produced(file.path), folder).digest == file.digest:
                return
            raise NotPlaced(told([FileDamage(file.step, file.path, tell("reason.file.changed"))]))
        place = entry(folder, file.path)
        put_aside(folder, [file.path], f"{file.step}-replaced", copy=not place.is_dir() or place.is_symlink())
        place.parent.mkdir(parents=True, exist_ok=True)
        draft.replace(place)
        _tidy(draft.parent, folder)
    except FileNotFoundError:
        return  # another process was faster
    except Outside as error:
        raise NotPlaced(told([FileDamage(file.step, file.path, tell("reason.file.outside"))])) from error


def put_all_in_place(folder: Path, files: Iterable[FileMade], needed: Collection[str] = ()) -> None:
    """Place several files; those without a dependent step may stay where they are."""
    for file in files:
        try:
            put_in_place(folder, file)
        except OSError:
            if file.path in needed:
                raise


async def place(
    clock: Clock, state: State, folder: Path, files: Mapping[str, FileMade], *, just_made: bool = False
) -> None:
    """Place the files of a run that needs them to go on; called by its owner.

    A file does not stop the run if its step is redone, or if the run is cancelled.
    """
    if not files:
        return
    tracks = ((path, state.tracks.get(file.step)) for path, file in files.items())
    needed = {path for path, track in tracks if track is not None and track.phase is Phase.SUCCEEDED}
    needed = needed if state.stopped != "RUN_CANCELLED" else set()

    def work() -> None:
        put_all_in_place(folder, files.values(), needed)
        _bring_rest(folder, [files[path] for path in needed])
        for path in sorted(needed) if just_made else ():
            if not os.path.lexists(entry(folder, path)):
                gone = tell("reason.file.missing", reason=os.strerror(errno.ENOENT))
                raise NotPlaced(told([FileDamage(files[path].step, path, gone)]))

    try:
        with clock.external():
            await asyncio.to_thread(work)
    except (OSError, Outside) as error:
        raise StoreError(tell("refuse.run.not_in_place", run=state.run, reason=error), "FILE_NOT_PLACED") from error


def _bring_rest(folder: Path, files: Iterable[FileMade]) -> None:
    """Move undeclared files beside declared ones to the same final folder.

    A tool that writes a file beside a declared one may name it in its answer. Undeclared files have no recorded
    digest: they are moved unchecked, and a file that cannot be moved stays, without harm.
    """
    declared: dict[Path, set[str]] = {}
    for file in files:
        draft = Path(file.draft)
        if draft.is_relative_to(STAGE) and ".." not in draft.parts:
            declared.setdefault(Path(*draft.parts[: len(STAGE.parts) + 1]), set()).add(plain_name(file.path))
    for own, names in declared.items():
        for name in [name for name in names_in(folder / own) if plain_name(name) not in names]:
            with contextlib.suppress(OSError, Outside):
                place = entry(folder, name)
                put_aside(folder, [name], f"{own.name}-replaced", copy=not place.is_dir() or place.is_symlink())
                place.parent.mkdir(parents=True, exist_ok=True)
                (folder / own / name).replace(place)
                _tidy((folder / own / name).parent, folder)


def _tidy(emptied: Path, folder: Path) -> None:
    """Remove folders that were made for one file."""
    with contextlib.suppress(OSError):
        while emptied.parent not in (folder / EDIT, folder / STAGE):
            emptied.rmdir()
            emptied = emptied.parent
        emptied.rmdir()


def written_to(folder: Path, staging: Path | None, file: Produced) -> Path:
    """Return the folder where an attempt left a file: its own, or the workspace, for tools that ignore theirs."""
    if staging is None or not os.path.lexists(staging / file.path):
        return folder
    with contextlib.suppress(Outside, OSError):  # the check that follows reports it
        own = entry(staging, file.path)
        if own.is_symlink():
            _unlinked(folder, own, entry(folder, file.path))
        elif own.lstat().st_mtime_ns == UNTOUCHED[1] and os.path.lexists(entry(folder, file.path)):
            own.unlink()  # a copy that was only read: the tool wrote its original
            return folder
    return staging


def _unlinked(folder: Path, own: Path, place: Path) -> None:
    """Replace a link by its target, in the attempt's own folder.

    The link has another meaning at its final place, and its target may be changed by other processes. A link out of
    the workspace stays a link, and is refused.
    """
    target = own.readlink()
    homes = [home / target for home in (own.parent, place.parent)]
    found = next((path.resolve() for path in homes if path.is_file()), None)
    if found is not None and found.is_relative_to(folder.resolve()):
        whole = part_of(own)
        try:
            shutil.copyfile(found, whole)
            whole.replace(own)
        finally:
            whole.unlink(missing_ok=True)


def declared(produces: Iterable[Produced]) -> tuple[str, ...]:
    """Return the normalized names of the files that a step should leave."""
    return tuple(plain_name(file.path) for file in produces)


def files_read(state: State, track: Track) -> list[Wanted]:
    """Return the files that a step requires: those of its needs, and the final ones of its run's parent."""
    wanted = [Wanted("", Produced(file.path), file.digest) for file in state.inherited]
    for need, _ in track.needs:
        if need.result is not None and need.result.files and need.phase is Phase.SUCCEEDED:
            wanted += files_of(need)
    return wanted


def files_of(track: Track) -> list[Wanted]:
    """Return the files that a step left, with their validity checks."""
    declared = {file.path: file for file in track.step.produces}
    made = track.result.files if track.result is not None else {}
    return [Wanted(track.id, declared.get(path, Produced(path)), digest) for path, digest in made.items()]


def told(damages: Sequence[FileDamage]) -> str:
    """Describe the faults of some files, in one line."""
    return one_by_one(about(damage.path, damage.reason) for damage in damages)
