"""The ladder: how a failed attempt is answered (contract H1, H3-H6). One small function per rung.

Rules of this file:
- A rung returns the events that take it, or why it does not apply; the first applicable rung is taken.
- A rung is paid from a budget that is counted from history; this module keeps no counter.
- Every proposal of a reflection is checked before use, from rules and minds alike.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from rerail.codes import Category
from rerail.i18n import clipped, say, tell
from rerail.kernel import events as ev
from rerail.kernel.candidates import supplied
from rerail.kernel.events import Course, Error, Event
from rerail.kernel.failure_memory import reordered
from rerail.kernel.policy import LADDER, NEEDS_RECOVERABLE, WITHOUT_REFLECTION, Rung, backoff, pause
from rerail.kernel.state import State
from rerail.kernel.step_state import Heal, Track, signature
from rerail.plan.step import Effect
from rerail.plan.tool_spec import Tools
from rerail.recovery.coercion import coerce
from rerail.values.json_values import pack
from rerail.values.names import nearest


@dataclass(frozen=True, slots=True)
class Reflection:
    """A diagnosis of a failure, from rules or a mind: checked before use."""

    category: Category
    root_cause: str = ""
    recoverable: bool = True
    args: Mapping[str, Any] | None = None  # concrete arguments to try, if any
    confidence: int = 0
    alternatives: tuple[str, ...] = ()
    by: str = "rules"
    action: Rung | None = None  # the requested rung; earlier rungs are passed over, none is added


@dataclass(slots=True)
class FailureCase:
    """One failed attempt, with everything that a rung reads."""

    state: State
    tools: Tools
    track: Track
    error: Error
    reflection: Reflection
    now: float
    refused: list[str] = field(default_factory=list)

    @property
    def retries(self) -> int:
        """Return the step's budget of calls after the first."""
        own = self.track.step.retries
        return self.state.policy.max_step_retries if own is None else own

    @property
    def used(self) -> int:
        return max(0, self.track.calls - 1)

    @property
    def tool(self) -> str:
        return self.track.call.tool if self.track.call is not None else self.state.tool_of(self.track)

    @property
    def lost(self) -> bool:
        """True if an attempt of the step may have had its effect, and the doubt is not settled."""
        return self.track.effects is not None and self.track.effects.lost

    def refuse(self, reason: str) -> None:
        """Note why a proposal is rejected; recorded with the choice."""
        self.refused.append(reason)


Taken = list[Event] | None
MAX_BEFORE = 3  # failures before its call after which a step needs another rung than a retry
MAX_CRASHES = 3  # calls that may die with their process and be repeated at no cost to the step's budget


def heal(state: State, tools: Tools, track: Track, now: float) -> list[Event]:
    """Return the events that answer a failed attempt: the reflection, the chosen rung, and its act."""
    error = track.error or Error("TOOL_FAILED", Category.UNKNOWN, "failed")
    if track.heal is not None and track.heal.not_now is not None and state.is_live(track):
        waited = _not_now(state, track, track.heal, track.heal.not_now, now)
        if waited is not None:
            return [waited]
    reflection = _thought(track) or reflect(state, tools, track, error)
    case = FailureCase(state, tools, track, error, reflection, now)
    if case.lost:
        return _same_key(case)
    if asks_a_mind(case):
        return [ev.QuestionAsked("reflect", track.id, track.attempt)]
    return choose(case)


def choose(case: FailureCase) -> list[Event]:
    """Return the first rung that applies, with the reflection on the failure."""
    state = case.state
    if not state.is_live(case.track):
        case.refuse(tell("reason.stopped", stopped=state.stopped))
        return [_reflected(case, Rung.FAIL)]
    heal = case.track.heal
    if heal is not None and heal.not_now is not None and state.refuses_wait(case.track):
        about = {"waited": heal.waited, "limit": state.policy.max_wait, "message": case.error.told}
        case.refuse(tell("error.RATE_LIMITED", asked=pause(state.policy, heal.not_now, heal.waits), **about))
    for rung in _rungs(state, case.track, case.reflection):
        taken = RUNGS[rung](case)
        if taken is not None:
            break
    else:
        rung, taken = Rung.FAIL, []
    if rung in (Rung.FALLBACK, Rung.SKIP, Rung.FAIL) and (
        told := passed_over(_untried(case), case.reflection.category)
    ):
        case.refuse(told)
    return [_reflected(case, rung), *taken]


