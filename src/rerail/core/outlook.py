"""What a person's action would lead to: the action, done to a state that nobody needs any more (R7, X7).

Rules of this file:
- Nothing is guessed. The events of the action are folded, and then whatever is decided from there, up to where a tool
  or a mind has to be called: what they answer nobody knows.
- One kind of preview for a retry and for every other action, so that all who show one show all.
"""

from __future__ import annotations

from collections.abc import Sequence

from rerail.core.commands import Preview, acted_once, edited_files, estimated
from rerail.core.decide import Note, Show, decide, unresolved
from rerail.core.events import Event
from rerail.core.fold import evolve
from rerail.core.holes import not_accepted
from rerail.core.plan import Effect, names_of
from rerail.core.state import State, downstream
from rerail.core.tools import Tools
from rerail.core.track import Phase, Status, Track
from rerail.core.verdict import run_status, status_of
from rerail.i18n import tell

ENDED = frozenset({Status.SUCCEEDED, Status.DEGRADED, Status.FAILED, Status.SKIPPED, Status.CANCELLED})


def outlook(state: State, tools: Tools, step: str, events: Sequence[Event], now: float) -> Preview:
    """What these events, which are about a step, would lead to; the state is used up."""
    before = {track.id: status_of(state, track)[0] for track in state.tracks.values()}
    acted = acted_once(state)
    _settle(state, tools, events, now)
    behind = {track.id for track in downstream(state, [step])} if step in state.tracks else set()
    rows: list[dict[str, str]] = []
    becomes: dict[str, str] = {}
    kept: list[str] = []
    asks: list[str] = []
    missing = {track.id for track in state.tracks.values() if track.phase is Phase.SKIPPED}
    names = names_of([track.step for track in state.tracks.values()] if missing else [])
    for track in state.tracks.values():
        status, was = status_of(state, track)[0], before.get(track.id)
        if status in ENDED:
            if status is was:
                kept.append(track.id)
            else:
                becomes[track.id] = str(status)
        elif _stands(track):
            kept.append(track.id)
        elif status not in (Status.RUNNING, Status.IN_DOUBT) and (track.id in behind or was in ENDED or was is None):
            spec = tools.get(state.tool_of(track)) if missing else None
            hole = next(not_accepted(track.step, spec, names, missing), None) if spec is not None else None
            rows.append({"step": track.id, "why": _why(track, hole, asked=track.id == step)})
            if track.step.confirm and not track.agreed:
                asks.append(track.id)
    chain = [row["step"] for row in rows]
    inside = set(chain)
    return Preview(
        roots=(step,) if step in inside else (), rerun=tuple(rows), kept=tuple(kept),
        once=tuple(name for name in acted if name in inside), estimate=estimated(state, chain), events=tuple(events),
        asks=tuple(asks), edited=edited_files(state, chain), becomes=becomes, leads_to=str(run_status(state)),
    )  # fmt: skip


def _settle(state: State, tools: Tools, events: Sequence[Event], now: float) -> None:
    """Fold the events, and all that is written down because of them before anything has to be called."""
    found = list(events)
    while found:
        for event in found:
            evolve(state, event, now, state.seq + 1)
        actions = decide(state, tools, now)
        found = [event for note in actions if isinstance(note, Note) for event in note.events]
        found += [unresolved(state, show) for show in actions if isinstance(show, Show)]


def _stands(track: Track) -> bool:
    """Whether a finished step is kept whatever becomes of its inputs: nobody asked for its effect once more (R3)."""
    return track.automatic and track.result is not None and track.result.effect is Effect.ONCE


def _why(track: Track, hole: tuple[str, str] | None, *, asked: bool) -> str:
    if hole is not None:  # it ends before its call, which nobody would call running
        return tell("reason.hole_ahead", argument=hole[0], other=hole[1])
    if asked:
        return tell("reason.asked_for")
    return tell("reason.if_inputs_change" if track.result is not None else "reason.has_not_run")
