"""The verdict on a crash or a cut answer: history, ledger and the undisturbed run, compared.

Rules of this file:
- Pure: all judged data was read before.
- No claim of one side alone counts. The ledger proves that a call was made. The history must give a reason for
  repeating it: the calling process saw a failure, or a `verify` found no effect.
- A cut answer: a tool has done its work, and an exception replaces its answer. No process dies. Each call of the
  undisturbed run is cut off once with each kind of exception; the step with the cut answer is judged.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from rerail.i18n import tell
from rerail.kernel import events as ev
from rerail.kernel.codec import decode
from rerail.kernel.events import Record
from rerail.kernel.fold import fold
from rerail.kernel.step_state import RunStatus, Status
from rerail.plan.step import Effect
from rerail.ports import Row
from rerail.testing.crash_testing.ledger import Cut, Death, End, Kept, LedgerCall, Line, digest_of
from rerail.views.results import RunResult, result

UNENDED = (Status.PENDING, Status.READY, Status.RUNNING, Status.WAITING)


@dataclass(frozen=True, slots=True)
class CrashEvidence:
    """The remains of a trial: its ledger, its runs' histories in order, and its errors."""

    lines: Sequence[Line]
    histories: Mapping[str, Sequence[Row]]
    problem: str = ""  # a process did not come to its end

    def records(self, run: str) -> list[Record]:
        """Return a run's history; empty if there is no such run."""
        return [Record(run, row.seq, row.at, decode(row.data)) for row in self.histories.get(run, ())]

    def once_calls(self, run: str) -> set[tuple[str, int]]:
        """Return the calls that the history records as `once`, by step and attempt."""
        events = (record.event for record in self.records(run))
        started = [event for event in events if isinstance(event, ev.StepStarted) and event.effect is Effect.ONCE]
        return {(event.step, event.attempt) for event in started}

    def results(self) -> list[RunResult]:
        return [result(fold(run, self.records(run)), {}, 0.0) for run in self.histories]


@dataclass(frozen=True, slots=True)
class Trial:
    """One crash, and its consequences."""

    point: int
    what: str  # the place of the death; "" if the process came to its end before
    lost: tuple[str, ...] = ()  # acknowledged events that are gone or changed
    repeated: tuple[str, ...] = ()  # `once` steps that were called again without a reason
    missing: tuple[str, ...] = ()  # steps without a verdict
    doubts: tuple[str, ...] = ()  # steps in doubt: a person was asked
    open: tuple[str, ...] = ()  # doubts without an answer
    different: tuple[str, ...] = ()  # steps that ended otherwise than without a crash
    problem: str = ""

    @property
    def kept(self) -> bool:
        """Return True if every guarantee was kept."""
        return not (self.lost or self.repeated or self.missing or self.different or self.problem)

    def to_dict(self) -> dict[str, Any]:
        return {name: _plain(getattr(self, name)) for name in self.__slots__} | {"kept": self.kept}


@dataclass(slots=True)
class ToolRow:
    """Observations of a tool that was called again after a crash."""

    tool: str
    effect: str
    again: int = 0  # repeated calls with the same arguments
    other_output: int = 0  # of these: with another output than the call before, or than without a crash
    failed: int = 0  # of these: failed, and had not failed so without a crash
    varies: int = 0  # its first call already had another output than without a crash: its output always varies
    steps: set[str] = field(default_factory=set)

    @property
    def safe(self) -> bool | None:
        """Return True if repeating it was safe in all observed cases; None without any."""
        if self.other_output or self.failed:
            return False
        return True if self.again else None

    def to_dict(self) -> dict[str, Any]:
        return {name: _plain(getattr(self, name)) for name in self.__slots__} | {"safe": self.safe}


def _plain(value: Any) -> Any:
    return sorted(value) if isinstance(value, set) else list(value) if isinstance(value, tuple) else value


# -- One trial ----------------------------------------------------------------------------------------------------


