"""The plan as a graph of steps: define, link, drop and renumber them, and `redirect`, the one reset.

Rules of this file:
- Only folds call it.
- `redirect` is the only function that resets anything. Retry, repair, replan and added steps all come here; they differ
  in their course alone.
- A change costs O(edges of the changed steps); a new plan costs O(steps).
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable

from rerail.kernel.events import Course
from rerail.kernel.ready_queue import Ready
from rerail.kernel.state import State
from rerail.kernel.step_state import (
    MET,
    NOWHERE,
    PENDING,
    READY,
    RUNNING,
    SKIPPED,
    SUCCEEDED,
    UNDECIDED,
    VOID,
    WORTH,
    Phase,
    Track,
    count,
)
from rerail.plan.references import Names
from rerail.plan.step import Effect, Step, When, definition, full_needs


def define(state: State, steps: Iterable[Step]) -> list[Track]:
    """Add steps or replace their definitions; return their tracks. The cost is that of their own edges."""
    steps = list(steps)
    changed = []
    for step in steps:
        track = state.tracks.get(step.id)
        if track is None:
            track = state.tracks[step.id] = Track(state.next_number, step.id, step, (-step.priority, state.next_number))
            if state.retired:
                track.attempt = state.retired.pop(step.id, 0)
                state.dropped.pop(step.id, None)
            state.next_number += 1
        else:
            _unlink(track)
            state.ready.discard(track)
            track.place = NOWHERE if track.place is READY else track.place
            if track.effects is not None and definition(step) != definition(track.step):
                for effects in (track.effects, *track.earlier):
                    effects.redefined = True
            track.step, track.template = step, None
            state.unshow(track)
            track.order = (-step.priority, track.n)
        changed.append(track)
        if step.confirm or step.effect is Effect.ONCE:
            _guard(state, step)
        if step.stage:
            state.staged = True
        if step.produces:
            state.filed = True
    state.names = Names(state.tracks, max(state.names.longest, max((len(step.id) for step in steps), default=0)))
    for track in changed:
        _link(state, track)
    for track in changed:
        state.refresh(track)
    return changed


def _guard(state: State, step: Step) -> None:
    """Remember which tools are gated, and which are `once`."""
    tools = (step.tool, *step.alternatives, *([step.fallback.tool] if step.fallback and step.fallback.tool else ()))
    if step.confirm:
        state.gated.update((tool, step.confirm) for tool in tools if tool not in state.gated)
    if step.effect is Effect.ONCE:
        state.once.tools.update(tools)


def _link(state: State, track: Track) -> None:
    track.open = track.dead = track.dead_open = track.void = 0
    if track.step.args:
        state.template(track)  # parsed now: an id added later must not change the meaning of a reference
    needs = []
    for need in full_needs(track.step, state.names):
        other = state.tracks[need.step]
        needs.append(edge(other, need.when))
        if isinstance(other.out, list):
            other.out.append(edge(track, need.when))
        else:
            other.out = [edge(track, need.when)]
        worth = state.worth(track, other, need.when) if state.finals else WORTH[need.when][other.standing]
        count(track, worth, 1)
    track.needs = tuple(needs)


def _unlink(track: Track) -> None:
    for need, _ in track.needs:
        need.out = [edge for edge in need.out if edge[0] is not track]
    track.needs = ()


def recount(state: State) -> None:
    """Count the needs of the steps that run at the end anew: their time has come, or is over."""
    finals = [state.tracks[step_id] for step_id in state.finals if step_id in state.tracks]
    for track in finals:
        track.open = track.dead = track.dead_open = track.void = 0
        for need, when in track.needs:
            count(track, state.worth(track, need, when), 1)
    for track in finals:
        state.refresh(track)


def drop(state: State, ids: Iterable[str]) -> None:
    """Remove steps from the plan; the plan check made sure that no remaining step needs them."""
    for step_id in ids:
        track = state.tracks.pop(step_id, None)
        if track is not None:
            state.retired[step_id], state.dropped[step_id] = track.attempt, track.step
            if track.step.critical and track.phase is not SUCCEEDED and not track.again:
                state.forgone[step_id] = None
            _unlink(track)
            state.move(track, Phase.FAILED)  # out of every index, and out of the graph
            state.unsettled.pop(step_id, None)
            track.out = ()


def renumber(state: State, order: Iterable[str]) -> None:
    """Put the steps into the order of a new plan; O(steps)."""
    old = list(state.tracks.values())
    tracks = [state.tracks[step_id] for step_id in dict.fromkeys(order) if step_id in state.tracks]
    tracks += [track for track in old if track.id not in set(order)]
    members = [[index.get(track.n) is track for track in tracks] for index in state.indexes()]
    waits = {n: until for until, n, _ in state.timers}
    state.ready, state.timers = Ready(), []
    for n, track in enumerate(tracks):
        until = waits.get(track.n)
        track.n, track.order = n, (-track.step.priority, n)
        if until is not None:
            heapq.heappush(state.timers, (until, n, track.attempt))
        if track.place is READY:
            state.ready.add(track, state.queue_of(track))
    for index, inside in zip(state.indexes(), members, strict=True):
        index.clear()
        index.update((track.n, track) for track, member in zip(tracks, inside, strict=True) if member)
    state.tracks = {track.id: track for track in tracks}
    state.next_number = len(tracks)
    state.names = Names(state.tracks, state.names.longest)


def edge(track: Track, when: When) -> tuple[Track, When]:
    """Return one end of an edge; plain edges share one tuple: plans are large, and the GC walks tuples."""
    if when is not When.SUCCESS:
        return (track, when)
    if track.edge is None:
        track.edge = (track, when)
    return track.edge


# -- Reachability -------------------------------------------------------------------------------------------------


def downstream(state: State, roots: Iterable[str]) -> list[Track]:
    """Return the roots and all their dependents, near or far, in plan order: the retry chain (R1)."""
    stack = [state.tracks[step_id] for step_id in roots]
    seen = {track.n: track for track in stack}
    while stack:
        for target, _ in stack.pop().out:
            if target.n not in seen:
                seen[target.n] = target
                stack.append(target)
    return [seen[n] for n in sorted(seen)]


def unsatisfied_above(state: State, roots: Iterable[str]) -> list[str]:
    """Return the roots' needs, near or far, that are not satisfied now and so must run too (R1)."""
    stack = [state.tracks[step_id] for step_id in roots]
    seen = {track.n for track in stack}
    found = []
    while stack:
        for need, when in stack.pop().needs:
            if need.n not in seen and WORTH[when][need.standing] not in (MET, VOID):
                seen.add(need.n)
                found.append(need.id)
                stack.append(need)
    return found


