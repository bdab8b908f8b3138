"""Named tokens: the name of a caller, and what a role allows (contract I13).

Rules of this file:
- Settings hold a token's digest, never the token. A token is 32 random bytes, so that its digest tells nothing of it.
- `act` and `approve` include `read`; `admin` includes all.
"""

from __future__ import annotations

import getpass
import hmac
import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from hashlib import sha256

from rerail.kernel.actor import Actor, Proof
from rerail.settings.tables import TokenTable

INCLUDED = {"act": ("read",), "approve": ("read",), "admin": ("read", "act", "approve", "events")}


@dataclass(frozen=True, slots=True)
class Principal:
    """A caller: the name of its token and the roles; without a name the caller gives one."""

    name: str = ""
    roles: tuple[str, ...] = ("admin",)

    def may(self, role: str) -> bool:
        """Return True if a role of the caller allows this."""
        return any(role == one or role in INCLUDED.get(one, ()) for one in self.roles)

    def actor(self, via: str) -> Actor:
        """Return how its commands are recorded."""
        return Actor(via, Proof.TOKEN, self.roles) if self.name else Actor(via)


ANYONE = Principal()  # a caller of a server without tokens, or with the one token of its settings


def new_token() -> tuple[str, str]:
    """Return a token and its digest."""
    token = f"rrl_{secrets.token_urlsafe(32)}"
    return token, digest_of(token)


def digest_of(token: str) -> str:
    """Return what settings hold of a token."""
    return f"sha256:{sha256(token.encode('utf-8', 'surrogateescape')).hexdigest()}"


def named(tokens: Mapping[str, TokenTable], said: str, now: float) -> Principal | None:
    """Return the caller with this token, if it has not expired; the comparison takes constant time."""
    given, found = digest_of(said), None
    for name, row in tokens.items():
        if hmac.compare_digest(given, row.digest) and not is_over(row, now):
            found = Principal(name, tuple(row.roles))
    return found if said else None


def is_over(row: TokenTable, now: float) -> bool:
    """Return True if a token has expired; a date alone is its beginning, in UTC."""
    if not row.expires:
        return False
    until = datetime.fromisoformat(row.expires)
    return now >= (until if until.tzinfo else until.replace(tzinfo=UTC)).timestamp()


def of_environment(tokens: Mapping[str, TokenTable], now: float, via: str) -> tuple[str, Actor]:
    """Return the name and the actor of a program with `RERAIL_TOKEN` in its environment; "" without a known one."""
    found = named(tokens, os.environ.get("RERAIL_TOKEN", ""), now)
    return (found.name, found.actor(via)) if found is not None else ("", Actor(via))


@cache
def user_name() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):
        return "unknown"