def _same_key(case: FailureCase) -> list[Event]:
    """Answer a possible effect: the same call and key while the service remembers the key, else doubt."""
    if case.error.code == "IN_DOUBT":
        return [_reflected(case, Rung.FAIL)]
    stuck = case.track.heal is not None and case.track.heal.before > MAX_BEFORE  # without a call: endless
    over = not case.state.is_live(case.track) or stuck or case.state.refuses_wait(case.track)
    taken = _retry(case) if case.track.is_covered(case.now) and not over else None
    return [_reflected(case, Rung.DOUBT)] if taken is None else [_reflected(case, Rung.RETRY), *taken]


def lapsed(state: State, tools: Tools, track: Track, now: float) -> list[Event]:
    """Put a call in doubt: the service no longer remembers the key that a repeat needs."""
    error = track.error or Error("ANSWER_LOST", Category.TRANSIENT, tell("error.ANSWER_LOST"))
    return [_reflected(FailureCase(state, tools, track, error, reflect(state, tools, track, error), now), Rung.DOUBT)]


def answer_doubt(state: State, tools: Tools, track: Track, now: float) -> list[Event]:
    """Return what a run does about a doubt that needs a user: go on without the step, fail it, or wait (E3)."""
    spec = tools.get(track.call.tool) if track.call is not None else None
    wanted = track.step.on_doubt or (spec.on_doubt if spec is not None else "") or state.policy.on_doubt
    if wanted == "wait":
        return []
    error = track.error or Error("ANSWER_LOST", Category.TRANSIENT, tell("error.ANSWER_LOST"))
    case = FailureCase(state, tools, track, error, reflect(state, tools, track, error), now)
    if track.step.fallback is not None and track.step.fallback.tool is None:
        return [_reflected(case, Rung.FALLBACK), *_stand_in(case, track.step.fallback.value)]
    if not track.step.critical:
        message = tell("skip.SKIP_OPTIONAL_DOUBT", reason=error.told)
        return [_reflected(case, Rung.SKIP), ev.StepSkipped(track.id, "SKIP_OPTIONAL", message, "rules")]
    if wanted != "fail":
        return []
    doubt = Error(
        "IN_DOUBT", Category.PERMANENT, say("error.IN_DOUBT", reason=error.message), data={"reason": error.told}
    )
    return [ev.StepFailed(track.id, track.attempt, doubt, called=False)]


def asks_a_mind(case: FailureCase) -> bool:
    """True if a mind is asked about the failure, once for each attempt (`reflection.mode`).

    In hybrid mode rules go first, and a mind is asked where they find no category or no concrete change. A mind is
    never asked about a user's refusal, a failure that no retry can mend, or an absent effect.
    """
    policy, heal, thought = case.state.policy, case.track.heal, case.reflection
    if (
        case.state.stopped
        or case.state.cleaned
        or not policy.reflect
        or "reflect" not in policy.minds
        or policy.reflection_mode == "rules"
    ):
        return False
    if case.error.code in NOT_ASKED or thought.category is Category.PERMANENT or thought.by != "rules":
        return False
    if case.state.refuses_wait(case.track):
        return False
    if heal is not None and (heal.asked == case.track.attempt or heal.fallback):
        return False
    if policy.reflection_mode == "model" or thought.category is Category.UNKNOWN:
        return True
    if thought.category is Category.PARAMETER:
        return thought.args is None
    return thought.category is Category.TOOL and not any(name in case.tools for name in _untried(case))


def _thought(track: Track) -> Reflection | None:
    """Return a mind's reflection on this very attempt, if one was asked and its answer is valid."""
    said = track.heal.thought if track.heal is not None else None
    if said is None or said.attempt != track.attempt:
        return None
    # Arguments stored in part were checked whole, and rejected: without this, no mind would be asked again.
    args = None if said.partial else said.suggestion
    return Reflection(
        said.category, said.root_cause, said.recoverable, args, said.confidence, said.alternatives, said.by
    )


ENDLESS = frozenset({Rung.RETRY, Rung.ADJUST, Rung.ALTERNATIVE})  # of a step that fails before each of its calls
AFTER_FALLBACK = frozenset({Rung.SKIP, Rung.REPLAN})  # the fallback had its single call; earlier rungs are over
OF_THE_PLAN = frozenset({Rung.REPAIR, Rung.REPLAN})  # they change the plan, which ends with the run's work


