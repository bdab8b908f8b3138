"""Deliberate bugs, one at a time: each is put into the engine, and a simulation has to notice.

A bug is a function that changes the engine through `patch` (pytest's monkeypatch). Whenever a real one is found, it is
added here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import msgspec

from rerail.adapters.stores.memory import MemoryStore
from rerail.engine import calls, failures, journal, launch, looks, performer, run_loop
from rerail.engine.call_inputs import CallInputs
from rerail.engine.calls import Calls
from rerail.engine.files import placement as files
from rerail.engine.journal import Journal
from rerail.engine.launch import Deadlines, LeaseTerm
from rerail.engine.looks import Patience
from rerail.engine.parts import Predecessor
from rerail.engine.performer import Performer
from rerail.engine.runs import commands, definition_drift, leases, retries
from rerail.kernel import action_folds, decide, effect_folds, fold, plan_graph, state, verdict
from rerail.kernel import budget as afford
from rerail.kernel import events as ev
from rerail.kernel.accounts import SpendingNeed
from rerail.kernel.outcome import Certainty, Saw
from rerail.kernel.state import State
from rerail.kernel.step_state import READY, Phase, Place
from rerail.plan.step import Effect
from rerail.values.json_values import unpack

Patch = Any
BUGS: dict[str, Callable[[Patch], None]] = {}


def bug(fn: Callable[[Patch], None]) -> Callable[[Patch], None]:
    BUGS[fn.__name__] = fn
    return fn


@bug
def calls_before_the_intent_is_durable(patch: Patch) -> None:
    commit = Journal.commit

    async def later(self: Journal) -> None:
        asyncio.get_running_loop().call_later(0.2, lambda: asyncio.ensure_future(commit(self)))

    patch.setattr(Journal, "commit", later)


@bug
def a_lost_answer_is_taken_for_a_failure(patch: Patch) -> None:
    found = failures.from_exception

    def explicit(error: Any, *more: Any) -> Any:
        return replace(found(error, *more), certainty=Certainty.NOT_DONE)

    patch.setattr(performer, "from_exception", explicit)


@bug
def what_died_with_its_process_is_called_again(patch: Patch) -> None:
    folded = fold._step_failed

    def not_lost(of: State, event: ev.StepFailed, at: float) -> None:
        folded(of, msgspec.structs.replace(event, lost=False), at)

    patch.setitem(fold.FOLDS, ev.StepFailed, not_lost)


@bug
def the_store_does_not_look_at_fences(patch: Patch) -> None:
    append = MemoryStore.append

    async def trusting(self: MemoryStore, batch: Any) -> None:
        run = self._known(batch.run)
        await append(self, replace(batch, fence=run.fence, after=len(run.rows)))

    patch.setattr(MemoryStore, "append", trusting)


@bug
def nobody_looks_at_the_lease_after_a_stall(patch: Patch) -> None:
    async def sure(*_: Any) -> None:
        return None

    patch.setattr(Journal, "confirm_lease", sure)
    patch.setattr(Performer, "_hold", sure)


@bug
def every_run_is_a_success(patch: Patch) -> None:
    found = verdict.verdict

    def fine(of: State) -> Any:
        return replace(found(of), success=True)

    for module in (verdict, decide):
        patch.setattr(module, "verdict", fine)


@bug
def waits_end_at_once(patch: Patch) -> None:
    def tick(self: State, now: float) -> None:
        while self.next_timer() is not None:
            track = self.backoff[self.timers[0][1]]
            self.timers.pop(0)
            self.move(track, Phase.PENDING)

    patch.setattr(State, "tick", tick)


@bug
def needs_are_not_waited_for(patch: Patch) -> None:
    def now(self: State, track: Any) -> Any:
        return Place.GATES if track.step.confirm and not track.agreed else READY

    patch.setattr(State, "_place_of", now)


@bug
def concurrency_has_no_limit(patch: Patch) -> None:
    decided = decide._calls

    def unbounded(of: State, tools: Any, now: float, left: Any = None) -> Any:
        kept, of.policy = of.policy, msgspec.structs.replace(of.policy, concurrency=0)
        try:
            return decided(of, tools, now, left)
        finally:
            of.policy = kept

    patch.setattr(decide, "_calls", unbounded)


@bug
def an_attempt_number_is_used_twice(patch: Patch) -> None:
    folded = fold._step_started

    def same(of: State, event: ev.StepStarted, at: float) -> None:
        folded(of, event, at)
        if (track := of.tracks.get(event.step)) is not None and event.attempt == 2:
            track.attempt = 1

    patch.setitem(fold.FOLDS, ev.StepStarted, same)


@bug
def results_are_kept_although_their_inputs_changed(patch: Patch) -> None:
    patch.setattr(decide, "_kept", lambda _, track: ev.StepKept(track.id))


@bug
def what_depends_on_a_retried_step_is_forgotten(patch: Patch) -> None:
    patch.setattr(plan_graph, "_behind", lambda *_: [])


@bug
def error_bodies_are_believed(patch: Patch) -> None:
    patch.setattr(Performer, "_disbelieve", lambda *_: None)


@bug
def checks_are_not_made(patch: Patch) -> None:
    for module in (files, performer):
        patch.setattr(module, "unmet", lambda *_: [])


@bug
def a_paused_run_goes_on(patch: Patch) -> None:
    decided = decide.decide

    def on(of: State, tools: Any, now: float) -> Any:
        paused, of.paused = of.paused, False
        try:
            return decided(of, tools, now)
        finally:
            of.paused = paused

    patch.setattr(run_loop, "decide", on)


@bug
def a_cancelled_run_goes_on(patch: Patch) -> None:
    def not_really(of: State, event: ev.Cancelled, at: float) -> None:
        of.last_wish = max(of.last_wish, event.number)

    patch.setitem(fold.FOLDS, ev.Cancelled, not_really)


@bug
def timeouts_are_not_kept(patch: Patch) -> None:
    patch.setattr(Deadlines, "add", lambda *_: None)


@bug
def damaged_contents_are_believed(patch: Patch) -> None:
    patch.setattr(journal, "digest", lambda *_: ANY_DIGEST)


@bug
def a_fallback_passes_for_the_real_thing(patch: Patch) -> None:
    settle = State.settle

    def plain(self: State, track: Any, result: Any) -> None:
        result.degraded = ""
        settle(self, track, result)

    patch.setattr(State, "settle", plain)


@bug
def skips_do_not_cascade(patch: Patch) -> None:
    notes = decide._notes

    def quiet(of: State, tools: Any, now: float) -> Any:
        return [note for note in notes(of, tools, now) if not isinstance(note, ev.StepSkipped)]

    patch.setattr(decide, "_notes", quiet)


@bug
def clean_up_that_ran_runs_after_a_clean_start(patch: Patch) -> None:
    """Found by the simulation itself."""
    patch.setattr(state, "_needless", lambda track: not track.open and not track.again)


@bug
def a_new_plan_forgets_what_tools_asked_for(patch: Patch) -> None:
    """Found by the simulation itself."""
    folded = fold._retry_scheduled

    def forget(of: State, event: ev.RetryScheduled, at: float) -> None:
        folded(of, event, at)
        if (track := of.tracks.get(event.step)) is not None and track.heal is not None:
            track.heal.wished = ""

    patch.setitem(fold.FOLDS, ev.RetryScheduled, forget)


@bug
def a_new_plan_brings_back_what_a_person_skipped(patch: Patch) -> None:
    """Found by the simulation itself."""
    reset = plan_graph._reset

    def all_alike(of: State, track: Any, **how: bool) -> None:
        if track.phase is Phase.SKIPPED and how["root"] and track.skip is not None:
            track.skip = msgspec.structs.replace(track.skip, code="SKIP_OPTIONAL")
        reset(of, track, **how)

    patch.setattr(plan_graph, "_reset", all_alike)


@bug
def a_run_without_a_plan_is_acted_on(patch: Patch) -> None:
    """Found by the simulation itself."""
    for module in (commands, retries):
        patch.setattr(module, "refuse_without_plan", lambda *_: None)


@bug
def a_doubt_is_settled_by_hope(patch: Patch) -> None:
    folded = fold._step_failed

    def hope(of: State, event: ev.StepFailed, at: float) -> None:
        track = of.tracks.get(event.step)
        if event.lost and track is not None and track.call is not None and track.call.effect is Effect.ONCE:
            won = ev.StepSucceeded(event.step, event.attempt, {"made": 0}, "x", 10)
            fold._step_succeeded(of, won, at)
            return
        folded(of, event, at)

    patch.setitem(fold.FOLDS, ev.StepFailed, hope)


@bug
def calls_at_once_do_not_see_what_the_others_may_cost(patch: Patch) -> None:
    """Eight calls of 1.0 at once spent 8.0 under a cap of 2.0."""
    made = afford.Allowance.__init__

    def alone(self: afford.Allowance, of: State, tools: Any) -> None:
        made(self, of, tools)
        self.cost = of.cost

    patch.setattr(afford.Allowance, "__init__", alone)


@bug
def a_cost_that_is_not_known_is_taken_for_none(patch: Patch) -> None:
    found = afford.Allowance.of_tool

    def free(self: afford.Allowance, tool: str) -> SpendingNeed:
        need = found(self, tool)
        return SpendingNeed(need.cost or 0.0, need.tokens or 0)

    patch.setattr(afford.Allowance, "of_tool", free)


@bug
def what_a_call_may_have_cost_dies_with_its_process(patch: Patch) -> None:
    lost = definition_drift._lost

    def forgiven(*call: Any, **more: Any) -> Any:
        return msgspec.structs.replace(lost(*call, **more), cost=0.0)

    patch.setattr(definition_drift, "_lost", forgiven)


@bug
def a_reservation_outlives_its_call(patch: Patch) -> None:
    patch.setattr(State, "release", lambda *_: None)


@bug
def a_yes_is_good_for_any_call(patch: Patch) -> None:
    """What a person agreed to is called with what a hint, an alternative or another output made of it (X10)."""
    patch.setattr(State, "agrees", lambda _, track, digest: bool(track.agreed))


@bug
def a_yes_is_good_for_every_time(patch: Patch) -> None:
    """A step that succeeded is done again by force on the old yes (X10)."""
    settle = State.settle

    def kept(self: State, track: Any, result: Any) -> None:
        gate = track.gate
        settle(self, track, result)
        track.gate = gate

    patch.setattr(State, "settle", kept)
    for module in (fold, action_folds):
        patch.setattr(module, "ask_anew", lambda *_: None)


@bug
def a_yes_ahead_is_good_for_hints(patch: Patch) -> None:
    """Who agreed before the call was known agreed to the plan's own (X10)."""
    patch.setattr(fold, "CHANGED", frozenset())


