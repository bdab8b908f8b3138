"""The verdict and the statistics: computed from the state, one row per planned step (contract V1, V2, V7).

Rules of this file:
- Never from a window of events, never from counts of attempts: two views of one state cannot disagree.
- The summary is made from the verdict, so it cannot contradict it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rerail.i18n import Told, clipped, has, one_by_one, retold, tell
from rerail.kernel.events import Done, Evaluation, GateOpened, Shown
from rerail.kernel.state import State
from rerail.kernel.step_state import DEAD, DEAD_OPEN, Phase, RunStatus, Standing, Status, Track
from rerail.plan.step import When

ENDED_WELL = frozenset({Status.SUCCEEDED, Status.DEGRADED})
ACCEPTED = frozenset({"SKIP_OPTIONAL", "SKIP_USER", "SKIP_CONDITION"})


def status_of(state: State, track: Track) -> tuple[Status, str]:
    """Return a step's status and, unless it simply ran, the code that says why."""
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
    if state.finals and state.is_kept_back(track) and state.rest is None:
        return Status.PENDING, ""
    if track.again and (track.dead or state.stopped or state.rest):
        # It succeeded before, and could not be redone: the old result stays, marked stale (R3).
        degraded = track.result is not None and track.result.degraded
        return (Status.DEGRADED if degraded else Status.SUCCEEDED), ""
    if track.dead:
        return Status.SKIPPED, "SKIP_UPSTREAM_FAILED"
    if track.standing is Standing.VOID:
        return Status.SKIPPED, "SKIP_CONDITION"
    if state.stopped and not (state.is_live(track) and _cleans_up(state)):
        return Status.CANCELLED, state.stopped
    if track.n in state.gates:
        return Status.WAITING, "confirm"
    return (Status.READY if track in state.ready else Status.PENDING), ""


def stale_of(state: State, track: Track) -> str:
    """Return why a kept result may be out of date; empty if it is not."""
    if track.stale:
        return track.stale
    if track.phase is not Phase.PENDING or not track.again:
        return ""
    return "upstream" if track.dead else "stopped" if state.stopped or state.rest is not None else ""


def run_status(state: State) -> RunStatus:
    if state.rest is not None:
        return RunStatus(state.rest.status)
    if state.waiting:
        return RunStatus.WAITING
    return RunStatus.RUNNING if state.seq and not state.queued else RunStatus.PENDING


def skip_message(state: State, track: Track, code: str, lang: str = "en") -> str:
    """Return why a step did not run, in a language."""
    return retold(skip_told(state, track, code), lang)


def skip_told(state: State, track: Track, code: str) -> str:
    """Return why a step did not run; each failed need with its tool and its reason, chains never nested (X2)."""
    if code == "SKIP_UPSTREAM_FAILED":
        words = tell("skip.SKIP_UPSTREAM_FAILED")
        parts = []
        for need, when in track.needs:
            if state.worth(track, need, when) in (DEAD, DEAD_OPEN):
                failed = need.phase is Phase.FAILED and need.error is not None
                reason = need.error.told if failed and need.error else _left(state, need) or words
                parts.append(tell("skip.upstream_part", step=need.id, tool=_tool(need), reason=reason))
        return tell("skip.upstream", words=words, parts=one_by_one(parts, "skip.upstream_parts"))
    if code == "SKIP_CONDITION":
        steps = ", ".join(need.id for need, when in track.needs if when is When.FAILURE)
        return tell("skip.SKIP_CONDITION", steps=steps or ", ".join(need.id for need, _ in track.needs))
    if track.skip is not None and track.skip.code == code:
        message = track.skip.message
        if isinstance(message, Told) or code not in ("SKIP_OPTIONAL", "SKIP_USER"):
            return message
        # In histories of earlier versions it is a plain string.
        retries, reason = max(0, track.calls - 1), track.error.told if track.error else ""
        if code == "SKIP_OPTIONAL" and track.id in state.unsettled:
            return tell("skip.SKIP_OPTIONAL_DOUBT", reason=reason).worded(message)
        key = f"skip.{code}" if retries or code != "SKIP_OPTIONAL" else "skip.SKIP_OPTIONAL_UNTRIED"
        return tell(key, retries=retries, reason=reason, by=track.skip.by).worded(message)
    begun = track.call is not None and has(f"begun.{code}")
    return tell(f"begun.{code}" if begun else f"skip.{code}")


def _left(state: State, need: Track) -> str:
    """Return why a stopped run left a step as it is; empty for a step that ended."""
    status, code = status_of(state, need)
    if status is Status.IN_DOUBT:
        return need.error.told if need.error is not None else ""
    return skip_told(state, need, code) if status is Status.CANCELLED else ""


def _tool(track: Track) -> str:
    return track.call.tool if track.call is not None else track.step.tool


