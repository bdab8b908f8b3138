"""One command's settings, store and tools, and the engine made from them.

Rules of this file:
- A run records the sources of its tools (absolute for files), so that later commands load them again.
- A command that only reads never creates a store.
"""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import signal
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import msgspec

from rerail.api import Engine
from rerail.cli.options import Common
from rerail.cli.output import CannotOpen, Output
from rerail.engine.runs.owner import is_dead, is_interrupted, is_this_process
from rerail.engine.runs.reader import store_errors
from rerail.errors import Refused, RerailError, StoreError
from rerail.factory import SystemClock, as_url, make_store
from rerail.i18n import Told, say, tell
from rerail.kernel.events import Record, RunStarted
from rerail.plan.model import Plan
from rerail.plan.tool_spec import ToolSpec
from rerail.ports import Store, Tool, Unavailable
from rerail.settings.loading import Settings, overrides_from
from rerail.settings.principals import user_name
from rerail.settings.tables import McpTable


@dataclass(frozen=True, slots=True)
class Ownership:
    """A run's driver, as far as another process can tell."""

    owner: str = ""  # a living owner that is not this process
    interrupted: bool = False  # unfinished, and no process drives it


class Session:
    """Settings, store and tools of a command."""

    def __init__(
        self,
        common: Common,
        out: Output,
        *,
        worker: bool = False,
        patient: bool = False,
        observe: Callable[[Record], None] | None = None,
        on_notice: Callable[[Told], None] | None = None,
    ) -> None:
        self.common, self.out = common, out
        self._patient = patient  # a process that is left to itself waits for its store
        self._worker, self._observe, self._on_notice = worker, observe, on_notice or out.notice
        overrides = overrides_from(list(common.set))
        if common.store is not None:
            overrides.setdefault("store", {})["url"] = as_url(common.store)
        if store := common.store or overrides.get("store", {}).get("url"):
            out.work_on(str(store))
        self.settings, self.sources = Settings.discover(overrides=overrides)
        out.verbose = self.settings.log.verbose
        out.tools_loaded = bool(common.tools or self.settings.tools.modules)

    # -- Tools ------------------------------------------------------------------------------------------------------

    @cached_property
    def given(self) -> tuple[str, ...]:
        """Return this call's tool sources: `--tools`, then the settings' modules."""
        named = [absolute(source, Path.cwd()) for source in self.common.tools]
        return tuple(dict.fromkeys([*named, *self._configured]))

    @cached_property
    def _configured(self) -> list[str]:
        """Return the settings' modules; file paths are relative to their `rerail.toml`."""
        file = Path(self.sources.get("tools.modules", ""))
        folder = file.parent if file.name == "rerail.toml" else Path.cwd()
        return [absolute(source, folder) for source in self.settings.tools.modules]

    def load(self, sources: Sequence[str]) -> list[Tool]:
        if not sources:
            return []
        from rerail.adapters.tools.loading import load_tools

        before = signal.getsignal(signal.SIGINT)
        ends_at_once = threading.current_thread() is threading.main_thread() and before not in (signal.SIG_IGN, None)
        if ends_at_once:  # an event loop would react to Ctrl-C once the import is over
            signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            return [tool for source in sources for tool in load_tools(source)]
        finally:
            if ends_at_once:
                signal.signal(signal.SIGINT, before)

    @asynccontextmanager
    async def toolbox(self) -> AsyncIterator[Engine]:
        """Open an engine for its tools alone, those of MCP servers included; it stores nothing."""
        async with Engine("memory://", self.load(self.given), self.settings) as engine:
            yield engine

    async def specs(self) -> dict[str, ToolSpec] | None:
        """Return the tools for the check of a plan; None if none are named."""
        async with self.toolbox() as engine:
            return dict(engine.tools) or None

    def undecorated(self, plan: Plan, known: Mapping[str, ToolSpec]) -> list[str]:
        """Return a hint for unknown tools that are functions in a tools file without the decorator."""
        from rerail.adapters.tools.loading import has_plain

        others = [call.tool for step in plan.steps for call in (step.fallback, step.verify) if call and call.tool]
        others += [file.check for step in plan.steps for file in step.produces if file.check]
        names = [name for step in plan.steps for name in (step.tool, *step.alternatives)]
        return [
            tell("cli.hint.undecorated", file=os.path.basename(source), name=name)
            for name in dict.fromkeys([*names, *others])
            if name not in known
            for source in self.given
            if has_plain(source, name)
        ]

    # -- Engines ----------------------------------------------------------------------------------------------------

    def require_store(self) -> None:
        """Refuse a named store that does not exist: most likely it was mistyped."""
        if self.sources.get("store.url") == say("source.command_line"):
            self.require_file()

    def require_file(self) -> None:
        """Refuse a store without its file."""
        if _is_missing(url := self.settings.store.url):
            hint = tell("cli.hint.no_store")
            raise Refused(tell("cli.error.store_missing", url=url), "STORE_FAILED", hint=hint)

    @asynccontextmanager
    async def store(self, *, reads: bool = False) -> AsyncIterator[Store]:
        """Open the store itself, without an engine; ``reads``: also one that can only be read."""
        with store_errors():
            with _opening(), store_errors():
                store = make_store(self.settings.store.url, self.settings, reads=reads)
                await store.open()
            try:
                yield store
            finally:
                await store.close()

    @asynccontextmanager
    async def engine(
        self,
        sources: Sequence[str] = (),
        tools: Sequence[Tool] = (),
        *,
        making: bool = False,
        driving: bool = False,
        servers: bool = True,
        via: str = "cli",
        run: str | None = None,
    ) -> AsyncIterator[Engine]:
        """Open an engine with these tools; ``making`` creates a missing store, else it only reads.

        Only an engine that is `driving` opens the MCP `servers`: a command that reads does not wait for them.
        """
        url = self.settings.store.url
        if not making and _is_missing(url):
            if run is not None:
                raise Refused(
                    tell("cli.error.no_store", run=run, url=url), "RUN_UNKNOWN",
                    hint=tell("cli.hint.no_store"),
                )  # fmt: skip
            url = "memory://"
        settings = self.settings if driving and servers else msgspec.structs.replace(self.settings, mcp=McpTable())
        if not (making or driving):  # a command that looks imports no tools
            settings = msgspec.structs.replace(settings, tools=msgspec.structs.replace(settings.tools, modules=[]))
        with _opening():
            reading = not making and not driving and url.startswith("sqlite:")
            store = make_store(url, settings, reads=True) if reading else url
            engine = Engine(
                store, tools, settings, origin=sources, worker=self._worker, via=via,
                by=f"{user_name()}@{socket.gethostname()}", observe=self._observe, on_notice=self._on_notice,
                sweep_on_open=driving,
            )  # fmt: skip
            await (self._opened(engine) if self._patient else engine.open())
        try:
            yield engine
        finally:
            await engine.close()

    async def _opened(self, engine: Engine) -> None:
        """Open an engine; a store that is away is tried again for `store.reconnect_seconds` (contract E4)."""
        until = time.monotonic() + self.settings.store.reconnect_seconds
        told = False
        while True:
            try:
                return await engine.open()
            except StoreError as error:
                if not isinstance(error.__cause__, Unavailable) or time.monotonic() >= until:
                    raise
                if not told:
                    self._on_notice(tell("reason.work.no_store", error=error))
                told = True
            await asyncio.sleep(min(1.0, max(0.0, until - time.monotonic())))

    def started(self, tools: Sequence[Tool] | None = None, *, via: str = "cli") -> AbstractAsyncContextManager[Engine]:
        """Open an engine that drives runs with this call's tools, or with these."""
        tools = self.load(self.given) if tools is None else tools
        return self.engine(self.given, tools, making=True, driving=True, via=via)

    @asynccontextmanager
    async def reopened(self, run: str) -> AsyncIterator[tuple[Engine, str]]:
        """Open an engine with the tools of an existing run; return it with the run's full id."""
        async with self.engine(run=run, driving=True, servers=False) as engine:
            run = await engine.find(run)
            await self._equip(engine, run)
            yield engine, run

    @asynccontextmanager
    async def replaying(self, run: str) -> AsyncIterator[tuple[Engine, str]]:
        """Open an engine with the run's loadable tools; it opens no servers and calls no tool."""
        async with self.engine(run=run) as engine:
            run = await engine.find(run)
            sources = await self._sources_of(engine, run)
            try:
                await engine.internals.equip(self._load_again(run, sources), ())
            except RerailError as error:
                self.out.notice(tell("cli.replay.no_tools", reason=error.message))
            yield engine, run

    @asynccontextmanager
    async def acting(self, run: str, *, patient: bool = False) -> AsyncIterator[tuple[Engine, str, str]]:
        """Open an engine for a command on a run; return it with the full id and another process's live owner.

        The owner has the tools already. Without an owner they are loaded here; `patient` commands do without them.
        """
        async with self.engine(run=run, driving=True, servers=False) as engine:
            run = await engine.find(run)
            owner = (await ownership(engine, run)).owner
            if not owner:
                try:
                    await self._equip(engine, run)
                except RerailError as error:
                    if isinstance(error, StoreError) or not patient:
                        raise
            yield engine, run, owner

    async def _equip(self, engine: Engine, run: str) -> None:
        """Give an engine the tools of a run, and the settings' MCP servers."""
        sources = await self._sources_of(engine, run)
        await engine.internals.equip(self._load_again(run, sources), sources, self.settings)

    async def _sources_of(self, engine: Engine, run: str) -> tuple[str, ...]:
        """Return a run's tool sources: this call's, else the recorded ones."""
        if self.common.tools:
            if not set(self.given) <= set(await origin_of(engine, run)):
                self.out.tools = "".join(f" --tools {shlex.quote(source)}" for source in self.common.tools)
            return self.given
        return tuple(dict.fromkeys([*await origin_of(engine, run), *self._configured]))

    def _load_again(self, run: str, sources: Sequence[str]) -> list[Tool]:
        try:
            return self.load(sources)
        except RerailError as error:
            if error.code != "TOOLS_UNREADABLE" or self.common.tools:
                raise
            message = tell("cli.error.origin", run=run, reason=error.message)
            raise RerailError(message, error.code, hint=tell("cli.hint.origin")) from error


