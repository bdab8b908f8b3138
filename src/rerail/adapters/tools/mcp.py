"""Tools of MCP servers (SPEC M2): what a server is, and what becomes of its tools.

Rules of this file:
- Nothing of the SDK is imported until a server is opened: the `mcp` extra is only needed by those who name servers.
- A tool keeps the server's own name, with the server's `prefix` before it. Two tools of one name are refused, as
  everywhere: a name that changed when another server came would silently change what a plan means.
- A server is believed about its tools' effects unless the user says otherwise; a tool about which it says nothing
  may not be called twice.
- Secrets are named, not written: `${env:NAME}` is looked up when the server is started, and is all that is ever shown.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, Literal, NoReturn
from urllib.parse import urlsplit

from rerail.adapters.tools.specs import Looks, digest, make_spec, unknown
from rerail.adapters.tools.templates import text_of
from rerail.context import Context
from rerail.core.outcome import ERRORS
from rerail.core.plan import Effect
from rerail.core.schema import Fault, Schema, readable
from rerail.errors import RerailError, SettingsError, ToolError
from rerail.i18n import one_by_one, tell

if TYPE_CHECKING:
    import mcp_types as types

    from rerail.adapters.tools.mcp_client import Connection

HIDDEN: Final = "•••"
KEY_META: Final = "rerail/idempotency-key"  # of `_meta` of a call: the same when the same call is made again (E2)
_VARIABLE: Final = re.compile(r"\$\{env:([^}]*)\}")


class NotConnected(ToolError):
    """The server could not be started or reached, so nothing was sent and nothing can have happened."""

    lost = False


class AnswerLost(ToolError):
    """The connection ended in the middle of a call, or the answer is unreadable: what the call did is not known."""

    lost, ended, unanswered = True, False, True


class McpToolFailed(ToolError):
    """The tool answered, and its answer is an error: servers make one of an exception after the effect, too."""

    lost = True


# --- Servers -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class McpServer:
    """An MCP server: a command to start or an address to talk to, and what the user says about its tools."""

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
    errors: str = ""  # "not_done": whatever its tools answer as an error, nothing happened
    idempotent_for: float | None = None  # seconds for which it remembers the key that each call carries

    @property
    def place(self) -> str:
        """Where it is, without what may be secret in an address."""
        if self.command:
            return self.command
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}" + ("?…" if parts.query else "")

    def resolved(self, environ: Mapping[str, str]) -> McpServer:
        """The same server with every `${env:NAME}` replaced by that variable's value."""

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
    """The server that a mapping declares; SettingsError names every mistake in it, and where it stands."""
    label = label or f"mcp.servers.{name}"
    if not isinstance(data, Mapping):
        raise SettingsError(tell("refuse.mcp.no_mapping", label=label, name=type(data).__name__))
    if faults := _RULES.faults(dict(data)):
        raise SettingsError(tell("refuse.mcp.faulty", label=label, fault=one_by_one(map(_fault, faults))))
    if ("command" in data) is ("url" in data):
        both = tell("mcp.not_both") if "url" in data else tell("mcp.one_needed")
        raise SettingsError(tell("refuse.mcp.command_or_url", label=label, both=both))
    if odd := next((key for key in data if key in (_OF_COMMAND if "url" in data else ("headers",))), None):
        raise SettingsError(
            tell("refuse.mcp.goes_with", label=label, odd=odd, value="command" if "url" in data else "url")
        )
    return McpServer(
        name,
        **{key: data[key] for key in _PLAIN if key in data},
        args=tuple(data.get("args", ())),
        env={key: text_of(value) for key, value in data.get("env", {}).items()},
        headers=dict(data.get("headers", {})),
        effects={key: Effect(value) for key, value in data.get("effects", {}).items()},
        tools=tuple(data["tools"]) if "tools" in data else None,
    )


def _fault(fault: Fault) -> str:
    """A mistake in words; a value that could be a secret is not repeated."""
    key = str(fault.path[0]) if fault.path else ""
    return tell("mcp.expected", key=key, expected=_SECRET[key]) if key in _SECRET else fault.said


def discreet(servers: Mapping[str, Any]) -> dict[str, Any]:
    """Declared servers as they may be shown: what could be a secret is hidden, names of variables are not."""
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
    """Only what stands around the names of variables is hidden."""
    text = str(value)
    return text if _VARIABLE.fullmatch(text) else "".join([HIDDEN, *(match[0] for match in _VARIABLE.finditer(text))])


# --- Tools ---------------------------------------------------------------------------------------------------------