def swapped(state: State, track: Track) -> dict[str, str]:
    """Return the tool that a mind chose for a step, and the planned one; empty if the planned tool ran (H8)."""
    tool, named = _tool(track), state.planned.get(track.id, ())
    return {"tool": tool, "planned": named[0]} if named and tool not in named else {}


def error_of(state: State, track: Track, status: Status, code: str, lang: str = "en") -> dict[str, Any] | None:
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
    """The outcome of a run."""

    success: bool
    complete: bool
    degraded: bool
    failed_steps: tuple[dict[str, Any], ...]
    consequences: tuple[str, ...]
    never: tuple[str, ...]  # never started, because the run was stopped
    cut: tuple[str, ...]  # started, and neither ended nor tried again, for the same reason
    counts: dict[Status, int]
    called: int  # steps with a call of their tool
    attempted: int  # these, and steps that failed before it
    well: int  # of these, the number that ended succeeded or degraded
    judge: str
    missing: tuple[str, ...]
    in_doubt: tuple[str, ...] = ()  # steps with a possible effect, also if the run passed over them
    uncleaned: tuple[str, ...] = ()  # steps of `finally` that did not do their work (P2)


def verdict(state: State) -> Verdict:
    """Return the verdict of the current state: O(steps), cached until a step moves."""
    key = (state.moves, state.stopped, state.rest is None, state.cleaned, state.waiting)
    if state.tally is None or state.tally[0] != key:
        state.tally = (key, _tally(state))
    bad, degraded, failed, consequences, never, cut, counts, called, attempted, well = state.tally[1]
    judged = state.judged
    well_done = not bad and state.seq > 0  # a run that never got its plan did nothing
    complete = well_done and (judged is None or judged.complete)
    # A run ended by hand is no success, even if nothing was left to do.
    success = well_done and state.stopped != "RUN_CANCELLED"
    other_plan = bool(state.fallback or state.forgone)  # a fallback plan, or one with required steps left out
    return Verdict(
        success, complete, degraded or other_plan, failed, consequences, never, cut, counts, called, attempted, well,
        judged.judge if judged else "none", judged.missing if judged else (),
        doubts_of(state) if state.doubts or state.unsettled else (),
        _uncleaned(state) if state.cleaned and not _cleans_up(state) else (),
    )  # fmt: skip


def _cleans_up(state: State) -> bool:
    """True if the clean-up is under way, or waits for a user."""
    under_way = state.running or state.backoff or state.held or state.hurt or state.waiting
    return state.cleaning is not None and (bool(under_way) or any(True for _ in state.startable()))


def _uncleaned(state: State) -> tuple[str, ...]:
    """Return the steps of `finally` that did not do their work, in plan order.

    A step without the success that it needs is one. So is a step in doubt, whatever value stands in for it.
    """
    found: dict[str, None] = {}
    for track in state.tracks.values():
        if track.id not in state.finals or (track.skip is not None and track.skip.code == "SKIP_USER"):
            continue
        unsure = any(need.id in found or need.id in state.unsettled for need, _ in track.needs)
        needless = track.phase is Phase.PENDING and track.standing is Standing.VOID
        done = track.phase is Phase.SUCCEEDED and track.id not in state.unsettled
        if not done and (unsure or not needless):
            found[track.id] = None
    return tuple(found)


def doubts_of(state: State) -> tuple[str, ...]:
    """Return the steps in doubt that only a user can settle, in plan order (E3)."""
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
    cut: list[str] = []
    degraded = bad = False
    plain = called = attempted = well = 0
    waits = state.finals if state.rest is None and not state.cleaned else ()  # they are no part of the work
    for track in state.tracks.values():
        if track.id in waits and track.phase is Phase.PENDING:
            continue
        called += track.call is not None
        tried = track.call is not None or track.phase is Phase.FAILED
        attempted += tried
        if (
            track.phase is Phase.SUCCEEDED
            and not track.stale
            and track.result is not None
            and not track.result.degraded
        ):
            plain += 1
            well += tried
            continue
        status, code = status_of(state, track)
        counts[status] += 1
        well += tried and status in ENDED_WELL
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
                (never if track.call is None else cut).append(track.id)
            elif status in (Status.FAILED, Status.IN_DOUBT):
                reason = str(track.error.message) if track.error else code
                failed.append({"id": track.id, "tool": _tool(track), "code": code, "reason": reason})
    counts[Status.SUCCEEDED] += plain
    names = (tuple(failed), tuple(consequences), tuple(never), tuple(cut))
    return bad, degraded, *names, counts, called, attempted, well


def statistics(state: State, found: Verdict, now: float) -> dict[str, Any]:
    """Return `exec`: by the latest result per step of the current revision; status counts are disjoint (V2)."""
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
    """Return one row per step: the tool used, its end, skips with their code (V2)."""
    rows = []
    for track in tracks:
        status, code = status_of(state, track)
        rows.append({
            "id": track.id, "tool": _tool(track), "status": status._value_, "code": code or None,
            "attempts": track.attempt,
        })  # fmt: skip
    return rows


