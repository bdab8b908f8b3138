"""The story of a run, or of one step (`why`): selection and order of its history."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from rerail.codes import Category
from rerail.i18n import SOURCE, say, span
from rerail.kernel import events as ev
from rerail.kernel.budget import raised
from rerail.kernel.events import Event, Record
from rerail.kernel.state import State
from rerail.kernel.step_state import RunStatus, Status, Track
from rerail.kernel.verdict import doubts_of, error_of, gate_row, run_status, status_of, summary, swapped, verdict
from rerail.views.narration import Detail, Lead, Line, Moments, Narrator, gate_said
from rerail.views.results import degraded_said

# Left out of every story; of a run's story (plain successes); of a step's story (facts about the run alone).
NO_STORY = (
    ev.RunStarted, ev.PlanAccepted, ev.StepProgress, ev.ArtifactCreated, ev.ArtifactLost, ev.RetryDone, ev.Evaluation,
)  # fmt: skip
OF_STEPS = (ev.StepStarted, ev.StepSucceeded, ev.StepKept, ev.StepRenewed)
OF_RUNS = (ev.Done, ev.Waiting, ev.Resumed, ev.Notified)

FRAME = re.compile(r'File "(.+?)", line (\d+), in (.+)')
# Frames that a call passes through, or ends in: rarely the place that a user looks for.
PASSED = ("/rerail/engine/", "/rerail/adapters/")
LIBRARIES = ("/site-packages/", "/dist-packages/", "/lib/python", "<frozen")


def story(state: State, records: Iterable[Record], step: str | None = None, lang: str = SOURCE) -> str:
    """Return what happened and why, one line per fact; of one step, or of the whole run without its plain successes."""
    told = _Story(state, step, lang)
    lines = [line for record in records for line in told.lines(record)]
    return "\n".join([*told.opening(), *lines, *told.closing()])


def failures(records: Iterable[Record], step: str | None = None) -> list[dict[str, Any]]:
    """Return the failed attempts of a run, or of one step, with all known details."""
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
    """Return the place of an error, in short: the last frame in a user's file, else the last of all."""
    frames = [(path.replace("\\", "/"), line, name) for path, line, name in FRAME.findall(traceback)]
    frames = [frame for frame in frames if not any(part in frame[0] for part in PASSED)]
    own = [frame for frame in frames if not any(part in frame[0] for part in LIBRARIES)]
    if not frames:
        return ""
    path, line, name = (own or frames)[-1]
    return f"{path.rpartition('/')[2]}:{line} ({name})"


