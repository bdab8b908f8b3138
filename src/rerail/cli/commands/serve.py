"""Server commands: serve, for people and their programs; mcp, for agents."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import tempfile
import webbrowser
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias
from urllib.parse import quote

import msgspec
from cyclopts import Parameter
from rich.text import Text

from rerail.adapters.tools.declared import kind_of
from rerail.adapters.tools.mcp.server_config import missing_extra
from rerail.api import Engine
from rerail.cli.options import FLAG, PLAIN, Common, Flag, Out
from rerail.cli.output import Output, clean
from rerail.cli.session import Session
from rerail.errors import RerailError, SettingsError
from rerail.i18n import tell
from rerail.kernel.actor import HTTP, MCP
from rerail.ports import Tool
from rerail.settings.loading import describe

if TYPE_CHECKING:
    from rerail.server.state import ServerState


Answers: TypeAlias = Annotated[tuple[Literal["confirm", "resolve", "skip"], ...], FLAG]


async def mcp(
    *, http: str | None = None, expose: Flag = False, allow: Answers = (), common: Common = PLAIN, out: Out
) -> int:
    """Serve other agents over MCP: they submit plans, watch them, retry them. On stdio, unless told otherwise.

    Plans may only use the tools given here (--tools, rerail.toml). If RERAIL_TOKEN is set, HTTP callers must know it.
    """
    try:
        from rerail.server.http_server import listen
        from rerail.server.mcp.server import claimed, make_server, serve_http, serve_stdio
    except ModuleNotFoundError as error:
        raise missing_extra(error) from error
    if http is not None:
        token = os.environ.get("RERAIL_TOKEN", "")
        with listen(http, expose=expose, guarded=bool(token)) as listening:
            async with Session(common, out).started(via=MCP) as engine:

                def ready(url: str) -> None:
                    out.note(out.say("cli.mcp.serving", url=url))

                await _until_told(serve_http(make_server(engine, allow), listening, token, ready))
        return 0
    with claimed() as wire:  # before the tools are loaded: they may print
        async with Session(common, out).started(via=MCP) as engine:
            await _until_told(serve_stdio(make_server(engine, allow), wire))
    return 0


async def serve(
    address: str | None = None,
    /,
    *,
    expose: Flag = False,
    allow: Annotated[tuple[Literal["shell", "http"], ...], FLAG] = (),
    read_only: Flag = False,
    open_page: Annotated[bool, Parameter(name="--open", negative="", show_default=False)] = False,
    common: Common = PLAIN,
    out: Out,
) -> int:
    """Serve a live page and an HTTP API for the runs of the store."""
    try:
        from rerail.server.app import Files, make_app
        from rerail.server.http_server import is_local, listen, serve_app, url_of
        from rerail.server.state import ServerState
    except ModuleNotFoundError as error:
        raise _no_extra(error) from error
    session = Session(common, out)
    table = session.settings.server
    token = (os.environ.get("RERAIL_TOKEN") or table.token or "").strip()
    host, port = _place(address, "0.0.0.0" if expose else table.host, table.port)  # noqa: S104 - it was asked for
    guarded = bool(token or table.tokens)
    if not is_local(host) and not guarded:
        message = tell("refuse.mcp.exposed", host=host)
        raise RerailError(message, "USAGE", hint=tell("hint.server.exposed"))
    config = describe(session.settings, session.sources)  # as given, before any tool is withheld
    tools, withheld = _offered(session, {*table.allow, *allow})
    shown = f"[{host}]" if ":" in host else host
    with (
        listen(f"{shown}:{port}", expose=True, guarded=guarded) as listening,
        contextlib.ExitStack() as stack,
    ):
        async with session.started(tools, via=HTTP) as engine:
            files = Files()
            server = ServerState(
                engine, table, token, read_only=read_only, withheld=withheld, config=config,
                sources=_sources(session, engine), lang=out.lang,
            )  # fmt: skip
            url = url_of(listening, "/")

            def ready() -> None:
                _announce(out, url, server, built=files.built)
                if open_page:
                    webbrowser.open(_doorway(stack, f"{url}#token={quote(token)}") if token else url)

            app = make_app(server, host, files)

            async def leave() -> None:
                await _leave(engine, session.settings.worker.grace, out)

            if not read_only and (left := await engine.internals.recover(served=True)):
                out.note(out.say("cli.serve.goes_on", count=len(left)))
            await _until_told(serve_app(app, listening, ready, **_WEB_OPTIONS), leave)
    return 0


async def _leave(engine: Engine, seconds: float, out: Output) -> None:
    """Give the calls under way their time to end, and the runs back."""
    if runs := engine.internals.under_way():
        out.note(out.say("cli.work.leaving", count=len(runs), seconds=seconds))
    await engine.internals.hand_over(seconds)


_WEB_OPTIONS: dict[str, Any] = {
    "ws": "websockets-sansio", "ws_max_size": 1_000_000, "ws_per_message_deflate": False, "access_log": False,
    "server_header": False, "proxy_headers": False,
}  # fmt: skip


def _doorway(stack: contextlib.ExitStack, url: str) -> str:
    """Return the address of a file of the user's own that leads on: every user can read a browser's command line."""
    folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="rerail-"))  # only its owner can enter it
    file = Path(folder, "open.html")
    file.write_text(f"<!doctype html><script>location.replace({json.dumps(url)})</script>", encoding="utf-8")
    return file.as_uri()


def _announce(out: Output, url: str, server: ServerState, *, built: bool) -> None:
    if out.json:
        facts = {"token": server.is_guarded, "read_only": server.read_only, "page": built}
        out.document({"url": url, "api": f"{url}api/v1", **facts, "withheld": list(server.withheld)})
    out.note(out.say("cli.serve.serving", url=url))
    if not built:
        out.note(Text(out.say("cli.serve.no_page"), "yellow"))
    if server.withheld:
        out.note(Text(clean(out.say("cli.serve.withheld", names=", ".join(server.withheld))), "dim"))


def _place(address: str | None, host: str, port: int) -> tuple[str, str]:
    """Return the address to listen on: the typed one, else the settings'."""
    if address is None:
        return host, str(port)
    if address.isdecimal():
        return host, address
    given, _, typed = address.rpartition(":")
    return given.strip("[]") or host, typed


