"""Starts runs: of a plan, of an objective that a model plans for, and as follow-ups (contract P7, T6)."""

from __future__ import annotations

import contextlib
import logging
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from rerail.engine.parts import EngineParts
from rerail.engine.refusals import refusals, secrets_in
from rerail.engine.run_loop import RunLoop
from rerail.engine.runs.definition_drift import fingerprints, server_faults, without_servers
from rerail.engine.runs.leases import Leases, holding
from rerail.engine.runs.lineage import Lineage, follow_up_id
from rerail.engine.runs.reader import RunReader, store_errors
from rerail.engine.runs.supervisor import Supervisor
from rerail.errors import PlanError, Refused
from rerail.i18n import Told, tell, words_of
from rerail.kernel import actions
from rerail.kernel import events as ev
from rerail.kernel.actor import HTTP, Actor
from rerail.kernel.failure_memory import preferred
from rerail.kernel.policy import Policy
from rerail.kernel.stages import last_files
from rerail.kernel.state import State
from rerail.kernel.step_state import RunStatus
from rerail.mind import planning
from rerail.mind.questions import consulted
from rerail.plan.model import Plan, check
from rerail.plan.step import Fault
from rerail.plan.tool_spec import ToolSpec
from rerail.plan.warnings import acts, assumed, said
from rerail.ports import Conflict, Consultation, Head, Lease, Question

MAX_RUN_ID = 160  # bytes: the id names a folder, and a follow-up's id is longer
LOG = logging.getLogger("rerail")


@dataclass(frozen=True, slots=True)
class Planned:
    """What came of asking for a plan: the plan or the problem, and the costs."""

    plan: Plan | None
    consultations: tuple[Consultation, ...] = ()
    by: str = ""
    problem: str = ""


UNPLANNED = Planned(None)  # of a plan that was given


