"""Judge: a word on the verdict. It may lower it, never raise it; its claims are checked (SPEC V3-V5, R5)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rerail.core import events as ev
from rerail.core.plan import Effect
from rerail.core.state import State
from rerail.core.track import Status, Track
from rerail.core.values import plain_text
from rerail.core.verdict import ENDED_WELL, evaluation, status_of, summary, verdict
from rerail.i18n import tell
from rerail.mind import words
from rerail.ports import Prompt, Question

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "complete": {"type": "boolean"},
        "missing": {"type": "array", "items": {"type": "string"}},
        "failed_steps": {"type": "array", "items": {"type": "string"}},
        "unsatisfactory": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {"step": {"type": "string"}, "evidence": {"type": "string"}},
                "required": ["step", "evidence"],
            },
        },
        "reason": {"type": "string"},
    },
    "required": ["complete", "reason"],
}


def ask(question: Question, template: str, room: int = words.ROOM) -> Prompt:
    """The whole table, the outputs trimmed, the objective, and beside them the latest events (V3)."""
    return words.filled(template, "judge", words.pieces(question, room), SCHEMA)


def objections(question: Question, answer: Mapping[str, Any]) -> list[str]:
    """Steps that are not there; everything else a judge says is checked against the history."""
    known = {row["id"] for row in question.table}
    poor = [item["step"] for item in answer.get("unsatisfactory") or () if isinstance(item, Mapping)]
    return [tell("mind.no_step", name=name) for name in poor[:3] if name not in known]


def read(state: State, answer: Any, by: str) -> ev.Evaluation:
    """The verdict with a judge's word: it may lower it, never raise it; claims are checked against history (R5)."""
    found = verdict(state)
    if not isinstance(answer, Mapping):
        return unavailable(state, tell("mind.judgement.no_object"))
    claimed = _claims(answer, ("failed_steps", "failedSteps", "failed", "missing_steps"))
    disputed = tuple(step for step in claimed if step in state.tracks and _did_well(state, state.tracks[step]))
    poor, evidence = _unsatisfactory(state, answer.get("unsatisfactory"))
    missing = answer.get("missing", ())
    missing = [missing] if isinstance(missing, str) else missing
    texts = [plain_text(str(item), 500) for item in missing[:50]] if isinstance(missing, list | tuple) else []
    # What is said to be missing, but was done, is a dispute and not a lack.
    lacks = tuple(text for text in texts if not (text in state.tracks and _did_well(state, state.tracks[text])))
    disputed += tuple(text for text in texts if text not in lacks and text not in disputed)
    lowered = bool(lacks or poor) or (answer.get("complete") is False and not disputed)
    return ev.Evaluation(
        found.success, found.success and not lowered, found.degraded, found.failed_steps, found.consequences,
        disputed, poor, lacks, by, evidence or plain_text(str(answer.get("reason", "")), 1000),
        summary(state, found),
    )  # fmt: skip


def unavailable(state: State, reason: str = "") -> ev.Evaluation:
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
