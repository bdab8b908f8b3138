"""Failure memory: per tool and error signature, the rung that worked before (contract H10).

Rules of this file:
- It is learnt from histories and recorded with the run that uses it; it has no other storage.
- It may reorder the rungs of a category. It never adds one, and never exceeds a budget.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping

from rerail.kernel import events as ev
from rerail.kernel.events import Error, Record
from rerail.kernel.policy import Rung

_VARIES = re.compile(r"0x[0-9a-f]+|\d+|'[^']*'|\"[^\"]*\"|/[^\s:]+", re.I)
LEARNT = (Rung.RETRY, Rung.ADJUST, Rung.ALTERNATIVE, Rung.REPAIR)

Lessons = Counter[tuple[str, str]]  # (tool and error, rung) → number of successes


def key_of(tool: str, error: Error) -> str:
    """Return the signature of a failure: tool, code, and message without numbers, names and paths."""
    return f"{tool} {error.code} {_VARIES.sub('*', error.message[:300])[:120]}"


def learn(records: Iterable[Record], lessons: Lessons) -> None:
    """Add the lessons of one run: each rung that was followed by a success of the same step."""
    failed: dict[str, str] = {}
    tried: dict[str, tuple[str, str]] = {}
    tools: dict[str, str] = {}
    for record in records:
        event = record.event
        if isinstance(event, ev.StepStarted):
            tools[event.step] = event.tool
        elif isinstance(event, ev.StepFailed):
            failed[event.step] = key_of(tools.get(event.step, ""), event.error)
            tried.pop(event.step, None)
        elif isinstance(event, ev.Reflected) and event.rung in LEARNT and event.step in failed:
            tried[event.step] = (failed[event.step], str(event.rung))
        elif isinstance(event, ev.StepSucceeded) and event.step in tried:
            lessons[tried.pop(event.step)] += 1


def preferred(lessons: Lessons) -> dict[str, str]:
    """Return, per failure, the rung that worked most often."""
    best: dict[str, tuple[int, str]] = {}
    for (key, rung), count in sorted(lessons.items()):
        if count > best.get(key, (0, ""))[0]:
            best[key] = (count, rung)
    return {key: rung for key, (_, rung) in best.items()}


def reordered(rungs: tuple[Rung, ...], memory: Mapping[str, str], tool: str, error: Error) -> tuple[Rung, ...]:
    """Return the rungs of a category, with the one that worked before in front if it is among them."""
    known = memory.get(key_of(tool, error)) if memory else None
    if known is None or known not in rungs:
        return rungs
    first = Rung(known)
    return (first, *(rung for rung in rungs if rung is not first))
