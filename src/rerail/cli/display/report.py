"""Reports of a run, and of a staged task's retry: verdict, failures and reasons, recoveries, the next commands.

Rules of this file:
- Under `zh` the contract fixes the report of a staged task's retry to the letter, icons and spaces included (T3, T12);
  only ids, pids and names vary.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.text import Text

from rerail.cli.display.live import step_cells
from rerail.cli.display.run_view import Mending, Picture
from rerail.cli.output import Output, clean, one_line
from rerail.cli.style import fitted, icon, moment, style_of
from rerail.codes import Category
from rerail.errors import Refused
from rerail.i18n import Told, has, retold, span
from rerail.kernel.actions import Refusal
from rerail.kernel.budget import raised, spent_caps
from rerail.kernel.candidates import supposed
from rerail.kernel.events import RetryBegin
from rerail.kernel.ladder import passed_over
from rerail.kernel.retry import Preview, retry
from rerail.kernel.stages import PAUSED, failed_stage
from rerail.kernel.state import State
from rerail.kernel.step_state import RunStatus, Status, Track
from rerail.kernel.verdict import doubts_of, error_of, run_status, stale_of, status_of, waiting_on
from rerail.views.narration import bare, rung_said, waited_for_one
from rerail.views.results import RunResult, RunRow, degraded_said, result, stale_said

SHOWN = 12  # items of a list in a report; the rest is counted
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
    """Return the verdict and the report's details; ``waits_for`` is the engine's list of waits.

    Only the engine can fetch the outputs from which the arguments of a waiting call are made.
    """
    found = result(picture.state, {}, now, out.lang)
    status = "interrupted" if interrupted else found.status
    waits: list[Text] = []
    if picture.state.waiting or is_paused(picture.state):
        waits = [Text.assemble(icon("waiting", fancy=out.fancy), " ", one_line(_waited_for(out, picture, item)))
                 for item in waits_for or waiting_on(picture.state)]  # fmt: skip
    sections = {
        "cli.report.failed": _failed(out, picture, Status.FAILED),
        "cli.report.in_doubt": _failed(out, picture, Status.IN_DOUBT),
        "cli.report.stopped": _stopped(out, picture.state),
        "cli.report.consequences": _skipped(out, picture, accepted=False),
        "cli.report.uncleaned": [_named(out, "failed", step, "") for step in found.not_cleaned_up],
        "cli.report.cut": [_named(out, "cancelled", step, "") for step in found.cut_off],
        "cli.report.never": [_named(out, "cancelled", step, "") for step in found.never_started],
        "cli.report.degraded": _degraded(out, picture),
        "cli.report.stale": _stale(out, picture),
        "cli.report.skipped": _skipped(out, picture, accepted=True),
        "cli.report.healed": [_named(out, "heal", step, mended(out, one)) for step, one in picture.healed().items()],
        "cli.report.disputed": [_named(out, "succeeded", step, "") for step in found.disputed],
        "cli.report.waiting": waits,
    }
    lines = [line for title, rows in sections.items() for line in _section(out, title, rows)]
    return [verdict_line(out, found, status), *lines, *_next(out, next_commands(picture, interrupted=interrupted))]


def is_paused(state: State) -> bool:
    """Return True if a run is paused, though calls may be under way."""
    return state.paused and state.rest is None


def _waited_for(out: Output, picture: Picture, item: Mapping[str, Any]) -> str:
    if item["for"] != "paused":
        return waited_for_one(item, out.lang)
    return out.say(
        "cli.wait.paused_by" if picture.state.waiting else "cli.wait.pausing_by", by=picture.paused_by or "?"
    )


def verdict_line(out: Output, found: RunResult, status: str) -> Text:
    """Return the verdict in one line: status, run, result, cost."""
    shown = "degraded" if status == RunStatus.COMPLETED and found.degraded else status if found.seq else "unplanned"
    words = status_words(out, shown, found.shown_status if status == found.status else "")
    sign = "waiting" if found.shown_status == PAUSED else shown
    line = Text.assemble(icon(sign, fancy=out.fancy), " ", (words, style_of(sign)))
    line.append(f"  {found.run_id}", "bold")
    seconds, calls = found.exec["seconds"]["total"], found.exec["calls"]
    cost = f", {found.exec['tokens']:,} tokens, {found.exec['cost']:g}" if found.exec["tokens"] else ""
    line.append(f"  {out.say('cli.report.cost', calls=calls, seconds=span(seconds))}{cost}  ", "dim")
    if found.failed_stage and status in ("failed", "interrupted"):
        line.append(out.say("cli.report.at_stage", stage=found.failed_stage) + " ", style_of(shown))
    line.append(one_line(bare(found.summary, found.status), 400))
    return line


def status_words(out: Output, status: str, shown: str = "") -> str:
    """Return a run's status in words; with stages, the current one (contract T2)."""
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
        if status is Status.FAILED and (told := passed_over(track.step.alternatives, track.category)):
            lines.append(Text("  ").append(one_line(retold(told, out.lang), 500), "dim"))
        for name, (step, value) in _meant(track).items():
            told = out.say("cli.report.meant", step=step, name=name, value=json.dumps(value, ensure_ascii=False))
            lines.append(Text("  ").append(one_line(told, 500), "dim"))
    return lines


