"""What must hold of any history, checked against naive definitions that know nothing of the indexes."""

from __future__ import annotations

from collections import Counter
from typing import Any

from rerail.core import events as ev
from rerail.core.fold import evolve, fold
from rerail.core.plan import Effect, When
from rerail.core.policy import Policy, Rung
from rerail.core.state import State
from rerail.core.track import MET, WORTH, Phase, Standing, Track, same_inputs
from rerail.core.verdict import statistics, status_of, verdict


def snapshot(state: State) -> dict[str, Any]:
    """A state as plain data, so that two can be compared."""
    tracks = {
        track.id: (
            track.phase, track.standing, track.attempt, track.calls, track.again, track.root, track.stale,
            track.confirmed, track.open, track.dead, track.dead_open, track.void, track.generation,
            track.result and (track.result.digest, track.result.degraded, track.result.hole),
            track.error, status_of(state, track),
        )
        for track in state.tracks.values()
    }  # fmt: skip
    indexes = {
        "ready": sorted(state.ready.members), "keepers": sorted(state.keepers), "gates": sorted(state.gates),
        "running": sorted(state.running), "backoff": sorted(state.backoff), "hurt": sorted(state.hurt),
        "held": sorted(state.held), "doubts": sorted(state.doubts), "announce": sorted(state.announce),
        "by_tool": {name: count for name, count in state.by_tool.items() if count},
    }  # fmt: skip
    run = (state.round, state.automatic_rounds, state.retries, state.calls, state.stopped, state.paused, state.waiting)
    return {"tracks": tracks, "indexes": indexes, "run": run, "row": list(state.row)}


def naive_standing(state: State, track: Track, settled: dict[str, Standing]) -> Standing:
    """What a step is to those that need it, straight from the rules."""
    if track.phase in (Phase.SUCCEEDED, Phase.SKIPPED):
        return Standing.OK
    if track.phase is Phase.FAILED:
        return track.standing  # when it failed decides whether a round may follow; counted once, there
    if track.phase is not Phase.PENDING:
        return Standing.OPEN
    worth = [WORTH[when][settled[need.id]] for need, when in track.needs]
    if 2 in worth or 3 in worth:
        return Standing.BLOCKED_OPEN if 3 in worth else Standing.BLOCKED
    if 4 in worth and 0 not in worth and not track.again:
        return Standing.VOID
    return Standing.OPEN


def check_indexes(state: State) -> None:
    """The indexes equal their naive definitions."""
    settled: dict[str, Standing] = {}
    left = dict(state.tracks)
    while left:
        for step_id in [s for s, t in left.items() if all(need.id in settled for need, _ in t.needs)]:
            settled[step_id] = naive_standing(state, left.pop(step_id), settled)
    for track in state.tracks.values():
        assert track.standing is settled[track.id], (track, settled[track.id])
        worth = [WORTH[when][need.standing] for need, when in track.needs]
        counts = (worth.count(0), worth.count(2) + worth.count(3), worth.count(3), worth.count(4))
        assert (track.open, track.dead, track.dead_open, track.void) == counts, track
        can = track.phase is Phase.PENDING and all(w == MET or (w == 4 and track.again) for w in worth)
        keep = can and track.again and not track.root
        gate = can and not keep and bool(track.step.confirm) and not track.confirmed
        assert (track in state.ready) == (can and not keep and not gate), track
        assert (track.n in state.keepers) == keep, track
        assert (track.n in state.gates) == gate, track
        for phase, index in (
            (Phase.RUNNING, state.running), (Phase.BACKOFF, state.backoff), (Phase.HURT, state.hurt),
            (Phase.HELD, state.held), (Phase.DOUBT, state.doubts),
        ):  # fmt: skip
            assert (track.n in index) == (track.phase is phase), (track, phase)


