"""Read-only views of a state: rows, results, the table for minds.

Rules of this file:
- A view is a noun and reads the state; nothing is stored. Its `to_dict` is exactly what ``--json`` prints.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from html import escape
from typing import Any

from rerail.i18n import has, retold, say
from rerail.kernel.stages import failed_stage, shown_status
from rerail.kernel.state import State
from rerail.kernel.step_state import Phase, RunStatus, Status, Track
from rerail.kernel.verdict import (
    ENDED_WELL,
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
from rerail.values.json_values import show

SHOWN = 200  # steps that a notebook shows


@dataclass(frozen=True, slots=True)
class StepRow:
    """One step of a result: status, output, cost."""

    id: str
    status: Status
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
    files: tuple[str, ...] = ()  # the files it left in the workspace

    def to_dict(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__} | {"status": str(self.status)}


@dataclass(frozen=True, slots=True)
class RunResult:
    """The result of a run, final or so far: the same object for a live or finished run."""

    run_id: str
    status: RunStatus
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
    shown_status: str = ""  # for a plan with stages, the public status: its stage
    failed_stage: str = ""
    in_doubt: tuple[str, ...] = ()  # steps with a possible effect; `resolve` answers
    assumed: tuple[str, ...] = ()  # tools with an assumed effect, none being declared (E3)
    cut_off: tuple[str, ...] = ()  # started, and stopped with the run before they ended
    not_cleaned_up: tuple[str, ...] = ()  # steps of `finally` that did not do their work
    interrupted: bool = False  # it should be running, and no process drives it

    def _repr_html_(self) -> str:
        """Return the result as a notebook shows it."""
        title = " · ".join((self.run_id, "interrupted" if self.interrupted else self.status, self.summary))
        rows = [
            (row.id, row.tool, row.status, row.attempts, row.error["message"] if row.error else show(row.output))
            for row in list(self.steps.values())[:SHOWN]
        ]
        cells = ["".join(f"<td>{escape(str(cell))}</td>" for cell in row) for row in rows]
        more = f"<p>… {len(self.steps) - SHOWN}</p>" if len(self.steps) > SHOWN else ""
        return f"<p>{escape(title)}</p><table>{''.join(f'<tr>{row}</tr>' for row in cells)}</table>{more}"

    def to_dict(self) -> dict[str, Any]:
        """Return the result as plain data: the form that ``--json`` prints."""
        plain = {name: getattr(self, name) for name in self.__slots__} | {"status": str(self.status)}
        for name, value in plain.items():
            if isinstance(value, tuple):
                plain[name] = [dict(item) if isinstance(item, Mapping) else item for item in value]
        return {**plain, "steps": {name: row.to_dict() for name, row in self.steps.items()}, "exec": dict(self.exec)}


@dataclass(frozen=True, slots=True)
class RunRow:
    """A run as a row of a list."""

    run_id: str
    status: RunStatus
    objective: str
    parent: str | None
    created_at: float
    updated_at: float
    events: int
    owner: str | None
    interrupted: bool  # it should be running, and its process is gone
    degraded: bool  # completed without everything that was planned

    def __getitem__(self, name: str) -> Any:
        """Return a field by its name, as in `to_dict()`."""
        if name not in self.__slots__:
            raise KeyError(name)
        return getattr(self, name)

    def to_dict(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__} | {"status": str(self.status)}


def step_row(state: State, track: Track, output: Any = None, lang: str = "en", args: Any = None) -> StepRow:
    """Return a step as a row; the caller supplies output and arguments that are not in memory."""
    status, code = status_of(state, track)
    stale = stale_of(state, track) if track.stale or track.again else ""
    return StepRow(
        id=track.id,
        status=status,
        code=code or None,
        output=output,
        error=error_of(state, track, status, code, lang) if status not in ENDED_WELL else None,
        attempts=track.attempt,
        tool=track.call.tool if track.call is not None else track.step.tool,
        args=args if args is not None else state.args_of(track),
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
    """Return why a step's result is degraded, in words; None if it is not."""
    why = track.result.degraded if track.result is not None else None
    if why is None or track.phase not in (Phase.SUCCEEDED, Phase.PENDING):
        return None
    return say(f"degraded.{why.kind}", lang, reason=retold(why.reason, lang), step=why.step)


def stale_said(stale: str, lang: str) -> str | None:
    """Return why a kept result may be out of date, in words; None if it is not."""
    if not stale:
        return None
    key = f"stale.{stale}"
    return say(key, lang) if has(key) else stale


def result(
    state: State,
    outputs: Mapping[str, Any],
    now: float,
    lang: str = "en",
    args: Mapping[str, Any] | None = None,
    *,
    interrupted: bool = False,
) -> RunResult:
    """Return the whole run as one object; `outputs` are by step. `args` are large arguments: of the latest call by
    step, of a call at a gate by content name."""
    found, args = verdict(state), args or {}
    rows = {
        track.id: step_row(state, track, outputs.get(track.id), lang, args.get(track.id))
        for track in state.tracks.values()
    }
    judged = state.judged
    status = run_status(state)
    return RunResult(
        run_id=state.run,
        status=status,
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
        shown_status=str(status) if state.rest is not None else shown_status(state),
        failed_stage=failed_stage(state) if state.staged else "",
        in_doubt=found.in_doubt,
        assumed=state.assumed,
        cut_off=found.cut,
        not_cleaned_up=found.uncleaned,
        interrupted=interrupted,
    )


def informed(state: State, large: Mapping[str, Any] = NOTHING) -> Iterator[dict[str, Any]]:
    """Return what needs a user's action, with its context: at a gate, the call (X10).

    The caller supplies large arguments, by content name; without them they are None.
    """
    for item in waiting_on(state):
        track = state.tracks.get(item["step"])
        yield {**item, **_at_gate(state, track, large)} if item["for"] == "confirm" and track is not None else item


def _at_gate(state: State, track: Track, large: Mapping[str, Any]) -> dict[str, Any]:
    poor = {need.id: "fallback" for need, _ in track.needs if need.result and need.result.stands_in}
    # Grouped by the step with the missing output, however far upstream, in any status.
    poor |= {hole.step: "hole" for hole in state.holes(track)}
    shown = track.gate.shown if track.gate is not None and track.n not in state.unshown else None
    if shown is None:  # in a run that an earlier version left waiting
        return {"tool": state.tool_of(track), "args": None, "digest": None, "made_from_degraded": poor}
    return {**gate_row(shown, large), "made_from_degraded": poor}


def attempts_of(track: Track) -> list[dict[str, Any]]:
    """Return the step's latest failed attempts, within this round and its repairs."""
    return list(track.heal.failures) if track.heal is not None else []


def question_table(state: State) -> list[dict[str, Any]]:
    """Return one row per step, always whole: the view that a mind gets of a run."""
    rows = []
    for track in state.tracks.values():
        status, code = status_of(state, track)
        error = track.error.message[:300] if track.error is not None and track.phase is not Phase.SUCCEEDED else None
        rows.append({
            "id": track.id, "tool": track.step.tool, "status": str(status), "code": code or None,
            "attempts": track.attempt, "needs": [need.id for need, _ in track.needs], "error": error,
        })  # fmt: skip
    return rows
