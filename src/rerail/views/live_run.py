"""The live view of a run: a full snapshot without outputs, and patches (contract I4).

Rules of this file:
- A view of the state and its events; nothing is stored and nothing is decided.
- An event costs what it changes. Work over every step (a view, a patch) waits until a reader asks for it.
- An offered action is one that `commands` would accept now; a test compares the two.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from rerail.codes import NO_ANSWER
from rerail.i18n import retold
from rerail.kernel import events as ev
from rerail.kernel.events import Record
from rerail.kernel.fold import evolve
from rerail.kernel.retry import topological
from rerail.kernel.stages import failed_stage, shown_status
from rerail.kernel.state import State
from rerail.kernel.step_state import Phase, RunStatus, Status, Track
from rerail.kernel.verdict import ENDED_WELL, error_of, run_status, stale_of, statistics, status_of, summary, verdict
from rerail.plan.step import Effect, When
from rerail.views.results import degraded_said, informed, stale_said

MOST_SPANS = 60  # latest spans of a step's attempts, and of its waits, in a view
UNDER_WAY = frozenset({Status.PENDING, Status.READY, Status.RUNNING, Status.WAITING, Status.IN_DOUBT})
_HEALS = frozenset({Phase.HURT, Phase.HELD})


class Life:
    """The timeline of one step: its calls and its waits."""

    __slots__ = ("rung", "spans", "version", "waits")

    def __init__(self) -> None:
        self.spans: list[dict[str, Any]] = []
        self.waits: list[dict[str, Any]] = []
        self.rung: str | None = None
        self.version = 0

    def begin(self, event: ev.StepStarted, at: float) -> None:
        """Begin a call; any wait is over."""
        self.wait_over(at)
        span = {"attempt": event.attempt, "tool": event.tool, "from": at, "to": None, "outcome": "running"}
        self.spans.append({**span, "code": None})
        del self.spans[:-MOST_SPANS]

    def end(self, attempt: int, at: float | None, outcome: str, code: str | None = None) -> None:
        """End a call; ``at`` is omitted if only the outcome became known later."""
        for span in reversed(self.spans):
            if span["attempt"] == attempt:
                # Replaced, not mutated: views handed out earlier stay valid.
                place = self.spans.index(span)
                ended = span["to"] if at is None and span["to"] is not None else at
                self.spans[place] = {**span, "to": ended, "outcome": outcome, "code": code}
                return

    def answer(self, attempt: int, outcome: str) -> None:
        """Set the outcome of a call in doubt; any other call stays as it is."""
        if any(span["attempt"] == attempt and span["outcome"] == "doubt" for span in self.spans):
            self.end(attempt, None, outcome)

    def wait(self, at: float, until: float | None, why: str) -> None:
        """Begin a wait, until a known moment or a user's action."""
        self.wait_over(at)
        self.waits.append({"from": at, "until": until, "why": why})
        del self.waits[:-MOST_SPANS]

    def wait_over(self, at: float) -> None:
        if self.waits and (self.waits[-1]["until"] is None or self.waits[-1]["until"] > at):
            self.waits[-1] = {**self.waits[-1], "until": at}


def outcome_of(event: ev.StepFailed, *, once: bool) -> str:
    """Return the outcome of a failed call, in one word; ``once``: the effect must not be repeated."""
    if event.error.code == "RUN_CANCELLED":
        return "cancelled"
    if event.lost and once:
        return "doubt"
    return "failed" if event.not_now is None or event.error.code in NO_ANSWER else "not_now"