@bug
def a_gate_goes_on_showing_what_was(patch: Patch) -> None:
    """Its inputs are others by now (X10)."""

    def never(self: State, track: Any) -> None:
        if track.place is Place.GATES and track.gate is None:
            self.unshown[track.n] = track

    patch.setattr(State, "unshow", never)


@bug
def absence_is_believed_at_once(patch: Patch) -> None:
    """One look that finds nothing is enough (V8)."""
    patch.setattr(Calls, "_patience", lambda *_: Patience())


@bug
def a_later_refusal_settles_what_was_lost(patch: Patch) -> None:
    """*Not done* is said of one call, and taken for a word about all (X4)."""
    came = effect_folds.call_failed

    def settled(of: State, track: Any, call: Any, event: ev.StepFailed, at: float) -> None:
        if not event.lost and track.effects is not None:
            track.effects.lost = track.effects.acting = False
        came(of, track, call, event, at)

    patch.setattr(fold, "call_failed", settled)


@bug
def who_is_silent_is_dead(patch: Patch) -> None:
    """A frozen process goes on with its calls (E11)."""
    lost = definition_drift._lost_call
    patch.setattr(definition_drift, "_lost_call", lambda track, _, parts: lost(track, Predecessor.DEAD, parts))


@bug
def a_fence_refuses_nothing(patch: Patch) -> None:
    """A replaced owner is told that it may act (E11)."""
    patch.setattr(LeaseTerm, "require", lambda _: None)