def _counts(counts: dict[Status, int]) -> dict[str, int]:
    names = (Status.SUCCEEDED, Status.FAILED, Status.SKIPPED, Status.DEGRADED, Status.CANCELLED, Status.IN_DOUBT)
    return {str(status): counts[status] for status in names}


def round_statistics(state: State) -> dict[str, Any]:
    """Return the statistics since `retry_begin` only: those of the retry set (R4)."""
    chain = [track for step_id in state.round_chain if (track := state.tracks.get(step_id)) is not None]
    called = [track for step_id in state.round_calls if (track := state.tracks.get(step_id)) is not None]
    called += [track for track in chain if track.phase is Phase.FAILED and track.id not in state.round_calls]
    counts = dict.fromkeys(Status, 0)
    concerned = {track.n: track for track in [*chain, *called]}.values()
    for track in concerned:
        status = status_of(state, track)[0]
        # A step kept without a call is no success of this round.
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
    """Return one sentence from the verdict (V7), with doubts and the work of unplanned tools."""
    said = _summary(state, found)
    if found.cut:
        said = tell("summary.cut", summary=said, names=_listed(found.cut))
    waits = {track.id for track in state.doubts.values()} if state.waiting else ()
    passed = [name for name in found.in_doubt if name not in waits]
    if passed:
        said = tell("summary.in_doubt", summary=said, names=_listed(passed))
    if found.uncleaned:
        said = tell("summary.uncleaned", summary=said, names=_listed(found.uncleaned))
    tracks = (track for step_id in state.planned if (track := state.tracks.get(step_id)) is not None)
    parts = [
        f"{track.id} ({tools['planned']} → {tools['tool']})"
        for track in tracks
        if _by_call(track) and (tools := swapped(state, track))
    ]
    if not parts:
        return said
    return tell("summary.instead", summary=said, names=_listed(parts))


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:5]) + (f" … (+{len(names) - 5})" if len(names) > 5 else "")


def _by_call(track: Track) -> bool:
    """True if a step's result comes from its tool, not from a user or a fallback."""
    result = track.result if track.phase is Phase.SUCCEEDED else None
    return result is not None and not result.is_by_hand and not result.stands_in


def _summary(state: State, found: Verdict) -> Told:
    if not state.seq:
        return tell("summary.unplanned")
    total, counts = sum(found.counts.values()), found.counts
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
        if not found.never:  # every step was called before: done, cut off, or about to be redone
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
        retries, needless = state.calls - found.called, counts[Status.SKIPPED]
        if needless:
            key = "summary.healed_but" if retries > 0 else "summary.success_but"
        else:
            key = "summary.healed" if retries > 0 else "summary.success"
        return tell(key, total=total, done=done, retries=retries, needless=needless)
    if state.stopped:
        keys = ("summary.stopped_alone", "summary.stopped_alone_last")
        keys = ("summary.stopped", "summary.stopped_last") if names else keys
        reason = tell(f"stop.{state.stopped}")
        return tell(keys[not found.never], reason=reason, names=names, never=len(found.never), total=total)
    if found.failed_steps:
        key = "summary.failed" if found.consequences else "summary.failed_alone"
        return tell(key, names=names, consequences=len(found.consequences))
    return tell("summary.running", done=done, total=total)


def done_summary(state: State, done: Done, lang: str = "en") -> str:
    """Return the summary recorded at rest; for a history with its words alone, it is recomputed if possible."""
    if lang == "en" or isinstance(done.summary, Told) or state.rest is None or state.rest.summary != done.summary:
        return retold(done.summary, lang)
    return retold(summary(state, verdict(state)), lang)


def waiting_on(state: State) -> list[dict[str, Any]]:
    """Return what only a user can move."""
    on: list[dict[str, Any]] = []
    if state.paused:
        on.append({"step": "", "for": "paused"})
    gates, doubts = (filter(state.is_live, index.values()) for index in (state.gates, state.doubts))
    on += [{"step": track.id, "for": "confirm", "question": track.gate_text} for track in gates]
    on += [
        {"step": track.id, "for": "in_doubt", "tool": _tool(track), "attempt": track.attempt}
        for track in doubts
        if not track.question
    ]
    return on


NOTHING: Mapping[str, Any] = {}


def gate_row(shown: GateOpened, large: Mapping[str, Any] = NOTHING) -> dict[str, Any]:
    """Return the call at a gate as plain data; with the call approved before, and the changed files."""
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
    """Return the computed verdict as an event, without the judge."""
    return Evaluation(
        found.success, found.success, found.degraded, found.failed_steps, found.consequences,
        judge=judge, reason=reason, summary=summary(state, found),
    )  # fmt: skip
