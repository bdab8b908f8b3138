"""Progress while a run is under way: a table that is drawn again and again, or plain lines where nobody looks.

Rules of this file:
- Both are fed with events; neither asks the engine anything.
- A plan that does not fit the screen is shown as counts, and only what runs, waits or failed is named.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Protocol

from rich.text import Text

from rerail.cli.lines import Teller, is_quiet
from rerail.cli.output import Output, one_line
from rerail.cli.picture import Picture
from rerail.cli.style import fitted, icon, style_of, table
from rerail.core import events as ev
from rerail.core.events import Record
from rerail.core.lines import gate_said, rung_said
from rerail.core.plan import When
from rerail.core.track import OPEN, WORTH, Phase, Status, Track
from rerail.core.verdict import gate_row, skip_message, status_of
from rerail.core.views import degraded_said
from rerail.i18n import span

if TYPE_CHECKING:
    from rich.live import Live

MANY = 200  # above so many steps, plain successes are counted and not named
FRAMES = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"


class View(Protocol):
    """Somebody who shows a run while it goes on."""

    interval: float  # seconds between two drawings; 0 if it draws by itself

    def open(self) -> None:
        """Begin."""
        ...

    def feed(self, record: Record) -> None:
        """One more event has happened; the picture knows it already."""
        ...

    def draw(self) -> None:
        """Time has passed."""
        ...

    def close(self) -> None:
        """The last word."""
        ...


def make_view(out: Output, picture: Picture) -> View:
    """The table on a terminal, plain lines elsewhere, nothing if nobody wants it."""
    if out.quiet:
        return Silent()
    if out.err.is_terminal and not out.err.is_dumb_terminal:
        return Table(out, picture)
    return Lines(out, picture)


class Silent:
    """Shows nothing."""

    interval = 0.0

    def open(self) -> None:
        """Nothing to begin."""

    def feed(self, record: Record) -> None:
        """Nothing to tell."""

    def draw(self) -> None:
        """Nothing to draw."""

    def close(self) -> None:
        """Nothing to end."""


class Lines(Silent):
    """One line for each event that people care about."""

    def __init__(self, out: Output, picture: Picture) -> None:
        self._out, self._picture = out, picture
        self._teller = Teller(out, picture.state)
        self._told = 0

    def feed(self, record: Record) -> None:
        """Print the event, unless it is one of thousands of plain successes."""
        event = record.event
        if is_quiet(event):
            return
        if len(self._picture.state.tracks) > MANY and isinstance(event, ev.StepStarted | ev.StepSucceeded):
            self._count(event)
            return
        line = self._teller.line(record)
        if line is not None:
            self._out.note(line)
        if self._out.verbose:
            self._out.note(*self._teller.details(record))

    def _count(self, event: ev.Event) -> None:
        """A word now and then of how far a large plan is."""
        if not isinstance(event, ev.StepSucceeded):
            return
        self._told += 1
        total = len(self._picture.state.tracks)
        if self._told % max(1, total // 20) == 0:
            self._out.note(self._out.say("cli.live.so_far", done=self._told, total=total))


class Table(Silent):
    """The steps of a run as a table, drawn again a few times a second."""

    def __init__(self, out: Output, picture: Picture) -> None:
        self._out, self._picture = out, picture
        self._live: Live | None = None
        self._teller = Teller(out, picture.state)
        self._counts: dict[Status, int] = {}
        self._version = -1
        self.interval = 0.125

    def feed(self, record: Record) -> None:
        """What `log.verbose` adds stays on the screen above the table."""
        details = self._teller.details(record) if self._out.verbose else []
        line = self._teller.line(record) if details else None
        if line is not None:
            self._out.note(line, *details)

    def open(self) -> None:
        """Take over the terminal's last lines."""
        from rich.live import Live

        self._live = Live(console=self._out.err, auto_refresh=False, vertical_overflow="crop")
        self._live.start()

    def draw(self) -> None:
        """Draw the table as it is now."""
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
        """The whole drawing, no wider and no higher than the screen."""
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
        """What runs, waits or is in trouble, then what failed last."""
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
    """A step in five cells: icon and id, tool, attempts, time, and what there is to say about it."""
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
    """What there is to say about a step: why it failed, what it waits for, how it was healed."""
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
        question = track.step.confirm if isinstance(track.step.confirm, str) else ""
        shown = track.gate.shown if track.gate is not None else None
        call = f"  {gate_said(gate_row(shown), out.lang)}" if shown is not None else ""
        return out.say("cli.live.confirm") + (f": {question}" if question else "") + call
    message = out.told(track.error.told) if track.error else ""
    if track.phase is Phase.BACKOFF:
        return out.say("cli.live.backoff", delay=span(max(0.0, track.until - now)), reason=message)
    return message


def _rung(out: Output, picture: Picture, track: Track) -> str:
    """The last rung taken for a step, if one was."""
    mending = picture.mendings.get(track.id)
    if mending is None or not mending.rungs:
        return ""
    return rung_said(mending.rungs[-1], out.lang)
