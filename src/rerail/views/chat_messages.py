"""Chat messages of a run: one message for each step at work (contract I3).

Rules of this file:
- Events in, messages out, in the events' order; every message carries the `seq` of its event.
- Each started message is completed exactly once. Open messages are compared with the folded state, so
  that no kind of end is missed. A step that ends without a call is started and completed at once.
- The field names belong to the protocol, which is external.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from rerail.kernel import events as ev
from rerail.kernel.events import Record
from rerail.kernel.fold import evolve
from rerail.kernel.state import State
from rerail.kernel.step_state import Status, Track
from rerail.kernel.verdict import error_of, status_of

START, UPDATE, ARTIFACT = "tool:message:start", "tool:message:update", "tool:artifact"
COMPLETE = "tool:message:complete"
NAMES = (START, UPDATE, ARTIFACT, COMPLETE)

_ENDS = {
    Status.SUCCEEDED: "completed",
    Status.DEGRADED: "completed",
    Status.FAILED: "failed",
    Status.SKIPPED: "skipped",
    Status.CANCELLED: "cancelled",
}
_ENDS_A_STEP = (
    ev.StepSucceeded, ev.StepFailed, ev.StepVerified, ev.StepSkipped, ev.Reflected, ev.Recovered, ev.Acted
)  # fmt: skip
_ENDS_MANY = (ev.Done, ev.Replanned, ev.RetryBegin, ev.Cancelled, ev.Stopped, ev.Recovered, ev.Acted, ev.ArtifactLost)


class Message(NamedTuple):
    """One message of the protocol: its name and its fields."""

    name: str
    payload: dict[str, Any]


def message_id(step: str) -> str:
    """Return the id shared by all messages of a step."""
    return f"task_{step}"


class ToolMessages:
    """Turns a run's events into messages."""

    def __init__(self, run: str) -> None:
        self._state = State(run)
        self._open: dict[str, list[str]] = {}  # steps with an open message → its artifacts so far

    @property
    def seq(self) -> int:
        return self._state.seq

    def feed(self, record: Record) -> list[Message]:
        event, state = record.event, self._state
        evolve(state, event, record.at, record.seq)
        found: list[Message] = []
        step = str(getattr(event, "step", ""))
        track = state.tracks.get(step)
        if track is not None:
            found += self._of_step(track, event)
        if isinstance(event, _ENDS_MANY):
            for other in [other for other in self._open if other != step]:
                found += self._ended(other, at_rest=isinstance(event, ev.Done))
            if step in self._open:
                found += self._ended(step, at_rest=isinstance(event, ev.Done))
        return found

    def _of_step(self, track: Track, event: ev.Event) -> list[Message]:
        match event:
            case ev.StepStarted():
                opened = self._opened(track, event.tool)
                return opened or [self._update(track, toolName=event.tool, attempt=event.attempt)]
            case ev.ArtifactCreated():
                return [*self._opened(track), self._artifact(track, event)]
            case ev.StepProgress() if track.id in self._open:
                return [self._update(track, message=event.message, progress=event.fraction, log=event.log)]
            case ev.RetryScheduled() if track.id in self._open:
                facts = {"attempt": event.attempt, "of": event.of, "retriesLeft": event.retries_left}
                return [self._update(track, **facts, delay=event.delay, until=event.until)]
            case ev.StepSkipped():
                return [*self._opened(track), *self._ended(track.id)]
            case _:
                return self._perhaps_ended(track, event)

    def _perhaps_ended(self, track: Track, event: ev.Event) -> list[Message]:
        """Return the end of a step if this event ended one, else the step's news."""
        found: list[Message] = []
        if isinstance(event, _ENDS_A_STEP):
            ended = status_of(self._state, track)[0] in _ENDS
            if ended and not isinstance(event, ev.Acted | ev.Recovered):
                found += self._opened(track)  # it ends without a call: a refused gate, a missing input
            if ended and isinstance(event, ev.Acted) and event.action == "resolve":
                found += self._opened(track)
            found += self._ended(track.id)
        if track.id in self._open and isinstance(event, ev.StepFailed):
            error = event.error
            told = {"code": error.code, "category": str(error.category), "message": str(error.message)}
            found.append(self._update(track, error=told, attempt=event.attempt))
        elif track.id in self._open and isinstance(event, ev.Recovered):
            found.append(self._update(track, rung=str(event.rung), reason=event.reason))
        return found

    # -- Messages -------------------------------------------------------------------------------------------------

    def _about(self, step: str) -> dict[str, Any]:
        return {"id": message_id(step), "seq": self.seq, "runId": self._state.run}

    def _opened(self, track: Track, tool: str = "") -> list[Message]:
        """Start a step's message, unless it is open."""
        if track.id in self._open:
            return []
        self._open[track.id] = []
        named = tool or (track.call.tool if track.call is not None else track.step.tool)
        said = {
            **self._about(track.id), "role": "assistant", "kind": "tool", "status": "in_progress", "toolName": named,
            "title": track.step.title or track.id, "stage": track.step.stage or None, "stepId": track.id,
        }  # fmt: skip
        return [Message(START, said)]

    def _update(self, track: Track, **facts: Any) -> Message:
        state = self._state
        budget = state.policy.max_step_retries if track.step.retries is None else track.step.retries
        left = max(0, budget - max(0, track.calls - 1))
        said = {**self._about(track.id), "status": "in_progress", "retriesLeft": left}
        return Message(UPDATE, {**said, **{name: value for name, value in facts.items() if value is not None}})

    def _artifact(self, track: Track, event: ev.ArtifactCreated) -> Message:
        self._open[track.id].append(event.name)
        made = {
            "id": event.name, "name": event.name, "step": event.step, "attempt": event.attempt,
            "digest": event.digest, "size": event.size, "mediaType": event.media,
        }  # fmt: skip
        where = {"messageId": message_id(track.id), "seq": self.seq, "runId": self._state.run}
        return Message(ARTIFACT, {**where, "showInCanvas": bool(event.path), "artifact": made})

    def _ended(self, step: str, *, at_rest: bool = False) -> list[Message]:
        """End a step's message, if it is open and the step has ended."""
        if step not in self._open:
            return []
        track = self._state.tracks.get(step)
        if track is None:  # a replan removed it
            return [self._completed(step, "cancelled", None)]
        status, code = status_of(self._state, track)
        if status not in _ENDS and not at_rest:
            return []
        if self._state.stopped == "RUN_CANCELLED" and track.again:
            # It was to be redone, and was not: its earlier result does not end this message.
            return [self._completed(step, "cancelled", None)] if at_rest or status in _ENDS else []
        # At rest nothing is under way: a doubt that remains counts as a failure.
        end = _ENDS.get(status, "cancelled" if self._state.stopped else "failed")
        return [self._completed(step, end, error_of(self._state, track, status, code))]

    def _completed(self, step: str, status: str, error: dict[str, Any] | None) -> Message:
        artifacts = list(dict.fromkeys(self._open.pop(step)))
        said: dict[str, Any] = {**self._about(step), "status": status, "artifactIds": artifacts}
        if status != "completed":
            shown = {name: error.get(name) for name in ("code", "category", "message")} if error else None
            said["error"] = shown
        return Message(COMPLETE, said)