def _rungs(state: State, track: Track, reflection: Reflection) -> Iterator[Rung]:
    fell_back = track.heal is not None and track.heal.fallback
    stuck = track.heal is not None and track.heal.before > MAX_BEFORE
    tool = track.call.tool if track.call is not None else track.step.tool
    # A service that wants no call for so long is asked no more in this round; something else may stand in for it.
    rungs = LADDER[Category.PERMANENT if state.refuses_wait(track) else reflection.category]
    if state.memory and track.error is not None:
        rungs = reordered(rungs, state.memory, tool, track.error)
    if reflection.action in rungs:
        rungs = rungs[rungs.index(reflection.action) :]
    for rung in rungs:
        if stuck and rung in ENDLESS:
            continue  # no call is made and no budget is spent: this would never end
        if fell_back and rung not in AFTER_FALLBACK:
            continue
        if not state.policy.reflect and rung not in WITHOUT_REFLECTION:
            continue
        if state.cleaned and rung in OF_THE_PLAN:
            continue
        if not reflection.recoverable and rung in NEEDS_RECOVERABLE and reflection.category is not Category.PERMANENT:
            continue
        yield rung


def _not_now(state: State, track: Track, heal: Heal, wish: float, now: float) -> Event | None:
    """Wait as long as the tool asked, while the step's total stays within `retry.max_wait` (X8)."""
    crashed = track.error is not None and track.error.code == "ANSWER_LOST"
    if crashed and heal.crashes >= MAX_CRASHES:
        return None  # by now this step is likely what kills the process
    if not crashed:
        wish = pause(state.policy, wish, heal.waits)
    if state.refuses_wait(track):
        return None
    if state.ends_by(now + wish):
        return None
    budget = state.policy.max_step_retries if track.step.retries is None else track.step.retries
    before = max(0, track.calls - 1)  # this call does not count
    left = budget - max(0, before - 1)
    return ev.RetryScheduled(track.id, before + 1, budget + 1, left, wish, now + wish, not_now=True, crashed=crashed)


def _reflected(case: FailureCase, rung: Rung) -> Event:
    thought = case.reflection
    return ev.Reflected(
        case.track.id, case.track.attempt, thought.category, rung, thought.root_cause, thought.recoverable,
        dict(thought.args) if thought.args is not None else None, thought.confidence, thought.alternatives,
        thought.by, tuple(case.refused),
    )  # fmt: skip


# -- Reflection by rules (H6) -------------------------------------------------------------------------------------

_DID_YOU_MEAN = re.compile(
    r"(?:did you mean|perhaps you meant|您是不是要找|是否是指|是不是)[:：]?\s*['\"`“‘]([^'\"`”’]{1,200})['\"`”’]", re.I
)


def reflect(state: State, tools: Tools, track: Track, error: Error) -> Reflection:
    """Return a rule-based diagnosis: category, cause, and a concrete change where one is known."""
    args = state.args_of(track)
    proposal, cause, category = None, clipped(error.told, 500), track.category or error.category
    if args is not None and category in (Category.PARAMETER, Category.PERMANENT) and error.code not in SAID_NO:
        proposal, step = _better_args(state, tools, track, error, args)
        category = category if proposal is None else Category.PARAMETER
        cause = tell("reason.upstream_value", message=cause, step=step) if step else cause
    return Reflection(
        category=category,
        root_cause=cause,
        recoverable=category is not Category.PERMANENT,
        args=proposal,
        confidence=90 if proposal is not None else 50,
    )


def failed_blob(track: Track) -> str:
    """Return the content with the failed attempt's arguments, if they were too large for the history."""
    if track.error is not None and track.error.data.get("args_blob"):
        return str(track.error.data["args_blob"])
    called = track.call is not None and (track.heal is None or not track.heal.before)
    return track.call.args_blob if track.call is not None and called else ""


def _better_args(
    state: State, tools: Tools, track: Track, error: Error, args: dict[str, Any]
) -> tuple[dict[str, Any] | None, str]:
    """Return the first untried change that fits the tool's schema, and its source step, if any.

    The order: hint, coercion, did-you-mean, a value of an earlier step. A refusal for good stands, and no change mends
    it, except a filled blank: the refusal was about the blank."""
    spec = tools.get(track.call.tool if track.call is not None else state.tool_of(track))
    if spec is None:
        return None, ""
    final = (track.category or error.category) is Category.PERMANENT
    reads = not final and state.effect_of(track, spec) is Effect.READ
    plain = ((candidate, "") for candidate in ([] if final else _candidates(error, args, spec.schema)))
    for candidate, step in chain(plain, supplied(track, args, state.template(track), reads=reads)):
        if candidate != args and not spec.schema.faults(candidate) and not _was_tried(track, spec.name, candidate):
            return candidate, step
    return None, ""


