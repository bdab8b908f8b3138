"""Wiring: settings and names become adapters and an engine. The only place where adapters are named."""

from __future__ import annotations

import asyncio
import contextlib
import getpass
import logging
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast, runtime_checkable

from rerail.adapters.telemetry import make_tracing
from rerail.adapters.uptime import uptime
from rerail.core import events as ev
from rerail.core.events import Record
from rerail.core.foreign import EXECUTOR, STORE, as_mind, is_model, roles_of, with_defaults
from rerail.core.replay import Replay
from rerail.core.scrub import Scrub
from rerail.core.tools import ToolSpec
from rerail.core.views import RunResult
from rerail.engine import engine as core
from rerail.engine.limits import Limits
from rerail.engine.loop import Host
from rerail.engine.perform import Performer
from rerail.engine.planning import Planned
from rerail.errors import PlanError, Refused, RerailError, SettingsError, StoreError
from rerail.i18n import say, tell
from rerail.plans import Plan
from rerail.ports import Clock, Executor, Mind, Model, Notifier, Store, Tool
from rerail.secrecy import secrets_of
from rerail.settings import RECORDED, ROLES, RoleTable, Settings, recorded_changes
from rerail.version import __version__

if TYPE_CHECKING:
    from rerail.adapters.tools.mcp import McpServer, McpTool


class SystemClock:
    """The machine's clock."""

    polls = True

    def now(self) -> float:
        """Seconds since the epoch."""
        return time.time()

    def uptime(self) -> float:
        """Seconds since the machine started, suspension included where the system counts it."""
        return uptime()

    @contextlib.contextmanager
    def external(self) -> Iterator[None]:
        """Nothing to hold back: real time passes by itself."""
        yield


@contextlib.contextmanager
def _needs_extra(url: str, extra: str) -> Iterator[None]:
    """Say what to install, where a store's driver is not there."""
    try:
        yield
    except ModuleNotFoundError as missing:
        if (missing.name or "").startswith("rerail"):
            raise
        kind = url.partition("://")[0]
        raise StoreError(tell("refuse.settings.store_extra", url=f"{kind}://", extra=extra)) from missing


def make_store(url: str, settings: Settings | None = None) -> Store:
    """The store that an address names: `memory://`, `sqlite:///path`, `postgresql://…` or `redis://…`."""
    settings = settings or Settings()
    if url == "memory://":
        from rerail.adapters.stores.memory import MemoryStore

        return MemoryStore()
    if url.startswith("sqlite:///"):
        from rerail.adapters.stores.sqlite import SqliteStore

        path = url.removeprefix("sqlite:///")
        if not path:
            raise StoreError(tell("refuse.settings.store_without_file", url=url))
        return SqliteStore(path, durability="normal" if settings.store.durability == "normal" else "full")
    if url.startswith(("postgresql://", "postgres://")):
        with _needs_extra(url, "postgres"):
            from rerail.adapters.stores.postgres import PostgresStore

            return PostgresStore(url, settings.store.durability)
    if url.startswith(("redis://", "rediss://", "unix://")):
        with _needs_extra(url, "redis"):
            from rerail.adapters.stores.redis import RedisStore

            return RedisStore(url, keep_seconds=settings.artifacts.ttl_hours * 3600)
    from rerail.adapters.stores.remote import shown

    raise StoreError(tell("refuse.settings.store_unknown", url=shown(url)))


@runtime_checkable
class _LimitedHosts(Tool, Protocol):
    """A tool that goes to hosts, and can be held to a list of them."""

    def limited_to(self, hosts: tuple[str, ...]) -> Tool: ...


def make_executor(settings: Settings) -> Executor | None:
    """Where tools are called, if not in this process: as tasks of the Ray cluster that `[ray]` names."""
    if not settings.ray.steps:
        return None
    with ray_extra():
        from rerail.adapters.executors.ray import RayExecutor

    table = settings.ray
    return RayExecutor(table.address, table.env, table.cpus, table.max_wait, table.gone_after)


@contextlib.contextmanager
def ray_extra() -> Iterator[None]:
    """Say what to install, where Ray is not there."""
    try:
        yield
    except ModuleNotFoundError as missing:
        if (missing.name or "").partition(".")[0] != "ray":
            raise
        raise SettingsError(tell("refuse.settings.ray_extra")) from missing


