"""A connection to Postgres that gives up on a server which does not answer, and commits as safely as was asked for.

Rules of this file:
- Silence is counted, not time: a large answer may take as long as it likes while some of it arrives.
- What the address says about a connection stays; the rest is chosen here.
- How safe a commit is, is said to the server: a role's or a database's `synchronous_commit` must not weaken it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeVar

import psycopg
from psycopg.conninfo import conninfo_to_dict
from psycopg.rows import TupleRow

from rerail.i18n import Told, tell

RV = TypeVar("RV")

CONNECT_SECONDS: Final = 5
ANSWER_SECONDS: Final = 15.0  # a server that says nothing for so long, asked something, is given up
LONG_SECONDS: Final = 600.0  # the same for what has to look at everything there is
# So a machine that is gone is noticed, also while nobody asks it anything (in seconds, the last in milliseconds).
ALIVE: Final = {
    "keepalives": 1, "keepalives_idle": 10, "keepalives_interval": 5, "keepalives_count": 3, "tcp_user_timeout": 20_000,
}  # fmt: skip


class Link(psycopg.AsyncConnection[TupleRow]):
    """A connection that is closed once its server has been silent for too long."""

    patience = ANSWER_SECONDS

    async def wait(self, gen: Any, *args: Any, **options: Any) -> Any:
        """Wait for the server, as long as it is heard."""
        return await super().wait(self._heard(gen), *args, **options)

    def _heard(self, gen: Generator[Any, Any, RV]) -> Generator[Any, Any, RV]:
        """The same conversation; it ends where the other side has been silent for too long."""
        now = asyncio.get_running_loop().time
        last = now()
        try:
            wanted = next(gen)
            while True:
                ready = yield wanted
                if ready:
                    last = now()
                elif now() - last > self.patience:
                    self.pgconn.finish()  # what it was about to say belongs to nobody any more
                    raise psycopg.OperationalError(tell("reason.store.silent", seconds=round(self.patience, 1)))
                wanted = gen.send(ready)
        except StopIteration as done:
            value: RV = done.value
            return value

    @contextmanager
    def patient(self, seconds: float) -> Iterator[None]:
        """Let it take longer for a while."""
        before, self.patience = self.patience, max(seconds, self.patience)
        try:
            yield
        finally:
            self.patience = before


def options(url: str) -> dict[str, Any]:
    """What a connection is made with, where its address says nothing else."""
    said = conninfo_to_dict(url)
    chosen = {"connect_timeout": CONNECT_SECONDS, **ALIVE}
    return {"autocommit": True, **{name: value for name, value in chosen.items() if name not in said}}


async def begin(link: Link, durability: str) -> None:
    """Make a new connection one of ours: commits that hold, and statements that see what was written before them."""
    await link.execute("SET default_transaction_isolation = 'read committed'")
    if durability == "full":
        # Every value but this one waits until the server's own disk has the commit.
        await link.execute(
            "SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'"
        )


async def caveats(link: Link, where: str) -> list[Told]:
    """What the server's own settings can lose, whatever is asked of it."""
    found = await (
        await link.execute(
            "SELECT name FROM pg_settings WHERE name IN ('fsync', 'full_page_writes') AND setting = 'off'"
        )
    ).fetchall()
    return [tell("warn.store.pg_unsafe", where=where, name=name) for (name,) in found]
