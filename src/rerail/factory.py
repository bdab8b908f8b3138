"""Adapters, chosen and built from settings and names."""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, cast, runtime_checkable

from rerail.context import uptime
from rerail.errors import RerailError, SettingsError, StoreError
from rerail.i18n import tell
from rerail.kernel.foreign import as_mind, is_model, roles_of
from rerail.plan.step import Effect
from rerail.plan.tool_spec import ToolSpec
from rerail.ports import Executor, Mind, Model, Notifier, Store, Tool
from rerail.settings.loading import Settings
from rerail.settings.tables import ROLES, ModelTable, RoleTable

if TYPE_CHECKING:
    from rerail.adapters.tools.mcp.server_config import McpServer
    from rerail.adapters.tools.mcp.tools import McpServers, McpTool


# In a place that all users share each has a folder of its own; one that another user made first is refused.
USER: Final = os.getuid() if hasattr(os, "getuid") else "user"


class SystemClock:
    polls = True
    now = staticmethod(time.time)  # seconds since the epoch
    uptime = staticmethod(uptime)  # seconds since the machine started, including suspension where it is counted

    @contextlib.contextmanager
    def external(self) -> Iterator[None]:
        """Do nothing: real time passes by itself."""
        yield


@contextlib.contextmanager
def needs_extra(problem: RerailError) -> Iterator[None]:
    """Raise the problem if a driver is missing; it names the extra to install."""
    try:
        yield
    except ModuleNotFoundError as missing:
        if (missing.name or "").startswith("rerail"):
            raise
        raise problem from missing


def _store_extra(url: str, extra: str) -> StoreError:
    return StoreError(tell("refuse.settings.store_extra", url=f"{url.partition('://')[0]}://", extra=extra))


def as_url(store: str) -> str:
    """Return a store's URL from a URL or a plain file."""
    return store if "://" in store else f"sqlite:///{store}"


def make_store(url: str, settings: Settings | None = None, *, reads: bool = False) -> Store:
    """Return the store of an address: a file, `memory://`, `sqlite:///path`, `postgresql://…` or `redis://…`."""
    settings, url = settings or Settings(), url if "://" in url else as_url(url)
    if url == "memory://":
        from rerail.adapters.stores.memory import MemoryStore

        return MemoryStore()
    if url.startswith("sqlite:///"):
        from rerail.adapters.stores.sqlite.maintenance import Durability
        from rerail.adapters.stores.sqlite.store import SqliteStore

        path = url.removeprefix("sqlite:///")
        if not path:
            raise StoreError(tell("refuse.settings.store_without_file", url=url))
        durability: Durability = "normal" if settings.store.durability == "normal" else "full"
        return SqliteStore(path, durability, reads=reads)
    if url.startswith(("postgresql://", "postgres://")):
        with needs_extra(_store_extra(url, "postgres")):
            from rerail.adapters.stores.postgres.store import PostgresStore

            return PostgresStore(url, settings.store.durability)
    if url.startswith(("redis://", "rediss://", "unix://")):
        with needs_extra(_store_extra(url, "redis")):
            from rerail.adapters.stores.redis.store import RedisStore

            return RedisStore(url, keep_seconds=settings.artifacts.ttl_hours * 3600)
    from rerail.adapters.stores.remote import shown

    raise StoreError(tell("refuse.settings.store_unknown", url=shown(url)))


@runtime_checkable
class _LimitedHosts(Tool, Protocol):
    """A tool that connects to hosts, and accepts a list of allowed ones."""

    def limited_to(self, hosts: tuple[str, ...]) -> Tool: ...


def make_executor(settings: Settings) -> Executor | None:
    """Return the executor of the Ray cluster that `[ray]` names; None to call tools in this process."""
    if not settings.ray.steps:
        return None
    with needs_extra(SettingsError(tell("refuse.settings.ray_extra"))):
        from rerail.adapters.executors.ray.executor import RayExecutor

    table = settings.ray
    return RayExecutor(table.address, table.env, table.cpus, table.max_wait, table.gone_after)


