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
from rerail.core.events import Record
from rerail.core.plan import Effect
from rerail.core.policy import Rung
from rerail.core.texts import at_once, span

Told = tuple[str, str, str]  # icon, step, words

NAME_WIDTH = 8


class Narrator:
    """Tells events as lines, with what it has heard so far in mind."""

    def __init__(self, out: Output) -> None:
        self._out = out
        self._began = 0.0
        self._titles: dict[str, str] = {}
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
            case ev.PlanAccepted():
                self._titles = {step.id: step.title for step in event.plan.steps}
            case ev.StepStarted():
                if event.args is not None:
                    self._args[event.step] = event.args
                self._effects[event.step] = event.effect
            case ev.StepSucceeded():
                return "succeeded", event.step, self._titles.get(event.step, "")
            case ev.StepFailed():
                return self._failed(event)
            case ev.RetryScheduled():
                return self._scheduled(event)
            case ev.Recovered():
                return self._recovered(event)
            case ev.StepVerified():
                return self._verified(event)
            case ev.StepSkipped() if event.code == "SKIP_OPTIONAL":
                return "skipped", event.step, "optional: goes on without it, and the verdict says so"
            case ev.Resumed():
                return "act", "run", f"read from the store; answers lost: {', '.join(event.lost)}"
            case ev.Done():
                return event.status, "run", event.summary
            case _:
                pass
        return None

    def _failed(self, event: ev.StepFailed) -> Told:
        self._lost.discard(event.step)
        if event.lost:
            self._lost.add(event.step)
        if event.error.code == "ANSWER_LOST":
            return "failed", event.step, "the process died in the middle of this call"
        return "failed", event.step, event.error.message

    def _scheduled(self, event: ev.RetryScheduled) -> Told:
        if event.asked:
            return "waiting", event.step, f"told to come back in {span(event.delay)}: waits, and spends no retry"
        if event.step in self._lost and self._effects.get(event.step) is not Effect.ONCE:
            return "retry", event.step, f"doing it twice does no harm: calls it again {_after(event.delay)}"
        left = f"{event.retries_left} more" if event.retries_left else "the last time"
        return "retry", event.step, f"this may pass: tries again {_after(event.delay)} ({left})"

    def _recovered(self, event: ev.Recovered) -> Told:
        match event.rung:
            case Rung.ADJUST:
                before, after = self._args.get(event.step, {}), event.args or {}
                changed = {key: value for key, value in after.items() if before.get(key) != value}
                shown = ", ".join(f"{key}={msgspec.json.encode(value).decode()}" for key, value in changed.items())
                return "heal", event.step, f"the error says what was meant: now {shown}"
            case Rung.ALTERNATIVE:
                return "heal", event.step, f"still down, but the plan names another tool: {event.tool}"
            case _:
                return "heal", event.step, f"{event.rung}: {event.reason}"

    def _verified(self, event: ev.StepVerified) -> Told:
        if event.effect == "there":
            return "heal", event.step, "looks before repeating: it did happen. Not called again"
        return "in_doubt", event.step, f"looked whether it happened: {event.effect}"


def _after(delay: float) -> str:
    return "at once" if at_once(delay) else f"in {span(delay)}"


_STYLES = {"failed": "red", "heal": "cyan", "waiting": "yellow", "retry": "yellow", "skipped": "magenta"}


def hang(out: Output, lead: Text, words: Text, width: int | None = None) -> None:
    """Print words behind a lead; where the screen, or the width, ends they go on below themselves."""
    room = max(20, min(out.out.width, width or out.out.width) - lead.cell_len)
    first, *rest = words.wrap(out.out, room) or [Text("")]
    first.rstrip()
    out.print(Text.assemble(lead, first))
    for line in rest:
        out.print(Text.assemble(" " * lead.cell_len, line))
