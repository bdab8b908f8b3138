"""The demo from curtain to curtain: run, kill -9, resume, and an honest account of it.

The plan runs in a process of its own. This one watches it through the store, kills it, and then picks the run up.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import secrets
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

import rerail
from rerail.cli.language import chosen_lang
from rerail.cli.output import Output
from rerail.cli.picture import Picture
from rerail.core.events import Record
from rerail.core.track import Phase
from rerail.demo.account import Account
from rerail.demo.claims import Claim, Killed, claims, healings
from rerail.demo.narrator import Narrator
from rerail.demo.setting import FASTEST, PLAN, SLOWEST, Setting
from rerail.demo.world import World
from rerail.i18n import languages, say, tell

PATIENCE = 50.0  # seconds for the moment to come at which the process is killed
PREFIX = "rerail-demo-"
STALE = 24 * 3600.0  # seconds that the folder of a demo stays for those who want to look closer
SETTLED = (Phase.SUCCEEDED, Phase.SKIPPED)


def main(argv: Sequence[str] | None = None) -> int:
    """Play the demo; 0 only if everything it claims was found to hold."""
    words = list(sys.argv[1:] if argv is None else argv)
    lang = _lang(words)
    try:
        options = _options(words, lang)
    except _Misused as problem:
        with Output(json="--json" in words, lang=lang) as out:
            return out.usage(problem.args[0], tell("cli.error.see_command_help", command="demo"))
    with Output(json=options.json, lang=lang, color=not options.no_color) as out:
        try:
            folder = _folder(options.keep)
        except OSError as error:
            message = tell("demo.cannot_use", folder=options.keep, reason=error.strerror)
            return out.usage(message, "rerail demo --keep DIR")
        setting = Setting(folder, f"demo-{secrets.token_hex(2)}", FASTEST if options.fast else SLOWEST)
        try:
            return asyncio.run(Stage(out, setting).play())
        except KeyboardInterrupt:
            out.note(out.say("cli.interrupted"))
            if options.keep is None:
                shutil.rmtree(folder, ignore_errors=True)  # nobody was told where it is
            return 130
        except (rerail.RerailError, Broken) as error:
            out.problem("DEMO_FAILED", error.args[0], tell("demo.files_in", folder=folder))
            return 1


class _Misused(Exception):
    """Words that the demo does not know."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise _Misused(tell("cli.error.usage", message=message))


class _Format(argparse.HelpFormatter):
    """A usage line without the English word before it: the sentence says it."""

    def add_usage(self, usage: Any, actions: Any, groups: Any, prefix: str | None = None) -> None:
        super().add_usage(usage, actions, groups, prefix="")


def _lang(words: list[str]) -> str:
    known = argparse.ArgumentParser(add_help=False, exit_on_error=False)
    known.add_argument("--lang", nargs="?")
    asked = known.parse_known_args(words)[0].lang
    return chosen_lang(asked if asked in languages() else None)


def _options(words: list[str], lang: str) -> argparse.Namespace:
    usage = f"rerail demo {say('cli.help.options_here', lang)}"
    parser = _Parser(
        usage=say("cli.help.command_usage", lang, usage=usage), description=say("demo.about", lang), add_help=False,
        formatter_class=_Format,
    )  # fmt: skip
    group = parser.add_argument_group(say("cli.help.options", lang))
    group.add_argument("--keep", metavar="DIR", help=say("demo.arg.keep", lang))
    group.add_argument("--fast", action="store_true", help=say("demo.arg.fast", lang))
    group.add_argument("--json", action="store_true", help=say("cli.arg.json", lang))
    group.add_argument("--lang", choices=languages(), help=say("cli.arg.lang", lang))
    group.add_argument("--no-color", action="store_true", help=say("cli.arg.no_color", lang))
    group.add_argument("--help", "-h", action="help", help=say("demo.arg.help", lang))
    options, rest = parser.parse_known_args(words)
    if rest:
        raise _Misused(tell("cli.error.too_many", words=" ".join(rest)))
    return options


def _folder(keep: str | None) -> Path:
    if keep is None:
        _sweep(Path(tempfile.gettempdir()), time.time() - STALE)
    folder = Path(tempfile.mkdtemp(prefix=PREFIX)) if keep is None else Path(keep).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(PLAN, folder / PLAN.name)
    return folder


def _sweep(place: Path, before: float) -> None:
    """Remove the folders that earlier demos left for whoever wanted to look closer."""
    for folder in place.glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):  # somebody else's, or gone already
            if folder.stat().st_mtime < before and folder.stat().st_uid == os.getuid():
                shutil.rmtree(folder)