def _candidates(error: Error, args: dict[str, Any], schema: Any) -> Iterator[dict[str, Any]]:
    if error.suggest:
        yield {**args, **error.suggest}
    mended = coerce(schema, args)
    yield mended if isinstance(mended, dict) else args
    match = _DID_YOU_MEAN.search(error.message[:4000])
    if match:
        texts = {value: key for key, value in args.items() if isinstance(value, str)}
        near = nearest(match.group(1), texts)
        if near is not None:
            yield {**args, texts[near]: match.group(1)}


def _was_tried(track: Track, tool: str, args: Mapping[str, Any]) -> bool:
    mark = signature(dict(args))
    return track.heal is not None and any(key[:2] == (tool, mark) for key in track.heal.tried)


# -- The rungs ----------------------------------------------------------------------------------------------------


def _retry(case: FailureCase) -> Taken:
    track, policy = case.track, case.state.policy
    # No other tool replaces a call that may have had its effect (E2).
    spares = Rung.ALTERNATIVE in LADDER[case.reflection.category] and policy.reflect and not case.lost
    reserve = sum(name in case.tools for name in _untried(case)) if spares else 0
    if case.used + reserve >= case.retries or track.call is None:
        return None
    if case.reflection.category not in (Category.TRANSIENT, Category.UNKNOWN) and not case.lost:
        key = (track.call.tool, case.state.signature(track), case.error.message[:500])
        if track.heal is not None and track.heal.tried.get(key, 0) >= 2:
            case.refuse(tell("reason.same_twice"))
            return None
    delay = backoff(policy, case.used + 1, case.state.run, track.id, track.attempt)
    if case.state.ends_by(case.now + delay):
        return None
    left = case.retries - case.used - 1
    return [ev.RetryScheduled(track.id, track.calls + 1, case.retries + 1, left, delay, case.now + delay)]


def _adjust(case: FailureCase) -> Taken:
    track, args = case.track, case.reflection.args
    if args is None or case.used >= case.retries:
        return None
    if track.heal is not None and track.heal.args is not None and case.error.code == "ARGS_INVALID":
        case.refuse(tell("reason.adjusted_unfit"))
        return None
    spec = case.tools.get(case.tool)
    faults = spec.schema.faults(dict(args)) if spec is not None else []
    if faults or _was_tried(track, case.tool, args):
        case.refuse(faults[0].said if faults else tell("reason.args_tried"))
        return None
    reason = case.reflection.root_cause
    return [_recovered(case, Rung.ADJUST, reason=reason, args=dict(args), course=Course((track.id,)))]


def _untried(case: FailureCase) -> list[str]:
    """Return the alternative tools of the step, then of its tool, not tried in this round."""
    spec = case.tools.get(case.track.step.tool)
    wanted = [*case.track.step.alternatives, *(spec.alternatives if spec else ()), *case.reflection.alternatives]
    tried = case.track.heal.alternatives if case.track.heal is not None else ()
    return [name for name in dict.fromkeys(wanted) if name not in tried and name != case.track.step.tool]


def passed_over(names: Sequence[str], category: Category | None) -> str:
    """Return why alternatives are not tried after a failure, if its category has no such rung."""
    if not names or category is None or Rung.ALTERNATIVE in LADDER[category]:
        return ""
    return tell("reason.alternatives_not_for", names=", ".join(names), category=str(category))


SAID_NO = frozenset({"CONFIRM_REFUSED", "RESOLVED_FAILED"})  # no other tool may bypass a user's refusal
# A tool that took its arguments and did nothing did not reject them. A changed call has another effect. `verify`
# would find that effect and take it for the one that the plan's author wanted.
NOT_THERE = "VERIFY_FAILED"
NOT_ASKED = SAID_NO | {NOT_THERE}


def _alternative(case: FailureCase) -> Taken:
    if case.used >= case.retries or case.error.code in SAID_NO:
        return None
    for name in _untried(case):
        spec = case.tools.get(name)
        if spec is None:
            case.refuse(tell("reason.no_alternative", name=name))
            continue
        if _needs_a_person(case, name):
            case.refuse(tell("reason.person_agrees", name=name))
            continue
        args = case.state.args_of(case.track)
        if args is not None and spec.schema.faults(args):
            case.refuse(tell("reason.alternative_unfit", name=name))
            continue
        return [_recovered(case, Rung.ALTERNATIVE, tool=name, reason=case.error.told, course=Course((case.track.id,)))]
    return None


