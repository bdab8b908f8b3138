"""What makes an output, and the files that a step says it produces, valid (SPEC V6, T1)."""

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

from rerail.core.commands import FileDamage
from rerail.core.events import FileMade
from rerail.core.plan import Check, Produced
from rerail.core.schema import Schema
from rerail.core.state import State
from rerail.core.track import Phase, Track
from rerail.errors import StoreError
from rerail.i18n import about, one_by_one, tell
from rerail.ports import Clock
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
MAX_PARSED = 64 * 1024 * 1024  # bytes of a file that is read as data
MAX_NODES = 1_000_000  # values of a YAML file that has aliases, each counted as often as it is named


def unmet(check: Check | Produced, output: Any) -> list[str]:
    """What a value lacks to meet a check."""
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
    """A file as it was found: what it is, or what is wrong with it."""

    path: str
    digest: str = ""
    size: int = 0
    faults: tuple[str, ...] = ()


def look(file: Produced, folder: Path) -> Seen:
    """A file of the workspace, checked against what makes it valid; reads the disk."""
    try:
        path = inside(folder, file.path)
        if not path.is_file():
            gone = not path.exists()
            fault = (
                tell("reason.file.missing", reason=os.strerror(errno.ENOENT)) if gone else tell("reason.file.no_file")
            )
            return Seen(file.path, faults=(fault,))
        return look_at(file, path)
    except Outside:
        return Seen(file.path, faults=(tell("reason.file.outside"),))
    except OSError as error:
        return Seen(file.path, faults=(tell("reason.file.missing", reason=error.strerror or str(error)),))


def look_at(file: Produced, path: Path) -> Seen:
    """The same for a file that lies anywhere."""
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
        return [tell("reason.file.not_json", reason=str(error)[:200])]


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
        return [tell("reason.file.not_yaml", reason=" ".join(str(error).split())[:200])]


def _swells(document: Any) -> bool:
    """Whether aliases make a document far larger than it was written, or contain themselves.

    A few lines can stand for billions of values, and whoever looks at each of them, as a schema does, is not done in a
    lifetime. Counted on the nodes, which aliases share: that takes as long as reading the file did.
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
    """A file that somebody relies on: whose it is ("": a step's of the parent), and what it was when it was written."""

    step: str
    file: Produced
    digest: str


def damaged(wanted: Iterable[Wanted], folder: Path, drafts: Mapping[str, FileMade] = NO_DRAFTS) -> list[FileDamage]:
    """Which of these files are missing, changed or not valid; reads the disk.

    What a person gave instead is put in its place first: it is on record, and whoever was to do it may have died.
    """
    found = []
    for want in wanted:
        if want.file.path in drafts:
            with contextlib.suppress(OSError):  # the look that follows tells
                put_in_place(folder, drafts[want.file.path])
        seen = look(want.file, folder)
        if seen.faults:
            found.append(FileDamage(want.step, want.file.path, one_by_one(seen.faults)))
        elif seen.digest != want.digest:
            found.append(FileDamage(want.step, want.file.path, tell("reason.file.changed")))
    return found


class NotPlaced(OSError):
    """A content that is on record and cannot take its file's place."""


def put_in_place(folder: Path, file: FileMade) -> None:
    """Let a content that is on record take its file's place: several may try, and whoever moves it first has done it.

    What lies there is kept aside. The digest on record decides: what somebody woken later writes to where the content
    lay is nobody's any more. `NotPlaced` if that is all there is, and the file is not what was put on record.
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
        return  # somebody was faster
    except Outside as error:
        raise NotPlaced(told([FileDamage(file.step, file.path, tell("reason.file.outside"))])) from error


def put_all_in_place(folder: Path, files: Iterable[FileMade], needed: Collection[str] = ()) -> None:
    """The same for several files; those that nobody goes on with may stay where they are."""
    for file in files:
        try:
            put_in_place(folder, file)
        except OSError:
            if file.path in needed:
                raise


async def place(
    clock: Clock, state: State, folder: Path, files: Mapping[str, FileMade], *, just_made: bool = False
) -> None:
    """The same for a run that goes on only once they are where everybody finds them; its owner calls this.

    A file whose step is done again, or whose run is cancelled, keeps nobody from going on.
    """
    if not files:
        return
    needed = {path for path, file in files.items() if _goes_on_with(state, file)}

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
    """Bring what attempts left beside the files that they declared to where it was meant to be, too.

    A tool that names a file after a declared one, in the same folder, says so in its answer. What nobody declared has
    no digest on record: it is moved as it is, and what cannot be moved stays, and harms nobody.
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


def _goes_on_with(state: State, file: FileMade) -> bool:
    track = state.tracks.get(file.step)
    return track is not None and track.phase is Phase.SUCCEEDED and state.stopped != "RUN_CANCELLED"


def _tidy(emptied: Path, folder: Path) -> None:
    """Take folders away that were made for one file."""
    with contextlib.suppress(OSError):
        while emptied.parent not in (folder / EDIT, folder / STAGE):
            emptied.rmdir()
            emptied = emptied.parent
        emptied.rmdir()


def written_to(folder: Path, staging: Path | None, file: Produced) -> Path:
    """The folder where an attempt left a file: its own, or the workspace, for tools that go their own ways."""
    if staging is None or not os.path.lexists(staging / file.path):
        return folder
    with contextlib.suppress(Outside, OSError):  # the look that follows tells
        own = entry(staging, file.path)
        if own.is_symlink():
            _unlinked(folder, own, entry(folder, file.path))
        elif own.lstat().st_mtime_ns == UNTOUCHED[1] and os.path.lexists(entry(folder, file.path)):
            own.unlink()  # a copy that was only read: what it was made from is what the tool wrote
            return folder
    return staging


def _unlinked(folder: Path, own: Path, place: Path) -> None:
    """Let the content that a link leads to take the link's place, in the attempt's own folder.

    It means another thing here than where it is to be; and what it leads to may be changed by anybody. One that leads
    out of the workspace stays what it is, and is refused.
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
    """The names of the files that a step is to leave, as they are compared."""
    return tuple(plain_name(file.path) for file in produces)


def files_read(state: State, track: Track) -> list[Wanted]:
    """The files that a step relies on: those of the steps it needs, and what its run's parent ended with."""
    wanted = [Wanted("", Produced(file.path), file.digest) for file in state.inherited]
    for need, _ in track.needs:
        if need.result is not None and need.result.files and need.phase is Phase.SUCCEEDED:
            wanted += files_of(need)
    return wanted


def files_of(track: Track) -> list[Wanted]:
    """The files that a step left behind, with what makes them valid."""
    declared = {file.path: file for file in track.step.produces}
    made = track.result.files if track.result is not None else {}
    return [Wanted(track.id, declared.get(path, Produced(path)), digest) for path, digest in made.items()]


def told(damages: Sequence[FileDamage]) -> str:
    """What is wrong with some files, in one line."""
    return one_by_one(about(damage.path, damage.reason) for damage in damages)
