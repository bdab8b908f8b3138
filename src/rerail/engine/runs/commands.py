"""Commands of users: prepared, previewed, and brought to the owner of a run (contract T7, X7, X10, I4).

Rules of this file:
- The lease holder applies a command. A run without a living owner is acquired, and driven on if its tools are here.
- A command that another process does not answer is withdrawn; the history shows whether it was applied all the same.
- A preview writes nothing and acquires nothing, and refuses a command as the run's owner would.
- Files that a user edits are drafts until the owner has recorded the approval.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

import msgspec

from rerail.engine.files.retention import cleared, drafted, left_behind
from rerail.engine.parts import EngineParts
from rerail.engine.refusals import raise_answer, refusals, refuse_secret
from rerail.engine.run_loop import RunLoop
from rerail.engine.runs.definition_drift import DefinitionDrift, placeholders, pretend_resumed
from rerail.engine.runs.leases import Leases
from rerail.engine.runs.lineage import Lineage
from rerail.engine.runs.reader import FORGOTTEN, RunReader, part, store_errors
from rerail.engine.runs.supervisor import Supervisor
from rerail.errors import PlanError, Refused, RerailError, StoreError
from rerail.i18n import Told, as_text, tell
from rerail.kernel import actions
from rerail.kernel import commands as cmd
from rerail.kernel import events as ev
from rerail.kernel.actions import Faulty, Refusal
from rerail.kernel.commands import Command, handle, preview, storable
from rerail.kernel.retry import Preview
from rerail.kernel.state import State
from rerail.kernel.step_state import RunStatus
from rerail.plan.tool_spec import ToolSpec
from rerail.ports import Head
from rerail.values.redaction import Scrub

ANSWER_TIMEOUT = 30.0  # seconds that another process gets to answer a command
ATTEMPTS = 5  # the owner may release the run while a command is on its way
WITHDRAWN = b'{"withdrawn":true}'
CALLS_NOTHING = (cmd.Cancel, cmd.Pause, cmd.RecordNotices)  # commands that need no idle relatives


@dataclass(eq=False)
class Commands:
    """Applies all commands except retries.

    ``by`` is the user that a takeover records; ``tell`` hears of runs that stay without a driver.
    """

    _parts: EngineParts
    _reader: RunReader
    _leases: Leases
    _lineage: Lineage
    _drift: DefinitionDrift
    _supervisor: Supervisor
    _by: str
    _tell: Callable[[Told], None]

    async def do(
        self, run: str, command: Command, *, dry_run: bool = False, own_tools_only: bool = False
    ) -> tuple[str, Preview | None]:
        """Apply a command, as `Engine.do` says; return its run, and its consequences if they are known."""
        if isinstance(command, cmd.Resume):
            return await self.resume(run, command), None
        run = await self._reader.find(run)
        if isinstance(command, cmd.Confirm | cmd.Refuse):
            await self._lineage.refuse_superseded(await self._reader.head(run))
        if isinstance(command, cmd.Confirm) and not command.ahead:
            return run, await self._confirm(run, command, dry_run=dry_run)
        if isinstance(command, cmd.Confirm) and command.edit:
            raise Refused(tell("refuse.run.ahead_edits"), "USAGE")
        if isinstance(command, cmd.Resolve):
            command = await self._seen(run, command, dry_run=dry_run)
        if own_tools_only and isinstance(command, cmd.Add | cmd.Repair):
            await self._refuse_foreign(run, self._checked(command))
        return run, await self._act(run, command, dry_run=dry_run)

    async def _act(self, run: str, command: Command, *, dry_run: bool) -> Preview | None:
        if dry_run:
            return await self._preview(run, self._checked(command))
        await self.deliver(run, command)
        return None

    async def _preview(self, run: str, command: Command) -> Preview:
        state = await self._reader.folded(run)
        specs: Mapping[str, ToolSpec] = self._parts.specs
        if self._leases.drives(run) or self._leases.driven_elsewhere(await self._reader.head(run)):
            specs = {**placeholders(state), **specs}
        else:
            refuse_without_plan(state.run, state.revision)
            await self._lineage.require_idle_below(run)
            pretend_resumed(state)
        with refusals():
            return preview(state, specs, command, self._parts.clock.now())

    async def _confirm(self, run: str, command: cmd.Confirm, *, dry_run: bool) -> Preview | None:
        """Approve the call that is shown, with the user's edited files."""
        state = await (self._reader.state(run) if dry_run else self._show_gates(run))
        with refusals():
            gate = actions.gate(state, command.step)
            shown = actions.shown_call(state, gate)
        large = command.args and shown.args is None
        kept = await self._reader.kept_value(run, gate, shown.args_blob) if large else None
        edit = command.edit
        command = msgspec.structs.replace(
            command, step=gate.id, digest=command.digest or shown.digest, value=kept, edit={}
        )
        async with drafted(self._parts, state, gate, edit, dry_run=dry_run) as files:
            # The owner puts them in place once the approval is on record.
            return await self._act(run, msgspec.structs.replace(command, files=files), dry_run=dry_run)

    async def _seen(self, run: str, command: cmd.Resolve, *, dry_run: bool) -> cmd.Resolve:
        """Bind an answer to the doubt that is open now; with the files of a step that is declared successful.

        `Refused` if the files are invalid (contract T1).
        """
        state = await self._reader.state(run)
        track = state.tracks.get(command.step)
        if track is None:
            return command
        if command.attempt is None and actions.is_doubtful(state, track):
            command = msgspec.structs.replace(command, attempt=track.attempt)
        if command.outcome != "succeeded" or not track.step.produces:
            return command
        if not dry_run:
            await cleared(self._parts, state)  # else files that a clean start removes would count as the step's
        return msgspec.structs.replace(command, files=await left_behind(self._parts, state, track))

    async def _refuse_foreign(self, run: str, command: Command) -> None:
        """Refuse a change that uses tools which this engine lacks: the run's owner cannot know (contract I4)."""
        state: State = await self._reader.state(run)
        try:
            handle(state, self._parts.specs, command)
        except Faulty as faulty:
            step = command.step if isinstance(command, cmd.Repair) else ""
            changed = [fault for fault in faulty.faults if fault.step == step or fault.step not in state.tracks]
            foreign = [fault for fault in changed if fault.code in ("UNKNOWN_TOOL", "UNKNOWN_ALTERNATIVE")]
            if foreign:
                raise PlanError(tell("refuse.run.foreign"), foreign) from None
        except Refusal:
            return  # the owner refuses it with its reason

    # -- Resume ---------------------------------------------------------------------------------------------------

    async def resume(self, run: str, command: cmd.Resume) -> str:
        """Continue an interrupted or paused run; return its id."""
        head = await self._reader.find_head(run)
        self._leases.refuse_arriving(head)
        refuse_without_plan(head.run, head.seq)
        await self._lineage.refuse_superseded(head)
        if self._leases.drives(head.run) or self._leases.driven_elsewhere(head, take_over=command.take_over):
            return await self._resume_live(head, command)
        try:
            loop = await self._lineage.acquire(head, take_over=command.take_over)
        except Refused as refused:
            return await self._resume_live(await self._leases.found_alive(head.run, refused), command)
        async with self._leases.kept(loop):
            _refuse_resume(loop.state)
            self._drift.need_tools(loop.state)
            await self._go_on(loop, command.by)
        return head.run

    async def take_up(self, run: str, *, by: str | None = None) -> bool:
        """Drive a run without an owner, under the settings it was started with; False if it is not available.

        `PlanError` names the tools that are missing here; the run is left as it is.
        """
        head, state = await self._reader.head(run), await self._reader.state(run)
        if self._leases.drives(run) or not state.revision or state.rest is not None or state.waiting:
            return False
        if self._leases.driven_elsewhere(head) or (head.parent and await self._lineage.is_superseded(run)):
            return False
        self._drift.need_tools(state)
        try:
            loop = await self._lineage.acquire(head, state)
        except Refused:
            return False  # another process was faster
        async with self._leases.kept(loop):
            await self._go_on(loop, by or self._by, as_started=True)
        return True

    async def recover(self, *, served: bool = False) -> tuple[str, ...]:
        """Drive all interrupted runs, or only the runs of an earlier server; return their ids."""
        taken = []
        for head in await self._leases.unattended():
            if head.status == RunStatus.PENDING or (served and not (await self._reader.state(head.run)).served):
                continue
            with suppress(Refused):  # another process was faster
                try:
                    if await self.take_up(head.run):
                        taken.append(head.run)
                except PlanError as error:
                    self._tell(tell("reason.work.left", run=head.run, why=error))
        return tuple(taken)

    async def take_reserved(self, run: str, fence: int) -> None:
        """Drive a run that another process reserved with this fence; `Refused` if the reservation is gone."""
        state = await self._reader.state(run)
        self._drift.need_tools(state)
        parent = await self._lineage.parent_state(state)
        self._supervisor.drive(RunLoop(self._parts, await self._leases.claim_reserved(run, fence), state), parent)

    async def _go_on(self, loop: RunLoop, by: str, *, as_started: bool = False) -> None:
        """Record that an acquired run goes on, and drive it."""
        events = self._drift.resume_events(loop.state, by, loop.predecessor, resumed=True, as_started=as_started)
        loop.note(*events)
        await loop.commit()
        await cleared(self._parts, loop.state)  # a crash may have come before
        self._supervisor.drive(loop, await self._lineage.parent_state(loop.state))

    async def _resume_live(self, head: Head, command: cmd.Resume) -> str:
        """Continue a run that its owner keeps paused, with calls still under way."""
        if not (await self._reader.state(head.run)).paused:
            raise self._leases.refusal(head, tell("hint.run.run_live", run=head.run))
        await self.deliver(head.run, command)
        return head.run

    async def _show_gates(self, run: str) -> State:
        """Return the state of a run once its gates show their calls; an idle run is resumed up to there."""
        state = await self._reader.state(run)
        if not state.unshown or state.paused or self._leases.drives(run):
            return state
        if self._leases.driven_elsewhere(await self._reader.head(run)) or not self._drift.can_drive(state):
            return state
        await self.resume(run, cmd.Resume(by=self._by))
        async for _ in self._reader.watch(run, state.seq):
            state = await self._reader.state(run)
            if state.waiting or not state.unshown:
                break
        return state

    # -- Delivery -------------------------------------------------------------------------------------------------

    def _checked(self, command: Command) -> Command:
        """Return a command that can be stored; `Refused` if it holds a secret."""
        with refusals():
            command = storable(command)
        refuse_secret(command, self._parts.performer.scrub)
        return command

    async def deliver(self, run: str, command: Command) -> None:
        """Bring a command to the run's owner; without a living owner, apply it here."""
        command = self._checked(command)
        for _ in range(ATTEMPTS):
            if await self.hand_over(run, command):
                return
        raise StoreError(tell("refuse.run.changes_hands", run=run))

    async def hand_over(self, run: str, command: Command) -> bool:
        """Whether the run's owner took the command; False if it released the run meanwhile."""
        if self._leases.drives(run):
            return await self._supervisor.command(run, command)
        head = await self._reader.head(run)
        self._leases.refuse_arriving(head)
        refuse_without_plan(run, head.seq)
        if self._leases.driven_elsewhere(head):
            return await self._post(run, command)
        if not isinstance(command, CALLS_NOTHING):
            await self._lineage.wait_for_relatives(head)
        try:
            loop = await self._leases.acquire(run)
        except Refused as refused:
            await self._leases.found_alive(run, refused)
            return False
        await self._apply(head, loop, command)
        return True

    async def _apply(self, head: Head, loop: RunLoop, command: Command) -> None:
        """Apply a command to an acquired run, and drive it on if its tools are here."""
        async with self._leases.kept(loop, commits=True):
            refuse_without_plan(loop.state.run, loop.state.revision)
            if not isinstance(command, CALLS_NOTHING):
                await self._lineage.require_relatives_idle(head, even_superseded=True)
            await cleared(self._parts, loop.state)  # a crash may have come before
            loop.note(*self._drift.resume_events(loop.state, self._by, loop.predecessor))
            with refusals():
                loop.apply(command)
            await loop.commit()  # an accepted command survives a crash
            if self._drift.can_drive(loop.state):
                self._supervisor.drive(loop, await self._lineage.parent_state(loop.state))
                return
        await self._leases.release(loop.lease)
        if loop.state.rest is None and not loop.state.waiting:
            self._tell(
                tell("notice.run.without_tools", run=head.run, names=", ".join(self._drift.missing_tools(loop.state)))
            )

    async def _post(self, run: str, command: Command) -> bool:
        """Leave a command in the inbox of another process's run; False if that one released the run."""
        store, key = self._parts.store, secrets.token_hex(8)
        with store_errors():
            number = await store.post(
                run, msgspec.json.encode(msgspec.structs.replace(command, key=key), enc_hook=as_text)
            )
            waited = 0.0
            while (answer := await store.answered(run, number)) is None:
                gone = not self._leases.driven_elsewhere(await self._reader.head(run))
                if gone or waited > ANSWER_TIMEOUT:
                    # Withdrawn, so that no owner applies it later. The first answer stays.
                    await store.answer(run, number, WITHDRAWN)
                    if await store.answered(run, number) != WITHDRAWN:
                        continue
                    if gone:
                        # It may have been applied, and only its answer was late: the history says.
                        return (await self._reader.state(run)).has_granted(key, number)
                    raise StoreError(tell("refuse.run.no_answer", run=run, seconds=ANSWER_TIMEOUT))
                await asyncio.sleep(0.05)
                waited += 0.05
        raise_answer(answer)
        return True

    async def note_down(self, state: State, told: Sequence[ev.Notified | ev.Audited]) -> None:
        """Record what changes nothing, a notification's result or a refusal, through the run's owner (contract T7)."""
        run = state.run
        command = cmd.RecordNotices(value=list(told))
        for _ in range(ATTEMPTS):
            if self._leases.drives(run) or self._leases.driven_elsewhere(await self._reader.head(run)):
                if await self.hand_over(run, command):
                    return
                continue
            with self._leases.noting(run):
                try:
                    return await self._record(run, *told)
                except Refused:
                    await asyncio.sleep(0.05)  # another process was faster

    async def record_refusal(self, run: str, command: Command, code: str) -> None:
        """Record that a command was refused for want of rights (contract I13)."""
        said, step = command.actor, getattr(command, "step", None) or ""
        await self.audit(run, ev.Audited(command.action, command.by, step, code, via=said.via, proof=said.proof))

    async def audit(self, run: str, told: ev.Audited) -> None:
        """Record an act that changes nothing; a run that cannot be written now goes without."""
        with suppress(RerailError):
            await self.note_down(await self._reader.state(await self._reader.find(run)), [told])

    async def forget(self, *, by: str | None = None) -> None:
        """Clear the failure memory: runs learn only from what happens from now on (contract H10)."""
        store, now = self._parts.store, self._parts.clock.now()
        with store_errors():
            if await store.head(FORGOTTEN) is None:
                await store.create(Head(FORGOTTEN, status=str(RunStatus.COMPLETED), created_at=now, updated_at=now))
        await self._record(FORGOTTEN, ev.Acted("forget", by or self._by))

    async def _record(self, run: str, *events: ev.Event) -> None:
        loop = await self._leases.acquire(run)
        try:
            loop.note(*events)
            await loop.commit()
        finally:
            await self._leases.release(loop.lease)


