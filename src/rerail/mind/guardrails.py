"""The limits of a mind's changes to a plan, for every question (contract H7, H8, M4): they fail closed.

Rules of this file:
- A mind defines the work: tools, arguments, needs, titles. What makes a step safe or honest (its effect, its
  gate, its checks, its budget, its importance) stays with the plan's author, and new steps get the defaults.
- Work that must not be repeated is not done again under another name.
- A gate cannot be opened, reworded, or bypassed: a gated tool asks for approval under every
  step id.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import msgspec

from rerail.codes import Category
from rerail.i18n import clipped, tell
from rerail.kernel.state import State
from rerail.plan.step import Approval, Fault, Step, definition
from rerail.plan.tool_spec import Tools, ToolSpec
from rerail.values.json_values import NotJson

# Each with the reason why a mind may not set it.
KEPT: Mapping[str, str] = {
    "effect": tell("mind.kept.effect"),
    "trust_output": tell("mind.kept.trust_output"),
    "fallback": tell("mind.kept.fallback"),
    "retries": tell("mind.kept.budget"),
    "timeout": tell("mind.kept.budget"),
    "check": tell("mind.kept.check"),
    "verify": tell("mind.kept.done"),
    "produces": tell("mind.kept.done"),
    "on_doubt": tell("mind.kept.effect"),
    "settle": tell("mind.kept.effect"),
    "idempotent_for": tell("mind.kept.effect"),
}
KEPT_IN_A_RUN = {**KEPT, "critical": tell("mind.kept.critical")}
# Failures that are not the tool's fault: only a tool that the plan names may replace it (H5).
SOUND = frozenset({Category.PARAMETER, Category.DEPENDENCY})
_BARE = Step("-", "-")
MAX_FAULTS = 50
MAX_FAULT = 1000  # characters


def listed(faults: Sequence[Fault]) -> tuple[str, ...]:
    """Return faults for an event, limited in number: an answer may have thousands, too many for the history."""
    return tuple(clipped(fault.told, MAX_FAULT) for fault in faults[:MAX_FAULTS])


def stand_ins(step: Step, tools: Tools) -> set[str]:
    """Return the tools that may do a step's work, as the author of the plan or of the tool declared."""
    spec = tools.get(step.tool)
    return {step.tool, *step.alternatives, *(spec.alternatives if spec is not None else ())}


def restrained(
    step: Step,
    old: Step | None,
    faults: list[Fault],
    *,
    running: bool = True,
    gated: Mapping[str, bool | str | Approval] = MappingProxyType({}),
) -> Step:
    """Return the step with all protected fields restored; a fault for each attempted change.

    ``gated`` are the tools that need approval, with the question; a mind's steps keep these gates.
    """
    kept: dict[str, Any] = {}
    for name, why in (KEPT_IN_A_RUN if running else KEPT).items():
        given, default = getattr(step, name), getattr(_BARE, name)
        before = getattr(old, name) if old is not None else default
        if given not in (before, default):
            faults.append(Fault("BAD_VALUE", tell("refuse.mind.not_yours", name=name, why=why), step.id))
        kept[name] = before
    confirm = (old.confirm if old is not None else False) or step.confirm  # a gate may be added, but not changed
    new = msgspec.structs.replace(step, **kept, confirm=confirm)
    if not confirm and (old is None or definition(new) != definition(old)):
        gates = (gated[tool] for tool in (new.tool, *new.alternatives) if tool in gated)
        new = msgspec.structs.replace(new, confirm=next(gates, False))
    return new


def repeated(state: State, steps: Iterable[Step], tools: Tools) -> list[Fault]:
    """Return a fault for each step that would repeat, under another name, an effect that must not be repeated.

    Values of references are known only at the call; the check is repeated there.
    """
    faults = []
    for step in steps if state.once.made else ():
        try:
            by = state.once.like(tools.get(step.tool) or ToolSpec(step.tool), step.args, chosen=True)
        except NotJson:
            continue  # the plan check reports it
        done = next((name for name in by if name != step.id or step.id not in state.tracks), None)
        if done is not None:
            faults.append(Fault("BAD_VALUE", tell("refuse.mind.repeats", step=done), step.id))
    return faults
