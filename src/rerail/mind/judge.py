"""Judge: an opinion on the verdict. It may lower it, never raise it; its claims are checked (contract V3-V5, R5)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rerail.i18n import tell
from rerail.kernel import events as ev
from rerail.kernel.state import State
from rerail.kernel.step_state import Status, Track
from rerail.kernel.verdict import ENDED_WELL, evaluation, status_of, summary, verdict
from rerail.plan.step import Effect
from rerail.ports import Question
from rerail.values.json_values import plain_text


def objections(question: Question, answer: Mapping[str, Any]) -> list[str]:
    """Return a fault for unknown steps; every other claim of a judge is checked against the history."""
    known = {row["id"] for row in question.table}
    poor = [item["step"] for item in answer.get("unsatisfactory") or () if isinstance(item, Mapping)]
    return [tell("mind.no_step", name=name) for name in poor[:3] if name not in known]


def read(state: State, answer: Any, by: str) -> ev.Evaluation:
    """Return the verdict with the judge's answer: it may lower it, never raise it; claims are checked (R5)."""
    found = verdict(state)
    if not isinstance(answer, Mapping):
        return unavailable(state, tell("mind.judgement.no_object"))
    claimed = _claims(answer, ("failed_steps", "failedSteps", "failed", "missing_steps"))
    disputed = tuple(step for step in claimed if step in state.tracks and _did_well(state, state.tracks[step]))
    poor, evidence = _unsatisfactory(state, answer.get("unsatisfactory"))
    missing = answer.get("missing", ())
    missing = [missing] if isinstance(missing, str) else missing
    texts = [plain_text(str(item), 500) for item in missing[:50]] if isinstance(missing, list | tuple) else []
    # Work reported as missing, but done, is a dispute, not a lack.
    lacks = tuple(text for text in texts if not (text in state.tracks and _did_well(state, state.tracks[text])))
    disputed += tuple(text for text in texts if text not in lacks and text not in disputed)
    lowered = bool(lacks or poor) or (answer.get("complete") is False and not disputed)
    return ev.Evaluation(
        found.success, found.success and not lowered, found.degraded, found.failed_steps, found.consequences,
        disputed, poor, lacks, by, evidence or plain_text(str(answer.get("reason", "")), 1000),
        summary(state, found),
    )  # fmt: skip


def unavailable(state: State, reason: str = "") -> ev.Evaluation:
    """Return the computed verdict for a judge without a readable answer (V4)."""
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
    """Return the steps that a judge found poor, with evidence, if their effect allows a rerun (V3)."""
    found: dict[str, str] = {}
    for item in value if isinstance(value, list | tuple) else ():
        if not isinstance(item, Mapping) or not item.get("evidence"):
            continue
        track = state.tracks.get(str(item.get("step", "")))
        if (
            track is not None
            and status_of(state, track)[0] in (Status.SUCCEEDED, Status.DEGRADED)
            and not (track.result is not None and track.result.effect is Effect.ONCE)
        ):
            found.setdefault(track.id, plain_text(f"{track.id}: {item['evidence']}", 500))
    return tuple(found), plain_text("; ".join(found.values()), 5_000)
