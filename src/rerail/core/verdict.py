"""The verdict and the statistics: computed from the state, one row per planned step (SPEC V1, V2, V7).

Rules of this file:
- Never from a window of events, never from counts of attempts: two views of one state cannot disagree.
- The summary is made from the verdict, so it cannot contradict it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from rerail.core.events import Done, Evaluation, GateOpened, Shown
from rerail.core.plan import When
from rerail.core.state import State
from rerail.core.track import DEAD, DEAD_OPEN, WORTH, Phase, RunStatus, Standing, Status, Track
from rerail.i18n import Told, clipped, has, one_by_one, retold, tell

ENDED_WELL = frozenset({Status.SUCCEEDED, Status.DEGRADED})
ACCEPTED = frozenset({"SKIP_OPTIONAL", "SKIP_USER", "SKIP_CONDITION"})


def status_of(state: State, track: Track) -> tuple[Status, str]:
    """A step's status and, where it did not simply run, the code that says why."""
    phase = track.phase
    if phase is Phase.SUCCEEDED:
        degraded = track.result is not None and track.result.degraded
        return (Status.DEGRADED if degraded else Status.SUCCEEDED), ""
    if phase is Phase.PENDING:
        return _pending(state, track)
    if phase is Phase.FAILED:
        return Status.FAILED, track.error.code if track.error else "TOOL_FAILED"
    if phase is Phase.SKIPPED:
        return Status.SKIPPED, track.skip.code if track.skip else "SKIP_USER"
    if phase is Phase.RUNNING:
        return Status.RUNNING, ""
    if phase is Phase.DOUBT:
        return Status.IN_DOUBT, track.error.code if track.error else ""
    return Status.WAITING, track.error.code if track.error else ""


def _pending(state: State, track: Track) -> tuple[Status, str]:
    if track.again and (track.dead or state.stopped or state.rest):
        # It succeeded before, and could not be done again: the old result stays, marked stale (R3).
        degraded = track.result is not None and track.result.degraded
        return (Status.DEGRADED if degraded else Status.SUCCEEDED), ""
    if track.dead:
        return Status.SKIPPED, "SKIP_UPSTREAM_FAILED"
    if track.standing is Standing.VOID:
        return Status.SKIPPED, "SKIP_CONDITION"
    if state.stopped:
        return Status.CANCELLED, state.stopped
    if track.n in state.gates:
        return Status.WAITING, "confirm"
    return (Status.READY if track in state.ready else Status.PENDING), ""


def stale_of(state: State, track: Track) -> str:
    """Why a kept result may be out of date; empty if it is not."""
    if track.stale:
        return track.stale
    if track.phase is not Phase.PENDING or not track.again:
        return ""
    return "upstream" if track.dead else "stopped" if state.stopped or state.rest is not None else ""


def run_status(state: State) -> RunStatus:
    """What the run is, now."""
    if state.rest is not None:
        return RunStatus(state.rest.status)
    if state.waiting:
        return RunStatus.WAITING
    return RunStatus.RUNNING if state.seq and not state.queued else RunStatus.PENDING


def skip_message(state: State, track: Track, code: str, lang: str = "en") -> str:
    """Why a step did not run, in a language."""
    return retold(skip_told(state, track, code), lang)


def skip_told(state: State, track: Track, code: str) -> str:
    """Why a step did not run; each failed need with its tool and its reason, chains never nested (X2)."""
    if code == "SKIP_UPSTREAM_FAILED":
        words = tell("skip.SKIP_UPSTREAM_FAILED")
        parts = []
        for need, when in track.needs:
            if WORTH[when][need.standing] in (DEAD, DEAD_OPEN):
                failed = need.phase is Phase.FAILED and need.error is not None
                reason = need.error.told if failed and need.error else words
                parts.append(tell("skip.upstream_part", step=need.id, tool=_tool(need), reason=reason))
        return tell("skip.upstream", words=words, parts=one_by_one(parts, "skip.upstream_parts"))
    if code == "SKIP_CONDITION":
        steps = ", ".join(need.id for need, when in track.needs if when is When.FAILURE)
        return tell("skip.SKIP_CONDITION", steps=steps or ", ".join(need.id for need, _ in track.needs))
    if track.skip is not None and track.skip.code == code:
        message = track.skip.message
        if isinstance(message, Told) or code not in ("SKIP_OPTIONAL", "SKIP_USER"):
            return message
        # In histories of earlier versions it is a text, and no more.
        retries, reason = max(0, track.calls - 1), track.error.told if track.error else ""
        if code == "SKIP_OPTIONAL" and track.id in state.unsettled:
            return tell("skip.SKIP_OPTIONAL_DOUBT", reason=reason).worded(message)
        key = f"skip.{code}" if retries or code != "SKIP_OPTIONAL" else "skip.SKIP_OPTIONAL_UNTRIED"
        return tell(key, retries=retries, reason=reason, by=track.skip.by).worded(message)
    begun = track.call is not None and has(f"begun.{code}")
    return tell(f"begun.{code}" if begun else f"skip.{code}")


