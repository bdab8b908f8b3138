"""What a crash did: the history, the ledger and the run without a crash, held against each other.

Rules of this file:
- Pure: everything that is judged was read before.
- Nothing is believed that only one side tells. That a call was made, the ledger says; that it may be made again, the
  history must say why: the process that called heard that it failed, or somebody looked, and its effect was not there.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any

from rerail.core import events as ev
from rerail.core.codec import decode
from rerail.core.events import Record
from rerail.core.fold import fold
from rerail.core.plan import Effect
from rerail.core.track import RunStatus, Status
from rerail.core.views import RunResult, result
from rerail.i18n import tell
from rerail.ports import Row
from rerail.testing.crashes.ledger import Call, Death, End, Kept, Line, digest_of

UNENDED = (Status.PENDING, Status.READY, Status.RUNNING, Status.WAITING)


@dataclass(frozen=True, slots=True)
class Evidence:
    """What a trial left: its ledger, the histories of its runs as they follow each other, and its troubles."""

    lines: Sequence[Line]
    histories: Mapping[str, Sequence[Row]]
    problem: str = ""  # a process did not come to its end

    def records(self, run: str) -> list[Record]:
        """A run's history."""
        return [Record(run, row.seq, row.at, decode(row.data)) for row in self.histories[run]]

    def results(self) -> list[RunResult]:
        """What the runs came to."""
        return [result(fold(run, self.records(run)), {}, 0.0) for run in self.histories]


@dataclass(frozen=True, slots=True)
class Trial:
    """One crash, and what came of it."""

    point: int
    what: str  # where the process died; "" if it came to its end before
    lost: tuple[str, ...] = ()  # events that were acknowledged, and are gone or others
    repeated: tuple[str, ...] = ()  # steps whose effect must not happen twice, called again without a reason
    missing: tuple[str, ...] = ()  # steps that the verdict does not tell of
    doubts: tuple[str, ...] = ()  # steps in doubt: a person was asked
    open: tuple[str, ...] = ()  # those of them that nobody could answer
    different: tuple[str, ...] = ()  # what ended otherwise than without a crash
    problem: str = ""

    @property
    def kept(self) -> bool:
        """Whether every guarantee was kept."""
        return not (self.lost or self.repeated or self.missing or self.different or self.problem)

    def to_dict(self) -> dict[str, Any]:
        """As plain data."""
        return {name: _plain(getattr(self, name)) for name in self.__slots__} | {"kept": self.kept}


@dataclass(slots=True)
class ToolRow:
    """What was seen of a tool when it was called again after a crash."""

    tool: str
    effect: str
    again: int = 0  # calls that were made again, with the same arguments
    other_output: int = 0  # of these: with another output than the call before, or than without a crash
    failed: int = 0  # of these: failed, and had not failed so without a crash
    varies: int = 0  # its first call already had another output than without a crash: it is never the same
    steps: set[str] = field(default_factory=set)

    @property
    def safe(self) -> bool | None:
        """Whether it was safe to call again, as far as was seen; None if it was never called again."""
        if self.other_output or self.failed:
            return False
        return True if self.again else None

    def to_dict(self) -> dict[str, Any]:
        """As plain data."""
        return {name: _plain(getattr(self, name)) for name in self.__slots__} | {"safe": self.safe}


def _plain(value: Any) -> Any:
    return sorted(value) if isinstance(value, set) else list(value) if isinstance(value, tuple) else value


# -- One trial ----------------------------------------------------------------------------------------------------


def judge(point: int, seen: Evidence, calm: Evidence) -> Trial:
    """Hold a trial against the guarantees; ``calm`` is the run without a crash."""
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


def _lost(seen: Evidence) -> Iterator[str]:
    there = {(run, row.seq): digest_of(row.data) for run, rows in seen.histories.items() for row in rows}
    for line in seen.lines:
        if isinstance(line, Kept) and there.get((line.run, line.seq)) != line.digest:
            yield f"{line.run}:{line.seq}"


