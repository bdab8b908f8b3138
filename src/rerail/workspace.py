"""A run's workspace on disk: files that stay inside, are written whole or not at all, and are put aside, never lost.

Rules of this file:
- A path is checked before it is used, links included (T1).
- Nothing is deleted here that is not kept elsewhere first: old files are moved, a backup is complete before it counts.
- What a killed process leaves half done can be left lying: nothing half done carries a name that counts.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import blake2b
from pathlib import Path, PurePath

from rerail.core.plan import RESERVED, path_fault

OWN = Path(".rerail")
ARCHIVE, BACKUP, STAGE, EDIT = OWN / "archive", OWN / "backup", OWN / "stage", OWN / "edit"
CLEARED = OWN / "cleared"  # names the backup whose originals were taken away last
CHUNK = 1 << 20
UNTOUCHED = (0, 0)  # the times of a copy that nobody has written to: who does changes them


class Outside(ValueError):
    """A path that leaves the workspace, or means something of our own in it."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.path = path


def inside(folder: Path, name: str) -> Path:
    """The path of a file of the workspace; `Outside` if it is none, wherever a link may lead."""
    if path_fault(name):
        raise Outside(name)
    base = folder.resolve()
    path = base / name
    if not path.resolve().is_relative_to(base):
        raise Outside(name)
    return path


def entry(folder: Path, name: str) -> Path:
    """The same for what is moved or kept as it is: a link is itself then, wherever it leads."""
    if path_fault(name):
        raise Outside(name)
    return within(folder, name)


def within(folder: Path, name: str) -> Path:
    """The same for what is there, whoever put it there: it may have a name that no step could declare."""
    base = folder.resolve()
    path = base / name
    if not path.parent.resolve().is_relative_to(base):
        raise Outside(name)
    return path


def make_home(folder: Path) -> None:
    """Make a run's folder, and the one that holds them all, for nobody but its owner: as the store is (T1)."""
    folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder.mkdir(mode=0o700, exist_ok=True)


def plain_name(name: str) -> str:
    """A file's name as it is compared: the same for every way to spell it."""
    return "/".join(part for part in name.replace("\\", "/").split("/") if part not in ("", "."))


def stage_for(step: str, attempt: int) -> str:
    """The name of a folder, in the workspace, that one attempt alone writes its declared files to."""
    return (STAGE / f"{_label(step)[:60]}-{attempt}-{secrets.token_hex(4)}").as_posix()


def part_of(path: Path) -> Path:
    """A name beside a file for what is not yet the whole of it; file systems count bytes, not letters."""
    short = os.fsencode(path.name)[:100].decode("utf-8", "ignore")
    return path.with_name(f".{short}.{secrets.token_hex(4)}.part")


