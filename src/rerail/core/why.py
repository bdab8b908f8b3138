"""The story of a run, or of one step, told from its history in the order it happened (`why`)."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from rerail.core import events as ev
from rerail.core.codes import NO_ANSWER, Category
from rerail.core.events import Course, Record
from rerail.core.lines import confirmed, gate_said
from rerail.core.plan import Effect
from rerail.core.policy import Rung
from rerail.core.state import State
from rerail.core.track import RunStatus
from rerail.core.verdict import (
    done_summary,
    doubts_of,
    error_of,
    gate_row,
    run_status,
    skip_message,
    status_of,
    summary,
    swapped,
    verdict,
)
from rerail.core.views import degraded_said
from rerail.i18n import at_once, retold, say, span

MAX_SHOWN = 160

FRAME = re.compile(r'File "(.+?)", line (\d+), in (.+)')
# Where a call passes through on its way, and what it may end in: neither is where a user would look first.
PASSED = ("/rerail/engine/", "/rerail/adapters/")
LIBRARIES = ("/site-packages/", "/dist-packages/", "/lib/python", "<frozen")


def story(state: State, records: Iterable[Record], step: str | None = None, lang: str = "en") -> str:
    """What happened and why, one line a fact; of one step, or of the whole run without its plain successes."""
    teller = _Teller(state, step, lang)
    lines = teller.opening()
    for record in records:
        lines += teller.tell(record)
    return "\n".join([*lines, *teller.closing()])


def failures(records: Iterable[Record], step: str | None = None) -> list[dict[str, Any]]:
    """The failed attempts of a run, or of one step, with everything that is known about each."""
    found = [(record, record.event) for record in records if isinstance(record.event, ev.StepFailed)]
    return [
        {
            "step": event.step, "attempt": event.attempt, "at": record.at, "code": event.error.code,
            "category": str(event.error.category), "message": str(event.error.message), "lost": event.lost,
            "type": event.error.type or None, "traceback": event.error.traceback or None,
        }
        for record, event in found
        if step is None or event.step == step
    ]  # fmt: skip


def place_of(traceback: str) -> str:
    """Where an error happened, in short: the last frame in a file of the user's, else the last of all."""
    frames = [(path.replace("\\", "/"), line, name) for path, line, name in FRAME.findall(traceback)]
    frames = [frame for frame in frames if not any(part in frame[0] for part in PASSED)]
    own = [frame for frame in frames if not any(part in frame[0] for part in LIBRARIES)]
    if not frames:
        return ""
    path, line, name = (own or frames)[-1]
    return f"{path.rpartition('/')[2]}:{line} ({name})"


class Moments:
    """When things happened, counted from the start of a run.

    A clock may be set back, and another process or machine may have another one: what came later is told as later.
    """

    def __init__(self, begun: float) -> None:
        self._last, self._passed = begun, 0.0

    def __call__(self, at: float) -> float:
        """Seconds since the start, for the next event."""
        self._passed += max(0.0, at - (self._last or at))
        self._last = at
        return self._passed


