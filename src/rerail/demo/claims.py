"""The demo's claims, checked against the history and against the world's own account of the calls.

Rules of this file:
- No claim is assumed. Each is computed from records that the engine and the tools wrote, and names them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from rerail.codes import NO_ANSWER
from rerail.demo.tools import CALLS, EFFECTS, DemoWorld
from rerail.i18n import one_by_one, span, tell
from rerail.kernel import events as ev
from rerail.kernel.events import Record
from rerail.kernel.policy import Rung
from rerail.views.results import RunResult


@dataclass(frozen=True, slots=True)
class Healing:
    """A trouble of a step, and its cure."""

    trouble: str
    step: str
    cure: str


@dataclass(frozen=True, slots=True)
class Claim:
    """A claim of the demo, whether it held, and the evidence."""

    words: str
    held: bool
    evidence: str


@dataclass(frozen=True, slots=True)
class Killed:
    """The end of the first process."""

    pid: int
    status: int | None  # its exit status; minus the signal, if a signal ended it
    seq: int  # the last event that was in the store then


# -- What healed --------------------------------------------------------------------------------------------------

TROUBLES = (
    tell("demo.trouble.rate_limit"), tell("demo.trouble.argument"), tell("demo.trouble.down"),
    tell("demo.trouble.optional"), tell("demo.trouble.lost"),
)  # fmt: skip
KILLED = tell("demo.trouble.killed")


def healings(records: Sequence[Record]) -> dict[str, Healing]:
    """Return each step's healed trouble, by step."""
    found: dict[str, Healing] = {}
    lost: dict[str, str] = {}  # steps with a lost answer, and the kind of loss
    for record in records:
        match record.event:
            case ev.StepFailed(lost=True) as event if event.error.code in NO_ANSWER:
                lost[event.step] = KILLED if event.error.code == "ANSWER_LOST" else TROUBLES[4]
            case ev.RetryScheduled() as event if event.asked:
                found[event.step] = Healing(TROUBLES[0], event.step, tell("demo.cure.waited", delay=span(event.delay)))
            case ev.RetryScheduled() as event if event.step in lost:
                found[event.step] = Healing(lost[event.step], event.step, tell("demo.cure.again"))
            case ev.Recovered(rung=Rung.ADJUST) as event:
                found[event.step] = Healing(TROUBLES[1], event.step, tell("demo.cure.hint"))
            case ev.Recovered(rung=Rung.ALTERNATIVE) as event:
                found[event.step] = Healing(TROUBLES[2], event.step, tell("demo.cure.tool", tool=event.tool))
            case ev.StepSkipped(code="SKIP_OPTIONAL") as event:
                found[event.step] = Healing(TROUBLES[3], event.step, tell("demo.cure.without"))
            case ev.StepVerified(effect="there") as event if _starts(records)[event.step] == 1:
                found[event.step] = Healing(lost[event.step], event.step, tell("demo.cure.found"))
            case _:
                pass
    ended = finished_steps(records)
    return {step: healing for step, healing in found.items() if step in ended}


def _starts(records: Sequence[Record]) -> Counter[str]:
    return Counter(r.event.step for r in records if isinstance(r.event, ev.StepStarted))


# -- What held ----------------------------------------------------------------------------------------------------


def claims(records: Sequence[Record], result: RunResult, world: DemoWorld, killed: Killed) -> list[Claim]:
    """Return every claim, checked."""
    before = [record for record in records if record.seq <= killed.seq]
    after = [record for record in records if record.seq > killed.seq]
    return [
        _five_healings(records),
        _really_killed(before, after, killed),
        _nothing_again(before, after, world, killed),
        _effects_once(world),
        _two_accounts(records, after, world),
        _verdict(records, result),
    ]


def _five_healings(records: Sequence[Record]) -> Claim:
    kinds = {healing.trouble for healing in healings(records).values()}
    missing = [trouble for trouble in TROUBLES if trouble not in kinds]
    return Claim(tell("demo.claim.healed"), not missing, one_by_one(missing or TROUBLES))


def _really_killed(before: Sequence[Record], after: Sequence[Record], killed: Killed) -> Claim:
    unfinished = not any(isinstance(record.event, ev.Done) for record in before)
    lost = next((record.event.lost for record in after if isinstance(record.event, ev.Resumed)), ())
    held = killed.status is not None and killed.status < 0 and unfinished and bool(lost)
    evidence = tell("demo.proof.killed", pid=killed.pid, status=killed.status, names=", ".join(lost) or "-")
    return Claim(tell("demo.claim.killed"), held, evidence)


def finished_steps(records: Sequence[Record]) -> list[str]:
    """Return the steps that had ended by then, in the order of their ends."""
    ended = [
        record.event.step
        for record in records
        if isinstance(record.event, ev.StepSucceeded | ev.StepSkipped)
        or (isinstance(record.event, ev.StepVerified) and record.event.effect == "there")
    ]
    return list(dict.fromkeys(ended))


def _nothing_again(before: Sequence[Record], after: Sequence[Record], world: DemoWorld, killed: Killed) -> Claim:
    finished = finished_steps(before)
    later = {line["step"] for line in world.lines(CALLS) if line["pid"] != killed.pid}
    again = [step for step in finished if step in later or step in _starts(after)]
    evidence = tell("demo.proof.not_again", count=len(finished), log=CALLS)
    if again:
        evidence = tell("demo.proof.again", names=", ".join(again))
    return Claim(tell("demo.claim.not_again"), bool(finished) and not again, evidence)


def _effects_once(world: DemoWorld) -> Claim:
    counts = {log: len(world.lines(log)) for log in EFFECTS}
    held = all(count == 1 for count in counts.values())
    logs = ", ".join(EFFECTS) if held else ", ".join(f"{log} {count}" for log, count in counts.items())
    evidence = tell("demo.proof.once" if held else "demo.proof.not_once", logs=logs)
    return Claim(tell("demo.claim.once"), held, evidence)


def _two_accounts(records: Sequence[Record], after: Sequence[Record], world: DemoWorld) -> Claim:
    """Check the tools' own account of their calls against the history; a dying call may lack its note."""
    history, noted = _starts(records), Counter(line["step"] for line in world.lines(CALLS))
    lost = {step for record in after if isinstance(record.event, ev.Resumed) for step in record.event.lost}
    held = all(0 <= count - noted[step] <= (step in lost) for step, count in history.items()) and noted <= history
    evidence = tell("demo.proof.agree", calls=history.total(), noted=noted.total(), log=CALLS)
    return Claim(tell("demo.claim.agree"), held, evidence)


def _verdict(records: Sequence[Record], result: RunResult) -> Claim:
    dones = [record.seq for record in records if isinstance(record.event, ev.Done)]
    one_end = dones == [records[-1].seq]
    held = one_end and result.status == "completed" and result.success and result.degraded and not result.failed_steps
    evidence = tell(
        "demo.proof.verdict", status=result.status, success=result.success, degraded=result.degraded, count=len(dones)
    )
    return Claim(tell("demo.claim.verdict"), held, evidence)
