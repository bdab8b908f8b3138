"""One command's settings, store and tools: how the façade is opened.

Rules of this file:
- Tools are recorded with a run as where they came from (absolute for files), so that later commands load them again.
- A command that only looks never makes a store.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import msgspec

from rerail.cli.options import Common
from rerail.cli.output import CannotOpen, Output
from rerail.core.events import Record, RunStarted
from rerail.core.tools import ToolSpec
from rerail.engine.owner import is_dead, is_this_process
from rerail.errors import Refused, RerailError, StoreError
from rerail.i18n import say, tell
from rerail.plans import Plan
from rerail.ports import Tool
from rerail.settings import McpTable, Settings, overrides_from
from rerail.wiring import Engine, SystemClock


@dataclass(frozen=True, slots=True)
class Ownership:
    """Who drives a run, as far as another process can tell."""

    owner: str = ""  # a living owner that is not this process
    interrupted: bool = False  # it should be driven, and nobody does


class Session:
    """What a command needs to open an engine."""

    def __init__(
        self, common: Common, out: Output, *, worker: bool = False, observe: Callable[[Record], None] | None = None
    ) -> None:
        self.common, self.out = common, out
        self._worker, self._observe = worker, observe
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
        """Where the tools come from that this call names: `--tools`, then the settings' modules."""
        named = [absolute(source, Path.cwd()) for source in self.common.tools]
        return tuple(dict.fromkeys([*named, *self._configured]))

    @cached_property
    def _configured(self) -> list[str]:
        """The settings' modules; files are meant relative to the `rerail.toml` that names them."""
        file = Path(self.sources.get("tools.modules", ""))
        folder = file.parent if file.name == "rerail.toml" else Path.cwd()
        return [absolute(source, folder) for source in self.settings.tools.modules]

    def load(self, sources: Sequence[str]) -> list[Tool]:
        """The tools of all sources."""
        from rerail.adapters.tools.loading import load_tools

        return [tool for source in sources for tool in load_tools(source)]

    @asynccontextmanager
    async def toolbox(self) -> AsyncIterator[Engine]:
        """An engine for its tools' sake, those of MCP servers included; it keeps nothing."""
        async with Engine("memory://", self.load(self.given), self.settings) as engine:
            yield engine

    async def specs(self) -> dict[str, ToolSpec] | None:
        """The tools a plan can be checked against; None if no tools are named at all."""
        async with self.toolbox() as engine:
            return dict(engine.tools) or None

    def undecorated(self, plan: Plan, known: Mapping[str, ToolSpec]) -> list[str]:
        """What to say about unknown tools that are functions in a file of tools, and only lack the decorator."""
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
        """Refuse a store that was named for this call and is not there: most likely it was mistyped."""
        url = self.settings.store.url
        if self.sources.get("store.url") == say("source.command_line") and _is_missing(url):
            hint = tell("cli.hint.no_store")
            raise Refused(tell("cli.error.store_missing", url=url), "STORE_FAILED", hint=hint)

    @asynccontextmanager
    async def engine(
        self,
        sources: Sequence[str] = (),
        tools: Sequence[Tool] = (),
        *,
        making: bool = False,
        driving: bool = False,
        patient: bool = False,
        run: str | None = None,
    ) -> AsyncIterator[Engine]:
        """An open engine with these tools; `making` a store if there is none, else looking only.

        MCP servers are opened for those alone who are `driving`: nobody who looks should have to wait for them. The
        `patient` do without those that do not answer.
        """
        url = self.settings.store.url
        if not making and _is_missing(url):
            if run is not None:
                raise Refused(
                    tell("cli.error.no_store", run=run, url=url), "RUN_UNKNOWN",
                    hint=tell("cli.hint.no_store"),
                )  # fmt: skip
            url = "memory://"
        try:
            settings = self.settings if driving else self._without_servers
            engine = await self._opened(url, sources, tools, settings, driving=driving)
        except RerailError as error:
            if isinstance(error, StoreError) or not patient:
                raise
            engine = await self._opened(url, sources, tools, self._without_servers)
        try:
            yield engine
        finally:
            await engine.close()

    async def _opened(
        self, url: str, sources: Sequence[str], tools: Sequence[Tool], settings: Settings, *, driving: bool = True
    ) -> Engine:
        try:
            engine = Engine(url, tools, settings, origin=sources, worker=self._worker, observe=self._observe)
            # Whoever only looks need not hear each time what the store's server might lose.
            engine.notice = self.out.notice if driving else lambda _: None
            engine.tidies = driving
            await engine.open()
            engine.notice = self.out.notice
        except StoreError as error:
            raise CannotOpen(error.message, error.code, hint=error.hint) from error
        return engine

    @property
    def _without_servers(self) -> Settings:
        return msgspec.structs.replace(self.settings, mcp=McpTable())

    @asynccontextmanager
    async def reopened(self, run: str) -> AsyncIterator[tuple[Engine, str]]:
        """An engine with the tools of an existing run, and the run's full id."""
        async with self.engine(run=run) as looking:
            run = await looking.find(run)
            sources = await self._sources_of(looking, run)
        async with self.engine(sources, self._load_again(run, sources), making=True, driving=True) as engine:
            yield engine, run

    @asynccontextmanager
    async def looking(self, run: str) -> AsyncIterator[tuple[Engine, str]]:
        """An engine to look at a run with, without its tools, and the run's full id."""
        async with self.engine(run=run) as engine:
            engine.looks_only = True
            yield engine, await engine.find(run)

    @asynccontextmanager
    async def replaying(self, run: str) -> AsyncIterator[tuple[Engine, str]]:
        """An engine that knows the run's tools, as far as they can be loaded; it opens no servers and calls nothing."""
        async with self.engine(run=run) as looking:
            run = await looking.find(run)
            sources = await self._sources_of(looking, run)
        try:
            tools = self._load_again(run, sources)
        except RerailError as error:
            self.out.notice(tell("cli.replay.no_tools", reason=error.message))
            tools = []
        async with self.engine((), tools) as engine:
            yield engine, run

    @asynccontextmanager
    async def acting(self, run: str, *, patient: bool = False) -> AsyncIterator[tuple[Engine, str, str]]:
        """An engine to act on a run with, the run's full id, and its living owner in another process, if it has one.

        The owner has the tools already; without one they are loaded here, and `patient` commands do without them.
        """
        async with self.engine(run=run) as looking:
            run = await looking.find(run)
            owner = (await ownership(looking, run)).owner
            sources = () if owner else await self._sources_of(looking, run)
        try:
            tools = self._load_again(run, sources)
        except RerailError:
            if not patient:
                raise
            tools = []
        async with self.engine(sources, tools, making=True, driving=not owner, patient=patient) as engine:
            yield engine, run, owner

    async def _sources_of(self, engine: Engine, run: str) -> tuple[str, ...]:
        """Where the tools of a run come from: what this call names, else what the run recorded."""
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


