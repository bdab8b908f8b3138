"""Reflect: diagnose a failed attempt (contract H5).

Rules of this file:
- An invalid reflection is refused with a reason, and the rules' own reflection takes its place.
- It may choose among the rungs of its category, and stop earlier; it adds none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from rerail.codes import Category
from rerail.i18n import about, clipped, tell, words_of
from rerail.kernel import events as ev
from rerail.kernel.candidates import BLANK
from rerail.kernel.events import Event
from rerail.kernel.ladder import FailureCase, Reflection, choose, reflect
from rerail.kernel.policy import LADDER, Rung
from rerail.kernel.state import State
from rerail.kernel.step_state import Phase, signature
from rerail.mind.guardrails import SOUND, stand_ins
from rerail.plan.tool_spec import Tools
from rerail.ports import Question
from rerail.values.json_values import NotJson, pack, plain_text, unpack

# Synonyms for the names of rungs.
ACTIONS: dict[str, Rung] = {
    **{str(rung): rung for rung in Rung},
    "retry_with_backoff": Rung.RETRY, "wait": Rung.RETRY, "adjust_arguments": Rung.ADJUST, "adjust": Rung.ADJUST,
    "retry_with_adjusted_params": Rung.ADJUST, "adjusted_args": Rung.ADJUST, "alternative": Rung.ALTERNATIVE,
    "retry_with_alternative_tool": Rung.ALTERNATIVE, "repair_step": Rung.REPAIR, "single_step_repair": Rung.REPAIR,
    "replan_task": Rung.REPLAN, "abort": Rung.FAIL, "stop": Rung.FAIL,
}  # fmt: skip
MAX_SUGGESTION = 16_000  # bytes; it is stored again with every try


class _Unbelievable(Exception):
    """The reflection is invalid; the rules take over."""


def read(
    state: State,
    tools: Tools,
    step: str,
    attempt: int,
    answer: Any,
    by: str,
    now: float,
    failed: str = "",
    large: Mapping[str, Any] | None = None,
) -> list[Event]:
    """Return a mind's reflection and its rung; the rules' own reflection if it is invalid.

    ``large`` are the failed arguments, if the history does not hold them inline.
    """
    track = state.current(step, attempt, Phase.HELD)
    if track is None or track.question != "reflect":
        return [ev.Declined("reflect", step, tell("reason.moved_on"), late=True)]
    error = track.error or ev.Error("TOOL_FAILED", Category.UNKNOWN, "failed")
    rules = reflect(state, tools, track, error)
    refused: list[str] = []
    try:
        if failed or answer is None:
            raise _Unbelievable(failed or tell("mind.no_reflection"))
        at_hand = state.args_of(track)
        thought = _reflection(answer, large if at_hand is None else at_hand, by)
        category = track.category or error.category
        if category in SOUND and (other := set(thought.alternatives) - stand_ins(track.step, tools)):
            raise _Unbelievable(tell("mind.reflection.sound", names=", ".join(sorted(other)), category=category))
    except _Unbelievable as problem:
        refused.append(clipped(about(by, words_of(problem)), 500))
        thought = rules
    return choose(FailureCase(state, tools, track, error, thought, now, refused))


def compact(events: list[Event], failed: Mapping[str, Any], args_blob: str) -> list[Event]:
    """Return the same events with only the changes of arguments that are stored as a content."""

    def shortened(event: Event) -> Event:
        if isinstance(event, ev.Recovered) and event.rung is Rung.ADJUST:
            return msgspec.structs.replace(event, args=_changes(event.args, failed), args_blob=args_blob)
        if isinstance(event, ev.Reflected) and event.suggestion is not None:
            return msgspec.structs.replace(event, suggestion=_changes(event.suggestion, failed), partial=True)
        return event

    return [shortened(event) for event in events]


def _changes(args: Mapping[str, Any] | None, failed: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in (args or {}).items() if name not in failed or failed[name] != value}


def objections(question: Question, answer: Mapping[str, Any]) -> list[str]:
    """Return the faults of an answer that the question itself shows, for its author to mend."""
    failed = question.attempts[-1]["args"] if question.attempts else None
    try:
        thought = _reflection(answer, failed, "")
    except _Unbelievable as problem:
        return [words_of(problem)]
    unknown = [name for name in thought.alternatives if name not in question.tools]
    faults: list[str] = [tell("mind.no_tool", name=name) for name in unknown[:3]]
    return faults if thought.args is None else [*faults, *_against(question, thought.args)]


def _against(question: Question, args: Mapping[str, Any]) -> list[str]:
    """Return the objections to arguments: the failed tool's schema, or an earlier try with them."""
    last = question.attempts[-1] if question.attempts else {}
    spec = question.tools.get(str(last.get("tool", "")))
    found = spec.schema.faults(dict(args))[:3] if spec is not None else []
    faults = [about("suggestion", fault.said) for fault in found]
    mark = signature(args)
    tried = [row for row in question.attempts if row["tool"] == last.get("tool") and row["args"] is not None]
    if any(signature(row["args"]) == mark for row in tried):
        faults.append(tell("mind.suggestion.tried"))
    return faults


