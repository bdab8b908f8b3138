"""Event narration: one table, event type → lines in words.

Rules of this file:
- Every reader that words events (`logs`, `why`, the live view, the shell, worker logs, the demo, the page) asks here.
  A reader chooses the language, the detail and the style; it words no event itself.
- A sentence of the story stands under `story.`; without one, the story has the sentence of the log (`line.`).
- What tools say is untrusted: readers show it through `clean`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import Enum, StrEnum
from typing import Any, NamedTuple

import msgspec

from rerail.codes import NO_ANSWER
from rerail.i18n import SOURCE, at_once, has, retold, say, span
from rerail.kernel import events as ev
from rerail.kernel.events import Event
from rerail.kernel.policy import Rung
from rerail.kernel.state import State
from rerail.kernel.step_state import Track
from rerail.kernel.verdict import done_summary, gate_row, skip_message, status_of
from rerail.plan.step import Effect
from rerail.values.json_values import call_shown, listed, one_line, size

SPANS = {"elapsed", "waited", "delay"}  # fields that hold durations
MAX_SHOWN = 160  # characters of a JSON value in a line


class Detail(Enum):
    """The amount of detail a reader shows of an event."""

    LOG = "log"  # at most one line
    VERBOSE = "verbose"  # the same line, and below it the steps concerned
    STORY = "story"  # everything that explains the event


class Lead(StrEnum):
    """The beginning of a story line; a log line always begins with its time."""

    MOMENT = ""  # time and step
    REMARK = "-"  # time; the step if the line before is about another one
    SEQUEL = "          → "
    NOTE = "          "
    ASIDE = "            "


class Line(NamedTuple):
    """An event, or a part of it, in words: the kind, the step ("" for the run), the sentence."""

    sign: str
    step: str
    words: str
    lead: Lead = Lead.MOMENT


class Moments:
    """The time of each event, from the start of its run.

    Wall clocks are set back, and machines differ: the result never decreases from event to event.
    """

    def __init__(self, begun: float) -> None:
        self._last, self._passed = begun, 0.0

    def __call__(self, at: float) -> float:
        """Return the seconds since the start for the next event."""
        self._passed += max(0.0, at - (self._last or at))
        self._last = at
        return self._passed


class Narrator:
    """Narrates events in a language; the state supplies the context."""

    def __init__(self, state: State, lang: str = SOURCE, detail: Detail = Detail.LOG) -> None:
        self.state, self.lang, self.detail = state, lang, detail
        self.full = detail is Detail.STORY

    def lines(self, event: Event) -> list[Line]:
        """Return the event in words, its main line first; [] if there is nothing to report."""
        return list(NARRATE[type(event)](self, event))

    def line(self, event: Event) -> Line | None:
        """Return the main line of an event; None if there is nothing to report."""
        return next(iter(NARRATE[type(event)](self, event)), None)

    def words(self, key: str, /, **values: Any) -> str:
        """Return a sentence; for the story, its own version if there is one."""
        told = f"story.{key}"
        return say(told if self.full and has(told) else f"line.{key}", self.lang, **values)

    def _one(self, sign: str, event: Event, key: str, /, lead: Lead = Lead.MOMENT, **more: Any) -> tuple[Line]:
        """Return a sentence as the only line; its values are the event's fields, durations in words, and ``more``."""
        values = {name: getattr(event, name) for name in event.__struct_fields__}
        values |= {name: span(values[name]) for name in SPANS & values.keys()}
        return (Line(sign, getattr(event, "step", ""), self.words(key, **{**values, **more}), lead),)

    def _tail(self, key: str, reason: str) -> str:
        """Return the end of a sentence that gives a reason, if there is one."""
        return self.words(key, reason=reason) if reason else ""

    def _by(self, name: str) -> str:
        return name or (self.words("person") if self.full else "?")

    def _joined(self, sentences: Iterable[str]) -> str:
        return "; ".join(retold(one, self.lang) for one in sentences)

    def _changed(self, stale: Sequence[str]) -> str:
        """Return the finished steps with a changed tool (E5)."""
        return self.words("changed_since", names=listed(stale)) if stale else ""

    # -- The run ------------------------------------------------------------------------------------------------------

    def run_started(self, event: ev.RunStarted) -> Iterable[Line]:
        return self._one("act", event, "run_started", run=self.state.run, objective=event.objective or "-")

    def plan_accepted(self, event: ev.PlanAccepted) -> Iterable[Line]:
        return self._one("act", event, "plan_accepted", count=len(event.plan.steps))

    def plan_rejected(self, event: ev.PlanRejected) -> Iterable[Line]:
        by, faults = self._by(event.by), self._joined(event.faults)
        return self._one("failed", event, "plan_rejected", Lead.REMARK, by=by, faults=faults)

    def retry_begin(self, event: ev.RetryBegin) -> Iterator[Line]:
        key = "round_automatic" if event.automatic else "round" if event.chain else "round_kept"
        roots = listed(event.roots) or event.operation
        [line] = self._one("round", event, key, roots=roots, size=event.chain_size)
        yield line._replace(words=line.words + self._changed(event.stale))
        if self.detail is Detail.VERBOSE:
            yield from (Line("round", step, self._chained(event, step), Lead.NOTE) for step in event.chain)
        elif self.full:
            for path, reason in [*event.damaged.items()][:8]:
                yield from self._one("failed", event, "damaged", Lead.NOTE, path=path, reason=reason)

    def _chained(self, event: ev.RetryBegin, step: str) -> str:
        """Return why a step of the retry chain is redone."""
        if step in event.roots:
            return self.words("chain_root", step=step, reason=event.reasons.get(step, "-"))
        track = self.state.tracks.get(step)
        needs = [need.id for need, _ in track.needs if need.id in event.chain] if track is not None else []
        return self.words("chain_step", step=step, needs=listed(needs) or "-")

    def retry_done(self, event: ev.RetryDone) -> Iterable[Line]:
        done = event.exec.get("succeeded", 0) + event.exec.get("degraded", 0)
        return self._one("round", event, "round_done", done=done, failed=listed(event.failed) or "-")

    def cleanup_begun(self, event: ev.CleanupBegun) -> Iterable[Line]:
        return self._one("round", event, "cleanup_begun", steps=listed(event.steps) or "-")

    def replanned(self, event: ev.Replanned) -> Iterable[Line]:
        return self._one("heal", event, "replanned", reason=event.reason or "-")

    def waiting(self, event: ev.Waiting) -> Iterable[Line]:
        on = ", ".join(map(self._awaited, event.on)) if self.full else waited_for(event.on, self.lang)
        return self._one("waiting", event, "waiting", on=on)

    def _awaited(self, item: Mapping[str, Any]) -> str:
        question = f": {item['question']}" if item.get("question") else ""
        return self.words(f"on.{item['for']}", step=item["step"]) + question

    def resumed(self, event: ev.Resumed) -> Iterable[Line]:
        if event.reason == "served":  # the action before it says what set it going
            return ()
        key = "resumed_lost" if event.lost else "taken_up" if event.reason == "queued" else "resumed"
        words = self.words(key, by=event.by, lost=listed(event.lost))
        return (Line("act", "", words + self._changed(event.stale)),)

    def acted(self, event: ev.Acted) -> Iterable[Line]:
        steps = listed([step.id for step in event.course.steps])
        edited = confirmed(event, self.lang) if event.action == "confirm" else ""
        if self.full:
            parts = [event.step, f"({event.outcome})" if event.outcome else "", edited or steps]
        else:
            parts = [edited if event.action == "confirm" else event.outcome or steps or retold(event.reason, self.lang)]
        what = " ".join(filter(None, parts))
        words = self.words("acted", by=self._by(event.by), action=event.action, what=what)
        return (Line("act", "" if self.full else event.step, words.rstrip()),)

    def cancelled(self, event: ev.Cancelled) -> Iterable[Line]:
        reason = self._tail("because", event.reason)
        return self._one("cancelled", event, "cancelled", by=self._by(event.by), reason=reason)

    def stopped(self, event: ev.Stopped) -> Iterable[Line]:
        return self._one("failed", event, "stopped", words=say(f"stop.{event.code}", self.lang))

    def done(self, event: ev.Done) -> Iterable[Line]:
        said = bare(done_summary(self.state, event, self.lang), event.status)
        return self._one(event.status, event, "done", status=say(f"status.{event.status}", self.lang), summary=said)

    def notified(self, event: ev.Notified) -> Iterable[Line]:
        return self._one("act", event, "notified") if event.ok else self._one("failed", event, "not_notified")

    def audited(self, event: ev.Audited) -> Iterable[Line]:
        return self._one("act", event, "audited" if event.code else "audited_read", by=event.by or "-")

    # -- One step -----------------------------------------------------------------------------------------------------

    def gate_opened(self, event: ev.GateOpened) -> Iterable[Line]:
        return self._one("waiting", event, "gate", call=gate_said(gate_row(event), self.lang))

    def started(self, event: ev.StepStarted) -> Iterator[Line]:
        fallback = self.full and event.rung is Rung.FALLBACK
        key = "fallback_call" if fallback else "started" if self.full or event.attempt == 1 else "started_again"
        args = self.words("with", args=_shown(event.args)) if self.full and event.args else ""
        yield from self._one("running", event, key, args=args)
        if event.parsed:
            yield from self._one("say", event, "parsed", Lead.NOTE, refs=listed(event.parsed))

    def progress(self, event: ev.StepProgress) -> Iterable[Line]:
        done = f"{event.fraction:.0%} " if event.fraction is not None else ""
        return (Line("say", event.step, done + event.message),)

    def succeeded(self, event: ev.StepSucceeded) -> Iterator[Line]:
        if not self.full:
            yield from self._one("succeeded", event, "unverified" if event.unverified else "succeeded")
            yield from self._added(event)
            return
        output = self.words("bytes", size=event.size) if event.blob else ""
        output = output if event.output is None else f": {_shown(event.output)}"
        yield from self._one("succeeded", event, "succeeded", output=output)
        if event.waited >= 0.1 and not event.unverified:  # else no look found it
            yield from self._one("say", event, "shown_late", Lead.NOTE)
        if event.unverified:
            yield from self._one("say", event, "unverified", Lead.NOTE)
        yield from self._added(event)

    def _added(self, event: ev.StepSucceeded) -> Iterable[Line]:
        steps = listed([step.id for step in event.course.steps])
        return self._one("act", event, "added", Lead.NOTE, steps=steps) if steps else ()

    def failed(self, event: ev.StepFailed) -> Iterator[Line]:
        error, track = event.error, self.state.tracks.get(event.step)
        effect = track.call.effect if track is not None and track.call is not None else Effect.REPEATABLE
        unanswered = event.lost and error.code in NO_ANSWER
        unsure = event.lost and not unanswered and effect is Effect.ONCE
        # A user's answer to a call in doubt is no call, and follows one.
        declared = error.code == "RESOLVED_FAILED"
        key = "declared" if declared else "failed" if event.called else "failed_before"
        if unanswered and not (self.full and event.elapsed):
            key = "lost"
        elif not self.full and (unsure or event.not_now is not None):
            key = "unsure" if unsure else "not_now"
        sign = "retry" if key == "not_now" else "failed"
        yield from self._one(sign, event, key, message=error.told, code=error.code, category=error.category)
        if self.full and (unsure or (unanswered and effect is not Effect.READ)):
            yield from self._one("failed", event, "effect_unsure" if unsure else "effect_lost", Lead.NOTE)

    def verified(self, event: ev.StepVerified) -> Iterable[Line]:
        [line] = self._one("heal", event, f"verified.{event.effect}", reason=self._tail("and", event.reason))
        waited = self.words("waited", looks=event.looks, waited=span(event.waited)) if event.looks > 1 else ""
        return (line._replace(words=line.words + waited),)

    def skipped(self, event: ev.StepSkipped) -> Iterator[Line]:
        track, message = self.state.tracks.get(event.step), event.message
        if track is not None and self.lang != SOURCE and status_of(self.state, track)[1] == event.code:
            message = skip_message(self.state, track, event.code, self.lang)
        yield from self._one("skipped", event, "skipped", message=message)
        if self.detail is Detail.VERBOSE:
            needs = (self.state.tracks.get(need) for need in event.needs)
            yield from (Line("skipped", event.step, self._needed(need), Lead.NOTE) for need in needs if need)

    def _needed(self, need: Track) -> str:
        """Return the outcome of a skipped need."""
        status, code = status_of(self.state, need)
        return self.words(
            "chain_need", need=need.id, tool=need.step.tool, status=say(f"status.{status}", self.lang),
            reason=need.error.told if need.error is not None else code,
        )  # fmt: skip

    def kept(self, event: ev.StepKept) -> Iterable[Line]:
        key = {"": "kept", "needless": "kept_needless"}.get(event.stale, "kept_once")
        return self._one("succeeded", event, key)

    def scheduled(self, event: ev.RetryScheduled) -> Iterable[Line]:
        key = "again" if event.crashed else "wait" if event.not_now else "retry"
        key = "retry_now" if key == "retry" and at_once(event.delay) else key
        number, most = event.retry
        return self._one("retry", event, key, Lead.SEQUEL, number=number, most=most, left=event.retries_left)

    def reflected(self, event: ev.Reflected) -> Iterator[Line]:
        refused = self._joined(event.refused)
        if self.full:
            if event.by != "rules":
                yield from self._one("say", event, "thought", Lead.NOTE, cause=event.root_cause or "-")
            for reason in event.refused:
                yield from self._one("say", event, "refused", Lead.ASIDE, reason=reason)
        match event.rung:
            case Rung.FAIL:
                # The log explains an unused budget (H5) where a step ends.
                key = "give_up_permanent" if self.full and event.category == "permanent_error" else "give_up"
                yield from self._one("failed", event, key, Lead.SEQUEL, reason=self._tail("and", refused))
            case Rung.DOUBT:
                yield from self._one("in_doubt", event, "left_in_doubt", Lead.SEQUEL)
            case Rung.REPAIR | Rung.REPLAN if self.full:
                yield from self._one("heal", event, f"ask.{event.rung}", Lead.SEQUEL)
            case Rung.SKIP | Rung.FALLBACK if refused and not self.full:
                yield from self._one("say", event, "not_tried", reason=refused)
            case _:
                pass

    def recovered(self, event: ev.Recovered) -> Iterable[Line]:
        return (Line("heal", event.step, self.words(f"rung.{event.rung}", **_of_rung(event)), Lead.SEQUEL),)

    def asked(self, event: ev.QuestionAsked) -> Iterable[Line]:
        return self._one("say", event, f"asked.{event.question}")

    def consulted(self, event: ev.Consulted) -> Iterable[Line]:
        key, cost = "consulted_in_vain" if event.problem else "consulted", f", {event.cost:.4f}" if event.cost else ""
        tokens = event.input_tokens + event.output_tokens
        return self._one("say", event, key, Lead.REMARK, tokens=tokens, cost=cost)

    def artifact(self, event: ev.ArtifactCreated) -> Iterable[Line]:
        return self._one("say", event, "artifact", size=size(event.size))