@contextmanager
def _opening() -> Iterator[None]:
    """Tell a store that cannot be used from one that is out of reach: the first is refused (contract T4)."""
    try:
        yield
    except StoreError as error:
        if isinstance(error.__cause__, Unavailable):
            raise
        raise CannotOpen(error.message, error.code, hint=error.hint) from error


async def origin_of(engine: Engine, run: str) -> tuple[str, ...]:
    """Return the tool sources in a run's first event."""
    for record in await engine.internals.page(run, 0, 1):  # none, if its import was cut off before the first event
        return record.event.origin if isinstance(record.event, RunStarted) else ()
    return ()


async def ownership(engine: Engine, run: str) -> Ownership:
    head = await engine.internals.head(run)
    now = SystemClock().now()
    if head.owner is not None and not is_dead(head, now) and not is_this_process(head.owner):
        return Ownership(str(head.owner))
    return Ownership(interrupted=is_interrupted(head, now))


def absolute(source: str, folder: Path) -> str:
    """Return a tool source valid in any folder; modules stay unchanged."""
    file = re.fullmatch(r"(.*\.py)(:[^:/\\]+)?", source)
    return source if file is None else os.path.normpath(folder.absolute() / file[1]) + (file[2] or "")


def store_file(url: str) -> Path | None:
    """Return the file behind a store's URL, if it is one."""
    return Path(url.removeprefix("sqlite:///")) if url.startswith("sqlite:///") else None


def _is_missing(url: str) -> bool:
    file = store_file(url)
    return file is not None and not file.exists()
