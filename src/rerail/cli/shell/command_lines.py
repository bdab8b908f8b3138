"""The shell: from a typed line to a command and its exit code (contract T11).

Rules of this file:
- A line is the command of that name, run by the same function as on the command line; no rule lives here.
- The shell's own options hold for every line; the line's options beat them.
- A line is split as by a shell: quotes, backslashes, comments. Unlike `shlex` it also tells the start of the last word
  and whether it is still open: completion needs that.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from rerail.cli.app import INTERRUPTED, options_last, run
from rerail.cli.command_table import COMMANDS, GROUPS
from rerail.cli.options import PLAIN, Common, Out
from rerail.cli.output import Output
from rerail.errors import SettingsError
from rerail.i18n import tell
from rerail.values.names import nearest

BLANKS = " \t\r\n"


@dataclass(slots=True)
class Split:
    """A line in words."""

    words: list[str] = field(default_factory=list)
    start: int = 0  # start of the last word
    inside: bool = False  # the line ends inside of a word: no blank follows it
    open: str = ""  # the unclosed quote, or a trailing backslash
    comment: bool = False  # the line ends with a comment

    @property
    def before(self) -> list[str]:
        return self.words[:-1] if self.inside else self.words

    @property
    def last(self) -> str:
        return self.words[-1] if self.inside else ""


def split(line: str) -> Split:
    """Split a line into words; an open end is noted, and counts as closed."""
    found = Split()
    word: list[str] | None = None
    at, quote = 0, ""
    while at < len(line):
        sign = line[at]
        if quote and word is not None:
            if sign == quote:
                quote = ""
            elif sign == "\\" and quote == '"' and line[at + 1 : at + 2] in ("\\", '"'):
                at += 1
                word.append(line[at])
            else:
                word.append(sign)
        elif sign in BLANKS:
            if word is not None:
                found.words.append("".join(word))
                word = None
        elif sign == "#" and word is None:
            found.comment = True
            return found
        else:
            if word is None:
                word, found.start = [], at
            if sign in "'\"":
                quote = sign
            elif sign == "\\":
                if at + 1 == len(line):
                    found.open = "\\"
                at += 1
                word.append(line[at : at + 1])
            else:
                word.append(sign)
        at += 1
    found.open = quote or found.open
    if word is not None:
        found.words.append("".join(word))
        found.inside = True
    else:
        found.start = len(line)
    return found


# Commands of the shell alone, and their arguments.
HERE = {"tasks": "", "status": "[RUN]", "help": "[COMMAND]", "quiet": "", "verbose": "", "quit": ""}
LEAVE = ("quit", "exit")
NOT_HERE = ("shell", "serve", "mcp", "worker")  # they need the terminal, or the pipe, for themselves
OFFERED = [name for name in COMMANDS if name not in NOT_HERE]
NAMES = [*OFFERED, *HERE, "exit"]

# Exit codes from best to worst: a run that waits for a person is less bad than a failed one.
_FROM_GOOD_TO_BAD = (0, 3, 1, 2)
_DEMO_TAKES = ("--lang", "--json", "--no-color")


class Left(Exception):
    """The shell ends."""


class Lines:
    """Runs lines, one at a time."""

    def __init__(self, common: Common, out: Output) -> None:
        self.common, self.out = common, out
        self.mode = "none" if common.quiet else "essential"  # verbosity of the events above the prompt

    def perform(self, line: str) -> int | None:
        """Run a line; return its exit code, None for an empty one. `Left` ends the shell."""
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
        except KeyboardInterrupt:  # before or after the command itself, which handles it in its own way
            return INTERRUPTED
        except SystemExit as ended:
            return ended.code if isinstance(ended.code, int) else 1

    def with_options(self, words: Sequence[str]) -> list[str]:
        """Return a line's words with the shell's options, unless the line overrides them."""
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
    return max(one, other, key=lambda code: (_FROM_GOOD_TO_BAD.index(code) if code in _FROM_GOOD_TO_BAD else 9, code))


def piped(lines: Lines) -> int:
    """Run the lines of stdin in order; return the worst exit code. An interrupt ends all."""
    worst, number = 0, 0
    try:
        # Not as text: a command that reads a plan from stdin gets the input after its own line.
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


def shell(*, common: Common = PLAIN, out: Out) -> int:
    """Take commands from a prompt, or from a pipe."""
    lines = Lines(common, out)
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        return piped(lines)
    try:
        from rerail.cli.shell.prompt import talk
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith("prompt_toolkit"):
            raise
        raise SettingsError(tell("refuse.shell.no_extra"), hint=tell("hint.shell.no_extra")) from error
    return talk(lines)