class Broken(Exception):
    """The demo could not be played as it is written."""


class Stage:
    """One performance."""

    def __init__(self, out: Output, setting: Setting) -> None:
        self._out, self._setting = out, setting
        self._picture = Picture(setting.run)
        self._narrator, self._account = Narrator(out, self._picture.state), Account(out, setting)
        self._records: list[Record] = []

    async def play(self) -> int:
        """Run, kill, resume, account; returns the exit code."""
        began = time.monotonic()
        self._account.curtain()
        World.make(self._setting.world.folder, self._setting.pace)
        killed = await self._until_killed()
        await asyncio.sleep(1.5 * self._setting.pace)  # a moment of silence
        result = await self._resumed()
        found = claims(self._records, result, self._setting.world, killed)
        self._account.whole(self._picture, self._records, result, found, time.monotonic() - began)
        if self._out.json:
            self._out.document(self._document(result, found))
        return 0 if all(claim.held for claim in found) else 1

    def _hear(self, record: Record) -> None:
        self._records.append(record)
        self._picture.feed(record)
        self._narrator.tell(record)

    # -- The first process --------------------------------------------------------------------------------------------

    async def _until_killed(self) -> Killed:
        async with self._setting.engine(tools=False) as engine:
            child = await self._start()
            self._account.title(self._out.say("demo.title.runs", pid=child.pid))
            watching = asyncio.create_task(self._watch(engine, child))
            try:
                await self._moment(child, watching)
                await asyncio.sleep(0.5 * self._setting.pace)
            finally:
                with contextlib.suppress(ProcessLookupError):
                    child.kill()
                status = await child.wait()
                watching.cancel()
                await asyncio.gather(watching, return_exceptions=True)
            for record in await engine.events(self._setting.run, self._picture.seq):
                self._hear(record)
        killed = Killed(child.pid, status, self._picture.seq)
        self._account.killed(killed, self._picture, self._records)
        return killed

    @property
    def _errors(self) -> Path:
        return self._setting.folder / "child.err"

    async def _start(self) -> asyncio.subprocess.Process:
        """A process of its own, out of reach of the terminal's Ctrl-C."""
        setting = self._setting
        words = ["-P", "-m", "rerail.demo.child", str(setting.folder), setting.run, str(setting.pace)]
        with self._errors.open("wb") as log:
            return await asyncio.create_subprocess_exec(
                sys.executable, *words, stdin=asyncio.subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )

    async def _watch(self, engine: rerail.Engine, child: asyncio.subprocess.Process) -> None:
        """Tell what the other process does, as its events reach the store."""
        while child.returncode is None:
            try:
                await engine.find(self._setting.run)
                break
            except rerail.Refused:  # it has not begun yet
                await asyncio.sleep(0.02)
        async for record in engine.watch(self._setting.run):
            self._hear(record)

    async def _moment(self, child: asyncio.subprocess.Process, watching: asyncio.Task[None]) -> None:
        """Wait for the right moment to kill."""
        deadline = time.monotonic() + PATIENCE
        while not self._is_the_moment():
            if child.returncode is not None or watching.done() or time.monotonic() > deadline:
                said = self._errors.read_text(errors="replace").strip()[-2000:]
                raise Broken(tell("demo.no_moment", said=said))
            await asyncio.sleep(0.03)

    def _is_the_moment(self) -> bool:
        """The courier is booked and has not answered yet, and the healing of the other steps has been seen."""
        phases = {step: track.phase for step, track in self._picture.state.tracks.items()}
        if phases.get("courier") is not Phase.RUNNING or not self._setting.world.lines("bookings.log"):
            return False
        return phases["invoice"] in SETTLED and phases["ideas"] in SETTLED

    # -- The second process -------------------------------------------------------------------------------------------

    async def _resumed(self) -> rerail.RunResult:
        self._account.title(self._out.say("demo.title.picks_up", pid=os.getpid()))
        async with self._setting.engine(tools=True) as engine:
            await engine.begin_resume(self._setting.run)
            async for record in engine.watch(self._setting.run, self._picture.seq):
                self._hear(record)
            return await engine.wait(self._setting.run)

    def _document(self, result: rerail.RunResult, found: Sequence[Claim]) -> dict[str, object]:
        healed = healings(self._records).values()
        return {
            "ok": all(claim.held for claim in found),
            "run_id": self._setting.run,
            "store": f"sqlite:///{self._setting.database}",
            "claims": [{"claim": claim.words, "held": claim.held, "evidence": claim.evidence} for claim in found],
            "healed": [{"step": one.step, "trouble": one.trouble, "cure": one.cure} for one in healed],
            "result": result.to_dict(),
        }