def refuse_without_plan(run: str, seq: int) -> None:
    """Refuse a run without a plan: it can only be started again."""
    if not seq:
        told, hint = tell("refuse.run.run_without_plan", run=run), tell("hint.run.run_without_plan", run=run)
        raise Refused(told, "RUN_UNKNOWN", hint=hint)


def _refuse_resume(state: State) -> None:
    refuse_without_plan(state.run, state.revision)
    with refusals():
        actions.not_at_rest(state)
    if state.waiting and not state.paused and not state.unshown:
        if state.gates:
            hint = tell("hint.run.run_waits_confirm", run=state.run)
            raise Refused(tell("refuse.run.run_waits_confirm", run=state.run), "RUN_WAITS_CONFIRM", hint=hint)
        with refusals():
            actions.refuse_doubt(state)


# -- What is asked of an engine ----------------------------------------------------------------------------------


@dataclass(eq=False)
class Internals:
    """What servers, workers, integrations and the command line use of an engine; not public."""

    _reader: RunReader
    _leases: Leases
    _lineage: Lineage
    _supervisor: Supervisor
    _commands: Commands
    equip: Callable[..., Awaitable[None]]
    is_open: bool = True  # the store refuses to be read before it is open

    head = part("_reader", RunReader.head)
    heads = part("_reader", RunReader.heads)
    state = part("_reader", RunReader.state)
    row = part("_reader", RunReader.row)
    page = part("_reader", RunReader.page)
    changed = part("_reader", RunReader.changed)
    workspace = part("_reader", RunReader.workspace)
    artifact_bytes = part("_reader", RunReader.artifact_bytes)
    large_args = part("_reader", RunReader.large_args)
    memory = part("_reader", RunReader.memory)
    audit_trail = part("_reader", RunReader.audit_trail)
    forget = part("_commands", Commands.forget)
    audit = part("_commands", Commands.audit)
    record_refusal = part("_commands", Commands.record_refusal)
    is_superseded = part("_lineage", Lineage.is_superseded)
    to_retry = part("_lineage", Lineage.to_retry)
    drives = part("_leases", Leases.drives)

    # -- For whatever drives runs ---------------------------------------------------------------------------------

    unattended = part("_leases", Leases.unattended)
    outlived = part("_leases", Leases.outlived)
    freed = part("_leases", Leases.freed)
    take_up = part("_commands", Commands.take_up)
    recover = part("_commands", Commands.recover)
    take_reserved = part("_commands", Commands.take_reserved)
    reservation = part("_leases", Leases.reservation)
    reserve = part("_supervisor", Supervisor.reserve)
    under_way = part("_supervisor", Supervisor.under_way)
    hand_over = part("_supervisor", Supervisor.hand_over)
    pace = part("_supervisor", Supervisor.pace)
    through = part("_supervisor", Supervisor.through)
    due = part("_supervisor", Supervisor.due)

    @property
    def is_watching(self) -> bool:
        """True if the last `unattended` found owners that seem dead."""
        return self._leases.is_watching

    @property
    def scrub(self) -> Scrub:
        """The redactor of everything that leaves the engine."""
        return self._reader.scrub
