"""The fold of user actions (contract X7, X10)."""

from __future__ import annotations

import math

import msgspec

from rerail.kernel import events as ev
from rerail.kernel.effect_folds import mark_absent, mark_done
from rerail.kernel.events import Course, said_no
from rerail.kernel.plan_graph import recount, redirect
from rerail.kernel.policy import CLEANUP_SECONDS, Rung
from rerail.kernel.state import State
from rerail.kernel.step_state import AHEAD, FIRST, PENDING, SUCCEEDED, Phase, Result, Track
from rerail.plan.step import Effect


def person_acted(state: State, event: ev.Acted, at: float) -> None:
    if state.waiting:
        prolong(state, at)
    state.waiting = False
    state.grant(event.wish, event.number)
    state.acted_at = state.seq + 1
    state.activate(at)
    if event.action == "pause":
        state.paused = True
    track = state.tracks.get(event.step)
    _edited(state, event)
    # First: the old standing of a step decides which dependents may have run.
    if event.course != Course():
        state.judged = None
        planned_anew(state, event.course)
        if event.action == "retry":
            ask_anew(state, event.course)
        redirect(state, event.course, new_round=event.action in ("retry", "resolve", "repair", "confirm"))
        if event.action in ("repair", "confirm"):
            rewritten(state, event.course)
        edited_by(state, event.course, event.by)
    if event.action == "resolve" and track is not None:
        _resolved(state, track, event)
    if event.action == "confirm" and track is not None:
        _agreed(state, track, event)
    elif event.action == "resolve" and event.outcome == "succeeded" and track is not None:
        result = Result(event.output, event.digest, event.size, event.blob, track.attempt)
        result.by, result.files = event.by or "person", {file.path: file.digest for file in event.files}
        result.edited = tuple(result.files)
        for file in event.files:
            state.drafts.pop(file.path, None)  # the file in place counts, or else the one that an attempt left
            if file.draft:
                state.drafts[file.path] = file
        # An automatic change does not redo what a user decided, unless the user's own call allows it.
        result.effect = track.call.effect if track.call is not None else track.step.effect or Effect.ONCE
        mark_done(state, track)
        track.ended_at = at
        track.inputs = state.inputs(track)
        state.settle(track, result)


def edited_by(state: State, course: Course, by: str) -> None:
    """Remember the editor of a step: with four eyes, another person agrees to its call (I13)."""
    for step in course.steps:
        state.tracks[step.id].editor = by


def prolong(state: State, at: float) -> None:
    """Give the clean-up under way the time back that passed since the last event: nothing could act."""
    if state.cleaning is not None and state.cleaning.until:
        until = state.cleaning.until + max(0.0, at - state.at)
        state.cleaning = msgspec.structs.replace(state.cleaning, until=until)


def cancelled(state: State, event: ev.Cancelled, at: float) -> None:
    if state.cleaning is not None:  # a cancel bounds the clean-up, another one ends it
        again, until = state.stopped == "RUN_CANCELLED", min(state.cleaning.until or math.inf, at + CLEANUP_SECONDS)
        state.cleaning = None if again else msgspec.structs.replace(state.cleaning, until=until)
    state.stopped = "RUN_CANCELLED"
    recount(state)
    state.moved = (event.to, event.after) if event.to else state.moved
    state.grant(event.wish, event.number)
    state.waiting = state.replan_wanted = state.breaker = False
    state.activate(at)


def _resolved(state: State, track: Track, event: ev.Acted) -> None:
    """A user answers a doubt: nothing happened, or the same call is to be made again."""
    if event.outcome == "failed":
        mark_absent(state, track)
        if track.phase is SUCCEEDED and track.result is not None and track.result.is_by_hand:
            track.result = None  # it was resolved as succeeded, by mistake
            state.move(track, PENDING)
            for target, _ in track.out:
                state.unshow(target)
        if track.phase is Phase.FAILED and track.error is not None and track.error.code == "IN_DOUBT":
            track.error = said_no("RESOLVED_FAILED", event.by)  # it is known now
    elif event.outcome == "rerun" and track.effects is not None and track.call is not None:
        track.effects.rerun = True
        heal = track.healing()
        heal.fallback = track.call.rung is Rung.FALLBACK
        heal.tool = track.call.tool if track.call.tool != track.step.tool else None
        state.refresh(track)


def _agreed(state: State, track: Track, event: ev.Acted) -> None:
    """A user approved: the call shown, an edited one, or one that is not known yet (X10)."""
    gate = track.gating()
    shown = gate.shown
    gate.agreed = event.digest or (AHEAD if event.ahead else FIRST)
    gate.yes = event.call or ev.Shown(track.step.tool)
    if event.call is None and shown is not None and event.digest == shown.digest:
        gate.yes = ev.Shown(shown.tool, shown.digest, shown.args, shown.args_blob, shown.files)
    state.refresh(track)


def ask_anew(state: State, course: Course) -> None:
    """Withdraw the approvals of steps that start over, or are redone by force (X10)."""
    for step_id in course.fresh:
        if (track := state.tracks.get(step_id)) is not None:
            track.gate = None


def _edited(state: State, event: ev.Acted) -> None:
    """A user replaced files: the output of their steps has changed."""
    for file in event.files:
        track = state.tracks.get(file.step)
        if track is not None and track.result is not None:
            track.result.files = {**track.result.files, file.path: file.digest}
            track.result.edited = (*(path for path in track.result.edited if path != file.path), file.path)
            for target, _ in track.out:
                state.unshow(target)
            if file.draft:
                state.drafts[file.path] = file


def planned_anew(state: State, course: Course) -> None:
    """Steps written by a user become the plan, and replace any choice of a mind."""
    for step in course.steps:
        state.planned.pop(step.id, None)


def rewritten(state: State, course: Course) -> None:
    """Steps redefined by a user lose the marks of a mind's choice, and the old approval of their gate."""
    for step in course.steps:
        track = state.tracks[step.id]  # the course has just defined it
        track.minded = False
        track.disagree()
        state.refresh(track)