def make_tools(tools: Iterable[Any], settings: Settings) -> dict[str, Tool]:
    """Tools by name: functions, tool objects, and what the settings declare."""
    from rerail.adapters.tools.functions import FunctionTool, as_tool

    found: dict[str, Tool] = {}
    sources: dict[str, Tool] = {}
    table = settings.tools
    hosts = tuple(table.allow_hosts)
    for given in (*map(as_tool, tools), *declared_tools(settings), *named_tools(settings)):
        tool: Tool = given.limited_to(hosts) if hosts and isinstance(given, _LimitedHosts) else given
        if isinstance(tool, FunctionTool):
            tool = tool.under(table.default_effect, require_effect=table.require_effect)
        name = tool.spec.name
        if sources.setdefault(name, given) is not given:
            raise SettingsError(tell("refuse.settings.two_tools", name=name))
        found[name] = tool
    return found


def declared_tools(settings: Settings) -> list[Tool]:
    """Shell and HTTP tools that `[tools]` declares."""
    table = settings.tools
    if not table.shell and not table.http:
        return []
    from rerail.adapters.tools.declared import from_mapping

    tools = [from_mapping(name, {"shell": _as_shell(data)}) for name, data in table.shell.items()]
    hosts = tuple(table.allow_hosts) or None
    return tools + [from_mapping(name, {"http": data}, allow_hosts=hosts) for name, data in table.http.items()]


def named_tools(settings: Settings) -> list[Tool]:
    """The tools of the modules and files that `[tools]` names."""
    if not settings.tools.modules:
        return []
    from rerail.adapters.tools.loading import load_tools

    return [tool for source in settings.tools.modules for tool in load_tools(source)]


def make_model(settings: Settings) -> Model | None:
    """The model that `[model]` names, per role where a role has its own; None if none is named."""
    table = settings.model
    roles: dict[str, RoleTable] = {role: getattr(table, role) for role in ROLES}
    named = [role for role, own in roles.items() if own.name or table.name]
    addressed = table.base_url or any(own.base_url for own in roles.values())
    if not named and addressed:
        raise SettingsError(tell("refuse.settings.model_unnamed"))
    if not named:
        return None
    from rerail.adapters.models.roles import RoleModels

    return RoleModels({role: _role_model(settings, roles[role]) for role in named})


def _role_model(settings: Settings, role: RoleTable) -> Model:
    """A role's model: what the role leaves out is the common one's."""
    from rerail.adapters.models.chat import ChatModel
    from rerail.adapters.models.endpoints import Endpoint

    table = settings.model
    common = Endpoint(table.name or "", table.base_url, table.key_env)
    own = common.beside(role.name) if role.name else common
    if role.base_url:
        own = Endpoint(role.name or common.name, role.base_url)  # a key is not taken along to another address
    if role.key_env:
        own = replace(own, key_env=role.key_env)
    # A name stands beside the one that it was written beside.
    fallback = own.beside(role.fallback) if role.fallback else common.beside(table.fallback) if table.fallback else None
    return ChatModel(
        own,
        *([fallback] if fallback else []),
        temperature=table.temperature if role.temperature is None else role.temperature,
        timeout=table.timeout if role.timeout is None else role.timeout,
        retries=table.retries,
        output=table.output,
        prices=table.prices,
        waits=settings.policy(),
    )


def make_mind(settings: Settings, given: Mind | Model | None = None) -> Mind | None:
    """Who answers questions: the mind or model that was given, else the model that the settings name."""
    if given is not None and not is_model(given):
        return as_mind(cast("Mind", given))  # a mind of the caller's own
    if given is None and not _names_a_model(settings):
        return None
    from rerail.adapters.models.mind import ModelMind
    from rerail.adapters.prompts import Prompts

    model = cast("Model | None", given) or make_model(settings)
    if model is None:
        return None
    table = settings.model
    seconds = max(getattr(table, role).timeout or table.timeout for role in ROLES)
    fallbacks = table.fallback is not None or any(getattr(table, role).fallback is not None for role in ROLES)
    return ModelMind(
        model,
        Prompts(Path(table.prompts) if table.prompts else None),
        reasks=table.max_reasks,
        room=table.max_context_chars,
        # Every try, of the model and of its fallback, may take its whole time.
        patience=seconds * (2 if fallbacks else 1) * (1 + table.max_reasks) + 1.0,
        answers=roles_of(model, ROLES),
    )


