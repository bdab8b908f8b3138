"""Events as terminal lines, and the progress of a run: a table on a terminal, plain lines elsewhere.

Rules of this file:
- Both displays are fed with events; neither asks the engine.
- A plan too large for the screen is shown as counts; only running, waiting and failed steps are named.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import TYPE_CHECKING

from rich.cells import cell_len
from rich.text import Text

from rerail.cli.display.run_view import Picture
from rerail.cli.output import Output, one_line
from rerail.cli.style import fitted, icon, style_of, table
from rerail.i18n import span
from rerail.kernel import events as ev
from rerail.kernel.events import Record
from rerail.kernel.state import State
from rerail.kernel.step_state import OPEN, WORTH, Phase, Status, Track
from rerail.kernel.verdict import gate_row, skip_message, status_of
from rerail.plan.step import When
from rerail.values.json_values import NAME_WIDTH, clean
from rerail.views.narration import Detail, Line, Moments, Narrator, gate_said, rung_said
from rerail.views.results import degraded_said

if TYPE_CHECKING:
    from rich.live import Live

MANY = 200  # above so many steps, plain successes are counted and not named
FRAMES = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"


# -- Events as lines ----------------------------------------------------------------------------------------------

# Events that progress leaves out; `logs` shows them too.
QUIET = (ev.PlanAccepted, ev.StepKept, ev.StepRenewed, ev.ArtifactCreated, ev.Evaluation, ev.RetryDone)

CLOCK = 12  # columns of a line's time


def is_quiet(event: ev.Event) -> bool:
    """Return True if progress leaves an event out: it shows a tool's logs, and not its progress reports."""
    return isinstance(event, QUIET) or (isinstance(event, ev.StepProgress) and not event.log)


def _clock(seconds: float) -> Text:
    clock = f"+{span(seconds)}"
    return Text(f"{clock:>{CLOCK - 2}}  ", "dim")


class LogLines:
    """The lines of one run's events: time, icon, step, words."""

    def __init__(self, out: Output, state: State) -> None:
        self._fancy, self._state = out.fancy, state
        self._narrator = Narrator(state, out.lang, Detail.VERBOSE if out.verbose else Detail.LOG)
        self._width = 0
        self._moments = Moments(state.created_at)
        self._latest = 0.0

    def lines(self, record: Record) -> list[Text]:
        """Return an event's line and, under `log.verbose`, its details below it; [] if there is nothing to tell."""
        self._latest = self._moments(record.at)
        found = self._narrator.lines(record.event)
        details = [Text(" " * 14 + one_line(line.words, 1000), "dim") for line in found[1:]]
        return [Text.assemble(*self._parts(line)) for line in found[:1]] + details

    def line(self, record: Record) -> Text | None:
        parts = self.parts(record)
        return None if parts is None else Text.assemble(*parts)

    def parts(self, record: Record) -> tuple[Text, Text] | None:
        self._latest = self._moments(record.at)
        line = self._narrator.line(record.event)
        return None if line is None else self._parts(line)

    def beside(self, at: float | None, sign: str, words: str) -> Text:
        """Return a line for printed output; without a time if that is unknown."""
        # Only events have a time: printed output is no earlier than the event before it.
        since = max(self._latest, at - (self._state.created_at or at)) if at is not None else None
        clock = Text(" " * CLOCK) if since is None else _clock(since)
        return Text.assemble(clock, icon(sign, fancy=self._fancy), " ", clean(words))

    def _parts(self, line: Line) -> tuple[Text, Text]:
        lead = _clock(self._latest).append_text(icon(line.sign, fancy=self._fancy)).append(" ")
        if line.step:
            name = fitted(one_line(line.step), NAME_WIDTH)
            lead.append(name, "bold").append(" " * (self._padding() - cell_len(name)) + "  ")
        return lead, Text(clean(line.words) if line.sign == "say" else one_line(line.words, 1000))

    def _padding(self) -> int:
        """Return the width of the ids, so that the words stand below each other."""
        if not self._width:
            self._width = max((cell_len(one_line(step)) for step in self._state.tracks), default=0)
        return min(self._width, NAME_WIDTH)


# -- Displays -----------------------------------------------------------------------------------------------------


