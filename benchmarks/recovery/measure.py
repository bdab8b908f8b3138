"""What one case came to, measured against the oracle and by what the world saw: nothing here asks a contender.

Rules of this file:
- Right is who leaves the world as the oracle does, with the same steps really done; correct is who also says so.
- A call is needless if the oracle made fewer of that step. It is a success done again, a call below a step that is not
  done, or else a try that could not help.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from dataclasses import asdict, dataclass
from typing import Any

from benchmarks.recovery.client import TIMEOUT
from benchmarks.recovery.drive import Seen

OUTCOMES = ("correct", "waiting", "honest_failure", "false_failure", "false_success")


@dataclass(frozen=True)
class Measured:
    """One case of one contender."""

    contender: str
    case: str
    group: str
    base: str
    effect: str
    outcome: str  # one of OUTCOMES
    redone: int  # needless calls: of steps that were done
    hopeless: int  # that could not help
    below: int  # of steps whose need was not done
    duplicates: int  # effects of `once` tools that happened again
    rerun: int  # steps that were done and known to be before a kill, called again after it
    waited: float  # seconds between a call that failed and the next of the same step
    calls: int
    kills: int
    asked: int
    seconds: float
    silent: bool  # whether a tool said it had acted and had not: nobody without a look at the effect can know
    why: str

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        return asdict(self)


def measured(seen: Seen, oracle: Seen, task: dict[str, Any], effects: dict[str, str]) -> Measured:
    """A case, beside the oracle's."""
    redone, hopeless, below = _needless(seen.calls, oracle.calls, task)
    case = seen.case
    return Measured(
        contender=seen.contender, case=case.id, group=case.group, base=case.base, effect=case.effect,
        outcome=outcome(seen, oracle), redone=redone, hopeless=hopeless, below=below,
        duplicates=_duplicates(seen.calls, oracle.calls, effects), rerun=_rerun(seen.calls), waited=_waited(seen.calls),
        calls=len(seen.calls), kills=seen.kills, asked=seen.asked, seconds=seen.seconds,
        silent=any(fault.kind == "silent_noop" for fault in case.faults),
        why="" if outcome(seen, oracle) == "correct" else seen.why[:300],
    )  # fmt: skip


def outcome(seen: Seen, oracle: Seen) -> str:
    """How a case ended, and whether what was said of it is true."""
    right = seen.state == oracle.state and _done(seen.calls) == _done(oracle.calls)
    if seen.status == "waiting":
        return "waiting"
    if right and seen.status == oracle.status:
        return "correct"
    if seen.status == "success":
        return "false_success"
    return "false_failure" if right else "honest_failure"


def _done(calls: list[dict[str, Any]]) -> set[str]:
    """Steps that were really done: the world is changed, or the answer was heard."""
    return {call["step"] for call in calls if call["done"] and (call["effect"] or call["told"])}


def _needless(calls: list[dict[str, Any]], least: list[dict[str, Any]], task: dict[str, Any]) -> tuple[int, int, int]:
    wanted = Counter(call["step"] for call in least)
    needs = {step["id"]: step["needs"] for step in task["steps"]}
    made: Counter[str] = Counter()
    done: set[str] = set()
    redone = hopeless = below = 0
    for call in calls:
        step = call["step"]
        made[step] += 1
        if made[step] > wanted[step]:
            if step in done:
                redone += 1
            elif any(need not in done for need in needs.get(step, ())):
                below += 1
            else:
                hopeless += 1
        if call["done"] and (call["effect"] or call["told"]):
            done.add(step)
    return redone, hopeless, below


def _duplicates(calls: list[dict[str, Any]], least: list[dict[str, Any]], effects: dict[str, str]) -> int:
    """Effects that must not happen twice and did, under whatever step's name; what the plan wants twice is none."""
    wanted = _effects(least, effects)
    return sum(count - max(1, wanted[call]) for call, count in _effects(calls, effects).items() if count > wanted[call])


def _effects(calls: list[dict[str, Any]], effects: dict[str, str]) -> Counter[str]:
    found: Counter[str] = Counter()
    for call in calls:
        tool = call["tool"].removesuffix("_v1")
        if call["effect"] and effects.get(tool) == "once":
            found[f"{tool} {json.dumps(call['args'], sort_keys=True)}"] += 1
    return found


def _rerun(calls: list[dict[str, Any]]) -> int:
    known: set[str] = set()
    found, pid = 0, None
    before: set[str] = set()
    for call in calls:
        if call["pid"] != pid:
            pid, before = call["pid"], set(known)
        found += call["step"] in before
        if call["done"] and call["told"]:
            known.add(call["step"])
    return found


def _waited(calls: list[dict[str, Any]]) -> float:
    last: dict[str, dict[str, Any]] = defaultdict(dict)
    total = 0.0
    for call in calls:
        before = last[call["step"]]
        if before and before["pid"] == call["pid"]:
            total += call["at"] - before["until"] - (TIMEOUT if before["fault"] == "slow_answer" else 0.0)
        last[call["step"]] = call
    return max(0.0, total)
