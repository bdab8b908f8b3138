"""What nobody may see: the values that settings, tools and the environment mark as secret.

Rules of this file:
- A setting is secret by its name, a header always, and of an address its password; a variable of the environment by a
  pattern of `secrets.env`, or because a tool, a model or an MCP server names it.
- What only stands for a secret (`${env:NAME}`, `{env.NAME}`) is none.
- Nor is a plain word that a pattern or an address brings along (`POSTGRES_PASSWORD=postgres`): it guards nothing, and
  plans that speak of Postgres would be refused. Whoever means it names the variable.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from rerail.core.tools import ToolSpec
from rerail.settings import ROLES, SECRET_NAME, Settings

_VARIABLE: Final = re.compile(r"\$\{env:([^}]*)\}")
LONGEST_WORD: Final = 12  # letters; nobody draws a key that is shorter and has nothing else in it


def secrets_of(settings: Settings, specs: Iterable[ToolSpec], environ: Mapping[str, str]) -> dict[str, str]:
    """Every secret value, with the name by which to speak of it."""
    table = settings.model
    named = {
        *(name for name in environ if not _is_word(environ[name]) and _fits(name, settings.secrets.env)),
        *(name for spec in specs for name in spec.secrets),
        *(one.key_env for one in (table, *(getattr(table, role) for role in ROLES)) if one.key_env),
    }
    found = {environ[name]: name for name in sorted(named) if environ.get(name)}
    found |= _in_servers(settings.mcp.servers, environ)
    for name, value in _marked("", msgspec.to_builtins(settings)):
        found.setdefault(value, name)
    return found


def _fits(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, one) for one in patterns)


def _is_word(value: str) -> bool:
    return value.isalpha() and len(value) < LONGEST_WORD and value in (value.lower(), value.upper(), value.title())


def _in_servers(servers: Mapping[str, Any], environ: Mapping[str, str]) -> dict[str, str]:
    """The values of the variables that MCP servers are given."""
    names = set(_VARIABLE.findall(str(msgspec.to_builtins(servers))))
    return {environ[name]: name for name in sorted(names) if environ.get(name)}


def _marked(name: str, value: Any) -> Iterator[tuple[str, str]]:
    match value:
        case dict():
            for key, item in value.items():
                yield from _marked(f"{name}.{key}" if name else str(key), item)
        case list() if name != "secrets.env":
            for item in value:
                yield from _marked(name, item)
        case str() if "{" not in value:
            yield from ((name, one) for one in _secret_parts(name, value))
        case _:
            pass


def _secret_parts(name: str, value: str) -> Iterator[str]:
    table, _, last = name.rpartition(".")
    if SECRET_NAME.search(last):
        yield value
    elif table.rpartition(".")[2] == "headers":
        yield value
        yield value.rpartition(" ")[2]  # "Bearer …"
    elif name == "notify.webhook":
        yield value.partition("://")[2].partition("/")[2]  # whoever knows it may write there
    elif "://" in value:
        try:
            password = urlsplit(value).password or ""
        except ValueError:  # no address after all
            return
        if not _is_word(password):
            yield password