def copy_whole(source: Path, path: Path) -> None:
    """Copy a file so that whoever looks, at any moment, sees all of it; over nothing, and if it can be done."""
    temporary = part_of(path)
    try:
        with contextlib.suppress(OSError):
            shutil.copyfile(source, temporary)
            os.utime(temporary, ns=UNTOUCHED)
            os.link(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def write_whole(path: Path, data: bytes) -> None:
    """Write a file so that whoever looks, at any moment, sees the old content or all of the new."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = part_of(path)
    try:
        with temporary.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    settle(path.parent)


def settle(folder: Path) -> None:
    """Make the names of a folder durable, where the file system can."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def digest_of(path: Path) -> tuple[str, int]:
    """The digest and the size of a file; it may be large."""
    found, size = blake2b(digest_size=16), 0
    with path.open("rb") as file:
        while chunk := file.read(CHUNK):
            found.update(chunk)
            size += len(chunk)
    return found.hexdigest(), size


def stamp(now: float) -> str:
    """A moment as part of a folder's name, in UTC, so that names sort by time."""
    return datetime.fromtimestamp(now, UTC).strftime("%Y%m%d-%H%M%S")


# -- Putting aside ------------------------------------------------------------------------------------------------


def put_aside(folder: Path, names: Iterable[str], label: str, *, copy: bool = False, leftover: str = "") -> list[str]:
    """Move a step's old files into the archive, or ``copy`` them, each under its own name; returns those there were.

    With what an attempt that did not succeed wrote to its own folder, ``leftover``, if there is any, and with whatever
    lies where one of them needs a folder.
    """
    target, moved = None, []
    names = list(names)
    for name in [*([] if copy else _in_the_way(folder, names)), *names]:
        path = entry(folder, name)
        if not os.path.lexists(path):
            continue
        if target is None:
            target = _new_folder(folder / ARCHIVE, label)
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        if copy:
            _keep(path, target / name)
        else:
            path.replace(target / name)
        moved.append(name)
    if leftover and (folder / leftover).is_dir():
        (folder / leftover).replace(_new_folder(folder / ARCHIVE, f"{label}-unfinished"))
    return moved


def _in_the_way(folder: Path, names: Iterable[str]) -> list[str]:
    """What is no folder, and lies where one is needed for a file."""
    above = dict.fromkeys(str(parent) for name in names for parent in PurePath(plain_name(name)).parents)
    return [name for name in above if os.path.lexists(folder / name) and not (folder / name).is_dir()]


def _label(text: str) -> str:
    return re.sub(r"[^\w.-]+", "_", text, flags=re.ASCII)[:100].strip(".") or "_"


def _new_folder(base: Path, label: str) -> Path:
    """A folder that was not there before, named for people to read."""
    plain = _label(label)
    for number in range(1, 10_000):
        folder = base / (plain if number == 1 else f"{plain}-{number}")
        with contextlib.suppress(FileExistsError):
            folder.mkdir(parents=True)
            return folder
    raise FileExistsError(str(base / plain))


@dataclass(frozen=True, slots=True)
class Backup:
    """What was backed up, and where."""

    folder: Path
    names: tuple[str, ...]


def would_back_up(folder: Path, names: Iterable[str] | None = None) -> list[str]:
    """The files of the workspace, or those of these that are there."""
    return [name for name in (names_in(folder) if names is None else names) if os.path.lexists(within(folder, name))]


def back_up(folder: Path, label: str, names: Iterable[str] | None = None) -> Backup | None:
    """Keep a copy of every file of the workspace, or of these; None if there is none to keep.

    The files stay where they are: they are removed once it is on record that the run starts over. Whoever is killed
    before that has lost nothing.
    """
    found = would_back_up(folder, names)
    if not found:
        return None
    base = folder / BACKUP
    # One that was never finished lies about harmlessly; that of another process, at the same time, is not ours to end.
    part = _new_folder(base, f"{label}-{secrets.token_hex(3)}.part")
    try:
        for name in found:
            (part / name).parent.mkdir(parents=True, exist_ok=True)
            _keep(within(folder, name), part / name)
        target = _new_folder(base, label)
        part.replace(target)  # onto the empty folder that reserved the name
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise
    settle(base)
    return Backup(target, tuple(found))


def _keep(source: Path, target: Path) -> None:
    """Copied, not linked: who writes into the old file later must not reach the backup."""
    if source.is_dir() and not source.is_symlink():
        shutil.copytree(source, target, symlinks=True)
    else:
        shutil.copy2(source, target, follow_symlinks=False)


def names_in(folder: Path) -> Iterator[str]:
    """The names of all files of the workspace that are not our own."""
    for place, folders, files in os.walk(folder):
        here = Path(place).relative_to(folder)
        top = here == Path()
        folders[:] = [name for name in folders if not (top and name in RESERVED)]
        links = [name for name in folders if (Path(place) / name).is_symlink()]
        for name in (*files, *links):
            path = Path(place) / name
            if not (path.is_file() or path.is_symlink()):
                continue  # a pipe or a socket holds nothing that could be kept
            if not (top and name in RESERVED) and not (name.startswith(".") and name.endswith(".part")):
                yield (here / name).as_posix()


def kept_in(folder: Path) -> Backup:
    """A backup that was made earlier."""
    return Backup(folder, tuple(names_in(folder)))


def _is_copy(one: os.stat_result, other: os.stat_result) -> bool:
    """Whether a file was not touched since it was copied: a copy keeps the time of the original."""
    return (one.st_size, one.st_mtime_ns) == (other.st_size, other.st_mtime_ns)


def remove(folder: Path, backup: Backup) -> None:
    """Take away what is kept in a backup, and nothing else; what cannot be taken away stays, and harms nobody."""
    for name in backup.names:
        with contextlib.suppress(OSError, Outside):
            path, copy = within(folder, name), backup.folder / name
            if not os.path.lexists(copy) or not _is_copy(path.lstat(), copy.lstat()):
                continue
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()