NARRATE: dict[type, Callable[[Narrator, Any], Iterable[Line]]] = {
    ev.RunStarted: Narrator.run_started,
    ev.PlanAccepted: Narrator.plan_accepted,
    ev.PlanRejected: Narrator.plan_rejected,
    ev.GateOpened: Narrator.gate_opened,
    ev.StepStarted: Narrator.started,
    ev.StepProgress: Narrator.progress,
    ev.StepSucceeded: Narrator.succeeded,
    ev.StepFailed: Narrator.failed,
    ev.StepVerified: Narrator.verified,
    ev.StepSkipped: Narrator.skipped,
    ev.StepKept: Narrator.kept,
    ev.StepRenewed: lambda narrator, event: narrator._one("retry", event, "renewed"),
    ev.RetryScheduled: Narrator.scheduled,
    ev.Reflected: Narrator.reflected,
    ev.Recovered: Narrator.recovered,
    ev.QuestionAsked: Narrator.asked,
    ev.Consulted: Narrator.consulted,
    ev.Declined: lambda narrator, event: narrator._one("say", event, "declined", Lead.REMARK),
    ev.ArtifactCreated: Narrator.artifact,
    ev.ArtifactLost: lambda narrator, event: narrator._one("failed", event, "artifact_lost"),
    ev.RetryBegin: Narrator.retry_begin,
    ev.RetryDone: Narrator.retry_done,
    ev.Replanned: Narrator.replanned,
    ev.CleanupBegun: Narrator.cleanup_begun,
    ev.Evaluation: lambda narrator, event: narrator._one("act", event, "evaluation"),
    ev.Waiting: Narrator.waiting,
    ev.Resumed: Narrator.resumed,
    ev.Acted: Narrator.acted,
    ev.Cancelled: Narrator.cancelled,
    ev.Stopped: Narrator.stopped,
    ev.Done: Narrator.done,
    ev.Notified: Narrator.notified,
    ev.Audited: Narrator.audited,
}