class _Teller:
    def __init__(self, state: State, step: str | None, lang: str) -> None:
        self.state, self.step, self.lang = state, step, lang
        self.moments = Moments(state.created_at)
        self.about = ""  # the step that the last line is about
        self.place = ""  # where the last error happened: said once, not at every attempt

    def say(self, key: str, **values: Any) -> str:
        return say(key, self.lang, **values)

    def told(self, text: str) -> str:
        return retold(text, self.lang)

    def status(self, status: str) -> str:
        return self.say(f"status.{status}")

    def opening(self) -> list[str]:
        if self.step is None:
            return [self.say("why.run", run=self.state.run, objective=self.state.objective or "-")]
        track = self.state.tracks[self.step]
        title = f" ({track.step.title})" if track.step.title else ""
        lines = [self.say("why.step", step=track.id, tool=track.step.tool, title=title)]
        if tools := swapped(self.state, track):
            lines.append(self.say("why.instead", **tools))
        if track.needs:
            needs = ", ".join(need.id if when == "success" else f"{need.id} ({when})" for need, when in track.needs)
            lines.append(self.say("why.needs", needs=needs))
        return lines

    def closing(self) -> list[str]:
        run = self.state.run
        if self.step is None:
            found = verdict(self.state)
            lines = [
                self.say(
                    "why.now_run",
                    status=self.status(run_status(self.state)),
                    summary=self.told(summary(self.state, found)),
                )
            ]
            if self.state.rest is not None and self.state.rest.status != RunStatus.COMPLETED:
                lines.append(self.say("why.next", command=self._retry(found.failed_steps)))
            return lines
        track = self.state.tracks[self.step]
        status, code = status_of(self.state, track)
        error = error_of(self.state, track, status, code, self.lang)
        detail = f" [{error['code']}]: {error['message']}" if error else ""
        if status == "degraded":
            detail = self.say("why.because", reason=degraded_said(track, self.lang))
        elif code == "confirm":
            question = track.step.confirm if isinstance(track.step.confirm, str) else ""
            detail = self.say("why.confirm") + (f": {question}" if question else "")
            shown = track.gate.shown if track.gate is not None and track.n not in self.state.unshown else None
            detail += "  " + gate_said(gate_row(shown), self.lang) if shown is not None else ""
        lines = [self.say("why.now", status=self.status(status), detail=detail)]
        if status == "in_doubt" or self.step in doubts_of(self.state):
            lines.append(
                self.say("why.next", command=f"rerail resolve {run} {self.step} --succeeded VALUE | --failed | --rerun")
            )
        elif status == "failed":
            lines.append(self.say("why.next", command=self._retry([{"id": track.id}])))
        elif code == "confirm":
            lines.append(self.say("why.next", command=f"rerail confirm {run} {self.step}"))
        return lines

    def _retry(self, failed: Iterable[Mapping[str, Any]]) -> str:
        """The retry that would not be refused; of a run that goes on elsewhere, the way there."""
        if self.state.copied:
            return "rerail import FILE --own"
        if self.state.moved is not None:
            return f"rerail show {self.state.run} --store {self.state.moved[0]}"
        categories = {self.state.tracks[row["id"]].category for row in failed}
        permanent = categories == {Category.PERMANENT}
        return f"rerail retry {self.state.run} --dry-run" + (" --force" if permanent else "")

    def tell(self, record: Record) -> list[str]:
        event, moment = record.event, self.moments(record.at)
        teller = TELL.get(type(event))
        if teller is None or (self.step is not None and not self._about(event)):
            return []
        lines = teller(self, event, _clock(moment))
        if lines:
            self.about = getattr(event, "step", "")
        return lines

    def _about(self, event: Any) -> bool:
        if isinstance(event, ev.RetryBegin):
            return self.step in event.chain
        if isinstance(event, ev.Replanned):
            return any(step.id == self.step for step in event.course.steps)
        return (
            getattr(event, "step", None) in (self.step, "")
            if not isinstance(event, ev.Done | ev.Waiting | ev.Resumed | ev.Notified)
            else False
        )

    # -- One method per kind of event -----------------------------------------------------------------------------

    def gate_opened(self, event: ev.GateOpened, time: str) -> list[str]:
        call = gate_said(gate_row(event), self.lang)
        return [self.say("why.gate", time=time, who=self.who(event.step), call=call)]

    def started(self, event: ev.StepStarted, time: str) -> list[str]:
        if self.step is None:
            return []
        key = "why.fallback_call" if event.rung is Rung.FALLBACK else "why.started"
        args = self.say("why.with", args=_shown(event.args)) if event.args else ""
        return [self.say(key, time=time, attempt=event.attempt, tool=event.tool, args=args)]

    def succeeded(self, event: ev.StepSucceeded, time: str) -> list[str]:
        if self.step is None:
            return []
        output = (
            f": {_shown(event.output)}"
            if event.output is not None
            else self.say("why.bytes", size=event.size)
            if event.blob
            else ""
        )
        line = self.say("why.succeeded", time=time, attempt=event.attempt, elapsed=span(event.elapsed), output=output)
        late = [self.say("why.shown_late", waited=span(event.waited))] if event.waited >= 0.1 else []
        return [line, *late, *([self.say("why.unverified")] if event.unverified else [])]

    def failed(self, event: ev.StepFailed, time: str) -> list[str]:
        error = event.error
        message = self.told(error.told)
        key = "why.failed" if event.called else "why.failed_before"
        if event.lost and not event.elapsed and error.code in NO_ANSWER:
            key = "why.cut_off"
        elif error.code == "RESOLVED_FAILED":  # a person's word on a call in doubt: it was made, and took nobody's time
            key = "why.declared"
        line = self.say(
            key, time=time, who=self.who(event.step), attempt=event.attempt, elapsed=span(event.elapsed),
            message=message, code=error.code, category=error.category,
        )  # fmt: skip
        track = self.state.tracks.get(event.step)
        effect = track.call.effect if track is not None and track.call is not None else Effect.REPEATABLE
        lines = [line]
        if event.lost and error.code in NO_ANSWER and effect is not Effect.READ:
            lines.append(self.say("why.lost"))
        elif event.lost and effect is Effect.ONCE:
            lines.append(self.say("why.unsure"))
        place = place_of(error.traceback) if self.step is not None else ""
        if place and place != self.place:
            self.place = place
            lines.append(self.say("why.place", place=place))
        return lines

    def who(self, step: str) -> str:
        """The step's name, where the story is not about one step."""
        return f"{step}: " if self.step is None else ""

    def named(self, step: str) -> str:
        """The step's name, where the line before is not about it: steps fail side by side, and so do their words."""
        return self.who(step) if step and step != self.about else ""

    def verified(self, event: ev.StepVerified, time: str) -> list[str]:
        reason = self.say("why.and", reason=self.told(event.reason)) if event.reason else ""
        effect = self.say(f"why.effect.{event.effect}")
        waited = self.say("why.waited", looks=event.looks, waited=span(event.waited)) if event.looks > 1 else ""
        return [self.say("why.verified", time=time, who=self.who(event.step), effect=effect, reason=reason) + waited]

    def skipped(self, event: ev.StepSkipped, time: str) -> list[str]:
        track = self.state.tracks.get(event.step)
        message = self.told(event.message)
        if self.lang != "en" and track is not None and status_of(self.state, track)[1] == event.code:
            message = skip_message(self.state, track, event.code, self.lang)
        return [self.say("why.skipped", time=time, message=self.who(event.step) + message, code=event.code)]

    def kept(self, event: ev.StepKept, time: str) -> list[str]:
        key = {"": "why.kept", "needless": "why.kept_needless"}.get(event.stale, "why.kept_once")
        return [self.say(key, time=time)] if self.step else []

    def renewed(self, event: ev.StepRenewed, time: str) -> list[str]:
        return [self.say("why.renewed", time=time)] if self.step else []

    def scheduled(self, event: ev.RetryScheduled, time: str) -> list[str]:
        who = self.named(event.step)
        if event.crashed:
            return [self.say("why.again", who=who)]
        if event.not_now:
            return [self.say("why.not_now", who=who, delay=span(event.delay))]
        key = "why.retry_now" if at_once(event.delay) else "why.retry"
        number, most = event.retry
        return [self.say(key, who=who, delay=span(event.delay), number=number, most=most, left=event.retries_left)]

    def reflected(self, event: ev.Reflected, time: str) -> list[str]:
        facts: list[tuple[str, dict[str, Any]]] = []
        if event.by != "rules":
            cause = self.told(event.root_cause) or "-"
            thought = {"by": event.by, "cause": cause, "category": event.category, "sure": event.confidence}
            facts.append(("why.thought", thought))
        facts += [("why.refused", {"reason": self.told(reason)}) for reason in event.refused]
        if event.rung is Rung.FAIL:
            because = self.say("why.permanent") if event.category == "permanent_error" else ""
            facts.append(("why.give_up", {"because": because}))
        elif event.rung is Rung.DOUBT:
            facts.append(("why.left_in_doubt", {}))
        elif event.rung in (Rung.REPAIR, Rung.REPLAN):
            facts.append((f"why.ask.{event.rung}", {}))
        who = self.named(event.step)
        return [self.say(key, who="" if n else who, **values) for n, (key, values) in enumerate(facts)]

    def recovered(self, event: ev.Recovered, time: str) -> list[str]:
        what = event.tool or _shown(event.output)
        key = f"why.rung.{event.rung}"
        reason = self.told(event.reason)
        facts = {"args": _shown(event.args), "tool": event.tool, "by": event.by, "reason": reason, "what": what}
        return [self.say(key, who=self.named(event.step), **facts)]

    def asked(self, event: ev.Asked, time: str) -> list[str]:
        reason = self.told(event.reason)
        return [self.say(f"why.asked.{event.question}", time=time, who=self.who(event.step), reason=reason)]

    def consulted(self, event: ev.Consulted, time: str) -> list[str]:
        tokens = event.input_tokens + event.output_tokens
        cost = f", {event.cost:.4f}" if event.cost else ""
        key = "why.consulted_in_vain" if event.problem else "why.consulted"
        return [
            self.say(
                key, time=time, who=self.named(event.step), model=event.model, question=event.question, tokens=tokens,
                cost=cost, elapsed=span(event.elapsed), problem=self.told(event.problem),
            )
        ]  # fmt: skip

    def declined(self, event: ev.Declined, time: str) -> list[str]:
        who, reason = self.named(event.step), self.told(event.reason)
        return [self.say("why.declined", time=time, who=who, question=event.question, reason=reason)]

    def rejected(self, event: ev.PlanRejected, time: str) -> list[str]:
        by, faults = event.by or self.say("why.somebody"), "; ".join(map(self.told, event.faults))
        return [self.say("why.rejected", time=time, who=self.named(event.step), by=by, faults=faults)]

    def replanned(self, event: ev.Replanned, time: str) -> list[str]:
        reason = self.told(event.reason) or "-"
        return [self.say("why.replanned", time=time, revision=event.revision, by=event.by, reason=reason)]

    def round(self, event: ev.RetryBegin, time: str) -> list[str]:
        roots = ", ".join(event.roots[:8]) or event.operation
        line = self.say("why.round", time=time, round=event.round, by=event.by, roots=roots, size=event.chain_size)
        line += self._changed(event.stale)
        spoilt = [
            self.say("why.damaged", path=path, reason=self.told(reason))
            for path, reason in itertools.islice(event.damaged.items(), 8)
        ]
        return [line, *spoilt]

    def acted(self, event: ev.Acted, time: str) -> list[str]:
        what = f" {event.step}" if event.step else ""
        what += f" ({event.outcome})" if event.outcome else ""
        if event.action == "confirm":
            what = f"{what} {confirmed(event, self.lang)}".rstrip()
        elif event.course != Course() and event.course.steps:
            what += " " + ", ".join(step.id for step in event.course.steps)
        by = event.by or self.say("why.person")
        return [self.say("why.acted", time=time, by=by, action=event.action, what=what)]

    def resumed(self, event: ev.Resumed, time: str) -> list[str]:
        lost = self.say("why.answers_lost", names=", ".join(event.lost)) if event.lost else ""
        if event.reason == "queued":
            return [self.say("why.taken_up", time=time, by=event.by)]
        return [self.say("why.resumed", time=time, by=event.by, lost=lost) + self._changed(event.stale)]

    def _changed(self, stale: Sequence[str]) -> str:
        """The finished steps whose tool is another one today (E5)."""
        return self.say("why.changed_since", names=", ".join(stale[:8])) if stale else ""

    def stopped(self, event: ev.Stopped, time: str) -> list[str]:
        words = self.say(f"stop.{event.code}")
        return [self.say("why.stopped", time=time, words=words, code=event.code, reason=self.told(event.reason))]

    def cancelled(self, event: ev.Cancelled, time: str) -> list[str]:
        reason = self.say("why.because", reason=self.told(event.reason)) if event.reason else ""
        return [self.say("why.cancelled", time=time, by=event.by or self.say("why.person"), reason=reason)]

    def waiting(self, event: ev.Waiting, time: str) -> list[str]:
        asked = ((item, f": {item['question']}" if item.get("question") else "") for item in event.on)
        on = ", ".join(self.say(f"why.on.{item['for']}", step=item["step"]) + question for item, question in asked)
        return [self.say("why.waiting", time=time, on=on)]

    def done(self, event: ev.Done, time: str) -> list[str]:
        said = done_summary(self.state, event, self.lang)
        return [self.say("why.done", time=time, status=self.status(event.status), summary=said)]

    def notified(self, event: ev.Notified, time: str) -> list[str]:
        key = "why.notified" if event.ok else "why.not_notified"
        return [
            self.say(
                key, time=time, kind=event.kind, about=event.about, target=event.target, attempts=event.attempts,
                error=self.told(event.error),
            )
        ]  # fmt: skip


