"""From a typed line to a command and its exit code (SPEC T11).

Rules of this file:
- A line is the command of that name, run by the same function as on the command line; no rule lives here.
- The options that the shell was given hold for every line; what the line says itself beats them.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence

from rerail.cli.app import INTERRUPTED, options_last, run
from rerail.cli.catalogue import COMMANDS, GROUPS
from rerail.cli.options import Common
from rerail.cli.output import Output
from rerail.cli.shell.words import split
from rerail.core.nearest import nearest
from rerail.i18n import tell
from rerail.version import __version__

# What only the shell knows, and what it takes.
HERE = {"tasks": "", "status": "[RUN]", "help": "[COMMAND]", "quiet": "", "verbose": "", "quit": ""}
LEAVE = ("quit", "exit")
NOT_HERE = ("shell", "serve", "mcp", "worker")  # they want the terminal, or the pipe, for themselves
OFFERED = [name for name in COMMANDS if name not in NOT_HERE]
NAMES = [*OFFERED, *HERE, "exit"]

# From what is fine to what is not: a run that waits for a person is less than one that failed.
_FROM_GOOD_TO_BAD = (0, 3, 1, 2)
_DEMO_TAKES = ("--lang", "--json", "--no-color")


class Left(Exception):
    """The shell is to end."""


class Lines:
    """Runs lines, one at a time."""

    def __init__(self, common: Common, out: Output) -> None:
        self.common, self.out = common, out
        self.mode = "none" if common.quiet else "essential"  # of what is told above the prompt

    def perform(self, line: str) -> int | None:
        """Do what a line says; returns its exit code, None if it says nothing. `Left` ends the shell."""
        found = split(line)
        if found.open:
            key = "cli.shell.error.backslash" if found.open == "\\" else "cli.shell.error.quote"
            return self._mistake(found.words, tell(key, quote=found.open), tell("cli.shell.error.quote_hint"))
        words = found.words
        if words[:1] == ["rerail"]:
            words = words[1:]  # hints name commands as a terminal takes them
        if not words:
            return None
        words = options_last(words)
        name, rest = words[0].removeprefix("/"), words[1:]
        if name in LEAVE:
            raise Left
        if name in ("quiet", "verbose"):
            return self._tell_less_or_more(name)
        if name == "help" and not [word for word in rest if not word.startswith("-")]:
            return self._help()
        if name in NOT_HERE:
            return self._mistake(words, tell("cli.shell.error.not_here", name=name), f"rerail {name}")
        if name not in NAMES and not name.startswith("-"):
            return self._unknown(words, name)
        return self._run([f"/{name}" if not name.startswith("-") else name, *rest])

    def _run(self, words: list[str]) -> int:
        try:
            return run(self.with_options(words))
        except KeyboardInterrupt:  # before or after the command itself, which has words of its own for it
            return INTERRUPTED
        except SystemExit as ended:
            return ended.code if isinstance(ended.code, int) else 1

    def with_options(self, words: Sequence[str]) -> list[str]:
        """The words of a line with the options that the shell was given, as far as the line does not say otherwise."""
        name = words[0].removeprefix("/")
        own = {word.partition("=")[0] for word in words}
        given = [
            word
            for option, several in self._given()
            if option == "--set" or not own & ({option, "-q"} if option == "--quiet" else {option})
            if name != "demo" or option in _DEMO_TAKES
            for word in several
        ]
        return [*words, *given] if name.startswith(("-", "help")) else [words[0], *given, *words[1:]]

    def _given(self) -> Iterable[tuple[str, list[str]]]:
        common = self.common
        valued = [("--store", common.store), ("--lang", common.lang)]
        valued += [("--tools", one) for one in common.tools] + [("--set", one) for one in common.set]
        yield from ((option, [option, value]) for option, value in valued if value is not None)
        flags = {"--json": common.json, "--no-color": common.no_color, "--quiet": common.quiet}
        yield from ((option, [option]) for option, is_given in flags.items() if is_given)

    # -- What the shell does itself -----------------------------------------------------------------------------------

    def _tell_less_or_more(self, name: str) -> int:
        wanted = {"quiet": "none", "verbose": "all"}[name]
        self.mode = "essential" if self.mode == wanted else wanted
        self.out.print(self.out.say(f"cli.shell.events.{self.mode}"))
        return 0

    def _help(self) -> int:
        rows: dict[str, list[tuple[str, str]]] = {
            title: [(f"/{c.name} {c.usage}", f"cli.command.{c.name}") for c in commands if c.name in OFFERED]
            for title, commands in GROUPS.items()
        }
        rows["cli.shell.help.here"] = [(f"/{name} {usage}", f"cli.shell.word.{name}") for name, usage in HERE.items()]
        width = max(len(typed) for group in rows.values() for typed, _ in group) + 2
        for title, group in rows.items():
            self.out.print(self.out.say(title))
            self.out.print(*(f"  {typed:<{width}}{self.out.say(key)}" for typed, key in group), "")
        self.out.print(self.out.say("cli.shell.help.end"))
        return 0

    def welcome(self) -> str:
        """The first line of a shell on a terminal."""
        return self.out.say("cli.shell.welcome", version=__version__)

    # -- Mistakes -----------------------------------------------------------------------------------------------------

    def _unknown(self, words: Sequence[str], name: str) -> int:
        near = nearest(name, NAMES)
        hint = tell("cli.error.did_you_mean", near=f"/{near}") if near else tell("cli.shell.error.see_help")
        return self._mistake(words, tell("cli.error.unknown_command", word=words[0]), hint)

    def _mistake(self, words: Sequence[str], message: str, hint: str) -> int:
        json = self.common.json or "--json" in words
        with Output(json=json, lang=self.out.lang, color=not self.common.no_color, quiet=self.common.quiet) as out:
            return out.usage(message, hint)


def worse(one: int, other: int) -> int:
    """The worse of two exit codes."""
    return max(one, other, key=lambda code: (_FROM_GOOD_TO_BAD.index(code) if code in _FROM_GOOD_TO_BAD else 9, code))


def piped(lines: Lines) -> int:
    """Run the lines that come by stdin, in order; returns the worst exit code. An interrupted one ends it all."""
    worst, number = 0, 0
    try:
        # Not as text: a command that reads a plan from stdin gets what comes after its own line.
        while line := sys.stdin.buffer.readline():
            number += 1
            code = lines.perform(line.decode("utf-8", "replace").rstrip("\r\n")) or 0
            worst = worse(worst, code)
            if code and not lines.out.quiet:
                lines.out.note(lines.out.say("cli.shell.line_code", number=number, code=code))
            if code >= INTERRUPTED:
                break
    except KeyboardInterrupt:
        return INTERRUPTED
    except Left:
        pass
    return worst