def make_tools(tools: Iterable[Any], settings: Settings) -> dict[str, Tool]:
    """Return tools by name: functions, tool objects, and what the settings declare."""
    from rerail.adapters.tools.functions import FunctionTool, as_tool

    found: dict[str, Tool] = {}
    sources: dict[str, Tool] = {}
    table = settings.tools
    hosts = tuple(table.allow_hosts)
    declared = declared_tools(settings) if table.shell or table.http else ()
    named = named_tools(settings) if table.modules else ()
    for given in (*map(as_tool, tools), *declared, *named):
        tool: Tool = given.limited_to(hosts) if hosts and isinstance(given, _LimitedHosts) else given
        if (table.default_effect or table.require_effect) and isinstance(tool, FunctionTool):
            usual = Effect(table.default_effect) if table.default_effect else None
            tool = tool.under(usual, require_effect=table.require_effect)
        name = tool.spec.name
        if sources.setdefault(name, given) is not given:
            raise SettingsError(tell("refuse.settings.two_tools", name=name))
        found[name] = tool
    return found


def declared_tools(settings: Settings) -> list[Tool]:
    """Return the shell and HTTP tools that `[tools]` declares."""
    from rerail.adapters.tools.declared import from_mapping

    table = settings.tools

    commands = {name: data if isinstance(data, Mapping) else {"argv": data} for name, data in table.shell.items()}
    tools = [from_mapping(name, {"shell": data}) for name, data in commands.items()]
    hosts = tuple(table.allow_hosts) or None
    return tools + [from_mapping(name, {"http": data}, allow_hosts=hosts) for name, data in table.http.items()]


def named_tools(settings: Settings) -> list[Tool]:
    """Return the tools of the modules and files that `[tools]` names."""
    from rerail.adapters.tools.loading import load_tools

    return [tool for source in settings.tools.modules for tool in load_tools(source)]


def make_model(settings: Settings) -> Model | None:
    """Return the model that `[model]` names, by role; None if none is named."""
    table = settings.model
    roles: dict[str, RoleTable] = {role: getattr(table, role) for role in ROLES}
    named = [role for role, own in roles.items() if own.name or table.name]
    addressed = table.base_url or any(own.base_url for own in roles.values())
    if not named and addressed:
        raise SettingsError(tell("refuse.settings.model_unnamed"))
    if not named:
        return None
    from rerail.adapters.models.chat import RoleModels

    return RoleModels({role: _role_model(settings, roles[role]) for role in named})


def _role_model(settings: Settings, role: RoleTable) -> Model:
    """Return a role's model: the common one's settings fill the gaps of the role."""
    from rerail.adapters.models.chat import ChatModel
    from rerail.adapters.models.endpoints import Endpoint

    table = settings.model
    common = Endpoint(table.name or "", table.base_url, table.key_env)
    own = common.beside(role.name) if role.name else common
    if role.base_url:
        own = Endpoint(role.name or common.name, role.base_url)  # a key is not sent to another address
    if role.key_env:
        own = replace(own, key_env=role.key_env)
    # A fallback's name belongs to the table that names it.
    fallback = own.beside(role.fallback) if role.fallback else common.beside(table.fallback) if table.fallback else None
    return ChatModel(
        own,
        *([fallback] if fallback else []),
        temperature=table.temperature if role.temperature is None else role.temperature,
        timeout=table.timeout if role.timeout is None else role.timeout,
        retries=table.retries,
        output=table.output,
        prices=table.prices,
        policy=settings.policy(),
    )


def make_mind(settings: Settings, given: Mind | Model | None = None) -> Mind | None:
    """Return the mind that answers questions: the given mind or model, else the settings' model."""
    if given is not None and not is_model(given):
        return as_mind(cast("Mind", given))  # the client's own mind
    if given is None and settings.model == ModelTable():
        return None  # no model is set
    model = cast("Model | None", given) or make_model(settings)
    if model is None:
        return None
    from rerail.adapters.models.mind import ModelMind, Prompts

    table = settings.model
    seconds = max(getattr(table, role).timeout or table.timeout for role in ROLES)
    fallbacks = table.fallback is not None or any(getattr(table, role).fallback is not None for role in ROLES)
    return ModelMind(
        model,
        Prompts(Path(table.prompts) if table.prompts else None),
        reasks=table.max_reasks,
        room=table.max_context_chars,
        # Every try, of the model and of its fallback, may take its full timeout.
        patience=seconds * (2 if fallbacks else 1) * (1 + table.max_reasks) + 1.0,
        answers=roles_of(model, ROLES),
    )