def judge(point: int, seen: CrashEvidence, calm: CrashEvidence) -> Trial:
    """Judge a trial by the guarantees; ``calm`` is the run without a crash."""
    died = next((line for line in seen.lines if isinstance(line, Death)), None)
    results = seen.results()
    doubts = tuple(sorted({step for run in seen.histories for step in doubted(seen.records(run))}))
    left = tuple(item["step"] for one in results for item in one.waiting_on if item["for"] == "in_doubt")
    return Trial(
        point=point,
        what=died.what if died is not None else "",
        lost=tuple(_lost(seen)),
        repeated=tuple(_repeated(seen)),
        missing=tuple(_missing(results, calm.results(), waiting=bool(left))),
        doubts=doubts,
        open=left,
        different=() if left or seen.problem else tuple(_different(seen, results, calm.results())),
        problem=seen.problem,
    )


def _lost(seen: CrashEvidence) -> Iterator[str]:
    there = {(run, row.seq): digest_of(row.data) for run, rows in seen.histories.items() for row in rows}
    for line in seen.lines:
        if isinstance(line, Kept) and there.get((line.run, line.seq)) != line.digest:
            yield f"{line.run}:{line.seq}"


def doubted(records: Sequence[Record]) -> Iterator[str]:
    """Yield the steps that a person was asked about."""
    for record in records:
        if isinstance(record.event, ev.Waiting):
            yield from (item["step"] for item in record.event.on if item["for"] == "in_doubt")


def _repeated(seen: CrashEvidence) -> Iterator[str]:
    """Yield `once` steps that were called although an earlier call may have had its effect."""
    told = {(line.life, line.run, line.seq) for line in seen.lines if isinstance(line, Kept)}
    calls: dict[tuple[str, str], list[LedgerCall]] = defaultdict(list)
    for line in seen.lines:
        if isinstance(line, LedgerCall):
            calls[line.run, line.step].append(line)
    for (run, step), made in calls.items():
        records, once = seen.records(run), seen.once_calls(run)
        if len({call.attempt for call in made}) < len(made):
            yield step  # one attempt is one call, whatever the effect
        elif any((step, call.attempt) in once and not _may_repeat(records, call, told) for call in made[:-1]):
            yield step


def _may_repeat(records: Sequence[Record], call: LedgerCall, told: Set[tuple[int, str, int]]) -> bool:
    """Return True if the history justifies another call: a reported failure, or an absent effect.

    Only the calling process can report its call's failure: a process after a crash has seen no answer.
    """
    for record in records:
        match record.event:
            case ev.StepVerified(effect="absent") as event if (event.step, event.attempt) == (call.step, call.attempt):
                return True
            case ev.StepFailed(lost=False) as event if (event.step, event.attempt) == (call.step, call.attempt):
                if (call.life, call.run, record.seq) in told:
                    return True
            case _:
                pass
    return False


def _missing(results: Sequence[RunResult], calm: Sequence[RunResult], *, waiting: bool) -> Iterator[str]:
    for number, expected in enumerate(calm):
        rows = results[number].steps if number < len(results) else {}
        if not rows and waiting:
            return  # the follow-up has not begun: a person is asked first
        for step in expected.steps:
            row = rows.get(step)
            if row is None or (row.status in UNENDED and not waiting):
                yield step


def _different(seen: CrashEvidence, results: Sequence[RunResult], calm: Sequence[RunResult]) -> Iterator[str]:
    holes = any(
        isinstance(record.event, ev.StepVerified) and record.event.hole
        for run in seen.histories
        for record in seen.records(run)
    )
    for number, expected in enumerate(calm):
        if number >= len(results):
            yield tell("crash.different", what=expected.run_id, was=expected.status, now="-")
            continue
        found = results[number]
        if found.status != expected.status:
            yield tell("crash.different", what=found.run_id, was=expected.status, now=found.status)
        for step, row in expected.steps.items():
            now = found.steps[step].status if step in found.steps else "-"
            if _ending(now, holes=holes) != _ending(row.status, holes=holes):
                yield tell("crash.different", what=step, was=row.status, now=now)


def _ending(status: str, *, holes: bool) -> str:
    """Return how a step ended. A found effect without its answer makes the step, and others, degraded."""
    return str(Status.SUCCEEDED) if holes and status == Status.DEGRADED else status


# -- Tools ----------------------------------------------------------------------------------------------------------


