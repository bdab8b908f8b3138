"""A run's workspace on disk: contained paths, atomic writes, archive and backup.

Rules of this file:
- A path is checked before it is used, links included (T1).
- Nothing is deleted that is not kept elsewhere first: old files are moved, a backup is complete before it counts.
- Partial files of a killed process may stay: nothing incomplete has a name that counts.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shutil
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import blake2b
from pathlib import Path, PurePath

from rerail.i18n import tell
from rerail.plan.step import RESERVED, path_fault

OWN = Path(".rerail")
ARCHIVE, BACKUP, STAGE, EDIT = OWN / "archive", OWN / "backup", OWN / "stage", OWN / "edit"
CLEARED = OWN / "cleared"  # names the backup of the files removed last
CHUNK = 1 << 20
UNTOUCHED = (0, 0)  # the times of an untouched copy: any write changes them


class Outside(ValueError):
    """A path that leaves the workspace, or is reserved in it."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.path = path


def inside(folder: Path, name: str) -> Path:
    """Return the path of a file of the workspace; `Outside` if it is none, links followed."""
    if path_fault(name):
        raise Outside(name)
    base = folder.resolve()
    path = base / name
    if not path.resolve().is_relative_to(base):
        raise Outside(name)
    return path


def entry(folder: Path, name: str) -> Path:
    """Return the path of an entry to move or keep as it is: a link is not followed."""
    if path_fault(name):
        raise Outside(name)
    return within(folder, name)


def within(folder: Path, name: str) -> Path:
    """Return the path of an existing entry from any source: its name may be one that no step could declare."""
    base = folder.resolve()
    path = base / name
    if not path.parent.resolve().is_relative_to(base):
        raise Outside(name)
    return path


def make_home(folder: Path) -> None:
    """Make a run's folder and its parent, readable by their owner alone, as the store is (T1)."""
    for place in (folder.parent, folder):
        make_private(place)


def make_private(folder: Path) -> None:
    """Make a folder that only its owner can enter, whatever the umask.

    In a place where others can write (a temporary directory), one that is there already must be this user's: another
    user could have made it first, to read what is put into it. `NotOurs` says what is wrong with it.
    """
    if not folder.parent.is_dir():
        make_private(folder.parent)
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
        return
    if not hasattr(os, "getuid") or not folder.parent.stat().st_mode & stat.S_IWOTH:
        return
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode):
        raise NotOurs(tell("reason.folder.no_folder", path=folder))
    if found.st_uid != os.getuid():
        raise NotOurs(tell("reason.folder.foreign", path=folder, owner=found.st_uid))
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise NotOurs(tell("reason.folder.open", path=folder))


class NotOurs(OSError):
    """A folder in a public place that another user could read or change."""


def plain_name(name: str) -> str:
    """Return a file's normalized name: the same for every spelling."""
    return "/".join(part for part in name.replace("\\", "/").split("/") if part not in ("", "."))


def stage_for(step: str, attempt: int) -> str:
    """Return the name of the folder, in the workspace, for one attempt's own declared files."""
    return (STAGE / f"{_label(step)[:60]}-{attempt}-{secrets.token_hex(4)}").as_posix()


def part_of(path: Path) -> Path:
    """Return a name beside a file for its partial content; file systems count bytes, not letters."""
    short = os.fsencode(path.name)[:100].decode("utf-8", "ignore")
    return path.with_name(f".{short}.{secrets.token_hex(4)}.part")