def _reflection(answer: Any, failed: Mapping[str, Any] | None, by: str) -> Reflection:
    if not isinstance(answer, Mapping):
        raise _Unbelievable(tell("mind.reflection.no_object"))
    category = _category(answer.get("category"))
    action = _action(answer.get("action"), category)
    args = _suggestion(answer.get("suggestion"), failed)
    if args is not None and Rung.ADJUST not in LADDER[category]:
        raise _Unbelievable(tell("mind.reflection.args", category=category))
    names = answer.get("alternatives")
    alternatives = tuple(plain_text(str(name), 200) for name in names[:10]) if isinstance(names, list | tuple) else ()
    if alternatives and Rung.ALTERNATIVE not in LADDER[category]:
        raise _Unbelievable(tell("mind.reflection.tool", category=category))
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
        raise _Unbelievable(tell("mind.reflection.no_category", given=given, names=", ".join(known)))
    return found


def _action(given: Any, category: Category) -> Rung | None:
    if given is None or given == "":
        return None
    rung = ACTIONS.get(given.strip().lower()) if isinstance(given, str) else None
    if rung is None:
        raise _Unbelievable(tell("mind.reflection.no_action", given=given, names=", ".join(map(str, Rung))))
    if rung is not Rung.FAIL and rung not in LADDER[category]:
        raise _Unbelievable(tell("mind.reflection.action", category=category, rung=rung))
    return rung


def _suggestion(given: Any, failed: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Return concrete arguments: the suggestion merged over the failed ones."""
    if isinstance(given, Mapping) and set(given) <= {"args", "arguments", "tool", "reason"} and len(given) > 0:
        given = given.get("args", given.get("arguments"))
    if given is None or given == {} or isinstance(given, str):
        return None  # a suggestion in words is for users
    if not isinstance(given, Mapping):
        raise _Unbelievable(tell("mind.suggestion.no_object"))
    try:
        data = pack(dict(given)).data
    except NotJson as error:
        raise _Unbelievable(tell("mind.suggestion.not_json", error=error)) from error
    if len(data) > MAX_SUGGESTION:
        raise _Unbelievable(tell("mind.suggestion.too_large", size=len(data)))
    vague = next(_vague(given), None)
    if vague is not None:
        raise _Unbelievable(tell("mind.suggestion.vague", vague=vague))
    if failed is None:
        raise _Unbelievable(tell("mind.suggestion.args_gone"))
    return {**failed, **unpack(data)}


def _vague(value: Any) -> Iterator[str]:
    """Return texts that are placeholders for a value."""
    stack = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, str) and BLANK.search(item):
            yield item
        elif isinstance(item, Mapping):
            stack.extend(item.values())
        elif isinstance(item, list | tuple):
            stack.extend(item)
