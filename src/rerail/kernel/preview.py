"""The preview of a command: its events folded into a disposable state (contract R7, X7).

Rules of this file:
- Nothing is guessed. The command's events are folded, and then every event decided from there, until a tool
  or a mind would be called: their answers are unknown.
- A retry and every other command have the same kind of preview, and every interface shows all of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rerail.i18n import tell
from rerail.kernel.actions import Refusal
from rerail.kernel.budget import raised
from rerail.kernel.decide import Note, Show, clean_up_steps, decide, unresolved
from rerail.kernel.events import Event
from rerail.kernel.fold import evolve
from rerail.kernel.plan_graph import downstream
from rerail.kernel.retry import Preview, edited_files, estimated, repeated, topological
from rerail.kernel.state import State
from rerail.kernel.step_state import Phase, RunStatus, Status, Track
from rerail.kernel.verdict import run_status, status_of
from rerail.plan.step import Effect, When, names_of
from rerail.plan.tool_spec import Tools
from rerail.plan.warnings import not_accepted

ENDED = frozenset({Status.SUCCEEDED, Status.DEGRADED, Status.FAILED, Status.SKIPPED, Status.CANCELLED})


def outlook(state: State, tools: Tools, step: str, events: Sequence[Event], now: float) -> Preview:
    """Return the consequences of these events, which concern a step; the state is used up."""
    before = {track.id: status_of(state, track)[0] for track in state.tracks.values()}
    cleaned = clean_up_steps(state) if state.rest is not None else []
    _settle(state, tools, events, now)
    waits = _waiting(state)
    behind = {track.id for track in downstream(state, [step])} if step in state.tracks else set()
    rows: list[dict[str, str]] = []
    becomes: dict[str, str] = {}
    kept: list[str] = []
    asks: list[str] = []
    missing = {track.id for track in state.tracks.values() if track.phase is Phase.SKIPPED}
    names = names_of([track.step for track in state.tracks.values()] if missing else [])
    goes_on = run_status(state) is RunStatus.RUNNING and not (state.doubts or state.gates)
    last = clean_up_steps(state) if goes_on else []
    for track in state.tracks.values():
        status, was = status_of(state, track)[0], before.get(track.id)
        if status in ENDED:
            if status is was:
                kept.append(track.id)
            else:
                becomes[track.id] = str(status)
        elif track.automatic and track.result is not None and track.result.effect is Effect.ONCE:
            kept.append(track.id)  # whatever its inputs become: no request repeats its effect (R3)
        elif track.id in waits:
            kept += [track.id] if was in ENDED else []
        elif track.id in last and status is not Status.RUNNING:
            rows.append({"step": track.id, "why": tell("reason.cleans_up")})
        elif status not in (Status.RUNNING, Status.IN_DOUBT) and (track.id in behind or was in ENDED or was is None):
            spec = tools.get(state.tool_of(track)) if missing else None
            hole = next(not_accepted(track.step, spec, names, missing), None) if spec is not None else None
            rows.append({"step": track.id, "why": _why(track, hole, asked=track.id == step)})
            if track.step.confirm and not track.agreed:
                asks.append(track.id)
    again = [step_id for step_id in cleaned if step_id in kept and state.rest is None] if rows else []
    rows += [{"step": step_id, "why": tell("reason.cleans_up")} for step_id in again]
    kept = [step_id for step_id in kept if step_id not in again]
    chain = [row["step"] for row in rows]
    inside = set(chain)
    once, once_if = repeated(state, chain, [*again, *(name for name in chain if state.tracks[name].root)])
    return Preview(
        roots=(step,) if step in inside else (), rerun=tuple(rows), kept=tuple(kept),
        once=once, once_if=once_if, estimate=estimated(state, chain), events=tuple(events),
        asks=tuple(asks), edited=edited_files(state, chain), becomes=becomes, leads_to=str(run_status(state)),
    )  # fmt: skip


def within_budget(state: State, tools: Tools, preview: Preview, now: float) -> Preview:
    """Return a retry's preview without the calls that no cap has room for; refuse one without any call (H4)."""
    _settle(state, tools, preview.events, now)
    if state.stopped != "BUDGET_EXCEEDED":
        return preview
    if state.rest is not None:
        reason = state.stop_reason or tell("stop.BUDGET_EXCEEDED")
        told = tell("refuse.run.out_of_budget", run=state.run, reason=reason)
        command = f"rerail retry {state.run}{raised(state)}"
        raise Refusal("BUDGET_EXCEEDED", told, tell("hint.run.out_of_budget", command=command))
    left = [row["step"] for row in preview.rerun if row["step"] in state.finals]
    becomes = {row["step"]: str(Status.CANCELLED) for row in preview.rerun if row["step"] not in state.finals}
    return replace(
        preview, rerun=tuple(row for row in preview.rerun if row["step"] in left), becomes=becomes,
        once=tuple(step for step in preview.once if step in left), once_if=(), estimate=estimated(state, left),
    )  # fmt: skip


def _settle(state: State, tools: Tools, events: Sequence[Event], now: float) -> None:
    """Fold the events, and all events that follow from them before a call is needed."""
    found = list(events)
    while found:
        for event in found:
            evolve(state, event, now, state.seq + 1)
        actions = decide(state, tools, now)
        found = [event for note in actions if isinstance(note, Note) for event in note.events]
        found += [unresolved(state, show) for show in actions if isinstance(show, Show)]


def _waiting(state: State) -> set[str]:
    """Return the steps that would still wait: for a doubt that stays open, or for a failure that may not come."""
    found: set[str] = set()
    for track in topological(state):
        doubts = any(need.phase is Phase.DOUBT or need.id in found for need, _ in track.needs)
        failures = any(when is When.FAILURE and need.phase is not Phase.FAILED for need, when in track.needs)
        if track.phase is Phase.PENDING and track.open and (doubts or failures):
            found.add(track.id)
    return found


def _why(track: Track, hole: tuple[str, str] | None, *, asked: bool) -> str:
    if hole is not None:  # it ends before its call, so it does not count as running
        return tell("reason.hole_ahead", argument=hole[0], other=hole[1])
    if asked:
        return tell("reason.asked_for")
    return tell("reason.if_inputs_change" if track.result is not None else "reason.has_not_run")
