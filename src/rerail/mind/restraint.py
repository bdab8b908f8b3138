"""What a mind may not change of a plan, whatever it is asked (SPEC H7, H8, M4): nothing fails open.

Rules of this file:
- A mind says what is to be done: tools, arguments, needs, titles. What makes a step safe or honest (its effect, its
  gate, its checks, its budget, whether it matters) stays as the plan's author said, and new steps get the defaults.
- Work that must not happen twice is not done again under another name.
- A gate cannot be opened, reworded, or walked around: whoever wants a tool that a person has to agree to, asks that
  person, under any step id.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import msgspec

from rerail.core.codes import Category
from rerail.core.plan import Fault, Step, definition
from rerail.core.state import State
from rerail.core.tools import Tools, ToolSpec
from rerail.core.values import NotJson
from rerail.i18n import clipped, tell

# Each with why a mind may not set it.
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
# What goes wrong with calls whose tool is in order: no other one stands in for it, unless the plan names that one (H5).
SOUND = frozenset({Category.PARAMETER, Category.DEPENDENCY})
_BARE = Step("-", "-")
MAX_FAULTS = 50
MAX_FAULT = 1000  # characters


def listed(faults: Sequence[Fault]) -> tuple[str, ...]:
    """Faults as an event holds them: an answer may have thousands, and the history is not there for them."""
    return tuple(clipped(fault.told, MAX_FAULT) for fault in faults[:MAX_FAULTS])


def stand_ins(step: Step, tools: Tools) -> set[str]:
    """The tools that may do a step's work, by the word of whoever wrote the plan or the tool."""
    spec = tools.get(step.tool)
    return {step.tool, *step.alternatives, *(spec.alternatives if spec is not None else ())}


def restrained(
    step: Step,
    old: Step | None,
    faults: list[Fault],
    *,
    running: bool = True,
    gated: Mapping[str, bool | str] = MappingProxyType({}),
) -> Step:
    """The step with everything that is not a mind's to change as it was; a fault for each thing it tried to change.

    ``gated`` are the tools that a person has to agree to, with the question; they are so in whatever a mind writes.
    """
    kept: dict[str, Any] = {}
    for name, why in (KEPT_IN_A_RUN if running else KEPT).items():
        given, default = getattr(step, name), getattr(_BARE, name)
        before = getattr(old, name) if old is not None else default
        if given not in (before, default):
            faults.append(Fault("BAD_VALUE", tell("refuse.mind.not_yours", name=name, why=why), step.id))
        kept[name] = before
    confirm = (old.confirm if old is not None else False) or step.confirm  # a gate may be added, and that is all
    new = msgspec.structs.replace(step, **kept, confirm=confirm)
    if not confirm and (old is None or definition(new) != definition(old)):
        gates = (gated[tool] for tool in (new.tool, *new.alternatives) if tool in gated)
        new = msgspec.structs.replace(new, confirm=next(gates, False))
    return new


def repeated(state: State, steps: Iterable[Step], tools: Tools) -> list[Fault]:
    """Steps that would do again, under another name, what must not happen twice and has happened, or may have.

    What an argument refers to is known when the call is made, and not before; it is looked at there once more.
    """
    faults = []
    for step in steps if state.happened else ():
        try:
            by = state.made_like(tools.get(step.tool) or ToolSpec(step.tool), step.args, chosen=True)
        except NotJson:
            continue  # the check of the plan says so
        done = next((name for name in by if name != step.id or step.id not in state.tracks), None)
        if done is not None:
            faults.append(Fault("BAD_VALUE", tell("refuse.mind.repeats", step=done), step.id))
    return faults
