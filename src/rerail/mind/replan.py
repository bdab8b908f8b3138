"""Replan: a new revision of the plan that keeps finished work (SPEC H8)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from rerail.core import events as ev
from rerail.core.dialects import Unreadable, canonical, read_plan
from rerail.core.events import Course, Event
from rerail.core.plan import Effect, Fault, Plan, Step, check_change, definition
from rerail.core.state import State
from rerail.core.tools import Tools
from rerail.core.track import Phase, Track
from rerail.core.values import plain_text
from rerail.i18n import tell, words_of
from rerail.mind import words
from rerail.mind.plan import STEP_SCHEMA
from rerail.mind.restraint import listed, repeated, restrained
from rerail.ports import Prompt, Question

# Whether a step matters is not asked: it stays as the plan's author said.
_FIELDS = {name: shape for name, shape in STEP_SCHEMA["properties"].items() if name != "critical"}
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "plan": {
            "type": ["object", "null"],
            "properties": {
                "steps": {
                    "type": "array",
                    "items": {"type": "object", "properties": _FIELDS, "required": ["id"]},
                    "minItems": 1,
                }
            },
            "required": ["steps"],
        },
        "reason": {"type": "string"},
    },
    "required": ["plan", "reason"],
}


def ask(question: Question, template: str, room: int = words.ROOM) -> Prompt:
    """The whole task as it stands: what is done, what failed, what may be used."""
    return words.filled(template, "replan", words.pieces(question, room), SCHEMA)


def read(state: State, tools: Tools, answer: Any, by: str, asked: int) -> Event:
    """A new revision of the plan: finished work whose definition is unchanged is carried over (H8)."""
    if not state.replan_wanted or state.acted_at > asked:
        return ev.Declined("replan", "", tell("reason.moved_on"), late=True)
    reason = plain_text(str(answer.get("reason", "")), 500) if isinstance(answer, Mapping) else ""
    if answer is None or (isinstance(answer, Mapping) and answer.get("plan", answer) is None):
        return ev.Declined("replan", "", reason or tell("mind.no_new_plan"))
    olds = {step_id: track.step for step_id, track in state.tracks.items()}
    try:
        plan = answer if isinstance(answer, Plan) else drafted(answer, olds)
    except Unreadable as error:
        return ev.Declined("replan", "", words_of(error))
    faults = list(plan.faults)
    steps = [restrained(step, olds.get(step.id), faults, gated=state.gated) for step in plan.steps]
    plan = msgspec.structs.replace(plan, steps=tuple(steps), follow_up=None)  # what follows the run is not in question
    faults += check_change(list(olds.values()), plan.steps, tools)
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
    """The plan an answer gives. A step of the old plan may be named by its id alone, or with just what changes."""
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
    """What is wrong with an answer as far as the question itself shows, for whoever gave it to mend."""
    if answer.get("plan", answer) is None:
        return []
    olds = {row["id"]: msgspec.convert(row, Step) for row in question.definitions}
    try:
        plan = drafted(answer, olds)
    except Unreadable as error:
        return [words_of(error)]
    faults = list(plan.faults)
    steps = [restrained(step, olds.get(step.id), faults) for step in plan.steps]
    faults += check_change(list(olds.values()), steps, question.tools)
    return [fault.told for fault in faults]


def _disturbed_doubts(state: State, plan: Plan) -> list[str]:
    """Steps in doubt that a new plan drops or changes: whether their effect happened is unknown."""
    new, doubtful = {step.id: step for step in plan.steps}, {t.id: t for t in state.doubts.values()} | state.unsettled
    return [name for name, t in doubtful.items() if name not in new or definition(new[name]) != definition(t.step)]


def replan_course(state: State, plan: Plan, *, full: bool) -> Course:
    """What changes between the plan as it is and the new one; a succeeded `once` step is never run again by it."""
    steps: list[Step] = []
    touched: list[str] = []
    done: list[Step] = []
    for step in plan.steps:
        track = state.tracks.get(step.id)
        if track is None:
            steps.append(step)
        elif track.phase is Phase.DOUBT or track.id in state.unsettled:
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
