"""The retry command: the steps that run again, with effects, files and cost (contract R1, R7, T3-T5)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from rerail.codes import Category
from rerail.i18n import about, one_by_one, tell
from rerail.kernel import events as ev
from rerail.kernel.actions import (
    Refusal,
    at_rest_hint,
    goes_on_here,
    is_doubtful,
    not_at_rest,
    refuse_cleaning,
    refuse_doubt,
    track_named,
)
from rerail.kernel.actor import NO_ACTOR, Actor
from rerail.kernel.decide import clean_up_steps, reasons_of, retry_chain
from rerail.kernel.events import Course, Event
from rerail.kernel.plan_graph import unsatisfied_above
from rerail.kernel.policy import Policy
from rerail.kernel.stages import kept_files, resume_stage
from rerail.kernel.state import State
from rerail.kernel.step_state import Phase, RunStatus, Status, Track
from rerail.kernel.verdict import ENDED_WELL, run_status, stale_of, status_of, waiting_on
from rerail.plan.step import Effect
from rerail.values.names import nearest


@dataclass(frozen=True, slots=True)
class Preview:
    """The consequences of a retry, or of another action, before anything runs (R7)."""

    roots: tuple[str, ...]
    rerun: tuple[dict[str, str], ...]  # step and reason
    kept: tuple[str, ...]
    once: tuple[str, ...]  # effects that would be repeated
    estimate: dict[str, float]
    events: tuple[Event, ...] = field(default=(), compare=False, repr=False)
    passed: tuple[str, ...] = ()  # checks that force overrode
    stage: str = ""  # the stage where it resumes, if the plan has stages
    files: tuple[str, ...] = ()  # files that are kept, and read there
    damaged: Mapping[str, str] = field(default_factory=dict)  # files that cannot be kept, and why
    backup: str = ""  # where everything was saved before the run started over
    mending: bool = False  # done for a follow-up: the retry of that one was requested
    backs_up: tuple[str, ...] = ()  # files that are copied to a backup and removed before the run starts over
    asks: tuple[str, ...] = ()  # steps that need a new approval
    edited: tuple[str, ...] = ()  # files that a user wrote and steps would overwrite
    once_if: tuple[str, ...] = ()  # effects that would be repeated only if their inputs change
    becomes: Mapping[str, str] = field(default_factory=dict)  # steps that would end at once, and how
    leads_to: str = ""  # the resulting run status, if known

    def to_dict(self) -> dict[str, Any]:
        """Return the preview as plain data."""
        return {
            "roots": list(self.roots), "rerun": [dict(row) for row in self.rerun], "kept": list(self.kept),
            "once": list(self.once), "once_if": list(self.once_if), "estimate": dict(self.estimate),
            "passed": list(self.passed), "stage": self.stage or None, "files": list(self.files),
            "damaged": dict(self.damaged), "backup": self.backup or None, "backs_up": list(self.backs_up),
            "asks": list(self.asks), "edited": list(self.edited), "becomes": dict(self.becomes),
            "leads_to": self.leads_to or None,
        }  # fmt: skip


def retry(
    state: State,
    by: str,
    *,
    steps: Sequence[str] | None = None,
    stage: str | None = None,
    clean: bool = False,
    force: bool = False,
    policy: Policy | None = None,
    stale: Sequence[str] = (),
    fingerprints: dict[str, str] | None = None,
    damage: Sequence[FileDamage] = (),
    backup: str = "",
    mending: bool = False,
    actor: Actor = NO_ACTOR,
) -> Preview:
    """Retry exactly what failed and its dependents; the preview carries the events for it.

    ``damage`` are the files that cannot be kept: their steps, and the dependents of these, are redone (T3).
    ``mending``: only these files are redone, in a completed run, because a following run needs them.
    """
    goes_on_here(state)
    _refuse_by_status(state, steps, clean=clean, force=force or mending)
    spoils = bool(damage)  # then there is work, in any status
    roots = _roots(state, steps, stage, clean=clean, force=force, stale=stale, spoils=spoils) if not mending else []
    spoilt = [] if clean else _spoilt(state, roots, damage, force=force)
    roots += spoilt
    if not clean:
        _refuse_doubtful(state, roots)
    completed = state.rest is not None and state.rest.status == RunStatus.COMPLETED
    cancelled = state.rest is not None and state.rest.status == RunStatus.CANCELLED
    completed = completed and not mending  # the following run failed, and that one is retried
    counted = not (clean or completed or cancelled)
    passed = _checks_passed(state, roots, (policy or state.policy).max_retries, force=force) if counted else []
    again = [root for root in roots if state.tracks[root].phase is Phase.SUCCEEDED]
    fresh = tuple(state.tracks) if clean else tuple(again)
    lost = {} if clean else {item.path: item.reason[:500] for item in damage}
    chain = retry_chain(state, roots)
    begin = ev.RetryBegin(
        state.round + 1, by, tuple(roots), chain, len(chain), reasons_of(state, roots), automatic=False,
        course=Course((*roots, *_needed(state, roots)), automatic=False, fresh=fresh),
        operation="clean" if clean else "retry", previous_status=str(run_status(state)),
        counted=counted, reset_count=clean or cancelled, policy=policy,
        fingerprints=fingerprints, stale=tuple(name for name in stale if name not in roots), damaged=lost,
        backup=backup, via=actor.via, proof=actor.proof,
    )  # fmt: skip
    found = _preview(state, roots, chain, (begin,), tuple(passed), damage)
    files = () if clean else tuple(kept_files(state, chain))
    stage = resume_stage(state, chain)
    asks = tuple(track.id for track in state.tracks.values() if track.step.confirm) if clean else ()
    return replace(found, stage=stage, files=files, damaged=lost, backup=backup, mending=mending, asks=asks)


def _checks_passed(state: State, roots: list[str], max_retries: int, *, force: bool) -> list[str]:
    """Return the checks that only `--force` passes; `Refusal` without it."""
    failed: list[tuple[str, str, str]] = []
    if state.retries >= max_retries:
        told = tell("refuse.run.retry_limit", run=state.run, retries=state.retries, max_retries=max_retries)
        failed.append(("RETRY_LIMIT", told, tell("hint.run.retry_limit", run=state.run)))
    if _all_permanent(state, roots):
        told = tell("refuse.run.not_retryable", reason=one_by_one(reasons_of(state, roots).values()))
        failed.append(("NOT_RETRYABLE", told, tell("hint.run.not_retryable")))
    if failed and not force:
        raise Refusal(*failed[0])
    return [code for code, _, _ in failed]


@dataclass(frozen=True, slots=True)
class FileDamage:
    """A file that cannot be kept: its step, and what is wrong."""

    step: str
    path: str
    reason: str


def _spoilt(state: State, roots: Sequence[str], damage: Sequence[FileDamage], *, force: bool) -> list[str]:
    """Return the steps with files that cannot be kept; a `once` step needs an explicit request."""
    found = []
    for item in damage:
        track = state.tracks.get(item.step)
        if track is None or item.step in roots or item.step in found:
            continue
        once = track.result is not None and track.result.effect is Effect.ONCE
        if once and not force:
            message = tell("refuse.run.file_of_once", path=item.path, reason=item.reason, step=item.step)
            raise Refusal("FILE_DAMAGED", message, tell("hint.run.file_of_once", run=state.run))
        found.append(item.step)
    return found


def _needed(state: State, roots: list[str]) -> list[str]:
    """Return failed steps upstream of the roots that must run too; skipped and pending ones follow by themselves."""
    above = unsatisfied_above(state, roots)
    return [step_id for step_id in above if state.tracks[step_id].phase in (Phase.FAILED, Phase.SKIPPED)]


def _refuse_by_status(state: State, steps: Sequence[str] | None, *, clean: bool, force: bool) -> None:
    run = state.run
    if state.rest is not None:
        if state.rest.status == RunStatus.COMPLETED and not (force or clean):
            raise Refusal("RUN_COMPLETED", tell("refuse.run.run_completed", run=run), at_rest_hint(state))
        if not clean:
            for track in state.doubts.values():
                if not _is_looked_for(state, track):
                    refuse_doubt(state, track.id)
        return
    on = waiting_on(state)
    kinds = {item["for"] for item in on} if state.waiting else set()
    if clean:
        return
    if "in_doubt" in kinds:
        refuse_doubt(state)
    if "confirm" in kinds and not steps:
        hint = tell("hint.run.run_waits_confirm", run=run)
        raise Refusal("RUN_WAITS_CONFIRM", tell("refuse.run.run_waits_confirm", run=run), hint)
    if "paused" in kinds and not steps:
        raise Refusal("RUN_PAUSED", tell("refuse.run.run_is_paused", run=run), tell("hint.run.run_paused", run=run))


def _is_looked_for(state: State, track: Track) -> bool:
    """True if a retry first looks for the effect of a step in doubt: a cancel or a crash came before its look (V8)."""
    over = state.rest is not None and state.rest.status != RunStatus.CANCELLED
    return not over and track.phase is Phase.DOUBT and track.question == "verify"


def _roots(
    state: State,
    steps: Sequence[str] | None,
    stage: str | None,
    *,
    clean: bool,
    force: bool,
    stale: Sequence[str],
    spoils: bool,
) -> list[str]:
    if [clean, stage is not None, bool(steps)].count(True) > 1:
        # Each candidate names another retry set; the intended one is unknown.
        raise Refusal("USAGE", tell("refuse.run.retry_unclear"), tell("hint.run.retry_unclear", run=state.run))
    if clean:
        return list(state.tracks)
    if stage is not None:
        roots = _stage_roots(state, stage)
        for root in roots if not force else ():
            track = state.tracks[root]
            if track.phase is Phase.SUCCEEDED and track.result is not None and track.result.effect is Effect.ONCE:
                told = tell("refuse.run.step_succeeded", step=root)
                raise Refusal("STEP_SUCCEEDED", told, tell("hint.run.step_succeeded"))
        return roots
    if steps:
        return _named_roots(state, steps, force=force)
    known = {track.id for track in state.tracks.values() if track.stale == "definition changed"}
    changed = {*stale, *known} if force else set()
    roots = [track.id for track in state.tracks.values() if _is_root(state, track) or track.id in changed]
    if roots or state.rest is None or state.rest.status != RunStatus.COMPLETED:
        if not roots and not spoils:
            for track in (*state.doubts.values(), *(state.unsettled.values() if state.rest is not None else ())):
                if not _is_looked_for(state, track):
                    refuse_doubt(state, track.id)
            looked_for = any(_is_looked_for(state, track) for track in state.doubts.values())
            if looked_for or (state.rest is not None and state.rest.status == RunStatus.CANCELLED):
                return []  # every step was done or called at the end: only looks remain
            raise Refusal("NOTHING_TO_RETRY", tell("refuse.run.nothing_failed", run=state.run))
        return roots
    return _completed_roots(state)


def _is_root(state: State, track: Track) -> bool:
    """True if the step failed by itself, or never ran because the run stopped or its process died."""
    status = status_of(state, track)[0]
    if track.id in state.unsettled or (track.id in state.finals and state.rest is None):
        return False  # a doubt is settled first; the clean-up comes at the end by itself
    if track.phase is Phase.FAILED or status is Status.CANCELLED:
        return True
    under_way = (Phase.HURT, Phase.BACKOFF, Phase.HELD)
    return state.rest is None and (track.phase in under_way or status in (Status.PENDING, Status.READY))


def _completed_roots(state: State) -> list[str]:
    """Return the roots of a forced retry of a completed run: degraded and skipped steps, else the last stage (T5)."""
    holes = [
        track.id
        for track in state.tracks.values()
        if track.id not in state.unsettled
        and (track.phase is Phase.SKIPPED or status_of(state, track)[0] is Status.DEGRADED or stale_of(state, track))
    ]
    if holes:
        return holes
    stages = [track.step.stage for track in state.tracks.values() if track.step.stage]
    if stages:
        return _stage_roots(state, stages[-1])
    if state.unsettled:
        refuse_doubt(state)
    told = tell("refuse.run.nothing_to_retry", run=state.run)
    raise Refusal("NOTHING_TO_RETRY", told, tell("hint.run.nothing_to_retry"))


def _stage_roots(state: State, stage: str) -> list[str]:
    roots = [track.id for track in state.tracks.values() if track.step.stage == stage]
    if not roots:
        stages = list(dict.fromkeys(track.step.stage for track in state.tracks.values() if track.step.stage))
        near = nearest(stage, stages)
        hint = tell("hint.run.did_you_mean", near=near) if near else ""
        told = tell("refuse.run.stage_unknown", run=state.run, stage=stage, stages=", ".join(stages) or "-")
        raise Refusal("STAGE_UNKNOWN", told, hint)
    return roots


def _named_roots(state: State, steps: Sequence[str], *, force: bool) -> list[str]:
    roots = []
    for step in dict.fromkeys(steps):
        track = track_named(state, step)
        if status_of(state, track)[0] in ENDED_WELL and not force:  # a stale result is one too
            why = tell("refuse.run.step_succeeded", step=step)
            raise Refusal("STEP_SUCCEEDED", why, tell("hint.run.step_succeeded"))
        if track.phase is Phase.RUNNING:
            raise Refusal("STEP_NOT_WAITING", tell("refuse.run.step_running", step=step))
        roots.append(step)
    return roots


def _all_permanent(state: State, roots: list[str]) -> bool:
    tracks = [state.tracks[root] for root in roots]
    return bool(tracks) and all(
        track.phase is Phase.FAILED and track.category is Category.PERMANENT for track in tracks
    )


def _refuse_doubtful(state: State, roots: Sequence[str]) -> None:
    """Refuse to call a step in doubt again, forced or not: a user answers first, or a look that is to come (T5)."""
    above = [name for name in unsatisfied_above(state, roots) if not _is_looked_for(state, state.tracks[name])]
    for step_id in (*roots, *above):
        if is_doubtful(state, state.tracks[step_id]):
            refuse_doubt(state, step_id)


def retry_live(state: State, steps: Sequence[str], by: str, *, force: bool = False) -> list[Event]:
    """Retry named steps of a live run; a step in backoff ends its wait (X7)."""
    not_at_rest(state)
    refuse_cleaning(state)
    if state.stopped:
        told = tell("refuse.run.stopping", run=state.run, stopped=state.stopped)
        raise Refusal("RUN_LIVE", told, tell("hint.run.stopping"))
    roots = _named_roots(state, steps, force=force)
    _refuse_doubtful(state, roots)
    fresh = tuple(root for root in roots if force and state.tracks[root].phase is Phase.SUCCEEDED)
    course = Course((*roots, *_needed(state, roots)), automatic=False, fresh=fresh)
    return [ev.Acted("retry", by, roots[0] if len(roots) == 1 else "", course=course)]


def _preview(
    state: State,
    roots: list[str],
    chain: tuple[str, ...],
    events: tuple[Event, ...],
    passed: tuple[str, ...],
    damage: Sequence[FileDamage] = (),
) -> Preview:
    rerun = []
    looked_for = [track.id for track in state.doubts.values() if _is_looked_for(state, track)]
    chain = (*chain, *(step_id for step_id in looked_for if step_id not in chain))
    last = clean_up_steps(state) if chain else []  # without a call there is nothing to clean up
    chain = (*chain, *(step_id for step_id in last if step_id not in chain))
    spoilt = {item.step: about(item.path, item.reason) for item in reversed(damage)}
    named = set(roots)
    for step_id in chain:
        track = state.tracks[step_id]
        if step_id in looked_for:
            why: str = tell("reason.looked_for")
        elif track.error is not None and (step_id in named or track.result is None):
            why = track.error.told
        elif step_id in named and (step_id in spoilt or track.result is not None):
            why = spoilt.get(step_id) or tell("reason.asked_for")
        elif step_id in last:
            why = tell("reason.cleans_up")
        elif track.result is not None:
            why = tell("reason.if_inputs_change")
        else:
            why = tell("reason.has_not_run")
        rerun.append({"step": step_id, "why": why})
    inside = set(chain)
    once, once_if = repeated(state, chain, {*roots, *_needed(state, roots), *last})
    once, once_if = tuple(one for one in once if one not in looked_for), (*once_if, *looked_for)
    kept = tuple(step_id for step_id in state.tracks if step_id not in inside)
    edited = edited_files(state, chain)
    return Preview(
        tuple(roots), tuple(rerun), kept, once, estimated(state, chain), events, passed, edited=edited, once_if=once_if
    )


def acted_once(state: State) -> dict[str, None]:
    """Return the steps that had, or may have had, an effect that must not be repeated; an explicit failure is none."""
    return dict.fromkeys(step for steps in state.once.made.values() for step in steps)


def repeated(state: State, chain: Sequence[str], asked: Collection[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the effects that these steps would repeat for sure, and those only if their inputs change."""
    acted = acted_once(state)
    both = [step for step in chain if step in acted]
    sure = tuple(step for step in both if step in asked or state.tracks[step].result is None)
    return sure, tuple(step for step in both if step not in sure)