TELL: dict[type, Callable[[_Teller, Any, str], list[str]]] = {
    ev.GateOpened: _Teller.gate_opened,
    ev.StepStarted: _Teller.started,
    ev.StepSucceeded: _Teller.succeeded,
    ev.StepFailed: _Teller.failed,
    ev.StepVerified: _Teller.verified,
    ev.StepSkipped: _Teller.skipped,
    ev.StepKept: _Teller.kept,
    ev.StepRenewed: _Teller.renewed,
    ev.RetryScheduled: _Teller.scheduled,
    ev.Reflected: _Teller.reflected,
    ev.Recovered: _Teller.recovered,
    ev.Asked: _Teller.asked,
    ev.Consulted: _Teller.consulted,
    ev.Declined: _Teller.declined,
    ev.PlanRejected: _Teller.rejected,
    ev.Replanned: _Teller.replanned,
    ev.RetryBegin: _Teller.round,
    ev.Acted: _Teller.acted,
    ev.Resumed: _Teller.resumed,
    ev.Stopped: _Teller.stopped,
    ev.Cancelled: _Teller.cancelled,
    ev.Waiting: _Teller.waiting,
    ev.Done: _Teller.done,
    ev.Notified: _Teller.notified,
}


def _shown(value: Any) -> str:
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= MAX_SHOWN else text[: MAX_SHOWN - 1] + "…"


def _clock(seconds: float) -> str:
    """A moment, counted from the start of the run."""
    return f"{f'+{span(seconds)}':>8}"
