"""A run's workspace: paths stay inside, files are written whole, old ones are put aside, never lost (T1, T3, T4)."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import rerail
from rerail import workspace
from rerail.context import Context
from rerail.testing import VirtualClock, virtual_run
from rerail.workspace import Outside, back_up, digest_of, inside, kept_in, put_aside, remove, stamp, write_whole

# -- Paths --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    ["", ".", "..", "../x", "a/../../x", "/etc/passwd", "a/", "a/..", "C:/x", "..\\x", "a\x00b", "a\nb", "task.json",
     "worker.log", ".rerail/archive/x", "./task.json", "TASK.JSON"],
)  # fmt: skip
def test_paths_that_leave_the_workspace_are_refused(tmp_path: Path, name: str) -> None:
    """T1: nothing outside, and nothing of our own."""
    with pytest.raises(Outside):
        inside(tmp_path, name)


@pytest.mark.parametrize(
    "name", ["a.json", "a/b/c.txt", "ünï/文件.json", "a b.txt", "..a", "a..b", "./a", "x/task.json"]
)
def test_paths_inside_are_fine(tmp_path: Path, name: str) -> None:
    """T1: any name that stays inside."""
    assert inside(tmp_path, name).is_relative_to(tmp_path)


def test_links_are_followed_before_they_are_trusted(tmp_path: Path) -> None:
    """T1: symlinks included, of files and of folders."""
    (tmp_path / "outside").mkdir()
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "way").symlink_to(tmp_path / "outside")
    (folder / "file").symlink_to("/etc/hosts")
    (folder / "near").symlink_to("other")
    for name in ("way/x", "file"):
        with pytest.raises(Outside):
            inside(folder, name)
    assert inside(folder, "near").name == "near"


def test_a_tool_that_asks_for_a_file_outside_fails_for_good() -> None:
    """T1, M3: the step fails, says why, and is not tried again."""

    @rerail.tool
    async def write(ctx: Context) -> None:
        ctx.write_text("../evil.txt", "x")

    async def main() -> rerail.RunResult:
        async with rerail.Engine("memory://", [write], clock=VirtualClock()) as engine:
            return await engine.run({"steps": [{"id": "a", "tool": "write"}]})

    row = virtual_run(main).steps["a"]
    assert row.error is not None
    assert (row.error["code"], row.attempts) == ("FILE_OUTSIDE", 1)
    assert "'../evil.txt' leaves the run's workspace" in row.error["message"]


# -- Writing ------------------------------------------------------------------------------------------------------


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """T1: a full disk in the middle leaves the old content, and nothing beside it."""
    path = tmp_path / "a" / "x.json"
    write_whole(path, b"old")

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        write_whole(path, b"new")
    assert path.read_bytes() == b"old"
    assert [one.name for one in path.parent.iterdir()] == ["x.json"]


def test_what_a_context_writes_can_be_read(tmp_path: Path) -> None:
    """M3, T1: JSON as people read it, text, bytes; no NaN slips in."""
    ctx = Context(workspace=tmp_path)
    assert ctx.write_json("a/b.json", {"ä": [1]}) == tmp_path / "a" / "b.json"
    assert (tmp_path / "a" / "b.json").read_text("utf-8") == '{\n  "ä": [\n    1\n  ]\n}\n'
    assert ctx.read_json("a/b.json") == {"ä": [1]}
    ctx.write_text("c.txt", "é")
    assert (tmp_path / "c.txt").read_bytes() == "é".encode()
    with pytest.raises(ValueError, match="JSON"):
        ctx.write_json("d.json", float("nan"))
    assert not (tmp_path / "d.json").exists()


# -- Putting aside ------------------------------------------------------------------------------------------------


def test_old_files_are_moved_each_under_its_own_name(tmp_path: Path) -> None:
    """T3: what is there is moved, what is not is no trouble, and two with one label do not meet."""
    write_whole(tmp_path / "a.json", b"1")
    write_whole(tmp_path / "d" / "b.json", b"2")
    assert put_aside(tmp_path, ["a.json", "d/b.json", "c.json"], "x y/z") == ["a.json", "d/b.json"]
    folder = tmp_path / ".rerail" / "archive"
    assert (folder / "x_y_z" / "a.json").read_bytes() == b"1"
    assert (folder / "x_y_z" / "d" / "b.json").read_bytes() == b"2"
    write_whole(tmp_path / "a.json", b"3")
    put_aside(tmp_path, ["a.json"], "x y/z")
    assert (folder / "x_y_z-2" / "a.json").read_bytes() == b"3"
    assert (folder / "x_y_z" / "a.json").read_bytes() == b"1"


def test_a_backup_holds_everything_but_what_is_ours(tmp_path: Path) -> None:
    """T4: a second name for every file; taking the first away leaves it, and writing anew does not reach it."""
    for name in ("a.json", "d/b.json", "task.json", "worker.log", ".rerail/archive/x/a.json"):
        write_whole(tmp_path / name, name.encode())
    (tmp_path / "link").symlink_to("a.json")
    backup = back_up(tmp_path, "now")
    assert backup is not None
    assert sorted(backup.names) == ["a.json", "d/b.json", "link"]
    assert (tmp_path / "a.json").exists()
    remove(tmp_path, backup)
    assert not (tmp_path / "a.json").exists()
    write_whole(tmp_path / "a.json", b"new")
    assert (backup.folder / "a.json").read_bytes() == b"a.json"
    assert back_up(tmp_path / "d", "now") is None


def test_a_backup_folder_that_exists_is_left_alone(tmp_path: Path) -> None:
    """T4: another one is made beside it; one that is half done may be another process's, at this moment."""
    write_whole(tmp_path / "a.json", b"1")
    (tmp_path / ".rerail" / "backup" / "now").mkdir(parents=True)
    (tmp_path / ".rerail" / "backup" / "then.part").mkdir()
    (tmp_path / ".rerail" / "backup" / "then.part" / "b.json").write_text("2")
    backup = back_up(tmp_path, "now")
    assert backup is not None
    assert backup.folder.name == "now-2"
    assert not list((tmp_path / ".rerail" / "backup" / "now").iterdir())
    assert sorted(path.name for path in (tmp_path / ".rerail" / "backup").iterdir()) == ["now", "now-2", "then.part"]
    assert (tmp_path / ".rerail" / "backup" / "then.part" / "b.json").exists()