# -- Changes of course ------------------------------------------------------------------------------------------------


def redirect(state: State, course: Course, *, new_round: bool = False) -> None:
    """Follow a change of course: take the new plan, and redo its steps and their dependents.

    The walk stops where there is nothing to reset, so a plain retry costs O(out-degree). That is safe: everything
    downstream of a step without a good result is already pending, or marked to be redone.
    """
    if course.dropped:
        drop(state, course.dropped)
    if course.steps:
        state.revision += 1  # for every author of a plan change: a mind or a user, on a run live or at rest
    changed = define(state, course.steps) if course.steps else []
    for step in course.steps:
        state.forgone.pop(step.id, None)
    for track in define(state, course.done) if course.done else ():
        track.stale = "once"
    if course.order:
        renumber(state, course.order)
    for step_id in course.fresh:
        if step_id in state.tracks:
            state.tracks[step_id].generation += 1
            state.settle_effect(state.tracks[step_id], None)
    roots = dict.fromkeys([*course.touched, *(track.id for track in changed)])
    touched = [state.tracks[step_id] for step_id in roots if step_id in state.tracks]
    below = [state.tracks[step_id] for step_id in course.below if step_id in state.tracks]
    # Found before any reset: the old standing of a step decides which dependents may have run.
    behind = _behind(state, [*touched, *below], course.automatic)
    for track in touched:
        _reset(state, track, root=True, automatic=course.automatic, new_round=new_round)
    for track in behind:
        _reset(state, track, root=False, automatic=course.automatic, new_round=new_round)


def _behind(state: State, stack: list[Track], automatic: bool) -> list[Track]:
    """Return the dependents of these steps that have something to reset."""
    found: list[Track] = []
    seen = {track.n for track in stack}
    while stack:
        for target, _ in stack.pop().out:
            if target.n in seen:
                continue
            reset = _resettable(target, automatic)
            # A skipped step has nothing to reset, but a step that needed it `done` may have run.
            if reset or (target.phase is PENDING and target.standing is not UNDECIDED):
                seen.add(target.n)
                stack.append(target)
                if reset:
                    found.append(target)
    return found


def _resettable(track: Track, automatic: bool) -> bool:
    if track.effects is not None and track.effects.lost:
        # Only a user's answer, or a look, moves a step in doubt (E3).
        return track.phase in (RUNNING, Phase.BACKOFF, Phase.HURT, Phase.HELD, Phase.DOUBT)
    if track.phase is PENDING:
        return track.result is not None and not track.again
    if track.phase is SKIPPED:
        # Accepted skips stay, except that a user's retry gives optional steps another chance.
        return not automatic and track.skip is not None and track.skip.code == "SKIP_OPTIONAL"
    return True


def _reset(state: State, track: Track, *, root: bool, automatic: bool, new_round: bool) -> None:
    lost = track.effects is not None and track.effects.lost
    if (track.phase in (RUNNING, Phase.DOUBT) or lost) and not root:
        track.redo, track.automatic = True, automatic  # it ends first, and is then checked against the new inputs
        return
    if automatic and (track.phase is Phase.DOUBT or lost):
        return  # nothing automatic repeats an effect that may exist
    if automatic and track.phase is SKIPPED and track.skip is not None and track.skip.code == "SKIP_USER":
        return  # a user skipped the step; a mind's new plan leaves that as it is
    done_once = track.result is not None and track.result.effect is Effect.ONCE and track.phase is not Phase.FAILED
    waits = automatic and track.phase is Phase.BACKOFF and track.heal is not None and track.heal.wished
    track.again = track.result is not None
    track.root = track.root or (root and not (automatic and done_once))
    track.automatic = automatic
    track.redo = False
    track.stale = ""
    track.skip = None
    track.question = ""
    track.announced = ""
    state.unshow(track)
    if root and not automatic and track.error is not None and track.error.code == "ONCE_REPEATED":
        track.wanted = True
    if new_round:
        track.heal, track.calls = None, 0
    if not (waits and waits == state.tool_of(track)):  # a tool that asked for a pause gets it, whatever else changes
        state.move(track, PENDING)
