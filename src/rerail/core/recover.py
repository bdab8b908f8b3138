"""The ladder: what to do about a failed attempt (SPEC H1, H3-H6). One small function per rung.

Rules of this file:
- A rung answers with the events that take it, or with why it does not apply; the first that applies is taken.
- A rung is paid from a budget that is counted from history; nothing here keeps a counter.
- What a reflection proposes is checked before it is believed, whoever made it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from rerail.core import events as ev
from rerail.core.codes import Category
from rerail.core.coerce import coerce
from rerail.core.events import Course, Error, Event
from rerail.core.memory import reordered
from rerail.core.nearest import nearest
from rerail.core.plan import Effect
from rerail.core.policy import LADDER, LEAST_WAIT, NEEDS_RECOVERABLE, WITHOUT_REFLECTION, Rung, backoff
from rerail.core.state import State
from rerail.core.tools import Tools
from rerail.core.track import Track, signature
from rerail.core.upstream import supplied
from rerail.core.values import pack
from rerail.i18n import clipped, say, tell


@dataclass(frozen=True, slots=True)
class Reflection:
    """What somebody thinks of a failure: checked before it is believed."""

    category: Category
    root_cause: str = ""
    recoverable: bool = True
    args: Mapping[str, Any] | None = None  # concrete arguments to try, if any
    confidence: int = 0
    alternatives: tuple[str, ...] = ()
    by: str = "rules"
    action: Rung | None = None  # the rung it asks for; those before it are passed over, none is added


@dataclass(slots=True)
class Case:
    """One failed attempt on the table, with everything a rung may look at."""

    state: State
    tools: Tools
    track: Track
    error: Error
    reflection: Reflection
    now: float
    refused: list[str] = field(default_factory=list)

    @property
    def retries(self) -> int:
        """The step's budget of calls after the first."""
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
        """Whether an attempt of the step may have had its effect, and nothing has settled that."""
        return self.track.effects is not None and self.track.effects.lost

    def refuse(self, reason: str) -> None:
        """Note why a proposal is not followed; recorded with the choice."""
        self.refused.append(reason)


Taken = list[Event] | None
MAX_BEFORE = 3  # how often a step may fail before its call before it has to find another way than trying again
MAX_CRASHES = 3  # how often a call that died with its process is made again at no cost to the step's budget


def heal(state: State, tools: Tools, track: Track, now: float) -> list[Event]:
    """The events that answer a failed attempt: what was thought of it, the rung chosen, and the act."""
    error = track.error or Error("TOOL_FAILED", Category.UNKNOWN, "failed")
    wish = track.heal.not_now if track.heal is not None else None
    if wish is not None and not state.stopped:
        waited = _not_now(state, track, wish, now)
        if waited is not None:
            return [waited]
    reflection = _thought(track) or reflect(state, tools, track, error)
    case = Case(state, tools, track, error, reflection, now)
    if case.lost:
        return _same_key(case)
    if asks_a_mind(case):
        return [ev.Asked("reflect", track.id, track.attempt)]
    return choose(case)


def choose(case: Case) -> list[Event]:
    """The first rung that applies, with what was thought of the failure."""
    state = case.state
    if state.stopped:
        case.refuse(tell("reason.stopped", stopped=state.stopped))
        return [_reflected(case, Rung.FAIL)]
    for rung in _rungs(state, case.track, case.reflection):
        taken = RUNGS[rung](case)
        if taken is not None:
            return [_reflected(case, rung), *taken]
    return [_reflected(case, Rung.FAIL)]


def _same_key(case: Case) -> list[Event]:
    """An effect that may have happened: the same call under the same key while the service knows it, else doubt."""
    if case.error.code == "IN_DOUBT":
        return [_reflected(case, Rung.FAIL)]
    stuck = case.track.heal is not None and case.track.heal.before > MAX_BEFORE  # no call is made: it would never end
    taken = _retry(case) if case.track.is_covered(case.now) and not (case.state.stopped or stuck) else None
    return [_reflected(case, Rung.DOUBT)] if taken is None else [_reflected(case, Rung.RETRY), *taken]


def lapsed(state: State, tools: Tools, track: Track, now: float) -> list[Event]:
    """A call that was to be repeated under its key, which the service does not know any more: it is in doubt."""
    error = track.error or Error("ANSWER_LOST", Category.TRANSIENT, tell("error.ANSWER_LOST"))
    return [_reflected(Case(state, tools, track, error, reflect(state, tools, track, error), now), Rung.DOUBT)]


def answer_doubt(state: State, tools: Tools, track: Track, now: float) -> list[Event]:
    """What a run does about a doubt that only a person can end: go on without the step, fail it, or wait (E3)."""
    spec = tools.get(track.call.tool) if track.call is not None else None
    wanted = track.step.on_doubt or (spec.on_doubt if spec is not None else "") or state.policy.on_doubt
    if wanted == "wait":
        return []
    error = track.error or Error("ANSWER_LOST", Category.TRANSIENT, tell("error.ANSWER_LOST"))
    case = Case(state, tools, track, error, reflect(state, tools, track, error), now)
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