def tools_of(calm: CrashEvidence, trials: Sequence[CrashEvidence]) -> list[ToolRow]:
    """Return the observations of each tool that may be called again: whether it was, and with equal results."""
    once = {(run, step) for run in calm.histories for step, _ in calm.once_calls(run)}
    usual_outputs, usual_errors = _usual(calm)
    rows: dict[str, ToolRow] = {}
    for line in calm.lines:
        if isinstance(line, LedgerCall):
            effect = str(Effect.ONCE) if (line.run, line.step) in once else line.effect
            rows.setdefault(line.tool, ToolRow(line.tool, effect))
    for seen in trials:
        for call, end, before in _pairs(seen.lines):
            row = rows.setdefault(call.tool, ToolRow(call.tool, call.effect))
            if row.effect == Effect.ONCE:
                continue
            usual = usual_outputs.get((call.step, call.tool, call.args), set())
            same = end is None or end.error or not usual or end.digest in usual
            if not before:
                row.varies += not same
                continue
            row.again += 1
            row.steps.add(call.step)
            earlier = {one.digest for _, one in before if one is not None and not one.error}
            if end is not None and end.error:
                row.failed += end.error not in usual_errors.get((call.step, call.tool, call.args), set())
            elif end is not None:
                row.other_output += not same or bool(earlier and end.digest not in earlier)
    return list(rows.values())


_Known = dict[tuple[str, str, str], set[str]]


def _usual(calm: CrashEvidence) -> tuple[_Known, _Known]:
    """Return the outputs and the errors of each call without a crash, by step, tool and arguments."""
    outputs: _Known = defaultdict(set)
    errors: _Known = defaultdict(set)
    for call, end, _ in _pairs(calm.lines):
        if end is not None:
            place = (call.step, call.tool, call.args)
            (errors if end.error else outputs)[place].add(end.error or end.digest)
    return outputs, errors


_Pair = tuple[LedgerCall, End | None]


def _pairs(lines: Sequence[Line]) -> Iterator[tuple[LedgerCall, End | None, list[_Pair]]]:
    """Yield each call with its end, and the same calls of the process before that did not end in an error."""
    ends = {(line.life, line.run, line.step, line.attempt): line for line in lines if isinstance(line, End)}
    before: dict[tuple[str, str, str, str], list[_Pair]] = defaultdict(list)
    for line in lines:
        if isinstance(line, LedgerCall):
            end = ends.get((line.life, line.run, line.step, line.attempt))
            place = (line.run, line.step, line.tool, line.args)
            yield line, end, [one for one in before[place] if one[0].life < line.life]
            if end is None or not end.error:
                before[place].append((line, end))


def at_rest(calm: CrashEvidence) -> bool:
    """Return True if the undisturbed run came to rest: only then is it a basis for comparison."""
    return bool(calm.histories) and all(
        one.status in (RunStatus.COMPLETED, RunStatus.FAILED, RunStatus.CANCELLED) for one in calm.results()
    )


KINDS: Final = ("exception", "reset")  # a RuntimeError of the tool; a connection that breaks


class Came(StrEnum):
    """The run's result after a cut answer."""

    SAFE = "safe"  # the effect was found, or the call may be repeated and was
    DOUBLED = "doubled"  # a `once` tool was called again after its effect
    WRONG = "wrong"  # the run, whatever its verdict, neither counts the effect nor names a doubt
    DOUBT = "doubt"  # a person was asked


@dataclass(frozen=True, slots=True)
class CutTrial:
    """One cut answer, and its consequence."""

    call: int
    kind: str
    step: str = ""  # "" if the run took another path without this call
    tool: str = ""
    came: Came = Came.SAFE
    problem: str = ""

    def to_dict(self) -> dict[str, Any]:
        return {name: str(getattr(self, name)) for name in self.__slots__} | {"call": self.call}


def judge_cut(call: int, kind: str, seen: CrashEvidence) -> CutTrial:
    """Judge a run by the true effect of the tool with the cut answer."""
    cut = next((line for line in seen.lines if isinstance(line, Cut)), None)
    if cut is None:
        return CutTrial(call, kind, problem=seen.problem)
    return CutTrial(call, kind, cut.step, cut.tool, _came(cut, seen), seen.problem)


