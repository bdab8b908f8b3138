"""One event, one line: what `logs` prints, and what progress is where there is no terminal."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from rich.cells import cell_len
from rich.text import Text

from rerail.cli.output import Output, clean, one_line
from rerail.cli.picture import rung_said
from rerail.cli.style import fitted, icon, size
from rerail.core import events as ev
from rerail.core.events import Record
from rerail.core.policy import Rung
from rerail.core.state import State
from rerail.core.texts import at_once, reason_in, span
from rerail.core.track import Track
from rerail.core.verdict import done_summary, skip_message, status_of
from rerail.core.why import Moments

Told = tuple[str, str, str]  # icon, step, words

# What people do not care about while a run is under way; `logs` shows it too.
QUIET = (ev.PlanAccepted, ev.StepKept, ev.StepRenewed, ev.ArtifactCreated, ev.Evaluation, ev.RetryDone)

NAME_WIDTH = 28


def is_quiet(event: ev.Event) -> bool:
    """Whether an event is left out of the progress of a run: what a tool logs is shown, how far it is is not."""
    return isinstance(event, QUIET) or (isinstance(event, ev.StepProgress) and not event.log)


def _clock(seconds: float) -> Text:
    """How long after the run's start, as lines begin."""
    clock = f"+{span(seconds)}"
    return Text(f"{clock:>10}  ", "dim")