def _tool(track: Track) -> str:
    return track.call.tool if track.call is not None else track.step.tool


def swapped(state: State, track: Track) -> dict[str, str]:
    """The tool that a mind chose for a step, and the one that the plan names; nothing if that did it (H8)."""
    tool, named = _tool(track), state.planned.get(track.id, ())
    return {"tool": tool, "planned": named[0]} if named and tool not in named else {}


def error_of(state: State, track: Track, status: Status, code: str, lang: str = "en") -> dict[str, Any] | None:
    """A step's error as plain data: code, category, message; skips have one too."""
    if status in (Status.FAILED, Status.IN_DOUBT) or (
        status is Status.WAITING and track.error is not None and code != "confirm"
    ):
        if track.error is None:
            return None
        return {**track.error.to_dict(), "category": str(track.category), "message": retold(track.error.told, lang)}
    if status in (Status.SKIPPED, Status.CANCELLED):
        return {"code": code, "category": None, "message": skip_message(state, track, code, lang)}
    return None


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the run came to."""

    success: bool
    complete: bool
    degraded: bool
    failed_steps: tuple[dict[str, Any], ...]
    consequences: tuple[str, ...]
    never: tuple[str, ...]  # never started, and why not: the run was stopped
    counts: dict[Status, int]
    attempted: int  # steps whose tool was called
    well: int  # of these, how many ended succeeded or degraded
    judge: str
    missing: tuple[str, ...]
    in_doubt: tuple[str, ...] = ()  # steps whose effect may have happened, those that the run went on without included


def verdict(state: State) -> Verdict:
    """The verdict of the state as it is: O(steps), and remembered until a step moves."""
    key = (state.moves, state.stopped, state.rest is None)
    if state.tally is None or state.tally[0] != key:
        state.tally = (key, _tally(state))
    bad, degraded, failed, consequences, never, counts, attempted, well = state.tally[1]
    judged = state.judged
    complete = not bad and (judged is None or judged.complete)
    # What somebody ended is no success, even if nothing was left to do.
    success = not bad and state.stopped != "RUN_CANCELLED"
    other_plan = bool(state.fallback or state.forgone)  # not the plan that was wanted, or not all of it
    return Verdict(
        success, complete, degraded or other_plan, failed, consequences, never, counts, attempted, well,
        judged.judge if judged else "none", judged.missing if judged else (),
        doubts_of(state) if state.doubts or state.unsettled else (),
    )  # fmt: skip


def doubts_of(state: State) -> tuple[str, ...]:
    """The steps whose effect only a person can tell, in plan order (E3)."""
    if not state.doubts and not state.unsettled:
        return ()
    going_on = (Phase.PENDING, Phase.RUNNING, Phase.BACKOFF, Phase.HURT)  # a call under the same key is under way
    settled = () if state.stopped or state.rest is not None else going_on
    open_ = {name for name, track in state.unsettled.items() if track.phase not in settled}
    return tuple(
        track.id
        for track in state.tracks.values()
        if (track.phase is Phase.DOUBT and not track.question) or track.id in open_
    )


def _tally(state: State) -> tuple[Any, ...]:
    counts = dict.fromkeys(Status, 0)
    failed: list[dict[str, Any]] = []
    consequences: list[str] = []
    never: list[str] = []
    degraded = bad = False
    plain = attempted = well = 0
    for track in state.tracks.values():
        called = track.call is not None
        attempted += called
        if (
            track.phase is Phase.SUCCEEDED
            and not track.stale
            and track.result is not None
            and not track.result.degraded
        ):
            plain += 1
            well += called
            continue
        status, code = status_of(state, track)
        counts[status] += 1
        well += called and status in ENDED_WELL
        if status is Status.SUCCEEDED:
            degraded = degraded or bool(stale_of(state, track))
            continue
        if status is Status.DEGRADED:
            degraded = True
        elif status is Status.SKIPPED:
            degraded = degraded or code in ("SKIP_OPTIONAL", "SKIP_USER")
            if code not in ACCEPTED:
                bad = True
                consequences.append(track.id)
        else:
            bad = True
            if status is Status.CANCELLED:
                never.append(track.id)
            elif status in (Status.FAILED, Status.IN_DOUBT):
                reason = str(track.error.message) if track.error else code
                failed.append({"id": track.id, "tool": _tool(track), "code": code, "reason": reason})
    counts[Status.SUCCEEDED] += plain
    return bad, degraded, tuple(failed), tuple(consequences), tuple(never), counts, attempted, well


def statistics(state: State, found: Verdict, now: float) -> dict[str, Any]:
    """`exec`: by the latest result per step of the current revision; status counts are disjoint (V2)."""
    return {
        "total": len(state.tracks),
        "attempted": found.attempted,
        **_counts(found.counts),
        "success_rate": found.well / found.attempted if found.attempted else 0.0,
        "calls": state.calls,
        "seconds": {
            "tools": round(state.tool_seconds, 6),
            "waiting": round(state.wait_seconds, 6),
            "total": round(state.seconds(now), 6),
        },
        "tokens": state.tokens,
        "cost": state.cost,
        "used": used(state, state.tracks.values()),
    }


def used(state: State, tracks: Iterable[Track]) -> list[dict[str, Any]]:
    """One row per step: which tool it came to, how it ended, skips with their code (V2)."""
    rows = []
    for track in tracks:
        status, code = status_of(state, track)
        rows.append({
            "id": track.step.id, "tool": _tool(track), "status": status._value_, "code": code or None,
            "attempts": track.attempt,
        })  # fmt: skip
    return rows


def _counts(counts: dict[Status, int]) -> dict[str, int]:
    names = (Status.SUCCEEDED, Status.FAILED, Status.SKIPPED, Status.DEGRADED, Status.CANCELLED, Status.IN_DOUBT)
    return {str(status): counts[status] for status in names}


def round_statistics(state: State) -> dict[str, Any]:
    """The statistics since `retry_begin` only: those of the retry set (R4)."""
    chain = [track for step_id in state.round_chain if (track := state.tracks.get(step_id)) is not None]
    called = [track for step_id in state.round_calls if (track := state.tracks.get(step_id)) is not None]
    counts = dict.fromkeys(Status, 0)
    concerned = {track.n: track for track in [*chain, *called]}.values()
    for track in concerned:
        status = status_of(state, track)[0]
        # A step that was kept without a call is no success of this round.
        if status not in ENDED_WELL or track.id in state.round_calls:
            counts[status] += 1
    well = counts[Status.SUCCEEDED] + counts[Status.DEGRADED]
    return {
        "total": len(chain),
        "attempted": len(called),
        **_counts(counts),
        "success_rate": well / len(called) if called else 0.0,
        "calls": sum(state.round_calls.values()),
        "used": used(state, concerned),
    }


def summary(state: State, found: Verdict) -> Told:
    """One sentence made from the verdict (V7), what is in doubt, and what another tool than the plan's did."""
    said = _summary(state, found)
    passed = [name for name in found.in_doubt if state.tracks[name].phase is not Phase.DOUBT]
    if passed:
        said = tell("summary.in_doubt", summary=said, names=", ".join(passed[:5]))
    tracks = (track for step_id in state.planned if (track := state.tracks.get(step_id)) is not None)
    parts = [
        f"{track.id} ({tools['planned']} → {tools['tool']})"
        for track in tracks
        if _by_call(track) and (tools := swapped(state, track))
    ]
    if not parts:
        return said
    names = ", ".join(parts[:5]) + (f" … (+{len(parts) - 5})" if len(parts) > 5 else "")
    return tell("summary.instead", summary=said, names=names)