async def origin_of(engine: Engine, run: str) -> tuple[str, ...]:
    """Where the tools of a run came from, as its first event says."""
    for record in await engine.page(run, 0, 1):  # none, if its import was cut off before the first event
        return record.event.origin if isinstance(record.event, RunStarted) else ()
    return ()


async def ownership(engine: Engine, run: str) -> Ownership:
    """Who drives a run."""
    head = await engine.head(run)
    dead = is_dead(head, SystemClock().now())
    if head.owner is not None and not dead and not is_this_process(head.owner):
        return Ownership(str(head.owner))
    return Ownership(interrupted=head.status == "running" and dead)


def as_url(store: str) -> str:
    """A store as people name it: an address, or just a file."""
    return store if "://" in store else f"sqlite:///{store}"


def absolute(source: str, folder: Path) -> str:
    """A tool source that means the same in any folder; modules are left as they are."""
    file = re.fullmatch(r"(.*\.py)(:[^:/\\]+)?", source)
    return source if file is None else os.path.normpath(folder.absolute() / file[1]) + (file[2] or "")


def store_file(url: str) -> Path | None:
    """The file behind a store's address, if it is one."""
    return Path(url.removeprefix("sqlite:///")) if url.startswith("sqlite:///") else None


def _is_missing(url: str) -> bool:
    file = store_file(url)
    return file is not None and not file.exists()