@dataclass(eq=False)
class Starter:
    """Starts runs, and the follow-ups of completed ones.

    ``remembers``: runs start with the failure memory; ``on_notice`` hears of assumed effects.
    """

    _parts: EngineParts
    _reader: RunReader
    _leases: Leases
    _lineage: Lineage
    _supervisor: Supervisor
    _policy: Policy
    _by: str
    _version: str
    origin: tuple[str, ...]  # where the tools come from; changes when a run's tools are added
    _remembers: bool
    _on_notice: Callable[[Told], None] | None

    async def plan(self, objective: str) -> Planned:
        """Ask the model for a plan, and check it; nothing is run (contract P7)."""
        mind, parts = self._parts.mind, self._parts
        if mind is None or "plan" not in mind.answers:
            raise Refused(tell("refuse.run.no_model"), "NO_MODEL", hint=tell("hint.run.no_model"))
        policy = self._policy
        question = Question(
            "plan", "", "", objective, (), parts.specs, tokens_left=policy.max_tokens, cost_left=policy.max_cost
        )
        answer = await parts.performer.ask(mind, question, parts.mind_timeout)
        calls, by = tuple(answer.consultations), mind.name
        if answer.failed or answer.value is None:
            return Planned(None, calls, by, answer.failed or tell("reason.no_plan"))
        try:
            return Planned(planning.read(objective, parts.specs, answer.value), calls, by)
        except planning.Unplanned as problem:
            return Planned(None, calls, by, words_of(problem))

    async def planned(self, objective: str, fallback: Plan | None) -> tuple[Plan, Planned]:
        """Return the plan to run for an objective: the model's, else the fallback (contract P7)."""
        if fallback is not None and (faults := fallback.check(self._parts.specs)):
            raise PlanError(tell("refuse.settings.fallback_faulty"), faults)
        try:
            planned = await self.plan(objective)
        except Refused as no_model:
            if fallback is None:
                raise
            planned = Planned(None, problem=str(no_model.message))
        chosen = planned.plan or fallback
        if chosen is None:
            raise PlanError(tell("refuse.settings.planning_failed", problem=planned.problem), code="PLANNING_FAILED")
        return chosen, planned

    async def start(
        self,
        plan: Plan,
        *,
        parent: str | None = None,
        by: str | None = None,
        run_id: str | None = None,
        planned: Planned = UNPLANNED,
        queued: bool = False,
        actor: Actor | None = None,
    ) -> str:
        """Check a plan and start a run of it; return the run's id.

        ``planned`` says what the plan has cost. A ``queued`` run is left to a worker.
        """
        specs, scrub = self._parts.specs, self._parts.performer.scrub
        faults = plan_faults(plan, specs, self._policy)
        faults += plan.located(secrets_in(plan, scrub)) if scrub.active else []
        if faults:
            raise PlanError(tell("refuse.run.plan_faulty"), faults)
        run = usable_id(run_id) if run_id is not None else secrets.token_hex(5)
        memory = preferred(await self._reader.lessons()) if self._remembers else {}
        above = await self._reader.state(parent) if parent else None
        guessed = tuple(assumed(plan.steps, specs))
        actor = actor or (self._parts.actor if by is None else Actor(self._parts.actor.via))
        loop = await self._create(run, plan.objective, above)
        loop.note(
            ev.RunStarted(
                plan.objective, parent or "", self._policy, by or self._by, self._version, memory,
                self.origin, above.home if above is not None else "",
                tuple(ev.FileMade(*file) for file in last_files(above)) if above is not None else (), queued,
                served=self._parts.actor.via == HTTP and not queued, via=actor.via, proof=actor.proof,
            ),
            *(consulted("plan", "", call) for call in planned.consultations),
            ev.PlanAccepted(
                Plan(plan.objective, plan.steps, plan.follow_up, finally_=plan.finally_), 1,
                fingerprints(specs, {step.tool for step in plan.steps}),
                "" if planned.problem else planned.by, planned.problem, assumed=guessed,
            ),
        )  # fmt: skip
        if above is not None:
            self._reader.note_home(loop.state)
        try:
            await loop.commit()  # an announced run survives a crash
            if parent is not None and not queued:
                # The parent may have been started again meanwhile.
                await self._lineage.require_relatives_idle(Head(run, parent=parent))
        except BaseException:
            await self._leases.release(loop.lease)
            raise
        if guessed:
            self._tell_assumed([name for name in guessed if above is None or name not in above.assumed])
        if queued:
            self._supervisor.entrust(run)
            await self._leases.release(loop.lease)
        else:
            self._supervisor.drive(loop, above)
        return run

    async def _create(self, run: str, objective: str, above: State | None) -> RunLoop:
        """Create a run with its lease in one go: no other process can come between."""
        now, owner = self._parts.clock.now(), self._leases.owner
        parent = above.run if above is not None else ""
        with store_errors(), holding(run):
            head = Head(run, 0, "pending", objective, parent, now, now, owner, 1, now)
            try:
                await self._parts.store.create(head)
                lease = Lease(run, owner, head.fence)
            except Conflict:
                lease = await self._begun_before(run)
        return RunLoop(self._parts, lease, State(run))

    async def _begun_before(self, run: str) -> Lease:
        """Take a run without a plan after the death of its creator; `Refused` for any other."""
        head = await self._reader.head(run)
        if not head.seq:
            with contextlib.suppress(Refused):  # its creator is about to record the plan
                return await self._leases.claim_new(run)
        told = tell("refuse.run.id_taken", run=run, status=tell(f"status.{head.status}"))
        raise Refused(told, "RUN_EXISTS", hint=tell("hint.run.id_taken", run=run))

    def _tell_assumed(self, names: list[str]) -> None:
        """Name the tools with an assumed effect; without a listener, log the apparently acting ones (contract E3)."""
        tell_of = self._on_notice
        if tell_of is None:
            specs, tell_of = self._parts.specs, LOG.warning
            names = [name for name in names if acts(name, specs[name].description)]
        if names:
            tell_of(said(names))

    async def follow(self, state: State) -> str | None:
        """Start a completed run's follow-up, once for each completion; return its id (contract T6)."""
        if state.follow_up is None or state.rest is None or state.rest.status != RunStatus.COMPLETED:
            return None
        # The id names the completion: a crash in between neither loses nor doubles the follow-up.
        child = follow_up_id(state)
        if not await self._lineage.is_begun(child):
            with refusals():
                actions.goes_on_here(state)
            try:
                plan = without_servers(state.follow_up)
                await self.start(plan, parent=state.run, run_id=child, queued=self._supervisor.is_leaving)
            except PlanError as error:
                servers = server_faults(state.run, {**state.mcp, **state.follow_up.mcp})
                raise PlanError(error.opening, [*error.faults, *servers], error.code) from error
        return child

    async def late_follow_up(self, head: Head) -> str | None:
        """Start a missing follow-up of a completed run, or of its descendants; None if none is missing."""
        head = await self._lineage.starter_of(head)
        while head.status == RunStatus.COMPLETED:
            state = await self._reader.state(head.run)
            if state.follow_up is None:
                return None
            if not await self._lineage.is_begun(follow_up_id(state)):
                await self._lineage.refuse_superseded(head)
                return await self.follow(state)
            head = await self._reader.head(follow_up_id(state))
        return None


def plan_faults(plan: Plan, specs: Mapping[str, ToolSpec] | None, policy: Policy) -> list[Fault]:
    """Return every fault of a plan under these settings.

    A cap needs room for one call of each step of `finally`, at its declared cost (P2).
    """
    tools = [specs.get(step.tool) for step in plan.steps if step.id in plan.finally_] if specs is not None else []
    needs = (
        ("max_attempts", float(len(plan.finally_)), policy.max_attempts),
        ("max_cost", sum(spec.cost or 0.0 for spec in tools if spec is not None), policy.max_cost),
    )
    room = [
        Fault("BAD_FINALLY", tell("refuse.plan.finally_cap", name=name, limit=limit, need=need))
        for name, need, limit in needs
        if limit is not None and need > limit
    ]
    found = [*check(plan, specs), *room]
    return plan.located(found) if found else []


def usable_id(run: str) -> str:
    """Return a client's own run id if it can name a folder and be typed; `Refused` else."""
    if (
        not 0 < len(run.encode("utf-8", "replace")) <= MAX_RUN_ID
        or not run.isprintable()
        or run[0] in "-~. "
        or run[-1] in ". "
        or any(sign in run for sign in "/\\:")
    ):
        hint = tell("hint.run.run_id_invalid", limit=MAX_RUN_ID)
        raise Refused(tell("refuse.run.run_id_invalid", run=run[:80]), "RUN_ID_INVALID", hint=hint)
    return run
