"""Named tokens and their roles, and the audit of runs (contract I13)."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from rich.text import Text

from rerail.cli.commands.store import seconds_of
from rerail.cli.options import FLAG, PLAIN, Common, Flag, Out
from rerail.cli.output import Output, clean
from rerail.cli.session import Session
from rerail.cli.style import moment
from rerail.errors import Refused
from rerail.i18n import tell
from rerail.settings.loading import found_file
from rerail.settings.principals import is_over, new_token
from rerail.settings.tables import TokenTable
from rerail.workspace import write_whole

Role = Literal["read", "act", "approve", "events", "admin"]


async def token(
    do: Literal["list", "add", "revoke"] = "list",
    name: str | None = None,
    /,
    *,
    role: Annotated[tuple[Role, ...], FLAG] = (),
    expires: str | None = None,
    common: Common = PLAIN,
    out: Out,
) -> int:
    """List the named tokens of rerail.toml, add one, or revoke one."""
    session = Session(common, out)
    tokens = session.settings.server.tokens
    if do == "list":
        return _listed(out, tokens)
    if name is None or not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", name):
        return out.usage(out.say("cli.token.name"), "rerail token add ops --role approve")
    file = found_file() or Path("rerail.toml")
    text = file.read_text("utf-8") if file.exists() else ""
    if do == "revoke":
        if name not in tokens:
            raise Refused(tell("cli.token.unknown", name=name), "USAGE", hint="rerail token")
        _write(file, _without(text, name))
        told = out.say("cli.token.revoked", name=name, file=file)
        return out.done({"revoked": name, "file": str(file)}, told, "rerail token")
    if name in tokens:
        raise Refused(tell("cli.token.known", name=name), "USAGE", hint=f"rerail token revoke {name}")
    said, digest = new_token()
    roles, until = role or ("read",), _until(expires)
    lines = [f"[server.tokens.{_key(name)}]", f'digest = "{digest}"', f"roles = {msgspec.json.encode(roles).decode()}"]
    lines += [f'expires = "{until}"'] if until else []
    gap = "" if not text or text.endswith("\n\n") else "\n" if text.endswith("\n") else "\n\n"
    _write(file, text + gap + "\n".join(lines) + "\n")
    if out.json:
        out.document({"name": name, "token": said, "roles": list(roles), "expires": until, "file": str(file)})
        return 0
    out.note(Text(out.say("cli.token.added", name=name, file=file)))
    out.print(said)
    return 0


def _listed(out: Output, tokens: Mapping[str, TokenTable]) -> int:
    now = time.time()
    rows = [{"name": name, **msgspec.to_builtins(row), "expired": is_over(row, now)} for name, row in tokens.items()]
    if out.json:
        out.document(rows)
    elif not rows:
        out.print(out.say("cli.token.none"))
    else:
        cells = [[Text(one["name"]), Text(", ".join(one["roles"])), Text(one["expires"] or "-")] for one in rows]
        out.print(*out.listing(("name", "roles", "expires"), cells))
    return 0


def _until(expires: str | None) -> str | None:
    if expires is None:
        return None
    return datetime.fromtimestamp(time.time() + seconds_of(expires), UTC).isoformat("T", "seconds")


def _key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else f'"{name}"'


def _without(text: str, name: str) -> str:
    """Return a settings file without a token's table; everything else stays as it is written."""
    head = re.escape(f"[server.tokens.{_key(name)}]")
    return re.sub(rf"(?ms)^[ \t]*{head}[ \t]*(?:#[^\n]*)?\n.*?(?=^[ \t]*\[|\Z)", "", text)


def _write(file: Path, text: str) -> None:
    mode = file.stat().st_mode & 0o777 if file.exists() else 0o600
    write_whole(file.absolute(), text.encode())
    os.chmod(file, mode)


async def audit(
    run: str | None = None,
    /,
    *,
    since: str | None = None,
    by: str | None = None,
    refused: Flag = False,
    common: Common = PLAIN,
    out: Out,
) -> int:
    """Show the acts of people and agents: starts, commands, approvals, refusals."""
    session = Session(common, out)
    session.require_store()
    earliest = time.time() - seconds_of(since) if since is not None else 0.0
    async with session.engine(run=run) as engine:
        rows = await engine.internals.audit_trail(run, since=earliest, by=by, refused=refused)
    if out.json:
        out.document([row.to_dict() for row in rows])
        return 0
    if not rows:
        out.print(out.say("cli.audit.none"))
        return 0
    cells = [
        [
            Text(moment(row.at)), Text(clean(row.by or "-")), Text(out.say(f"audit.proof.{row.proof or 'claimed'}")),
            Text(row.via or "-"), Text(row.action, "red" if row.refused else ""), Text(row.run),
            Text(clean(row.step or row.name or "-")), Text(row.outcome or "-"),
        ]
        for row in rows
    ]  # fmt: skip
    out.print(*out.listing(("time", "by", "proof", "via", "action", "run", "step", "outcome"), cells))
    return 0