def check_history(records: list[ev.Record], policy: Policy, *, people: bool = False) -> State:
    """Every law that can be read off a history; returns its state."""
    state = State(records[0].run)
    attempts: set[tuple[str, int]] = set()
    calls: Counter[tuple[str, int]] = Counter()
    for record in records:
        event = record.event
        if isinstance(event, ev.StepStarted):
            _check_start(state, event, attempts)
            if event.rung is not Rung.FALLBACK:
                calls[event.step, state.round] += 1
        elif isinstance(event, ev.RetryScheduled) and event.not_now:
            last = state.tracks[event.step].call
            calls[event.step, state.round] -= 1 if last is not None and last.rung is not Rung.FALLBACK else 0
        elif isinstance(event, ev.Done):
            assert not (state.running or state.hurt or state.backoff or state.held or state.announce), (
                "nothing is under way"
            )
            assert state.stopped or not (state.ready or state.keepers), (
                "what could start was started, or the run stopped"
            )
        evolve(state, event, record.at, record.seq)
        check_indexes(state)
    _check_budgets(state, calls, policy, people=people)
    return state


def _check_start(state: State, event: ev.StepStarted, attempts: set[tuple[str, int]]) -> None:
    track = state.tracks[event.step]
    assert track.phase in (Phase.PENDING, Phase.BACKOFF), "a step starts only from rest"
    for need, when in track.needs:
        assert WORTH[when][need.standing] == MET or track.again, "no step starts before its needs are met"
    assert (event.step, event.attempt) not in attempts, "an attempt number is never used twice"
    attempts.add((event.step, event.attempt))
    assert state.rest is None and not state.stopped and not state.paused, "nothing starts once the run is stopped"
    if state.policy.concurrency:
        assert len(state.running) < state.policy.concurrency, "concurrency is bounded"


def _check_budgets(state: State, calls: Counter[tuple[str, int]], policy: Policy, *, people: bool) -> None:
    if people:
        return  # a person's retry of a step opens a fresh budget inside a round
    for (step, _), count in calls.items():
        own = state.tracks[step].step.retries
        assert count <= 1 + (policy.max_step_retries if own is None else own), "no budget is overspent"
    assert state.automatic_rounds <= policy.max_retry_rounds


def check_rest(state: State, records: list[ev.Record]) -> None:
    """What must hold once a run is at rest."""
    last = records[-1].event
    assert isinstance(last, ev.Done) and state.rest is last, "exactly one done is the last event"
    found = verdict(state)
    assert (last.success, last.degraded) == (found.success, found.degraded)
    recomputed = statistics(fold(state.run, records), found, state.at)
    assert {k: v for k, v in last.exec.items() if k != "seconds"} == {
        k: v for k, v in recomputed.items() if k != "seconds"
    }
    for track in state.tracks.values():
        status, _ = status_of(state, track)
        assert status in ("succeeded", "degraded", "failed", "skipped", "in_doubt", "cancelled"), (track, status)
        _check_made_from(state, track)


def _check_made_from(state: State, track: Track) -> None:
    """A result never outlives what it was made from, unless it says that it is stale."""
    if track.phase is not Phase.SUCCEEDED or track.result is None or track.stale or track.result.by:
        return
    if any(when is When.FAILURE for _, when in track.needs):
        return  # a clean-up step that ran keeps its result when its need is mended later
    for need, when in track.needs:
        if when is When.SUCCESS:
            assert need.phase in (Phase.SUCCEEDED, Phase.SKIPPED), (track, need)
    assert same_inputs(state.inputs(track), track.result.inputs), track


def once_repeats(records: list[ev.Record], state: State) -> list[str]:
    """`once` steps that were called again although an earlier call may have had its effect, unasked."""
    called: dict[str, ev.StepStarted] = {}
    ended: set[str] = set()
    asked = False
    bad = []
    for record in records:
        event = record.event
        if isinstance(event, ev.StepStarted):
            before = called.get(event.step)
            if (
                before is not None
                and before.effect is Effect.ONCE
                and event.effect is Effect.ONCE
                and event.step not in ended
            ):
                bad.append(event.step)
            called[event.step] = event
            ended.discard(event.step)
        elif isinstance(event, ev.StepFailed) and not event.lost:
            ended.add(event.step)  # an explicit failure: it is known to have failed
        elif isinstance(event, ev.RetryBegin) and not event.automatic:
            ended |= set(called)  # a person asked for it
        elif isinstance(event, ev.Acted):
            ended |= {event.step, *event.course.touched}
            asked = asked or (bool(event.course.touched) and not event.course.automatic)
        elif isinstance(event, ev.StepRenewed) and asked:
            ended.add(event.step)  # behind a step that a person retried, with inputs that changed
    return bad
