"""`rerail prune`, `backup` and `doctor`, on whole stores and on really damaged files (E1, E6, T4, T7)."""

from __future__ import annotations

import contextlib
import json
import os
import random
import resource
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import apsw
import pytest
from tests.cli.conftest import Here

from rerail.adapters.stores.sqlite.maintenance import back_up
from rerail.adapters.stores.sqlite.store import SqliteStore
from rerail.ports import Batch, Head, Owner, Unusable

BIG = {"id": "a", "tool": "ok", "args": {"value": "x" * 4000}}
SMALL = {"id": "a", "tool": "ok"}
FILE = Path(".rerail/runs.db")


def sql(text: str, *values: Any) -> list[Any]:
    connection = apsw.Connection(str(FILE))
    try:
        return connection.execute(text, values).fetchall()
    finally:
        connection.close()


def findings(here: Here, *words: str, code: int) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = here("doctor", "--json", *words, code=code).json["findings"]
    return found


# -- Prune --------------------------------------------------------------------------------------------------------


def test_prune_removes_what_is_old_and_gives_the_room_back(here: Here) -> None:
    """E6: a dry run shows, a word is needed, the file is smaller afterwards, and what stays is whole."""
    runs = [here.run({"id": "a", "tool": "ok", "args": {"value": str(n) * 40_000}}, code=0) for n in range(4)]
    assert "4 runs would be removed" in here("prune", "--older-than", "0s", "--dry-run", code=0).out
    assert "no run is old enough" in here("prune", "--older-than", "30d", "--yes", code=0).out
    refused = here("prune", "--older-than", "0s", "--json", code=2).json["error"]
    assert refused["code"] == "CONFIRM_NEEDED"
    before = FILE.stat().st_size
    told = here("prune", "--older-than", "0s", "--keep", "1", "--yes", "--json", code=0).json
    assert ([row["run"] for row in told["runs"]], told["contents"]) == (runs[:3], 3)
    assert told["freed"] > 100_000
    assert before - FILE.stat().st_size >= told["freed"]
    assert [row["run_id"] for row in here("ls", "--json", code=0).json] == [runs[3]]
    assert here("show", runs[3], "--json", code=0).json["steps"]["a"]["output"] == "3" * 40_000
    here("doctor", code=0)


def test_prune_says_what_it_needs(here: Here) -> None:
    """T4: exit code 2 for a call that cannot be read; a store that is not there has nothing to remove."""
    assert "--older-than" in here("prune", code=2).err
    assert "invalid duration" in here("prune", "--older-than", "soon", code=2).err
    assert "0 or more" in here("prune", "--keep", "-5", "--yes", code=2).err
    assert "no run is old enough" in here("prune", "--older-than", "1d", code=0).out
    assert not FILE.exists(), "a command that only looks makes no store"


def test_files_go_only_if_that_is_wanted(here: Here) -> None:
    """T1: the folder with a run's files stays, unless --files; doctor tells of it."""
    one, two = (here.run(SMALL, code=0) for _ in range(2))
    for run in (one, two):
        (FILE.parent / "work" / run).mkdir(parents=True)
        (FILE.parent / "work" / run / "made.txt").write_text("work")
    here("prune", "--older-than", "0s", "--keep", "1", "--yes", code=0)
    assert (FILE.parent / "work" / one / "made.txt").exists()
    [left] = findings(here, code=0)
    assert (left["kind"], Path(left["where"]).name, left["grave"]) == ("workspace", one, False)
    here("prune", "--older-than", "0s", "--yes", "--files", code=0)
    assert sorted(path.name for path in (FILE.parent / "work").iterdir()) == [one]


def test_the_room_is_left_to_runs_that_go_on(here: Here) -> None:
    """E4: writing the file anew would make who drives a run wait; it is said when to prune again."""
    here.run(BIG, code=0)
    process, run = here.begin({"id": "w", "tool": "hold", "args": {"name": "go"}}, at="w")
    told = here("prune", "--older-than", "0s", "--yes", code=0)
    assert "1 run and 1 content removed" in told.out
    assert "Prune again when no run is live" in told.err
    assert here.only() == run
    here.place.touch("go")
    assert process.wait(30) == 0


