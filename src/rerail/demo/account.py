"""What the demo says besides the events: what is about to happen, what the kill left, and what it all came to."""

from __future__ import annotations

import contextlib
import shlex
import shutil
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from rich.text import Text

import rerail
from rerail.cli.graph import Graph
from rerail.cli.output import Output
from rerail.cli.picture import Picture
from rerail.cli.style import icon
from rerail.core import events as ev
from rerail.core.events import Record
from rerail.core.policy import Rung
from rerail.core.texts import span
from rerail.core.track import Phase
from rerail.demo.claims import Claim, Killed, finished_steps, healings
from rerail.demo.drawing import draw
from rerail.demo.narrator import hang
from rerail.demo.setting import PLAN, Setting
from rerail.demo.world import EFFECTS

WIDTH = 88

DAY = (
    "One service is too busy, one is down, one is gone, and one argument is mistyped. "
    "The bank takes the money and does not answer. Then somebody pulls the plug."
)
EXTRA = ("retries", "wait on request", "corrected argument", "other tool")


class Account:
    """Tells the parts of the demo that no single event tells."""

    def __init__(self, out: Output, setting: Setting) -> None:
        self._out, self._setting = out, setting

    # -- Before and between -------------------------------------------------------------------------------------------

    def curtain(self) -> None:
        """What the audience is about to see."""
        plan = rerail.Plan.load(PLAN)
        self._out.print(Text.assemble(("Rerail", "bold cyan"), "  ", ("plans of tool calls that heal", "dim")), "")
        self._say("The plan", f"{len(plan.steps)} steps. {plan.objective}.")
        self._say("The day", DAY)

    def title(self, words: str, style: str = "bold") -> None:
        """The head of a part."""
        dash = "─" if self._out.fancy else "-"
        line = Text.assemble((f"{dash * 2} ", "dim"), (words, style), " ")
        width = min(self._out.out.width, WIDTH)
        self._out.print("", line.append(dash * max(2, width - line.cell_len), "dim"))

    def killed(self, killed: Killed, picture: Picture, records: Sequence[Record]) -> None:
        """What the kill left."""
        running = [track.id for track in picture.state.tracks.values() if track.phase is Phase.RUNNING]
        finished = len(finished_steps(records))
        logs = ", ".join(f"{log} {len(self._setting.world.lines(log))}" for log in EFFECTS)
        self.title(f"kill -9 {killed.pid}", "bold red")
        self._say("Gone", f"{finished} steps were finished. Cut off in the middle of a call: {', '.join(running)}.")
        self._say("", "Nothing was saved on the way out, and nothing had to be.")
        self._say("Left", f"{killed.seq} events in {self._setting.database.name}, and what the tools had done:")
        self._say("", logs)

    # -- At the end ---------------------------------------------------------------------------------------------------

    def whole(
        self,
        picture: Picture,
        records: Sequence[Record],
        result: rerail.RunResult,
        found: Sequence[Claim],
        seconds: float,
    ) -> None:
        """The graph, the verdict, what it cost, what held, and where to look."""
        self.title("What became of it")
        draw(self._out, Graph.of_run(picture), self._notes(result, records))
        self._out.print("")
        self._cost(result, records, seconds)
        self.title("What held")
        for claim in found:
            sign = icon("succeeded" if claim.held else "failed", fancy=self._out.fancy)
            hang(self._out, Text.assemble("  ", sign, " "), Text(claim.words, "" if claim.held else "bold red"))
            hang(self._out, Text("    "), Text(claim.evidence, "dim"))
        self._closer()
        if not all(claim.held for claim in found):
            self._out.print(
                "", Text("Not everything held. That is a bug: please report it, with the files.", "bold red")
            )

    def _notes(self, result: rerail.RunResult, records: Sequence[Record]) -> dict[str, Text]:
        """What there is to say about each step: how it was healed, or that it is less than whole."""
        notes = {row.id: Text("degraded", "yellow") for row in result.steps.values() if row.degraded}
        for step, healing in healings(records).items():
            notes[step] = Text.assemble((f"{healing.trouble}: ", "dim"), (healing.cure, "cyan"))
        return notes

    def _cost(self, result: rerail.RunResult, records: Sequence[Record], seconds: float) -> None:
        count = Counter(_counted(record) for record in records)
        extra = ", ".join(f"{count[words]} {words}" for words in EXTRA if count[words])
        spent = result.exec["seconds"]
        self._say("Verdict", result.summary)
        for row in result.steps.values():
            if row.degraded:
                self._say("", f"{row.id}: {row.degraded}")
        self._say("Calls", f"{result.exec['calls']} for {result.exec['total']} steps: {extra}")
        self._say("Time", f"{span(spent['tools'])} in tools, {span(spent['waiting'])} waiting, {span(seconds)} in all")

    def _closer(self) -> None:
        setting, program = self._setting, how_to_call()
        where = shlex.quote(_short(setting.database))
        self.title("Look closer")
        for words in ("show {}", "why {} pay", "graph {}", "logs {}"):
            self._out.print(Text(f"  {program} {words.format(setting.run)} --store {where}", "cyan"))
        self._out.print("", Text(f"  The files are in {_short(setting.folder)}; delete it when you are done.", "dim"))

    def _say(self, label: str, words: str) -> None:
        hang(self._out, Text(f"  {label:<10}", "bold"), Text(words), WIDTH)


def _counted(record: Record) -> str:
    """What kind of a further call an event leads to."""
    match record.event:
        case ev.RetryScheduled() as scheduled:
            return EXTRA[1] if scheduled.asked else EXTRA[0]
        case ev.Recovered(rung=rung) if rung in (Rung.ADJUST, Rung.ALTERNATIVE):
            return EXTRA[2] if rung is Rung.ADJUST else EXTRA[3]
        case _:
            return ""


def _short(path: Path) -> str:
    """A path as people would type it from here."""
    with contextlib.suppress(ValueError):
        return str(path.relative_to(Path.cwd()))
    return str(path)


def how_to_call() -> str:
    """How to call `rerail` from here: it may not be on the path."""
    beside = Path(sys.executable).with_name("rerail")
    found = shutil.which("rerail")
    if found is not None and Path(found).resolve() == beside.resolve():
        return "rerail"
    if beside.exists():
        return shlex.quote(_short(beside))
    return f"{shlex.quote(sys.executable)} -m rerail.cli"