class Board:
    """A run's state, folded from the events so far, and each step's timeline."""

    def __init__(self, run: str) -> None:
        self.state = State(run)
        self.lives: dict[str, Life] = {}
        self.ended_at: float | None = None
        self._gated: dict[str, Life] = {}

    @classmethod
    def of(cls, run: str, records: Iterable[Record]) -> Board:
        board = cls(run)
        for record in records:
            board.feed(record)
        return board

    def life(self, step: str) -> Life:
        found = self.lives.get(step)
        if found is None:
            found = self.lives[step] = Life()
        return found

    def feed(self, record: Record) -> None:
        event, at, state = record.event, record.at, self.state
        evolve(state, event, at, record.seq)
        step = getattr(event, "step", "")
        if step and step in state.tracks:
            life, track = self.life(step), state.tracks[step]
            life.version += 1
            self._note(life, track, event, at)
            if track.phase is Phase.HELD and track.question:
                if not life.waits or life.waits[-1]["until"] is not None:
                    life.wait(at, None, track.question)
            elif life.waits and life.waits[-1]["until"] is None and step not in self._gated:
                life.wait_over(at)
        if isinstance(event, ev.Done):
            self.ended_at = at
        elif isinstance(event, ev.RetryBegin):
            self.ended_at = None
        if len(state.gates) != len(self._gated) or isinstance(event, ev.Acted | ev.RetryBegin | ev.Replanned):
            self._gates(at)

    @staticmethod
    def _note(life: Life, track: Track, event: ev.Event, at: float) -> None:
        match event:
            case ev.StepStarted():
                life.begin(event, at)
            case ev.StepSucceeded():
                life.end(event.attempt, at, "succeeded")
            case ev.StepFailed() if event.called:
                once = track.call is not None and track.call.effect is Effect.ONCE
                life.end(event.attempt, at, outcome_of(event, once=once), event.error.code)
            case ev.StepVerified() if event.effect != "unknown":
                outcome = "succeeded" if event.effect == "there" else "failed"
                life.end(
                    event.attempt, None, outcome, track.error.code if track.error and outcome == "failed" else None
                )
            case ev.Acted(action="resolve", outcome="succeeded" | "failed" as outcome):
                life.answer(track.attempt, outcome)
            case ev.RetryScheduled():
                why = "not_now" if event.asked else "crashed" if event.crashed else "backoff"
                life.wait(at, min(event.until, at + event.delay), why)
            case ev.Reflected() | ev.Recovered():
                life.rung = str(event.rung)
            case _:
                pass

    def _gates(self, at: float) -> None:
        """Note which steps wait for a user, and since when."""
        waiting = {track.id for track in self.state.gates.values()}
        for step in [step for step in self._gated if step not in waiting]:
            life = self._gated.pop(step)
            life.wait_over(at)
            life.version += 1
        for step in waiting - self._gated.keys():
            life = self._gated[step] = self.life(step)
            life.wait(at, None, "confirm")
            life.version += 1


# -- One step -----------------------------------------------------------------------------------------------------


def step_view(board: Board, track: Track, lang: str = "en") -> dict[str, Any]:
    """Return a step for the board: everything except its arguments and its output."""
    state, life, step = board.state, board.lives.get(track.id), track.step
    status, code = status_of(state, track)
    error = error_of(state, track, status, code, lang)
    result = track.result
    ended = status not in UNDER_WAY
    retries = state.policy.max_step_retries if step.retries is None else step.retries
    view: dict[str, Any] = {
        "id": track.id,
        "title": step.title,
        "tool": track.call.tool if track.call is not None else step.tool,
        "stage": step.stage,
        "status": str(status),
        "code": code or None,
        "needs": [need.id for need, _ in track.needs],
        "soft": [need.id for need, when in track.needs if when is not When.SUCCESS],
        "optional": not step.critical,
        "confirm": step.confirm,
        "effect": str(effect) if (effect := track.call.effect if track.call is not None else step.effect) else None,
        "attempts": track.attempt,
        "retries_left": max(0, retries - max(0, track.calls - 1)),
        "error": {name: error[name] for name in ("code", "category", "message")} if error is not None else None,
        "degraded": degraded_said(track, lang),
        "stale": stale_said(stale_of(state, track), lang),
        "unverified": result.unverified if result is not None else False,
        "disputed": track.id in state.disputed,
        "waiting_for": waiting_for(state, track),
        "started_at": track.started_at or None,
        "ended_at": track.ended_at or None if ended else None,
        "elapsed": track.elapsed,
        "next_try_at": track.until if track.phase is Phase.BACKOFF else None,
        "rung": life.rung if life is not None else None,
        "files": list(result.files) if result is not None else [],
        "spans": list(life.spans) if life is not None else [],
        "waits": list(life.waits) if life is not None else [],
        "actions": step_actions(state, track),
    }
    return view


def waiting_for(state: State, track: Track) -> str | None:
    """Return what an unfinished step waits for, besides its needs."""
    if track.phase is Phase.BACKOFF:
        return "backoff"
    if track.phase is Phase.DOUBT:
        return "verify" if track.question else "in_doubt"
    if track.phase in _HEALS:
        return track.question or "choice"
    return "confirm" if track.n in state.gates else None


def step_actions(state: State, track: Track) -> list[str]:
    """Return the actions that a user may take on a step now."""
    status = status_of(state, track)[0]
    found = []
    well, running, doubt = status in ENDED_WELL, track.phase is Phase.RUNNING, track.phase is Phase.DOUBT
    if _may_confirm(state, track):
        found.append("confirm")
    if doubt or not (track.phase is Phase.SUCCEEDED or running or well):
        found.append("resolve")
    if not well and track.phase is not Phase.SKIPPED:
        found.append("skip")
    if not (well or running or doubt):
        found.append("repair")
        # By name: a doubt comes first, and finished steps need force.
        possible = not state.stopped if state.rest is None else state.rest.status != RunStatus.COMPLETED
        if possible and not state.doubts:
            found.append("retry")
    return found