def make_notifier(settings: Settings) -> Notifier | None:
    """Who is told that a run ended or waits: the command and the webhook that `[notify]` names."""
    table = settings.notify
    if not table.command and not table.webhook:
        return None
    from rerail.adapters.notify import Command, Notifiers, Webhook

    targets: list[Command | Webhook] = [Command(tuple(table.command))] if table.command else []
    if table.webhook:
        webhook = Webhook(table.webhook, tuple(settings.tools.allow_hosts))
        try:
            refused = webhook.refused()
        except ValueError:  # no host, or no port that could be one
            raise SettingsError(tell("refuse.notify.no_address", source="notify")) from None
        if refused:
            raise SettingsError(tell("refuse.notify.host", host=webhook.host), hint=tell("hint.notify.host"))
        targets.append(webhook)
    return Notifiers(tuple(targets), frozenset(table.on), table.timeout, table.retries)


def _names_a_model(settings: Settings) -> bool:
    table = settings.model
    tables = (table, *(getattr(table, role) for role in ROLES))
    return any(one.name or one.base_url for one in tables)


def _as_shell(data: Any) -> Any:
    return data if isinstance(data, Mapping) else {"argv": data}


def _with_keys(specs: dict[str, ToolSpec], settings: Settings) -> dict[str, ToolSpec]:
    """The specs with what the settings say of how long services remember the keys of calls (E2)."""
    for name, seconds in settings.tools.idempotent_for.items():
        spec = specs.get(name)
        if spec is not None and not spec.keyed:
            raise SettingsError(tell("tool.faulty", name=name, message=tell("tool.no_key")))
        if spec is not None:
            specs[name] = replace(spec, idempotent_for=seconds)
    return specs


class _Toolbox:
    """An engine's tools and their specs, and the MCP servers that add to both while it is open."""

    def __init__(self, tools: dict[str, Tool], specs: dict[str, ToolSpec], settings: Settings) -> None:
        self._tools, self._specs, self._settings = tools, specs, settings
        self._declared = declared_servers(settings)
        self._lent: set[str] = set()  # the tools that are there only while the engine is open
        self._servers: Any = None

    async def open(self) -> None:
        """Connect to the servers of the settings, and list their tools."""
        if not self._declared:
            return
        from rerail.adapters.tools.mcp import McpServers

        self._servers = self._servers or McpServers()
        tools: list[McpTool] = await self._servers.open(self._declared)
        try:
            _require_new_names(tools, self._specs)
        except SettingsError:
            await self._servers.close([server.name for server in self._declared])
            raise
        for tool in tools:
            self._tools[tool.spec.name], self._specs[tool.spec.name] = tool, tool.spec
            self._lent.add(tool.spec.name)
        _with_keys(self._specs, self._settings)

    async def close(self) -> None:
        """End the servers; their tools are gone with them."""
        for name in self._lent:
            del self._tools[name]
            del self._specs[name]
        self._lent.clear()
        if self._servers is not None:
            await self._servers.close()


def declared_servers(settings: Settings) -> list[McpServer]:
    """The MCP servers that `[mcp]` names; none is started."""
    if not settings.mcp.servers:
        return []
    from rerail.adapters.tools.mcp import server_from

    return [server_from(name, data) for name, data in settings.mcp.servers.items()]


def _require_new_names(tools: Iterable[McpTool], known: Mapping[str, ToolSpec]) -> None:
    taken = {name: spec.provider for name, spec in known.items()}
    for tool in tools:
        name, server = tool.spec.name, tool.spec.provider
        if name in taken:
            other = tell("plan.server", server=taken[name]) if taken[name] else tell("plan.own_tool")
            raise SettingsError(
                tell("refuse.settings.two_tools_of_servers", name=name, server=server, other=other),
                hint=tell("hint.settings.two_tools_of_servers", server=server, name=name),
            )
        taken[name] = server


_open_engines: set[int] = set()


