"""Views of a history: the attempts of a step, and the revisions of the plan (contract I4).

Rules of this file:
- Records in, plain data out. The caller supplies large arguments, by the name of their content.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from rerail.i18n import retold
from rerail.kernel import events as ev
from rerail.kernel.events import Course, Record
from rerail.kernel.plan_graph import downstream
from rerail.kernel.policy import Rung
from rerail.kernel.state import State
from rerail.kernel.step_state import Track
from rerail.plan.step import Step
from rerail.views.live_run import Board, outcome_of, step_view

MOST_LOGS = 500  # lines shown of one attempt: the latest


# -- Attempts -----------------------------------------------------------------------------------------------------


def tries(
    records: Iterable[Record], state: State, track: Track, large: Mapping[str, Any], lang: str = "en"
) -> list[dict[str, Any]]:
    """Return every call of a step: its arguments, their changes, its outcome, and the reflection on it."""
    found: list[dict[str, Any]] = []
    rung, why = "", ""
    for record in records:
        event = record.event
        if _begins_anew(event, track.id):
            rung, why = "", ""
        if getattr(event, "step", None) != track.id:
            continue
        last = found[-1] if found else None
        match event:
            case ev.StepStarted():
                args = _args(state, track, event, large)
                changed = difference(last["args"], args) if last is not None else {}
                found.append(_begun(event, record.at, args, changed, rung, retold(why, lang)))
                rung, why = "", ""
            case ev.StepProgress(log=True) if last is not None and last["attempt"] == event.attempt:
                last["logs"].append({"at": record.at, "text": event.message})
                del last["logs"][:-MOST_LOGS]
            case ev.StepSucceeded() if last is not None and last["attempt"] == event.attempt:
                last.update(ended_at=record.at, outcome="succeeded", elapsed=event.elapsed)
            case ev.StepFailed():
                _failed(found, event, record.at, state, track, lang)
            case ev.StepVerified() if last is not None:
                last["verified"] = {"effect": event.effect, "reason": retold(event.reason, lang)}
                last["outcome"] = {"there": "succeeded", "absent": "failed"}.get(event.effect, last["outcome"])
            case ev.Acted(action="resolve", outcome="succeeded") if last is not None and last["outcome"] == "doubt":
                last["outcome"] = event.outcome  # the step's failure event tells it, with the error
            case ev.Reflected():
                rung = str(event.rung)
                if last is not None:
                    last["reflection"] = reflection(event, lang)
            case ev.RetryScheduled():
                rung = str(Rung.RETRY)
            case ev.Recovered():
                rung, why = str(event.rung), event.reason
            case _:
                pass
    return found


def _begins_anew(event: ev.Event, step: str) -> bool:
    """True if a command led to the step's next event, not a rung of its ladder."""
    if isinstance(event, ev.RetryBegin):
        return True
    return isinstance(event, ev.Acted) and (event.step == step or step in event.course.touched)


def _begun(
    event: ev.StepStarted, at: float, args: Any, changed: Mapping[str, Any], rung: str, why: str
) -> dict[str, Any]:
    return {
        "attempt": event.attempt, "tool": event.tool, "effect": str(event.effect), "at": at, "ended_at": None,
        "elapsed": None, "args": args, "changed": dict(changed), "outcome": "running", "error": None,
        "rung": str(event.rung) if event.rung is not None else rung or None, "why": why, "reflection": None,
        "verified": None, "logs": [],
    }  # fmt: skip


def _failed(
    found: list[dict[str, Any]], event: ev.StepFailed, at: float, state: State, track: Track, lang: str
) -> None:
    error = event.error
    told = {**error.to_dict(), "message": retold(error.told, lang)}
    told.pop("data", None)
    if not event.called:  # no call was made: a missing input, a refused gate
        if found and found[-1]["attempt"] == event.attempt and found[-1]["outcome"] == "doubt":
            found[-1].update(outcome="failed", error=told)
            return
        started = ev.StepStarted(track.id, event.attempt, track.step.tool)
        found.append({**_begun(started, at, None, {}, "", ""), "called": False})
    elif not found or found[-1]["attempt"] != event.attempt:
        return
    outcome = outcome_of(event, once=found[-1]["effect"] == "once")
    found[-1].update(ended_at=at, outcome=outcome, error=told, elapsed=event.elapsed)


