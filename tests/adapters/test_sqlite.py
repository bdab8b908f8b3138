"""The SQLite store: files it cannot use, disks that fill up or fail, other processes, and where it writes."""

from __future__ import annotations

import asyncio
import os
import resource
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import apsw
import pytest

from rerail.adapters.stores.sqlite.maintenance import MIGRATIONS, meaning
from rerail.adapters.stores.sqlite.store import SqliteStore
from rerail.adapters.stores.sqlite.writer import LEAST, LOOK_SECONDS, MOST
from rerail.ports import Batch, Conflict, Head, Lease, Owner, Unavailable, Unusable

ROOT = Path(__file__).resolve().parents[2]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
ME = Owner("here", 1, 1.0)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the store is, or will be."""
    return tmp_path / "runs.db"


@pytest.fixture
async def store(path: Path) -> AsyncIterator[SqliteStore]:
    """An open store."""
    made = SqliteStore(path, patience=0.2)
    await made.open()
    yield made
    await made.close()


async def started(store: SqliteStore, run: str = "run") -> Lease:
    """A new run and its lease."""
    await store.create(Head(run))
    return await store.claim(run, ME, 1.0)


def batch(lease: Lease, after: int, *rows: bytes) -> Batch:
    """A batch by the holder of a lease."""
    return Batch(lease.run, after, [(1.0, data) for data in rows], lease.fence)


async def refusal(path: Path) -> Unusable:
    """How opening a store there is refused; the file is left as it was."""
    before = path.read_bytes() if path.is_file() else None
    with pytest.raises(Unusable) as caught:
        await SqliteStore(path).open()
    assert str(path) in str(caught.value)
    assert (path.read_bytes() if path.is_file() else None) == before
    return caught.value


@contextmanager
def other_connection(path: Path, sql: str = "") -> Iterator[apsw.Connection]:
    """A connection as another process would have it."""
    connection = apsw.Connection(str(path))
    connection.execute(sql)
    try:
        yield connection
    finally:
        connection.close()


# -- Files that cannot be used ------------------------------------------------------------------------------------


@pytest.mark.parametrize("content", [b"hello", b"steps:\n" * 2000, b"\x00" * 100], ids=["short", "long", "zeros"])
async def test_a_file_that_is_not_a_database_is_refused(path: Path, content: bytes) -> None:
    """The sentence says what the file is not and how to go on."""
    path.write_bytes(content)
    error = await refusal(path)
    assert "is not a database" in str(error)
    assert "--store" in str(error)
    assert error.code == "STORE_FAILED"


async def test_another_programs_database_is_refused(path: Path) -> None:
    """A SQLite file with other tables is somebody's data, even if its version looks familiar."""
    with other_connection(path, f"CREATE TABLE songs(name); PRAGMA user_version = {len(MIGRATIONS)}"):
        pass
    assert "another program" in str(await refusal(path))


async def test_a_newer_store_is_refused_by_name(store: SqliteStore, path: Path) -> None:
    """E5: old code does not touch what newer code wrote, and says to upgrade."""
    await store.close()
    with other_connection(path, "PRAGMA user_version = 999"):
        pass
    error = await refusal(path)
    assert error.code == "STORE_NEWER"
    assert "999" in str(error)
    assert "git pull, then pip install ." in str(error)


async def test_a_file_of_the_first_version_is_brought_up_to_date(tmp_path: Path) -> None:
    """E5: nothing is lost on the way, and its runs go on where they were."""
    path = tmp_path / "old.db"
    first = f"""
        {MIGRATIONS[0]}
        INSERT INTO runs VALUES (1, 'r-1', 2, 7.5, 'running', 3, NULL, NULL, NULL, NULL, 6.0, 5.0, '', 'tidy up');
        INSERT INTO runs VALUES (2, 'r-2', 0, 6.5, 'pending', 0, NULL, NULL, NULL, NULL, 0.0, 6.5, 'r-1', '');
        INSERT INTO events VALUES ('r-1', 1, 7.0, x'61'), ('r-1', 2, 7.5, x'62');
        PRAGMA application_id = 0x5272616C;
        PRAGMA user_version = 1;
    """
    with other_connection(path, first):
        pass
    store = SqliteStore(path)
    await store.open()
    try:
        assert await store.heads() == [
            Head("r-2", 0, "pending", "", "r-1", 6.5, 6.5),
            Head("r-1", 2, "running", "tidy up", "", 5.0, 7.5, None, 3, 6.0),
        ]
        await store.append(Batch("r-1", 2, ((8.0, b"c"),), 3))
        assert [(row.seq, row.at, row.data) for row in await store.read("r-1")] == [
            (1, 7.0, b"a"), (2, 7.5, b"b"), (3, 8.0, b"c")
        ]  # fmt: skip
    finally:
        await store.close()


