"""Refusals of the kernel as exceptions for callers, and their form in an inbox (contract T7, X7)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import msgspec

from rerail.errors import PlanError, Refused, RerailError
from rerail.i18n import UNSAYABLE, Told, as_text, put_together, taken_apart, tell
from rerail.kernel.actions import Faulty, Refusal
from rerail.kernel.commands import Command
from rerail.plan.model import Plan
from rerail.plan.step import Fault
from rerail.values.redaction import Scrub


def error_for(problem: Refusal | Faulty) -> RerailError:
    """Return a refusal as the exception for callers."""
    if isinstance(problem, Faulty):
        return PlanError(tell("refuse.run.change_refused"), problem.faults)
    return Refused(problem.message, problem.code, hint=problem.hint)


@contextmanager
def refusals() -> Iterator[None]:
    """Convert the kernel's refusals to exceptions for callers."""
    try:
        yield
    except (Refusal, Faulty) as problem:
        raise error_for(problem) from None


def encode_answer(problem: RerailError | None) -> bytes:
    """Return the answer to a command as bytes: English sentences with key and values, for a reader elsewhere."""
    if problem is None:
        return msgspec.json.encode({"ok": True})
    plain = problem.to_dict()
    plain["error"]["texts"] = {"message": _apart(problem.message), "hint": _apart(problem.hint)}
    if isinstance(problem, PlanError):
        for row, fault in zip(plain["error"]["faults"], problem.faults, strict=True):
            row["texts"] = {"message": _apart(fault.message)}
    return msgspec.json.encode(plain)


def _apart(text: str) -> dict[str, Any] | None:
    return taken_apart(text) if isinstance(text, Told) else None


def _whole(row: Mapping[str, Any], name: str) -> str:
    """Return a sentence of an answer, translatable if the answer has its key and values."""
    text = str(row.get(name, ""))
    try:
        return put_together(row["texts"][name]).worded(text)
    except UNSAYABLE:
        return text


def raise_answer(data: bytes) -> None:
    """Raise the refusal in an answer, if there is one."""
    told = msgspec.json.decode(data).get("error")
    if told is None:
        return
    if "faults" in told:
        faults = [Fault(f["code"], _whole(f, "message"), f.get("step") or "") for f in told["faults"]]
        raise PlanError(tell("refuse.run.change_refused"), faults)
    raise Refused(_whole(told, "message"), told["code"], hint=_whole(told, "hint"))


def secrets_in(plan: Plan, scrub: Scrub) -> list[Fault]:
    """Return a fault for each part of a plan with a secret: all could read it, and the tool would not get it."""
    parts = [("", msgspec.json.encode(plan.objective))]
    parts += [(step.id, msgspec.json.encode(step)) for step in plan.steps]
    found = [(step, _secret_told(data, scrub)) for step, data in parts]
    return [Fault("SECRET_IN_PLAN", words, step) for step, words in found if words is not None]


def refuse_secret(command: Command, scrub: Scrub) -> None:
    """Refuse a command with a secret in it."""
    words = _secret_told(msgspec.json.encode(command, enc_hook=as_text), scrub)
    if words is not None:
        raise Refused(words, "SECRET_GIVEN")


def _secret_told(data: bytes, scrub: Scrub) -> Told | None:
    name = scrub.found(data)
    return None if name is None else tell("refuse.run.secret", name=name)