def _may_confirm(state: State, track: Track) -> bool:
    """True if a gate can be approved; a gate left waiting by an earlier version is shown once a user opens it."""
    return track.n in state.gates and (state.waiting or track.n not in state.unshown) and state.rest is None


def _mark(state: State, track: Track, life: Life | None) -> tuple[Any, ...]:
    """Return a cheap key that changes if the step's view would change."""
    return (
        track.phase, track.place, track.standing, track.attempt, track.calls, track.until, track.dead, track.stale,
        track.again, track.question, id(track.step), id(track.needs), id(track.error), track.judged, id(track.result),
        life.version if life is not None else 0, track.id in state.disputed, _may_confirm(state, track),
    )  # fmt: skip


# -- The run ------------------------------------------------------------------------------------------------------


def run_view(board: Board, now: float, lang: str = "en", *, interrupted: bool = False) -> dict[str, Any]:
    """Return the whole run, without outputs: its header, and every step in plan order."""
    head = header(board, now, lang, interrupted=interrupted)
    steps = {track.id: step_view(board, track, lang) for track in board.state.tracks.values()}
    # The order is sent separately: JavaScript would put numeric ids first.
    return {**head, "order": list(steps), "steps": steps}


def header(board: Board, now: float, lang: str = "en", *, interrupted: bool = False) -> dict[str, Any]:
    state = board.state
    found, status = verdict(state), run_status(state)
    until = now if state.rest is None and not interrupted else state.at  # an interrupted run uses no time
    spent = statistics(state, found, until)
    return {
        "run_id": state.run,
        "objective": state.objective,
        "status": str(status),
        "shown_status": shown_status(state),
        "failed_stage": failed_stage(state),
        "success": found.success and status is not RunStatus.CANCELLED,
        "complete": found.complete,
        "degraded": found.degraded,
        "interrupted": interrupted,
        "parent": state.parent or None,
        "round": state.round,
        "retries": state.retries,
        "revision": state.revision,
        "seq": state.seq,
        "created_at": state.created_at,
        "updated_at": state.at,
        "ended_at": board.ended_at,
        "elapsed": spent["seconds"]["total"],
        "at": now,
        "counts": {str(name): count for name, count in found.counts.items()},
        "summary": retold(summary(state, found), lang),
        "exec": {name: value for name, value in spent.items() if name != "used"},
        "failed_steps": [_failed(state, row, lang) for row in found.failed_steps],
        "consequences": list(found.consequences),
        "disputed": list(state.disputed),
        "waiting_on": list(informed(state)) if state.waiting else [],
        "never_started": list(found.never),
        "stopped": state.stopped,
        "paused": state.paused,
        "judge": found.judge,
        "judgement": _judgement(state),
        "budgets": budgets(state, until),
        "actions": run_actions(state, interrupted=interrupted),
        "critical": critical_path(state, until),
        "retry_history": list(state.retry_history),
        "stages": list(dict.fromkeys(t.step.stage for t in state.tracks.values() if t.step.stage)),
    }


def _judgement(state: State) -> dict[str, Any] | None:
    """Return the judge's result for this round, if there is one."""
    judged = state.judged
    if judged is None or judged.judge in ("none", ""):
        return None
    return {
        "judge": judged.judge, "complete": judged.complete, "missing": list(judged.missing),
        "unsatisfactory": list(judged.unsatisfactory), "disputed": list(judged.disputed), "reason": judged.reason,
    }  # fmt: skip


def budgets(state: State, now: float) -> list[dict[str, Any]]:
    """Return the run's budgets and their use; ``of`` is None for an unlimited one (H4, R6)."""
    policy = state.policy
    seconds = state.seconds(now)
    again = sum(track.calls - 1 for track in state.tracks.values() if track.calls > 1)
    repairs = sum(track.heal.repairs for track in state.tracks.values() if track.heal is not None)
    rows: tuple[tuple[str, float, float | None, str], ...] = (
        ("retries", state.retries, policy.max_retries, "count"),
        ("rounds", state.automatic_rounds, policy.max_retry_rounds, "count"),
        ("step_retries", again, None, "count"),
        ("repairs", repairs, None, "count"),
        ("replans", state.replans, policy.max_task_replanning_attempts, "count"),
        ("attempts", state.calls, policy.max_attempts, "count"),
        ("tokens", state.tokens, policy.max_tokens, "tokens"),
        ("cost", state.cost, policy.max_cost, "cost"),
        ("time", round(seconds, 6), policy.max_seconds, "seconds"),
    )
    return [{"name": name, "used": used, "of": of, "unit": unit} for name, used, of, unit in rows]


