"""Tools of MCP servers (contract M2).

Rules of this file:
- The SDK is imported only when a server is opened: the `mcp` extra is needed only by settings that name servers.
- A tool keeps the server's own name behind the server's `prefix`. Two tools of one name are refused, as everywhere: a
  name that changed with another server would silently change the meaning of a plan.
- A server's word on its tools' effects counts unless the user overrides it; without either, a tool counts as `once`.
- Secrets are named, not written: `${env:NAME}` is looked up at the server's start, and only the name is shown.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Literal, NoReturn

from rerail.adapters.tools.spec import Looks, digest, make_spec, unknown
from rerail.context import Context
from rerail.errors import RerailError, SettingsError, ToolError
from rerail.i18n import tell
from rerail.plan.step import Effect
from rerail.values.schema import readable

if TYPE_CHECKING:
    import mcp_types as types

    from rerail.adapters.tools.mcp.client import Connection
from rerail.adapters.tools.mcp.server_config import KEY_META, McpServer, missing_extra


class McpToolFailed(ToolError):
    """The tool answered with an error: servers also make one of an exception after the effect."""

    lost = True


# --- Tools ---------------------------------------------------------------------------------------------------------


class McpTool(Looks):
    """A tool of an MCP server that plans can call."""

    is_async = False  # another program does the work, outside of the event loop
    wants_context = True  # for progress
    stays = True  # its server was started here, or is known here only

    def __init__(self, connection: Connection, tool: types.Tool) -> None:
        """Merge the server's description of its tool with the user's."""
        server = connection.server
        name = server.prefix + tool.name
        super().__init__(name, {})
        self._connection, self._theirs, self._parse = connection, tool.name, server.parse
        # A schema that cannot be read here is left to the server to check: the tool may still be of use.
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
    """Return a result as plain data; raise `McpToolFailed` if it is an error.

    Structured content is returned as it is. Else one text is that text, an empty content is None, and anything else is
    a list of texts and of parts (images, resources) as MCP writes them. A text stays one unless declared JSON.
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
    """Parse JSON objects and lists; a text that merely looks like a number or a boolean stays a text."""
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
        """Connect to all servers in parallel and list their tools; `RerailError` names an unreachable one."""
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
        """Disconnect from these servers, or from all."""
        closing = [self._connections.pop(name) for name in list(self._connections if names is None else names)]
        await asyncio.gather(*(connection.close() for connection in closing))


def _connection() -> type[Connection]:
    try:
        from rerail.adapters.tools.mcp.client import Connection
    except ModuleNotFoundError as error:
        raise missing_extra(error) from error
    return Connection


async def _listed(connection: Connection) -> list[McpTool]:
    server = connection.server
    try:
        offered = await connection.tools()
    except ToolError as error:
        _refuse(server, error)
    names = [tool.name for tool in offered]
    for word in (*(server.tools or ()), *server.effects):
        if word not in names:
            told = tell("refuse.mcp.no_such_tool", name=server.name, word=word, unknown=unknown(word, names))
            raise SettingsError(told)
    return [McpTool(connection, tool) for tool in offered if server.tools is None or tool.name in server.tools]


def _refuse(server: McpServer, error: ToolError) -> NoReturn:
    missing = error.code == "SERVER_MISSING"
    what = "hint.mcp.mend" if missing else "hint.mcp.start_or_mend"
    hint = tell(what, server=server.name)
    kind = SettingsError if missing else RerailError
    raise kind(error.message, "SETTINGS_INVALID" if missing else "SERVER_UNREACHABLE", hint=hint) from error