# -- Backup -------------------------------------------------------------------------------------------------------


def test_a_backup_is_made_while_a_run_goes_on(here: Here) -> None:
    """E1: the copy is the store at one moment, opens as one, and nothing of ours lies beside it."""
    done = here.run(BIG, code=0)
    process, run = here.begin({"id": "w", "tool": "hold", "args": {"name": "go"}}, at="w")
    told = here("backup", "copy.db", "--json", code=0).json
    assert (told["runs"], told["path"]) == (2, str(Path("copy.db").absolute()))
    assert sorted(os.listdir()) == sorted([".rerail", "calls.txt", "copy.db", "plan.json", "toolbox.py"])
    assert Path("copy.db").stat().st_mode & 0o777 == 0o600
    here.place.touch("go")
    assert process.wait(30) == 0
    rows = {row["run_id"]: row["status"] for row in here("ls", "--store", "copy.db", "--json", code=0).json}
    assert rows == {done: "completed", run: "running"}
    assert here("show", done, "--store", "copy.db", "--json", code=0).json["steps"]["a"]["output"] == "x" * 4000


def test_a_backup_says_why_there_is_none(here: Here) -> None:
    """T4: nothing is written over unasked; servers have tools of their own, and they are named."""
    assert "there is no store" in here("backup", "copy.db", code=2).err
    here.run(SMALL, code=0)
    here("backup", "copy.db", code=0)
    assert "--force" in here("backup", "copy.db", code=2).err
    here("backup", "copy.db", "--force", code=0)
    assert "is a folder" in here("backup", ".rerail", code=2).err
    assert "no folder" in here("backup", "nowhere/copy.db", code=2).err
    assert "the store itself" in here("backup", str(FILE), "--force", code=2).err
    assert "pg_dump" in here("backup", "x.db", "--store", "postgresql://u:p@h/d", code=2).err
    assert "redis-cli" in here("backup", "x.db", "--store", "redis://h", code=2).err


def test_a_backup_of_a_damaged_store_is_none(here: Here) -> None:
    """A copy that is not sound gets no name, and takes no sound one's place."""
    filled(here)
    here("backup", "copy.db", code=0)
    good = Path("copy.db").read_bytes()
    overwritten()
    refused = here("backup", "copy.db", "--force", code=1)
    assert "not sound" in refused.err or "damaged" in refused.err
    assert Path("copy.db").read_bytes() == good
    assert not [name for name in os.listdir() if name.endswith(".part")]


WRITER = """
import asyncio, sys
from rerail.adapters.stores.sqlite.store import SqliteStore
from rerail.ports import Batch, Head, Owner

async def main():
    store = SqliteStore(sys.argv[1], "normal")
    await store.open()
    n = 0
    while True:
        n += 1
        run = f"w{n}"
        await store.create(Head(run))
        lease = await store.claim(run, Owner("h", 1, 1.0), 1.0)
        await store.append(Batch(run, 0, [(1.0, b"{}")] * 10, lease.fence, {run: b"x" * 2000}))
        if n == 20:
            print("going", flush=True)

asyncio.run(main())
"""


def test_a_writer_is_not_in_the_way_of_a_backup(tmp_path: Path) -> None:
    """E1: whatever is written meanwhile, each copy holds whole appends and is sound."""
    file = tmp_path / "runs.db"
    writer = subprocess.Popen([sys.executable, "-c", WRITER, str(file)], stdout=subprocess.PIPE, text=True)
    try:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "going\n"
        made = [back_up(file, tmp_path / f"{n}.db") for n in range(3)]
    finally:
        writer.kill()
        writer.communicate()
    assert made[0].runs < made[-1].runs
    for copy in made:
        with contextlib.closing(apsw.Connection(copy.path)) as connection:
            counts = connection.execute("SELECT count(*) FROM events GROUP BY run").fetchall()
            assert set(counts) <= {(10,)}
            assert copy.events == 10 * len(counts)


