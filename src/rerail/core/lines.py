"""One event, one line, in words: what `logs` prints, and what the page shows as a log.

Rules of this file:
- What tools say is untrusted: it is shown through `clean`, so that it is nothing but text.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from rerail.core import events as ev
from rerail.core.codes import NO_ANSWER
from rerail.core.events import Event
from rerail.core.plan import Effect
from rerail.core.policy import Rung
from rerail.core.state import State
from rerail.core.verdict import done_summary, gate_row, skip_message, status_of
from rerail.i18n import at_once, retold, say, span

NAME_WIDTH = 28


class Told(NamedTuple):
    """An event in words: which kind of thing it is, the step it is about, if it is about one, and what to say."""

    sign: str
    step: str
    words: str


# Direction marks can make a line read as something else than it says.
_BIDI = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u2028\u2029")


def clean(text: object, *, lines: bool = False) -> str:
    """A text that is safe to show: control characters become visible; line breaks stay if asked for."""
    shown = str(text)
    if shown.isascii() and shown.isprintable():
        return shown
    return "".join(_visible(sign, lines) for sign in shown)


def _visible(sign: str, lines: bool) -> str:
    if sign in "\n\t":
        return sign if lines else " "
    if sign == "\r":
        return "" if lines else " "
    if sign in _BIDI or unicodedata.category(sign) in ("Cc", "Cs"):
        code = ord(sign)
        return chr(0x2400 + code) if code < 0x20 else f"\\u{code:04x}"
    return sign


def one_line(text: object, limit: int = 300) -> str:
    """A text as one short line."""
    shown = " ".join(clean(text).split())
    return shown if len(shown) <= limit else shown[: limit - 1] + "…"


def size(count: int) -> str:
    """A number of bytes as people say it."""
    if count < 10_000:
        return f"{count} B"
    return f"{count / 1000:,.0f} kB" if count < 10_000_000 else f"{count / 1_000_000:,.0f} MB"


Said = tuple[str, str, str]  # sign, step, words


class Lines:
    """Tells events in a language; the state it is given says what a message would be in it."""

    def __init__(self, state: State, lang: str = "en") -> None:
        self._state, self.lang = state, lang

    def words(self, event: Event) -> Told | None:
        """An event in words; None if there is nothing to tell."""
        teller = TELL.get(type(event))
        told = teller(self, event) if teller is not None else None
        return Told(*told) if told is not None else None

    def say(self, key: str, **values: Any) -> str:
        """A sentence of the catalogue."""
        return say(key, self.lang, **values)

    def told(self, text: str) -> str:
        """A sentence that was made elsewhere, or read from a history."""
        return retold(text, self.lang)

    def _said(self, key: str, **values: Any) -> str:
        return self.say(f"cli.line.{key}", **values)

    # -- The run ------------------------------------------------------------------------------------------------------

    def run_started(self, event: ev.RunStarted) -> Said:
        return "act", "", self._said("run_started", run=self._state.run, by=event.by, objective=event.objective or "-")

    def plan_accepted(self, event: ev.PlanAccepted) -> Said:
        return "act", "", self._said("plan_accepted", count=len(event.plan.steps), revision=event.revision)

    def plan_rejected(self, event: ev.PlanRejected) -> Said:
        faults = "; ".join(map(self.told, event.faults))
        return "failed", event.step, self._said("plan_rejected", by=event.by or "?", faults=faults)

    def retry_begin(self, event: ev.RetryBegin) -> Said:
        roots = listed(event.roots) or event.operation
        key = "round_automatic" if event.automatic else "round"
        words = self._said(key, round=event.round, by=event.by, roots=roots, size=event.chain_size)
        return "round", "", words + self._changed(event.stale)

    def retry_done(self, event: ev.RetryDone) -> Said:
        failed = listed(event.failed) or "-"
        done = event.exec.get("succeeded", 0) + event.exec.get("degraded", 0)
        return "round", "", self._said("round_done", round=event.round, done=done, failed=failed)

    def replanned(self, event: ev.Replanned) -> Said:
        reason = self.told(event.reason) or "-"
        return "heal", "", self._said("replanned", revision=event.revision, by=event.by, reason=reason)

    def evaluation(self, event: ev.Evaluation) -> Said:
        return "act", "", self._said("evaluation", summary=self.told(event.summary), judge=event.judge)

    def waiting(self, event: ev.Waiting) -> Said:
        return "waiting", "", self._said("waiting", on=waited_for(event.on, self.lang))

    def resumed(self, event: ev.Resumed) -> Said:
        key = "resumed_lost" if event.lost else "taken_up" if event.reason == "queued" else "resumed"
        return "act", "", self._said(key, by=event.by, lost=listed(event.lost)) + self._changed(event.stale)

    def _changed(self, stale: Sequence[str]) -> str:
        """The finished steps whose tool is another one today (E5)."""
        return self.say("why.changed_since", names=listed(stale)) if stale else ""

    def acted(self, event: ev.Acted) -> Said:
        what = event.outcome or listed([step.id for step in event.course.steps]) or self.told(event.reason)
        if event.action == "confirm":
            what = confirmed(event, self.lang)
        return "act", event.step, self._said("acted", by=event.by or "?", action=event.action, what=what).rstrip()

    def cancelled(self, event: ev.Cancelled) -> Said:
        reason = self.say("why.because", reason=self.told(event.reason)) if event.reason else ""
        return "cancelled", "", self._said("cancelled", by=event.by or "?", reason=reason)

    def stopped(self, event: ev.Stopped) -> Said:
        words, reason = self.say(f"stop.{event.code}"), self.told(event.reason)
        return "failed", "", self._said("stopped", words=words, code=event.code, reason=reason)

    def done(self, event: ev.Done) -> Said:
        said = bare(done_summary(self._state, event, self.lang), event.status)
        return event.status, "", self._said("done", status=self.say(f"status.{event.status}"), summary=said)

    def notified(self, event: ev.Notified) -> Said:
        key = "notified" if event.ok else "not_notified"
        why = self.told(event.error)
        words = self._said(key, about=event.about, kind=event.kind, target=event.target, error=why)
        return "act" if event.ok else "failed", "", words

    # -- One step -----------------------------------------------------------------------------------------------------

    def gate_opened(self, event: ev.GateOpened) -> Said:
        return "waiting", event.step, self._said("gate", call=gate_said(gate_row(event), self.lang))

    def started(self, event: ev.StepStarted) -> Said:
        key = "started" if event.attempt == 1 else "started_again"
        return "running", event.step, self._said(key, tool=event.tool, attempt=event.attempt)

    def progress(self, event: ev.StepProgress) -> Said:
        done = f"{event.fraction:.0%} " if event.fraction is not None else ""
        return "say", event.step, done + event.message

    def succeeded(self, event: ev.StepSucceeded) -> Said:
        key = "unverified" if event.unverified else "succeeded"
        return "succeeded", event.step, self._said(key, elapsed=span(event.elapsed))

    def failed(self, event: ev.StepFailed) -> Said:
        error = event.error
        # A person's word on a call in doubt is no call itself, and comes after one.
        called = event.called or error.code == "RESOLVED_FAILED"
        key = "failed" if called else "failed_before"
        track = self._state.tracks.get(event.step)
        if event.lost and error.code in NO_ANSWER:
            key = "lost"
        elif event.lost and track is not None and track.call is not None and track.call.effect is Effect.ONCE:
            key = "unsure"
        elif event.not_now is not None:
            key = "not_now"
        message = retold(error.told, self.lang)
        words = self._said(key, attempt=event.attempt, message=message, code=error.code, category=error.category)
        return ("retry" if key == "not_now" else "failed"), event.step, words

    def verified(self, event: ev.StepVerified) -> Said:
        reason = self.say("why.and", reason=self.told(event.reason)) if event.reason else ""
        waited = self.say("why.waited", looks=event.looks, waited=span(event.waited)) if event.looks > 1 else ""
        return "heal", event.step, self._said(f"verified.{event.effect}", reason=reason) + waited

    def skipped(self, event: ev.StepSkipped) -> Said:
        track, message = self._state.tracks.get(event.step), self.told(event.message)
        if track is not None and self.lang != "en" and status_of(self._state, track)[1] == event.code:
            message = skip_message(self._state, track, event.code, self.lang)
        return "skipped", event.step, self._said("skipped", message=message, code=event.code)

    def kept(self, event: ev.StepKept) -> Said:
        return (
            "succeeded",
            event.step,
            self._said("kept" if not event.stale else "kept_needless" if event.stale == "needless" else "kept_once"),
        )

    def renewed(self, event: ev.StepRenewed) -> Said:
        return "retry", event.step, self._said("renewed")

    def scheduled(self, event: ev.RetryScheduled) -> Said:
        if event.crashed:
            return "retry", event.step, self._said("again")
        key, (number, most) = "retry_now" if at_once(event.delay) else "retry", event.retry
        key = "wait" if event.asked else key
        words = self._said(key, number=number, most=most, delay=span(event.delay), left=event.retries_left)
        return "retry", event.step, words

    def reflected(self, event: ev.Reflected) -> Said | None:
        # What was left of a budget may not be used (H5): where a step ends, its log says why not.
        refused = "; ".join(map(self.told, event.refused))
        if event.rung is Rung.FAIL:
            reason = self.say("why.and", reason=refused) if refused else ""
            return "failed", event.step, self._said("give_up", category=event.category, reason=reason)
        if event.rung is Rung.DOUBT:
            return "in_doubt", event.step, self._said("left_in_doubt")
        if refused and event.rung in (Rung.SKIP, Rung.FALLBACK):
            return "say", event.step, self._said("not_tried", reason=refused)
        return None

    def recovered(self, event: ev.Recovered) -> Said:
        return "heal", event.step, rung_said(event, self.lang)

    def asked(self, event: ev.Asked) -> Said:
        return "say", event.step, self._said(f"asked.{event.question}", reason=self.told(event.reason))

    def consulted(self, event: ev.Consulted) -> Said:
        tokens, cost = event.input_tokens + event.output_tokens, f", {event.cost:.4f}" if event.cost else ""
        problem = f": {self.told(event.problem)}" if event.problem else ""
        return (
            "say",
            event.step,
            self._said(
                "consulted", model=event.model, question=event.question, tokens=tokens, cost=cost, problem=problem
            ),
        )

    def declined(self, event: ev.Declined) -> Said:
        return "say", event.step, self._said("declined", question=event.question, reason=self.told(event.reason))

    def artifact(self, event: ev.ArtifactCreated) -> Said:
        return "say", event.step, self._said("artifact", name=event.name, size=size(event.size), digest=event.digest)

    def artifact_lost(self, event: ev.ArtifactLost) -> Said:
        return "failed", event.step, self._said("artifact_lost", reason=self.told(event.reason))


TELL: dict[type, Callable[[Lines, Any], Said | None]] = {
    ev.RunStarted: Lines.run_started,
    ev.PlanAccepted: Lines.plan_accepted,
    ev.PlanRejected: Lines.plan_rejected,
    ev.GateOpened: Lines.gate_opened,
    ev.StepStarted: Lines.started,
    ev.StepProgress: Lines.progress,
    ev.StepSucceeded: Lines.succeeded,
    ev.StepFailed: Lines.failed,
    ev.StepVerified: Lines.verified,
    ev.StepSkipped: Lines.skipped,
    ev.StepKept: Lines.kept,
    ev.StepRenewed: Lines.renewed,
    ev.RetryScheduled: Lines.scheduled,
    ev.Reflected: Lines.reflected,
    ev.Recovered: Lines.recovered,
    ev.Asked: Lines.asked,
    ev.Consulted: Lines.consulted,
    ev.Declined: Lines.declined,
    ev.ArtifactCreated: Lines.artifact,
    ev.ArtifactLost: Lines.artifact_lost,
    ev.RetryBegin: Lines.retry_begin,
    ev.RetryDone: Lines.retry_done,
    ev.Replanned: Lines.replanned,
    ev.Evaluation: Lines.evaluation,
    ev.Waiting: Lines.waiting,
    ev.Resumed: Lines.resumed,
    ev.Acted: Lines.acted,
    ev.Cancelled: Lines.cancelled,
    ev.Stopped: Lines.stopped,
    ev.Done: Lines.done,
    ev.Notified: Lines.notified,
}


def bare(summary: str, status: str) -> str:
    """A summary without the status that it begins with, where the status stands before it anyway."""
    return summary.removeprefix(f"{status}: ")


def rung_said(event: ev.Recovered, lang: str = "en") -> str:
    """A rung that was taken, in words."""
    shown = msgspec.json.encode(event.args).decode() if event.args is not None else ""
    what = event.tool or (msgspec.json.encode(event.output).decode() if event.rung is Rung.FALLBACK else "")
    return say(
        f"cli.rung.{event.rung}", lang, args=shown, tool=event.tool, by=event.by, reason=retold(event.reason, lang),
        what=what,
    )  # fmt: skip


def call_said(call: ev.GateOpened | ev.Shown | Mapping[str, Any], limit: int = 300) -> str:
    """A call in words, short: `pay(amount=10, to="alice")`; "…" for arguments that are kept elsewhere."""
    plain: Mapping[str, Any] = call if isinstance(call, Mapping) else {"tool": call.tool, "args": call.args}
    args: Mapping[str, Any] | None = plain.get("args")
    shown = (
        "…"
        if args is None
        else ", ".join(f"{name}={msgspec.json.encode(value).decode()}" for name, value in args.items())
    )
    return f"{one_line(plain['tool'], 80)}({one_line(shown, limit)})"


def gate_said(item: Mapping[str, Any], lang: str = "en") -> str:
    """The call that a gate shows, in words, and the one that was agreed to before (X10)."""
    before = item.get("before")
    if not before:
        return say("cli.wait.call", lang, call=call_said(item))
    key = "cli.wait.call_again" if before.get("digest") else "cli.wait.call_ahead"
    words = say(key, lang, before=call_said(before), tool=one_line(before["tool"], 80), call=call_said(item))
    changed = item.get("changed_files")
    return words + (say("cli.wait.changed_files", lang, files=listed(changed)) if changed else "")


def confirmed(event: ev.Acted, lang: str = "en") -> str:
    """What a person agreed to, beyond the call that was shown: what they changed of it, or that it is not known yet."""
    edited = [file.path for file in event.files]
    words = [say("why.edited", lang, files=listed(edited))] if edited else []
    if event.course.steps and event.call is not None:
        words.append(say("why.edited_args", lang, call=call_said(event.call)))
    return " ".join([say("why.ahead", lang)] if event.ahead else words)


def waited_for(on: Any, lang: str = "en") -> str:
    """What only a person can move, in words."""
    return "; ".join(waited_for_one(item, lang) for item in on)


def waited_for_one(item: Mapping[str, Any], lang: str = "en") -> str:
    """One thing that only a person can move, in words."""
    question = f": {item['question']}" if item.get("question") else ""
    words = say(f"cli.wait.{item['for']}", lang, step=item["step"], tool=item.get("tool", "")) + question
    if item["for"] == "confirm" and (item.get("digest") or item.get("args") is not None):
        words += "  " + gate_said(item, lang)
    if item.get("files"):
        words += "  " + say("cli.wait.files", lang, files=", ".join(item["files"]))
    for step, kind in (item.get("made_from_degraded") or {}).items():
        words += "  " + say(f"cli.wait.made_from.{kind}", lang, step=step)
    return words


def listed(names: Any, limit: int = 8) -> str:
    """Some names, and how many more there are."""
    shown = [one_line(name, NAME_WIDTH) for name in names[:limit]]
    return ", ".join(shown) + (f" … (+{len(names) - limit})" if len(names) > limit else "")