def _meant(track: Track) -> dict[str, tuple[str, Any]]:
    """Return candidates for arguments that a tool refused, with the steps that produced them."""
    refused = track.category is Category.PARAMETER
    return dict(supposed(track)) if refused else {}


def _stopped(out: Output, state: State) -> list[Text]:
    """Explain why the run stopped early, and what to do about it; a cancelled one needs no more words."""
    policy = state.policy
    if state.stopped == "BREAKER_OPEN":
        limit = policy.max_consecutive_failures
        return [
            Text(out.say("cli.report.breaker", count=limit)),
            Text(out.say("cli.report.breaker_setting", limit=limit)),
        ]
    if state.stopped == "BUDGET_EXCEEDED":
        names = ", ".join(f"run.{name} = {cap:g}" for name, cap in spent_caps(state).items())
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
        _named(out, "degraded", track.id, degraded_said(track, out.lang) or "")
        for track in picture.state.tracks.values()
        if status_of(picture.state, track)[0] is Status.DEGRADED
    ]


def _stale(out: Output, picture: Picture) -> list[Text]:
    """Return the steps with a kept result although one of its inputs has changed since (contract R3, E5)."""
    found = [(track.id, stale_of(picture.state, track)) for track in picture.state.tracks.values()]
    return [_named(out, "degraded", step, stale_said(stale, out.lang) or "") for step, stale in found if stale]


def mended(out: Output, mending: Mending) -> str:
    """Return a step's recoveries, rung by rung."""
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
    """Return the commands that fit the state, most useful first."""
    state = picture.state
    run = state.run
    if not state.seq:
        return ["rerail doctor --repair"]
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
        if state.copied:
            return look
        answers = [] if state.doubts else _doubts(state)  # else the fitting retry names them
        return look + answers + _fitting_repair(run, failed) + _fitting_retry(state)
    if status is RunStatus.RUNNING:
        return [f"rerail watch {run}"]
    return _doubts(state) + ([f"rerail why {run}"] if picture.healed() or picture.mendings else [])


def _doubts(state: State) -> list[str]:
    """Return the answers to doubts that the run went on without (contract E3)."""
    return [_resolve(state.run, shlex.quote(name)) for name in doubts_of(state)[:3]]


def _fitting_repair(run: str, failed: Track | None) -> list[str]:
    """Suggest the edit of a call that fails on every repeat: with candidates, or gaps (contract H7)."""
    if failed is None or failed.category is not Category.PARAMETER or not failed.step.args:
        return []
    meant = {name: json.dumps(value, ensure_ascii=False) for name, (_, value) in _meant(failed).items()}
    # An unchanged call would be refused, and so would an unfilled gap, as invalid JSON.
    given = meant or dict.fromkeys(failed.step.args, "NEW")
    text = ", ".join(f"{json.dumps(name, ensure_ascii=False)}: {value}" for name, value in given.items())
    shown = shlex.quote("{" + text + "}") if len(text) <= LONGEST_SHOWN else "JSON"
    return [f"rerail repair {run} {shlex.quote(failed.id)} --args {shown}"]


def _fitting_retry(state: State) -> list[str]:
    """Suggest the retry that would not be refused, first as a dry run (contract T4)."""
    run = state.run
    for option in ("", " --force"):
        try:
            retry(state, "", force=bool(option))
        except Refusal as refusal:
            if refusal.code == "RUN_IN_DOUBT":
                return _doubts(state)
        else:
            return [f"rerail retry {run}{option}{more}" for more in (raised(state) + " --dry-run", raised(state))]
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
    """Return the steps of a run, one a line; of a large plan all but plain successes."""
    tracks = list(picture.state.tracks.values())
    hidden = 0
    if len(tracks) > 200 and not everything:
        odd = [t for t in tracks if status_of(picture.state, t)[0] not in (Status.SUCCEEDED, Status.PENDING)][:200]
        hidden, tracks = len(tracks) - len(odd), odd
    rows = [step_cells(out, picture, track, now) for track in tracks]
    if hidden and not rows:
        return [Text(out.say("cli.show.hidden", count=hidden), "dim")]
    lines = out.listing(("step", "tool", "attempts", "time", "note"), rows)
    return [*lines, Text(out.say("cli.show.hidden", count=hidden), "dim")] if hidden else lines