def run_actions(state: State, *, interrupted: bool = False) -> list[str]:
    """Return the actions that a user may take on the run now."""
    if state.rest is not None:
        return ["retry", "add"]
    found = []
    if state.gates:
        found.append("confirm")
    if any(not track.question for track in state.doubts.values()):
        found.append("resolve")
    stuck = state.waiting and not state.paused  # only an answer moves it
    if state.paused or (interrupted and not stuck):
        found.append("resume")
    if interrupted and not state.paused and not state.doubts and not state.waiting:
        found.append("retry")
    if not state.paused and not state.stopped:
        found.append("pause")
    if state.stopped != "RUN_CANCELLED":
        found.append("cancel")
    if not state.stopped:
        found.append("add")
    return found


def critical_path(state: State, now: float) -> list[str]:
    """Return the critical path: the steps that determine the run's duration."""
    best: Track | None = None
    finish: dict[int, float] = {}
    before: dict[int, Track] = {}
    for track in topological(state):
        start = 0.0
        for need, _ in track.needs:
            if finish[need.n] > start:
                start, before[track.n] = finish[need.n], need
        finish[track.n] = start + _weight(track, now)
        if best is None or finish[track.n] > finish[best.n]:
            best = track
    path: list[str] = []
    while best is not None:
        path.append(best.id)
        best = before.get(best.n)
    return path[::-1]


def _weight(track: Track, now: float) -> float:
    """Return a step's duration, as far as known; one that has not run counts a little, so that depth matters."""
    if track.phase is Phase.RUNNING:
        return max(1e-3, now - track.started_at)
    return max(1e-3, track.elapsed)


# -- What changed -------------------------------------------------------------------------------------------------


class Changes:
    """The changes of a board since the last look, in one language."""

    def __init__(self, board: Board, lang: str = "en") -> None:
        self.board, self.lang = board, lang
        self._marks: dict[str, tuple[Any, ...]] = {}
        self._header: dict[str, Any] = {}
        self._common: tuple[Any, ...] = ()

    def view(self, now: float, beside: Mapping[str, Any], *, interrupted: bool = False) -> dict[str, Any]:
        """Return the whole run, the base of later patches; ``beside`` holds facts outside the events."""
        state, lives = self.board.state, self.board.lives
        self._marks = {track.id: _mark(state, track, lives.get(track.id)) for track in state.tracks.values()}
        self._common = _common(state)
        shown = {**run_view(self.board, now, self.lang, interrupted=interrupted), **beside}
        self._header = {name: value for name, value in shown.items() if name not in ("steps", "order")}
        return shown

    def patch(self, now: float, beside: Mapping[str, Any], *, interrupted: bool = False) -> dict[str, Any] | None:
        """Return the changes since the last look; None if only time has passed."""
        board, state, lives = self.board, self.board.state, self.board.lives
        marks = {track.id: _mark(state, track, lives.get(track.id)) for track in state.tracks.values()}
        common = _common(state)
        everything = common != self._common
        steps = {
            step: step_view(board, state.tracks[step], self.lang)
            for step, mark in marks.items()
            if everything or self._marks.get(step) != mark
        }
        head = {**header(board, now, self.lang, interrupted=interrupted), **beside}
        changed = {name: value for name, value in head.items() if self._header.get(name, ...) != value}
        order = list(marks) if list(marks) != list(self._marks) else None
        self._marks, self._common, self._header = marks, common, head
        told = [name for name in changed if name not in TICKING]
        if not told and not steps and order is None:
            return None
        found: dict[str, Any] = {"seq": state.seq, "run": changed, "steps": steps}
        return found if order is None else {**found, "order": order}


TICKING = frozenset({"at", "elapsed", "exec", "budgets", "critical"})  # fields that change with time alone


def _common(state: State) -> tuple[Any, ...]:
    """Return the inputs of every step's view."""
    return (state.stopped, state.rest is None, state.rest and state.rest.status, bool(state.doubts), state.policy)


def _failed(state: State, row: Mapping[str, Any], lang: str) -> dict[str, Any]:
    """Return a failed step of the verdict, with its reason in the reader's language."""
    error = state.tracks[row["id"]].error
    return {**row, "reason": retold(error.told, lang) if error is not None else row["reason"]}
