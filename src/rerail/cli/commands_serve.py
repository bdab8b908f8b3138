"""Commands that serve others: serve, for people and their programs; mcp, for agents."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import webbrowser
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Annotated, Any, Literal
from urllib.parse import quote

import msgspec
from cyclopts import Parameter
from rich.text import Text

from rerail.adapters.tools.declared import kind_of
from rerail.adapters.tools.mcp import missing_extra
from rerail.cli.commands_run import Hidden
from rerail.cli.options import FLAG, PLAIN, Common
from rerail.cli.output import Output, clean
from rerail.cli.session import Session
from rerail.errors import RerailError, SettingsError
from rerail.i18n import tell
from rerail.ports import Tool
from rerail.settings import describe
from rerail.wiring import Engine

if TYPE_CHECKING:
    from rerail.server.serving import Serving


async def mcp(
    *,
    http: str | None = None,
    expose: Annotated[bool, FLAG] = False,
    common: Common = PLAIN,
    out: Annotated[Output, Hidden],
) -> int:
    """Serve other agents over MCP: they submit plans, watch them, retry them. On stdio, unless told otherwise.

    Plans may only use the tools given here (--tools, rerail.toml). If RERAIL_TOKEN is set, HTTP callers must know it.
    """
    try:
        from rerail.server.listening import listen
        from rerail.server.mcp import make_server
        from rerail.server.wires import claimed, serve_http, serve_stdio
    except ModuleNotFoundError as error:
        raise missing_extra(error) from error
    if http is not None:
        token = os.environ.get("RERAIL_TOKEN", "")
        with listen(http, expose=expose, token=token) as listening:
            async with _engine(common, out) as engine:

                def ready(url: str) -> None:
                    out.note(out.say("cli.mcp.serving", url=url))

                await _until_told(serve_http(make_server(engine), listening, token, ready))
        return 0
    with claimed() as wire:  # before the tools are loaded: they may print
        async with _engine(common, out) as engine:
            await _until_told(serve_stdio(make_server(engine), wire))
    return 0


async def serve(
    address: str | None = None,
    /,
    *,
    expose: Annotated[bool, FLAG] = False,
    allow: Annotated[tuple[Literal["shell", "http"], ...], FLAG] = (),
    read_only: Annotated[bool, FLAG] = False,
    open_page: Annotated[bool, Parameter(name="--open", negative="", show_default=False)] = False,
    common: Common = PLAIN,
    out: Annotated[Output, Hidden],
) -> int:
    """Serve a live page and an HTTP API for the runs of the store."""
    try:
        from rerail.server.app import make_app
        from rerail.server.listening import is_local, listen, serve_app, url_of
        from rerail.server.serving import Serving
        from rerail.server.static import Files
    except ModuleNotFoundError as error:
        raise _no_extra(error) from error
    session = Session(common, out)
    table = session.settings.server
    token = (os.environ.get("RERAIL_TOKEN") or table.token or "").strip()
    host, port = _place(address, "0.0.0.0" if expose else table.host, table.port)  # noqa: S104 - it was asked for
    if not is_local(host) and not token:
        message = tell("refuse.mcp.exposed", host=host)
        raise RerailError(message, "USAGE", hint=tell("hint.server.exposed"))
    config = describe(session.settings, session.sources)  # as they were given, before anything is withheld
    tools, withheld = _offered(session, {*table.allow, *allow})
    shown = f"[{host}]" if ":" in host else host
    with listen(f"{shown}:{port}", expose=True, token=token) as listening:
        async with _engine(common, out, session, tools) as engine:
            files = Files()
            serving = Serving(
                engine, table, token, read_only=read_only, withheld=withheld, config=config,
                sources=_sources(session, engine), lang=out.lang,
            )  # fmt: skip
            url = url_of(listening, "/")

            def ready() -> None:
                _announce(out, url, serving, built=files.built)
                if open_page:
                    webbrowser.open(f"{url}#token={quote(token)}" if token else url)

            app = make_app(serving, host, files)
            await _until_told(serve_app(app, listening, ready, **_WEB_OPTIONS))
    return 0


_WEB_OPTIONS: dict[str, Any] = {
    "ws": "websockets-sansio", "ws_max_size": 1_000_000, "ws_per_message_deflate": False, "access_log": False,
    "server_header": False, "proxy_headers": False,
}  # fmt: skip


def _announce(out: Output, url: str, serving: Serving, *, built: bool) -> None:
    if out.json:
        facts = {"token": bool(serving.token), "read_only": serving.read_only, "page": built}
        out.document({"url": url, "api": f"{url}api/v1", **facts, "withheld": list(serving.withheld)})
    out.note(out.say("cli.serve.serving", url=url))
    if not built:
        out.note(Text(out.say("cli.serve.no_page"), "yellow"))
    if serving.withheld:
        out.note(Text(clean(out.say("cli.serve.withheld", names=", ".join(serving.withheld))), "dim"))


def _place(address: str | None, host: str, port: int) -> tuple[str, str]:
    """Where to listen: what was typed, else the settings'."""
    if address is None:
        return host, str(port)
    if address.isdecimal():
        return host, address
    given, _, typed = address.rpartition(":")
    return given.strip("[]") or host, typed


def _offered(session: Session, allowed: set[str]) -> tuple[list[Tool], dict[str, str]]:
    """The tools that plans from outside may use; and those they may not, with their kind.

    Those are left out of the engine altogether: no plan, no repair and no model can reach what is not there.
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
    """Where each tool comes from."""
    found = {tool.spec.name: source for source in session.given for tool in session.load([source])}
    declared = {**session.settings.tools.shell, **session.settings.tools.http}
    found |= dict.fromkeys(declared, "rerail.toml")
    return {
        name: found.get(name) or f"mcp.servers.{spec.provider}" for name, spec in engine.tools.items()
    }  # fmt: skip


def _no_extra(error: ModuleNotFoundError) -> ModuleNotFoundError | SettingsError:
    """What to tell about a module that is not there: how to get it, if it belongs to the extra."""
    if (error.name or "").partition(".")[0] not in ("fastapi", "starlette", "uvicorn", "socketio", "websockets"):
        return error
    return SettingsError(tell("refuse.server.no_extra"), hint=tell("hint.server.no_extra"))


@asynccontextmanager
async def _engine(
    common: Common, out: Output, session: Session | None = None, tools: Sequence[Tool] | None = None
) -> AsyncIterator[Engine]:
    session = session or Session(common, out)
    tools = session.load(session.given) if tools is None else tools
    async with session.engine(session.given, tools, making=True, driving=True) as engine:
        yield engine


async def _until_told(serving: Coroutine[Any, Any, None]) -> None:
    """Serve until the other side leaves, or this process is told to stop; then everything is let go of in order."""
    task, loop = asyncio.ensure_future(serving), asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, task.cancel)
    try:
        with contextlib.suppress(asyncio.CancelledError):
            await task
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)
