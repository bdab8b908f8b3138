"""Postgres connection with an answer timeout and the requested durability; news between processes.

Rules of this file:
- The timeout counts silence, not time: a large answer may take any time while parts of it arrive.
- Connection parameters in the URL stay; this file chooses the rest.
- Each session sets `synchronous_commit`: the setting of a role or a database must not weaken it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, TypeVar

import psycopg
from psycopg.conninfo import conninfo_to_dict
from psycopg.rows import TupleRow
from psycopg_pool import PoolClosed, PoolTimeout

from rerail.i18n import Told, tell
from rerail.ports import Unavailable, Unusable

RV = TypeVar("RV")

CONNECT_SECONDS: Final = 5
ANSWER_SECONDS: Final = 15.0  # timeout of a server that sends nothing after a statement
LONG_SECONDS: Final = 600.0  # the same for statements that scan everything
# Keepalive: a dead machine is noticed even on an idle connection (seconds; the last in milliseconds).
ALIVE: Final = {
    "keepalives": 1, "keepalives_idle": 10, "keepalives_interval": 5, "keepalives_count": 3, "tcp_user_timeout": 20_000,
}  # fmt: skip


class Link(psycopg.AsyncConnection[TupleRow]):
    """A connection that closes after too long a silence of its server."""

    patience = ANSWER_SECONDS

    async def wait(self, gen: Any, *args: Any, **options: Any) -> Any:
        """Wait for the server while it sends anything."""
        return await super().wait(self._heard(gen), *args, **options)

    def _heard(self, gen: Generator[Any, Any, RV]) -> Generator[Any, Any, RV]:
        """Run the same protocol steps; fail when the server has been silent for too long."""
        now = asyncio.get_running_loop().time
        last = now()
        try:
            wanted = next(gen)
            while True:
                ready = yield wanted
                if ready:
                    last = now()
                elif now() - last > self.patience:
                    self.pgconn.finish()  # its remaining answer has no reader any more
                    raise psycopg.OperationalError(tell("reason.store.silent", seconds=round(self.patience, 1)))
                wanted = gen.send(ready)
        except StopIteration as done:
            value: RV = done.value
            return value

    @contextmanager
    def patient(self, seconds: float) -> Iterator[None]:
        """Raise the timeout for a while."""
        before, self.patience = self.patience, max(seconds, self.patience)
        try:
            yield
        finally:
            self.patience = before


def options(url: str) -> dict[str, Any]:
    """Return the connection parameters that the URL leaves open."""
    said = conninfo_to_dict(url)
    chosen = {"connect_timeout": CONNECT_SECONDS, **ALIVE}
    return {"autocommit": True, **{name: value for name, value in chosen.items() if name not in said}}


async def begin(link: Link, durability: str) -> None:
    """Set up a new session: durable commits, and statements that see earlier writes."""
    await link.execute("SET default_transaction_isolation = 'read committed'")
    if durability == "full":
        # Every value but this one waits until the server's own disk has the commit.
        await link.execute(
            "SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'"
        )


async def caveats(link: Link, where: str) -> list[Told]:
    """Return what the server's own settings can lose despite the session's."""
    found = await (
        await link.execute(
            "SELECT name FROM pg_settings WHERE name IN ('fsync', 'full_page_writes') AND setting = 'off'"
        )
    ).fetchall()
    return [tell("warn.store.pg_unsafe", where=where, name=name) for (name,) in found]


# Meaning of an error by the beginning of its SQLSTATE: the first match wins. Any other error is a bug of this store.
_MEANINGS: Final[Sequence[tuple[str, type[Unavailable] | type[Unusable], str]]] = (
    ("53100", Unusable, "refuse.store.pg_disk_full"),
    ("53", Unavailable, "refuse.store.pg_overloaded"),
    ("28", Unusable, "refuse.store.pg_login"),
    ("3D000", Unusable, "refuse.store.pg_no_database"),
    ("42501", Unusable, "refuse.store.pg_forbidden"),
    ("25006", Unavailable, "refuse.store.pg_read_only"),  # a standby, until it is promoted
    ("08", Unavailable, "refuse.store.pg_unreachable"),
    ("57", Unavailable, "refuse.store.pg_unreachable"),  # shutting down, starting up, or terminated by an administrator
    ("40", Unavailable, "refuse.store.pg_overloaded"),  # a deadlock or a lost serialization conflict
    ("58", Unavailable, "refuse.store.pg_unreachable"),
)


def meaning(error: BaseException, where: str) -> Unavailable | Unusable:
    """Translate a driver error into an error of the port."""
    text = " ".join(str(error).split()) or type(error).__name__
    state = error.sqlstate if isinstance(error, psycopg.Error) else None
    for start, become, key in _MEANINGS if state else ():
        if state is not None and state.startswith(start):
            return become(tell(key, where=where, error=text))
    if state is None and isinstance(error, psycopg.OperationalError):
        # The server refused before a session existed, so the error has no code.
        if "authentication failed" in text or "no password supplied" in text:
            return Unusable(tell("refuse.store.pg_login", where=where, error=text))
        if "does not exist" in text and "database" in text:
            return Unusable(tell("refuse.store.pg_no_database", where=where, error=text))
        return Unavailable(tell("refuse.store.pg_unreachable", where=where, error=text))
    if isinstance(error, PoolTimeout | PoolClosed | OSError | psycopg.InterfaceError):
        return Unavailable(tell("refuse.store.pg_unreachable", where=where, error=text))
    return Unusable(tell("refuse.store.pg_refused", where=where, error=text))


LONGEST_NEWS: Final = 7_000  # bytes; Postgres accepts 8,000


def news_messages(news: Iterable[tuple[str, int]]) -> Iterable[str]:
    """Pack news into few messages; a run id too long for one is left to polling."""
    parts: list[str] = []
    size = 2
    for run, seq in news:
        part = json.dumps([run, seq])
        if len(part) + 2 > LONGEST_NEWS:
            continue
        if parts and size + len(part) + 1 > LONGEST_NEWS:
            yield f"[{','.join(parts)}]"
            parts, size = [], 2
        parts.append(part)
        size += len(part) + 1
    if parts:
        yield f"[{','.join(parts)}]"


def news_in(payload: str) -> Iterable[tuple[str, int]]:
    """Parse a message's news; ignore foreign messages: any client may notify the channel."""
    with contextlib.suppress(ValueError, RecursionError):
        told = json.loads(payload)
        for one in told if isinstance(told, list) else ():
            match one:
                case [str(run), int(seq)]:
                    yield run, seq
                case _:
                    continue
