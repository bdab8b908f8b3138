"""Calls of a run: intent → launch, with arguments, limits, probes and idempotency keys (contract P4, E2, V8).

Rules of this file:
- An intent is recorded here and committed by the loop; `start` is called only after that commit.
- Inputs that are not in memory (contents, files, probes) are deferred as a side task, and the intent waits for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from rerail.context import Context, excerpt
from rerail.engine.call_inputs import (
    CallInputs,
    FailsBeforeCall,
    InputsNotLoaded,
    files_damaged,
    gate_opened,
    kept_args,
)
from rerail.engine.failures import from_code
from rerail.engine.files.placement import Wanted, damaged, declared, files_read
from rerail.engine.journal import BlobMissing, Journal, gc_paused
from rerail.engine.launch import Launch, Outcome
from rerail.engine.looks import Patience
from rerail.engine.parts import EngineParts, wanted
from rerail.engine.queues import SideTasks
from rerail.i18n import tell, words_of
from rerail.kernel import events as ev
from rerail.kernel.accounts import FREE
from rerail.kernel.budget import in_time
from rerail.kernel.decide import Call, VerifyEffect
from rerail.kernel.retry import FileDamage
from rerail.kernel.step_state import EffectState, Phase, Track, call_digest, signature
from rerail.plan.step import Effect
from rerail.plan.tool_spec import ToolSpec
from rerail.ports import Tool
from rerail.values.json_values import pack
from rerail.workspace import stage_for

DEFAULT_SETTLE = 5.0  # seconds of looks for an effect with `settle: never`, unless a setting says more
LAUNCH_BATCH = 256  # launches between two yields to the event loop
MAX_LOG = 8_000  # characters of log in one event


class Calls:
    """The calls of one run: prepared, under way, and their tools' reports."""

    def __init__(
        self,
        parts: EngineParts,
        journal: Journal,
        side: SideTasks,
        wake: asyncio.Event,
        outcomes: deque[Any],
        workspace: Callable[[], Path],
    ) -> None:
        """``outcomes`` are for the loop's next turn, which the end of a side task or ``wake`` begins."""
        self._parts, self._journal, self._state, self._side = parts, journal, journal.state, side
        self._workspace, self._wake, self._outcomes = workspace, wake, outcomes
        self._fence = journal.lease.fence
        self._scrub = parts.performer.scrub
        self.inputs = CallInputs(journal.state, journal)
        self.under_way: dict[str, Launch] = {}
        self._probed: dict[tuple[str, int], Any] = {}
        self._inspected: dict[tuple[str, int], list[FileDamage]] = {}  # damage of the files that a step reads
        self.progress: dict[tuple[str, bool], ev.StepProgress] = {}
        self._full: list[ev.StepProgress] = []  # log events at their maximum length

    # -- Intents --------------------------------------------------------------------------------------------------

    def intend(self, action: Call, now: float, launches: list[Launch]) -> bool:
        """Record the intent to call; True if the step failed before its call, or waits at its gate, instead."""
        track = self._state.tracks[action.step]
        tool, spec = self._parts.tools.get(action.tool), self._parts.specs.get(action.tool)
        if tool is None or spec is None:
            return self._fail_before(track, from_code("TOOL_UNKNOWN", tool=action.tool), now)
        try:
            args, own, parsed = self.inputs.args(track, action, spec)
            launch = self.launch(track, action.attempt, tool, spec, args)
            question = self._scrub.value(self.inputs.question(track)) if track.step.confirm else ""
            if self._state.filed and not self._files_are_sound(track):
                return False  # their inspection is under way
        except InputsNotLoaded as wait:
            self._side.defer(("fetch", track.id, track.attempt), self._fetch(track, wait.names))
            return False
        except FailsBeforeCall as problem:
            return self._fail_before(track, problem.error, now)
        acts = launch.effect is Effect.ONCE or self._state.once.made
        if acts and (done := self._state.repeats(track, spec, args, launch.effect)):
            return self._fail_before(track, from_code("ONCE_REPEATED", step=done), now)
        agreed = ""
        if track.step.confirm:
            shown = self._scrub.value(args) if self._scrub.active else args  # secrets by reference
            agreed = call_digest(action.tool, signature(shown), self._state.files(track))
            if not self._state.agrees(track, agreed):
                self.inputs.fetched.pop(track.id, None)
                opened = gate_opened(self._state, track, action, shown, question, self._journal.blobs)
                self._journal.record(opened, now)
                return True
        if spec.probes and not self._has_baseline(track, action, launch):
            return False  # the probe is under way
        policy = self._state.policy
        if policy.tool_concurrency or policy.provider_concurrency:
            launch.counts = wanted(policy, spec)
            if not self._parts.limits.take(launch.counts, self._wake):
                return False  # other runs of this engine use up the limit; the loop is woken when a call ends
        if self.inputs.fetched:
            self.inputs.fetched.pop(track.id, None)
        launch.reserves = action.reserves
        self._journal.record(self._intent(track, action, launch, own, agreed, tuple(parsed)), now)
        self.under_way[track.id] = launch
        launches.append(launch)
        return False

    def _fail_before(self, track: Track, error: ev.Error, now: float) -> bool:
        self.inputs.fetched.pop(track.id, None)
        self._journal.record(ev.StepFailed(track.id, track.attempt, error, called=False), now)
        return True

    def _has_baseline(self, track: Track, action: Call, launch: Launch) -> bool:
        """Put the probe's result into the launch; False if the probe has to run first."""
        seen = (track.id, action.attempt)
        known = baseline(track, action.tool, launch.args)
        if known is None and seen not in self._probed:
            self._side.defer(("probe", *seen), self._probe(launch))
            return False
        launch.before = known[0] if known is not None else self._probed[seen]
        return True

    def _files_are_sound(self, track: Track) -> bool:
        """True if the files that a step reads are as their steps left them (contract T1).

        `FailsBeforeCall` if one is not: its producer runs again, as for any other lost output.
        """
        wanted_files = files_read(self._state, track)
        if not wanted_files:
            return True
        found = self._inspected.pop((track.id, track.attempt), None)
        if found is None:
            self._side.defer(("files", track.id, track.attempt), self._inspect(track, wanted_files))
            return False
        if found:
            raise FailsBeforeCall(files_damaged(found, self._state.parent))
        return True

    def _intent(
        self, track: Track, action: Call, launch: Launch, own: bool, agreed: str, parsed: tuple[str, ...]
    ) -> ev.StepStarted:
        inline, blob = (None, "") if own else kept_args(launch.args, self._journal.blobs)
        once, reserves = launch.effect is Effect.ONCE, action.reserves
        own_tool = launch.spec.name == track.step.tool
        known_for = (track.step.idempotent_for if own_tool else None) or launch.spec.idempotent_for or 0.0
        return ev.StepStarted(
            track.id, action.attempt, action.tool, launch.effect, inline, blob,
            action.rung, launch.before, launch.verifiable, launch.staged,
            reserves.cost or launch.spec.cost or 0.0, reserves.tokens or 0, reserves is not FREE and reserves.unknown,
            launch.timeout if once or launch.verifiable else 0.0, launch.spec.probes,
            known_for if once and launch.spec.keyed else 0.0, agreed,
            self._fence if once else 0, parsed,
        )  # fmt: skip

    # -- Launches -------------------------------------------------------------------------------------------------

    def launch(self, track: Track, attempt: int, tool: Tool, spec: ToolSpec, args: dict[str, Any]) -> Launch:
        """Prepare an attempt; nothing is called."""
        step = track.step
        timeout = step.timeout or spec.timeout or self._state.policy.step_timeout
        effect = self._state.effect_of(track, spec)
        if self._state.policy.max_seconds is not None or self._state.cleaning is not None:
            timeout = in_time(self._state, timeout, effect, self._parts.clock.now())
        verifiable = spec.verifiable or step.verify is not None
        launch = Launch(step, attempt, tool, spec, args, None, timeout, effect, verifiable)
        launch.term, launch.hold = self._journal.term, self._journal.confirm_lease
        if verifiable:
            launch.patience = self._patience(track, spec, effect)
        effects = track.effects
        if effects is not None and effects.lost and not effects.rerun and effects.call.idempotent_for:
            launch.key_until = effects.key_at + effects.call.idempotent_for
        if step.produces:
            launch.workspace = self._workspace()
            launch.leftover = track.call.staged if track.call is not None else ""
            if not verifiable:  # a look searches for the files in their final place
                launch.staged = stage_for(track.id, attempt)
        elsewhere = self._parts.performer.elsewhere
        away = elsewhere is not None and elsewhere.takes(tool)
        if away or tool.wants_context or verifiable or spec.probes:
            launch.ctx = self._context(track, attempt, args, timeout, launch.staged)
        if verifiable or spec.probes:
            launch.asked = pack(args).data
        if step.verify is not None:
            launch.verify_args = pack(self.inputs.verify_args(track)).data
        return launch

    def _patience(self, track: Track, spec: ToolSpec, effect: Effect) -> Patience:
        """Return how long an absence of the effect is waited for: by the step, its tool, or the settings."""
        usual = self._state.policy.settle if effect is Effect.ONCE else 0.0
        settle = next((said for said in (track.step.settle, spec.settle) if said is not None), usual)
        if settle == "never":
            return Patience(usual if isinstance(usual, float | int) and usual else DEFAULT_SETTLE, believed=False)
        return Patience(float(settle))

    def _until_settled(self, track: Track, effects: EffectState | None, launch: Launch) -> Patience:
        """Return how long an absence is waited for from now: only a lost answer can show late (contract V8).

        The wait counts from the end of the call. The wall clock may have jumped since: no wait is longer than the
        call and its settling could take.
        """
        patience, now = launch.patience, self._parts.clock.now()
        if effects is None or (effects.call.effect is Effect.ONCE and not effects.lost):
            return Patience(0.0, patience.believed)
        if track.is_covered(now):
            return Patience(0.0)
        left = effects.settles_at + patience.seconds - now
        return Patience(min(max(0.0, left), launch.timeout + patience.seconds), patience.believed)

    def _context(self, track: Track, attempt: int, args: dict[str, Any], timeout: float, staged: str = "") -> Context:
        run, step = self._state.run, track.id
        key = f"{run}-{pack([step, track.generation, args]).digest}"
        loop = asyncio.get_running_loop()

        def sink(kind: str, said: Mapping[str, Any]) -> None:
            event = ev.StepProgress(step, attempt, _plain(said.get("message", "")), said.get("fraction"), kind == "log")
            with contextlib.suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(self._hear, event)

        folder = self._workspace()
        fence, owner = self._fence, functools.partial(self._journal.term.require, step)
        if not staged:
            return Context(run, step, attempt, key, folder, sink, timeout, fence=fence, owner=owner)
        files = declared(track.step.produces)
        return Context(run, step, attempt, key, folder, sink, timeout, folder / staged, files, fence, owner)

    async def start(self, launches: list[Launch]) -> None:
        """Start committed calls, without blocking the event loop while there are very many."""
        performer = self._parts.performer
        if len(launches) <= LAUNCH_BATCH:
            for launch in launches:
                performer.launch(launch, self._deliver)
            return
        for first in range(0, len(launches), LAUNCH_BATCH):
            with gc_paused():
                for launch in launches[first : first + LAUNCH_BATCH]:
                    performer.launch(launch, self._deliver)
            await asyncio.sleep(0)

    # -- Calls under way ------------------------------------------------------------------------------------------

    def _deliver(self, outcome: Outcome) -> None:
        self._outcomes.append(outcome)
        self._wake.set()

    def ended(self, step: str, attempt: int) -> Launch | None:
        """Take an attempt from the calls under way, and return it; None if it is there no longer."""
        launch = self.under_way.get(step)
        if launch is None or launch.attempt != attempt:
            return None
        del self.under_way[step]
        if self._probed or launch.counts:
            self._release(launch)
        return launch

    def _release(self, launch: Launch) -> None:
        """Free what the call held: its probe, and its place in the limits of the engine."""
        self._probed.pop((launch.step.id, launch.attempt), None)
        if launch.counts:
            self._parts.limits.give_back(launch.counts)
            launch.counts = None

    def cancel_unwanted(self) -> None:
        """Cancel the calls of a cancelled run, and those of steps that were skipped."""
        for launch in list(self.under_way.values()):
            track = self._state.tracks.get(launch.step.id)
            if self._state.stopped == "RUN_CANCELLED" and not (track is not None and self._state.is_live(track)):
                self._parts.performer.cancel(launch, "RUN_CANCELLED")
            elif self._state.current(launch.step.id, launch.attempt, Phase.RUNNING) is None:
                self._parts.performer.cancel(launch, "SKIPPED_LIVE")

    def stop(self) -> None:
        """Cancel all calls as a crash would: nothing more is recorded."""
        for launch in self.under_way.values():
            launch.ended = True
            self._release(launch)
            if launch.ctx is not None:
                launch.ctx.cancelled.set()
            if launch.task is not None:
                launch.task.cancel()

    def _hear(self, event: ev.StepProgress) -> None:
        """Take a tool's progress: the latest fraction counts, log lines of one turn are joined."""
        place = (event.step, event.log)
        before = self.progress.get(place)
        if event.log and before is not None:
            both = f"{before.message}\n{event.message}"
            if len(both) <= MAX_LOG:
                event = ev.StepProgress(event.step, event.attempt, both, None, True)
            else:
                self._full.append(before)
        self.progress[place] = event
        self._wake.set()

    def record_progress(self, now: float) -> None:
        """Record what tools reported since the last turn."""
        spoken, self._full = [*self._full, *self.progress.values()], []
        self.progress.clear()
        for progress in spoken:
            if self._state.current(progress.step, progress.attempt, Phase.RUNNING):
                self._journal.record(progress, now)

    # -- Beside the calls -----------------------------------------------------------------------------------------

    async def _fetch(self, track: Track, names: dict[str, str]) -> None:
        """Read contents for a call; a missing one fails the step, and recovery may run its producer again."""
        found = self.inputs.fetched.setdefault(track.id, {})
        for name, producer in names.items():
            try:
                found[name] = await self._journal.content(name)
            except BlobMissing as gone:
                error = from_code("ARTIFACT_GONE", step=producer, reason=gone.reason, producer=producer)
                event = ev.StepFailed(track.id, track.attempt, error, called=False)
                self._outcomes.append(Outcome(track.id, track.attempt, [event], called=False))
                self.inputs.fetched.pop(track.id, None)
                return

    async def _inspect(self, track: Track, wanted_files: list[Wanted]) -> None:
        with self._parts.clock.external():
            found = await asyncio.to_thread(damaged, wanted_files, self._workspace(), self._state.drafts)
        self._inspected[track.id, track.attempt] = found

    async def _probe(self, launch: Launch) -> None:
        self._probed[launch.step.id, launch.attempt] = await self._parts.performer.looks.probe(launch)

    async def look(self, action: VerifyEffect) -> None:
        """Look for the effect of a call with an unclear outcome (contract V8)."""
        track = self._state.tracks[action.step]
        effects = self._state.next_effect(track) if track.phase is Phase.PENDING else track.effects
        call = effects.call if effects is not None else track.call
        if call is None:
            return
        tool, spec = self._parts.tools.get(call.tool), self._parts.specs.get(call.tool)
        if tool is None or spec is None:
            self._deliver(_unknown(action, tell("reason.no_tool", tool=call.tool)))
            return
        try:
            launch = await self._look_with(track, action.attempt, tool, spec, call)
        except (BlobMissing, FailsBeforeCall) as problem:
            self._deliver(_unknown(action, words_of(problem)))
            return
        launch.before = effects.before if effects is not None else call.before
        launch.patience = self._until_settled(track, effects, launch)
        self._deliver(await self._parts.performer.look_again(launch))

    async def _look_with(self, track: Track, attempt: int, tool: Tool, spec: ToolSpec, call: ev.StepStarted) -> Launch:
        """Prepare a look: the arguments of the call and its own, in memory or in the store."""
        while True:
            try:
                return self.launch(track, attempt, tool, spec, self.inputs.same_args(track, call)[0])
            except InputsNotLoaded as wait:
                found = self.inputs.fetched.setdefault(track.id, {})
                for name in wait.names:
                    found[name] = await self._journal.content(name)


def _unknown(action: VerifyEffect, reason: str) -> Outcome:
    """Return the outcome of an impossible look."""
    event = ev.StepVerified(action.step, action.attempt, "unknown", reason=reason, looks=1)
    return Outcome(action.step, action.attempt, [event], look=True)


def baseline(track: Track, tool: str, args: Any) -> tuple[Any] | None:
    """Return the result of the first probe before this very call: all its attempts compare with it (contract V8)."""
    name = f"{tool} {signature(args)}"
    known = (track.effects, *track.earlier) if track.effects is not None else ()
    return next(((one.before,) for one in known if one.probed and one.signature == name), None)


def _plain(message: Any) -> str:
    """Return a tool's message as text that can be stored."""
    return excerpt(str(message), 2000).encode("utf-8", "replace").decode()