def reflection(event: ev.Reflected, lang: str = "en") -> dict[str, Any]:
    """Return the reflection on a failure, and the chosen rung (H5)."""
    return {
        "by": event.by, "category": str(event.category), "root_cause": retold(event.root_cause, lang),
        "recoverable": event.recoverable, "confidence": event.confidence, "suggestion": event.suggestion,
        "alternatives": list(event.alternatives), "rung": str(event.rung),
        "refused": [retold(reason, lang) for reason in event.refused],
    }  # fmt: skip


def _args(state: State, track: Track, event: ev.StepStarted, large: Mapping[str, Any]) -> Any:
    """Return the arguments of a call, as far as they are available; without its own, the plan's."""
    if event.args is not None:
        return event.args
    if event.args_blob:
        return large.get(event.args_blob)
    return state.template(track).value


def difference(old: Any, new: Any) -> dict[str, list[Any]]:
    """Return the differences of two sets of arguments: name → [old, new]; None for a missing one."""
    if not isinstance(old, Mapping) or not isinstance(new, Mapping):
        return {}
    names = dict.fromkeys([*old, *new])
    return {name: [old.get(name), new.get(name)] for name in names if old.get(name, ...) != new.get(name, ...)}


def step_detail(
    board: Board, track: Track, records: Iterable[Record], large: Mapping[str, Any], lang: str = "en"
) -> dict[str, Any]:
    """Return everything the history says of one step; the caller adds its output and its story."""
    tried = tries(records, board.state, track, large, lang)
    return {
        **step_view(board, track, lang),
        "tries": tried,
        "reflections": [{"attempt": one["attempt"], **one["reflection"]} for one in tried if one["reflection"]],
        "plan_step": plain_step(track.step),
        "downstream": [other.id for other in downstream(board.state, [track.id]) if other is not track],
    }


# -- Revisions ----------------------------------------------------------------------------------------------------


def plain_step(step: Step) -> dict[str, Any]:
    """Return a step in the form of a plan."""
    plain: dict[str, Any] = msgspec.to_builtins(step)
    return {"args": {}, "needs": [], **plain}


REVISING: dict[type[ev.Event], str] = {
    ev.Replanned: "replanned",
    ev.Recovered: "recovered",
    ev.Acted: "acted",
    ev.RetryBegin: "retry",
}


def revisions(records: Iterable[Record], lang: str = "en") -> list[dict[str, Any]]:
    """Return each revision of the plan: author, reason, and every step at that time."""
    steps: dict[str, Step] = {}
    found: list[dict[str, Any]] = []
    for record in records:
        match record.event:
            case ev.PlanAccepted() as event:
                steps = {step.id: step for step in event.plan.steps}
                _add(found, record, "accepted", event.by, event.fallback, steps, lang)
            case ev.Replanned() | ev.Recovered() | ev.Acted() | ev.RetryBegin() as event:
                kind = REVISING[type(event)]
                if event.course.steps or kind == "replanned":
                    steps = after(steps, event.course)
                    reason = event.operation if isinstance(event, ev.RetryBegin) else event.reason
                    reason = reason or (event.action if isinstance(event, ev.Acted) else "")
                    _add(found, record, kind, event.by, reason, steps, lang)
            case ev.StepSucceeded() as event if event.course.steps:
                steps = after(steps, event.course)
                _add(found, record, "added", event.step, "", steps, lang)
            case _:
                pass
    return found


def after(steps: Mapping[str, Step], course: Course) -> dict[str, Step]:
    """Return the steps of a plan after a change of course, in their order."""
    new = {step_id: step for step_id, step in steps.items() if step_id not in course.dropped}
    new |= {step.id: step for step in (*course.steps, *course.done)}
    if not course.order:
        return new
    ordered = {step_id: new[step_id] for step_id in course.order if step_id in new}
    return {**ordered, **{step_id: step for step_id, step in new.items() if step_id not in ordered}}


def _add(
    found: list[dict[str, Any]], record: Record, kind: str, by: str, reason: str, steps: Mapping[str, Step], lang: str
) -> None:
    found.append({
        "revision": len(found) + 1, "seq": record.seq, "at": record.at, "by": by, "reason": retold(reason, lang),
        "kind": kind, "steps": [plain_step(step) for step in steps.values()],
    })  # fmt: skip
