"""A way to a server that can be cut off without a word: it accepts and keeps connections, and forwards nothing."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from urllib.parse import quote

from psycopg.conninfo import conninfo_to_dict
from tests.contracts.servers import NamedRedis, RedisServer


class Proxy:
    """Forwards between a port of this machine and a server, until it is told to be silent."""

    def __init__(self, server: asyncio.Server, flowing: asyncio.Event) -> None:
        self.port: int = server.sockets[0].getsockname()[1]
        self._flowing = flowing

    def be_silent(self) -> None:
        """Take everything, and pass nothing on."""
        self._flowing.clear()

    def speak(self) -> None:
        """Pass everything on again, what was held back first."""
        self._flowing.set()


@contextlib.asynccontextmanager
async def proxy_to(where: str | tuple[str, int]) -> AsyncIterator[Proxy]:
    """A proxy to a socket's path, or to a host and port."""
    flowing, tasks, ends = asyncio.Event(), set[asyncio.Task[None]](), list[asyncio.StreamWriter]()
    flowing.set()

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                await flowing.wait()
                writer.write(data)
                await writer.drain()
        writer.close()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there = await (
            asyncio.open_unix_connection(where) if isinstance(where, str) else asyncio.open_connection(*where)
        )
        ends.extend((writer, there[1]))
        for pair in ((reader, there[1]), (there[0], writer)):
            tasks.add(asyncio.create_task(pump(*pair)))

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    try:
        yield Proxy(server, flowing)
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for end in ends:
            end.transport.abort()
        await asyncio.gather(*(end.wait_closed() for end in ends), return_exceptions=True)


@contextlib.asynccontextmanager
async def postgres_behind(address: str) -> AsyncIterator[tuple[Proxy, str]]:
    """A proxy to a Postgres server, and the address that leads through it."""
    parts = conninfo_to_dict(address)
    host, port = str(parts.get("host") or "127.0.0.1"), int(str(parts.get("port") or 5432))
    async with proxy_to(f"{host}/.s.PGSQL.{port}" if host.startswith("/") else (host, port)) as proxy:
        user, password = quote(str(parts.get("user") or "postgres")), quote(str(parts.get("password") or ""))
        yield proxy, f"postgresql://{user}:{password}@127.0.0.1:{proxy.port}/{parts['dbname']}?sslmode=disable"


@contextlib.asynccontextmanager
async def redis_behind(server: RedisServer | NamedRedis) -> AsyncIterator[tuple[Proxy, str]]:
    """The same for a Redis server of ours."""
    assert isinstance(server, RedisServer)
    async with proxy_to(str(server.socket)) as proxy:
        yield proxy, f"redis://127.0.0.1:{proxy.port}/0"