def doubted(records: Sequence[Record]) -> Iterator[str]:
    """The steps that a person was asked about."""
    for record in records:
        if isinstance(record.event, ev.Waiting):
            yield from (item["step"] for item in record.event.on if item["for"] == "in_doubt")


def _repeated(seen: Evidence) -> Iterator[str]:
    """The `once` steps that were called although an earlier call may have had its effect."""
    told = {(line.life, line.run, line.seq) for line in seen.lines if isinstance(line, Kept)}
    calls: dict[tuple[str, str], list[Call]] = defaultdict(list)
    for line in seen.lines:
        if isinstance(line, Call):
            calls[line.run, line.step].append(line)
    for (run, step), made in calls.items():
        records = seen.records(run) if run in seen.histories else []
        effects = {
            record.event.attempt: record.event.effect
            for record in records
            if isinstance(record.event, ev.StepStarted) and record.event.step == step
        }
        if len({call.attempt for call in made}) < len(made):
            yield step  # one attempt is one call, whatever the effect
        elif any(
            effects.get(call.attempt) is Effect.ONCE and not _may_repeat(records, call, told) for call in made[:-1]
        ):
            yield step


def _may_repeat(records: Sequence[Record], call: Call, told: Set[tuple[int, str, int]]) -> bool:
    """Whether the history has a reason to call again: the tool said that it failed, or its effect is not there.

    That it failed, only the process can say that called it: whoever comes after a crash has heard nothing.
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
            return  # what follows has not begun: a person is asked first
        for step in expected.steps:
            row = rows.get(step)
            if row is None or (row.status in UNENDED and not waiting):
                yield step


def _different(seen: Evidence, results: Sequence[RunResult], calm: Sequence[RunResult]) -> Iterator[str]:
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
    """How a step ended. An effect that was found there, but not what it had answered, makes it and others degraded."""
    return str(Status.SUCCEEDED) if holes and status == Status.DEGRADED else status


# -- Tools ----------------------------------------------------------------------------------------------------------


def tools_of(calm: Evidence, trials: Sequence[Evidence]) -> list[ToolRow]:
    """What was seen of each tool that may be called again: whether it was, and whether it did the same."""
    once = {
        (run, record.event.step)
        for run in calm.histories
        for record in calm.records(run)
        if isinstance(record.event, ev.StepStarted) and record.event.effect is Effect.ONCE
    }
    usual_outputs, usual_errors = _usual(calm)
    rows: dict[str, ToolRow] = {}
    for line in calm.lines:
        if isinstance(line, Call):
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


def _usual(calm: Evidence) -> tuple[_Known, _Known]:
    """The outputs and the errors of each call without a crash, by step, tool and arguments."""
    outputs: _Known = defaultdict(set)
    errors: _Known = defaultdict(set)
    for call, end, _ in _pairs(calm.lines):
        if end is not None:
            place = (call.step, call.tool, call.args)
            (errors if end.error else outputs)[place].add(end.error or end.digest)
    return outputs, errors


_Pair = tuple[Call, End | None]


def _pairs(lines: Sequence[Line]) -> Iterator[tuple[Call, End | None, list[_Pair]]]:
    """Each call with its end, and the same calls of the process before that did not end in an error."""
    ends = {(line.life, line.run, line.step, line.attempt): line for line in lines if isinstance(line, End)}
    before: dict[tuple[str, str, str, str], list[_Pair]] = defaultdict(list)
    for line in lines:
        if isinstance(line, Call):
            end = ends.get((line.life, line.run, line.step, line.attempt))
            place = (line.run, line.step, line.tool, line.args)
            yield line, end, [one for one in before[place] if one[0].life < line.life]
            if end is None or not end.error:
                before[place].append((line, end))


def at_rest(calm: Evidence) -> bool:
    """Whether the run without a crash came to rest: only then is there something to compare with."""
    return bool(calm.histories) and all(
        one.status in (RunStatus.COMPLETED, RunStatus.FAILED, RunStatus.CANCELLED) for one in calm.results()
    )
