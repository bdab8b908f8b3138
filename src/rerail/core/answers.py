"""Answers to questions, checked before they are believed (SPEC H5, H7, H8, V3-V5, R5).

Rules of this file:
- An answer becomes an event or a refusal, whoever gave it: a person, a rule, a script, a model.
- A question carries the place at which it was asked; an answer to a state that has moved on changes nothing.
- Nothing fails open: what cannot be read is declined, and the computed verdict stands.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rerail.core import events as ev
from rerail.core.dialects import Unreadable, read_plan, read_steps
from rerail.core.events import Course, Event
from rerail.core.plan import Effect, Fault, Plan, Step, check_steps, definition
from rerail.core.policy import Rung
from rerail.core.state import State
from rerail.core.tools import Tools
from rerail.core.track import Phase, Status, Track
from rerail.core.verdict import ENDED_WELL, evaluation, status_of, summary, verdict


def read_repair(state: State, tools: Tools, step: str, attempt: int, answer: Any, by: str) -> Event:
    """A repaired step: same id, new tool, args or needs, with a reason (H7)."""
    track = state.tracks.get(step)
    if track is None or track.phase is not Phase.HELD or track.question != "repair" or track.attempt != attempt:
        return ev.Declined("repair", step, "the run has moved on", late=True)
    if answer is None:
        return ev.Declined("repair", step, "no repair was offered")
    faults: list[Fault] = []
    repaired = _one_step(answer, track, faults)
    if repaired is None:
        return ev.Declined("repair", step, "; ".join(map(str, faults)) or "the answer is no step")
    if repaired.id != step:
        faults.append(Fault("BAD_VALUE", f"a repair keeps the id; got {repaired.id!r}", step))
    if definition(repaired) == definition(track.step):
        faults.append(Fault("BAD_VALUE", "the repaired step is the failed one, unchanged", step))
    others = [repaired if other.id == step else other.step for other in state.tracks.values()]
    faults += check_steps(others, tools)
    if faults:
        return ev.PlanRejected(by, tuple(map(str, faults)), "the repair does not make a valid plan", "repair", step)
    reason = str(answer.get("reason", "")) if isinstance(answer, Mapping) else ""
    return ev.Recovered(
        step, attempt, Rung.REPAIR, reason or "repaired", tool=repaired.tool, args=dict(repaired.args),
        course=Course((step,), (repaired,)), by=by,
    )  # fmt: skip


def _one_step(answer: Any, track: Track, faults: list[Fault]) -> Step | None:
    """The step an answer gives: whole, or only what changes."""
    if isinstance(answer, Step):
        return answer
    if not isinstance(answer, Mapping):
        return None
    given = answer.get("step", answer)
    if isinstance(given, Step):
        return given
    if not isinstance(given, Mapping):
        return None
    data = {key: value for key, value in given.items() if key != "reason"}
    read = read_steps([{"id": track.id, "tool": track.step.tool, **data}], faults, known=())
    if faults or not read:
        return None
    old, new = track.step, read[0]
    changes = {name: getattr(new, name) for name in new.__struct_fields__ if name in data}
    return _replaced(old, changes) if new.id == old.id else new


def _replaced(step: Step, changes: Mapping[str, Any]) -> Step:
    fields = {name: getattr(step, name) for name in step.__struct_fields__}
    return Step(**{**fields, **changes})


def read_replan(state: State, tools: Tools, answer: Any, by: str, asked: int) -> Event:
    """A new revision of the plan: finished work whose definition is unchanged is carried over (H8)."""
    if not state.replan_wanted or state.acted_at > asked:
        return ev.Declined("replan", "", "the run has moved on", late=True)
    if answer is None:
        return ev.Declined("replan", "", "no new plan was offered")
    reason = str(answer.get("reason", "")) if isinstance(answer, Mapping) else ""
    try:
        plan = answer if isinstance(answer, Plan) else read_plan(_plan_part(answer))
    except Unreadable as error:
        return ev.Declined("replan", "", str(error))
    faults = [*plan.faults, *check_steps(plan.steps, tools)]
    if not plan.steps:
        faults.append(Fault("NO_STEPS", "the new plan has no steps"))
    if faults:
        return ev.PlanRejected(by, tuple(map(str, faults)), "the new plan is not valid", "replan")
    doubtful = _disturbed_doubts(state, plan)
    if doubtful:
        faults_said = tuple(f"step {name!r} is in doubt; it can be neither changed nor dropped" for name in doubtful)
        return ev.PlanRejected(by, faults_said, "the new plan would disturb a step in doubt", "replan")
    full = state.policy.replan == "full"
    return ev.Replanned(state.revision + 1, replan_course(state, plan, full=full), by, reason, full)


def _plan_part(answer: Any) -> Any:
    if isinstance(answer, Mapping):
        data = answer.get("plan", answer)
        return {k: v for k, v in data.items() if k != "reason"} if isinstance(data, Mapping) else data
    return answer


def _disturbed_doubts(state: State, plan: Plan) -> list[str]:
    """Steps in doubt that a new plan drops or changes: nobody knows whether their effect happened."""
    new = {step.id: step for step in plan.steps}
    return [t.id for t in state.doubts.values() if t.id not in new or definition(new[t.id]) != definition(t.step)]


def replan_course(state: State, plan: Plan, *, full: bool) -> Course:
    """What changes between the plan as it is and the new one; a succeeded `once` step is never run again by it."""
    steps: list[Step] = []
    touched: list[str] = []
    done: list[Step] = []
    for step in plan.steps:
        track = state.tracks.get(step.id)
        if track is None:
            steps.append(step)
        elif track.phase is Phase.DOUBT:
            continue
        elif _once_done(track):
            if definition(step) != definition(track.step):
                done.append(step)
        elif full or definition(step) != definition(track.step):
            steps.append(step)
        elif track.phase not in (Phase.SUCCEEDED, Phase.SKIPPED):
            # Not finished: what the new plan says of gates, timeouts and retries counts too.
            steps.append(step) if step != track.step else touched.append(step.id)
    kept = {step.id for step in plan.steps}
    dropped = tuple(step_id for step_id in state.tracks if step_id not in kept)
    return Course(tuple(touched), tuple(steps), dropped, done=tuple(done), order=tuple(step.id for step in plan.steps))


def _once_done(track: Track) -> bool:
    """Whether the step's effect has happened and must not happen twice, whatever its result is worth now."""
    return track.result is not None and track.result.effect is Effect.ONCE


