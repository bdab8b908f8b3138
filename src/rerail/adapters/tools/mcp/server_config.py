"""Declarations of MCP servers in the settings, and their connection errors."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal
from urllib.parse import urlsplit

from rerail.adapters.tools.templates import text_of
from rerail.errors import SettingsError, ToolError
from rerail.i18n import one_by_one, tell
from rerail.plan.step import Effect
from rerail.plan.tool_spec import ERRORS, Errors
from rerail.values.json_values import SchemaFault
from rerail.values.schema import Schema

HIDDEN: Final = "•••"
KEY_META: Final = "rerail/idempotency-key"  # in `_meta` of a call: equal for a repeated call (contract E2)
_VARIABLE: Final = re.compile(r"\$\{env:([^}]*)\}")


class NotConnected(ToolError):
    """The server could not be started or reached, so no request was sent and there is no effect."""

    lost = False


class AnswerLost(ToolError):
    """The connection ended in the middle of a call, or the answer is unreadable: the effect is unknown."""

    lost, ended, unanswered = True, False, True


@dataclass(frozen=True, slots=True)
class McpServer:
    """An MCP server: a command or an address, and the user's word on its tools."""

    name: str
    command: str = ""
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    cwd: str | None = None
    url: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    timeout: float | None = None
    effects: Mapping[str, Effect] = field(default_factory=dict)
    tools: tuple[str, ...] | None = None
    prefix: str = ""
    parse: Literal["text", "json"] = "text"
    errors: Errors = ""  # "not_done": an error answer of its tools means that nothing happened
    idempotent_for: float | None = None  # seconds for which it remembers the key that each call carries

    @property
    def place(self) -> str:
        """Return the server's location without possible secrets in an address."""
        if self.command:
            return self.command
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}" + ("?…" if parts.query else "")

    def resolved(self, environ: Mapping[str, str]) -> McpServer:
        """Return the server with every `${env:NAME}` replaced by that variable's value."""

        def look(match: re.Match[str]) -> str:
            if match[1] not in environ:
                raise NotConnected(tell("error.mcp.no_variable", name=self.name, variable=match[1]), "SERVER_MISSING")
            return environ[match[1]]

        def filled(text: str) -> str:
            return _VARIABLE.sub(look, text)

        return replace(
            self,
            args=tuple(map(filled, self.args)),
            env={key: filled(value) for key, value in self.env.items()},
            url=filled(self.url),
            headers={key: filled(value) for key, value in self.headers.items()},
        )


_TEXT: Final = {"type": "string"}
_TEXTS: Final = {"type": "array", "items": _TEXT}

_KEYS: Final[Mapping[str, Any]] = {
    "command": {"type": "string", "minLength": 1},
    "args": _TEXTS,
    "env": {"type": "object", "additionalProperties": {"type": ["string", "number", "boolean"]}},
    "cwd": _TEXT,
    "url": {"type": "string", "pattern": "^https?://"},
    "headers": {"type": "object", "additionalProperties": _TEXT},
    "timeout": {"type": "number", "exclusiveMinimum": 0},
    "effects": {"type": "object", "additionalProperties": {"enum": [str(effect) for effect in Effect]}},
    "tools": _TEXTS,
    "prefix": _TEXT,
    "parse": {"enum": ["text", "json"]},
    "errors": {"enum": list(ERRORS)},
    "idempotent_for": {"type": "number", "exclusiveMinimum": 0},
}

_RULES: Final = Schema({"type": "object", "properties": _KEYS, "additionalProperties": False}, noun="key")

_SECRET: Final = {
    "args": tell("mcp.kind.texts"),
    "env": tell("mcp.kind.names_to_values"),
    "url": tell("mcp.kind.address"),
    "headers": tell("mcp.kind.names_to_texts"),
}

_OF_COMMAND: Final = ("args", "env", "cwd")
_PLAIN: Final = ("command", "cwd", "url", "timeout", "prefix", "parse", "errors", "idempotent_for")


def server_from(name: str, data: Any, label: str = "") -> McpServer:
    """Parse a server's mapping; SettingsError names every mistake in it with its place."""
    label = label or f"mcp.servers.{name}"
    if not isinstance(data, Mapping):
        raise SettingsError(tell("refuse.mcp.no_mapping", label=label, name=type(data).__name__))
    if faults := _RULES.faults(dict(data)):
        raise SettingsError(tell("refuse.mcp.faulty", label=label, fault=one_by_one(map(_fault, faults))))
    if ("command" in data) is ("url" in data):
        both = tell("mcp.not_both") if "url" in data else tell("mcp.one_needed")
        raise SettingsError(tell("refuse.mcp.command_or_url", label=label, both=both))
    if odd := next((key for key in data if key in (_OF_COMMAND if "url" in data else ("headers",))), None):
        told = tell("refuse.mcp.goes_with", label=label, odd=odd, value="command" if "url" in data else "url")
        raise SettingsError(told)
    return McpServer(
        name,
        **{key: data[key] for key in _PLAIN if key in data},
        args=tuple(data.get("args", ())),
        env={key: text_of(value) for key, value in data.get("env", {}).items()},
        headers=dict(data.get("headers", {})),
        effects={key: Effect(value) for key, value in data.get("effects", {}).items()},
        tools=tuple(data["tools"]) if "tools" in data else None,
    )


def _fault(fault: SchemaFault) -> str:
    """Describe a mistake; a value that could be a secret is not repeated."""
    key = str(fault.path[0]) if fault.path else ""
    return tell("mcp.expected", key=key, expected=_SECRET[key]) if key in _SECRET else fault.said


def discreet(servers: Mapping[str, Any]) -> dict[str, Any]:
    """Return declared servers for display: possible secrets are redacted, names of variables are not."""
    return {name: _discreet(data) if isinstance(data, Mapping) else HIDDEN for name, data in servers.items()}


def _discreet(data: Mapping[str, Any]) -> dict[str, Any]:
    shown = dict(data)
    for key in ("env", "headers"):
        if isinstance(shown.get(key), Mapping):
            shown[key] = {name: _hidden(value) for name, value in shown[key].items()}
    if isinstance(shown.get("url"), str):
        shown["url"] = McpServer("", url=shown["url"]).place
    return shown


def _hidden(value: Any) -> str:
    """Redact the text around the names of variables."""
    text = str(value)
    return text if _VARIABLE.fullmatch(text) else "".join([HIDDEN, *(match[0] for match in _VARIABLE.finditer(text))])


def missing_extra(error: ModuleNotFoundError) -> ModuleNotFoundError | SettingsError:
    """Return the error of a missing module; for the extra's modules, how to install it."""
    if (error.name or "").partition(".")[0] not in ("mcp", "mcp_types", "httpx2"):
        return error
    return SettingsError(tell("refuse.mcp.no_extra"), hint=tell("hint.mcp.no_extra"))
