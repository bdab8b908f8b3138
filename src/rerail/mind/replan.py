"""Replan: a new revision of the plan that keeps finished work (contract H8)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from rerail.i18n import tell, words_of
from rerail.kernel import events as ev
from rerail.kernel.events import Course, Event
from rerail.kernel.state import State
from rerail.kernel.step_state import Phase
from rerail.mind.guardrails import listed, repeated, restrained
from rerail.plan.model import Plan, check_change
from rerail.plan.reader import PlanUnreadable, canonical, read_plan
from rerail.plan.step import Effect, Fault, Step, definition
from rerail.plan.tool_spec import Tools
from rerail.ports import Question
from rerail.values.json_values import plain_text


def read(state: State, tools: Tools, answer: Any, by: str, asked: int) -> Event:
    """Return a new revision of the plan: finished work with an unchanged definition is carried over (H8)."""
    if not state.replan_wanted or state.acted_at > asked:
        return ev.Declined("replan", "", tell("reason.moved_on"), late=True)
    reason = plain_text(str(answer.get("reason", "")), 500) if isinstance(answer, Mapping) else ""
    if answer is None or (isinstance(answer, Mapping) and answer.get("plan", answer) is None):
        return ev.Declined("replan", "", reason or tell("mind.no_new_plan"))
    olds = {step_id: track.step for step_id, track in state.tracks.items()}
    try:
        plan = answer if isinstance(answer, Plan) else drafted(answer, olds)
    except PlanUnreadable as error:
        return ev.Declined("replan", "", words_of(error))
    faults = list(plan.faults)
    authored = {**state.dropped, **olds}  # a dropped step that comes back is not new
    steps = [restrained(step, authored.get(step.id), faults, gated=state.gated) for step in plan.steps]
    plan = msgspec.structs.replace(plan, steps=tuple(steps), follow_up=None)  # the follow-up is not in question
    faults += check_change(list(olds.values()), plan.steps, tools, state.finals)
    faults += repeated(state, plan.steps, tools)
    if not plan.steps:
        faults.append(Fault("NO_STEPS", tell("refuse.mind.no_steps")))
    if faults:
        return ev.PlanRejected(by, listed(faults), tell("mind.plan_invalid"), "replan")
    doubtful = _disturbed_doubts(state, plan)
    if doubtful:
        faults_said = tuple(tell("mind.step_in_doubt", name=name) for name in doubtful)
        return ev.PlanRejected(by, faults_said, tell("mind.disturbs_doubt"), "replan")
    full = state.policy.replan == "full"
    return ev.Replanned(state.revision + 1, replan_course(state, plan, full=full), by, reason, full)


def drafted(answer: Any, olds: Mapping[str, Step]) -> Plan:
    """Return the plan in an answer. It may name an old step by its id alone, or with only its changes."""
    data = answer.get("plan", answer) if isinstance(answer, Mapping) else answer
    if isinstance(data, Mapping):
        data = {key: value for key, value in data.items() if key != "reason"}
        key = next((name for name in ("steps", "tasks") if isinstance(data.get(name), list)), "")
        if key:
            data[key] = [_whole(step, olds) for step in data[key]]
    return read_plan(data)


def _whole(step: Any, olds: Mapping[str, Step]) -> Any:
    if not isinstance(step, Mapping) or not isinstance(step.get("id"), str):
        return step
    given = canonical(step)
    old = olds.get(step["id"])
    return given if old is None or "tool" in given else {**msgspec.to_builtins(old), **given}


def objections(question: Question, answer: Mapping[str, Any]) -> list[str]:
    """Return the faults of an answer that the question itself shows, for its author to mend."""
    if answer.get("plan", answer) is None:
        return []
    olds = {row["id"]: msgspec.convert(row, Step) for row in question.definitions}
    try:
        plan = drafted(answer, olds)
    except PlanUnreadable as error:
        return [words_of(error)]
    faults = list(plan.faults)
    steps = [restrained(step, olds.get(step.id), faults) for step in plan.steps]
    faults += check_change(list(olds.values()), steps, question.tools)
    return [fault.told for fault in faults]


def _disturbed_doubts(state: State, plan: Plan) -> list[str]:
    """Return steps in doubt that a new plan drops or changes: it is unknown whether their effect happened."""
    new, doubtful = {step.id: step for step in plan.steps}, {t.id: t for t in state.doubts.values()} | state.unsettled
    return [name for name, t in doubtful.items() if name not in new or definition(new[name]) != definition(t.step)]


def replan_course(state: State, plan: Plan, *, full: bool) -> Course:
    """Return the changes between the old plan and the new one; a succeeded `once` step never runs again by it."""
    steps: list[Step] = []
    touched: list[str] = []
    done: list[Step] = []
    for step in plan.steps:
        track = state.tracks.get(step.id)
        if track is None:
            steps.append(step)
        elif track.phase is Phase.DOUBT or track.id in state.unsettled:
            continue
        elif track.result is not None and track.result.effect is Effect.ONCE:  # whatever it is worth now
            if definition(step) != definition(track.step):
                done.append(step)
        elif full or definition(step) != definition(track.step):
            steps.append(step)
        elif track.phase not in (Phase.SUCCEEDED, Phase.SKIPPED):
            # Not finished: the new plan's gates, timeouts and retries apply too.
            steps.append(step) if step != track.step else touched.append(step.id)
    kept = {step.id for step in plan.steps}
    dropped = tuple(step_id for step_id in state.tracks if step_id not in kept)
    return Course(tuple(touched), tuple(steps), dropped, done=tuple(done), order=tuple(step.id for step in plan.steps))
