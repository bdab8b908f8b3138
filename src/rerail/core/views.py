"""Read-only views of a state: rows, results, the table for minds. Nothing here is stored.

Rules of this file:
- A view is a noun and reads the state; `to_dict` of a view is exactly what ``--json`` prints.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from rerail.core.pipeline import failed_stage, shown_status
from rerail.core.recover import failed_args
from rerail.core.state import State
from rerail.core.track import Phase, RunStatus, Track
from rerail.core.verdict import (
    NOTHING,
    error_of,
    gate_row,
    run_status,
    stale_of,
    statistics,
    status_of,
    summary,
    verdict,
    waiting_on,
)
from rerail.i18n import has, retold, say


@dataclass(frozen=True, slots=True)
class StepRow:
    """One step of a result: what it is, what it gave, what it cost."""

    id: str
    status: str
    code: str | None
    output: Any
    error: Mapping[str, Any] | None
    attempts: int
    tool: str
    args: Mapping[str, Any] | None
    degraded: str | None
    stale: str | None
    started_at: float | None
    elapsed: float
    title: str = ""
    stage: str = ""
    needs: tuple[str, ...] = ()
    unverified: bool = False
    files: tuple[str, ...] = ()  # what it left in the workspace

    def to_dict(self) -> dict[str, Any]:
        """The row as plain data."""
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True)
class RunResult:
    """What a run came to, or is coming to: the same object for a live or finished run."""

    run_id: str
    status: str
    success: bool
    complete: bool
    degraded: bool
    exec: Mapping[str, Any]
    steps: Mapping[str, StepRow]
    failed_steps: tuple[Mapping[str, Any], ...]
    consequences: tuple[str, ...]
    disputed: tuple[str, ...]
    judge: str
    summary: str
    objective: str = ""
    parent: str = ""
    round: int = 0
    retries: int = 0
    revision: int = 0
    waiting_on: tuple[Mapping[str, Any], ...] = ()
    never_started: tuple[str, ...] = ()
    stopped: str = ""
    seq: int = 0
    created_at: float = 0.0
    retry_history: tuple[Mapping[str, Any], ...] = field(default=())
    shown_status: str = ""  # for a plan with stages, what people call the status: its stage
    failed_stage: str = ""
    in_doubt: tuple[str, ...] = ()  # steps whose effect may have happened; `resolve` answers
    assumed: tuple[str, ...] = ()  # tools whose effect was assumed, not declared (E3)

    def to_dict(self) -> dict[str, Any]:
        """The result as plain data: what ``--json`` prints."""
        plain = {name: getattr(self, name) for name in self.__slots__}
        plain["steps"] = {step_id: row.to_dict() for step_id, row in self.steps.items()}
        plain["exec"] = dict(self.exec)
        for name in (
            "failed_steps",
            "consequences",
            "disputed",
            "waiting_on",
            "never_started",
            "retry_history",
            "in_doubt",
            "assumed",
        ):
            plain[name] = [dict(item) if isinstance(item, Mapping) else item for item in getattr(self, name)]
        return plain


@dataclass(frozen=True, slots=True)
class RunRow:
    """A run as lists show it."""

    run_id: str
    status: str
    objective: str
    parent: str | None
    created_at: float
    updated_at: float
    events: int
    owner: str | None
    interrupted: bool  # it should be running, and its process is gone
    degraded: bool  # it completed, and not with everything that was wanted

    def __getitem__(self, name: str) -> Any:
        """A field by its name, as in `to_dict()`."""
        if name not in self.__slots__:
            raise KeyError(name)
        return getattr(self, name)

    def to_dict(self) -> dict[str, Any]:
        """The row as plain data."""
        return {name: getattr(self, name) for name in self.__slots__}


def step_row(state: State, track: Track, output: Any = None, lang: str = "en", args: Any = None) -> StepRow:
    """A step as a row; its output and its arguments have to be brought along where they are not in memory."""
    status, code = status_of(state, track)
    stale = stale_of(state, track)
    return StepRow(
        id=track.id,
        status=str(status),
        code=code or None,
        output=output,
        error=error_of(state, track, status, code, lang),
        attempts=track.attempt,
        tool=track.call.tool if track.call is not None else track.step.tool,
        args=args if args is not None else failed_args(state, track),
        degraded=degraded_said(track, lang) if track.result is not None and track.result.degraded else None,
        stale=stale_said(stale, lang) if stale else None,
        started_at=track.started_at or None,
        elapsed=track.elapsed,
        title=track.step.title,
        stage=track.step.stage,
        needs=tuple(need.id for need, _ in track.needs),
        unverified=track.result.unverified if track.result is not None else False,
        files=tuple(track.result.files) if track.result is not None else (),
    )


def degraded_said(track: Track, lang: str) -> str | None:
    """Why a step's result is degraded, in words; None if it is not."""
    why = track.result.degraded if track.result is not None else None
    if why is None or track.phase not in (Phase.SUCCEEDED, Phase.PENDING):
        return None
    return say(f"degraded.{why.kind}", lang, reason=retold(why.reason, lang), step=why.step)


