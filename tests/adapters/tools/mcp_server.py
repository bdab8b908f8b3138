"""A small MCP server for tests: python mcp_server.py [--http PORT] [--die-at-start] [--stubborn].

Its tools note what they do in the file that MCP_NOTES names, so that a test can tell what really happened.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.shared.exceptions import MCPError
from mcp_types import CallToolResult, ImageContent, TextContent, ToolAnnotations

server = MCPServer("test server", log_level="CRITICAL")
READ = ToolAnnotations(read_only_hint=True)
REPEATABLE = ToolAnnotations(idempotent_hint=True)


def note(text: str) -> None:
    """Say what happened."""
    with Path(os.environ["MCP_NOTES"]).open("a") as file:
        file.write(text + "\n")


@server.tool(annotations=READ, structured_output=False)
def echo(text: str, count: int = 1) -> str:
    """Say a text back."""
    note(f"echo {text}")
    return text * count


@server.tool(annotations=READ)
def add(a: int, b: int) -> dict[str, int]:
    """Add two numbers."""
    return {"sum": a + b}


@server.tool(annotations=READ, structured_output=False)
def pid() -> str:
    """The process behind the server."""
    return str(os.getpid())


@server.tool(annotations=READ, structured_output=False)
def secret() -> str:
    """What the environment holds."""
    return os.environ.get("MCP_SECRET", "nothing")


@server.tool(annotations=REPEATABLE, structured_output=False)
def put(value: str) -> str:
    """Do something that may be done again."""
    note(f"put {value}")
    return "done"


@server.tool(structured_output=False)
async def send(to: str, seconds: float = 0.0) -> str:
    """Do something that must not happen twice, and take a while to say so."""
    note(f"send {to}")
    await asyncio.sleep(seconds)
    return f"sent to {to}"


@server.tool(annotations=READ, structured_output=False)
async def slow(seconds: float) -> str:
    """Take a while; says whether it was cancelled."""
    note("slow begins")
    try:
        await asyncio.sleep(seconds)
    except asyncio.CancelledError:
        note("slow was cancelled")
        raise
    return "at last"


@server.tool(annotations=READ, structured_output=False)
async def steps(ctx: Context[Any, Any]) -> str:
    """Report progress."""
    await ctx.report_progress(1, 4, "a quarter")
    await ctx.report_progress(3, None, "no total")
    return "done"


@server.tool(annotations=READ, structured_output=False)
def fails(message: str) -> str:
    """Fail with a message."""
    raise ToolError(message)


@server.tool(annotations=READ, structured_output=False)
def refuses(code: int, message: str) -> str:
    """Fail with an error of the protocol."""
    raise MCPError(code, message)


@server.tool(annotations=READ, structured_output=False)
def dies() -> str:
    """End the server in the middle of the call."""
    note("dies")
    os.write(2, b"I am dying\n")
    os.kill(os.getpid(), signal.SIGKILL)
    return "never said"


@server.tool(annotations=READ, structured_output=False)
def parts(kind: str) -> CallToolResult:
    """Answer in several parts."""
    text = TextContent(type="text", text='{"a": [1]}')
    image = ImageContent(type="image", data="aGk=", mime_type="image/png")
    return CallToolResult(content={"none": [], "two": [text, image], "image": [image], "json": [text]}[kind])


@server.tool(annotations=READ, structured_output=False)
def spawns() -> str:
    """Start a process that would outlive the server."""
    return str(subprocess.Popen(["sleep", "300"]).pid)


def main() -> None:
    """Serve on stdio, or on a port."""
    if "--die-at-start" in sys.argv:
        sys.exit("cannot start: the licence is missing")
    if "--stubborn" in sys.argv:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if "--http" in sys.argv:
        server.run("streamable-http", port=int(sys.argv[sys.argv.index("--http") + 1]))
    else:
        server.run()
    if "--stubborn" in sys.argv:
        signal.pause()


if __name__ == "__main__":
    main()