def edited_files(state: State, chain: Sequence[str]) -> tuple[str, ...]:
    """Return the files of these steps that a user wrote."""
    made = [result for step_id in chain if (result := state.tracks[step_id].result) is not None]
    return tuple(path for result in made for path in result.edited)


def estimated(state: State, chain: Sequence[str]) -> dict[str, float]:
    """Return the duration and cost of these steps, from their last results; ``unknown`` of them never ran."""
    tracks = [state.tracks[step_id] for step_id in chain]
    return {
        "seconds": _longest(state, set(chain)), "tool_seconds": sum(track.elapsed for track in tracks),
        "cost": sum(track.cost for track in tracks), "unknown": sum(track.call is None for track in tracks),
    }  # fmt: skip


def _longest(state: State, chain: set[str]) -> float:
    """Return the critical path through the chain, by each step's last duration."""
    finish: dict[str, float] = {}
    for track in topological(state):
        if track.id in chain:
            start = max((finish.get(need.id, 0.0) for need, _ in track.needs), default=0.0)
            finish[track.id] = start + track.elapsed
    return max(finish.values(), default=0.0)


def topological(state: State) -> list[Track]:
    """Return the steps in an order in which each comes after its needs."""
    missing = {track.n: len(track.needs) for track in state.tracks.values()}
    order = [track for track in state.tracks.values() if not track.needs]
    for track in order:
        for target, _ in track.out:
            missing[target.n] -= 1
            if not missing[target.n]:
                order.append(target)
    return order