def stale_said(stale: str, lang: str) -> str | None:
    """Why a kept result may be out of date, in words; None if it is not."""
    if not stale:
        return None
    key = f"stale.{stale}"
    return say(key, lang) if has(key) else stale


def result(
    state: State, outputs: Mapping[str, Any], now: float, lang: str = "en", args: Mapping[str, Any] | None = None
) -> RunResult:
    """The whole run as one object; `outputs` are the values of the steps that have one, `args` large arguments, by step
    for the latest call, and by the name they are kept under for one that waits."""
    found, args = verdict(state), args or {}
    rows = {
        track.id: step_row(state, track, outputs.get(track.id), lang, args.get(track.id))
        for track in state.tracks.values()
    }
    judged = state.judged
    status = run_status(state)
    return RunResult(
        run_id=state.run,
        status=str(status),
        success=found.success and status is not RunStatus.CANCELLED,
        complete=found.complete,
        degraded=found.degraded,
        exec=statistics(state, found, now if state.rest is None else state.at),
        steps=rows,
        failed_steps=found.failed_steps,
        consequences=found.consequences,
        disputed=tuple(state.disputed),
        judge=judged.judge if judged is not None else "none",
        summary=retold(summary(state, found), lang),
        objective=state.objective,
        parent=state.parent,
        round=state.round,
        retries=state.retries,
        revision=state.revision,
        waiting_on=tuple(informed(state, args)) if state.waiting else (),
        never_started=found.never,
        stopped=state.stopped,
        seq=state.seq,
        created_at=state.created_at,
        retry_history=tuple(state.retry_history),
        shown_status=shown_status(state),
        failed_stage=failed_stage(state) if state.staged else "",
        in_doubt=found.in_doubt,
        assumed=state.assumed,
    )


def informed(state: State, large: Mapping[str, Any] = NOTHING) -> Iterator[dict[str, Any]]:
    """What only a person can move, with what they have to know of it: at a gate, the call (X10).

    Large arguments have to be brought along, by the name they are kept under; else they are None.
    """
    for item in waiting_on(state):
        track = state.tracks.get(item["step"])
        yield {**item, **_at_gate(state, track, large)} if item["for"] == "confirm" and track is not None else item


def _at_gate(state: State, track: Track, large: Mapping[str, Any]) -> dict[str, Any]:
    poor = {need.id: "fallback" for need, _ in track.needs if need.result and need.result.stands_in}
    # By the step whose output is missing, however far above it is, and whatever became of it.
    poor |= {hole.step: "hole" for hole in state.holes(track)}
    shown = track.gate.shown if track.gate is not None and track.n not in state.unshown else None
    if shown is None:  # of a run that an earlier version left waiting
        return {"tool": state.tool_of(track), "args": None, "digest": None, "made_from_degraded": poor}
    return {**gate_row(shown, large), "made_from_degraded": poor}


def attempts_of(track: Track) -> list[dict[str, Any]]:
    """The step's latest failed attempts, as far as this round and its repairs go back."""
    return list(track.heal.failures) if track.heal is not None else []


def question_table(state: State) -> list[dict[str, Any]]:
    """One row per step, always whole: what a mind gets to see of a run."""
    rows = []
    for track in state.tracks.values():
        status, code = status_of(state, track)
        error = track.error.message[:300] if track.error is not None and track.phase is not Phase.SUCCEEDED else None
        rows.append({
            "id": track.id, "tool": track.step.tool, "status": str(status), "code": code or None,
            "attempts": track.attempt, "needs": [need.id for need, _ in track.needs], "error": error,
        })  # fmt: skip
    return rows