def asks_a_mind(case: Case) -> bool:
    """Whether somebody is asked what to make of the failure, once for each attempt (`reflection.mode`).

    In a hybrid the rules go first, and a mind is asked where they find no category or no concrete change. A person's
    no, what trying again cannot mend, and an effect that is not there are put before nobody.
    """
    policy, heal, thought = case.state.policy, case.track.heal, case.reflection
    if case.state.stopped or not policy.reflect or "reflect" not in policy.minds or policy.reflection_mode == "rules":
        return False
    if case.error.code in NOT_ASKED or thought.category is Category.PERMANENT or thought.by != "rules":
        return False
    if heal is not None and (heal.asked == case.track.attempt or heal.fallback):
        return False
    if policy.reflection_mode == "model" or thought.category is Category.UNKNOWN:
        return True
    if thought.category is Category.PARAMETER:
        return thought.args is None
    return thought.category is Category.TOOL and not any(name in case.tools for name in _untried(case))


def _thought(track: Track) -> Reflection | None:
    """What a mind made of this very attempt, if it was asked and could be believed."""
    said = track.heal.thought if track.heal is not None else None
    if said is None or said.attempt != track.attempt:
        return None
    # Arguments of which only a part is written here were looked at whole, and not taken: else nobody would ask again.
    args = None if said.partial else said.suggestion
    return Reflection(
        said.category, said.root_cause, said.recoverable, args, said.confidence, said.alternatives, said.by
    )


def _rungs(state: State, track: Track, reflection: Reflection) -> Iterator[Rung]:
    fell_back = track.heal is not None and track.heal.fallback
    stuck = track.heal is not None and track.heal.before > MAX_BEFORE
    tool = track.call.tool if track.call is not None else track.step.tool
    rungs = LADDER[reflection.category]
    if state.memory and track.error is not None:
        rungs = reordered(rungs, state.memory, tool, track.error)
    if reflection.action in rungs:
        rungs = rungs[rungs.index(reflection.action) :]
    for rung in rungs:
        if stuck and rung in (Rung.RETRY, Rung.ADJUST, Rung.ALTERNATIVE):
            continue  # no call is made, so no budget is spent: this would go on for ever
        if fell_back and rung not in (Rung.SKIP, Rung.REPLAN):
            continue  # the fallback had its single call; what comes before it on the ladder is behind us
        if not state.policy.reflect and rung not in WITHOUT_REFLECTION:
            continue
        if not reflection.recoverable and rung in NEEDS_RECOVERABLE and reflection.category is not Category.PERMANENT:
            continue
        yield rung


def _not_now(state: State, track: Track, wish: float, now: float) -> Event | None:
    """Wait as long as the tool asked, while the step's total stays within `retry.max_wait` (X8)."""
    waited = track.heal.waited if track.heal is not None else 0.0
    crashed = track.error is not None and track.error.code == "ANSWER_LOST"
    if crashed and track.heal is not None and track.heal.crashes >= MAX_CRASHES:
        return None  # by now it looks as if the step is what takes the process along
    if not crashed and waited + max(wish, LEAST_WAIT) > state.policy.max_wait:
        return None
    budget = state.policy.max_step_retries if track.step.retries is None else track.step.retries
    before = max(0, track.calls - 1)  # this call does not count
    left = budget - max(0, before - 1)
    return ev.RetryScheduled(track.id, before + 1, budget + 1, left, wish, now + wish, not_now=True, crashed=crashed)


def _reflected(case: Case, rung: Rung) -> Event:
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
    """What rules can say of a failure: its category, its cause, and a concrete change where one is known."""
    args = failed_args(state, track)
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


def failed_args(state: State, track: Track) -> dict[str, Any] | None:
    """The arguments of the failed attempt, as far as the history still has them at hand."""
    if track.error is not None and isinstance(track.error.data.get("args"), dict):
        return dict(track.error.data["args"])
    if track.call is not None and track.call.args is not None:
        return track.call.args
    template = state.template(track)
    return template.value if not template.refs and not (track.call and track.call.args_blob) else None


def failed_blob(track: Track) -> str:
    """Where the arguments of the failed attempt are kept, if they were too large for the history itself."""
    if track.error is not None and track.error.data.get("args_blob"):
        return str(track.error.data["args_blob"])
    called = track.call is not None and (track.heal is None or not track.heal.before)
    return track.call.args_blob if track.call is not None and called else ""


def _better_args(
    state: State, tools: Tools, track: Track, error: Error, args: dict[str, Any]
) -> tuple[dict[str, Any] | None, str]:
    """The first concrete change that fits the tool's schema and was not tried, and the step that it came from, if any:
    hint, coercion, did-you-mean, a value of the steps before. Where the tool's no is for good it was said of a blank,
    or it stands: no other change could mend it."""
    spec = tools.get(track.call.tool if track.call is not None else state.tool_of(track))
    if spec is None:
        return None, ""
    final = (track.category or error.category) is Category.PERMANENT
    reads = not final and state.effect_of(track, spec.name, spec.effect) is Effect.READ
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