def read_judgement(state: State, answer: Any, by: str) -> ev.Evaluation:
    """The verdict with a judge's word: it may lower it, never raise it; claims are checked against history (R5)."""
    found = verdict(state)
    if not isinstance(answer, Mapping):
        return evaluation(state, verdict(state), "unavailable")
    claimed = _claims(answer, ("failed_steps", "failedSteps", "failed", "missing_steps"))
    disputed = tuple(step for step in claimed if step in state.tracks and _did_well(state, state.tracks[step]))
    poor, evidence = _unsatisfactory(state, answer.get("unsatisfactory"))
    missing = answer.get("missing", ())
    missing = [missing] if isinstance(missing, str) else missing
    texts = [str(item)[:500] for item in missing] if isinstance(missing, list | tuple) else []
    # What is said to be missing, but was done, is a dispute and not a lack.
    lacks = tuple(text for text in texts if not (text in state.tracks and _did_well(state, state.tracks[text])))
    disputed += tuple(text for text in texts if text not in lacks and text not in disputed)
    lowered = bool(lacks or poor) or (answer.get("complete") is False and not disputed)
    return ev.Evaluation(
        found.success, found.success and not lowered, found.degraded, found.failed_steps, found.consequences,
        disputed, poor, lacks, by, evidence or str(answer.get("reason", ""))[:1000], summary(state, found),
    )  # fmt: skip


def unavailable_judge(state: State) -> ev.Evaluation:
    """The judge did not answer, or not in words one can read: the computed verdict stands (V4)."""
    return evaluation(state, verdict(state), "unavailable")


def _did_well(state: State, track: Track) -> bool:
    return status_of(state, track)[0] in ENDED_WELL


def _claims(answer: Mapping[str, Any], keys: tuple[str, ...]) -> list[str]:
    found: list[str] = []
    for key in keys:
        value = answer.get(key, ())
        for item in value if isinstance(value, list | tuple) else ():
            name = item.get("id", item.get("step", item.get("index"))) if isinstance(item, Mapping) else item
            if name is not None:
                found.append(str(name))
    return list(dict.fromkeys(found))


def _unsatisfactory(state: State, value: Any) -> tuple[tuple[str, ...], str]:
    """Steps a judge found poor, with evidence, as far as their effect lets them run again (V3)."""
    steps: list[str] = []
    evidence: list[str] = []
    for item in value if isinstance(value, list | tuple) else ():
        if not isinstance(item, Mapping) or not item.get("evidence"):
            continue
        track = state.tracks.get(str(item.get("step", "")))
        if (
            track is not None
            and status_of(state, track)[0] in (Status.SUCCEEDED, Status.DEGRADED)
            and not _once_done(track)
        ):
            steps.append(track.id)
            evidence.append(f"{track.id}: {item['evidence']}"[:500])
    return tuple(steps), "; ".join(evidence)