def left_by_the_killed(file: Path) -> None:
    """A store as a writer leaves it that was killed: what came last is in the log beside it."""
    writer = subprocess.Popen([sys.executable, "-c", WRITER, str(file)], stdout=subprocess.PIPE, text=True)
    assert writer.stdout is not None
    assert writer.stdout.readline() == "going\n"
    writer.kill()
    writer.communicate()
    assert Path(f"{file}-wal").stat().st_size > 0


@pytest.mark.parametrize("there", [True, False])
def test_a_log_beside_the_target_is_not_played_over_the_backup(here: Here, there: bool) -> None:
    """E1: what an earlier file left there is told of, and goes with --force; the copy holds what the store holds."""
    run = here.run(BIG, code=0)
    left_by_the_killed(Path("copy.db"))
    log = Path("copy.db-wal").read_bytes()
    if not there:
        Path("copy.db").unlink()
    refused = here("backup", "copy.db", code=2).err
    assert "--force" in refused and ("copy.db-wal" in refused or there)
    assert (Path("copy.db").exists(), Path("copy.db-wal").read_bytes()) == (there, log), "nothing was touched"
    with pytest.raises(Unusable, match=r"copy\.db-wal"):
        back_up(FILE.absolute(), Path("copy.db").absolute())
    told = here("backup", "copy.db", "--force", "--json", code=0).json
    assert told["runs"] == 1
    assert [name for name in os.listdir() if name.startswith("copy.db")] == ["copy.db"]
    assert [row["run_id"] for row in here("ls", "--store", "copy.db", "--json", code=0).json] == [run]
    assert here("doctor", "--store", "copy.db", "--json", code=0).json["findings"] == []


def test_a_backup_takes_no_part_of_the_stores_place(here: Here) -> None:
    """E1: the store's own log is no place for a copy, not even with --force."""
    here.run(SMALL, code=0)
    held = apsw.Connection(str(FILE))
    held.execute("BEGIN; SELECT count(*) FROM runs")
    here.run(SMALL, code=0)
    assert "the store itself" in here("backup", f"{FILE}-wal", "--force", code=2).err
    held.close()
    assert len(here("ls", "--json", code=0).json) == 2


FULL = """
import resource, signal, sys
from pathlib import Path
from rerail.adapters.stores.sqlite.maintenance import back_up
from rerail.ports import Unavailable, Unusable

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
try:
    back_up(Path(sys.argv[1]), Path(sys.argv[2]))
except (Unavailable, Unusable) as problem:
    print("refused:", problem)
"""


def test_a_backup_that_cannot_be_written_leaves_nothing(here: Here) -> None:
    """E4: no room for the copy: it is said, and there is no half of one."""
    filled(here, 2)
    ended = subprocess.run([sys.executable, "-c", FULL, str(FILE), "copy.db"], capture_output=True, text=True)
    assert ended.stdout.startswith("refused:"), ended
    assert not [name for name in os.listdir() if "copy.db" in name]


def test_a_store_that_has_no_room_is_not_ok(here: Here) -> None:
    """E4: doctor tries a write and takes it back; what cannot be written needs no backup."""
    filled(here, 2)
    before = FILE.read_bytes()
    here("doctor", code=0)
    assert FILE.read_bytes() == before
    ended = subprocess.run(
        [sys.executable, "-m", "rerail.cli", "doctor", "--json"], capture_output=True, text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000)),
    )  # fmt: skip
    (store,) = [check for check in json.loads(ended.stdout)["checks"] if check["name"] == "store"]
    assert ended.returncode == 1 and not store["ok"] and store["hint"] == "", ended
    assert "runs.db is full" in store["detail"]
    assert FILE.read_bytes() == before


def test_who_only_looks_writes_nothing(here: Here) -> None:
    """E7: no sweep, no mark: the file is the same to the byte."""
    run = here.run(BIG, code=0)
    before = FILE.read_bytes()
    for words in (("ls",), ("show", run), ("doctor",), ("logs", run)):
        here(*words, code=0)
    assert FILE.read_bytes() == before


# -- Damage -------------------------------------------------------------------------------------------------------