def copy_whole(source: Path, path: Path) -> None:
    """Copy a file atomically, over nothing, if it is possible: a reader sees all of it or none."""
    temporary = part_of(path)
    try:
        with contextlib.suppress(OSError):
            shutil.copyfile(source, temporary)
            os.utime(temporary, ns=UNTOUCHED)
            os.link(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def write_whole(path: Path, data: bytes) -> None:
    """Write a file atomically: a reader sees the old content or all of the new."""
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
    """Make the names of a folder durable, where the file system supports it."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def digest_of(path: Path) -> tuple[str, int]:
    """Return the digest and the size of a file; it may be large."""
    found, size = blake2b(digest_size=16), 0
    with path.open("rb") as file:
        while chunk := file.read(CHUNK):
            found.update(chunk)
            size += len(chunk)
    return found.hexdigest(), size


def stamp(now: float) -> str:
    """Return a time as part of a folder's name, in UTC, so that names sort by time."""
    return datetime.fromtimestamp(now, UTC).strftime("%Y%m%d-%H%M%S")


# -- Putting aside ------------------------------------------------------------------------------------------------


def put_aside(folder: Path, names: Iterable[str], label: str, *, copy: bool = False, leftover: str = "") -> list[str]:
    """Move a step's old files into the archive, or ``copy`` them, each under its own name; return the existing ones.

    The archive also gets the folder of a failed attempt, ``leftover``, if there is one, and every entry in the
    place of a folder that a file needs.
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
    """Return the entry that is no folder, in the place of a folder that a file needs."""
    above = dict.fromkeys(str(parent) for name in names for parent in PurePath(plain_name(name)).parents)
    return [name for name in above if os.path.lexists(folder / name) and not (folder / name).is_dir()]


def _label(text: str) -> str:
    return re.sub(r"[^\w.-]+", "_", text, flags=re.ASCII)[:100].strip(".") or "_"


def _new_folder(base: Path, label: str) -> Path:
    """Return a new folder with a readable name."""
    plain = _label(label)
    for number in range(1, 10_000):
        folder = base / (plain if number == 1 else f"{plain}-{number}")
        with contextlib.suppress(FileExistsError):
            folder.mkdir(parents=True)
            return folder
    raise FileExistsError(str(base / plain))


@dataclass(frozen=True, slots=True)
class Backup:
    """A backup: its files and its place."""

    folder: Path
    names: tuple[str, ...]


def would_back_up(folder: Path, names: Iterable[str] | None = None) -> list[str]:
    """Return the files of the workspace, or the existing ones among these."""
    return [name for name in (names_in(folder) if names is None else names) if os.path.lexists(within(folder, name))]


def back_up(folder: Path, label: str, names: Iterable[str] | None = None) -> Backup | None:
    """Copy every file of the workspace, or these, to a backup; None if there is none to keep.

    The files stay in place: they are removed once the new start of the run is recorded. A process killed
    before that has lost nothing.
    """
    found = would_back_up(folder, names)
    if not found:
        return None
    base = folder / BACKUP
    # An unfinished backup is harmless; one of another process, at the same time, must not be removed.
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
    """Copy a file, without links: a later write to the old file must not reach the backup."""
    if source.is_dir() and not source.is_symlink():
        shutil.copytree(source, target, symlinks=True)
    else:
        shutil.copy2(source, target, follow_symlinks=False)


def names_in(folder: Path) -> Iterator[str]:
    """Return the names of all files of the workspace, without Rerail's own."""
    for place, folders, files in os.walk(folder):
        here = Path(place).relative_to(folder)
        top = here == Path()
        folders[:] = [name for name in folders if not (top and name in RESERVED)]
        links = [name for name in folders if (Path(place) / name).is_symlink()]
        for name in (*files, *links):
            path = Path(place) / name
            if not (path.is_file() or path.is_symlink()):
                continue  # a pipe or a socket has no content to keep
            if not (top and name in RESERVED) and not (name.startswith(".") and name.endswith(".part")):
                yield (here / name).as_posix()


def kept_in(folder: Path) -> Backup:
    """Return a backup that was made earlier."""
    return Backup(folder, tuple(names_in(folder)))


def _is_copy(one: os.stat_result, other: os.stat_result) -> bool:
    """True if a file is untouched since its copy: a copy keeps the time of the original."""
    return (one.st_size, one.st_mtime_ns) == (other.st_size, other.st_mtime_ns)


def remove(folder: Path, backup: Backup) -> None:
    """Remove files that are kept in a backup, and no others; a file that cannot be removed stays, and does no harm."""
    for name in backup.names:
        with contextlib.suppress(OSError, Outside):
            path, copy = within(folder, name), backup.folder / name
            if not os.path.lexists(copy) or not _is_copy(path.lstat(), copy.lstat()):
                continue
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()