async def test_a_folder_is_refused(tmp_path: Path) -> None:
    """The sentence names a file that would do."""
    assert "runs.db" in str(await refusal(tmp_path))


async def test_a_folder_that_is_a_file_is_refused(tmp_path: Path) -> None:
    """A file cannot hold the store's file."""
    (tmp_path / "file").write_text("x")
    await refusal(tmp_path / "file" / "runs.db")
    await refusal(tmp_path / "file" / "deeper" / "runs.db")


async def test_a_damaged_database_is_refused(store: SqliteStore, path: Path) -> None:
    """Damage is named as such, and not written over."""
    lease = await started(store)
    await store.append(batch(lease, 0, b"x" * 200_000))
    await store.close()
    content = bytearray(path.read_bytes())
    content[100:4096] = os.urandom(3996)
    path.write_bytes(content)
    assert "damaged" in str(await refusal(path))


@pytest.mark.parametrize("name", ["", ":memory:"])
async def test_a_store_needs_a_file(name: str) -> None:
    """What SQLite takes for a passing database is refused, with the store that is meant."""
    with pytest.raises(Unusable, match="memory://"):
        await SqliteStore(name).open()


OPEN_AS_NOBODY = """
import asyncio, os, sys
from rerail.adapters.stores.sqlite.store import SqliteStore
from rerail.ports import Unusable
async def nothing():
    await asyncio.to_thread(int)
asyncio.run(nothing())  # what is loaded late may be out of reach below
if os.geteuid() == 0:  # permissions do not bind root
    os.setgroups([]); os.setgid(65534); os.setuid(65534)
try:
    asyncio.run(SqliteStore(sys.argv[1]).open())
except Unusable as error:
    sys.exit(str(error))
"""


@pytest.mark.parametrize(
    ("file", "folder", "words"),
    [
        (0o444, 0o777, "cannot be written"),
        (0o000, 0o777, "cannot be read or written"),
        (0o666, 0o555, "folder"),
        (None, 0o555, "cannot be created"),
        (0o666, 0o777, None),
    ],
    ids=["read-only file", "unreadable file", "read-only folder", "nothing in a read-only folder", "all is well"],
)
def test_permissions_that_are_missing_are_named(file: int | None, folder: int, words: str | None) -> None:
    """What a process may not read or write is refused with the reason and the cure."""
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "runs.db"
        if file is not None:
            with other_connection(path, "VACUUM"):  # a database file without a table
                path.chmod(file)
        Path(place).chmod(folder)
        command = [sys.executable, "-c", OPEN_AS_NOBODY, str(path)]
        ended = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True)
        Path(place).chmod(0o700)
    if words is None:
        assert (ended.returncode, ended.stderr) == (0, "")
    else:
        assert ended.returncode == 1
        assert words in ended.stderr
        assert "--store" in ended.stderr


# -- What a new file is like --------------------------------------------------------------------------------------


async def test_folders_are_made_and_only_the_owner_reads(tmp_path: Path) -> None:
    """Histories hold what tools were given, so a new file and its companions are private."""
    path = tmp_path / "a" / "b" / "runs.db"
    store = SqliteStore(path)
    await store.open()
    await started(store)
    files = sorted(path.parent.iterdir())
    assert [file.name for file in files] == ["runs.db", "runs.db-shm", "runs.db-wal"]
    assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}
    await store.close()
    assert list(path.parent.iterdir()) == [path]


async def test_permissions_somebody_chose_are_kept(path: Path) -> None:
    """A file that was there before keeps its mode."""
    path.touch(0o600)
    path.chmod(0o640)
    store = SqliteStore(path)
    await store.open()
    await store.close()
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


