"""Plans and commands that hold a secret are refused: it would be kept, and the tool would not get it."""

from __future__ import annotations

import msgspec

from rerail.core.command import Command
from rerail.core.plan import Fault, Plan
from rerail.core.scrub import Scrub
from rerail.errors import Refused
from rerail.i18n import Told, as_text, tell


def secrets_in(plan: Plan, scrub: Scrub) -> list[Fault]:
    """A fault for each part of a plan that holds a secret."""
    if not scrub:
        return []
    parts = [("", msgspec.json.encode(plan.objective))]
    parts += [(step.id, msgspec.json.encode(step)) for step in plan.steps]
    found = [(step, _words(data, scrub)) for step, data in parts]
    return [Fault("SECRET_IN_PLAN", words, step) for step, words in found if words is not None]


def refuse_secret(command: Command, scrub: Scrub) -> None:
    """Refuse a command that holds a secret."""
    words = _words(msgspec.json.encode(command, enc_hook=as_text), scrub)
    if words is not None:
        raise Refused(words, "SECRET_GIVEN")


def _words(data: bytes, scrub: Scrub) -> Told | None:
    name = scrub.found(data)
    return None if name is None else tell("refuse.run.secret", name=name)
