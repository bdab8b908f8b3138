"""A plan whose steps carry stages, as people see it: the stage a run is in, what it keeps, its snapshot (T2, T3, T9).

Rules of this file:
- Views of a state. A stage decides nothing: steps do, and stages are only what people call them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from rerail.core.state import State
from rerail.core.track import Phase, RunStatus, Track
from rerail.core.verdict import run_status

AWAITING_CONFIRM, PAUSED, IN_DOUBT = "awaiting_confirm", "paused", "in_doubt"

MEDIA = {
    ".json": "application/json", ".yaml": "application/yaml", ".yml": "application/yaml", ".txt": "text/plain",
    ".md": "text/markdown", ".csv": "text/csv", ".html": "text/html",
}  # fmt: skip


def stages(state: State) -> list[str]:
    """The stages of the plan, in its order."""
    return list(dict.fromkeys(track.step.stage for track in state.tracks.values() if track.step.stage))


def shown_status(state: State) -> str:
    """What people call the run's status: for a pipeline under way, its stage (T2); for one that waits, why."""
    status = run_status(state)
    if state.rest is not None:
        return str(status)
    if state.paused:
        return PAUSED  # with calls under way, perhaps, and nothing that follows them
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
    """The status a retried pipeline shows until its first step starts: where the stage before had left it (T12)."""
    if state.parent:
        return str(RunStatus.COMPLETED)
    stage = resume_stage(state, chain)
    order = stages(state)
    if stage not in order or order.index(stage) == 0:
        return str(RunStatus.PENDING)
    first = next(track for track in state.tracks.values() if track.step.stage == stage)
    return AWAITING_CONFIRM if first.step.confirm else order[order.index(stage) - 1]


def resume_stage(state: State, chain: Iterable[str]) -> str:
    """The stage at which a retry of these steps goes on: that of the first of them in the plan's order."""
    wanted = set(chain)
    stage = ""
    for track in state.tracks.values():
        stage = track.step.stage or stage
        if track.id in wanted:
            return stage
    return ""


def failed_stage(state: State) -> str:
    """The stage at which the run failed, if it has (T9)."""
    failed = first_failed(state)
    return resume_stage(state, [failed.id]) if failed is not None else ""


def first_failed(state: State) -> Track | None:
    """The first step, in the plan's order, that keeps the run from being completed."""
    if state.rest is not None and state.rest.status == RunStatus.COMPLETED:
        return None
    bad = (Phase.FAILED, Phase.DOUBT)
    return next((track for track in state.tracks.values() if track.phase in bad), None)


def kept_files(state: State, chain: Sequence[str]) -> list[str]:
    """The files that the stage where a retry goes on reads, and that are kept (T12)."""
    inside, stage = set(chain), resume_stage(state, chain)
    files = dict.fromkeys(file.path for file in state.inherited)
    for track in state.tracks.values():
        if track.id in inside and (track.step.stage or stage) == stage:
            for need, _ in track.needs:
                if need.id not in inside and need.result is not None:
                    files.update(dict.fromkeys(need.result.files))
    return list(files)


def last_files(state: State) -> list[tuple[str, str, str]]:
    """What the run ended with: path, digest and step of the files of the steps that nobody needs."""
    return [
        (path, digest, track.id)
        for track in state.tracks.values()
        if track.result is not None and track.phase is Phase.SUCCEEDED and not track.out
        for path, digest in track.result.files.items()
    ]


def task_view(state: State, follow_up: State | None = None) -> dict[str, Any]:
    """The readable snapshot that a workspace carries; a view, never read back as truth (T9)."""
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
    """The media type of a file, as far as its name tells."""
    name, dot, ending = path.rpartition("/")[2].rpartition(".")
    return MEDIA.get(f"{dot}{ending}".lower(), "application/octet-stream") if name else "application/octet-stream"
