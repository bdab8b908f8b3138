"""The public engine: a facade over its parts, and `run` for one plan in one line.

Rules of this file:
- The parts know each other by constructor arguments only; they are put together here, and nowhere else.
- The facade adds no behaviour to a method that it delegates.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import os
import sys
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload

import msgspec

from rerail import factory as wiring
from rerail.adapters.executors.carrying import IMPORTS, unguarded
from rerail.engine.parts import EngineParts, Limits, Observers
from rerail.engine.performer import Performer
from rerail.engine.refusals import refusals
from rerail.engine.run_loop import RunLoop
from rerail.engine.runs.commands import Commands, Internals, refuse_without_plan
from rerail.engine.runs.definition_drift import DefinitionDrift, placeholders
from rerail.engine.runs.leases import Leases
from rerail.engine.runs.lineage import Lineage
from rerail.engine.runs.reader import LiveRun, RunReader, not_open, part, store_errors
from rerail.engine.runs.retries import Retries
from rerail.engine.runs.starter import UNPLANNED, Starter
from rerail.engine.runs.supervisor import Supervisor
from rerail.errors import PlanError, Refused
from rerail.factory import Toolbox
from rerail.i18n import Told, say, tell
from rerail.kernel import commands as cmd
from rerail.kernel import events as ev
from rerail.kernel.actor import NO_ACTOR, Actor
from rerail.kernel.commands import Command
from rerail.kernel.events import Record
from rerail.kernel.foreign import EXECUTOR, STORE, with_defaults
from rerail.kernel.retry import Preview
from rerail.kernel.rights import RIGHTS
from rerail.plan.model import Plan
from rerail.plan.step import Step
from rerail.plan.tool_spec import ToolSpec
from rerail.ports import Clock, Executor, Mind, Model, Notifier, Store
from rerail.settings.loading import Settings, recorded_changes, secrets_of
from rerail.settings.principals import of_environment, user_name
from rerail.settings.tables import RECORDED
from rerail.values.redaction import Scrub
from rerail.version import __version__
from rerail.views.results import RunResult

if TYPE_CHECKING:
    from rerail.adapters.telemetry import Tracing
    from rerail.engine.runs.notifications import Notifications
    from rerail.views.replay.outcome import Replay

LOG = logging.getLogger("rerail")
_open_engines: set[int] = set()


class Engine:
    """Runs plans made of tool calls and keeps them alive.

    Open it with `async with`. ``store`` is an address (`sqlite:///runs.db` or just `runs.db`, `memory://`) or a store;
    ``tools`` are functions or tool objects;
    ``model`` answers questions (plan, reflect, repair, replan, judge): a mind, a model, or by default the one that the
    settings name. ``notifier`` replaces what `[notify]` names, ``executor`` what `[ray]` names.
    ``on_notice`` hears events that need attention, such as takeovers. ``sweep_on_open=False`` is for read-only
    engines: opening drops nothing that expired, and does not repeat the store's caveats. ``expects_tools=False``
    previews retries for another process that has the tools.
    """

    is_open = False

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
        via: str = "",
        observe: Callable[[Record], None] | None = None,
        on_notice: Callable[[Told], None] | None = None,
        sweep_on_open: bool = True,
        expects_tools: bool = True,
    ) -> None:
        self.settings = settings = settings if isinstance(settings, Settings) else Settings.load(settings)
        # a program that has set OpenTelemetry up has loaded it
        self._tracing = _make_tracing() if "opentelemetry.trace" in sys.modules else None
        self._executor = with_defaults(executor, EXECUTOR) if executor is not None else None
        if executor is None and settings.ray.steps:
            self._executor = wiring.make_executor(settings)
        servers = wiring.declared_servers(settings) if settings.mcp.servers else ()
        self._toolbox = Toolbox(wiring.make_tools(tools, settings), servers, settings.tools.idempotent_for)
        mind = wiring.make_mind(settings, model)
        watching = (observe, log_event if settings.log.verbose else None, self._tracing)
        observers = tuple(one for one in watching if one is not None)
        clock = clock or wiring.SystemClock()
        name, actor = "", Actor(via)
        if settings.server.tokens:
            name, actor = of_environment(settings.server.tokens, clock.now(), via)
        self._parts = parts = self._make_parts(store, mind, clock, workspace, observers, actor)
        self._tell, self._sweep_on_open = on_notice or LOG.warning, sweep_on_open
        self._by = name or by or user_name()

        policy = settings.policy(tuple(mind.answers) if mind is not None else ())
        live: dict[str, LiveRun] = {}
        self._live, drift = live, DefinitionDrift(parts, policy)
        self._reader = reader = RunReader(parts, live)
        self._leases = leases = Leases(parts, reader, live, worker=worker, on_notice=on_notice or (lambda _: None))
        self._lineage = lineage = Lineage(parts, reader, leases)
        self._supervisor = supervisor = Supervisor(parts, reader, leases, lineage, live, on_end=self._after)
        self._starter = Starter(
            parts, reader, leases, lineage, supervisor, policy, self._by, __version__, tuple(origin),
            settings.reflection.memory, on_notice,
        )  # fmt: skip
        self._commands = Commands(parts, reader, leases, lineage, drift, supervisor, self._by, self._tell)
        self._retries = Retries(
            parts, reader, leases, lineage, drift, supervisor, self._starter, self._commands, self._by, expects_tools
        )
        self.internals = Internals(reader, leases, lineage, supervisor, self._commands, self._equip)
        self._notifications: Notifications | None = None
        if notifier is not None or settings.notify.command or settings.notify.webhook:
            from rerail.engine.runs.notifications import Notifications

            self._notifications = Notifications(notifier or wiring.make_notifier(settings), self._commands.note_down)

    def _make_parts(
        self, store: str | Store | None, mind: Mind | None, clock: Clock, home: str | Path | None, observers: Observers,
        actor: Actor,
    ) -> EngineParts:  # fmt: skip
        """Return the adapters and limits that the parts share."""
        settings = self.settings
        address = store if store is not None else settings.store.url
        found = wiring.make_store(address, settings) if isinstance(address, str) else with_defaults(address, STORE)
        box, performing = self._toolbox, settings.tools.max_output
        scrub = Scrub(secrets_of(settings, box.specs.values(), os.environ))
        return EngineParts(
            store=found,
            clock=clock,
            tools=box.tools,
            specs=box.specs,
            performer=Performer(box.tools, settings.patterns(), performing, clock, self._executor, scrub),
            mind=mind,
            mind_timeout=mind.patience if mind is not None and mind.patience is not None else settings.model.timeout,
            workspaces=wiring.workspaces_at(found.url, home or settings.store.workspace),
            reconnect_seconds=settings.store.reconnect_seconds,
            memory=settings.artifacts.memory,
            limits=Limits(),
            history_window=settings.evaluation.history_window,
            observers=observers,
            actor=actor,
            silent_is_dead=settings.workers.silent_is_dead,
        )

    # -- Opening and closing --------------------------------------------------------------------------------------

    async def open(self) -> None:
        """Open the MCP servers, the cluster and the store, and begin to listen to other processes."""
        if IMPORTS:
            raise unguarded()
        if self._toolbox.servers:
            await self._toolbox.open()
        store = self._parts.store
        try:
            if self._executor is not None:
                await self._executor.open()
            with store_errors():
                await store.open()
                if self._sweep_on_open:
                    await store.sweep(self._parts.clock.now() - self.settings.artifacts.ttl_hours * 3600)
        except BaseException:
            await self._close_outside()
            raise
        for caveat in store.caveats if self._sweep_on_open else ():  # possible data loss in this store
            self._tell(caveat)
        self._supervisor.open()
        self.is_open = True
        _open_engines.add(id(self))

    async def _equip(self, tools: Iterable[Any], origin: Sequence[str], settings: Settings | None = None) -> None:
        """Add tools, found in the history of a run, to an open engine; ``settings`` name MCP servers to open."""
        settings = settings or self.settings
        servers = wiring.declared_servers(settings) if settings.mcp.servers else ()
        self._toolbox.add(wiring.make_tools(tools, settings), servers, settings.tools.idempotent_for)
        self._parts.performer.scrub.learn(secrets_of(settings, self.tools.values(), os.environ))
        self._starter.origin = tuple(origin)
        if servers:
            await self._toolbox.open()

    async def close(self) -> None:
        """Stop live runs as a crash would; the last engine to close also ends the idle worker processes."""
        self.is_open = False
        try:
            await self._supervisor.close()
            if self._notifications is not None:
                await self._notifications.close()
            await self._parts.store.close()
        finally:
            if self._tracing is not None:
                self._tracing.close()
            if self._executor is not None or self._toolbox.connections is not None:
                await self._close_outside()
        _open_engines.discard(id(self))
        processes = sys.modules.get("rerail.adapters.executors.processes.pool")
        if not _open_engines and processes is not None:
            await processes.PROCESSES.close()

    async def _close_outside(self) -> None:
        if self._executor is not None:
            await self._executor.close()
        if self._toolbox.connections is not None:
            await self._toolbox.close()

    async def __aenter__(self) -> Engine:
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def tools(self) -> Mapping[str, ToolSpec]:
        """The engine's tools, with those of the settings' MCP servers once it is open."""
        return self._parts.specs

    # -- Starting and waiting -------------------------------------------------------------------------------------

    async def start(
        self,
        plan: Any = None,
        *,
        objective: str | None = None,
        fallback: Any = None,
        parent: str | None = None,
        by: str | None = None,
        run_id: str | None = None,
        queued: bool = False,
        actor: Actor | None = None,
        on: str | None = None,  # a tombstone: it is refused
    ) -> str:
        """Check a plan and start a run of it; return the run's id.

        With an ``objective`` instead of a plan the model makes one; if it cannot, ``fallback`` runs, and the verdict
        says `degraded` (contract P7). ``actor`` is how a server knows its caller, named ``by`` (I13).
        """
        if not self.is_open:
            raise not_open()
        if (plan is None) == (objective is None):
            raise Refused(tell("refuse.settings.plan_or_objective"), "USAGE")
        if on is not None:
            raise Refused(tell("refuse.ray.coordinator", what=f"on={on!r}"), "USAGE", hint=tell("hint.ray.coordinator"))
        planned = UNPLANNED
        if objective is None:
            chosen = Plan.load(plan)
        else:
            second = Plan.load(fallback) if fallback is not None else None
            chosen, planned = await self._starter.planned(objective, second)
        return await self._starter.start(
            chosen, parent=parent, by=by, run_id=run_id, planned=planned, queued=queued, actor=actor
        )

    async def submit(self, plan: Any = None, **options: Any) -> str:
        """Check a plan and leave a run of it to a worker of the same store; takes the options of `start`."""
        return await self.start(plan, **options, queued=True)

    async def run(
        self, plan: Any = None, *, objective: str | None = None, fallback: Any = None, run_id: str | None = None
    ) -> RunResult:
        """Start a run and wait until it is at rest or waits for a user."""
        return await self.wait(await self.start(plan, objective=objective, fallback=fallback, run_id=run_id))

    async def recover(self) -> tuple[str, ...]:
        """Go on with all interrupted runs, as at the start of an application; return their ids.

        Queued runs, and those with tools that are missing here, are left to others.
        """
        if not self.is_open:
            raise not_open()
        return await self._commands.recover()

    async def _after(self, loop: RunLoop) -> None:
        """Announce the end of a loop, and start the follow-up of a completed run."""
        if self._notifications is not None:
            self._notifications.announce(loop.state, loop.begun)
        if loop.state.follow_up is not None:
            with suppress(PlanError, Refused):  # its tools are missing here; a retry of this run starts it
                await self._starter.follow(loop.state)

    plan = part("_starter", Starter.plan)
    wait = part("_supervisor", Supervisor.wait)

    # -- Looking --------------------------------------------------------------------------------------------------

    find = part("_reader", RunReader.find)
    show = part("_reader", RunReader.show)
    list = part("_reader", RunReader.list)
    events = part("_reader", RunReader.events)
    watch = part("_reader", RunReader.watch)
    why = part("_reader", RunReader.why)
    artifact = part("_reader", RunReader.artifact)
    artifacts = part("_reader", RunReader.artifacts)

    async def replay(self, run: str, settings: Mapping[str, Any]) -> Replay:
        """Replay a recorded run under other settings; nothing is called.

        ``settings`` are nested or dotted: `{"reflection.max_step_retries": 1}`. If they lead to a call without a
        recorded answer, everything that follows is unknown.
        """
        from rerail.views.replay.replay import replay

        wanted = recorded_changes(settings)
        run = await self.find(run)
        records, state = await self.events(run), await self._reader.state(run)
        refuse_without_plan(run, state.revision)
        named, here = placeholders(state), self.tools
        missing = [name for name in named if name not in here]
        changes = {RECORDED[name]: value for name, value in wanted.items()}
        # A long history takes seconds.
        found = await asyncio.to_thread(replay, run, records, {**named, **here}, changes, missing=missing)
        return replace(found, settings={name: found.settings[RECORDED[name]] for name in wanted})

    # -- Commands -------------------------------------------------------------------------------------------------

    async def do(
        self, run: str, command: Command, *, dry_run: bool = False, own_tools_only: bool = False
    ) -> tuple[str, Preview | None]:
        """Apply a command; return its run, and its consequences if they are known.

        With `dry_run` nothing changes. ``own_tools_only`` refuses changes that use tools which this engine lacks.
        """
        if not self.is_open:
            raise not_open()
        own = self._parts.actor  # a name given by hand is a claim
        actor = command.actor if command.actor != NO_ACTOR else Actor(own.via) if command.by else own
        with refusals():
            command = cmd.checked(msgspec.structs.replace(command, by=command.by or self._by, actor=actor))
        try:
            if isinstance(command, cmd.Retry):
                return await self._retries.retry(run, command, dry_run=dry_run)
            return await self._commands.do(run, command, dry_run=dry_run, own_tools_only=own_tools_only)
        except Refused as refused:
            if refused.code in RIGHTS and not dry_run:
                await self._commands.record_refusal(run, command, refused.code)
            raise

    async def pause(self, run: str, *, by: str | None = None) -> None:
        """Start no more steps until the run is resumed."""
        await self.do(run, cmd.Pause(by=by or ""))

    async def cancel(self, run: str, *, by: str | None = None, reason: str = "") -> None:
        """End the run: calls under way are cancelled, and no step starts."""
        await self.do(run, cmd.Cancel(by=by or "", reason=reason))

    async def skip(
        self, run: str, step: str, *, by: str | None = None, reason: str = "", dry_run: bool = False
    ) -> Preview | None:
        """Skip a step; with `dry_run`, as for the commands below, only return the consequences."""
        return await self._previewed(run, cmd.Skip(by=by or "", step=step, reason=reason), dry_run)

    async def _previewed(self, run: str, command: Command, dry_run: bool) -> Preview | None:
        return (await self.do(run, command, dry_run=dry_run))[1]

    async def confirm(
        self,
        run: str,
        step: str | None = None,
        *,
        refuse: bool = False,
        ahead: bool = False,
        args: Mapping[str, Any] | None = None,
        edit: Mapping[str, bytes] | None = None,
        digest: str | None = None,
        by: str | None = None,
        dry_run: bool = False,
    ) -> Preview | None:
        """Approve the call that a gate shows, or refuse it (contract X10).

        ``args`` are changed arguments, ``edit`` replaces the content of files that the call reads. ``digest``
        identifies the call that the user saw: if the gate shows another one by now, nothing is approved. ``ahead``
        approves the plan's own call before its arguments are known.
        """
        command = cmd.Confirm(
            by=by or "", step=step, digest=digest or "", ahead=ahead, args=_plain(args), edit=_plain(edit)
        )
        with refusals():
            given = cmd.refusing(cmd.checked(command)) if refuse else command
        return await self._previewed(run, given, dry_run)

    async def resolve(
        self,
        run: str,
        step: str,
        *,
        succeeded: Any = ...,
        failed: bool = False,
        rerun: bool = False,
        attempt: int | None = None,
        by: str | None = None,
        dry_run: bool = False,
    ) -> Preview | None:
        """Answer a doubt, or mark a step succeeded by hand with a value.

        ``attempt`` is the attempt that the user saw, by default the one in doubt now: an answer is about no other.
        """
        options = (("succeeded", succeeded is not ...), ("failed", failed), ("rerun", rerun))
        chosen: Any = [name for name, given in options if given]
        if len(chosen) != 1:
            raise Refused(tell("refuse.run.resolve_how"), "USAGE")
        value = succeeded if succeeded is not ... else msgspec.UNSET
        command = cmd.Resolve(by=by or "", step=step, outcome=chosen[0], value=value, attempt=attempt)
        return await self._previewed(run, command, dry_run)

    async def add(
        self, run: str, steps: Sequence[Any], *, by: str | None = None, dry_run: bool = False
    ) -> Preview | None:
        """Add steps to a run; at rest it goes on with them. A faulty change is refused and the old plan stays."""
        plain = tuple(msgspec.to_builtins(step) if isinstance(step, Step) else step for step in steps)
        return await self._previewed(run, cmd.Add(by=by or "", steps=plain), dry_run)

    async def repair(
        self, run: str, step: str, *, by: str | None = None, dry_run: bool = False, **changes: Any
    ) -> Preview | None:
        """Change a step that did not succeed (`tool`, `args`, `needs`, …), and run it and its dependents again.

        Arguments are given one by one and the others stay; `remove` names arguments to drop.
        """
        return await self._previewed(run, cmd.Repair(by=by or "", step=step, value=changes), dry_run)

    @overload
    async def retry(
        self, run: str, steps: Sequence[str] | None = ..., stage: str | None = ..., *, clean: bool = ...,
        force: bool = ..., dry_run: Literal[False] = ..., take_over: bool = ..., by: str | None = ...,
    ) -> RunResult: ...  # fmt: skip
    @overload
    async def retry(
        self, run: str, steps: Sequence[str] | None = ..., stage: str | None = ..., *, clean: bool = ...,
        force: bool = ..., dry_run: Literal[True], take_over: bool = ..., by: str | None = ...,
    ) -> Preview: ...  # fmt: skip
    @overload
    async def retry(
        self, run: str, steps: Sequence[str] | None = ..., stage: str | None = ..., *, clean: bool = ...,
        force: bool = ..., dry_run: bool = ..., take_over: bool = ..., by: str | None = ...,
    ) -> RunResult | Preview: ...  # fmt: skip

    async def retry(
        self,
        run: str,
        steps: Sequence[str] | None = None,
        stage: str | None = None,
        *,
        clean: bool = False,
        force: bool = False,
        dry_run: bool = False,
        take_over: bool = False,
        by: str | None = None,
    ) -> RunResult | Preview:
        """Retry exactly what failed and its dependents; with `dry_run` only show the consequences."""
        target, preview = await self.begin_retry(
            run, steps, stage, clean=clean, force=force, dry_run=dry_run, take_over=take_over, by=by
        )
        return preview if dry_run and preview is not None else await self.wait(target)

    async def begin_retry(
        self,
        run: str,
        steps: Sequence[str] | None = None,
        stage: str | None = None,
        *,
        clean: bool = False,
        force: bool = False,
        dry_run: bool = False,
        take_over: bool = False,
        by: str | None = None,
    ) -> tuple[str, Preview | None]:
        """Start a retry; return its run (a follow-up, perhaps) and its consequences.

        ``take_over`` takes the run over from a process that is stopped or silent; see `begin_resume`.
        """
        command = cmd.Retry(
            by=by or "", steps=tuple(steps or ()), stage=stage, clean=clean, force=force, take_over=take_over
        )
        return await self.do(run, command, dry_run=dry_run)

    async def resume(self, run: str, *, take_over: bool = False, by: str | None = None) -> RunResult:
        """Continue an interrupted or paused run, and wait for it."""
        return await self.wait(await self.begin_resume(run, take_over=take_over, by=by))

    async def begin_resume(self, run: str, *, take_over: bool = False, by: str | None = None) -> str:
        """Continue an interrupted or paused run; return its id.

        ``take_over`` takes it over from a living process of this machine that is stopped or silent: that process can no
        longer write to it, and makes no further call. A process at work keeps its run.
        """
        return (await self.do(run, cmd.Resume(by=by or "", take_over=take_over)))[0]


def _make_tracing() -> Tracing | None:
    """Return an observer that makes spans of runs; None if OpenTelemetry is not set up."""
    from rerail.adapters.telemetry import make_tracing

    return make_tracing()


def _plain(values: Any) -> Any:
    """Return a mapping as a dict; another value is refused with its command."""
    return dict(values) if isinstance(values, Mapping) else values if values is not None else {}


async def arun(
    plan: Any = None,
    tools: Iterable[Any] = (),
    *,
    objective: str | None = None,
    fallback: Any = None,
    run_id: str | None = None,
    store: str | Store | None = None,
    settings: Settings | Mapping[str, Any] | None = None,
    model: Mind | Model | None = None,
) -> RunResult:
    """Run a plan to its end: in memory unless a store is given."""
    async with Engine(store or "memory://", tools, settings, model) as engine:
        return await engine.run(plan, objective=objective, fallback=fallback, run_id=run_id)


def run(
    plan: Any = None,
    tools: Iterable[Any] = (),
    *,
    objective: str | None = None,
    fallback: Any = None,
    run_id: str | None = None,
    store: str | Store | None = None,
    settings: Settings | Mapping[str, Any] | None = None,
    model: Mind | Model | None = None,
) -> RunResult:
    """Run a plan to its end, in one line; async code awaits `arun`.

    Where an event loop runs already, as in a notebook, the run gets a thread of its own.
    """
    work = arun(
        plan, tools, objective=objective, fallback=fallback, run_id=run_id, store=store, settings=settings, model=model
    )
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    return _run_beside(work)


def _run_beside(work: Coroutine[Any, Any, RunResult]) -> RunResult:
    """Run a coroutine on a loop in another thread; an interrupt of this thread cancels it."""
    begun: list[Callable[[], object]] = []

    async def whole() -> RunResult:
        loop, task = asyncio.get_running_loop(), asyncio.ensure_future(work)
        begun.append(lambda: loop.call_soon_threadsafe(task.cancel))
        return await task

    with ThreadPoolExecutor(1) as threads:
        threads.submit(int).result()  # an interrupt while the thread starts would leave it to itself
        try:
            return threads.submit(contextvars.copy_context().run, asyncio.run, whole()).result()
        except BaseException:
            with suppress(RuntimeError):  # its loop is closed: this is the run's own error
                for cancel in begun:
                    cancel()
            raise


def log_event(record: Record) -> None:
    """Log for `log.verbose`: the retry chain, and each skip with its failed needs."""
    run, event = record.run, record.event
    if isinstance(event, ev.RetryBegin):
        reasons = "; ".join(f"{step}: {event.reasons.get(step, '-')}" for step in event.roots)
        LOG.info(say("log.chain", run=run, round=event.round, chain=" → ".join(event.chain), reasons=reasons))
    elif isinstance(event, ev.StepSkipped):
        LOG.info(say("log.skip", run=run, step=event.step, message=event.message, needs=", ".join(event.needs) or "-"))
