"""What a run came to, for people: the verdict, what failed and why, what healed, and what to type next."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.text import Text

from rerail.cli.live import degraded_words, step_cells
from rerail.cli.output import Output, one_line
from rerail.cli.picture import Mending, Picture
from rerail.cli.style import fitted, icon, moment, style_of, table
from rerail.core.commands import Preview, Refusal, retry
from rerail.core.lines import bare, rung_said, waited_for_one
from rerail.core.pipeline import PAUSED
from rerail.core.state import State
from rerail.core.track import RunStatus, Status, Track
from rerail.core.upstream import supposed
from rerail.core.verdict import doubts_of, error_of, run_status, stale_of, status_of, waiting_on
from rerail.core.views import RunResult, RunRow, result, stale_said
from rerail.i18n import has, retold, span

SHOWN = 12  # of a list in a report; the rest is counted
LONGEST_SHOWN = 160  # characters of arguments in a command to type


# -- The report ---------------------------------------------------------------------------------------------------


def report(
    out: Output,
    picture: Picture,
    now: float,
    *,
    interrupted: bool = False,
    waits_for: Sequence[Mapping[str, Any]] | None = None,
) -> list[Text]:
    """The verdict and everything a person would ask next; ``waits_for`` is what the run waits for, as the engine says.

    Only the engine can fetch the outputs from which the arguments of a call that waits for a person are made.
    """
    found = result(picture.state, {}, now, out.lang)
    status = "interrupted" if interrupted else found.status
    lines = [verdict_line(out, found, status)]
    lines += _section(out, "cli.report.failed", _failed(out, picture, Status.FAILED))
    lines += _section(out, "cli.report.in_doubt", _failed(out, picture, Status.IN_DOUBT))
    lines += _section(out, "cli.report.stopped", _stopped(out, picture.state))
    lines += _section(out, "cli.report.consequences", _skipped(out, picture, accepted=False))
    lines += _section(out, "cli.report.never", [_named(out, "cancelled", step, "") for step in found.never_started])
    lines += _section(out, "cli.report.degraded", _degraded(out, picture))
    lines += _section(out, "cli.report.stale", _stale(out, picture))
    lines += _section(out, "cli.report.skipped", _skipped(out, picture, accepted=True))
    lines += _section(out, "cli.report.healed", _healed(out, picture))
    if found.disputed:
        lines += _section(out, "cli.report.disputed", [_named(out, "succeeded", step, "") for step in found.disputed])
    if picture.state.waiting or is_paused(picture.state):
        waits = [Text.assemble(icon("waiting", fancy=out.fancy), " ", one_line(_waited_for(out, picture, item)))
                 for item in waits_for or waiting_on(picture.state)]  # fmt: skip
        lines += _section(out, "cli.report.waiting", waits)
    return lines + _next(out, next_commands(picture, interrupted=interrupted))


def is_paused(state: State) -> bool:
    """Whether somebody paused a run, though calls may be under way."""
    return state.paused and state.rest is None


def _waited_for(out: Output, picture: Picture, item: Mapping[str, Any]) -> str:
    if item["for"] != "paused":
        return waited_for_one(item, out.lang)
    return out.say(
        "cli.wait.paused_by" if picture.state.waiting else "cli.wait.pausing_by", by=picture.paused_by or "?"
    )


def verdict_line(out: Output, found: RunResult, status: str) -> Text:
    """The verdict in one line: status, run, what it came to, what it cost."""
    shown = "degraded" if status == RunStatus.COMPLETED and found.degraded else status
    words = status_words(out, shown, found.shown_status if status == found.status else "")
    sign = "waiting" if found.shown_status == PAUSED else shown
    line = Text.assemble(icon(sign, fancy=out.fancy), " ", (words, style_of(sign)))
    line.append(f"  {found.run_id}", "bold")
    seconds, calls = found.exec["seconds"]["total"], found.exec["calls"]
    cost = f", {found.exec['tokens']:,} tokens, {found.exec['cost']:g}" if found.exec["tokens"] else ""
    line.append(f"  {out.say('cli.report.cost', calls=calls, seconds=span(seconds))}{cost}  ", "dim")
    if found.failed_stage and status in ("failed", "interrupted"):
        line.append(out.say("cli.report.at_stage", stage=found.failed_stage) + "  ", style_of(shown))
    line.append(one_line(bare(found.summary, found.status), 400))
    return line


def status_words(out: Output, status: str, shown: str = "") -> str:
    """A run's status in words; for a plan with stages, the stage that it is in (T2)."""
    if shown in ("", status) or status not in ("running", "waiting"):
        return out.say(f"cli.status.{status}")
    key = f"cli.status.{shown}"
    return out.say(key) if has(key) else shown


