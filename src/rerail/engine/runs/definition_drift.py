"""Definition drift: an old run under the current tools and settings (contract E3, E5).

Rules of this file:
- Values in, events and answers out: nothing here reads or writes a store.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from rerail.engine.failures import from_code
from rerail.engine.parts import EngineParts, Predecessor
from rerail.errors import PlanError
from rerail.i18n import tell
from rerail.kernel import events as ev
from rerail.kernel.actor import HTTP
from rerail.kernel.events import Error, Event
from rerail.kernel.fold import evolve
from rerail.kernel.policy import Policy, has_caps, merged
from rerail.kernel.state import State
from rerail.kernel.step_state import Phase, Track
from rerail.plan.model import Plan
from rerail.plan.step import Effect, Fault
from rerail.plan.tool_spec import ToolSpec


@dataclass(frozen=True, slots=True)
class DefinitionDrift:
    """The current tools and policy, to compare histories with."""

    parts: EngineParts
    policy: Policy

    def resume_events(
        self,
        state: State,
        by: str,
        before: Predecessor = Predecessor.DEAD,
        *,
        resumed: bool = False,
        as_started: bool = False,
    ) -> list[Event]:
        """Return the events before a run goes on: what changed meanwhile, and the calls that are lost.

        ``as_started``: the run keeps the policy that it was started with.
        """
        interrupted = state.rest is None and not state.waiting
        if not interrupted and not resumed:
            return []
        calls = tuple(track.id for track in state.running.values())
        why = "queued" if state.queued else "interrupted" if interrupted else "paused"
        changes = {**self.changes(state), **({"policy": None} if as_started else {})}
        served = self.parts.actor.via == HTTP
        note = ev.Resumed(by, calls, reason=why, paused=state.paused and resumed, served=served, **changes)
        return [note, *lost_calls(state, before, self.parts)]

    def changes(self, state: State) -> dict[str, Any]:
        """Return what changed: the policy, the tools' definitions, and the finished steps concerned (contract E5)."""
        now = fingerprints(self.parts.specs, {track.step.tool for track in state.tracks.values()})
        policy = merged(self.policy, state.policy)
        return {
            "policy": policy if policy != state.policy else None,
            "stale": _stale(state, now),
            "fingerprints": now if now != state.fingerprints else None,
        }

    def is_capped(self, state: State) -> bool:
        """Return True if a retry with today's policy has a cap."""
        return has_caps(merged(self.policy, state.policy))

    def can_drive(self, state: State) -> bool:
        """True if a run can go on here: its tools are present, or it makes no further calls."""
        if not state.stopped:
            return not self.missing_tools(state)
        cleans_up = not state.cleaned or state.cleaning is not None
        last = [track.step.tool for track in state.tracks.values() if track.id in state.finals]
        return not cleans_up or all(tool in self.parts.specs for tool in last)

    def need_tools(self, state: State, again: Collection[str] = ()) -> None:
        """Refuse a run with tools that are missing here; ``again`` are finished steps to be redone."""
        missing = self.missing_tools(state, again)
        if missing:
            faults = [Fault("UNKNOWN_TOOL", tell("refuse.run.unknown_tool", name=name)) for name in missing]
            faults += server_faults(state.run, state.mcp)
            raise PlanError(tell("refuse.run.tools_missing", run=state.run), faults)

    def missing_tools(self, state: State, again: Collection[str] = ()) -> list[str]:
        """Return the tools of a run's unfinished steps, and of those to do ``again``, that are not here."""
        done = (Phase.SUCCEEDED, Phase.SKIPPED)
        unfinished = (t for t in state.tracks.values() if t.phase not in done or t.id in again)
        return list(dict.fromkeys(t.step.tool for t in unfinished if t.step.tool not in self.parts.specs))


def server_faults(run: str, servers: Collection[str]) -> list[Fault]:
    """Return the fault of a plan that names MCP servers; empty if it names none."""
    return [Fault("MCP_NOT_ALLOWED", tell("refuse.run.mcp", names=", ".join(servers), run=run))] if servers else []


def without_servers(plan: Plan) -> Plan:
    """Return an old plan without its servers: the settings name them now."""
    after = None if plan.follow_up is None else without_servers(plan.follow_up)
    return msgspec.structs.replace(plan, mcp={}, follow_up=after)


def fingerprints(specs: Mapping[str, ToolSpec], names: set[str]) -> dict[str, str]:
    """Return the current fingerprints of tools."""
    return {name: specs[name].fingerprint for name in sorted(names) if name in specs and specs[name].fingerprint}


def lost_calls(state: State, before: Predecessor, parts: EngineParts) -> list[Event]:
    """Return the events of the calls that were in flight when their process died, left or fell silent."""
    return [_lost_call(track, before, parts) for track in state.running.values()]


def _lost_call(track: Track, before: Predecessor, parts: EngineParts) -> Event:
    """Return the event of one lost call; whether it may still act decides what an absence proves (contract V8, E11)."""
    call = track.call
    spec = parts.specs.get(call.tool) if call is not None else None
    until, acting = 0.0, False
    if call is not None and call.effect is Effect.ONCE:
        silent = before is Predecessor.SILENT and not parts.silent_is_dead
        acting = silent and not (spec is not None and spec.fenced)
        over = ("loop", "process") if before is Predecessor.LEFT else ("loop", "thread", "process")
        seen = not silent and parts.runs(call.tool) in over
        until = 0.0 if seen else track.started_at + call.timeout
    # Not the step's fault: where a repetition is allowed it is immediate, and free for the budget (contract E3).
    error = from_code("ANSWER_LOST", "SILENT") if acting else from_code("ANSWER_LOST")
    return _lost(track, error, until, acting=acting)


def lost(state: State) -> list[Event]:
    """Return the events of the calls in flight, as calls of a dead process."""
    return [_lost(track, from_code("ANSWER_LOST")) for track in state.running.values()]


def _lost(track: Track, error: Error, until: float = 0.0, *, acting: bool = False) -> ev.StepFailed:
    """Return the event of a call that died with its process; it is charged its reservation (contract H4)."""
    held = track.holds
    tokens, cost = (held.reserved_tokens, held.reserved_cost) if held is not None else (0, 0.0)
    return ev.StepFailed(
        track.id, track.attempt, error, lost=True, not_now=0.0, tokens=tokens, cost=cost, until=until, acting=acting
    )


def pretend_resumed(state: State) -> None:
    """Fold the lost calls into the state of a dry run."""
    if state.rest is None and not state.waiting:
        for event in lost(state):
            evolve(state, event, state.at, state.seq)


def placeholders(state: State) -> dict[str, ToolSpec]:
    """Return specs with nothing but names, for tools that only another process has."""
    steps = [track.step for track in state.tracks.values()]
    return {name: ToolSpec(name) for step in steps for name in (step.tool, *step.alternatives)}


def _stale(state: State, now: Mapping[str, str]) -> tuple[str, ...]:
    """Return the finished steps with a changed tool definition: kept, and marked stale (contract E5)."""
    changed = {name for name, value in now.items() if state.fingerprints.get(name, value) != value}
    if not changed:
        return ()
    return tuple(t.id for t in state.tracks.values() if t.phase is Phase.SUCCEEDED and t.step.tool in changed)
