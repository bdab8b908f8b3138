"""The public view of a plan with stages: current stage, kept files, snapshot (contract T2, T3, T9).

Rules of this file:
- Views of a state. Stages decide nothing: they are names for groups of steps.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from rerail.kernel.state import State
from rerail.kernel.step_state import Phase, RunStatus, Track
from rerail.kernel.verdict import run_status

AWAITING_CONFIRM, PAUSED, IN_DOUBT = "awaiting_confirm", "paused", "in_doubt"

MEDIA = {
    ".json": "application/json", ".yaml": "application/yaml", ".yml": "application/yaml", ".txt": "text/plain",
    ".md": "text/markdown", ".csv": "text/csv", ".html": "text/html",
}  # fmt: skip


def stages(state: State) -> list[str]:
    """Return the stages of the plan, in plan order."""
    return list(dict.fromkeys(track.step.stage for track in state.tracks.values() if track.step.stage))


def shown_status(state: State) -> str:
    """Return the public status of a run: its stage while a pipeline is under way (T2); the reason while it waits."""
    status = run_status(state)
    if state.rest is not None:
        return str(status)
    if state.paused:
        return PAUSED  # calls may still be under way, but nothing follows them
    if state.waiting and state.doubts and not state.gates:
        return IN_DOUBT
    if not state.staged:
        return str(status)
    if state.waiting:
        return AWAITING_CONFIRM if state.gates else str(status)
    if state.reopened and not state.round_calls:
        return restored(state, state.round_chain)
    return state.stage or str(status)


def restored(state: State, chain: Sequence[str]) -> str:
    """Return the status of a retried pipeline until its first step starts: the stage before it (T12)."""
    if state.parent:
        return str(RunStatus.COMPLETED)
    stage = resume_stage(state, chain)
    order = stages(state)
    if stage not in order or order.index(stage) == 0:
        return str(RunStatus.PENDING)
    first = next(track for track in state.tracks.values() if track.step.stage == stage)
    return AWAITING_CONFIRM if first.step.confirm else order[order.index(stage) - 1]


def resume_stage(state: State, chain: Iterable[str]) -> str:
    """Return the stage where a retry of these steps resumes: that of the first of them in plan order."""
    wanted = set(chain)
    stage = ""
    for track in state.tracks.values():
        stage = track.step.stage or stage
        if track.id in wanted:
            return stage
    return ""


def failed_stage(state: State) -> str:
    """Return the stage at which the run failed, if it failed (T9)."""
    failed = first_failed(state)
    return resume_stage(state, [failed.id]) if failed is not None else ""


def first_failed(state: State) -> Track | None:
    """Return the first step, in plan order, that keeps the run from completion."""
    if state.rest is not None and state.rest.status == RunStatus.COMPLETED:
        return None
    bad = (Phase.FAILED, Phase.DOUBT)
    return next((track for track in state.tracks.values() if track.phase in bad), None)


def kept_files(state: State, chain: Sequence[str]) -> list[str]:
    """Return the kept files that are read by the stage where a retry resumes (T12)."""
    inside, stage = set(chain), resume_stage(state, chain)
    files = dict.fromkeys(file.path for file in state.inherited)
    for track in state.tracks.values():
        if track.id in inside and (track.step.stage or stage) == stage:
            for need, _ in track.needs:
                if need.id not in inside and need.result is not None:
                    files.update(dict.fromkeys(need.result.files))
    return list(files)


def last_files(state: State) -> list[tuple[str, str, str]]:
    """Return the run's final files, with path, digest and step: those of steps that no other step needs."""
    return [
        (path, digest, track.id)
        for track in state.tracks.values()
        if track.result is not None and track.phase is Phase.SUCCEEDED and not track.out
        for path, digest in track.result.files.items()
    ]


def task_view(state: State, follow_up: State | None = None) -> dict[str, Any]:
    """Return the readable snapshot for a workspace; a view, never read back as truth (T9)."""
    failed = first_failed(state)
    pending = "pending" if state.follow_up is not None else None
    return {
        "task_id": state.run,
        "objective": state.objective,
        "status": shown_status(state),
        "error": str(failed.error.message) if failed is not None and failed.error is not None else None,
        "failed_stage": failed_stage(state) or None,
        "retry_count": state.retries,
        "max_retries": state.policy.max_retries,
        "retry_history": list(state.retry_history),
        **_feedback(follow_up, pending),
    }


def _feedback(state: State | None, otherwise: str | None) -> dict[str, Any]:
    if state is None:
        return {"feedback_status": otherwise, "feedback_error": None, "feedback_retry_count": 0}
    failed = first_failed(state)
    return {
        "feedback_status": str(run_status(state)),
        "feedback_error": str(failed.error.message) if failed is not None and failed.error is not None else None,
        "feedback_retry_count": state.retries,
    }


def media_of(path: str) -> str:
    """Return the media type of a file, by its name."""
    name, dot, ending = path.rpartition("/")[2].rpartition(".")
    return MEDIA.get(f"{dot}{ending}".lower(), "application/octet-stream") if name else "application/octet-stream"
