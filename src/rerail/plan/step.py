"""A plan's steps and their parts: needs, checks, fallbacks, files, and faults (contract P1-P3)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from rerail.i18n import retold, tell
from rerail.plan.references import Names, Template, compile_args, strings


class When(StrEnum):
    """The outcome of a needed step that satisfies the need."""

    SUCCESS = "success"
    DONE = "done"
    FAILURE = "failure"


class Effect(StrEnum):
    """The consequence of a repeated call."""

    READ = "read"
    REPEATABLE = "repeatable"
    ONCE = "once"


EffectName = Effect | Literal["read", "repeatable", "once"]
OnDoubt = Literal["", "wait", "fail"]


class Need(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A step that must end, and its required outcome, before another may start."""

    step: str
    when: When = When.SUCCESS


class Fallback(msgspec.Struct, frozen=True):
    """The last resort in place of an output: a value, or one call of another tool."""

    value: Any = None
    tool: str | None = None
    args: dict[str, Any] = {}


class Check(msgspec.Struct, frozen=True, omit_defaults=True):
    """The conditions that an output must meet for the step to succeed (V6)."""

    schema: dict[str, Any] | bool | None = None
    non_empty: bool = False
    keys: tuple[str, ...] = ()


class Verify(msgspec.Struct, frozen=True, omit_defaults=True):
    """A read-only tool call that must show the effect (V8)."""

    tool: str
    args: dict[str, Any] = {}
    expect: Any = None


class Produced(msgspec.Struct, frozen=True, omit_defaults=True):
    """A file that a step leaves in the run's workspace, with its validity checks (T1)."""

    path: str
    format: str = ""  # json, yaml or text; by default the name decides
    schema: dict[str, Any] | bool | None = None
    keys: tuple[str, ...] = ()
    non_empty: bool = False
    check: str = ""  # a tool that checks it: called with its path, it raises or returns false for an invalid file

    @property
    def kind(self) -> str:
        """Return the format in which it is checked."""
        if self.format:
            return self.format
        name = self.path.lower()
        if name.endswith(".json") or not name.endswith((".yaml", ".yml")):
            data = name.endswith(".json") or self.schema is not None or bool(self.keys)
            return "json" if data else "text"
        return "yaml"


FORMATS = ("json", "yaml", "text")
RESERVED = frozenset({"task.json", "worker.log", ".rerail"})  # Rerail's own names in a workspace


def path_fault(path: str) -> str:
    """Return why a path cannot be a file of a workspace; empty if it can. Links are checked on disk."""
    parts = path.replace("\\", "/").split("/")
    if not path or not path.isprintable() or parts[-1] in ("", ".", ".."):
        return "refuse.plan.file_no_name"
    if parts[0] == "" or ".." in parts or ":" in parts[0]:
        return "refuse.plan.file_outside"
    names = [part for part in parts if part != "."]
    return "refuse.plan.file_reserved" if names[0].lower() in RESERVED else ""


class Trust(msgspec.Struct, frozen=True, omit_defaults=True):
    """Signs of outputs that look like errors, where the defaults are too many or too few (X9)."""

    ignore: tuple[str, ...] = ()  # members without meaning here; "text": texts are never errors
    suspect: tuple[str | dict[str, Any], ...] = ()  # more signs: a part of an object, words of a text, a member's name


class Approval(msgspec.Struct, frozen=True, omit_defaults=True):
    """A gate that not everyone may answer (I13)."""

    text: str = ""
    by: tuple[str, ...] = ()  # names or roles of tokens, one of which must agree
    four_eyes: bool = False  # the editor of the step's arguments may not agree