def _section(out: Output, title: str, lines: Sequence[Text]) -> list[Text]:
    if not lines:
        return []
    shown = [Text("  ").append_text(line) for line in lines[:SHOWN]]
    if len(lines) > SHOWN:
        shown.append(Text("  " + out.say("cli.live.more", count=len(lines) - SHOWN), "dim"))
    return [Text(out.say(title), "bold"), *shown]


def _named(out: Output, status: str, step: str, words: str) -> Text:
    line = Text.assemble(icon(status, fancy=out.fancy), " ", (fitted(one_line(step), 48), "bold"))
    return line.append(f"  {one_line(words, 500)}") if words else line


def _failed(out: Output, picture: Picture, wanted: Status) -> list[Text]:
    lines = []
    for track in picture.state.tracks.values():
        status, code = status_of(picture.state, track)
        if status is not wanted:
            continue
        error = error_of(picture.state, track, status, code, out.lang) or {"message": "", "category": ""}
        tool = track.call.tool if track.call is not None else track.step.tool
        words = out.say(
            "cli.report.reason" if track.attempt else "cli.report.reason_uncalled", tool=tool, attempts=track.attempt,
            message=error["message"], code=code, category=error["category"],
        )  # fmt: skip
        lines.append(_named(out, status, track.id, words))
        for name, (step, value) in _meant(track).items():
            told = out.say("cli.report.meant", step=step, name=name, value=json.dumps(value, ensure_ascii=False))
            lines.append(Text("  ").append(one_line(told, 500), "dim"))
    return lines


def _meant(track: Track) -> dict[str, tuple[str, Any]]:
    """What may have been meant by arguments that a tool refused, and the steps that gave it."""
    refused = track.error is not None and track.error.category == "parameter_error"
    return dict(supposed(track)) if refused else {}


def _stopped(out: Output, state: State) -> list[Text]:
    """Why the run stopped before its end, and what to do about it; that somebody cancelled it needs no more words."""
    policy = state.policy
    if state.stopped == "BREAKER_OPEN":
        limit = policy.max_consecutive_failures
        return [
            Text(out.say("cli.report.breaker", count=limit)),
            Text(out.say("cli.report.breaker_setting", limit=limit)),
        ]
    if state.stopped == "BUDGET_EXCEEDED":
        budgets = ("max_attempts", "max_tokens", "max_cost", "max_seconds")
        given = {name: value for name in budgets if (value := getattr(policy, name)) is not None}
        stopping = [name for name in given if name in state.stop_reason] or list(given)
        names = ", ".join(f"run.{name} = {given[name]:g}" for name in stopping)
        reason = retold(state.stop_reason, out.lang) or out.say("stop.BUDGET_EXCEEDED")
        return [Text(out.say("cli.report.budget", reason=reason, names=names))]
    return []


def _skipped(out: Output, picture: Picture, *, accepted: bool) -> list[Text]:
    lines = []
    for track in picture.state.tracks.values():
        status, code = status_of(picture.state, track)
        if status is Status.SKIPPED and (code != "SKIP_UPSTREAM_FAILED") is accepted:
            error = error_of(picture.state, track, status, code, out.lang)
            lines.append(_named(out, status, track.id, error["message"] if error else code))
    return lines


def _degraded(out: Output, picture: Picture) -> list[Text]:
    return [
        _named(out, "degraded", track.id, degraded_words(out, track.result))
        for track in picture.state.tracks.values()
        if track.result is not None and status_of(picture.state, track)[0] is Status.DEGRADED
    ]


def _stale(out: Output, picture: Picture) -> list[Text]:
    """The steps whose result was kept although something it was made from is another today (R3, E5)."""
    found = [(track.id, stale_of(picture.state, track)) for track in picture.state.tracks.values()]
    return [_named(out, "degraded", step, stale_said(stale, out.lang) or "") for step, stale in found if stale]


def _healed(out: Output, picture: Picture) -> list[Text]:
    return [_named(out, "heal", step, mended(out, mending)) for step, mending in picture.healed().items()]


def mended(out: Output, mending: Mending) -> str:
    """What was done about a step, rung by rung."""
    if mending.by_hand:
        return out.say("cli.healed.by_hand", by=mending.by_hand)
    words = []
    if mending.waits:
        words.append(out.say("cli.healed.waits", count=mending.waits))
    if mending.retries:
        words.append(out.say("cli.healed.retries", count=mending.retries))
    words += [rung_said(event, out.lang) for event in mending.rungs]
    if mending.verified:
        words.append(out.say("cli.healed.verified"))
    if mending.rounds:
        words.append(out.say("cli.healed.rounds", count=mending.rounds))
    return "; ".join(words) or out.say("cli.healed.again")