class _Story:
    """The selection of events from a history, and the layout of its lines."""

    def __init__(self, state: State, step: str | None, lang: str) -> None:
        self.state, self.step, self.lang = state, step, lang
        self._narrator = Narrator(state, lang, Detail.STORY)
        self._moments = Moments(state.created_at)
        self._topic = ""  # the step of the last line
        self._place = ""  # the place of the last error: shown once, not at every attempt

    def _say(self, key: str, **values: Any) -> str:
        return say(f"why.{key}", self.lang, **values)

    def _status(self, status: str) -> str:
        return say(f"status.{status}", self.lang)

    # -- What happened ------------------------------------------------------------------------------------------------

    def lines(self, record: Record) -> list[str]:
        """Return an event's lines, if it is part of the story."""
        event, moment = record.event, self._moments(record.at)
        if isinstance(event, NO_STORY) or not self._is_about(event):
            return []
        found = self._narrator.lines(event)
        if isinstance(event, ev.StepFailed):
            found += self._placed(event)
        return [self._laid_out(line, moment) for line in found]

    def _is_about(self, event: Event) -> bool:
        if self.step is None:
            return not isinstance(event, OF_STEPS)
        match event:
            case ev.RetryBegin():
                return self.step in event.chain
            case ev.Replanned():
                return any(step.id == self.step for step in event.course.steps)
            case _:
                pass
        return not isinstance(event, OF_RUNS) and getattr(event, "step", None) in (self.step, "")

    def _placed(self, event: ev.StepFailed) -> list[Line]:
        """Return the place of the error, for the story of a step."""
        place = place_of(event.error.traceback) if self.step is not None else ""
        if place in ("", self._place):
            return []
        self._place = place
        return [Line("say", event.step, self._narrator.words("place", place=place), Lead.NOTE)]

    def _laid_out(self, line: Line, moment: float) -> str:
        # Parallel steps interleave: a line names its step, unless the line before is about it.
        named = self.step is None and line.step and (line.lead is Lead.MOMENT or line.step != self._topic)
        self._topic = line.step
        lead = f"{f'+{span(moment)}':>8}  " if line.lead in (Lead.MOMENT, Lead.REMARK) else line.lead
        return f"{lead}{line.step}: {line.words}" if named else f"{lead}{line.words}"

    # -- What it is, and where it stands ------------------------------------------------------------------------------

    def opening(self) -> list[str]:
        """Return the subject of the story."""
        if self.step is None:
            return [self._say("run", run=self.state.run, objective=self.state.objective or "-")]
        track = self.state.tracks[self.step]
        title = f" ({track.step.title})" if track.step.title else ""
        lines = [self._say("step", step=track.id, tool=track.step.tool, title=title)]
        if tools := swapped(self.state, track):
            lines.append(self._say("instead", **tools))
        if track.needs:
            needs = ", ".join(need.id if when == "success" else f"{need.id} ({when})" for need, when in track.needs)
            lines.append(self._say("needs", needs=needs))
        return lines

    def closing(self) -> list[str]:
        """Return the status of the run or the step, and the matching command."""
        if self.step is not None:
            return self._step_closing(self.state.tracks[self.step])
        found = verdict(self.state)
        status = self._status(run_status(self.state))
        lines = [self._say("now_run", status=status, summary=summary(self.state, found))]
        doubts = found.in_doubt if self.state.rest is not None else ()
        lines += [self._say("next", command=self._resolve(name)) for name in doubts]
        if not doubts and self.state.rest is not None and self.state.rest.status != RunStatus.COMPLETED:
            lines.append(self._say("next", command=self._retry(found.failed_steps)))
        return lines

    def _step_closing(self, track: Track) -> list[str]:
        run, (status, code) = self.state.run, status_of(self.state, track)
        lines = [self._say("now", status=self._status(status), detail=self._detail(track, status, code))]
        if status == "in_doubt" or track.id in doubts_of(self.state):
            lines.append(self._say("next", command=self._resolve(track.id)))
        elif status == "failed":
            lines.append(self._say("next", command=self._retry([{"id": track.id}])))
        elif code == "confirm":
            lines.append(self._say("next", command=f"rerail confirm {run} {track.id}"))
        return lines

    def _detail(self, track: Track, status: Status, code: str) -> str:
        if status == "degraded":
            return self._narrator.words("because", reason=degraded_said(track, self.lang))
        if code == "confirm":
            shown = track.gate.shown if track.gate is not None and track.n not in self.state.unshown else None
            call = f"  {gate_said(gate_row(shown), self.lang)}" if shown is not None else ""
            return self._say("confirm") + (f": {track.gate_text}" if track.gate_text else "") + call
        error = error_of(self.state, track, status, code, self.lang)
        return f" [{error['code']}]: {error['message']}" if error else ""

    def _resolve(self, step: str) -> str:
        return f"rerail resolve {self.state.run} {step} --succeeded VALUE | --failed | --rerun"

    def _retry(self, failed: Iterable[Mapping[str, Any]]) -> str:
        """Return the retry that would be accepted; for a run moved elsewhere, the way there."""
        if self.state.copied:
            return "rerail import FILE --own"
        if self.state.moved is not None:
            return f"rerail show {self.state.run} --store {self.state.moved[0]}"
        categories = {self.state.tracks[row["id"]].category for row in failed}
        permanent = categories == {Category.PERMANENT}
        return f"rerail retry {self.state.run} --dry-run" + (" --force" if permanent else "") + raised(self.state)
