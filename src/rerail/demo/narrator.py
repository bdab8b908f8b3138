"""Tells a run as it happens: for each event that matters one line, in plain words.

Rules of this file:
- Everything told here is read from events; the narrator knows nothing that `rerail logs` would not show.
"""

from __future__ import annotations

from typing import Any

import msgspec
from rich.text import Text

from rerail.cli.output import Output, one_line
from rerail.cli.style import icon
from rerail.core import events as ev
from rerail.core.codes import NO_ANSWER
from rerail.core.events import Record
from rerail.core.plan import Effect
from rerail.core.policy import Rung
from rerail.core.state import State
from rerail.core.verdict import done_summary
from rerail.i18n import at_once, span

Told = tuple[str, str, str]  # icon, step, words

NAME_WIDTH = 8


class Narrator:
    """Tells events as lines, with what it has heard so far in mind."""

    def __init__(self, out: Output, state: State) -> None:
        self._out, self._state = out, state
        self._began = 0.0
        self._args: dict[str, dict[str, Any]] = {}  # the arguments each step was last called with
        self._effects: dict[str, Effect] = {}
        self._lost: set[str] = set()  # steps whose last answer was lost

    def tell(self, record: Record) -> None:
        """Print the event, if there is something to say about it."""
        if isinstance(record.event, ev.RunStarted):
            self._began = record.at
        told = self._told(record.event)
        if told is None:
            return
        sign, step, words = told
        clock = f"{f'+{record.at - self._began:.1f} s':>9}  "
        lead = Text(clock, "dim").append_text(icon(sign, fancy=self._out.fancy))
        lead.append(f" {step:<{NAME_WIDTH}}  ", "bold")
        hang(self._out, lead, Text(one_line(words), _STYLES.get(sign, "")))

    def _told(self, event: ev.Event) -> Told | None:
        match event:
            case ev.StepStarted():
                if event.args is not None:
                    self._args[event.step] = event.args
                self._effects[event.step] = event.effect
            case ev.StepSucceeded():
                return "succeeded", event.step, self._say(f"step.{event.step}")
            case ev.StepFailed():
                return self._failed(event)
            case ev.RetryScheduled():
                return self._scheduled(event)
            case ev.Recovered():
                return self._recovered(event)
            case ev.StepVerified():
                return self._verified(event)
            case ev.StepSkipped() if event.code == "SKIP_OPTIONAL":
                return "skipped", event.step, self._say("optional")
            case ev.Resumed():
                return "act", "run", self._say("resumed", names=", ".join(event.lost))
            case ev.Done():
                return event.status, "run", done_summary(self._state, event, self._out.lang)
            case _:
                pass
        return None

    def _failed(self, event: ev.StepFailed) -> Told:
        self._lost.discard(event.step)
        if event.lost and event.error.code in NO_ANSWER:
            self._lost.add(event.step)
        if event.error.code == "ANSWER_LOST":
            return "failed", event.step, self._say("died")
        error = event.error
        return "failed", event.step, self._out.told(error.told)

    def _scheduled(self, event: ev.RetryScheduled) -> Told:
        if event.asked:
            return "waiting", event.step, self._say("come_back", delay=span(event.delay))
        if event.step in self._lost and self._effects.get(event.step) is not Effect.ONCE:
            return "retry", event.step, self._say("harmless", after=self._after(event.delay))
        left = self._say("more", count=event.retries_left) if event.retries_left else self._say("last_time")
        return "retry", event.step, self._say("may_pass", after=self._after(event.delay), left=left)

    def _recovered(self, event: ev.Recovered) -> Told:
        match event.rung:
            case Rung.ADJUST:
                before, after = self._args.get(event.step, {}), event.args or {}
                changed = {key: value for key, value in after.items() if before.get(key) != value}
                shown = ", ".join(f"{key}={msgspec.json.encode(value).decode()}" for key, value in changed.items())
                return "heal", event.step, self._say("meant", args=shown)
            case Rung.ALTERNATIVE:
                return "heal", event.step, self._say("other_tool", tool=event.tool)
            case _:
                return "heal", event.step, f"{event.rung}: {self._out.told(event.reason)}"

    def _after(self, delay: float) -> str:
        return self._say("at_once") if at_once(delay) else self._say("in", delay=span(delay))

    def _say(self, key: str, **values: Any) -> str:
        return self._out.say(f"demo.{key}", **values)

    def _verified(self, event: ev.StepVerified) -> Told:
        if event.effect == "there":
            return "heal", event.step, self._say("found")
        return "in_doubt", event.step, self._say("looked", effect=self._out.say(f"why.effect.{event.effect}"))


_STYLES = {"failed": "red", "heal": "cyan", "waiting": "yellow", "retry": "yellow", "skipped": "magenta"}


def hang(out: Output, lead: Text, words: Text, width: int | None = None) -> None:
    """Print words behind a lead; where the screen, or the width, ends they go on below themselves."""
    room = max(20, min(out.out.width, width or out.out.width) - lead.cell_len)
    first, *rest = words.wrap(out.out, room) or [Text("")]
    first.rstrip()
    out.print(Text.assemble(lead, first))
    for line in rest:
        out.print(Text.assemble(" " * lead.cell_len, line))