class Step(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """One tool call: id, tool, args, needs, and importance."""

    id: str
    tool: str
    args: dict[str, Any] = {}
    needs: tuple[Need, ...] = ()
    title: str = ""
    stage: str = ""
    critical: bool = True
    timeout: float | None = None
    retries: int | None = None
    effect: Effect | None = None
    alternatives: tuple[str, ...] = ()
    fallback: Fallback | None = None
    produces: tuple[Any, ...] = ()  # of `Produced`; older histories hold names and mappings
    confirm: bool | str | Approval = False
    check: Check | None = None
    verify: Verify | None = None
    trust_output: bool | Trust | None = None
    priority: int = 0
    resources: dict[str, float] = {}
    on_doubt: str = ""  # wait or fail, if its effect is in doubt (E3)
    settle: float | str | None = None  # seconds until a look can read its effect; "never": absence proves nothing (V8)
    idempotent_for: float | None = None  # seconds for which the service remembers the step's key (E2)

    if TYPE_CHECKING:  # what is accepted; the attributes above are what is stored

        def __init__(
            self,
            id: str,  # noqa: A002 - the name of the field
            tool: str,
            args: Mapping[str, Any] = ...,
            needs: str | Need | Sequence[str | Need | Mapping[str, Any]] = ...,
            title: str = ...,
            stage: str = ...,
            critical: bool = ...,
            timeout: float | None = ...,
            retries: int | None = ...,
            effect: EffectName | None = ...,
            alternatives: str | Sequence[str] = ...,
            fallback: Fallback | Mapping[str, Any] | None = ...,
            produces: Sequence[str | Produced | Mapping[str, Any]] = ...,
            confirm: bool | str | Approval | Mapping[str, Any] = ...,
            check: Check | Mapping[str, Any] | None = ...,
            verify: Verify | Mapping[str, Any] | None = ...,
            trust_output: bool | Trust | Mapping[str, Any] | None = ...,
            priority: int = ...,
            resources: Mapping[str, float] = ...,
            on_doubt: OnDoubt = ...,
            settle: float | Literal["never"] | None = ...,
            idempotent_for: float | None = ...,
        ) -> None: ...

    def __post_init__(self) -> None:
        # Accepted input: needs=["a", {"step": "b", "when": "done"}] and fallback={"value": 1}; stored as structs.
        needs: Any = self.needs
        if not isinstance(needs, tuple) or not all(isinstance(need, Need) for need in needs):
            wanted = [needs] if isinstance(needs, str | dict | Need) else needs
            msgspec.structs.force_setattr(self, "needs", tuple(as_need(need) for need in wanted))
        gate: Any = self.confirm
        if isinstance(gate, dict):
            msgspec.structs.force_setattr(self, "confirm", msgspec.convert(gate, Approval))
        for name, kind in _KINDS:
            value: Any = getattr(self, name)
            if value is not None and not isinstance(value, kind):
                msgspec.structs.force_setattr(self, name, msgspec.convert(value, kind))
        produces: Any = self.produces
        if not isinstance(produces, tuple) or not all(isinstance(item, Produced) for item in produces):
            msgspec.structs.force_setattr(self, "produces", tuple(as_produced(item) for item in produces))
        trust: Any = self.trust_output
        if isinstance(trust, Mapping):
            msgspec.structs.force_setattr(self, "trust_output", msgspec.convert(trust, Trust))
        alternatives: Any = self.alternatives
        if not isinstance(alternatives, tuple):
            given = (alternatives,) if isinstance(alternatives, str) else tuple(alternatives)
            msgspec.structs.force_setattr(self, "alternatives", given)


_KINDS: tuple[tuple[str, Any], ...] = (("fallback", Fallback), ("check", Check), ("verify", Verify), ("effect", Effect))


def as_produced(value: Any) -> Produced:
    """Return a file from its Python spelling: a path, a mapping, or a `Produced`."""
    if isinstance(value, Produced):
        return value
    if isinstance(value, str):
        return Produced(value)
    return msgspec.convert({"path" if key == "file" else key: item for key, item in value.items()}, Produced)


WHEN_WORDS = {
    "success": When.SUCCESS,
    "all": When.SUCCESS,
    "done": When.DONE,
    "any": When.DONE,
    "failure": When.FAILURE,
}


def as_need(value: Any) -> Need:
    """Return a need from its Python spelling: an id, a mapping, or a Need."""
    if isinstance(value, Need):
        return value
    if isinstance(value, Mapping):
        return Need(str(value["step"]), WHEN_WORDS[str(value.get("when", "success"))])
    return Need(str(value))


class Fault(msgspec.Struct, frozen=True, omit_defaults=True):
    """One fault of a plan, in a sentence that says what to do."""

    code: str
    message: str
    step: str = ""
    place: str = ""  # in the plan's file: its name and the line
    nth: int = 0  # of the steps with that id, if several have it

    def __str__(self) -> str:
        return str(self.told)

    def to_dict(self) -> dict[str, Any]:
        plain = {"code": self.code, "step": self.step or None, "message": str(self.message)}
        return {**plain, "place": self.place} if self.place else plain

    @property
    def told(self) -> str:
        """Return the fault with its step, as a translatable sentence."""
        step = self.step if len(self.step) <= 80 else self.step[:79] + "…"
        told = tell("refuse.plan.of_step", step=step, message=self.message) if step else self.message
        return tell("refuse.plan.at_place", place=self.place, message=told) if self.place else told

    def said(self, lang: str) -> str:
        """Return the fault in a language."""
        return retold(self.told, lang)


def numbered(faults: list[Fault], nth: int) -> list[Fault]:
    """Return the faults of the n-th step with an id."""
    return [msgspec.structs.replace(fault, nth=nth) for fault in faults] if nth else faults


def names_of(steps: Iterable[Step]) -> Names:
    """Return the ids that references may name."""
    ids = {step.id: None for step in steps}
    return Names(ids, max(map(len, ids), default=0))


def gate_text(step: Step, names: Names) -> Template | None:
    """Return the text of the step's gate with parsed references; None without any (valid) one."""
    with suppress(ValueError):
        template = compile_args(question, names) if (question := gate_question(step)) else None
        return template if template and template.refs else None
    return None


def templates_of(step: Step, names: Names) -> tuple[Template | None, ...]:
    """Return the arguments of the step, its fallback, its verification and its gate, with parsed references."""
    fallback = compile_args(step.fallback.args, names) if step.fallback and step.fallback.tool else None
    verify = compile_args(step.verify.args, names) if step.verify else None
    return compile_args(step.args, names), fallback, verify, gate_text(step, names)


def full_needs(step: Step, names: Names) -> tuple[Need, ...]:
    """Return the step's needs with those implied by its references; an explicit ``when`` beats the implied one (P4)."""
    if not (step.args or step.fallback or step.verify or step.confirm) or not any(
        "${" in text for text in texts_in(step)
    ):
        return step.needs
    given = {need.step for need in step.needs}
    implied = dict.fromkeys(ref.step for template in templates_of(step, names) if template for ref in template.refs)
    return step.needs + tuple(Need(other) for other in implied if other not in given and other != step.id)


def texts_in(step: Step) -> Iterator[str]:
    if step.args:
        yield from strings(step.args)
    if step.fallback and step.fallback.tool:
        yield from strings(step.fallback.args)
    if step.verify:
        yield from strings(step.verify.args)
    if step.confirm and (question := gate_question(step)):
        yield question


def gate_question(step: Step) -> str:
    """Return the text of the step's gate as written; empty without one."""
    gate = step.confirm.text if isinstance(step.confirm, Approval) else step.confirm
    return gate if isinstance(gate, str) else ""


def definition(step: Step) -> Step:
    """Return the identity of a step's work: cosmetic and scheduling keys are left out."""
    return msgspec.structs.replace(
        step, title="", stage="", timeout=None, retries=None, priority=0, resources={}, confirm=False,
        on_doubt="", settle=None, idempotent_for=None,
    )  # fmt: skip