def _needs_a_person(case: FailureCase, name: str) -> bool:
    """True if only a mind named the tool, it is gated elsewhere, and this call would have no gate."""
    step, spec = case.track.step, case.tools.get(case.track.step.tool)
    named = name in step.alternatives or (spec is not None and name in spec.alternatives)
    return name in case.state.gated and not step.confirm and not named


def _producer(case: FailureCase) -> Taken:
    track, data, code = case.track, case.error.data, case.error.code
    said = data.get("producers", ()) or [data.get("step" if code == "PATH_MISSING" else "producer", "")]
    producers = [found for name in map(str, said) if (found := case.state.tracks.get(name)) is not None]
    gone = code in ("ARTIFACT_GONE", "FILE_DAMAGED") and len(producers) == len(said)
    gone = gone or (code == "PATH_MISSING" and _may_answer_anew(case, producers))
    if not gone or (track.heal is not None and track.heal.producer):
        return None
    for producer in producers:
        if producer.result is not None and producer.result.effect is Effect.ONCE:
            case.refuse(tell("reason.not_twice", id=producer.id))
            return None
    course = Course(tuple(producer.id for producer in producers))
    return [_recovered(case, Rung.PRODUCER, reason=case.error.told, course=course)]


def _may_answer_anew(case: FailureCase, producers: list[Track]) -> bool:
    """True if a tool that only reads gave the output that lacks a part, and its step has a retry left to ask again."""
    for producer in producers:
        result, own = producer.result, producer.step.retries
        if result is None or result.effect is not Effect.READ or result.by or result.stands_in:
            return False
        if producer.calls > (case.state.policy.max_step_retries if own is None else own):
            case.refuse(tell("reason.producer_spent", id=producer.id))
            return False
    return bool(producers)


def _repair(case: FailureCase) -> Taken:
    if case.error.code == NOT_THERE:
        return None
    repairs = case.track.heal.repairs if case.track.heal is not None else 0
    policy = case.state.policy
    return [] if "repair" in policy.minds and repairs < policy.max_single_step_repairs else None


def _fallback(case: FailureCase) -> Taken:
    fallback = case.track.step.fallback
    if fallback is None or (case.track.heal is not None and case.track.heal.fallback):
        return None
    if fallback.tool is None:
        return _stand_in(case, fallback.value)
    if case.error.code in SAID_NO:
        return None
    course = Course((case.track.id,))
    return [_recovered(case, Rung.FALLBACK, tool=fallback.tool, reason=case.error.told, course=course)]


def _stand_in(case: FailureCase, value: Any) -> list[Event]:
    """Return the fallback value as output; it is no call, so it may stand in any number of times."""
    packed = pack(value)
    taken: list[Event] = []
    if packed.digest:
        taken.append(
            ev.ArtifactCreated(case.track.id, case.track.id, case.track.attempt, packed.digest, len(packed.data))
        )
    what = {"output": value, "digest": packed.digest, "size": len(packed.data)}
    return [*taken, _recovered(case, Rung.FALLBACK, reason=case.error.told, **what)]


def _skip(case: FailureCase) -> Taken:
    if case.track.step.critical:
        return None
    key = "skip.SKIP_OPTIONAL" if case.used else "skip.SKIP_OPTIONAL_UNTRIED"
    message = tell(key, retries=case.used, reason=case.error.told)
    return [ev.StepSkipped(case.track.id, "SKIP_OPTIONAL", message, "rules")]


def _replan(case: FailureCase) -> Taken:
    policy = case.state.policy
    return [] if "replan" in policy.minds and case.state.replans < policy.max_task_replanning_attempts else None


RUNGS: Mapping[Rung, Callable[[FailureCase], Taken]] = {
    Rung.RETRY: _retry,
    Rung.ADJUST: _adjust,
    Rung.ALTERNATIVE: _alternative,
    Rung.PRODUCER: _producer,
    Rung.REPAIR: _repair,
    Rung.FALLBACK: _fallback,
    Rung.SKIP: _skip,
    Rung.REPLAN: _replan,
}


def _recovered(case: FailureCase, rung: Rung, **what: Any) -> Event:
    return ev.Recovered(case.track.id, case.track.attempt, rung, by=case.reflection.by, **what)
