"""What the demo says besides the events: what is about to happen, what the kill left, and what it all came to."""

from __future__ import annotations

import contextlib
import shlex
import shutil
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from rich.cells import cell_len
from rich.text import Text

import rerail
from rerail.cli.output import Output
from rerail.cli.picture import Picture
from rerail.cli.style import icon
from rerail.core import events as ev
from rerail.core.events import Record
from rerail.core.graph import Graph
from rerail.core.policy import Rung
from rerail.core.state import State
from rerail.core.track import Phase
from rerail.core.verdict import summary as summary_of
from rerail.core.verdict import verdict
from rerail.core.views import degraded_said
from rerail.demo.claims import Claim, Killed, finished_steps, healings
from rerail.demo.drawing import draw
from rerail.demo.narrator import hang
from rerail.demo.setting import PLAN, Setting
from rerail.demo.world import EFFECTS
from rerail.i18n import span

WIDTH = 88

EXTRA = ("retries", "waits", "arguments", "tools")  # kinds of further calls; in words, `demo.extra.`


class Account:
    """Tells the parts of the demo that no single event tells."""

    def __init__(self, out: Output, setting: Setting) -> None:
        self._out, self._setting = out, setting

    # -- Before and between -------------------------------------------------------------------------------------------

    def curtain(self) -> None:
        """What the audience is about to see."""
        plan = rerail.Plan.load(PLAN)
        self._out.print(Text.assemble(("Rerail", "bold cyan"), "  ", (self._out.say("demo.motto"), "dim")), "")
        self._say("plan", self._out.say("demo.plan", count=len(plan.steps), objective=self._out.say("demo.objective")))
        self._say("day", self._out.say("demo.day"))

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
        self._say("gone", self._out.say("demo.gone", count=finished, names=", ".join(running)))
        self._say("", self._out.say("demo.nothing_saved"))
        self._say("left", self._out.say("demo.left", count=killed.seq, store=self._setting.database.name))
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
        self.title(self._out.say("demo.title.became"))
        draw(self._out, Graph.of_state(picture.state), self._notes(result, records))
        self._out.print("")
        self._cost(result, records, seconds, picture.state)
        self.title(self._out.say("demo.title.held"))
        for claim in found:
            sign = icon("succeeded" if claim.held else "failed", fancy=self._out.fancy)
            hang(
                self._out,
                Text.assemble("  ", sign, " "),
                Text(self._out.told(claim.words), "" if claim.held else "bold red"),
            )
            hang(self._out, Text("    "), Text(self._out.told(claim.evidence), "dim"))
        self._closer()
        if not all(claim.held for claim in found):
            self._out.print("", Text(self._out.say("demo.bug"), "bold red"))

    def _notes(self, result: rerail.RunResult, records: Sequence[Record]) -> dict[str, Text]:
        """What there is to say about each step: how it was healed, or that it is less than whole."""
        notes = {
            row.id: Text(self._out.say("status.degraded"), "yellow") for row in result.steps.values() if row.degraded
        }
        for step, healing in healings(records).items():
            trouble, cure = self._out.told(healing.trouble), self._out.told(healing.cure)
            notes[step] = Text.assemble((f"{trouble}: ", "dim"), (cure, "cyan"))
        return notes

    def _cost(self, result: rerail.RunResult, records: Sequence[Record], seconds: float, state: State) -> None:
        count = Counter(_counted(record) for record in records)
        extra = ", ".join(self._out.say(f"demo.extra.{kind}", count=count[kind]) for kind in EXTRA if count[kind])
        spent = result.exec["seconds"]
        self._say("verdict", self._out.told(summary_of(state, verdict(state))))
        for track in state.tracks.values():
            if degraded := degraded_said(track, self._out.lang):
                self._say("", f"{track.id}: {degraded}")
        self._say(
            "calls", self._out.say("demo.calls", calls=result.exec["calls"], total=result.exec["total"], extra=extra)
        )
        times = {"tools": span(spent["tools"]), "waiting": span(spent["waiting"]), "total": span(seconds)}
        self._say("time", self._out.say("demo.time", **times))

    def _closer(self) -> None:
        setting, program = self._setting, how_to_call()
        where = shlex.quote(_short(setting.database))
        self.title(self._out.say("demo.title.closer"))
        for words in ("show {}", "why {} pay", "graph {}", "logs {}"):
            self._out.print(Text(f"  {program} {words.format(setting.run)} --store {where}", "cyan"))
        self._out.print("", Text("  " + self._out.say("demo.delete", folder=_short(setting.folder)), "dim"))

    def _say(self, label: str, words: str) -> None:
        """Words behind a label; without one they go on below the last."""
        named = self._out.say(f"demo.label.{label}") if label else ""
        hang(self._out, Text(f"  {named}{' ' * max(1, 10 - cell_len(named))}", "bold"), Text(words), WIDTH)


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
