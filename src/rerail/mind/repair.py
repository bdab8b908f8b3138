"""Repair: one step rewritten, same id, new tool, arguments or needs, with a reason (contract H7)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from rerail.i18n import one_by_one, tell
from rerail.kernel import events as ev
from rerail.kernel.events import Course, Event
from rerail.kernel.policy import Rung
from rerail.kernel.state import State
from rerail.kernel.step_state import Phase
from rerail.mind.guardrails import SOUND, listed, repeated, restrained, stand_ins
from rerail.plan.model import check_change, check_steps
from rerail.plan.reader import canonical, read_steps
from rerail.plan.step import Fault, Step, definition
from rerail.plan.tool_spec import Tools
from rerail.ports import Question
from rerail.values.json_values import plain_text


def read(state: State, tools: Tools, step: str, attempt: int, answer: Any, by: str) -> Event:
    """Return a repaired step: same id, new tool, args or needs, with a reason (H7)."""
    track = state.tracks.get(step)
    if track is None or track.phase is not Phase.HELD or track.question != "repair" or track.attempt != attempt:
        return ev.Declined("repair", step, tell("reason.moved_on"), late=True)
    reason = plain_text(str(answer.get("reason", "")), 500) if isinstance(answer, Mapping) else ""
    if answer is None or (isinstance(answer, Mapping) and answer.get("step", answer) is None):
        return ev.Declined("repair", step, reason or tell("mind.no_repair"))
    faults: list[Fault] = []
    repaired = _one_step(answer, track.step, faults, state.tracks)
    if repaired is None:
        return ev.Declined("repair", step, one_by_one(fault.told for fault in faults) or tell("mind.answer.no_step"))
    if repaired.id != step:
        faults.append(Fault("BAD_VALUE", tell("refuse.mind.repair_keeps_id", id=repaired.id), step))
    if definition(repaired) == definition(track.step):
        faults.append(Fault("BAD_VALUE", tell("refuse.mind.repair_unchanged"), step))
    faults += _swapped(repaired, track.step, track.category or "", tools)
    repaired = restrained(repaired, track.step, faults, gated=state.gated)
    faults += repeated(state, [repaired], tools)
    olds = [other.step for other in state.tracks.values()]
    faults += check_change(olds, [repaired if old.id == step else old for old in olds], tools)
    if faults:
        return ev.PlanRejected(by, listed(faults), tell("mind.repair_invalid"), "repair", step)
    return ev.Recovered(
        step, attempt, Rung.REPAIR, reason or "repaired", tool=repaired.tool, args=dict(repaired.args),
        course=Course((step,), (repaired,)), by=by,
    )  # fmt: skip


def objections(question: Question, answer: Mapping[str, Any]) -> list[str]:
    """Return the faults of an answer that the question itself shows, for its author to mend."""
    if answer.get("step", answer) is None or question.definition is None:
        return []
    old = msgspec.convert(question.definition, Step)
    faults: list[Fault] = []
    repaired = _one_step(answer, old, faults, [row["id"] for row in question.table])
    if repaired is None:
        return [fault.told for fault in faults] or [tell("mind.answer.no_step")]
    if repaired.id != old.id:
        faults.append(Fault("BAD_VALUE", tell("refuse.mind.repair_keeps_this_id", id=old.id, id2=repaired.id), old.id))
    if definition(repaired) == definition(old):
        faults.append(Fault("BAD_VALUE", tell("refuse.mind.repair_unchanged"), old.id))
    faults += _swapped(repaired, old, str((question.error or {}).get("category", "")), question.tools)
    repaired = restrained(repaired, old, faults)
    # The other tools are known by name alone; their specs do not affect this check.
    others = [Step(row["id"], repaired.tool) for row in question.table if row["id"] != repaired.id]
    alone = [fault for fault in check_steps([repaired, *others], question.tools) if fault.step == repaired.id]
    return [fault.told for fault in (*faults, *alone)]


def _swapped(repaired: Step, old: Step, category: str, tools: Tools) -> list[Fault]:
    """Return a fault if another tool replaces one that is not at fault (H5: category and action agree).

    The tool refused its arguments, or lacks what it needs. Another tool without objections does other work, and
    its answer would count as this step's. Tools that the plan or the tool names are equivalent. No other tool may
    be named, not even as an alternative for later; a new plan may drop the step.
    """
    other = {repaired.tool, *repaired.alternatives} - stand_ins(old, tools)
    if not other or category not in SOUND:
        return []
    names = ", ".join(sorted(other))
    told = tell("refuse.mind.repair_keeps_tool", tool=names, old=old.tool, category=category)
    return [Fault("BAD_VALUE", told, old.id)]


def _one_step(answer: Any, old: Step, faults: list[Fault], known: Iterable[str]) -> Step | None:
    """Return the step in an answer: whole, or only its changes."""
    given = answer.get("step", answer) if isinstance(answer, Mapping) else answer
    if isinstance(given, Step):
        return given
    if not isinstance(given, Mapping):
        return None
    data = canonical({key: value for key, value in given.items() if key != "reason"})
    read = read_steps([{"id": old.id, "tool": old.tool, **data}], faults, known=list(known))
    if faults or not read:
        return None
    new = read[0]
    changes = {name: getattr(new, name) for name in new.__struct_fields__ if name in data}
    return _replaced(old, changes) if new.id == old.id else new


def _replaced(step: Step, changes: Mapping[str, Any]) -> Step:
    fields = {name: getattr(step, name) for name in step.__struct_fields__}
    return Step(**{**fields, **changes})