class McpTool(Looks):
    """A tool of an MCP server that plans can call."""

    is_async = False  # something outside of the event loop is at work
    wants_context = True  # progress goes there
    stays = True  # its server was started here, or is known here only

    def __init__(self, connection: Connection, tool: types.Tool) -> None:
        """Take over what the server says of its tool, and what the user says about it."""
        server = connection.server
        name = server.prefix + tool.name
        super().__init__(name, {})
        self._connection, self._theirs, self._parse = connection, tool.name, server.parse
        # What cannot be read here is left to the server to check: its tool may still be of use.
        self.spec = make_spec(
            name,
            readable(tool.input_schema),
            server.effects.get(tool.name) or _effect(tool.annotations),
            [server.name, tool.name, digest(tool.output_schema)],
            {
                "description": tool.description or tool.title or "",
                "provider": server.name,
                "timeout": server.timeout,
                "errors": server.errors,
                "idempotent_for": server.idempotent_for,
                "fenced": True,
            },
            runs="request",
            keyed=True,
            fenced=True,
        )

    def __repr__(self) -> str:
        return f"<tool {self.spec.name} of MCP server {self._connection.server.name}>"

    async def call(self, args: dict[str, Any], ctx: Any = None) -> Any:
        """Ask the server; cancelling cancels the request there."""

        async def tell(progress: float, total: float | None, message: str | None) -> None:
            if ctx is not None:
                ctx.progress(progress / total if total else None, message or "")

        meta: Any = {KEY_META: ctx.key} if ctx is not None and ctx.key and self.spec.effect is not Effect.READ else None
        fence = ctx.ensure_owner if isinstance(ctx, Context) else None
        return output_of(await self._connection.call(self._theirs, args, tell, meta, fence), self._parse)


def _effect(annotations: types.ToolAnnotations | None) -> Effect:
    if annotations is not None and annotations.read_only_hint:
        return Effect.READ
    return Effect.REPEATABLE if annotations is not None and annotations.idempotent_hint else Effect.ONCE


def output_of(result: types.CallToolResult, parse: Literal["text", "json"] = "text") -> Any:
    """A result as plain data; `McpToolFailed` if it is an error.

    Structured content as it is, else the content: one text is that text, nothing is None, anything else a list of
    texts and of parts (images, resources) as MCP writes them. A text stays a text, unless the user says it is JSON.
    """
    if result.is_error:
        texts = [block.text for block in result.content if block.type == "text"]
        raise McpToolFailed("\n".join(texts).strip() or json.dumps(result.structured_content, ensure_ascii=False))
    if result.structured_content is not None:
        return result.structured_content
    parts = [_part(block, parse) for block in result.content]
    return parts[0] if len(parts) == 1 and result.content[0].type == "text" else parts or None


def _part(block: types.ContentBlock, parse: str) -> Any:
    if block.type == "text":
        return _parsed(block.text) if parse == "json" else block.text
    return block.model_dump(by_alias=True, mode="json", exclude_none=True)


def _parsed(text: str) -> Any:
    """JSON objects and lists are read; a text that merely looks like a number or a boolean stays a text."""
    if not text.lstrip().startswith(("{", "[")):
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


# --- All servers of an engine --------------------------------------------------------------------------------------


class McpServers:
    """The servers of one engine, by name; they live as long as it is open."""

    def __init__(self) -> None:
        self._connections: dict[str, Connection] = {}

    async def open(self, servers: Iterable[McpServer]) -> list[McpTool]:
        """Connect to servers, all at once, and list their tools; `RerailError` names one that cannot be reached."""
        make = _connection()
        opening = {server.name: make(server) for server in servers}
        self._connections.update(opening)
        tasks = [asyncio.ensure_future(_listed(connection)) for connection in opening.values()]
        try:
            return [tool for tools in await asyncio.gather(*tasks) for tool in tools]
        except BaseException:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self.close(opening)
            raise

    async def close(self, names: Iterable[str] | None = None) -> None:
        """Let go of these servers, or of all."""
        closing = [self._connections.pop(name) for name in list(self._connections if names is None else names)]
        await asyncio.gather(*(connection.close() for connection in closing))


def _connection() -> type[Connection]:
    try:
        from rerail.adapters.tools.mcp_client import Connection
    except ModuleNotFoundError as error:
        raise missing_extra(error) from error
    return Connection


def missing_extra(error: ModuleNotFoundError) -> ModuleNotFoundError | SettingsError:
    """What to tell about a module that is not there: how to get it, if it belongs to the extra."""
    if (error.name or "").partition(".")[0] not in ("mcp", "mcp_types", "httpx2"):
        return error
    return SettingsError(tell("refuse.mcp.no_extra"), hint=tell("hint.mcp.no_extra"))


async def _listed(connection: Connection) -> list[McpTool]:
    server = connection.server
    try:
        offered = await connection.tools()
    except ToolError as error:
        _refuse(server, error)
    names = [tool.name for tool in offered]
    for word in (*(server.tools or ()), *server.effects):
        if word not in names:
            raise SettingsError(
                tell("refuse.mcp.no_such_tool", name=server.name, word=word, unknown=unknown(word, names))
            )
    return [McpTool(connection, tool) for tool in offered if server.tools is None or tool.name in server.tools]


def _refuse(server: McpServer, error: ToolError) -> NoReturn:
    missing = error.code == "SERVER_MISSING"
    what = "hint.mcp.mend" if missing else "hint.mcp.start_or_mend"
    hint = tell(what, server=server.name)
    kind = SettingsError if missing else RerailError
    raise kind(error.message, "SETTINGS_INVALID" if missing else "SERVER_UNREACHABLE", hint=hint) from error