def runs_table(
    out: Output, rows: Sequence[RunRow], stages: Mapping[str, str], paused_by: Mapping[str, str]
) -> list[Text]:
    """Return runs, one a line, with their current stage, or the person that paused one."""
    cells: list[list[Text | str]] = []
    for row in rows:
        status = "interrupted" if row.interrupted else "degraded" if row.degraded else row.status
        status = status if row.events else "unplanned"
        words = status_words(out, status, stages.get(row.run_id, ""))
        sign = "waiting" if stages.get(row.run_id) == PAUSED and not row.interrupted else status
        shown = Text.assemble(icon(sign, fancy=out.fancy), " ", (words, style_of(sign)))
        if row.run_id in paused_by and not row.interrupted:
            shown.append(f" ({one_line(paused_by[row.run_id], 24)})", style_of(sign))
        what = one_line(row.objective, 80) + (f"  ← {row.parent}" if row.parent else "")
        cells.append([Text(row.run_id, "bold"), shown, moment(row.created_at), str(row.events), what])
    return out.listing(("run", "status", "started", "events", "objective"), cells)


def preview_lines(out: Output, picture: Picture, preview: Preview) -> list[Text]:
    count, total = len(preview.rerun), len(preview.rerun) + len(preview.kept)
    roots = _names(preview.roots[:SHOWN], 48)
    lines = [Text(out.say("cli.preview.title", run=picture.state.run, count=count, total=total), "bold")]
    if roots:
        lines.append(Text(out.say("cli.preview.roots", roots=roots + (" …" if len(preview.roots) > SHOWN else ""))))
    again = [_named(out, "retry", row["step"], out.told(row["why"])) for row in preview.rerun]
    lines += _section(out, "cli.preview.rerun", again)
    lines += _section(out, "cli.preview.kept", [_kept(out, picture.state, step) for step in preview.kept])
    lines += _section(out, "cli.preview.backs_up", [Text(one_line(name, 200)) for name in preview.backs_up])
    if preview.asks:
        lines.append(Text(out.say("cli.preview.asks", steps=_names(preview.asks[:SHOWN], 48))))
    lines += [*warnings(out, preview.once, preview.edited), *_maybe(out, preview)]
    if preview.passed:
        lines.append(Text(out.say("cli.retry.passed", checks=", ".join(preview.passed)), "yellow"))
    estimate = preview.estimate
    words = out.say("cli.preview.estimate", seconds=span(estimate["seconds"]), tools=span(estimate["tool_seconds"]))
    words += out.say("cli.preview.unknown", steps=int(estimate["unknown"])) if estimate["unknown"] else ""
    return [*lines, Text(words + (f", {estimate['cost']:g}" if estimate["cost"] else ""), "dim")]


def outlook_lines(out: Output, picture: Picture, preview: Preview) -> list[Text]:
    """Return the preview of another command (contract R7)."""
    lines = [Text(out.say("cli.outlook.title", status=out.say(f"status.{preview.leads_to}")), "bold")]
    ends = [_named(out, status, step, out.say(f"status.{status}")) for step, status in preview.becomes.items()]
    lines += _section(out, "cli.outlook.becomes", ends)
    runs = [_named(out, "retry", row["step"], out.told(row["why"])) for row in preview.rerun]
    lines += _section(out, "cli.outlook.runs", runs)
    lines += _section(out, "cli.preview.kept", [_kept(out, picture.state, step) for step in preview.kept])
    if preview.asks:
        lines.append(Text(out.say("cli.outlook.asks", steps=_names(preview.asks[:SHOWN], 48))))
    return [*lines, *warnings(out, preview.once, preview.edited), *_maybe(out, preview)]


def _maybe(out: Output, preview: Preview) -> list[Text]:
    steps = _names(preview.once_if[:SHOWN], 48)
    return [Text(out.say("cli.preview.once_if", steps=steps), "dim")] if preview.once_if else []


def _kept(out: Output, state: State, step: str) -> Text:
    return _named(out, status_of(state, state.tracks[step])[0], step, "")


def warnings(out: Output, once: Sequence[str], edited: Sequence[str], *, done: bool = False) -> list[Text]:
    """Warn of `once` effects that would happen twice, and of edited files that would be made again.

    ``done``: the command is already decided, so the warnings state it.
    """
    said = []
    if once:
        said.append(out.say("cli.retry.once" if done else "cli.preview.once", steps=_names(once, 48)))
    if edited:
        said.append(out.say("cli.retry.edited" if done else "cli.preview.edited", files=_names(edited, 200)))
    return [Text(words, "bold yellow") for words in said]


