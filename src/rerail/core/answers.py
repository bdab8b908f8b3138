"""Answers to questions, checked before they are believed (SPEC H5, H7, H8, V3-V5, R5).

Rules of this file:
- An answer becomes an event or a refusal, whoever gave it: a person, a rule, a script, a model.
- A question carries the place at which it was asked; an answer to a state that has moved on changes nothing.
- Nothing fails open: what cannot be read is declined, and the computed verdict stands.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from rerail.core import events as ev
from rerail.core.codes import Category
from rerail.core.dialects import Unreadable, read_plan, read_steps
from rerail.core.events import Course, Event
from rerail.core.plan import Effect, Fault, Plan, Step, check_steps, definition
from rerail.core.policy import LADDER, Rung
from rerail.core.recover import Case, Reflection, choose, failed_args, reflect
from rerail.core.state import State
from rerail.core.tools import Tools
from rerail.core.track import Phase, Status, Track
from rerail.core.values import NotJson, pack, plain_text, unpack
from rerail.core.verdict import ENDED_WELL, evaluation, status_of, summary, verdict

# -- Reflections (H5) ---------------------------------------------------------------------------------------------

# The words in which a rung is asked for, besides its own name.
ACTIONS: dict[str, Rung] = {
    **{str(rung): rung for rung in Rung},
    "retry_with_backoff": Rung.RETRY, "wait": Rung.RETRY, "adjust_arguments": Rung.ADJUST, "adjust": Rung.ADJUST,
    "retry_with_adjusted_params": Rung.ADJUST, "adjusted_args": Rung.ADJUST, "alternative": Rung.ALTERNATIVE,
    "retry_with_alternative_tool": Rung.ALTERNATIVE, "repair_step": Rung.REPAIR, "single_step_repair": Rung.REPAIR,
    "replan_task": Rung.REPLAN, "abort": Rung.FAIL, "stop": Rung.FAIL,
}  # fmt: skip
_PLACEHOLDER = re.compile(r"\$\{|\{\{|^\s*<[^<>]{1,80}>\s*$|^\s*(?:\.\.\.|…|TODO|TBD|FIXME)\s*$|^YOUR_[A-Z_]+$")
MAX_SUGGESTION = 16_000  # bytes; it is written again with every try


class _Unbelievable(Exception):
    """A reflection that does not hold; the rules take over."""


def read_reflection(
    state: State, tools: Tools, step: str, attempt: int, answer: Any, by: str, now: float, failed: str = ""
) -> list[Event]:
    """What a mind makes of a failure, and the rung chosen for it; the rules' own thought where it does not hold."""
    track = state.current(step, attempt, Phase.HELD)
    if track is None or track.question != "reflect":
        return [ev.Declined("reflect", step, "the run has moved on", late=True)]
    error = track.error or ev.Error("TOOL_FAILED", Category.UNKNOWN, "failed")
    rules = reflect(state, tools, track, error)
    refused: list[str] = []
    try:
        if failed or answer is None:
            raise _Unbelievable(failed or "no reflection was offered")
        thought = _reflection(answer, failed_args(state, track), by)
    except _Unbelievable as problem:
        refused.append(f"{by}: {problem}"[:500])
        thought = rules
    return choose(Case(state, tools, track, error, thought, now, refused))


def _reflection(answer: Any, failed: Mapping[str, Any] | None, by: str) -> Reflection:
    if not isinstance(answer, Mapping):
        raise _Unbelievable("the reflection is no object")
    category = _category(answer.get("category"))
    action = _action(answer.get("action"), category)
    args = _suggestion(answer.get("suggestion"), failed)
    if args is not None and Rung.ADJUST not in LADDER[category]:
        raise _Unbelievable(f"category {category} and adjusted arguments do not agree")
    names = answer.get("alternatives")
    alternatives = tuple(str(name) for name in names[:10]) if isinstance(names, list | tuple) else ()
    if alternatives and Rung.ALTERNATIVE not in LADDER[category]:
        raise _Unbelievable(f"category {category} and another tool do not agree")
    confidence = answer.get("confidence", 0)
    sure = int(confidence) if isinstance(confidence, int | float) and 0 <= confidence <= 100 else 0
    cause = answer.get("root_cause")
    recoverable = answer.get("recoverable") is not False and action is not Rung.FAIL
    return Reflection(
        category, plain_text(cause, 500) if isinstance(cause, str) else "", recoverable, args, sure, alternatives,
        by, action,
    )  # fmt: skip


def _category(given: Any) -> Category:
    known = {str(category): category for category in Category}
    name = given.strip().lower() if isinstance(given, str) else ""
    found = known.get(name) or known.get(f"{name}_error")
    if found is None:
        raise _Unbelievable(f"{given!r:.80} is no category; known: {', '.join(known)}")
    return found


def _action(given: Any, category: Category) -> Rung | None:
    if given is None or given == "":
        return None
    rung = ACTIONS.get(given.strip().lower()) if isinstance(given, str) else None
    if rung is None:
        raise _Unbelievable(f"{given!r:.80} is no action; known: {', '.join(map(str, Rung))}")
    if rung is not Rung.FAIL and rung not in LADDER[category]:
        raise _Unbelievable(f"category {category} and action {rung} do not agree")
    return rung


def _suggestion(given: Any, failed: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Concrete arguments: what is said, over those that failed."""
    if isinstance(given, Mapping) and set(given) <= {"args", "arguments", "tool", "reason"} and len(given) > 0:
        given = given.get("args", given.get("arguments"))
    if given is None or given == {} or isinstance(given, str):
        return None  # a suggestion in words is for people
    if not isinstance(given, Mapping):
        raise _Unbelievable("the suggestion is no object of arguments")
    try:
        data = pack(dict(given)).data
    except NotJson as error:
        raise _Unbelievable(f"the suggestion is not JSON: {error}") from error
    if len(data) > MAX_SUGGESTION:
        raise _Unbelievable(f"the suggestion is too large ({len(data):,} bytes)")
    vague = next(_vague(given), None)
    if vague is not None:
        raise _Unbelievable(f"the suggestion is not concrete: {vague!r:.80}")
    return {**(failed or {}), **unpack(data)}


def _vague(value: Any) -> Iterator[str]:
    """Texts that only stand for a value."""
    stack = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, str) and _PLACEHOLDER.search(item):
            yield item
        elif isinstance(item, Mapping):
            stack.extend(item.values())
        elif isinstance(item, list | tuple):
            stack.extend(item)


# -- Repairs (H7) -------------------------------------------------------------------------------------------------


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


# -- Replans (H8) -------------------------------------------------------------------------------------------------


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


# -- Judgements (V3-V5) -------------------------------------------------------------------------------------------


def read_judgement(state: State, answer: Any, by: str) -> ev.Evaluation:
    """The verdict with a judge's word: it may lower it, never raise it; claims are checked against history (R5)."""
    found = verdict(state)
    if not isinstance(answer, Mapping):
        return unavailable_judge(state, "the judgement is no object")
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


def unavailable_judge(state: State, reason: str = "") -> ev.Evaluation:
    """The judge did not answer, or not in words one can read: the computed verdict stands (V4)."""
    return evaluation(state, verdict(state), "unavailable", plain_text(reason, 500))


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
