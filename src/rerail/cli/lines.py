"""One event, one line: what `logs` prints, and what progress is where there is no terminal."""

from __future__ import annotations

from rich.cells import cell_len
from rich.text import Text

from rerail.cli.output import Output
from rerail.cli.style import fitted, icon
from rerail.core import events as ev
from rerail.core.events import Record
from rerail.core.lines import NAME_WIDTH, Lines, clean, listed, one_line
from rerail.core.state import State
from rerail.core.track import Track
from rerail.core.verdict import status_of
from rerail.core.why import Moments
from rerail.i18n import span

# What people do not care about while a run is under way; `logs` shows it too.
QUIET = (ev.PlanAccepted, ev.StepKept, ev.StepRenewed, ev.ArtifactCreated, ev.Evaluation, ev.RetryDone)

CLOCK = 12  # columns that a moment takes at the beginning of a line


def is_quiet(event: ev.Event) -> bool:
    """Whether an event is left out of the progress of a run: what a tool logs is shown, how far it is is not."""
    return isinstance(event, QUIET) or (isinstance(event, ev.StepProgress) and not event.log)


def _clock(seconds: float) -> Text:
    """How long after the run's start, as lines begin."""
    clock = f"+{span(seconds)}"
    return Text(f"{clock:>{CLOCK - 2}}  ", "dim")


class Teller(Lines):
    """Tells events as lines of a terminal."""

    def __init__(self, out: Output, state: State) -> None:
        super().__init__(state, out.lang)
        self._out = out
        self._width = 0
        self._moments: Moments | None = None
        self._latest = 0.0

    def line(self, record: Record) -> Text | None:
        """The event as a line; None if there is nothing to tell."""
        if self._moments is None:
            self._moments = Moments(self._state.created_at)
        moment = self._latest = self._moments(record.at)
        told = self.words(record.event)
        if told is None:
            return None
        sign, step, words = told
        line = _clock(moment)
        line.append_text(icon(sign, fancy=self._out.fancy))
        line.append(" ")
        if step:
            name = fitted(one_line(step), NAME_WIDTH)
            line.append(name, "bold")
            line.append(" " * (self._padding() - cell_len(name)) + "  ")
        line.append(one_line(words, 1000) if sign != "say" else clean(words))
        return line

    def beside(self, at: float | None, sign: str, words: str) -> Text:
        """A line that no event holds, as events are told; without a time, where nobody knows it."""
        # Only the events say when: what was said is no earlier than what was told before it.
        since = max(self._latest, at - (self._state.created_at or at)) if at is not None else None
        clock = Text(" " * CLOCK) if since is None else _clock(since)
        return Text.assemble(clock, icon(sign, fancy=self._out.fancy), " ", clean(words))

    def details(self, record: Record) -> list[Text]:
        """What `log.verbose` adds to an event: the retry chain, step by step, and each failed need of a skip."""
        event, state = record.event, self._state
        if isinstance(event, ev.RetryBegin):
            words = [self._chained(event, step) for step in event.chain]
        elif isinstance(event, ev.StepSkipped):
            tracks = (state.tracks.get(need) for need in event.needs)
            words = [self._said("chain_need", need=need.id, **self._state_of(need)) for need in tracks if need]
        else:
            return []
        return [Text(" " * 14 + one_line(line, 1000), "dim") for line in words]

    def _chained(self, event: ev.RetryBegin, step: str) -> str:
        if step in event.roots:
            return self._said("chain_root", step=step, reason=self._out.told(event.reasons.get(step, "-")))
        track = self._state.tracks.get(step)
        needs = [need.id for need, _ in track.needs if need.id in event.chain] if track is not None else []
        return self._said("chain_step", step=step, needs=listed(needs) or "-")

    def _state_of(self, need: Track) -> dict[str, str]:
        status, code = status_of(self._state, need)
        error = need.error
        reason = self._out.told(error.told) if error is not None else code
        return {"tool": need.step.tool, "status": self._out.say(f"status.{status}"), "reason": reason}

    def _padding(self) -> int:
        """How wide the ids are, so that the words stand below each other."""
        if not self._width:
            self._width = max((cell_len(one_line(step)) for step in self._state.tracks), default=0)
        return min(self._width, NAME_WIDTH)