# -- What to type next --------------------------------------------------------------------------------------------


def next_commands(picture: Picture, *, interrupted: bool = False) -> list[str]:
    """The commands that fit the state, most useful first."""
    state = picture.state
    run = state.run
    if interrupted:
        return [f"rerail resume {run}"]
    if state.waiting or is_paused(state):
        needs = [need for gate in state.gates.values() for need, _ in gate.needs]
        files = [path for need in needs if need.result is not None for path in need.result.files]
        look = [f"rerail artifacts {run} {shlex.quote(path)}" for path in files[:1]]
        return look + [_answer(run, item) for item in waiting_on(state)[:3]]
    status = run_status(state)
    if status in (RunStatus.FAILED, RunStatus.CANCELLED):
        failed = next((t for t in state.tracks.values() if status_of(state, t)[0] is Status.FAILED), None)
        look = [f"rerail why {run} {shlex.quote(failed.id)}"] if failed is not None else []
        answers = [] if state.doubts else _doubts(state)  # else the fitting retry names them
        return look + answers + _fitting_repair(run, failed) + _fitting_retry(state)
    if status is RunStatus.RUNNING:
        return [f"rerail watch {run}"]
    return _doubts(state) + ([f"rerail why {run}"] if picture.healed() or picture.mendings else [])


def _doubts(state: State) -> list[str]:
    """The answers to doubts that the run went on without (E3)."""
    return [_resolve(state.run, shlex.quote(name)) for name in doubts_of(state)[:3]]


def _fitting_repair(run: str, failed: Track | None) -> list[str]:
    """The change of a call that will fail as often as it is repeated: with what may have been meant, or gaps (H7)."""
    if failed is None or failed.error is None or failed.error.category != "parameter_error" or not failed.step.args:
        return []
    meant = {name: json.dumps(value, ensure_ascii=False) for name, (_, value) in _meant(failed).items()}
    # As it was would change nothing, and be refused; a gap that nobody filled is refused as no JSON.
    given = meant or dict.fromkeys(failed.step.args, "NEW")
    text = ", ".join(f"{json.dumps(name, ensure_ascii=False)}: {value}" for name, value in given.items())
    shown = shlex.quote("{" + text + "}") if len(text) <= LONGEST_SHOWN else "JSON"
    return [f"rerail repair {run} {shlex.quote(failed.id)} --args {shown}"]


def _fitting_retry(state: State) -> list[str]:
    """The retry that would not be refused, to look at first and then to do (T4)."""
    run = state.run
    for option in ("", " --force"):
        try:
            retry(state, "", force=bool(option))
        except Refusal as refusal:
            if refusal.code == "RUN_IN_DOUBT":
                return [_resolve(run, shlex.quote(name)) for name in doubts_of(state)[:1]]
        else:
            return [f"rerail retry {run}{option} --dry-run", f"rerail retry {run}{option}"]
    return [f"rerail retry {run} --clean"]


def _answer(run: str, item: Mapping[str, Any]) -> str:
    step = shlex.quote(item["step"]) if item["step"] else ""
    if item["for"] == "confirm":
        return f"rerail confirm {run} {step}"
    if item["for"] == "in_doubt":
        return _resolve(run, step)
    return f"rerail resume {run}"


def _resolve(run: str, step: str) -> str:
    return f"rerail resolve {run} {step} --succeeded VALUE | --failed | --rerun"


def _next(out: Output, commands: Iterable[str]) -> list[Text]:
    lines = [Text.assemble("  ", (one_line(out.typed(command)), "cyan")) for command in commands]
    return [Text(out.say("cli.report.next"), "bold"), *lines] if lines else []


# -- Tables -------------------------------------------------------------------------------------------------------


def steps_table(out: Output, picture: Picture, now: float, *, everything: bool = False) -> list[Text]:
    """The steps of a run, one a line; of a large plan only those that did not simply succeed."""
    tracks = list(picture.state.tracks.values())
    hidden = 0
    if len(tracks) > 200 and not everything:
        odd = [t for t in tracks if status_of(picture.state, t)[0] not in (Status.SUCCEEDED, Status.PENDING)][:200]
        hidden, tracks = len(tracks) - len(odd), odd
    rows = [step_cells(out, picture, track, now) for track in tracks]
    if hidden and not rows:
        return [Text(out.say("cli.show.hidden", count=hidden), "dim")]
    head = [out.say(f"cli.head.{name}") for name in ("step", "tool", "attempts", "time", "note")]
    lines = table(head, rows, out.out.width)
    return [*lines, Text(out.say("cli.show.hidden", count=hidden), "dim")] if hidden else lines


