"""The façade: start, wait, retry, resume, act. It finds who owns a run, and lets the loop do the rest."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec

from rerail.core import command as cmd
from rerail.core import commands
from rerail.core import events as ev
from rerail.core.assumed import acts, assumed, said
from rerail.core.command import Command, storable
from rerail.core.commands import Preview
from rerail.core.decide import Call, decide
from rerail.core.memory import preferred
from rerail.core.pipeline import last_files
from rerail.core.plan import Plan, Step, check
from rerail.core.policy import Policy
from rerail.core.state import State
from rerail.core.track import RunStatus
from rerail.core.views import RunResult
from rerail.engine.family import follow_up_id
from rerail.engine.foreseeing import Aim, Foreseer, refuse_without_plan
from rerail.engine.keeping import (
    Snapshot,
    backed_up,
    cleared,
    discard,
    drafted,
    left_behind,
)
from rerail.engine.loop import Ended, Host, RunLoop
from rerail.engine.notices import Notices
from rerail.engine.owner import RENEW_EVERY, is_arriving
from rerail.engine.pace import Pace
from rerail.engine.planning import Planned, planned_for
from rerail.engine.reading import AT_REST, FORGOTTEN, Live, store_errors
from rerail.engine.refusals import encode_answer, raise_answer, refusals, refuse_secret, secrets_in
from rerail.engine.taking import reaching, unheard
from rerail.engine.today import Today, fingerprints, server_faults, without_servers
from rerail.errors import PlanError, Refused, RerailError, StoreError
from rerail.i18n import as_text, tell
from rerail.ports import Conflict, Head, Lease, Unavailable, Unusable

INBOX_EVERY = 0.2
ANSWER_WITHIN = 30.0
WITHDRAWN = b'{"withdrawn":true}'
MOST_WAITING = 10_000  # runs that are found in one go
CALLS_NOTHING = (cmd.Cancel, cmd.Pause, cmd.Notified)  # commands that may be done whatever other process is at work
MAX_RUN_ID = 160  # bytes: it names a folder, and what follows it has a longer one


LOG = logging.getLogger("rerail")


class Engine(Foreseer):
    """Runs plans durably; everything people can do to a run goes through here."""

    def __init__(
        self,
        host: Host,
        policy: Policy,
        *,
        by: str,
        version: str,
        origin: Sequence[str],
        ttl: float,
        worker: bool = False,
        remembers: bool = False,
    ) -> None:
        super().__init__(host, worker=worker)
        self._remembers = remembers
        self._policy, self._by, self._version = policy, by, version
        self._today = Today(host, policy)
        self._origin, self._ttl = tuple(origin), ttl
        self._entrusted: set[str] = set()  # runs that this engine left to others, who will not leave them alone
        self._leaving = self._closing = False
        self._broken: dict[str, RerailError] = {}  # runs that stopped because they could not be written any more
        self._attendants: list[asyncio.Task[None]] = []
        self._follow_ups: set[asyncio.Task[Any]] = set()
        self._notices = Notices(host.notifier, self._note_down)
        self.lends_only = False  # it acts for others, who may use its own tools, and not those of a run's owner
        self.tidies = True  # it drops what has expired when it is opened; who only looks need not wait for that
        self.looks_only = False  # it has no tools, and foresees what somebody who has them will do
        self._paces: dict[str, Pace] = {}  # of runs that go from stage to stage as somebody else says

    # -- Opening and closing --------------------------------------------------------------------------------------

    async def open(self) -> None:
        """Open the store and begin to listen to other processes."""
        self._leaving = self._closing = False
        with store_errors():
            await self._host.store.open()
            if self.tidies:
                await self._host.store.sweep(self._host.clock.now() - self._ttl)
        for caveat in self._host.store.caveats:  # what a store may lose, somebody has to hear
            (LOG.warning if self.notice is unheard else self.notice)(caveat)
        self._attendants = [asyncio.create_task(self._attend()), asyncio.create_task(self._keep_leases())]

    async def close(self) -> None:
        """Stop live runs as a crash would: calls cancelled, leases released, nothing recorded as cancelled."""
        self._closing = True
        for attendant in self._attendants:
            attendant.cancel()
        await asyncio.gather(*self._attendants, return_exceptions=True)
        tasks = [live.task for live in self._live.values()]
        for live in self._live.values():
            live.loop.leave()  # a driver of a store may swallow a cancellation; nothing must go on for that
        for task in (*tasks, *self._follow_ups):
            task.cancel()
        await asyncio.gather(*tasks, *self._follow_ups, return_exceptions=True)
        await self._notices.close()
        await self._host.store.close()

    async def __aenter__(self) -> Engine:
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _attend(self) -> None:
        """Hand over what other processes want of our runs."""
        while self._host.clock.polls and not self._closing:  # a driver of a store may swallow the cancellation
            await asyncio.sleep(INBOX_EVERY)
            for run, live in list(self._live.items()):
                # One run's trouble must not keep the others from being heard.
                with contextlib.suppress(Unavailable, Unusable, Conflict, RerailError):
                    await self._serve(run, live)

    async def _keep_leases(self) -> None:
        """Say that we live, whatever else takes long: who is silent is taken for dead (T7)."""
        while self._host.clock.polls and not self._closing:  # as above
            await asyncio.sleep(RENEW_EVERY)
            await self._renew_all()

    async def _serve(self, run: str, live: Live) -> None:
        for number, data in await self._host.store.inbox(run):
            problem: RerailError | None = None
            if live.loop.ended:
                return  # whoever asked will see that nobody drives the run, and apply the action
            try:
                command: Command = msgspec.json.decode(data, type=Command)
                if not live.loop.state.has_granted(command.key, number):  # else only its answer was lost
                    await live.loop.command(msgspec.structs.replace(command, number=number))
            except Ended:
                return
            except RerailError as error:
                problem = error
            except msgspec.DecodeError as error:
                problem = Refused(tell("refuse.run.action_unreadable", error=error), "STEP_NOT_WAITING")
            await self._host.store.answer(run, number, encode_answer(problem))

    # -- Starting and waiting -------------------------------------------------------------------------------------

    async def plan(self, objective: str) -> Planned:
        """A plan for an objective, made by the model and checked; nothing is run (P7)."""
        return await planned_for(objective, self._host, self._policy)

    async def start(
        self,
        plan: Plan,
        *,
        parent: str | None = None,
        by: str | None = None,
        run_id: str | None = None,
        planned: Planned | None = None,
        queued: bool = False,
    ) -> str:
        """Check a plan and start a run of it; returns the run's id. ``planned`` is what it cost to make the plan.

        ``queued``: it is left to whoever takes it up (`take_up`).
        """
        specs = self._host.specs
        faults = [*check(plan, specs), *secrets_in(plan, self._host.performer.scrub)]
        if faults:
            raise PlanError(tell("refuse.run.plan_faulty"), faults)
        run = usable_id(run_id) if run_id is not None else secrets.token_hex(5)
        now = self._host.clock.now()
        store = self._host.store
        memory = preferred(await self._lessons()) if self._remembers else {}
        above = await self.state(parent) if parent else None
        if above is not None:
            self._homes[run] = above.home
        guessed = assumed(plan.steps, specs)
        with store_errors(), reaching(run):
            head = Head(run, 0, "pending", plan.objective, parent or "", now, now, self._owner, 1, now)
            try:
                await store.create(head)  # created and owned in one go: nobody can come between
                lease = Lease(run, self._owner, head.fence)
            except Conflict:
                lease = await self._begun_before(run)
        loop = RunLoop(self._host, lease, State(run))
        loop.note(
            ev.RunStarted(
                plan.objective, parent or "", self._policy, by or self._by, self._version, memory, self._origin,
                above.home if above is not None else "",
                tuple(ev.FileMade(*file) for file in last_files(above)) if above is not None else (), queued,
            ),
            *(planned.consulted() if planned is not None else ()),
            ev.PlanAccepted(
                Plan(plan.objective, plan.steps, plan.follow_up), 1, fingerprints(plan, specs),
                planned.by if planned is not None and not planned.problem else "",
                planned.problem if planned is not None else "",
                assumed=tuple(guessed),
            ),
        )  # fmt: skip
        try:
            await loop.commit()  # a run that was announced is there, whatever dies next
            if parent is not None and not queued:
                await self._refuse_kin(run)  # what it follows may be done again already, by somebody who was fast
        except BaseException:
            await self._let_go(loop.lease)
            raise
        self._tell_assumed([name for name in guessed if above is None or name not in above.assumed])
        if queued:
            self._entrusted.add(run)
            await self._let_go(loop.lease)
        else:
            self._drive(run, loop, above)
        return run

    def _tell_assumed(self, names: list[str]) -> None:
        """Name the tools whose effect is assumed; a program without a listener logs those that seem to act (E3)."""
        if self.notice is unheard:
            specs = self._host.specs
            names = [name for name in names if acts(name, specs[name].description)]
        if names:
            (LOG.warning if self.notice is unheard else self.notice)(said(names))

    async def _begun_before(self, run: str) -> Lease:
        """Take a run that somebody made and did not live to give a plan, to start it again; `Refused` for any other."""
        if not (await self.head(run)).seq:
            with contextlib.suppress(Refused):  # somebody is about to give it one
                return (await self._claim(run, None))[0]
        raise Refused(tell("refuse.run.id_taken", run=run), "RUN_LIVE", hint=tell("hint.run.id_taken", run=run))

    async def run(self, plan: Plan) -> RunResult:
        """Start a run and wait until it is at rest or waits for a person."""
        return await self.wait(await self.start(plan))

    async def wait(self, run: str) -> RunResult:
        """Wait until a run is at rest, or waits for a person; a run somebody else drives is watched."""
        run = await self.find(run)
        live = self._live.get(run)
        if live is not None:
            await asyncio.shield(live.task)
            return await self._result(live.loop.state, live.loop.contents)
        if run in self._broken:
            raise self._broken[run]
        while True:
            head = await self.head(run)
            # What was left to others waits for them; with nobody in sight there is nothing to wait for.
            alone = head.status != RunStatus.PENDING and run not in self._entrusted
            gone = alone and self._watch.is_dead(head, self._host.clock.now())
            if head.status in AT_REST or head.status == RunStatus.WAITING or gone:
                return await self.show(run)
            with store_errors():
                await self._host.store.changed(run, head.seq, 1.0)

    def _drive(self, run: str, loop: RunLoop, above: State | None = None) -> None:
        """Let a run go on in a task of its own; ``above`` is its parent, whose snapshot tells of both."""
        if loop.state.staged and loop.state.home == (above or loop.state).run:
            loop.snapshot = Snapshot(loop.workspace, above)
        loop.pace = self._paces.get(run)
        if loop.pace is not None:
            loop.pace.begun()
        task = asyncio.get_running_loop().create_task(self._driven(run, loop))
        task.add_done_callback(lambda done: None if done.cancelled() else done.exception())  # `wait` raises it
        self._live[run] = Live(loop, task)

    def pace(self, run: str) -> None:
        """From now on drive a run from stage to stage, as `through` says (I5); one that is under way is left alone."""
        self._paces.setdefault(run, Pace())

    async def through(self, run: str, stage: str = "") -> bool:
        """Let a run go through its next stage, if that is the one; False once this engine does not drive it.

        Without a stage, only wait until the run stands before one. Raises what broke the run, if it is broken.
        """
        live, pace = self._live.get(run), self._paces.get(run)
        if live is not None and pace is not None:
            await (pace.through(stage, live.task) if stage else pace.stands(live.task))
        live = self._live.get(run)
        if live is not None and not live.task.done():
            return True
        if run in self._broken:
            raise self._broken[run]
        return False

    async def due(self, run: str) -> list[str]:
        """The steps whose calls would begin now, in their order; nothing begins."""
        live = self._live.get(run)
        state = live.loop.state if live is not None else await self.state(run)  # not the whole history at every stage
        actions = decide(state, self._host.specs, self._host.clock.now())
        return [action.step for action in actions if isinstance(action, Call)]

    async def _driven(self, run: str, loop: RunLoop) -> None:
        self._broken.pop(run, None)
        try:
            with contextlib.suppress(RerailError, OSError):  # nobody waits for that
                await self._sweep_drafts(loop.state)
            await loop.drive()
        except Exception as error:
            broken = (
                error
                if isinstance(error, RerailError)
                else StoreError(tell("refuse.run.broken", run=run, broken=error))
            )
            self._broken[run] = broken
            raise
        finally:
            self._live.pop(run, None)
            if loop.state.rest is not None:
                self._paces.pop(run, None)
            await loop.drained()
            await self._let_go(loop.lease)
        self._notices.announce(loop.state, loop.begun)
        with contextlib.suppress(PlanError, Refused):  # its tools are not here; a retry of this run will start it
            await self._follow(loop.state)

    async def _follow(self, state: State) -> str | None:
        """A completed run starts its follow-up, once for each time it completes (T6); returns the follow-up's id."""
        if state.follow_up is None or state.rest is None or state.rest.status != RunStatus.COMPLETED:
            return None
        # The id tells which completion it follows, so that a process that died in between is no loss and no double.
        child = follow_up_id(state)
        if not await self._is_begun(child):
            with refusals():
                commands.goes_on_here(state)
            try:
                plan = without_servers(state.follow_up)
                await self.start(plan, parent=state.run, run_id=child, queued=self._leaving)
            except PlanError as error:
                servers = server_faults(state.run, {**state.mcp, **state.follow_up.mcp})
                raise PlanError(error.opening, [*error.faults, *servers], error.code) from error
        return child

    async def _note_down(self, state: State, told: list[ev.Notified]) -> None:
        """Write down what came of a notice, through whoever has the run by now (T7, T10)."""
        run = state.run
        command = cmd.Notified(value=told)
        for _ in range(5):
            if run in self._live or self._driven_elsewhere(await self.head(run)):
                if await self._handed_over(run, command):
                    return
                continue
            self._noting.add(run)
            try:
                loop = await self._take(run)
                try:
                    loop.note(*told)
                    await loop.commit()
                finally:
                    await self._let_go(loop.lease)
                return
            except Refused:
                await asyncio.sleep(0.05)  # somebody was faster
            finally:
                self._noting.discard(run)

    # -- Forgetting (H10) -------------------------------------------------------------------------------------------

    async def forget(self, *, by: str | None = None) -> None:
        """Clear the failure memory: only what happens from now on is learnt from."""
        store, now = self._host.store, self._host.clock.now()
        with store_errors():
            if await store.head(FORGOTTEN) is None:
                await store.create(Head(FORGOTTEN, status=str(RunStatus.COMPLETED), created_at=now, updated_at=now))
        loop = await self._take(FORGOTTEN)
        loop.note(ev.Acted("forget", by or self._by))
        try:
            await loop.commit()
        finally:
            await self._let_go(loop.lease)

    # -- Acting ---------------------------------------------------------------------------------------------------

    async def do(self, run: str, command: Command, *, dry_run: bool = False) -> tuple[str, Preview | None]:
        """Do what a command says; the run that it is done to, and what it leads to if that is asked or known.

        With `dry_run` nothing is done. The methods below say the same in words.
        """
        command = msgspec.structs.replace(command, by=command.by or self._by)
        if isinstance(command, cmd.Retry):
            return await self._retry(run, command, dry_run=dry_run)
        if isinstance(command, cmd.Resume):
            return await self._resume(run, command), None
        run = await self.find(run)
        return run, await self._do(run, command, dry_run=dry_run)

    async def _do(self, run: str, command: Command, *, dry_run: bool = False) -> Preview | None:
        if isinstance(command, cmd.Confirm | cmd.Refuse):
            await self._refuse_superseded(run)
        if isinstance(command, cmd.Confirm) and not command.ahead:
            return await self._confirm(run, command, dry_run=dry_run)
        if isinstance(command, cmd.Confirm) and command.edit:
            raise Refused(tell("refuse.run.ahead_edits"), "USAGE")
        if isinstance(command, cmd.Resolve) and command.outcome == "succeeded":
            files = await self._files_of(run, command.step, dry_run=dry_run)
            command = msgspec.structs.replace(command, files=files)
        return await self._act(run, command, dry_run=dry_run)

    async def pause(self, run: str, *, by: str | None = None) -> None:
        """Start nothing more until the run is resumed."""
        await self.do(run, cmd.Pause(by=by or ""))

    async def cancel(self, run: str, *, by: str | None = None, reason: str = "") -> None:
        """End the run: calls under way are cancelled, nothing more starts."""
        await self.do(run, cmd.Cancel(by=by or "", reason=reason))

    async def skip(
        self, run: str, step: str, *, by: str | None = None, reason: str = "", dry_run: bool = False
    ) -> Preview | None:
        """Do without a step; with `dry_run`, as for the actions below, only tell what that would lead to."""
        return (await self.do(run, cmd.Skip(by=by or "", step=step, reason=reason), dry_run=dry_run))[1]

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
        """Agree to the call that a gate shows, or refuse it (X10).

        ``args`` are arguments that change first, ``edit`` gives files that the call reads another content. ``digest``
        is that of the call which the person saw: if the gate shows another one by now, nothing is agreed to. ``ahead``
        agrees to the plan's own call before its arguments are known.
        """
        command = cmd.Confirm(
            by=by or "", step=step, digest=digest or "", ahead=ahead, args=dict(args or {}), edit=dict(edit or {})
        )
        with refusals():
            given = cmd.refusing(command) if refuse else command
        return (await self.do(run, given, dry_run=dry_run))[1]

    async def _confirm(self, run: str, command: cmd.Confirm, *, dry_run: bool) -> Preview | None:
        """Agree to the call that is shown, with the files that the person edited in their place."""
        state = await self.state(run) if dry_run else await self._with_gates_shown(run)
        with refusals():
            gate = commands.gate(state, command.step)
            shown = commands.shown_call(state, gate)
        kept = await self._kept(run, gate, shown.args_blob) if command.args and shown.args is None else None
        edit = command.edit
        command = msgspec.structs.replace(
            command, step=gate.id, digest=command.digest or shown.digest, value=kept, edit={}
        )
        async with drafted(self._host, state, gate, edit, dry_run=dry_run) as files:
            # The owner puts them in their place, once it is on record that they are what was agreed to.
            return await self._act(run, msgspec.structs.replace(command, files=files), dry_run=dry_run)

    async def _with_gates_shown(self, run: str) -> State:
        """A run whose gates show their calls; one that nobody drives goes on to there first."""
        state = await self.state(run)
        if not state.unshown or state.paused or run in self._live or self._driven_elsewhere(await self.head(run)):
            return state
        if self._today.can_drive(state):
            await self.begin_resume(run)
            async for _ in self.watch(run, state.seq):
                state = await self.state(run)
                if state.waiting or not state.unshown:
                    break
        return state

    async def _files_of(self, run: str, step: str, *, dry_run: bool) -> tuple[ev.FileMade, ...]:
        """The files that a step declared by hand to have succeeded left behind; `Refused` if they do not do (T1)."""
        state = await self.state(await self.find(run))
        track = state.tracks.get(step)
        if track is None or not track.step.produces:
            return ()
        if not dry_run:
            await cleared(self._host, state)  # else what a run that starts over is to lose would be taken for its own
        return await left_behind(self._host, state, track)

    async def resolve(
        self,
        run: str,
        step: str,
        *,
        succeeded: Any = ...,
        failed: bool = False,
        rerun: bool = False,
        by: str | None = None,
        dry_run: bool = False,
    ) -> Preview | None:
        """Answer a doubt, or mark a step succeeded by hand with a value."""
        chosen = [
            name for name, given in (("succeeded", succeeded is not ...), ("failed", failed), ("rerun", rerun)) if given
        ]
        if len(chosen) != 1:
            raise Refused(tell("refuse.run.resolve_how"), "STEP_NOT_WAITING")
        value = succeeded if succeeded is not ... else None
        outcome: Any = chosen[0]
        return (await self.do(run, cmd.Resolve(by=by or "", step=step, outcome=outcome, value=value), dry_run=dry_run))[
            1
        ]

    async def add(self, run: str, steps: Sequence[Any], *, by: str | None = None) -> None:
        """Add steps to a live run; a bad change is refused and the old plan stays."""
        plain = tuple(msgspec.to_builtins(step) if isinstance(step, Step) else step for step in steps)
        await self.do(run, cmd.Add(by=by or "", steps=plain))

    async def repair(
        self, run: str, step: str, *, by: str | None = None, dry_run: bool = False, **changes: Any
    ) -> Preview | None:
        """Change a step that did not succeed (`tool`, `args`, `needs`, …) and do it, and what depends on it, again.

        Arguments are given one by one and the others stay; `remove` names those to do without.
        """
        return (await self.do(run, cmd.Repair(by=by or "", step=step, value=changes), dry_run=dry_run))[1]

    async def _act(self, run: str, command: Command, *, dry_run: bool = False) -> Preview | None:
        """Bring a command to the run's owner; with no living owner, apply it here (T7)."""
        with refusals():
            command = storable(command)
        refuse_secret(command, self._host.performer.scrub)
        if self.lends_only and isinstance(command, cmd.Add | cmd.Repair):
            await self._refuse_foreign(run, command)
        if dry_run:
            return await self._preview(run, command)
        for _ in range(5):  # the owner may let go while we knock
            if await self._handed_over(run, command):
                return None
        raise StoreError(tell("refuse.run.changes_hands", run=run))

    async def _handed_over(self, run: str, command: Command) -> bool:
        """Whether the run's owner took the command; False if it let go of the run meanwhile."""
        live = self._live.get(run)
        if live is not None:
            try:
                await live.loop.command(command)
            except Ended:
                await asyncio.wait([live.task])
                return False
            return True
        head = await self.head(run)
        if is_arriving(head):
            raise self._is_live(head, "")
        if self._driven_elsewhere(head):
            return await self._post(run, command)
        if not isinstance(command, CALLS_NOTHING):
            await self._kin_settled(run)
        try:
            loop = await self._take(run)
        except Refused as refused:
            await self._found_alive(run, refused)
            return False
        await self._apply(run, loop, command)
        return True

    async def _apply(self, run: str, loop: RunLoop, command: Command) -> None:
        """Apply a command to a run without an owner, and drive it on if its tools are here."""
        try:
            refuse_without_plan(loop.state)
            if not isinstance(command, CALLS_NOTHING):
                await self._refuse_kin(run, outlived=True)
            await cleared(self._host, loop.state)  # whoever was to do it may have been killed before
            loop.note(*self._today.mending(loop.state, self._by, loop.predecessor))
            with refusals():
                loop.apply(command)
            await loop.commit()  # what was granted is there, whatever dies next
            if self._today.can_drive(loop.state):
                self._drive(run, loop, await self._above(loop.state))
                return
        except BaseException as error:
            if isinstance(error, RerailError):
                await loop.commit_quietly()
            await self._give_back(loop.lease, loop.predecessor)
            raise
        await self._let_go(loop.lease)

    async def _post(self, run: str, command: Command) -> bool:
        """Leave a command in the inbox of a run that another process drives; False if that one let go of the run."""
        store, key = self._host.store, secrets.token_hex(8)
        with store_errors():
            number = await store.post(
                run, msgspec.json.encode(msgspec.structs.replace(command, key=key), enc_hook=as_text)
            )
            waited = 0.0
            while (answer := await store.answered(run, number)) is None:
                gone = not self._driven_elsewhere(await self.head(run))
                if gone or waited > ANSWER_WITHIN:
                    # Withdrawn, so that nobody grants it later, when it is no longer meant. The first answer stays.
                    await store.answer(run, number, WITHDRAWN)
                    if await store.answered(run, number) != WITHDRAWN:
                        continue
                    if gone:
                        # Granted, perhaps, and only its answer was late: the history tells.
                        return (await self.state(run)).has_granted(key, number)
                    raise StoreError(tell("refuse.run.no_answer", run=run, seconds=ANSWER_WITHIN))
                await asyncio.sleep(0.05)
                waited += 0.05
        raise_answer(answer)
        return True

    # -- Retrying and resuming ------------------------------------------------------------------------------------

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
    ) -> Any:
        """Retry exactly what failed and what depends on it; with `dry_run` only show what would happen."""
        target, preview = await self.begin_retry(
            run, steps, stage, clean=clean, force=force, dry_run=dry_run, take_over=take_over, by=by
        )
        return preview if dry_run else await self.wait(target)

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
        """Start a retry; returns the run it is for (a follow-up, perhaps) and what it will do.

        ``take_over`` takes the run away from a process that is stopped or has fallen silent; see `begin_resume`.
        """
        command = cmd.Retry(
            by=by or "", steps=tuple(steps or ()), stage=stage, clean=clean, force=force, take_over=take_over
        )
        return await self.do(run, command, dry_run=dry_run)

    async def _retry(self, run: str, command: cmd.Retry, *, dry_run: bool) -> tuple[str, Preview | None]:
        run = await self.find(run)
        steps, take_over, who = list(command.steps) or None, command.take_over, command.by
        narrowed = steps or command.stage or command.clean or command.force
        if not dry_run and not narrowed and (started := await self._late_follow_up(run)):
            return started, None
        run = await self._retry_target(run, steps, command.stage)
        await self._refuse_superseded(run)
        head = await self.head(run)
        if run in self._live or self._driven_elsewhere(head, take_over=take_over):
            return run, await self._retry_live(run, head, command, dry_run=dry_run)
        asked = {"steps": steps, "stage": command.stage, "clean": command.clean, "force": command.force}
        # All that takes its time comes before the run is taken: whoever holds one is either driving it or about to go.
        aim = await self._aimed(run, asked, take_over=take_over)
        again = await self._effects_below(aim.state)
        if dry_run or command.clean:
            preview = await self._pretended(aim, who)
        if not dry_run:
            try:
                preview = await self._set_going(aim, who, take_over=take_over)
            except Refused as refused:
                if steps and refused.code == "RUN_LIVE":
                    head = await self._found_alive(run, refused)
                    return run, await self._retry_live(run, head, command, dry_run=False)
                if refused.code != "NOTHING_TO_RETRY" or aim.state.rest is not None or aim.state.waiting:
                    raise
                # Every step is done, and whoever was to say so died before: there is only that left to do.
                return await self.begin_resume(aim.state.run, take_over=take_over, by=who), None
        return aim.state.run, replace(preview, once=(*preview.once, *again))

    async def _set_going(self, aim: Aim, who: str, *, take_over: bool) -> Preview:
        """Keep what has to be kept, take the run, write the retry down, and let it go on."""
        self._need_tools(aim.state)
        backup = await backed_up(self._host, aim.state) if aim.asked.get("clean") else None
        asked = {**aim.asked, "backup": str(backup.folder) if backup is not None else ""}
        try:
            loop, preview = await self._take_for_retry(aim.state, aim.head, who, asked, take_over=take_over)
        except RerailError:
            if backup is not None:
                discard(backup)
            raise
        try:
            await cleared(self._host, loop.state)
        except BaseException:
            await self._let_go(loop.lease)
            raise
        self._drive(aim.state.run, loop, aim.above)
        return preview

    async def _take_for_retry(
        self, state: State, head: Head, who: str, asked: Mapping[str, Any], *, take_over: bool
    ) -> tuple[RunLoop, Preview]:
        """Become the owner, and write down that the run is retried: nobody else does the same any more."""
        loop = await self._take_alone(state.run, head, state, take_over=take_over)
        try:
            loop.note(*self._today.mending(loop.state, self._by, loop.predecessor))
            preview = self._foreseen(loop.state, who, asked)
            self._need_tools(loop.state, preview)
            loop.note(*preview.events)
            await loop.commit()  # a retry that was announced is there, whatever dies next
        except BaseException as error:
            if isinstance(error, RerailError):
                await loop.commit_quietly()
            await self._give_back(loop.lease, loop.predecessor)
            raise
        return loop, preview

    async def _retry_live(self, run: str, head: Head, command: cmd.Retry, *, dry_run: bool) -> Preview | None:
        if not command.steps or command.clean or command.stage is not None:  # to start over takes the whole run
            raise self._is_live(head, tell("hint.run.driven_by", run=run))
        if dry_run:
            state = await self.state(run)
            with refusals():
                return commands.retry(state, command.by, steps=command.steps, force=command.force)
        await self._act(run, command)
        return None

    async def _late_follow_up(self, run: str) -> str | None:
        """Start what follows a completed run, or follows that, if who was to do it died; None if nothing is missing."""
        run = await self._beginner(run)
        while (await self.head(run)).status == RunStatus.COMPLETED:
            state = await self.state(run)
            if state.follow_up is None:
                return None
            if not await self._is_begun(follow_up_id(state)):
                await self._refuse_superseded(run)
                return await self._follow(state)
            run = follow_up_id(state)
        return None

    async def resume(self, run: str, *, take_over: bool = False, by: str | None = None) -> RunResult:
        """Continue an interrupted or paused run, and wait for it."""
        return await self.wait(await self.begin_resume(run, take_over=take_over, by=by))

    async def begin_resume(self, run: str, *, take_over: bool = False, by: str | None = None) -> str:
        """Continue an interrupted or paused run; returns its id.

        ``take_over`` takes it away from a living process of this machine that is stopped, or has not been heard of for
        long: that one can write nothing any more, and makes no further call. One that is at work keeps its run.
        """
        return (await self.do(run, cmd.Resume(by=by or "", take_over=take_over)))[0]

    async def _resume(self, run: str, command: cmd.Resume) -> str:
        run = await self.find(run)
        await self._refuse_superseded(run)
        head = await self.head(run)
        if run in self._live or self._driven_elsewhere(head, take_over=command.take_over):
            return await self._resume_live(run, head, command)
        try:
            loop = await self._take_alone(run, head, take_over=command.take_over)
        except Refused as refused:
            return await self._resume_live(run, await self._found_alive(run, refused), command)
        try:
            self._refuse_resume(loop.state)
            self._need_tools(loop.state)
            loop.note(*self._today.mending(loop.state, command.by, loop.predecessor, resumed=True))
            await loop.commit()
            await cleared(self._host, loop.state)  # whoever was to do it may have been killed before
            above = await self._above(loop.state)
        except BaseException:  # cancelled, too: else it would stay in our name, and nobody would drive it
            await self._give_back(loop.lease, loop.predecessor)
            raise
        self._drive(run, loop, above)
        return run

    async def _resume_live(self, run: str, head: Head, command: cmd.Resume) -> str:
        """Let a run go on that its owner keeps paused, with calls still under way."""
        if not (await self.state(run)).paused:
            raise self._is_live(head, tell("hint.run.run_live", run=run))
        await self._act(run, command)
        return run

    # -- Runs that wait for somebody --------------------------------------------------------------------------------

    async def unattended(self, left: set[str] | None = None) -> list[Head]:
        """The runs that should be driven, and that nobody drives, oldest first.

        Those ``left`` to others are not among them; which of these found somebody is taken from the set.
        """
        still: set[str] = set()
        found: deque[Head] = deque(maxlen=MOST_WAITING)  # the oldest of them, if there are more
        self._suspected.clear()
        async for head in self.unfinished():
            if head.run in self._live:
                continue
            if not self._is_held(head, watched=True):
                if left is not None and head.run in left:
                    still.add(head.run)
                else:
                    found.appendleft(head)
            elif self._seems_gone(head):
                self._suspected.append(head.run)
        if left is not None:
            left &= still
        return list(found)

    async def freed(self, seconds: float) -> bool:
        """Wait until a run may be found that nobody drives; False once the time is over."""
        with store_errors():
            return await self._host.store.freed(seconds)

    async def take_up(self, run: str, *, by: str | None = None) -> bool:
        """Drive a run that nobody drives, under the settings it was started with; False if it is not to be had.

        `PlanError` says which of its tools are not here: it is left as it is.
        """
        head, state = await self.head(run), await self.state(run)
        if run in self._live or not state.revision or state.rest is not None or state.waiting:
            return False
        if self._driven_elsewhere(head) or (head.parent and await self.is_superseded(run)):
            return False
        self._today.need_tools(state)
        try:
            loop = await self._take_alone(run, head, state)
        except Refused:
            return False  # somebody was faster
        try:
            loop.note(*self._today.mending(loop.state, by or self._by, loop.predecessor, resumed=True, as_started=True))
            await loop.commit()
            await cleared(self._host, loop.state)  # whoever was to do it may have been killed before
            above = await self._above(loop.state)
        except BaseException:
            await self._give_back(loop.lease, loop.predecessor)
            raise
        self._drive(run, loop, above)
        return True

    def under_way(self) -> dict[str, asyncio.Task[None]]:
        """The runs that this engine drives now, and what ends with each."""
        return {run: live.task for run, live in self._live.items()}

    async def hand_over(self, seconds: float) -> None:
        """Leave all runs to others: nothing new starts, and the calls under way get that long to end."""
        self._leaving = True
        for live in list(self._live.values()):
            live.loop.leave()
        if tasks := list(self.under_way().values()):
            await asyncio.wait(tasks, timeout=seconds)

    def _refuse_resume(self, state: State) -> None:
        refuse_without_plan(state)
        with refusals():
            commands.not_at_rest(state)
        if state.waiting and not state.paused and not state.unshown:
            if state.gates:
                raise Refused(
                    tell("refuse.run.run_waits_confirm", run=state.run),
                    "RUN_WAITS_CONFIRM",
                    hint=tell("hint.run.run_waits_confirm", run=state.run),
                )
            with refusals():
                commands.refuse_doubt(state)

    # -- What a run needs -----------------------------------------------------------------------------------------


def usable_id(run: str) -> str:
    """A caller's own id for a run; it becomes a folder's name, and people type it."""
    if (
        not 0 < len(run.encode("utf-8", "replace")) <= MAX_RUN_ID
        or not run.isprintable()
        or run[0] in "-~. "
        or run[-1] in ". "
        or any(sign in run for sign in "/\\:")
    ):
        raise Refused(
            tell("refuse.run.run_id_invalid", run=run[:80]),
            "RUN_ID_INVALID",
            hint=tell("hint.run.run_id_invalid", limit=MAX_RUN_ID),
        )
    return run