class Teller:
    """Tells events as lines; the state it is given says what a message would be in another language."""

    def __init__(self, out: Output, state: State) -> None:
        self._out, self._state = out, state
        self._width = 0
        self._moments: Moments | None = None
        self._told = 0.0

    def line(self, record: Record) -> Text | None:
        """The event as a line; None if there is nothing to tell."""
        if self._moments is None:
            self._moments = Moments(self._state.created_at)
        moment = self._told = self._moments(record.at)
        teller = TELL.get(type(record.event))
        told = teller(self, record.event) if teller is not None else None
        if told is None:
            return None
        sign, step, words = told
        line = _clock(moment)
        line.append_text(icon(sign, fancy=self._out.fancy))
        line.append(" ")
        if step:
            name = fitted(one_line(step), NAME_WIDTH)
            line.append(name, "bold")
            line.append(" " * (self._padding() - cell_len(name)) + "  ")
        line.append(one_line(words, 1000) if sign != "say" else clean(words))
        return line

    def beside(self, at: float, sign: str, words: str) -> Text:
        """A line that no event holds, as events are told."""
        # Only the events say when: what was printed is no earlier than what was told before it.
        since = max(self._told, at - (self._state.created_at or at))
        return Text.assemble(_clock(since), icon(sign, fancy=self._out.fancy), " ", clean(words))

    def details(self, record: Record) -> list[Text]:
        """What `log.verbose` adds to an event: the retry chain, step by step, and each failed need of a skip."""
        event, state = record.event, self._state
        if isinstance(event, ev.RetryBegin):
            words = [self._chained(event, step) for step in event.chain]
        elif isinstance(event, ev.StepSkipped):
            tracks = (state.tracks.get(need) for need in event.needs)
            words = [self._say("chain_need", need=need.id, **self._state_of(need)) for need in tracks if need]
        else:
            return []
        return [Text(" " * 14 + one_line(line, 1000), "dim") for line in words]

    def _chained(self, event: ev.RetryBegin, step: str) -> str:
        if step in event.roots:
            return self._say("chain_root", step=step, reason=self._out.told(event.reasons.get(step, "-")))
        track = self._state.tracks.get(step)
        needs = [need.id for need, _ in track.needs if need.id in event.chain] if track is not None else []
        return self._say("chain_step", step=step, needs=_listed(needs) or "-")

    def _state_of(self, need: Track) -> dict[str, str]:
        status, code = status_of(self._state, need)
        error = need.error
        reason = reason_in(self._out.lang, error.code, error.message, error.data) if error is not None else code
        return {"tool": need.step.tool, "status": self._out.say(f"status.{status}"), "reason": reason}

    def _padding(self) -> int:
        """How wide the ids are, so that the words stand below each other."""
        if not self._width:
            self._width = max((cell_len(one_line(step)) for step in self._state.tracks), default=0)
        return min(self._width, NAME_WIDTH)

    def _say(self, key: str, **values: Any) -> str:
        return self._out.say(f"cli.line.{key}", **values)

    # -- The run ------------------------------------------------------------------------------------------------------

    def run_started(self, event: ev.RunStarted) -> Told:
        return "act", "", self._say("run_started", run=self._state.run, by=event.by, objective=event.objective or "-")

    def plan_accepted(self, event: ev.PlanAccepted) -> Told:
        return "act", "", self._say("plan_accepted", count=len(event.plan.steps), revision=event.revision)

    def plan_rejected(self, event: ev.PlanRejected) -> Told:
        faults = "; ".join(map(self._out.told, event.faults))
        return "failed", event.step, self._say("plan_rejected", by=event.by or "?", faults=faults)

    def retry_begin(self, event: ev.RetryBegin) -> Told:
        roots = _listed(event.roots) or event.operation
        key = "round_automatic" if event.automatic else "round"
        return "round", "", self._say(key, round=event.round, by=event.by, roots=roots, size=event.chain_size)

    def retry_done(self, event: ev.RetryDone) -> Told:
        failed = _listed(event.failed) or "-"
        done = event.exec.get("succeeded", 0) + event.exec.get("degraded", 0)
        return "round", "", self._say("round_done", round=event.round, done=done, failed=failed)

    def replanned(self, event: ev.Replanned) -> Told:
        reason = self._out.told(event.reason) or "-"
        return "heal", "", self._say("replanned", revision=event.revision, by=event.by, reason=reason)

    def evaluation(self, event: ev.Evaluation) -> Told:
        return "act", "", self._say("evaluation", summary=self._out.told(event.summary), judge=event.judge)

    def waiting(self, event: ev.Waiting) -> Told:
        return "waiting", "", self._say("waiting", on=waited_for(self._out, event.on))

    def resumed(self, event: ev.Resumed) -> Told:
        key = "resumed_lost" if event.lost else "resumed"
        return "act", "", self._say(key, by=event.by, lost=_listed(event.lost))

    def acted(self, event: ev.Acted) -> Told:
        what = event.outcome or _listed([step.id for step in event.course.steps]) or self._out.told(event.reason)
        if event.files:
            what = self._out.say("why.edited", files=_listed([file.path for file in event.files]))
        return "act", event.step, self._say("acted", by=event.by or "?", action=event.action, what=what).rstrip()

    def cancelled(self, event: ev.Cancelled) -> Told:
        reason = self._out.told(event.reason)
        return "cancelled", "", self._say("cancelled", by=event.by or "?", reason=reason).rstrip()

    def stopped(self, event: ev.Stopped) -> Told:
        words, reason = self._out.say(f"stop.{event.code}"), self._out.told(event.reason)
        return "failed", "", self._say("stopped", words=words, code=event.code, reason=reason)

    def done(self, event: ev.Done) -> Told:
        said = bare(done_summary(self._state, event, self._out.lang), event.status)
        return event.status, "", self._say("done", status=self._out.say(f"status.{event.status}"), summary=said)

    def notified(self, event: ev.Notified) -> Told:
        key = "notified" if event.ok else "not_notified"
        why = self._out.told(event.error)
        words = self._say(key, about=event.about, kind=event.kind, target=event.target, error=why)
        return "act" if event.ok else "failed", "", words

    # -- One step -----------------------------------------------------------------------------------------------------

    def started(self, event: ev.StepStarted) -> Told:
        key = "started" if event.attempt == 1 else "started_again"
        return "running", event.step, self._say(key, tool=event.tool, attempt=event.attempt)

    def progress(self, event: ev.StepProgress) -> Told:
        done = f"{event.fraction:.0%} " if event.fraction is not None else ""
        return "say", event.step, done + event.message

    def succeeded(self, event: ev.StepSucceeded) -> Told:
        key = "unverified" if event.unverified else "succeeded"
        return "succeeded", event.step, self._say(key, elapsed=span(event.elapsed))

    def failed(self, event: ev.StepFailed) -> Told:
        error = event.error
        key = "lost" if event.lost else "failed" if event.called else "failed_before"
        if event.not_now is not None and not event.lost:
            key = "not_now"
        message = reason_in(self._out.lang, error.code, error.message, error.data)
        words = self._say(key, attempt=event.attempt, message=message, code=error.code, category=error.category)
        return ("retry" if key == "not_now" else "failed"), event.step, words

    def verified(self, event: ev.StepVerified) -> Told:
        return "heal", event.step, self._say(f"verified.{event.effect}", reason=self._out.told(event.reason)).rstrip()

    def skipped(self, event: ev.StepSkipped) -> Told:
        track, message = self._state.tracks.get(event.step), self._out.told(event.message)
        if track is not None and self._out.lang != "en" and status_of(self._state, track)[1] == event.code:
            message = skip_message(self._state, track, event.code, self._out.lang)
        return "skipped", event.step, self._say("skipped", message=message, code=event.code)

    def kept(self, event: ev.StepKept) -> Told:
        return "succeeded", event.step, self._say("kept_stale" if event.stale else "kept")

    def renewed(self, event: ev.StepRenewed) -> Told:
        return "retry", event.step, self._say("renewed")

    def scheduled(self, event: ev.RetryScheduled) -> Told:
        key = "wait" if event.asked else "retry_now" if at_once(event.delay) else "retry"
        words = self._say(key, attempt=event.attempt, of=event.of, delay=span(event.delay), left=event.retries_left)
        return "retry", event.step, words

    def reflected(self, event: ev.Reflected) -> Told | None:
        if event.rung is not Rung.FAIL:
            return None
        return "failed", event.step, self._say("give_up", category=event.category)

    def recovered(self, event: ev.Recovered) -> Told:
        return "heal", event.step, rung_said(self._out, event)

    def asked(self, event: ev.Asked) -> Told:
        return "say", event.step, self._say(f"asked.{event.question}", reason=self._out.told(event.reason))

    def consulted(self, event: ev.Consulted) -> Told:
        tokens, cost = event.input_tokens + event.output_tokens, f", {event.cost:.4f}" if event.cost else ""
        problem = f": {self._out.told(event.problem)}" if event.problem else ""
        return (
            "say",
            event.step,
            self._say(
                "consulted", model=event.model, question=event.question, tokens=tokens, cost=cost, problem=problem
            ),
        )

    def declined(self, event: ev.Declined) -> Told:
        return "say", event.step, self._say("declined", question=event.question, reason=self._out.told(event.reason))

    def artifact(self, event: ev.ArtifactCreated) -> Told:
        return "say", event.step, self._say("artifact", name=event.name, size=size(event.size), digest=event.digest)

    def artifact_lost(self, event: ev.ArtifactLost) -> Told:
        return "failed", event.step, self._say("artifact_lost", reason=self._out.told(event.reason))