def _offered(session: Session, allowed: set[str]) -> tuple[list[Tool], dict[str, str]]:
    """Return the tools for plans from outside, and the withheld ones with their kind.

    The engine does not get withheld tools at all: no plan, no repair and no model can reach a tool that is not there.
    """
    given, declared = session.given, session.settings.tools
    withheld = {name: "shell" for name in declared.shell if "shell" not in allowed}
    withheld |= {name: "http" for name in declared.http if "http" not in allowed}
    kept = {kind: getattr(declared, kind) if kind in allowed else {} for kind in ("shell", "http")}
    session.settings = msgspec.structs.replace(
        session.settings, tools=msgspec.structs.replace(declared, modules=[], **kept)
    )
    found = []
    for tool in session.load(given):
        kind = kind_of(tool)
        if kind and kind not in allowed:
            withheld[tool.spec.name] = kind
        else:
            found.append(tool)
    return found, withheld


def _sources(session: Session, engine: Engine) -> dict[str, str]:
    """Return the source of each tool."""
    found = {tool.spec.name: source for source in session.given for tool in session.load([source])}
    declared = {**session.settings.tools.shell, **session.settings.tools.http}
    found |= dict.fromkeys(declared, "rerail.toml")
    return {
        name: found.get(name) or f"mcp.servers.{spec.provider}" for name, spec in engine.tools.items()
    }  # fmt: skip


def _no_extra(error: ModuleNotFoundError) -> ModuleNotFoundError | SettingsError:
    """Return the error of a missing module; for the extra's modules, how to install it."""
    if (error.name or "").partition(".")[0] not in ("fastapi", "starlette", "uvicorn", "socketio", "websockets"):
        return error
    return SettingsError(tell("refuse.server.no_extra"), hint=tell("hint.server.no_extra"))


async def _until_told(
    serving: Coroutine[Any, Any, None], leave: Callable[[], Coroutine[Any, Any, None]] | None = None
) -> None:
    """Serve until the other side leaves, or this process is told to stop; then shut down in order.

    At the first signal `leave` gives the runs back, beside the last answers; the second signal ends it."""
    task, loop = asyncio.ensure_future(serving), asyncio.get_running_loop()
    leaving: list[asyncio.Future[None]] = []

    def stop() -> None:
        task.cancel()
        for under_way in leaving:
            under_way.cancel()
        if leave is not None and not leaving:
            leaving.append(asyncio.ensure_future(leave()))

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    try:
        with contextlib.suppress(asyncio.CancelledError):
            await task
        for under_way in leaving:
            with contextlib.suppress(asyncio.CancelledError):
                await under_way
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)