def filled(here: Here, runs: int = 6) -> list[str]:
    """A store of some runs, all of it in its file."""
    found = [here.run({"id": "a", "tool": "ok", "args": {"value": str(n) * 6000}}, code=0) for n in range(runs)]
    sql("PRAGMA wal_checkpoint(TRUNCATE)")
    return found


def overwritten() -> None:
    """Bytes in the middle of the file are others now."""
    size = FILE.stat().st_size
    dice = random.Random(1)
    with FILE.open("r+b") as file:
        for page in range(2, size // 4096, 3):
            file.seek(page * 4096)
            file.write(dice.randbytes(2048))


def test_overwritten_pages_are_found(here: Here) -> None:
    """doctor says that the file is damaged and what to do, and --repair writes nothing into it."""
    filled(here)
    overwritten()
    before = FILE.read_bytes()
    told = here("doctor", code=1).out
    assert "damaged" in told and "Restore a backup" in told
    assert {row["kind"] for row in findings(here, "--repair", code=1)} & {"pages"}
    sql("SELECT 1")
    assert FILE.read_bytes() == before


def misspelt(run: str) -> None:
    """One letter of a run's name is another in the index of the runs."""
    [(root,)] = sql("SELECT rootpage FROM sqlite_schema WHERE name = 'sqlite_autoindex_runs_1'")
    data = bytearray(FILE.read_bytes())
    at = data.index(run.encode(), (root - 1) * 4096, root * 4096)
    data[at + 3] = ord("f") if data[at + 3] != ord("f") else ord("0")
    FILE.write_bytes(data)


def test_a_single_letter_that_changed_in_an_index_is_found(here: Here) -> None:
    """All can still be read and counted, and yet it is damage: doctor says so, and no copy is made of it."""
    runs = filled(here, 3)
    misspelt(runs[0])
    found = findings(here, code=1)
    assert "pages" in {row["kind"] for row in found}
    assert "not sound" in here("backup", "copy.db", code=1).err
    assert not Path("copy.db").exists()


@pytest.mark.parametrize("part", [0.0, 0.3, 0.5, 0.9])
def test_a_truncated_file_is_found(here: Here, part: float) -> None:
    """Whatever is missing at its end, it is told, and no command ends in a traceback."""
    filled(here)
    os.truncate(FILE, int(FILE.stat().st_size * part) // 512 * 512)
    for name in ("-wal", "-shm"):
        Path(f"{FILE}{name}").unlink(missing_ok=True)
    if part == 0.0:  # an empty file is a store without runs, as far as anybody can tell
        assert here("doctor", code=0).out
        return
    told = here("doctor", code=1).out
    assert "damaged" in told or "not a database" in told
    for words in (("ls",), ("doctor", "--repair")):
        assert here(*words).code in (0, 1, 2)


def test_what_is_no_database_is_told(here: Here) -> None:
    """Rubbish in the place of a store: what it is not, and what to do."""
    FILE.parent.mkdir()
    FILE.write_bytes(b"rubbish" * 1000)
    told = here("doctor", code=1).out
    assert "not a database" in told and "backup" in told


def test_a_lost_log_is_survived(here: Here) -> None:
    """E1: what was only in the write-ahead log is gone with it; the rest is sound, and folders tell of lost runs."""
    kept = filled(here, 2)
    # As a crash leaves it: the log holds what came last, and nobody has carried it over.
    held = apsw.Connection(str(FILE))
    held.execute("BEGIN; SELECT count(*) FROM runs")
    lost = here.run(SMALL, code=0)
    shutil.copytree(FILE.parent, "crashed")
    held.close()
    Path("crashed/runs.db-wal").unlink()
    Path("crashed/runs.db-shm").unlink(missing_ok=True)
    (Path("crashed") / "work" / lost).mkdir(parents=True)
    found = findings(here, "--store", "crashed/runs.db", code=0)
    assert [(row["kind"], Path(row["where"]).name) for row in found] == [("workspace", lost)]
    rows = here("ls", "--store", "crashed/runs.db", "--json", code=0).json
    assert sorted(row["run_id"] for row in rows) == sorted(kept)


def test_a_changed_content_is_found_and_made_again(here: Here) -> None:
    """E6: its name is its digest; the step that made it is named, and a retry of it mends the run."""
    completed = here.run(BIG, code=0)
    run = here.run(BIG, {"id": "b", "tool": "fail", "needs": ["a"]}, code=1)
    sql("UPDATE blobs SET data = CAST('rubbish' AS BLOB)")
    found, other = findings(here, "--repair", code=1)
    assert (found["kind"], found["where"], found["mended"]) == ("content", run, False)
    assert (other["kind"], other["where"]) == ("content", completed), "contents are shared, and so is the damage"
    assert "not what its name says" in found["detail"]
    assert found["hint"].endswith(f"rerail retry {run} --step a --force")
    words = other["hint"].split("rerail ", 1)[1].split()
    assert words == ["retry", completed, "--step", "a", "--force"]
    here(*words, "--yes", code=0)
    assert findings(here, code=0) == [], "what is shared is mended for all"
    assert here("show", completed, "--json", code=0).json["steps"]["a"]["output"] == "x" * 4000


def test_a_content_that_became_a_text_is_damage(here: Here) -> None:
    """E6: whatever a damaged file answers with, doctor tells of it and does not end over it."""
    run = here.run(BIG, code=0)
    sql("UPDATE blobs SET data = CAST(data AS TEXT)")
    [found] = findings(here, code=1)
    assert (found["kind"], found["where"]) == ("content", run)
    here("retry", run, "--step", "a", "--force", "--yes", code=0)
    assert findings(here, code=0) == []


def test_a_content_on_a_broken_page_does_not_make_its_run_unreadable(here: Here) -> None:
    """E5, E6: what is lost is named, with its step; the rest arrives in a copy, and there the step makes it again."""
    Path("more.py").write_text("import rerail\n\n\n@rerail.tool\ndef big() -> str:\n    return 'x' * 60_000\n")
    plan = here.place.plan({"id": "a b", "tool": "big"}, {"id": "b", "tool": "fail", "needs": ["a b"]})
    run = here("run", plan, "--tools", "toolbox.py", "--tools", "more.py", "--json", code=1).json["run_id"]
    sql("PRAGMA wal_checkpoint(TRUNCATE)")
    [(size,)] = sql("PRAGMA page_size")
    data = bytearray(FILE.read_bytes())
    pages = [at for at in range(0, len(data), size) if data[at + 100 : at + 200] == b"x" * 100]
    for at in pages:
        data[at : at + 4] = b"\xff\xff\xff\xf0"  # where the content goes on
    FILE.write_bytes(data)
    [found] = [row for row in findings(here, code=1) if row["where"] == run]
    assert found["kind"] == "content"
    assert found["detail"].startswith("the output of step a b (content ") and "cannot be read" in found["detail"]
    assert found["hint"].endswith(f"rerail retry {run} --step 'a b' --force --store NEW_FILE")
    here("export", "--all", "--output", "saved.jsonl", code=1)
    here("import", "saved.jsonl", "--own", "--store", "new.db", code=0)
    [copied] = findings(here, "--store", "new.db", code=1)
    assert (copied["kind"], copied["where"]) == ("content", run) and copied["detail"].endswith("is missing")
    here("retry", run, "--step", "a b", "--force", "--yes", "--store", "new.db", code=1)
    assert findings(here, "--store", "new.db", code=0) == []


def test_a_missing_content_is_found_unless_it_may_have_expired(here: Here) -> None:
    """E6: contents of completed runs expire; those of others are never dropped, and so it is damage."""
    here.run(BIG, code=0)
    failed = here.run(BIG, {"id": "b", "tool": "fail", "needs": ["a"]}, code=1)
    sql("DELETE FROM blobs")
    [found] = findings(here, code=1)
    assert (found["kind"], found["where"]) == ("content", failed)
    assert "is missing" in found["detail"]


def test_gaps_and_rubbish_in_a_history_are_found(here: Here) -> None:
    """E5: the place is named, the other runs are looked at all the same, and nobody pretends to mend it."""
    whole, gap, torn, short, newer = (here.run(SMALL, code=0) for _ in range(5))
    sql("DELETE FROM events WHERE run = ? AND seq = 3", gap)
    sql("UPDATE events SET data = CAST('{\"type\":' AS BLOB) WHERE run = ? AND seq = 2", torn)
    [(last,)] = sql("SELECT max(seq) FROM events WHERE run = ?", short)
    sql("DELETE FROM events WHERE run = ? AND seq = ?", short, last)
    sql('UPDATE events SET data = CAST(\'{"type":"later","v":9}\' AS BLOB) WHERE run = ? AND seq = 1', newer)
    found = {row["where"]: row for row in findings(here, "--repair", code=1)}
    assert set(found) == {gap, torn, short, newer}
    assert {row["kind"] for row in found.values()} == {"history"}
    assert "lacks the events 3 to 3" in found[gap]["detail"]
    assert "event 2 of its history is damaged" in found[torn]["detail"]
    assert "its history does not end so" in found[short]["detail"]
    assert "newer version" in found[newer]["detail"]
    assert not any(row["mended"] for row in found.values())
    assert here("show", whole, "--json", code=0).json["status"] == "completed"


def test_orphans_are_cleared(here: Here) -> None:
    """What is left of runs that are not there takes up room, harms nothing, and goes with --repair."""
    gone, kept = (here.run({"id": "a", "tool": "ok", "args": {"value": n * 4000}}, code=0) for n in "ab")
    sql("INSERT INTO inbox(run, data) VALUES (?, x'00')", gone)
    sql("DELETE FROM runs WHERE run = ?", gone)
    sql("DELETE FROM events WHERE run = ?", gone)
    assert {row["kind"] for row in findings(here, code=0)} == {"orphans"}
    assert {row["detail"] for row in findings(here, code=0)} == {
        "1 content that no run refers to",
        "1 action on runs that are not there",
    }
    assert all(row["mended"] for row in findings(here, "--repair", code=0))
    assert findings(here, code=0) == []
    assert sql("SELECT DISTINCT run FROM events") == [(kept,)]
    assert here("show", kept, "--json", code=0).json["steps"]["a"]["output"] == "b" * 4000


def test_a_history_whose_run_is_not_listed_is_a_loss_and_stays(here: Here) -> None:
    """E1: a row of the list of runs is gone; neither prune nor --repair takes what is left; a person hears of it."""
    lost, old = (here.run({"id": "a", "tool": "ok", "args": {"value": n * 4000}}, code=0) for n in "ab")
    row = sql("SELECT * FROM runs WHERE run = ?", lost)
    events = sql("SELECT * FROM events WHERE run = ?", lost)
    sql("INSERT INTO inbox(run, data) VALUES (?, x'00')", lost)
    sql("DELETE FROM runs WHERE run = ?", lost)
    told = here("prune", "--older-than", "0s", "--yes", "--json", code=0).json
    assert [(one["run"], one["outcome"]) for one in told["runs"]] == [(old, "removed")]
    for words in ((), ("--repair",)):
        [found] = findings(here, *words, code=1)
        assert (found["kind"], found["grave"], found["mended"]) == ("history", True, False)
        assert found["detail"] == "1 history of runs that the list of runs lacks" and "backup" in found["hint"]
    assert sql("SELECT * FROM events WHERE run = ?", lost) == events
    sql(f"INSERT INTO runs VALUES ({', '.join('?' * len(row[0]))})", *row[0])
    assert here("show", lost, "--json", code=0).json["steps"]["a"]["output"] == "a" * 4000


def test_prune_removes_nothing_from_a_damaged_file(here: Here) -> None:
    """E1: what an index of broken pages says of runs is not believed; and no hint says to repair there."""
    runs = filled(here, 3)
    sql("INSERT INTO blobs VALUES ('loose', x'00'); PRAGMA wal_checkpoint(TRUNCATE)")
    misspelt(runs[0])
    before = FILE.read_bytes()
    for words in (("--dry-run",), ("--yes",)):
        refused = here("prune", "--older-than", "0s", *words, "--json", code=2).json["error"]
        assert "damaged" in refused["message"] and refused["hint"] == "rerail doctor"
    nothing = here("prune", "--older-than", "99w", "--yes", "--json", code=0).json
    assert nothing["runs"] == [], "where nothing is to go, the file need not be looked through"
    sql("SELECT 1")
    assert FILE.read_bytes() == before
    found = findings(here, code=1)
    assert {"pages", "orphans"} <= {row["kind"] for row in found}
    assert not [row for row in found if "--repair" in row["hint"]]


def test_leases_of_the_dead_are_given_back(here: Here) -> None:
    """T7: who is dead holds nothing; who lives keeps what is theirs; an interrupted run waits for `resume`."""
    process, run = here.begin({"id": "w", "tool": "hold", "args": {"name": "go"}}, at="w")
    assert findings(here, "--repair", code=0) == [], "its owner lives"
    process.kill()
    process.wait()
    [found] = findings(here, code=1)
    assert (found["kind"], found["where"], found["hint"]) == ("lease", run, f"rerail resume {run}")
    [found] = findings(here, "--repair", code=1)
    assert not found["mended"], "resume takes it, and records what became of its calls (E11)"
    here.place.touch("go")
    here("resume", run, code=0)
    assert findings(here, code=0) == []


async def test_wishes_that_nobody_will_answer_get_one(here: Here) -> None:
    """X7: a run at rest grants nothing any more; whoever waits hears of it. One that goes on answers for itself."""
    store = SqliteStore(FILE)
    await store.open()
    try:
        for name, status, kind in (("rests", "completed", "done"), ("open", "running", "run_started")):
            await store.create(Head(name))
            lease = await store.claim(name, Owner("h", 1, 1.0), 1.0)
            rest = b'"status":"completed","success":true,"complete":true,"degraded":false'
            row = b'{"type":"done",' + rest + b"}" if kind == "done" else b'{"type":"run_started","objective":"o"}'
            await store.append(Batch(name, 0, [(1.0, row)], lease.fence, {}, status))
            await store.release(lease)
        rests, open_ = await store.post("rests", b"{}"), await store.post("open", b"{}")
        found = await _repaired(store)
        assert {(row.where, row.mended) for row in found} == {("rests", True), ("open", False)}
        answer = await store.answered("rests", rests)
        assert answer is not None and b"ask again" in answer
        assert await store.answered("open", open_) is None
    finally:
        await store.close()


async def _repaired(store: SqliteStore) -> list[Any]:
    from rerail.engine.maintenance.health_check import examine, mend

    return [await mend(store, one, 10.0) async for one in examine(store, None, 10.0)]


# -- Runs without a plan ------------------------------------------------------------------------------------------


def test_a_run_that_never_got_its_plan_is_shown_as_that_and_removed(here: Here) -> None:
    """E4: no success, no 1970, no wait; doctor names it and takes it away, since its creator is gone."""
    here.run(SMALL, code=0)
    sql("INSERT INTO runs (run, status, objective, parent, created_at, host, pid, started, worker, fence, renewed_at) "
        "VALUES ('lost', 'pending', 'pay', '', 1700000000.0, 'elsewhere', 1, 1.0, 0, 1, 1.0)")  # fmt: skip
    shown = here("show", "lost", code=0).out
    assert "never got its plan" in shown
    assert "2023-11-1" in shown
    assert "succeeded" not in shown
    document = here("show", "lost", "--json", code=0).json
    assert (document["success"], document["created_at"], document["objective"]) == (False, 1700000000.0, "pay")
    assert "no plan" in here("ls", code=0).out
    for word in ("resume", "cancel", "retry", "pause"):
        refused = here(word, "lost", "--json", "--tools", "toolbox.py", code=2).json["error"]
        assert "never got its plan" in refused["message"], word
    assert "no plan" in here("watch", "lost", code=1).err + here("watch", "lost", code=1).out
    [found] = findings(here, code=1)
    assert (found["kind"], found["where"]) == ("unplanned", "lost")
    assert findings(here, "--repair", code=0)[0]["mended"]
    assert "lost" not in here("ls", code=0).out