# -- Parts of sentences -----------------------------------------------------------------------------------------------


def _shown(value: Any) -> str:
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= MAX_SHOWN else text[: MAX_SHOWN - 1] + "…"


def rung_said(event: ev.Recovered, lang: str = SOURCE) -> str:
    """Return a rung that was taken, in words."""
    return say(f"line.rung.{event.rung}", lang, **_of_rung(event))


def _of_rung(event: ev.Recovered) -> dict[str, Any]:
    what = event.tool or (_shown(event.output) if event.rung is Rung.FALLBACK else "")
    args = "" if event.args is None else _shown(event.args)
    return {"args": args, "tool": event.tool, "by": event.by, "reason": event.reason, "what": what}


def bare(summary: str, status: str) -> str:
    """Return a summary without its leading status, for places that show the status before it."""
    return summary.removeprefix(f"{status}: ")


def _call(item: Mapping[str, Any]) -> str:
    return call_shown(item["tool"], item.get("args"))


def gate_said(item: Mapping[str, Any], lang: str = SOURCE) -> str:
    """Return the call at a gate in words, and the one approved before (X10)."""
    before = item.get("before")
    if not before:
        return say("cli.wait.call", lang, call=_call(item))
    key = "cli.wait.call_again" if before.get("digest") else "cli.wait.call_ahead"
    words = say(key, lang, before=_call(before), tool=one_line(before["tool"], 80), call=_call(item))
    changed = item.get("changed_files")
    return words + (say("cli.wait.changed_files", lang, files=listed(changed)) if changed else "")