def _by_call(track: Track) -> bool:
    """Whether a step's result is its tool's, and neither a person's nor what stood in for one."""
    result = track.result if track.phase is Phase.SUCCEEDED else None
    return result is not None and result.by in ("", "verify") and not result.stands_in


def _summary(state: State, found: Verdict) -> Told:
    total, counts = len(state.tracks), found.counts
    done = counts[Status.SUCCEEDED] + counts[Status.DEGRADED]
    names = ""
    if found.failed_steps:
        errors = [(row, state.tracks[row["id"]].error) for row in found.failed_steps[:5]]
        said = [(row["id"], clipped(error.told if error else row["code"], 120)) for row, error in errors]
        names = one_by_one([tell("summary.of", id=name, reason=reason) for name, reason in said], "text.and")
    if len(found.failed_steps) > 5:
        names = tell("text.more", said=names, more=f" … (+{len(found.failed_steps) - 5})")
    if state.waiting:
        on = (tell(f"summary.on.{item['for']}", step=item["step"]) for item in waiting_on(state))
        return tell("summary.waiting", on=one_by_one(on, "text.and"))
    if state.stopped == "RUN_CANCELLED":
        if not found.never:  # what it was to do again, or had done before, is kept
            key = "cancelled_kept" if done else "cancelled_open" if names else "cancelled_undone"
            return tell(f"summary.{key}", done=done, total=total, names=names)
        return tell("summary.cancelled", never=len(found.never), total=total)
    if found.success:
        if not found.complete:
            return tell("summary.incomplete", missing=", ".join(found.missing) or tell("reason.see_judge"))
        if state.fallback:
            return tell("summary.fallback_plan", total=total, reason=state.fallback)
        if state.forgone:
            return tell("summary.forgone", total=total, names=", ".join(list(state.forgone)[:5]))
        if found.degraded:
            stale = sum(bool(stale_of(state, track)) for track in state.tracks.values())
            less = {"degraded": counts[Status.DEGRADED], "skipped": counts[Status.SKIPPED], "stale": stale}
            key = ".".join(name for name, count in less.items() if count)
            return tell(f"summary.less.{key}", total=total, **less)
        retries = state.calls - found.attempted
        key = "summary.healed" if retries > 0 else "summary.success"
        return tell(key, total=total, done=done, retries=retries)
    if state.stopped:
        key = "summary.stopped" if found.never else "summary.stopped_last"
        reason = tell(f"stop.{state.stopped}")
        return tell(key, reason=reason, names=names or "-", never=len(found.never), total=total)
    if found.failed_steps:
        key = "summary.failed" if found.consequences else "summary.failed_alone"
        return tell(key, names=names, consequences=len(found.consequences))
    return tell("summary.running", done=done, total=total)


