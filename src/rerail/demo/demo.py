"""The demo from start to end: run, kill -9, resume, and an account of it.

The plan runs in a process of its own. This process watches it through the store, kills it, and then takes the run over.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import shlex
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from rich.cells import cell_len
from rich.text import Text

import rerail
from rerail.cli.display.graph import tree
from rerail.cli.display.live import LogLines
from rerail.cli.display.run_view import Picture
from rerail.cli.options import PLAIN, Common, Flag, Out
from rerail.cli.output import Output
from rerail.cli.style import icon
from rerail.demo.child import PLAN, DemoRun
from rerail.demo.claims import Claim, Killed, claims, finished_steps, healings
from rerail.demo.tools import EFFECTS, DemoWorld
from rerail.i18n import span, tell
from rerail.kernel import events as ev
from rerail.kernel.events import Record
from rerail.kernel.step_state import Phase
from rerail.kernel.verdict import summary, verdict
from rerail.views.graph import Graph
from rerail.views.results import degraded_said

MAX_WAIT = 50.0  # seconds for the moment to come at which the process is killed
SLOW, FAST = 1.0, 0.15  # seconds that a second of the demo's world takes
WIDTH = 88
PREFIX = "rerail-demo-"
FOLDER_TTL = 24 * 3600.0  # seconds that a demo's folder stays
SETTLED = (Phase.SUCCEEDED, Phase.SKIPPED)
TOLD = (
    ev.StepSucceeded, ev.StepFailed, ev.StepVerified, ev.StepSkipped, ev.RetryScheduled, ev.Recovered, ev.Resumed,
    ev.Done,
)  # fmt: skip


async def demo(*, keep: Path | None = None, fast: Flag = False, common: Common = PLAIN, out: Out) -> int:
    """Run the demo; return 0 only if all of its claims hold."""
    if common.store or common.tools or common.set:  # it has its own
        return out.usage(tell("demo.own"), tell("cli.error.see_command_help", command="demo"))
    try:
        folder = _folder(keep)
    except OSError as error:
        return out.usage(tell("demo.cannot_use", folder=keep, reason=error.strerror), "rerail demo --keep DIR")
    try:
        return await Demo(out, DemoRun(folder, f"demo-{secrets.token_hex(2)}", FAST if fast else SLOW)).play()
    except asyncio.CancelledError:
        if keep is None:
            shutil.rmtree(folder, ignore_errors=True)  # its name was not shown
        raise
    except rerail.RerailError as error:
        out.problem("DEMO_FAILED", error.message, tell("demo.files_in", folder=folder))
        return 1


def _folder(keep: Path | None) -> Path:
    if keep is None:
        sweep(Path(tempfile.gettempdir()), time.time() - FOLDER_TTL)
    folder = Path(tempfile.mkdtemp(prefix=PREFIX)) if keep is None else keep.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(PLAN, folder / PLAN.name)
    return folder


def sweep(place: Path, before: float) -> None:
    """Remove the folders that demos left before a time."""
    for folder in place.glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):  # another user's, or gone already
            if folder.stat().st_mtime < before and folder.stat().st_uid == os.getuid():
                shutil.rmtree(folder)


class Demo:
    def __init__(self, out: Output, played: DemoRun) -> None:
        self._out, self._played = out, played
        self._picture, self._records = Picture(played.run), list[Record]()
        self._lines = LogLines(out, self._picture.state)

    async def play(self) -> int:
        """Run, kill, resume, account; return the exit code."""
        began, played, out = time.monotonic(), self._played, self._out
        plan, objective = rerail.Plan.load(PLAN), out.say("demo.objective")
        out.print(Text.assemble(("Rerail", "bold cyan"), "  ", (out.say("demo.motto"), "dim")), "")
        self._row("plan", out.say("demo.plan", count=len(plan.steps), objective=objective))
        self._row("day", out.say("demo.day"))
        DemoWorld.make(played.world.folder, played.pace)
        killed = await self._until_killed()
        self._tell_of_kill(killed)
        await asyncio.sleep(1.5 * played.pace)  # time to read
        result = await self._resumed()
        found = claims(self._records, result, played.world, killed)
        self._tell_of_end(result, found, time.monotonic() - began)
        if out.json:
            out.document(self._document(result, found))
        return 0 if all(claim.held for claim in found) else 1

    def _hear(self, record: Record) -> None:
        self._records.append(record)
        self._picture.feed(record)
        parts = self._lines.parts(record)
        if parts is not None and isinstance(record.event, TOLD):
            self._hang(*parts)

    # -- The first process --------------------------------------------------------------------------------------------

    async def _until_killed(self) -> Killed:
        played = self._played
        async with played.engine(tools=False) as engine:
            child = await self._start()
            self._title(self._out.say("demo.title.runs", pid=child.pid))
            watching = asyncio.create_task(self._watch(engine, child))
            try:
                await self._moment(child, watching)
                await asyncio.sleep(0.5 * played.pace)
            finally:
                with contextlib.suppress(ProcessLookupError):
                    child.kill()
                status = await child.wait()
                watching.cancel()
                await asyncio.gather(watching, return_exceptions=True)
            for record in await engine.events(played.run, self._picture.seq):
                self._hear(record)
        return Killed(child.pid, status, self._picture.seq)

    @property
    def _errors(self) -> Path:
        return self._played.folder / "child.err"

    async def _start(self) -> asyncio.subprocess.Process:
        played = self._played
        words = ["-P", "-m", "rerail.demo.child", str(played.folder), played.run, str(played.pace)]
        with self._errors.open("wb") as log:
            return await asyncio.create_subprocess_exec(
                sys.executable, *words, stdin=asyncio.subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )

    async def _watch(self, engine: rerail.Engine, child: asyncio.subprocess.Process) -> None:
        """Print the other process's progress as its events reach the store."""
        while child.returncode is None:
            try:
                await engine.find(self._played.run)
                break
            except rerail.Refused:  # it has not begun yet
                await asyncio.sleep(0.02)
        async for record in engine.watch(self._played.run):
            self._hear(record)

    async def _moment(self, child: asyncio.subprocess.Process, watching: asyncio.Task[None]) -> None:
        """Wait for the moment to kill."""
        deadline = time.monotonic() + MAX_WAIT
        while not self._is_the_moment():
            if child.returncode is not None or watching.done() or time.monotonic() > deadline:
                said = self._errors.read_text(errors="replace").strip()[-2000:]
                raise rerail.RerailError(tell("demo.no_moment", said=said), "DEMO_FAILED")
            await asyncio.sleep(0.03)

    def _is_the_moment(self) -> bool:
        """Return whether the courier is booked and has not answered, and the other steps' healing has been seen."""
        phases = {step: track.phase for step, track in self._picture.state.tracks.items()}
        if phases.get("courier") is not Phase.RUNNING or not self._played.world.lines("bookings.log"):
            return False
        return phases["invoice"] in SETTLED and phases["ideas"] in SETTLED

    def _tell_of_kill(self, killed: Killed) -> None:
        out, finished = self._out, len(finished_steps(self._records))
        running = [track.id for track in self._picture.state.tracks.values() if track.phase is Phase.RUNNING]
        self._title(f"kill -9 {killed.pid}", "bold red")
        self._row("gone", out.say("demo.gone", count=finished, names=", ".join(running)))
        self._row("", out.say("demo.nothing_saved"))
        self._row("left", out.say("demo.left", count=killed.seq, store=self._played.database.name))
        self._row("", ", ".join(f"{log} {len(self._played.world.lines(log))}" for log in EFFECTS))

    # -- The second process -------------------------------------------------------------------------------------------

    async def _resumed(self) -> rerail.RunResult:
        run = self._played.run
        self._title(self._out.say("demo.title.picks_up", pid=os.getpid()))
        async with self._played.engine(tools=True) as engine:
            await engine.begin_resume(run)
            async for record in engine.watch(run, self._picture.seq):
                self._hear(record)
            return await engine.wait(run)

    # -- The end ------------------------------------------------------------------------------------------------------

    def _tell_of_end(self, result: rerail.RunResult, found: Sequence[Claim], seconds: float) -> None:
        """Print the graph, the verdict, the cost, the claims, and the next commands."""
        out = self._out
        self._title(out.say("demo.title.became"))
        out.print(*tree(_reduced(Graph.of_state(self._picture.state)), out, self._notes(result)), "")
        self._tell_cost(result, seconds)
        self._title(out.say("demo.title.held"))
        for claim in found:
            sign = icon("succeeded" if claim.held else "failed", fancy=out.fancy)
            self._hang(Text.assemble("  ", sign, " "), Text(out.told(claim.words), "" if claim.held else "bold red"))
            self._hang(Text("    "), Text(out.told(claim.evidence), "dim"))
        self._title(out.say("demo.title.closer"))
        program, run, where = how_to_call(), self._played.run, shlex.quote(_short(self._played.database))
        for words in ("show {}", "why {} pay", "graph {}", "logs {}"):
            out.print(Text(f"  {program} {words.format(run)} --store {where}", "cyan"))
        out.print("", Text("  " + out.say("demo.delete", folder=_short(self._played.folder)), "dim"))
        if not all(claim.held for claim in found):
            out.print("", Text(out.say("demo.bug"), "bold red"))

    def _notes(self, result: rerail.RunResult) -> dict[str, Text]:
        """Return the note beside each step: its purpose, or its cure."""
        notes = {step: Text(self._out.say(f"demo.step.{step}"), "dim") for step in result.steps}
        for step, healing in healings(self._records).items():
            trouble, cure = self._out.told(healing.trouble), self._out.told(healing.cure)
            notes[step] = Text.assemble((f"{trouble}: ", "dim"), (cure, "cyan"))
        return notes

    def _tell_cost(self, result: rerail.RunResult, seconds: float) -> None:
        out, state, spent = self._out, self._picture.state, result.exec["seconds"]
        self._row("verdict", out.told(summary(state, verdict(state))))
        for track in state.tracks.values():
            if degraded := degraded_said(track, out.lang):
                self._row("", f"{track.id}: {degraded}")
        self._row("calls", out.say("demo.calls", calls=result.exec["calls"], total=result.exec["total"]))
        times = {"tools": span(spent["tools"]), "waiting": span(spent["waiting"]), "total": span(seconds)}
        self._row("time", out.say("demo.time", **times))

    def _document(self, result: rerail.RunResult, found: Sequence[Claim]) -> dict[str, Any]:
        healed = healings(self._records).values()
        return {
            "ok": all(claim.held for claim in found),
            "run_id": self._played.run,
            "store": f"sqlite:///{self._played.database}",
            "claims": [{"claim": claim.words, "held": claim.held, "evidence": claim.evidence} for claim in found],
            "healed": [{"step": one.step, "trouble": one.trouble, "cure": one.cure} for one in healed],
            "result": result.to_dict(),
        }

    # -- On the screen ------------------------------------------------------------------------------------------------

    def _title(self, words: str, style: str = "bold") -> None:
        dash, width = "─" if self._out.fancy else "-", min(self._out.out.width, WIDTH)
        line = Text.assemble((f"{dash * 2} ", "dim"), (words, style), " ")
        self._out.print("", line.append(dash * max(2, width - line.cell_len), "dim"))

    def _row(self, label: str, words: str) -> None:
        """Print words behind a label; without one they continue the last line below."""
        named = self._out.say(f"demo.label.{label}") if label else ""
        self._hang(Text(f"  {named}{' ' * max(1, 10 - cell_len(named))}", "bold"), Text(words), WIDTH)

    def _hang(self, lead: Text, words: Text, width: int = 100_000) -> None:
        """Print words behind a lead; they wrap below themselves at the screen's width."""
        room = max(20, min(self._out.out.width, width) - lead.cell_len)
        for at, line in enumerate(words.wrap(self._out.out, room) or [Text("")]):
            line.rstrip()
            self._out.print(Text.assemble(" " * lead.cell_len if at else lead, line))


def _reduced(graph: Graph) -> Graph:
    """Return the graph of a small plan without the needs that longer ways imply."""
    above: list[set[int]] = [set() for _ in graph.nodes]
    for at in chain(*graph.layers()):
        above[at] = {one for need, _ in graph.nodes[at].needs for one in (need, *above[need])}
    for node in graph.nodes:
        implied = {one for need, _ in node.needs for one in above[need]}
        node.needs = [(need, when) for need, when in node.needs if need not in implied]
        node.out = []
    return Graph(graph.nodes)


def _short(path: Path) -> str:
    """Return a path as it is typed from here."""
    with contextlib.suppress(ValueError):
        return str(path.relative_to(Path.cwd()))
    return str(path)


def how_to_call() -> str:
    """Return the `rerail` command of this installation: it may not be on the path."""
    beside = Path(sys.executable).with_name("rerail")
    found = shutil.which("rerail")
    if found is not None and Path(found).resolve() == beside.resolve():
        return "rerail"
    if beside.exists():
        return shlex.quote(_short(beside))
    return f"{shlex.quote(sys.executable)} -m rerail.cli"