@bug
def a_thread_ends_with_its_timeout(patch: Patch) -> None:
    """Nothing waits for a thread that goes on when its call was cancelled (V8)."""
    runs = launch.Launch.runs
    ended = property(lambda of: "loop" if (found := runs.__get__(of)) == "thread" else found)
    patch.setattr(launch.Launch, "runs", ended)


@bug
def a_repeat_has_a_key_of_its_own(patch: Patch) -> None:
    """The service cannot tell that it is a repetition (E2)."""
    made = Calls._context

    def other(self: Calls, track: Any, attempt: int, args: Any, *more: Any) -> Any:
        ctx = made(self, track, attempt, args, *more)
        ctx.key = f"{ctx.key}-{attempt}"
        return ctx

    patch.setattr(Calls, "_context", other)


@bug
def a_repeat_has_other_arguments(patch: Patch) -> None:
    """A call whose answer was lost is repeated with what its inputs are now (E2)."""

    def other(self: CallInputs, track: Any, call: Any) -> Any:
        return {"again": track.attempt}, False

    patch.setattr(CallInputs, "same_args", other)


@bug
def a_skip_settles_a_doubt(patch: Patch) -> None:
    """An optional step in doubt is called again by a retry (E3)."""
    folded = fold._step_skipped

    def settled(of: State, event: ev.StepSkipped, at: float) -> None:
        folded(of, event, at)
        if (track := of.tracks.get(event.step)) is not None:
            of.settle_effect(track, None)

    patch.setitem(fold.FOLDS, ev.StepSkipped, settled)