def _names(names: Sequence[str], width: int) -> str:
    return ", ".join(one_line(name, width) for name in names[:20])


@dataclass(frozen=True, slots=True)
class RetryReport:
    """The contents of the report: the named run, the retried one with its state, and the preview."""

    named: str
    state: State
    preview: Preview

    def opening(self, out: Output) -> list[Text]:
        """Return the part of the report before anything happens."""
        lines = [self._line(out, "report.retry.title", run=self.named)]
        lines += [self._line(out, "report.retry.status", status=self._status().upper())]
        interrupted = run_status(self.state) is RunStatus.RUNNING
        stage = failed_stage(self.state) or (self.preview.stage if interrupted else "")
        if stage:
            lines.append(self._line(out, "report.retry.stage", stage=stage))
        count, of = self._count()
        lines.append(self._line(out, "report.retry.count", count=count, of=of))
        if self._status() == RunStatus.FAILED:
            passed = "error_passed" if "NOT_RETRYABLE" in self.preview.passed else "retryable"
            lines.append(self._line(out, f"report.retry.{passed}"))
        if "RETRY_LIMIT" in self.preview.passed:
            lines.append(self._line(out, "report.retry.limit_passed"))
        lines += [self._damaged(out, path) for path in self.preview.damaged]
        return [*lines, Text(), *self._strategy(out)]

    def started(self, out: Output, pid: int) -> list[Text]:
        """Return the part of the report for a running worker."""
        lines = [self._line(out, "report.retry.starting"), self._line(out, "report.retry.pid", pid=pid)]
        return [Text(), *lines, Text(), self._line(out, "report.retry.logs", run=self.named, where=out.where)]

    @staticmethod
    def _line(out: Output, key: str, **facts: object) -> Text:
        return Text(clean(out.say(key, **facts)))

    def _status(self) -> str:
        """Return the status before the retry; a run with a dead process counts as failed (contract T5)."""
        status = run_status(self.state)
        return str(RunStatus.FAILED if status is RunStatus.RUNNING else status)

    def _begin(self) -> RetryBegin | None:
        return next((event for event in self.preview.events if isinstance(event, RetryBegin)), None)

    def _count(self) -> tuple[int, int]:
        begin = self._begin()
        if begin is None:
            return self.state.retries, self.state.policy.max_retries
        policy = begin.policy or self.state.policy
        return (0 if begin.reset_count else self.state.retries) + begin.counted, policy.max_retries

    def _damaged(self, out: Output, path: str) -> Text:
        """Name a file that cannot be kept, and the stage that makes it again."""
        makers = (t for t in self.state.tracks.values() if any(file.path == path for file in t.step.produces))
        maker = next(makers, None)
        stage = _stage_name(out, maker.step.stage or maker.id) if maker is not None else ""
        return self._line(out, "report.retry.damaged", path=path, stage=stage, reason=self.preview.damaged[path])

    def _strategy(self, out: Output) -> list[Text]:
        begin = self._begin()
        if begin is not None and begin.operation == "clean":
            backup = self.preview.backup or out.say("report.retry.backup_first")
            return [
                self._line(out, "report.retry.clean"),
                self._line(out, "report.retry.backup", backup=backup),
                self._line(out, "report.retry.from_start"),
            ]
        files = ", ".join(self.preview.files) or out.say("report.retry.no_files")
        stage = _stage_name(out, self.preview.stage)
        return [
            self._line(out, "report.retry.partial"),
            self._line(out, "report.retry.files", files=files),
            self._line(out, "report.retry.from", stage=stage),
        ]


BLOCKS = ("RETRY_LIMIT", "NOT_RETRYABLE", "RUN_LIVE")


def refusal(out: Output, run: str, refused: Refused) -> list[Text]:
    """Return the fixed sentence of a refusal to retry; empty for any other refusal."""
    key = f"report.refused.{refused.code}"
    if refused.code not in BLOCKS or not has(key, out.lang):
        return []
    facts = dict(refused.message.values) if isinstance(refused.message, Told) else {}
    try:
        words = out.say(key, **{**facts, "run": run})
    except KeyError:  # refused by another process, as a sentence alone
        return []
    lines = [Text(clean(line)) for line in words.split("\n")]
    hint = out.told(refused.hint) if refused.code == "RUN_LIVE" else ""
    return lines + ([Text(f"   {clean(hint)}")] if hint else [])


def _stage_name(out: Output, stage: str) -> str:
    key = f"stage.{stage}"
    return out.say(key) if has(key) else stage