class Engine(core.Engine):
    """Runs plans made of tool calls and keeps them alive.

    ``store`` is an address (`sqlite:///runs.db`, `memory://`) or a store; ``tools`` are functions or tool objects;
    ``model`` answers questions (plan, reflect, repair, replan, judge): a mind, a model, or left out; then it is the
    one that the settings name, if they name one. ``notifier`` tells people that a run ended or waits, in place of what
    `[notify]` names. ``executor`` is where tools are called, in place of what `[ray]` names.
    """

    def __init__(
        self,
        store: str | Store | None = None,
        tools: Iterable[Any] = (),
        settings: Settings | Mapping[str, Any] | None = None,
        model: Mind | Model | None = None,
        *,
        clock: Clock | None = None,
        notifier: Notifier | None = None,
        executor: Executor | None = None,
        by: str | None = None,
        origin: Sequence[str] = (),
        workspace: str | Path | None = None,
        worker: bool = False,
        observe: Callable[[Record], None] | None = None,
    ) -> None:
        settings = settings if isinstance(settings, Settings) else Settings.load(settings)
        address = store if store is not None else settings.store.url
        found = make_store(address, settings) if isinstance(address, str) else with_defaults(address, STORE)
        adapters = make_tools(tools, settings)
        specs = _with_keys({name: tool.spec for name, tool in adapters.items()}, settings)
        scrub = Scrub(secrets_of(settings, specs.values(), os.environ))
        self._toolbox = _Toolbox(adapters, specs, settings)
        clock = clock or SystemClock()
        self._tracing = make_tracing()
        mind = make_mind(settings, model)
        self._executor = with_defaults(executor, EXECUTOR) if executor is not None else make_executor(settings)
        performer = Performer(adapters, settings.patterns(), settings.tools.max_output, clock, self._executor, scrub)
        host = Host(
            store=found,
            clock=clock,
            tools=adapters,
            specs=specs,
            performer=performer,
            mind=mind,
            mind_timeout=mind.patience if mind is not None and mind.patience is not None else settings.model.timeout,
            workspaces=_workspaces(found.url, workspace or settings.store.workspace),
            reconnect_seconds=settings.store.reconnect_seconds,
            memory=settings.artifacts.memory,
            limits=Limits(),
            notifier=notifier or make_notifier(settings),
            history_window=settings.evaluation.history_window,
            silent_is_dead=settings.workers.silent_is_dead,
            observe=_observers(observe, log_event if settings.log.verbose else None, self._tracing),
        )
        self.settings = settings
        minds = tuple(mind.answers) if mind is not None else ()
        super().__init__(
            host,
            settings.policy(minds),
            by=by or user_name(),
            version=__version__,
            origin=origin,
            ttl=settings.artifacts.ttl_hours * 3600,
            worker=worker,
            remembers=settings.reflection.memory,
        )

    async def open(self) -> None:
        """Open the MCP servers, the cluster and the store, and begin to listen to other processes."""
        await self._toolbox.open()
        try:
            if self._executor is not None:
                await self._executor.open()
            await super().open()
        except BaseException:
            await self._close_outside()
            raise
        _open_engines.add(id(self))

    async def close(self) -> None:
        """Stop live runs as a crash would; the last engine to close also ends the idle worker processes."""
        try:
            await super().close()
        finally:
            if self._tracing is not None:
                self._tracing.close()
            await self._close_outside()
        _open_engines.discard(id(self))
        processes = sys.modules.get("rerail.adapters.executors.processes")
        if not _open_engines and processes is not None:
            await processes.PROCESSES.close()

    async def _close_outside(self) -> None:
        if self._executor is not None:
            await self._executor.close()
        await self._toolbox.close()

    @property
    def tools(self) -> Mapping[str, ToolSpec]:
        """The engine's tools, with those of the settings' MCP servers once it is open."""
        return self._host.specs

    async def __aenter__(self) -> Engine:
        await self.open()
        return self

    async def start(  # type: ignore[override]  # a plan as people give it, or an objective
        self,
        plan: Any = None,
        *,
        objective: str | None = None,
        fallback: Any = None,
        parent: str | None = None,
        by: str | None = None,
        run_id: str | None = None,
        queued: bool = False,
        on: str | None = None,  # a tombstone: it is refused
    ) -> str:
        """Check a plan and start a run of it; returns the run's id.

        With an ``objective`` instead of a plan the model makes one; if it cannot, ``fallback`` runs, and the verdict
        says `degraded` (P7).
        """
        if (plan is None) == (objective is None):
            raise Refused(tell("refuse.settings.plan_or_objective"), "USAGE")
        if on is not None:
            raise Refused(tell("refuse.ray.coordinator", what=f"on={on!r}"), "USAGE", hint=tell("hint.ray.coordinator"))
        if objective is None:
            return await super().start(Plan.load(plan), parent=parent, by=by, run_id=run_id, queued=queued)
        second = Plan.load(fallback) if fallback is not None else None
        if second is not None and (faults := second.check(self.tools)):
            raise PlanError(tell("refuse.settings.fallback_faulty"), faults)
        try:
            planned = await self.plan(objective)
        except Refused as nobody:
            if second is None:
                raise
            planned = Planned(None, problem=str(nobody.message))
        chosen = planned.plan or second
        if chosen is None:
            raise PlanError(tell("refuse.settings.planning_failed", problem=planned.problem), code="PLANNING_FAILED")
        return await super().start(chosen, parent=parent, by=by, run_id=run_id, planned=planned, queued=queued)

    async def replay(self, run: str, settings: Mapping[str, Any]) -> Replay:
        """Decide a recorded run again under other settings; nothing is called.

        ``settings`` are nested or dotted: `{"reflection.max_step_retries": 1}`. Where they lead to a call whose answer
        the history does not hold, what follows is unknown.
        """
        wanted = recorded_changes(settings)
        found = await self.decided_again(run, {RECORDED[name]: value for name, value in wanted.items()})
        return replace(found, settings={name: found.settings[RECORDED[name]] for name in wanted})

    async def submit(self, plan: Any = None, **options: Any) -> str:
        """Check a plan and leave a run of it to a worker that shares the store; returns the run's id.

        It takes what `start` takes. `wait` waits for it, whoever does it.
        """
        return await self.start(plan, **options, queued=True)

    async def run(self, plan: Any = None, *, objective: str | None = None, fallback: Any = None) -> RunResult:
        """Start a run and wait until it is at rest or waits for a person."""
        return await self.wait(await self.start(plan, objective=objective, fallback=fallback))