def done_summary(state: State, done: Done, lang: str = "en") -> str:
    """The summary that a run came to rest with; of a history that holds its words alone, it is made anew if it can."""
    if lang == "en" or isinstance(done.summary, Told) or state.rest is None or state.rest.summary != done.summary:
        return retold(done.summary, lang)
    return retold(summary(state, verdict(state)), lang)


def waiting_on(state: State) -> list[dict[str, Any]]:
    """What only a person can move."""
    on: list[dict[str, Any]] = []
    if state.paused:
        on.append({"step": "", "for": "paused"})
    for track in state.gates.values():
        question = track.step.confirm if isinstance(track.step.confirm, str) else ""
        on.append({"step": track.id, "for": "confirm", "question": question})
    on += [
        {"step": track.id, "for": "in_doubt", "tool": _tool(track)}
        for track in state.doubts.values()
        if not track.question
    ]
    return on


NOTHING: Mapping[str, Any] = {}


def gate_row(shown: GateOpened, large: Mapping[str, Any] = NOTHING) -> dict[str, Any]:
    """The call that a gate shows, as plain data; with the one that was agreed to before, and which files changed."""
    row, before = _call_row(shown, large), shown.before
    if before is None:
        return row
    changed = (
        [path for path, digest in shown.files.items() if before.files.get(path) != digest] if before.digest else []
    )
    return {**row, "before": _call_row(before, large), **({"changed_files": changed} if changed else {})}


def _call_row(call: GateOpened | Shown, large: Mapping[str, Any]) -> dict[str, Any]:
    row = {"tool": call.tool, "args": large.get(call.args_blob) if call.args_blob else call.args}
    files = {"files": list(call.files)} if call.files else {}
    return {**row, "digest": call.digest or None, **files}


def evaluation(state: State, found: Verdict, judge: str = "none", reason: str = "") -> Evaluation:
    """The computed verdict as an event, with no judge's word in it."""
    return Evaluation(
        found.success, found.success, found.degraded, found.failed_steps, found.consequences,
        judge=judge, reason=reason, summary=summary(state, found),
    )  # fmt: skip
