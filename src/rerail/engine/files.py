"""What makes an output, and the files that a step says it produces, valid (SPEC V6, T1)."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from rerail.core.commands import FileDamage
from rerail.core.events import FileMade
from rerail.core.plan import Check, Produced
from rerail.core.schema import Schema
from rerail.core.state import State
from rerail.core.texts import tell
from rerail.core.track import Phase, Track
from rerail.workspace import OWN, Outside, digest_of, entry, inside, put_aside

NO_DRAFTS: Mapping[str, FileMade] = {}
MAX_PARSED = 64 * 1024 * 1024  # bytes of a file that is read as data


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
        faults += [str(fault) for fault in Schema(check.schema, noun="key").faults(output)[:5]]
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
        return unmet(file, yaml.safe_load(data))
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        return [tell("reason.file.not_yaml", reason=" ".join(str(error).split())[:200])]


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
            _put_in_place(folder, drafts[want.file.path])
        seen = look(want.file, folder)
        if seen.faults:
            found.append(FileDamage(want.step, want.file.path, "; ".join(seen.faults)))
        elif seen.digest != want.digest:
            found.append(FileDamage(want.step, want.file.path, tell("reason.file.changed")))
    return found


def _put_in_place(folder: Path, file: FileMade) -> None:
    """Let a draft take a file's place, with the old content copied aside first: several may try, and one is enough."""
    draft = folder / file.draft
    if not draft.resolve().is_relative_to((folder / OWN / "edit").resolve()) or not draft.is_file():
        return  # it was done before
    with contextlib.suppress(OSError, Outside):
        put_aside(folder, [file.path], f"{file.step}-edited", copy=True)
        draft.replace(entry(folder, file.path))
        draft.parent.rmdir()


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
    return "; ".join(f"{damage.path}: {damage.reason}" for damage in damages)