class RunDisplay:
    """A display of a run while it goes on; this one shows nothing."""

    interval = 0.0  # seconds between two drawings; 0 if it draws by itself

    def open(self) -> None:
        """Begin."""

    def feed(self, record: Record) -> None:
        """Handle one more event, which the picture has folded already."""

    def draw(self) -> None:
        """Redraw after a while."""

    def close(self) -> None:
        """End."""


def make_view(out: Output, picture: Picture) -> RunDisplay:
    """Return the table for a terminal, plain lines elsewhere, nothing under `--quiet`."""
    if out.quiet:
        return RunDisplay()
    if out.err.is_terminal and not out.err.is_dumb_terminal:
        return TableDisplay(out, picture)
    return LineDisplay(out, picture)


class LineDisplay(RunDisplay):
    """One line for each event that is not quiet."""

    def __init__(self, out: Output, picture: Picture) -> None:
        self._out, self._picture = out, picture
        self._lines = LogLines(out, picture.state)
        self._told = 0

    def feed(self, record: Record) -> None:
        """Print the event, unless it is one of thousands of plain successes."""
        event = record.event
        if is_quiet(event):
            return
        if len(self._picture.state.tracks) > MANY and isinstance(event, ev.StepStarted | ev.StepSucceeded):
            self._count(event)
            return
        self._out.note(*self._lines.lines(record))

    def _count(self, event: ev.Event) -> None:
        """Print the progress of a large plan now and then."""
        if not isinstance(event, ev.StepSucceeded):
            return
        self._told += 1
        total = len(self._picture.state.tracks)
        if self._told % max(1, total // 20) == 0:
            self._out.note(self._out.say("cli.live.so_far", done=self._told, total=total))


class TableDisplay(RunDisplay):
    """The steps of a run as a table, drawn again a few times a second."""

    def __init__(self, out: Output, picture: Picture) -> None:
        self._out, self._picture = out, picture
        self._live: Live | None = None
        self._log = LogLines(out, picture.state)
        self._counts: dict[Status, int] = {}
        self._version = -1
        self.interval = 0.125

    def feed(self, record: Record) -> None:
        """Print the lines of `log.verbose` above the table, where they stay."""
        lines = self._log.lines(record) if self._out.verbose else []
        if len(lines) > 1:
            self._out.note(*lines)

    def open(self) -> None:
        """Take over the terminal's last lines."""
        from rich.live import Live

        self._live = Live(console=self._out.err, auto_refresh=False, vertical_overflow="crop")
        self._live.start()

    def draw(self) -> None:
        if self._live is None or not self._picture.state.tracks:
            return
        if len(self._picture.state.tracks) > MANY:
            self.interval = 0.5  # counting thousands of steps takes a while
        drawing = Text("\n", no_wrap=True).join(self.lines(time.time()))
        self._live.update(drawing, refresh=True)

    def close(self) -> None:
        """Leave the last drawing on the screen."""
        if self._live is not None:
            self.draw()
            self._live.stop()
            self._live = None

    # -- What is drawn ------------------------------------------------------------------------------------------------

    def lines(self, now: float) -> list[Text]:
        """Return the whole drawing, no wider and no higher than the screen."""
        width, height = self._out.err.width, self._out.err.height
        if self._version != self._picture.version:
            self._version, self._counts = self._picture.version, self._picture.counts()
        tracks: Iterable[Track] = self._picture.state.tracks.values()
        room = max(3, height - 4)
        hidden = 0
        if len(self._picture.state.tracks) > room:
            chosen = self._interesting()
            tracks, hidden = chosen[: room - 1], max(0, len(chosen) - room + 1)
        rows = [step_cells(self._out, self._picture, track, now, moving=True) for track in tracks]
        lines = [self._header(now, width), *table((), rows, width)]
        if hidden:
            lines.append(Text(self._out.say("cli.live.more", count=hidden), "dim"))
        return lines

    def _interesting(self) -> list[Track]:
        """Return running, waiting and troubled steps, then the latest failures."""
        state = self._picture.state
        busy = [*state.running.values(), *state.doubts.values(), *state.gates.values(), *state.held.values()]
        busy += [*state.hurt.values(), *state.backoff.values()]
        failed = [track for track in state.tracks.values() if track.phase is Phase.FAILED]
        return busy + failed[::-1]

    def _header(self, now: float, width: int) -> Text:
        state, counts = self._picture.state, self._counts
        line = Text.assemble((state.run, "bold"), "  ")
        done = sum(counts.get(status, 0) for status in (Status.SUCCEEDED, Status.DEGRADED, Status.SKIPPED))
        line.append(f"{done}/{len(state.tracks)}  ")
        for status in Status:
            if counts.get(status) and status not in (Status.PENDING, Status.READY):
                line.append_text(icon(status, fancy=self._out.fancy))
                line.append(f" {counts[status]}  ", style_of(status))
        line.append(span(state.seconds(now if state.rest is None else state.at)), "dim")
        line.append(f"  {one_line(state.objective)}")
        line.truncate(width, overflow="ellipsis")
        return line


# -- One step as a row, for the live table and for `show` ---------------------------------------------------------


def step_cells(out: Output, picture: Picture, track: Track, now: float, *, moving: bool = False) -> list[Text]:
    """Return a step in five cells: icon and id, tool, attempts, time, remarks."""
    status, code = status_of(picture.state, track)
    sign = icon(status, fancy=out.fancy)
    if status is Status.RUNNING and out.fancy and moving:
        sign = Text(FRAMES[int(now * 8) % len(FRAMES)], style_of(status))
    name = Text.assemble(sign, " ", (fitted(one_line(track.id), 32), "" if status != Status.PENDING else "dim"))
    tool = track.call.tool if track.call is not None else track.step.tool
    return [
        name,
        Text(fitted(one_line(tool), 24), "dim"),
        _attempts(out, picture, track),
        Text(_elapsed(track, status, now), "dim"),
        Text(one_line(note_of(out, picture, track, status, code, now)), style_of(status) if code else ""),
    ]


def _attempts(out: Output, picture: Picture, track: Track) -> Text:
    if track.attempt <= 1 and track.phase not in (Phase.BACKOFF, Phase.HURT):
        return Text("")
    mending = picture.mendings.get(track.id)
    left = mending.left if mending is not None else None
    if left is None or track.phase in (Phase.SUCCEEDED, Phase.FAILED, Phase.SKIPPED, Phase.PENDING):
        return Text(out.say("cli.live.attempts", count=track.attempt), "dim")
    return Text(out.say("cli.live.attempts_left", count=track.attempt, left=left), "yellow")


def _elapsed(track: Track, status: Status, now: float) -> str:
    if status is Status.RUNNING:
        return span(max(0.0, now - track.started_at))
    return span(track.elapsed) if track.elapsed else ""


def note_of(out: Output, picture: Picture, track: Track, status: Status, code: str, now: float) -> str:
    """Return the remarks on a step: why it failed, what it waits for, how it was healed."""
    state = picture.state
    if status in (Status.FAILED, Status.IN_DOUBT) and track.error is not None:
        return out.told(track.error.told)
    if status in (Status.SKIPPED, Status.CANCELLED):
        return skip_message(state, track, code, out.lang)
    if status is Status.WAITING:
        return _waits(out, track, code, now)
    if status in (Status.PENDING, Status.READY):
        open_needs = [need.id for need, when in track.needs if WORTH[When(when)][need.standing] == OPEN]
        return out.say("cli.live.needs", needs=", ".join(open_needs[:6])) if open_needs else ""
    if status is Status.DEGRADED:
        return degraded_said(track, out.lang) or ""
    words = [_rung(out, picture, track)]
    told = picture.progress.get(track.id)
    if status is Status.RUNNING and told is not None:
        words.append((f"{told.fraction:.0%} " if told.fraction is not None else "") + told.message)
    return "; ".join(word for word in words if word)


def _waits(out: Output, track: Track, code: str, now: float) -> str:
    if code == "confirm":
        shown = track.gate.shown if track.gate is not None else None
        call = f"  {gate_said(gate_row(shown), out.lang)}" if shown is not None else ""
        return out.say("cli.live.confirm") + (f": {track.gate_text}" if track.gate_text else "") + call
    message = out.told(track.error.told) if track.error else ""
    if track.phase is Phase.BACKOFF:
        return out.say("cli.live.backoff", delay=span(max(0.0, track.until - now)), reason=message)
    return message


def _rung(out: Output, picture: Picture, track: Track) -> str:
    """Return the last rung taken for a step, if any."""
    mending = picture.mendings.get(track.id)
    if mending is None or not mending.rungs:
        return ""
    return rung_said(mending.rungs[-1], out.lang)