def _retry(case: Case) -> Taken:
    track, policy = case.track, case.state.policy
    # No other tool stands in for a call that may have had its effect (E2).
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
    left = case.retries - case.used - 1
    return [ev.RetryScheduled(track.id, track.calls + 1, case.retries + 1, left, delay, case.now + delay)]


def _adjust(case: Case) -> Taken:
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


def _untried(case: Case) -> list[str]:
    """The alternative tools of the step, then of its tool, that were not tried in this round."""
    spec = case.tools.get(case.track.step.tool)
    wanted = [*case.track.step.alternatives, *(spec.alternatives if spec else ()), *case.reflection.alternatives]
    tried = case.track.heal.alternatives if case.track.heal is not None else ()
    return [name for name in dict.fromkeys(wanted) if name not in tried and name != case.track.step.tool]


SAID_NO = frozenset({"CONFIRM_REFUSED", "RESOLVED_FAILED"})  # a person's no is not to be got round by another tool
# A tool that took its arguments and did nothing has nothing against them. Whoever changes the call makes another
# effect, which `verify` would find, and which would pass for the one that the plan's author wanted.
NOT_THERE = "VERIFY_FAILED"
NOT_ASKED = SAID_NO | {NOT_THERE}


def _alternative(case: Case) -> Taken:
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
        args = failed_args(case.state, case.track)
        if args is not None and spec.schema.faults(args):
            case.refuse(tell("reason.alternative_unfit", name=name))
            continue
        return [_recovered(case, Rung.ALTERNATIVE, tool=name, reason=case.error.told, course=Course((case.track.id,)))]
    return None


def _needs_a_person(case: Case, name: str) -> bool:
    """Whether a tool that only a mind named is behind a gate elsewhere, and would be called here without one."""
    step, spec = case.track.step, case.tools.get(case.track.step.tool)
    named = name in step.alternatives or (spec is not None and name in spec.alternatives)
    return name in case.state.gated and not step.confirm and not named


def _producer(case: Case) -> Taken:
    track = case.track
    data = case.error.data
    named = [str(name) for name in data.get("producers", ()) or [data.get("producer", "")]]
    producers = [found for name in named if (found := case.state.tracks.get(name)) is not None]
    gone = case.error.code in ("ARTIFACT_GONE", "FILE_DAMAGED") and len(producers) == len(named)
    if not gone or (track.heal is not None and track.heal.producer):
        return None
    for producer in producers:
        if producer.result is not None and producer.result.effect is Effect.ONCE:
            case.refuse(tell("reason.not_twice", id=producer.id))
            return None
    course = Course(tuple(producer.id for producer in producers))
    return [_recovered(case, Rung.PRODUCER, reason=case.error.told, course=course)]


def _repair(case: Case) -> Taken:
    if case.error.code == NOT_THERE:
        return None
    repairs = case.track.heal.repairs if case.track.heal is not None else 0
    policy = case.state.policy
    return [] if "repair" in policy.minds and repairs < policy.max_single_step_repairs else None


def _fallback(case: Case) -> Taken:
    fallback = case.track.step.fallback
    if fallback is None or (case.track.heal is not None and case.track.heal.fallback):
        return None
    if fallback.tool is None:
        return _stand_in(case, fallback.value)
    if case.error.code in SAID_NO:
        return None
    course = Course((case.track.id,))
    return [_recovered(case, Rung.FALLBACK, tool=fallback.tool, reason=case.error.told, course=course)]


def _stand_in(case: Case, value: Any) -> list[Event]:
    """The fallback value in place of an output; it is no call, so it may stand in any number of times."""
    packed = pack(value)
    taken: list[Event] = []
    if packed.digest:
        taken.append(
            ev.ArtifactCreated(case.track.id, case.track.id, case.track.attempt, packed.digest, len(packed.data))
        )
    what = {"output": value, "digest": packed.digest, "size": len(packed.data)}
    return [*taken, _recovered(case, Rung.FALLBACK, reason=case.error.told, **what)]


def _skip(case: Case) -> Taken:
    if case.track.step.critical:
        return None
    key = "skip.SKIP_OPTIONAL" if case.used else "skip.SKIP_OPTIONAL_UNTRIED"
    message = tell(key, retries=case.used, reason=case.error.told)
    return [ev.StepSkipped(case.track.id, "SKIP_OPTIONAL", message, "rules")]


def _replan(case: Case) -> Taken:
    policy = case.state.policy
    return [] if "replan" in policy.minds and case.state.replans < policy.max_task_replanning_attempts else None


RUNGS: Mapping[Rung, Callable[[Case], Taken]] = {
    Rung.RETRY: _retry,
    Rung.ADJUST: _adjust,
    Rung.ALTERNATIVE: _alternative,
    Rung.PRODUCER: _producer,
    Rung.REPAIR: _repair,
    Rung.FALLBACK: _fallback,
    Rung.SKIP: _skip,
    Rung.REPLAN: _replan,
}


def _recovered(case: Case, rung: Rung, **what: Any) -> Event:
    return ev.Recovered(case.track.id, case.track.attempt, rung, by=case.reflection.by, **what)
