"""What a mind may not change of a plan, whatever it is asked (SPEC H7, H8, M4): nothing fails open.

Rules of this file:
- A mind says what is to be done: tools, arguments, needs, titles. What makes a step safe or honest (its effect, its
  gate, its checks, its budget, whether it matters) stays as the plan's author said, and new steps get the defaults.
- Work that must not happen twice is not done again under another name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from rerail.core.plan import Effect, Fault, Step
from rerail.core.state import State
from rerail.core.texts import tell
from rerail.core.tools import Tools
from rerail.core.track import Phase, Track

# Each with why a mind may not set it.
KEPT: Mapping[str, str] = {
    "effect": "whether a tool may be called twice is for its author to say",
    "trust_output": "an output that looks like an error is not to be talked away",
    "fallback": "made-up results are for the plan's author to allow",
    "retries": "budgets are not a mind's to raise",
    "timeout": "budgets are not a mind's to raise",
    "check": "what counts as a result is for the plan's author to say",
    "verify": "what counts as done is for the plan's author to say",
    "produces": "what counts as done is for the plan's author to say",
}
KEPT_IN_A_RUN = {**KEPT, "critical": "whether a step matters is for the plan's author to say"}
_BARE = Step("-", "-")


def restrained(step: Step, old: Step | None, faults: list[Fault], *, running: bool = True) -> Step:
    """The step with everything that is not a mind's to change as it was; a fault for each thing it tried to change."""
    kept: dict[str, Any] = {}
    for name, why in (KEPT_IN_A_RUN if running else KEPT).items():
        given, default = getattr(step, name), getattr(_BARE, name)
        before = getattr(old, name) if old is not None else default
        if given not in (before, default):
            faults.append(Fault("BAD_VALUE", tell("refuse.mind.not_yours", name=name, why=why), step.id))
        kept[name] = before
    confirm = step.confirm or (old.confirm if old is not None else False)  # a gate may be added, never opened
    return msgspec.structs.replace(step, **kept, confirm=confirm)


def repeated(state: State, tools: Tools, steps: Iterable[Step]) -> list[Fault]:
    """Steps that would do again, under another name, what must not happen twice and has happened, or may have."""
    done = [track for track in state.tracks.values() if _has_happened(track)]
    if not done:
        return []
    faults = []
    for step in steps:
        spec = tools.get(step.tool)
        if spec is None or (step.effect or spec.effect) is not Effect.ONCE:
            continue
        for track in done:
            if track.id != step.id and _same_call(track, step):
                message = tell("refuse.mind.repeats", step=track.id)
                faults.append(Fault("BAD_VALUE", message, step.id))
                break
    return faults


def _has_happened(track: Track) -> bool:
    if track.phase is Phase.DOUBT:
        return True
    return track.result is not None and track.result.effect is Effect.ONCE


def _same_call(track: Track, step: Step) -> bool:
    """Whether a step would call the same tool with the same arguments, as the plan or as the call itself had them."""
    tool = track.call.tool if track.call is not None else track.step.tool
    made = track.call.args if track.call is not None else None
    return step.tool in (tool, track.step.tool) and step.args in (track.step.args, made)