def _observers(*given: Callable[[Record], None] | None) -> Callable[[Record], None] | None:
    """Those who are told of each event once it is durable, as one; None if there are none."""
    found = [one for one in given if one is not None]
    if len(found) <= 1:
        return found[0] if found else None

    def tell_all(record: Record) -> None:
        for one in found:
            one(record)

    return tell_all


def workspaces_of(settings: Settings) -> Callable[[str], Path]:
    """Where the runs of the settings' store keep their files."""
    return _workspaces(settings.store.url, settings.store.workspace)


def _workspaces(url: str, given: str | Path | None) -> Callable[[str], Path]:
    """Where runs keep their files: beside the database, or in a temporary folder."""

    def folder(run: str) -> Path:
        if given is not None:
            base = Path(given)
        elif url.startswith("sqlite:///"):
            base = Path(url.removeprefix("sqlite:///")).absolute().parent / "work"
        else:
            base = Path(tempfile.gettempdir()) / "rerail-work"
        return base / run  # made by the context when a tool first asks for it

    return folder


def user_name() -> str:
    """Who uses this program, as the machine knows them."""
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):
        return "somebody"


def run(
    plan: Any,
    tools: Iterable[Any] = (),
    *,
    store: str | Store | None = None,
    settings: Settings | Mapping[str, Any] | None = None,
    model: Mind | Model | None = None,
) -> RunResult:
    """Run a plan to its end, in one line: in memory unless a store is given."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        pass
    else:
        raise RerailError(tell("refuse.settings.inside_a_loop"))

    async def whole() -> RunResult:
        async with Engine(store or "memory://", tools, settings, model) as engine:
            return await engine.run(plan)

    return asyncio.run(whole())


def log_event(record: ev.Record) -> None:
    """Log what `log.verbose` is about: the retry chain, and each skip with its failed needs."""
    run, event = record.run, record.event
    if isinstance(event, ev.RetryBegin):
        reasons = "; ".join(f"{step}: {event.reasons.get(step, '-')}" for step in event.roots)
        logging.getLogger("rerail").info(
            say("log.chain", run=run, round=event.round, chain=" → ".join(event.chain), reasons=reasons)
        )
    elif isinstance(event, ev.StepSkipped):
        logging.getLogger("rerail").info(
            say("log.skip", run=run, step=event.step, message=event.message, needs=", ".join(event.needs) or "-")
        )