def confirmed(event: ev.Acted, lang: str = SOURCE) -> str:
    """Return what an approval covers beyond the shown call: an edit, or a call that is not known yet."""
    edited = [file.path for file in event.files]
    words = [say("line.edited", lang, files=listed(edited))] if edited else []
    if event.course.steps and event.call is not None:
        words.append(say("line.edited_args", lang, call=call_shown(event.call.tool, event.call.args)))
    return " ".join([say("line.ahead", lang)] if event.ahead else words)


def waited_for(on: Iterable[Mapping[str, Any]], lang: str = SOURCE) -> str:
    """Return what needs a user's action, in words."""
    return "; ".join(waited_for_one(item, lang) for item in on)


def waited_for_one(item: Mapping[str, Any], lang: str = SOURCE) -> str:
    """Return one item that needs a user's action, in words."""
    question = f": {item['question']}" if item.get("question") else ""
    words = say(f"cli.wait.{item['for']}", lang, step=item["step"], tool=item.get("tool", "")) + question
    if item["for"] == "confirm" and (item.get("digest") or item.get("args") is not None):
        words += say("cli.wait.then", lang, call=gate_said(item, lang))
    if item.get("files"):
        words += "  " + say("cli.wait.files", lang, files=", ".join(item["files"]))
    for step, kind in (item.get("made_from_degraded") or {}).items():
        words += "  " + say(f"cli.wait.made_from.{kind}", lang, step=step)
    return words