async def test_the_address_is_the_one_given(path: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The URL says what the user said, and a change of folder changes nothing."""
    monkeypatch.chdir(tmp_path)
    store = SqliteStore(".rerail/runs.db")
    monkeypatch.chdir("/")
    await store.open()
    await store.close()
    assert store.url == "sqlite:///.rerail/runs.db"
    assert (tmp_path / ".rerail" / "runs.db").exists()
    assert SqliteStore(path).url == f"sqlite:///{path}"


class Asked(SqliteStore):
    """Asks the writing connection, at each commit, how it makes things durable."""

    seen: tuple[object, object] = ("", "")

    def _commit(self, cursor: apsw.Cursor) -> None:
        super()._commit(cursor)
        self.seen = (cursor.connection.pragma("journal_mode"), cursor.connection.pragma("synchronous"))


async def test_durability_bites(path: Path) -> None:
    """E1: FULL unless NORMAL is asked for; always with a write-ahead log."""
    for store, synchronous in ((Asked(path), 2), (Asked(path, "full"), 2), (Asked(path, "normal"), 1)):
        await store.open()
        await store.create(Head(f"run {id(store)}"))
        assert store.seen == ("wal", synchronous)
        await store.close()


# -- Disks that fill up or fail -----------------------------------------------------------------------------------


class SmallDisk(SqliteStore):
    """A disk with room for so many pages."""

    pages = 40

    def _connection(self, undo: ExitStack) -> apsw.Connection:
        connection = super()._connection(undo)
        connection.pragma("max_page_count", self.pages)
        return connection


@pytest.mark.parametrize("inline_below", [1.0, 0.0], ids=["inline", "thread"])
async def test_a_full_disk_stops_the_writing_and_leaves_nothing_by_half(path: Path, inline_below: float) -> None:
    """E4: the sentence says so, the history stays whole, and after making room the same append works."""
    store = SmallDisk(path, inline_below=inline_below)
    await store.open()
    lease = await started(store)
    await store.append(batch(lease, 0, b"one"))
    large = batch(lease, 1, b"two", *[b"x" * 20_000] * 20)
    with pytest.raises(Unusable, match=r"full.*Free some space"):
        await store.append(large)
    assert [row.data for row in await store.read("run")] == [b"one"]
    await store.append(batch(lease, 1, b"small things still fit"))
    store.pages = 10_000
    await store.open()
    await store.append(Batch("run", 2, large.rows, lease.fence))
    assert len(await store.read("run")) == 23
    await store.close()


async def test_a_disk_too_full_for_a_new_store_is_named(path: Path) -> None:
    """The same sentence when there is not even room for the tables."""
    store = SmallDisk(path)
    store.pages = 2
    with pytest.raises(Unusable, match="full"):
        await store.open()
    store.pages = 100
    await store.open()
    await started(store)
    await store.close()


@contextmanager
def failing_disk(path: Path) -> Iterator[None]:
    """A disk on which the log of changes cannot grow beyond its room: the system refuses the write."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    size = Path(f"{path}-wal").stat().st_size
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


async def test_a_disk_that_fails_can_be_tried_again(store: SqliteStore, path: Path) -> None:
    """E4: an I/O error is `Unavailable` and writes nothing; the same append works when the disk does."""
    lease = await started(store)
    mine = batch(lease, 0, b"one", b"x" * 1_000_000)
    with failing_disk(path), pytest.raises(Unavailable, match="cannot be read or written now"):
        await store.append(mine)
    assert await store.read("run") == []
    await store.append(mine)
    assert len(await store.read("run")) == 2


async def test_a_lost_file_is_noticed_and_may_come_back(store: SqliteStore, path: Path) -> None:
    """E4: SQLite would go on writing into a deleted file; we stop, and never put an empty one in its place."""
    lease = await started(store)
    await store.append(batch(lease, 0, b"one"))
    path.rename(path.with_suffix(".away"))
    await asyncio.sleep(LOOK_SECONDS)
    with pytest.raises(Unavailable, match="moved, deleted or replaced"):
        await store.append(batch(lease, 1, b"two"))
    with pytest.raises(Unavailable):
        await store.open()
    with pytest.raises(Unavailable):
        await store.open()
    assert not path.exists()
    path.with_suffix(".away").rename(path)
    await store.open()
    await store.append(batch(lease, 1, b"two"))
    assert len(await store.read("run")) == 2


def test_every_error_of_sqlite_has_a_meaning() -> None:
    """No error of SQLite gets out as it is, and each sentence names the file."""
    kinds = [kind for kind in vars(apsw).values() if isinstance(kind, type) and issubclass(kind, apsw.Error)]
    assert len(kinds) > 30
    for kind in kinds:
        told = meaning(kind("said SQLite"), "runs.db")
        assert isinstance(told, (Unavailable, Unusable))
        assert "runs.db" in str(told)


def test_a_disk_without_room_for_the_index_of_the_log_is_full() -> None:
    """E4: SQLite calls it an I/O error; nothing is wrong with the disk, and nothing may be there to resume."""
    error = apsw.IOError("disk I/O error")
    error.extendedresult = apsw.SQLITE_IOERR_SHMSIZE
    assert str(meaning(error, "runs.db")) == "The disk of runs.db is full. Free some space, then try again."


# -- Open and closed ----------------------------------------------------------------------------------------------


async def test_a_closed_store_is_unavailable(store: SqliteStore) -> None:
    """E4: reading, writing and waiting say that the store is not open; opening it again helps."""
    lease = await started(store)
    waiting = asyncio.create_task(store.changed("run", 0, 30))
    await asyncio.sleep(0.01)
    await store.close()
    await store.close()
    for use in (store.read("run"), store.append(batch(lease, 0, b"x")), store.changed("run", 0, 1), waiting):
        with pytest.raises(Unavailable, match="not open"):
            await use
    await store.open()
    await store.append(batch(lease, 0, b"x"))


async def test_nothing_reads_with_a_connection_that_is_being_closed(path: Path) -> None:
    """E4: the loop gives the connection up before a thread closes it; a poll of waiters may be due meanwhile."""
    seen: list[str] = []

    @contextmanager
    def closing() -> Iterator[None]:
        with pytest.raises(Unavailable):
            store._read("SELECT 1", ())  # what a poll does
        seen.append("closing")
        yield

    store = SqliteStore(path)
    await store.open()
    store._external = closing
    await store.close()
    assert seen == ["closing"]


async def test_closing_waits_for_what_is_being_written(path: Path) -> None:
    """E1: writes that were under way when the store was closed are durable and acknowledged."""
    store = SlowDisk(path, inline_below=0.0)
    await store.open()
    leases = [await started(store, f"run-{n}") for n in range(5)]
    store.delay = 0.02
    writes = [asyncio.create_task(store.append(batch(lease, 0, b"x"))) for lease in leases]
    await asyncio.sleep(0.005)
    await store.close()
    await asyncio.gather(*writes)
    await store.open()
    assert [len(await store.read(lease.run)) for lease in leases] == [1] * 5
    await store.close()


async def test_connecting_anew_while_others_write_is_safe(store: SqliteStore) -> None:
    """E4: several runs may each want to reconnect; nothing acknowledged is lost, nothing is doubled."""
    leases = [await started(store, f"run-{n}") for n in range(4)]

    async def drive(lease: Lease) -> None:
        for after in range(20):
            while True:
                try:
                    await store.append(batch(lease, after, b"%d" % after))
                    break
                except Unavailable:
                    await store.open()
            if after % 5 == 0:
                await store.open()
            await asyncio.sleep(0)

    await asyncio.gather(*(drive(lease) for lease in leases))
    for lease in leases:
        assert [row.data for row in await store.read(lease.run)] == [b"%d" % n for n in range(20)]


# -- Other processes ----------------------------------------------------------------------------------------------


async def test_a_lock_that_stays_is_unavailable_and_the_loop_goes_on(store: SqliteStore, path: Path) -> None:
    """E4: past the patience the write is given up; meanwhile other tasks run and reads work."""
    lease = await started(store)
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            await asyncio.sleep(0.005)
            assert await store.read("run") == []
            ticks += 1

    ticking = asyncio.create_task(tick())
    with other_connection(path, "BEGIN IMMEDIATE"), pytest.raises(Unavailable, match="locked"):
        await store.append(batch(lease, 0, b"one"))
    ticking.cancel()
    assert ticks >= 3
    await store.append(batch(lease, 0, b"one"))


async def test_a_lock_that_passes_is_waited_for(store: SqliteStore, path: Path) -> None:
    """Another process that writes for a moment is no error."""
    lease = await started(store)
    with other_connection(path, "BEGIN IMMEDIATE") as other:
        writing = asyncio.create_task(store.append(batch(lease, 0, b"one")))
        await asyncio.sleep(0.05)
        assert not writing.done()
        other.execute("ROLLBACK")
        await writing
    assert len(await store.read("run")) == 1


RACE = """
import asyncio, sys
from rerail.adapters.stores.sqlite.store import SqliteStore
from rerail.ports import Batch, Conflict, Head
async def main(path, name):
    store = SqliteStore(path)
    await store.open()
    try:
        await store.create(Head("run"))
    except Conflict:
        pass
    conflicts = 0
    for turn in range(40):
        while True:
            head = await store.head("run")
            try:
                await store.append(Batch("run", head.seq, [(1.0, f"{name} {turn}".encode())] * 2, 0))
                break
            except Conflict:
                conflicts += 1
    await store.close()
asyncio.run(main(*sys.argv[1:]))
"""


async def test_processes_that_start_at_once_make_one_store_and_one_order(store: SqliteStore, tmp_path: Path) -> None:
    """T7: processes race to make the file, then for each sequence number; nothing is lost or doubled."""
    path = tmp_path / "new" / "runs.db"
    names = [str(n) for n in range(4)]
    commands = [[sys.executable, "-c", RACE, str(path), name] for name in names]
    processes = [subprocess.Popen(command, env=ENVIRONMENT) for command in commands]
    assert [process.wait() for process in processes] == [0] * len(processes)
    store = SqliteStore(path)
    await store.open()
    rows = await store.read("run")
    await store.close()
    assert [row.seq for row in rows] == list(range(1, 4 * 40 * 2 + 1))
    written = [row.data.decode().split() for row in rows]
    assert written[::2] == written[1::2]
    for name in names:
        assert [turn for who, turn in written[::2] if who == name] == [str(turn) for turn in range(40)]


# -- Room in the log ----------------------------------------------------------------------------------------------


def log_size(path: Path) -> int:
    """How long the file is that SQLite writes to first."""
    return Path(f"{path}-wal").stat().st_size


async def test_commits_find_room_in_the_log_up_to_what_it_holds_at_most(store: SqliteStore, path: Path) -> None:
    """The log grows a few times instead of with every commit, and no longer than SQLite lets it become anyway."""
    lease = await started(store)
    sizes = set()
    for after in range(1200):
        await store.append(batch(lease, after, b"x" * 3000))
        sizes.add(log_size(path))
    assert min(sizes) == LEAST
    assert max(sizes) == MOST
    assert len(sizes) <= 10  # of 1,200 commits


async def test_without_full_durability_no_room_is_made(path: Path) -> None:
    """Nothing waits for the disk then, so a longer file would be for nothing."""
    store = SqliteStore(path, "normal")
    await store.open()
    await started(store)
    assert log_size(path) < LEAST
    await store.close()


async def test_a_log_with_room_is_read_back_whole_after_a_crash(store: SqliteStore, path: Path, tmp_path: Path) -> None:
    """E1: zeros behind the last commit are no commits, and hide none."""
    lease = await started(store)
    for after in range(300):
        await store.append(batch(lease, after, b"row %d" % after))
    assert log_size(path) > LEAST  # past the first room
    left = tmp_path / "left"  # what a machine that died finds on its disk
    left.mkdir()
    for name in ("runs.db", "runs.db-wal"):
        (left / name).write_bytes((tmp_path / name).read_bytes())
    again = SqliteStore(left / "runs.db")
    await again.open()
    assert [row.data for row in await again.read("run")] == [b"row %d" % n for n in range(300)]
    await again.append(Batch("run", 300, [(1.0, b"goes on")], lease.fence))
    await again.close()


async def test_two_writers_make_room_for_each_other(store: SqliteStore, path: Path) -> None:
    """T7: room is made under the lock for writing, so nobody's commit is overwritten with it."""
    other = SqliteStore(path)
    await other.open()
    mine, yours = await started(store), await started(other, "other")
    for after in range(300):
        await store.append(batch(mine, after, b"m" * 2000))
        await other.append(batch(yours, after, b"y" * 2000))
    await other.close()
    with other_connection(path) as connection:
        assert connection.pragma("integrity_check") == "ok"
    assert {row.data for row in await store.read("run")} == {b"m" * 2000}
    assert [row.seq for row in await store.read("other")] == list(range(1, 301))


async def test_where_there_is_no_room_commits_go_on_without(store: SqliteStore, path: Path) -> None:
    """E4: a disk too full for room, but not for the commit, gets the commit, and keeps what room would have taken."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (LEAST - 1, hard))
    try:
        lease = await started(store)
        await store.append(batch(lease, 0, b"one"))
        assert log_size(path) < LEAST // 2
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert [row.data for row in await store.read("run")] == [b"one"]


# -- Where it writes ----------------------------------------------------------------------------------------------


class SlowDisk(SqliteStore):
    """A disk whose commits take as long as asked; notes which thread made each."""

    delay = 0.0

    def __init__(self, path: Path, inline_below: float = 0.001) -> None:
        super().__init__(path, inline_below=inline_below)
        self.threads: list[int] = []

    def _commit(self, cursor: apsw.Cursor) -> None:
        self.threads.append(threading.get_ident())
        time.sleep(self.delay)
        super()._commit(cursor)


@pytest.fixture
async def disk(path: Path) -> AsyncIterator[SlowDisk]:
    """An open store on a disk whose speed the test sets, with a threshold that noise does not reach."""
    store = SlowDisk(path, inline_below=0.03)
    await store.open()
    yield store
    await store.close()


async def test_writes_move_to_the_thread_while_the_disk_is_slow(disk: SlowDisk) -> None:
    """Quick commits stay on the loop's thread; slow ones leave it, and come back when they are quick again."""
    here = threading.get_ident()
    lease = await started(disk)
    seq = 0
    for delay, commits, inline in ((0.0, 20, True), (0.1, 8, False), (0.0, 40, True)):
        disk.delay = delay
        for _ in range(commits):
            await disk.append(batch(lease, seq, b"x"))
            seq += 1
        assert {thread == here for thread in disk.threads[-3:]} == {inline}
    assert len(await disk.read("run")) == seq


async def test_the_loop_goes_on_while_the_disk_is_slow(path: Path) -> None:
    """A slow commit in the thread leaves the loop to others."""
    store = SlowDisk(path, inline_below=0.0)
    await store.open()
    lease = await started(store)
    store.delay = 0.2
    writing = asyncio.create_task(store.append(batch(lease, 0, b"x")))
    ticks = 0
    while not writing.done():
        await asyncio.sleep(0.005)
        ticks += 1
    assert ticks >= 3
    await store.close()


async def test_runs_that_write_at_once_share_commits(path: Path) -> None:
    """Group commit: fifty appends that wait together take a handful of commits, and all are acknowledged."""
    store = SlowDisk(path, inline_below=0.0)
    await store.open()
    leases = [await started(store, f"run-{n}") for n in range(50)]
    store.delay = 0.02
    before = len(store.threads)
    await asyncio.gather(*(store.append(batch(lease, 0, b"x", b"y")) for lease in leases))
    assert len(store.threads) - before <= 3
    assert [len(await store.read(lease.run)) for lease in leases] == [2] * 50
    await store.close()


async def test_an_append_that_breaks_its_group_fails_alone(path: Path) -> None:
    """In a shared transaction one is refused, one is too large for the disk, one is no row at all; the rest is kept."""
    store = SmallDisk(path, inline_below=0.0)
    store.pages = 100
    await store.open()
    leases = [await started(store, f"run-{n}") for n in range(8)]
    batches = [batch(lease, 0, b"fine") for lease in leases]
    batches[2] = batch(leases[2], 9, b"wrong place")
    batches[4] = batch(leases[4], 0, b"half", b"x" * 1_000_000)
    batches[6] = Batch(leases[6].run, 0, [(1.0, b"half"), (2.0, object())], leases[6].fence)  # type: ignore[list-item]
    ended = await asyncio.gather(*(store.append(mine) for mine in batches), return_exceptions=True)
    kinds = [type(end) for end in ended]
    assert (kinds[2], kinds[4], kinds[6]) == (Conflict, Unusable, TypeError)
    assert [ended[n] for n in (0, 1, 3, 5, 7)] == [None] * 5
    assert [len(await store.read(lease.run)) for lease in leases] == [1, 1, 0, 1, 0, 1, 0, 1]
    await store.close()


async def test_a_cancelled_writer_disturbs_nobody(path: Path) -> None:
    """Whoever gives up waiting for the thread leaves the others their answers."""
    store = SlowDisk(path, inline_below=0.0)
    await store.open()
    leases = [await started(store, f"run-{n}") for n in range(3)]
    store.delay = 0.02
    writes = [asyncio.create_task(store.append(batch(lease, 0, b"x"))) for lease in leases]
    await asyncio.sleep(0.005)
    writes[1].cancel()
    ended = await asyncio.gather(*writes, return_exceptions=True)
    assert [ended[0], ended[2]] == [None, None]
    assert isinstance(ended[1], asyncio.CancelledError)
    await store.append(batch(leases[0], 1, b"y"))
    await store.close()
