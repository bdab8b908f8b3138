"""The report of a retry of a staged task: what was checked, what is kept, where it goes on, who does it (T3, T12).

Rules of this file:
- Under `zh` it is fixed to the letter by the contract, icons and spaces included; only ids, pids and names vary.
"""

from __future__ import annotations

from dataclasses import dataclass

from rich.text import Text

from rerail.cli.output import Output, clean
from rerail.core.commands import Preview
from rerail.core.events import RetryBegin
from rerail.core.pipeline import failed_stage
from rerail.core.state import State
from rerail.core.track import RunStatus
from rerail.core.verdict import run_status
from rerail.errors import Refused
from rerail.i18n import Told, has


@dataclass(frozen=True, slots=True)
class RetryReport:
    """What there is to tell: the run as people named it, the one that is retried, as it is, and what will be done."""

    named: str
    state: State
    preview: Preview

    def opening(self, out: Output) -> list[Text]:
        """Everything that can be said before anything happens."""
        lines = [self._line(out, "report.retry.title", run=self.named)]
        lines += [self._line(out, "report.retry.status", status=self._status().upper())]
        interrupted = run_status(self.state) is RunStatus.RUNNING
        stage = failed_stage(self.state) or (self.preview.stage if interrupted else "")
        if stage:
            lines.append(self._line(out, "report.retry.stage", stage=stage))
        count, of = self._count()
        lines.append(self._line(out, "report.retry.count", count=count, of=of))
        if self._status() == RunStatus.FAILED:
            lines.append(self._line(out, self._error_key()))
        if "RETRY_LIMIT" in self.preview.passed:
            lines.append(self._line(out, "report.retry.limit_passed"))
        lines += [self._damaged(out, path) for path in self.preview.damaged]
        return [*lines, Text(), *self._strategy(out)]

    def started(self, out: Output, pid: int) -> list[Text]:
        """What can be said once somebody does it."""
        lines = [self._line(out, "report.retry.starting"), self._line(out, "report.retry.pid", pid=pid)]
        return [Text(), *lines, Text(), self._line(out, "report.retry.logs", run=self.named, where=out.where)]

    @staticmethod
    def _line(out: Output, key: str, **facts: object) -> Text:
        return Text(clean(out.say(key, **facts)))

    def _status(self) -> str:
        """The status that is retried; one whose process is gone counts as failed (T5)."""
        status = run_status(self.state)
        return str(RunStatus.FAILED if status is RunStatus.RUNNING else status)

    def _begin(self) -> RetryBegin | None:
        return next((event for event in self.preview.events if isinstance(event, RetryBegin)), None)

    def _count(self) -> tuple[int, int]:
        """The retries, this one included."""
        begin = self._begin()
        if begin is None:
            return self.state.retries, self.state.policy.max_retries
        policy = begin.policy or self.state.policy
        return (0 if begin.reset_count else self.state.retries) + begin.counted, policy.max_retries

    def _error_key(self) -> str:
        if "NOT_RETRYABLE" in self.preview.passed:
            return "report.retry.error_passed"
        return "report.retry.retryable"

    def _damaged(self, out: Output, path: str) -> Text:
        """A file that cannot be kept, and which stage makes it again."""
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
    """Why a retry is refused, in the words that are fixed for it; nothing for any other refusal."""
    key = f"report.refused.{refused.code}"
    if refused.code not in BLOCKS or not has(key, out.lang):
        return []
    facts = dict(refused.message.values) if isinstance(refused.message, Told) else {}
    try:
        words = out.say(key, **{**facts, "run": run})
    except KeyError:  # told by another process, as a sentence alone
        return []
    lines = [Text(clean(line)) for line in words.split("\n")]
    hint = out.told(refused.hint) if refused.code == "RUN_LIVE" else ""
    return lines + ([Text(f"   {clean(hint)}")] if hint else [])


def _stage_name(out: Output, stage: str) -> str:
    key = f"stage.{stage}"
    return out.say(key) if has(key) else stage