def _came(cut: Cut, seen: CrashEvidence) -> Came:
    later = seen.lines[seen.lines.index(cut) + 1 :]
    again = [line for line in later if isinstance(line, LedgerCall) and (line.run, line.step) == (cut.run, cut.step)]
    once = (cut.step, cut.attempt) in seen.once_calls(cut.run)
    if once and again:
        return Came.DOUBLED
    result = next((one for one in seen.results() if one.run_id == cut.run), None)
    if result is None or cut.step in {*result.in_doubt, *doubted(seen.records(cut.run))}:
        return Came.DOUBT
    ended = result.steps[cut.step].status if cut.step in result.steps else ""
    stood_in = any(isinstance(r.event, ev.Recovered) and r.event.step == cut.step for r in seen.records(cut.run))
    counted = ended == Status.SUCCEEDED or (ended == Status.DEGRADED and not stood_in)
    return Came.WRONG if once and not counted else Came.SAFE


def tools_that(came: Came, trials: Sequence[CutTrial]) -> list[str]:
    """Return the tools with at least one such result."""
    return list(dict.fromkeys(trial.tool for trial in trials if trial.tool and trial.came is came))


# -- The whole test -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CrashReport:
    """The results of all crashes."""

    points: int  # crash points that exist
    trials: tuple[Trial, ...]
    tools: tuple[ToolRow, ...]
    status: str  # of the undisturbed run
    seconds: float
    cuts: tuple[CutTrial, ...] = ()  # answers that were cut off after the effect

    @property
    def broken(self) -> tuple[Trial, ...]:
        """Return the trials that broke a guarantee."""
        return tuple(trial for trial in self.trials if not trial.kept)

    @property
    def tested(self) -> bool:
        """Return True if a process died at all: without a reached point, the test shows nothing."""
        return any(trial.what for trial in self.trials)

    @property
    def ok(self) -> bool:
        """Return True if every guarantee was tested and kept."""
        return self.tested and not self.broken and not self.harmed

    @property
    def harmed(self) -> tuple[CutTrial, ...]:
        """Return the cut answers that led to a doubled effect, a wrong success, or no end."""
        return tuple(cut for cut in self.cuts if cut.problem or cut.came in (Came.DOUBLED, Came.WRONG))

    @property
    def unsafe(self) -> tuple[ToolRow, ...]:
        """Return the tools that are declared repeatable, and behaved otherwise."""
        return tuple(row for row in self.tools if row.safe is False)

    def counts(self) -> dict[str, int]:
        trials = self.trials
        return {
            "points": self.points,
            "tried": sum(bool(trial.what) for trial in trials),
            "not_reached": sum(not trial.what for trial in trials),  # the run took another path, and there was no crash
            "died": sum(bool(trial.what) for trial in trials),
            "lost": sum(len(trial.lost) for trial in trials),
            "repeated": sum(len(trial.repeated) for trial in trials),
            "missing": sum(len(trial.missing) for trial in trials),
            "doubts": sum(len(trial.doubts) for trial in trials),
            "open": sum(len(trial.open) for trial in trials),
            "different": sum(bool(trial.different) for trial in trials),
            "unfinished": sum(bool(trial.problem) for trial in trials),
        }

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain data; its trials are those with a broken guarantee or a doubt."""
        told = [trial.to_dict() for trial in self.trials if not trial.kept or trial.doubts]
        return {
            "ok": self.ok,
            "tested": self.tested,
            "status": self.status,
            **self.counts(),
            "trials": told,
            "tools": [row.to_dict() for row in self.tools],
            "unsafe": [row.tool for row in self.unsafe],
            "cut_off": {
                "tried": sum(bool(cut.step) for cut in self.cuts),
                **{str(came): tools_that(came, self.cuts) for came in Came},
                "unfinished": sum(bool(cut.problem) for cut in self.cuts),
                "trials": [cut.to_dict() for cut in self.cuts if cut.came is not Came.SAFE or cut.problem],
            },
            "seconds": round(self.seconds, 1),
        }