def runs_table(
    out: Output, rows: Sequence[RunRow], stages: Mapping[str, str], paused_by: Mapping[str, str]
) -> list[Text]:
    """Runs, one a line; of those under way that have stages, which one they are in, and who paused one."""
    cells: list[list[Text | str]] = []
    for row in rows:
        status = "interrupted" if row.interrupted else "degraded" if row.degraded else row.status
        words = status_words(out, status, stages.get(row.run_id, ""))
        sign = "waiting" if stages.get(row.run_id) == PAUSED and not row.interrupted else status
        shown = Text.assemble(icon(sign, fancy=out.fancy), " ", (words, style_of(sign)))
        if row.run_id in paused_by and not row.interrupted:
            shown.append(f" ({one_line(paused_by[row.run_id], 24)})", style_of(sign))
        what = one_line(row.objective, 80) + (f"  ← {row.parent}" if row.parent else "")
        cells.append([Text(row.run_id, "bold"), shown, moment(row.created_at), str(row.events), what])
    head = [out.say(f"cli.head.{name}") for name in ("run", "status", "started", "events", "objective")]
    return table(head, cells, out.out.width)


def preview_lines(out: Output, picture: Picture, preview: Preview) -> list[Text]:
    """What a retry would do, before anything runs (R7)."""
    count, total = len(preview.rerun), len(preview.rerun) + len(preview.kept)
    roots = ", ".join(one_line(step, 48) for step in preview.roots[:SHOWN])
    lines = [Text(out.say("cli.preview.title", run=picture.state.run, count=count, total=total), "bold")]
    lines.append(Text(out.say("cli.preview.roots", roots=roots + (" …" if len(preview.roots) > SHOWN else ""))))
    again = [_named(out, "retry", row["step"], out.told(row["why"])) for row in preview.rerun]
    lines += _section(out, "cli.preview.rerun", again)
    lines += _section(out, "cli.preview.kept", [_kept(out, picture.state, step) for step in preview.kept])
    lines += _section(out, "cli.preview.backs_up", [Text(one_line(name, 200)) for name in preview.backs_up])
    if preview.asks:
        steps = ", ".join(one_line(step, 48) for step in preview.asks[:SHOWN])
        lines.append(Text(out.say("cli.preview.asks", steps=steps)))
    lines += warnings(out, preview.once, preview.edited)
    if preview.passed:
        lines.append(Text(out.say("cli.retry.passed", checks=", ".join(preview.passed)), "yellow"))
    estimate = preview.estimate
    words = out.say("cli.preview.estimate", seconds=span(estimate["seconds"]), tools=span(estimate["tool_seconds"]))
    return [*lines, Text(words + (f", {estimate['cost']:g}" if estimate["cost"] else ""), "dim")]


def outlook_lines(out: Output, picture: Picture, preview: Preview) -> list[Text]:
    """What another action would lead to, before anything happens (R7)."""
    lines = [Text(out.say("cli.outlook.title", status=out.say(f"status.{preview.leads_to}")), "bold")]
    ends = [_named(out, status, step, out.say(f"status.{status}")) for step, status in preview.becomes.items()]
    lines += _section(out, "cli.outlook.becomes", ends)
    runs = [_named(out, "retry", row["step"], out.told(row["why"])) for row in preview.rerun]
    lines += _section(out, "cli.outlook.runs", runs)
    lines += _section(out, "cli.preview.kept", [_kept(out, picture.state, step) for step in preview.kept])
    if preview.asks:
        steps = ", ".join(one_line(step, 48) for step in preview.asks[:SHOWN])
        lines.append(Text(out.say("cli.outlook.asks", steps=steps)))
    return [*lines, *warnings(out, preview.once, preview.edited)]


def _kept(out: Output, state: State, step: str) -> Text:
    return _named(out, status_of(state, state.tracks[step])[0], step, "")


def warnings(out: Output, once: Sequence[str], edited: Sequence[str], *, done: bool = False) -> list[Text]:
    """The effects that must not happen twice, and would; the files that somebody wrote, and would be made again.

    ``done``: nobody is asked any more, it happens."""
    lines = []
    if once:
        lines.append(
            Text(out.say("cli.retry.once" if done else "cli.preview.once", steps=_names(once, 48)), "bold yellow")
        )
    if edited:
        lines.append(
            Text(
                out.say("cli.retry.edited" if done else "cli.preview.edited", files=_names(edited, 200)), "bold yellow"
            )
        )
    return lines


def _names(names: Sequence[str], width: int) -> str:
    return ", ".join(one_line(name, width) for name in names[:20])
