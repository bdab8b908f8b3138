"""An old run under today's tools and settings: what changed since, what was lost, what is missing (SPEC E3, E5).

Rules of this file:
- Values in, events and answers out: nothing here reads or writes a store.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from rerail.core import events as ev
from rerail.core.events import Error, Event
from rerail.core.fold import evolve
from rerail.core.plan import Effect, Fault, Plan
from rerail.core.policy import Policy
from rerail.core.state import State
from rerail.core.tools import ToolSpec
from rerail.core.track import Phase, Track
from rerail.engine.failures import from_code
from rerail.engine.loop import Host, Predecessor
from rerail.errors import PlanError
from rerail.i18n import tell


@dataclass(frozen=True, slots=True)
class Today:
    """The tools and the policy of this engine, to compare histories with."""

    host: Host
    policy: Policy

    @property
    def specs(self) -> Mapping[str, ToolSpec]:
        """The definitions of the tools."""
        return self.host.specs

    def mending(
        self,
        state: State,
        by: str,
        before: Predecessor = Predecessor.DEAD,
        *,
        resumed: bool = False,
        as_started: bool = False,
    ) -> list[Event]:
        """Two notes before a run goes on: the calls that were in flight are lost, and what changed meanwhile.

        ``as_started``: it goes on under the settings it was started with, whatever this engine's are.
        """
        interrupted = state.rest is None and not state.waiting
        if not interrupted and not resumed:
            return []
        calls = tuple(track.id for track in state.running.values())
        why = "queued" if state.queued else "interrupted" if interrupted else "paused"
        changes = {**self.changes(state), **({"policy": None} if as_started else {})}
        note = ev.Resumed(by, calls, reason=why, paused=state.paused and resumed, **changes)
        return [note, *lost_calls(state, before, self.host)]

    def changes(self, state: State) -> dict[str, Any]:
        """What is different today: the settings, the tools' definitions, and the finished steps these concern (E5)."""
        now = _prints(self.specs, {track.step.tool for track in state.tracks.values()})
        return {
            "policy": self.policy if self.policy != state.policy else None,
            "stale": _stale(state, now),
            "fingerprints": now if now != state.fingerprints else None,
        }

    def can_drive(self, state: State) -> bool:
        """Whether a run can go on here: its tools are at hand, or it calls nothing any more."""
        return bool(state.stopped) or not self._missing_tools(state)

    def need_tools(self, state: State, again: Collection[str] = ()) -> None:
        """Refuse to go on with a run whose tools are not at hand; ``again`` are finished steps to be redone."""
        missing = self._missing_tools(state, again)
        if missing:
            faults = [Fault("UNKNOWN_TOOL", tell("refuse.run.unknown_tool", name=name)) for name in missing]
            faults += server_faults(state.run, state.mcp)
            raise PlanError(tell("refuse.run.tools_missing", run=state.run), faults)

    def _missing_tools(self, state: State, again: Collection[str] = ()) -> list[str]:
        done = (Phase.SUCCEEDED, Phase.SKIPPED)
        unfinished = (t for t in state.tracks.values() if t.phase not in done or t.id in again)
        return list(dict.fromkeys(t.step.tool for t in unfinished if t.step.tool not in self.specs))


def server_faults(run: str, servers: Collection[str]) -> list[Fault]:
    """Why a run lacks the tools of the MCP servers that its plan names; nothing if it names none."""
    return [Fault("MCP_NOT_ALLOWED", tell("refuse.run.mcp", names=", ".join(servers), run=run))] if servers else []


def without_servers(plan: Plan) -> Plan:
    """A plan of an old run as plans are today: the settings name its servers."""
    after = None if plan.follow_up is None else without_servers(plan.follow_up)
    return msgspec.structs.replace(plan, mcp={}, follow_up=after)


def fingerprints(plan: Plan, specs: Mapping[str, ToolSpec]) -> dict[str, str]:
    """What the definitions of a plan's tools are today."""
    return _prints(specs, {step.tool for step in plan.steps})


def _prints(specs: Mapping[str, ToolSpec], names: set[str]) -> dict[str, str]:
    return {name: specs[name].fingerprint for name in sorted(names) if name in specs and specs[name].fingerprint}


def lost_calls(state: State, before: Predecessor, host: Host) -> list[Event]:
    """The calls that were in flight when their process died, left the run, or fell silent."""
    return [_lost_call(track, before, host) for track in state.running.values()]


def _lost_call(track: Track, before: Predecessor, host: Host) -> Event:
    """One such call; whether it may still act decides what its absence proves (V8, E11)."""
    call = track.call
    spec = host.specs.get(call.tool) if call is not None else None
    until, acting = 0.0, False
    if call is not None and call.effect is Effect.ONCE:
        silent = before is Predecessor.SILENT and not host.silent_is_dead
        acting = silent and not (spec is not None and spec.fenced)
        over = ("loop", "process") if before is Predecessor.LEFT else ("loop", "thread", "process")
        seen = not silent and host.runs(call.tool) in over
        until = 0.0 if seen else track.started_at + call.timeout
    # Not the step's fault: where it may be called again it is, at once and at no cost to its budget (E3).
    error = from_code("ANSWER_LOST", "SILENT") if acting else from_code("ANSWER_LOST")
    return _lost(track, error, until, acting=acting)


def lost(state: State) -> list[Event]:
    """The calls in flight, as those of a dead process."""
    return [_lost(track, from_code("ANSWER_LOST")) for track in state.running.values()]


def _lost(track: Track, error: Error, until: float = 0.0, *, acting: bool = False) -> ev.StepFailed:
    """A call that died with its process. What it cost is not known, so it is charged what it had reserved (H4)."""
    held = track.holds
    tokens, cost = (held.reserved_tokens, held.reserved_cost) if held is not None else (0, 0.0)
    return ev.StepFailed(
        track.id, track.attempt, error, lost=True, not_now=0.0, tokens=tokens, cost=cost, until=until, acting=acting
    )


def pretend_mended(state: State) -> None:
    """For a dry run: what the state would be once the lost calls are noted."""
    if state.rest is None and not state.waiting:
        for event in lost(state):
            evolve(state, event, state.at, state.seq)


def unseen(state: State) -> dict[str, ToolSpec]:
    """Stand-ins for a run's tools, where another process has them: of those nothing is known but their names."""
    steps = [track.step for track in state.tracks.values()]
    return {name: ToolSpec(name) for step in steps for name in (step.tool, *step.alternatives)}


def _stale(state: State, now: Mapping[str, str]) -> tuple[str, ...]:
    """Finished steps whose tool's definition changed since (E5): kept, and marked stale."""
    changed = {name for name, value in now.items() if state.fingerprints.get(name, value) != value}
    if not changed:
        return ()
    return tuple(t.id for t in state.tracks.values() if t.phase is Phase.SUCCEEDED and t.step.tool in changed)