def make_notifier(settings: Settings) -> Notifier:
    """Return the notifier of the command and webhook that `[notify]` names."""
    table = settings.notify
    from rerail.adapters.notify import Notifiers, NotifyCommand, Webhook

    targets: list[NotifyCommand | Webhook] = [NotifyCommand(tuple(table.command))] if table.command else []
    if table.webhook:
        webhook = Webhook(table.webhook, tuple(settings.tools.allow_hosts))
        try:
            refused = webhook.refused()
        except ValueError:  # no host, or no valid port
            raise SettingsError(tell("refuse.notify.no_address", source="notify")) from None
        if refused:
            raise SettingsError(tell("refuse.notify.host", host=webhook.host), hint=tell("hint.notify.host"))
        targets.append(webhook)
    return Notifiers(tuple(targets), frozenset(table.on), table.timeout, table.retries)


def declared_servers(settings: Settings) -> list[McpServer]:
    """Return the MCP servers that `[mcp]` names; none is started."""
    from rerail.adapters.tools.mcp.server_config import server_from

    return [server_from(name, data) for name, data in settings.mcp.servers.items()]


def workspaces_of(settings: Settings) -> Callable[[str], Path]:
    """Return the function run → folder of its files, for the settings' store."""
    return workspaces_at(settings.store.url, settings.store.workspace)


def workspaces_at(url: str, given: str | Path | None) -> Callable[[str], Path]:
    """Return the function run → folder of its files: beside the database, or in a temporary folder."""

    def folder(run: str) -> Path:
        if given is not None:
            base = Path(given)
        elif url.startswith("sqlite:///"):
            base = Path(url.removeprefix("sqlite:///")).absolute().parent / "work"
        else:
            base = Path(tempfile.gettempdir()) / f"rerail-work-{USER}"
        return base / run  # made by the context when a tool first asks for it

    return folder


# -- Tools of an engine ---------------------------------------------------------------------------------------------


class Toolbox:
    """Tools and their specs by name; both change while servers are connected."""

    def __init__(
        self, tools: dict[str, Tool], servers: Sequence[McpServer], idempotent_for: Mapping[str, float]
    ) -> None:
        """``idempotent_for``: seconds for which services remember the keys of calls, by tool (contract E2)."""
        self.tools, self.servers, self._idempotent_for = tools, servers, idempotent_for
        self.specs = {name: tool.spec for name, tool in tools.items()}
        self._lent: list[str] = []  # tools that exist only while the servers are connected
        self.connections: McpServers | None = None
        if idempotent_for:
            self._set_keys()

    def _set_keys(self) -> None:
        for name, seconds in self._idempotent_for.items():
            spec = self.specs.get(name)
            if spec is not None and not spec.keyed:
                raise SettingsError(tell("tool.faulty", name=name, message=tell("tool.no_key")))
            if spec is not None:
                self.specs[name] = replace(spec, idempotent_for=seconds)

    def add(self, tools: Mapping[str, Tool], servers: Sequence[McpServer], idempotent_for: Mapping[str, float]) -> None:
        """Add tools and servers; `open` connects to the servers."""
        self.tools.update(tools)
        self.specs.update({name: tool.spec for name, tool in tools.items()})
        self.servers, self._idempotent_for = servers, idempotent_for
        self._set_keys()

    async def open(self) -> None:
        from rerail.adapters.tools.mcp.tools import McpServers

        self.connections = self.connections or McpServers()
        tools: list[McpTool] = await self.connections.open(self.servers)
        try:
            _require_new_names(tools, self.specs)
        except SettingsError:
            await self.connections.close([server.name for server in self.servers])
            raise
        for tool in tools:
            name = tool.spec.name
            self.tools[name], self.specs[name] = tool, tool.spec
            self._lent.append(name)
        self._set_keys()

    async def close(self) -> None:
        for name in self._lent:
            del self.tools[name]
            del self.specs[name]
        self._lent.clear()
        if self.connections is not None:
            await self.connections.close()


def _require_new_names(tools: Iterable[McpTool], known: Mapping[str, ToolSpec]) -> None:
    taken = {name: spec.provider for name, spec in known.items()}
    for tool in tools:
        name, server = tool.spec.name, tool.spec.provider
        if name in taken:
            other = tell("plan.server", server=taken[name]) if taken[name] else tell("plan.own_tool")
            hint = tell("hint.settings.two_tools_of_servers", server=server, name=name)
            told = tell("refuse.settings.two_tools_of_servers", name=name, server=server, other=other)
            raise SettingsError(told, hint=hint)
        taken[name] = server