TELL: dict[type, Callable[[Teller, Any], Told | None]] = {
    ev.RunStarted: Teller.run_started,
    ev.PlanAccepted: Teller.plan_accepted,
    ev.PlanRejected: Teller.plan_rejected,
    ev.StepStarted: Teller.started,
    ev.StepProgress: Teller.progress,
    ev.StepSucceeded: Teller.succeeded,
    ev.StepFailed: Teller.failed,
    ev.StepVerified: Teller.verified,
    ev.StepSkipped: Teller.skipped,
    ev.StepKept: Teller.kept,
    ev.StepRenewed: Teller.renewed,
    ev.RetryScheduled: Teller.scheduled,
    ev.Reflected: Teller.reflected,
    ev.Recovered: Teller.recovered,
    ev.Asked: Teller.asked,
    ev.Consulted: Teller.consulted,
    ev.Declined: Teller.declined,
    ev.ArtifactCreated: Teller.artifact,
    ev.ArtifactLost: Teller.artifact_lost,
    ev.RetryBegin: Teller.retry_begin,
    ev.RetryDone: Teller.retry_done,
    ev.Replanned: Teller.replanned,
    ev.Evaluation: Teller.evaluation,
    ev.Waiting: Teller.waiting,
    ev.Resumed: Teller.resumed,
    ev.Acted: Teller.acted,
    ev.Cancelled: Teller.cancelled,
    ev.Stopped: Teller.stopped,
    ev.Done: Teller.done,
    ev.Notified: Teller.notified,
}


def bare(summary: str, status: str) -> str:
    """A summary without the status that it begins with, where the status stands before it anyway."""
    return summary.removeprefix(f"{status}: ")


def waited_for(out: Output, on: Any) -> str:
    """What only a person can move, in words."""
    return "; ".join(waited_for_one(out, item) for item in on)


def waited_for_one(out: Output, item: Mapping[str, Any]) -> str:
    """One thing that only a person can move, in words."""
    question = f": {item['question']}" if item.get("question") else ""
    words = out.say(f"cli.wait.{item['for']}", step=item["step"], tool=item.get("tool", "")) + question
    if item.get("args"):
        shown = ", ".join(f"{name}={msgspec.json.encode(value).decode()}" for name, value in item["args"].items())
        words += "  " + out.say("cli.wait.call", tool=item["tool"], args=one_line(shown, 300))
    if item.get("files"):
        words += "  " + out.say("cli.wait.files", files=", ".join(item["files"]))
    for step, kind in (item.get("made_from_degraded") or {}).items():
        words += "  " + out.say(f"cli.wait.made_from.{kind}", step=step)
    return words


def _listed(names: Any, limit: int = 8) -> str:
    shown = [fitted(one_line(name), NAME_WIDTH) for name in names[:limit]]
    return ", ".join(shown) + (f" … (+{len(names) - limit})" if len(names) > limit else "")