@bug
def partly_done_is_not_done(patch: Patch) -> None:
    """A look that found a part of the effect is taken for one that found nothing (V8)."""
    case = effect_folds.case_of

    def absent(track: Any, call: Any, saw: Saw, at: float, **more: Any) -> Any:
        return case(track, call, Saw.ABSENT if saw is Saw.PARTIAL else saw, at, **more)

    for module in (fold, effect_folds):
        patch.setattr(module, "case_of", absent)


@bug
def the_latest_probe_is_the_baseline(patch: Patch) -> None:
    """What an earlier attempt did counts as there before (V8)."""
    intended = effect_folds.intended

    def latest(of: State, track: Any, call: ev.StepStarted, at: float) -> None:
        intended(of, track, call, at)
        if track.effects is not None and call.probed:
            track.effects.before = call.before

    patch.setattr(calls, "baseline", lambda *_: None)
    patch.setattr(fold, "intended", latest)


@bug
def another_call_in_between_is_all_that_is_known(patch: Patch) -> None:
    """An alternative, a hint or a fallback takes the place of the call before it (V8)."""
    settle = State.settle_effect

    def forgets(self: State, track: Any, effects: Any) -> None:
        settle(self, track, effects)
        track.earlier = ()

    patch.setattr(State, "settle_effect", forgets)


@bug
def a_part_after_a_success_is_repeated_under_the_key(patch: Patch) -> None:
    """Found by the simulation itself (V8, E2)."""
    patch.setattr(effect_folds, "_seen_before", lambda event: Saw.UNKNOWN if event.looks else Saw.NONE)


def _cleans_up_not_after(patch: Patch, code: str) -> None:
    startable = State.startable
    patch.setattr(State, "startable", lambda of: () if of.stopped == code else startable(of))


@bug
def nothing_is_cleaned_up_after_a_breaker(patch: Patch) -> None:
    """P2."""
    _cleans_up_not_after(patch, "BREAKER_OPEN")


@bug
def nothing_is_cleaned_up_after_a_spent_budget(patch: Patch) -> None:
    """P2."""
    _cleans_up_not_after(patch, "BUDGET_EXCEEDED")


@bug
def nothing_is_cleaned_up_after_a_cancel(patch: Patch) -> None:
    """P2."""
    _cleans_up_not_after(patch, "RUN_CANCELLED")


@bug
def the_work_spends_what_is_kept_for_cleaning_up(patch: Patch) -> None:
    """P2: the caps keep a call back for each step of `finally`."""
    decided = decide.decide

    def all_of_it(of: State, tools: Any, now: float) -> Any:
        kept, most = of.policy, of.policy.max_attempts
        if most is not None and not of.cleaned:
            of.policy = msgspec.structs.replace(kept, max_attempts=most + len(of.finals))
        try:
            return decided(of, tools, now)
        finally:
            of.policy = kept

    patch.setattr(run_loop, "decide", all_of_it)


@bug
def a_breaker_ends_the_run(patch: Patch) -> None:
    """H4, R6: three failures, and what it kept from starting is never begun."""
    left = State.rounds_left
    patch.setattr(State, "rounds_left", lambda of: left(of) and not of.stopped)


@bug
def a_look_is_handed_what_an_earlier_one_had(patch: Patch) -> None:
    """A look that changes its arguments or its baseline changes the next one's question (V8)."""
    had: dict[bytes, Any] = {}
    patch.setattr(looks, "unpack", lambda data: had.setdefault(data, unpack(data)))


@bug
def a_tool_is_handed_the_plans_own_arguments(patch: Patch) -> None:
    """A tool that changes its arguments changes its next call (E2)."""
    made = CallInputs.args

    def shared(self: CallInputs, track: Any, action: Any, spec: Any) -> Any:
        args, own, parsed = made(self, track, action, spec)
        return (self._state.template(track).value if own and args else args), own, parsed

    patch.setattr(CallInputs, "args", shared)


class _AnyDigest(str):
    """Equal to every digest."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return True

    def __ne__(self, other: object) -> bool:
        return False

    __hash__ = str.__hash__


ANY_DIGEST = _AnyDigest("x")


@bug
def a_lost_call_is_its_last_owners(patch: Patch) -> None:
    """What was known of a silent owner is forgotten when its successor gives the run back (E11)."""
    patch.setattr(leases, "_known_of", lambda state, lease, before: before)
    patch.setattr(leases.Leases, "give_back", lambda self, lease, before: self.release(lease))
