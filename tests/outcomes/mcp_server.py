"""An MCP server whose tool ends its first call in a chosen way: python -m tests.outcomes.mcp_server [--http PORT]."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any

from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.shared.exceptions import MCPError
from mcp_types import CallToolResult, TextContent, ToolAnnotations
from tests.outcomes.endings import LONG, Book

server = MCPServer("endings", log_level="CRITICAL")

CODES = {
    "internal error": (-32603, "odd"),
    "invalid params": (-32602, "bad x"),
    "unknown tool": (-32602, "Unknown tool: act"),
    "code of ours -32090": (-32090, "odd"),
    "code of ours -32091": (-32091, "odd"),
    "code of ours -32092": (-32092, "odd"),
}


def said(text: str, *, failed: bool = False, structured: Any = None) -> CallToolResult:
    """An answer of one text."""
    return CallToolResult(content=[TextContent(type="text", text=text)], is_error=failed, structured_content=structured)


@server.tool(structured_output=False)
async def act(way: str, ledger: str) -> CallToolResult:
    """End the first call in that way; act and answer in every other."""
    book = Book(ledger)
    if book.call() > 1 or way == "answered":
        book.act()
        return said("done", structured={"id": 1})
    if way not in ("isError before", "invalid params", "unknown tool"):
        book.act()
    match way:
        case "isError" | "isError before":
            raise ToolError("no")
        case "isError of an exception":
            raise RuntimeError("after the effect")
        case "success false":
            return said("x", structured={"success": False})
        case "error text":
            return said("Error: connection refused")
        case "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        case "timeout":
            await asyncio.sleep(LONG)
        case _:
            code, message = CODES[way]
            raise MCPError(code, message, {"status": 404})
    return said("late")


def meta_of(ctx: Context[Any, Any]) -> dict[str, Any]:
    """What came with the call, beside its arguments."""
    meta: Any = ctx.request_context.meta
    return dict(meta) if isinstance(meta, dict) else {} if meta is None else meta.model_dump(by_alias=True)


@server.tool(structured_output=False)
def keyed(ctx: Context[Any, Any]) -> CallToolResult:
    """Say what came with the call; nothing about its effect is known."""
    return said("x", structured={"meta": meta_of(ctx)})


@server.tool(structured_output=False, annotations=ToolAnnotations(read_only_hint=True))
def keyed_read(ctx: Context[Any, Any]) -> CallToolResult:
    """Say what came with the call, which only reads."""
    return said("x", structured={"meta": meta_of(ctx)})


@server.tool(structured_output=False)
def book_once(ledger: str, ctx: Context[Any, Any]) -> CallToolResult:
    """Book under the call's key, and end before the first answer."""
    book = Book(ledger)
    number = book.call()
    file = Path(ledger) / f"key-{meta_of(ctx).get('rerail/idempotency-key', 'none')}"
    if not file.exists():
        file.touch()
        book.act()
    if number == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return said("booked", structured={"booked": True})


if __name__ == "__main__":
    if "--http" in sys.argv:
        server.run("streamable-http", port=int(sys.argv[sys.argv.index("--http") + 1]))
    else:
        server.run()