def test_two_backups_at_once_are_both_whole(tmp_path: Path) -> None:
    """T4: neither takes anything from the other."""
    for number in range(300):
        write_whole(tmp_path / f"{number}.txt", str(number).encode()) if number < 3 else (
            tmp_path / f"{number}.txt"
        ).write_text(str(number))
    with ThreadPoolExecutor(4) as pool:
        backups = list(pool.map(lambda label: back_up(tmp_path, label), ["x"] * 4))
    assert len({backup.folder for backup in backups if backup is not None}) == 4
    for backup in backups:
        assert backup is not None
        assert len(list(backup.folder.iterdir())) == 300


def test_what_is_not_in_the_backup_is_not_taken_away(tmp_path: Path) -> None:
    """T4: a file that grew meanwhile, or was never kept, stays."""
    write_whole(tmp_path / "a", b"1")
    write_whole(tmp_path / "b", b"2")
    write_whole(tmp_path / "c", b"3")
    backup = back_up(tmp_path, "now")
    assert backup is not None
    (backup.folder / "a").unlink()
    write_whole(tmp_path / "b", b"22")
    remove(tmp_path, backup)
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_file()) == ["a", "b"]
    assert sorted(kept_in(backup.folder).names) == ["b", "c"]


def test_what_was_changed_since_is_not_taken_away(tmp_path: Path) -> None:
    """T4: also if it is as long as before; a pipe is no file to keep, and no trouble."""
    write_whole(tmp_path / "a", b"1")
    os.mkfifo(tmp_path / "pipe")
    backup = back_up(tmp_path, "now")
    assert backup is not None
    assert backup.names == ("a",)
    os.utime(tmp_path / "a", ns=(1, 1))
    remove(tmp_path, backup)
    assert (tmp_path / "a").exists()


def test_writing_into_an_old_file_does_not_reach_the_backup(tmp_path: Path) -> None:
    """T4: also if nobody came to take it away."""
    write_whole(tmp_path / "cache.db", b"1")
    backup = back_up(tmp_path, "now")
    assert backup is not None
    with (tmp_path / "cache.db").open("ab") as file:
        file.write(b"2")
    assert (backup.folder / "cache.db").read_bytes() == b"1"


def test_links_to_outside_can_be_put_aside_and_backed_up(tmp_path: Path) -> None:
    """T1, T4: as links; where they lead is nobody's business then, and a dangling one is no trouble."""
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "python").symlink_to("/usr/bin/env")
    (folder / "gone").symlink_to("/nowhere")
    backup = back_up(folder, "now")
    assert backup is not None
    assert (backup.folder / "gone").is_symlink()
    assert put_aside(folder, ["python", "gone"], "x") == ["python", "gone"]
    assert Path("/usr/bin/env").exists()


def failing(number: int, words: str) -> Callable[..., None]:
    """What a system call does when it cannot."""

    def fail(*_: Any, **__: Any) -> None:
        raise OSError(number, words)

    return fail


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EACCES])
def test_a_backup_that_cannot_be_made_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """T4: a full disk, a file that cannot be read: the error comes out, and the folder is as it was."""
    write_whole(tmp_path / "a.json", b"1")
    monkeypatch.setattr(workspace.shutil, "copy2", failing(number, "cannot"))
    with pytest.raises(OSError, match="cannot"):
        back_up(tmp_path, "now")
    assert (tmp_path / "a.json").read_bytes() == b"1"
    assert not list((tmp_path / ".rerail" / "backup").iterdir())


def test_names_of_folders_sort_by_time() -> None:
    """T4: and say it in UTC."""
    assert stamp(0) == "19700101-000000"
    assert stamp(1e9) < stamp(2e9)


def test_the_digest_is_of_the_content(tmp_path: Path) -> None:
    """T1: however large."""
    write_whole(tmp_path / "a", b"x" * 3_000_000)
    write_whole(tmp_path / "b", b"x" * 2_999_999 + b"y")
    assert digest_of(tmp_path / "a")[1] == 3_000_000
    assert digest_of(tmp_path / "a")[0] != digest_of(tmp_path / "b")[0]
