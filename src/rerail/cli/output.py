"""Output streams: the answer on stdout, progress and problems on stderr; under `--json` one document.

Rules of this file:
- Output of tools is untrusted: it reaches a terminal only through `clean`, and never as markup.
- Under `--json` stdout carries the document alone, without even a tool's prints: the descriptor itself is turned to
  stderr while the command runs, and a copy is kept for the document.
- A reader that went away (`| head`), or a full disk, ends the text, never the run.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import sys
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Any

import msgspec
from rich.console import Console
from rich.text import Text

from rerail.cli.command_table import COMMANDS
from rerail.cli.style import Cell, table
from rerail.errors import PlanError, RerailError, StoreError
from rerail.i18n import Told, as_text, catalogue, retold, say, tell
from rerail.values.json_values import clean, json_shown, one_line

USAGE = 2
STORELESS = ("check", "config", "crashtest", "demo", "plan", "prompts", "tools")
DRIVING = ("add", "confirm", "replay", "resolve", "resume", "retry", "repair", "skip")  # with the tools of a run
_COMMAND = re.compile(rf"(?<![\w/.-])rerail ({'|'.join(COMMANDS)})\b")
_SENTENCE = re.compile(r" \| |[,;] |[、；，]")
_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"")  # a user's value: neither a sentence nor a suggestion

__all__ = ["CannotOpen", "Output", "clean", "one_line"]


class CannotOpen(StoreError):
    """The store is none that can be used, so no work was begun; one that is out of reach is no mistake of the user."""


class _Screen(Console):
    """A console that survives the loss of its reader, and a place that takes no more."""

    failure: OSError | None = None

    def _check_buffer(self) -> None:
        try:
            super()._check_buffer()
        except OSError as problem:
            self.failure = problem
            self.on_broken_pipe()

    def on_broken_pipe(self) -> None:
        """Fall silent; rich's own handler would end the program, and the run with it."""
        self.quiet = True
        with contextlib.suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), self.file.fileno())


def _knows_all(stream: Any) -> bool:
    return str(stream.encoding).lower().startswith("utf")


class Output:
    """The two streams of one command, in one language."""

    def __init__(self, *, json: bool = False, lang: str = "en", color: bool = True, quiet: bool = False) -> None:
        self.json, self.lang, self.quiet = json, lang, quiet
        self.driving: list[str] = []  # runs that would be left behind if this process ended now
        self.noticed: list[str] = []  # notices for the log
        self.verbose = False  # `log.verbose`: the retry chain, and each skip with its failed needs
        self.where = ""  # options that a suggested command needs to find the same store
        self.tools = ""  # the same for its tools, where the run does not know of them
        self.tools_loaded = False  # tools were named, so the advice to name some is useless
        self._document: int | None = None
        self._told = False
        self._lost: OSError | None = None  # why the document could not be written
        self._stdout = sys.stdout
        for stream in (sys.stdout, sys.stderr):
            if hasattr(stream, "reconfigure"):
                stream.reconfigure(errors="backslashreplace" if _knows_all(stream) else "replace")
        self.err = self._screen(sys.stderr, color=color)
        self.out = self.err if json else self._screen(sys.stdout, color=color)

    @staticmethod
    def _screen(stream: Any, *, color: bool) -> _Screen:
        no_color = None if color else True  # None: rich looks at NO_COLOR
        screen = _Screen(file=stream, highlight=False, markup=False, emoji=False, no_color=no_color)
        if not screen.is_terminal:
            screen.width = 100_000  # no terminal width: lines are never cut and stay searchable
        return screen

    def __enter__(self) -> Output:
        if self.json:
            sys.stdout.flush()
            self._document = os.dup(1)
            os.dup2(2, 1)
            sys.stdout = sys.stderr
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._document is not None:
            sys.stdout = self._stdout
            os.dup2(self._document, 1)
            os.close(self._document)
            self._document = None

    # -- Saying -----------------------------------------------------------------------------------------------------

    @property
    def fancy(self) -> bool:
        """Return True if signs beyond ASCII can be shown."""
        return _knows_all(self.err)

    @property
    def closed(self) -> bool:
        """Return True if the reader of the answer went away."""
        return self.out.quiet

    def say(self, key: str, **values: Any) -> str:
        said = say(key, self.lang, **values)
        return self.typed(said) if "rerail " in catalogue(self.lang)[key] else said  # values may hold such words, too

    def work_on(self, store: str) -> None:
        """Remember the named store, without its password: hints end up in logs and chats."""
        from rerail.adapters.stores.remote import shown

        self.where = f" --store {shlex.quote(shown(store))}"

    def typed(self, text: str) -> str:
        """Add the options that a suggested command, or one inside a sentence, needs to work here.

        A command alone gets them at its end. Inside a sentence the end of a command is unknown, so they come first.
        """
        if not (self.where or self.tools) or "--store" in text or "--tools" in text:
            return text

        def options(command: str) -> str:
            return (self.where if command not in STORELESS else "") + (self.tools if command in DRIVING else "")

        if text.startswith("rerail ") and not _SENTENCE.search(_QUOTED.sub("", text)):
            return text + options(text.split()[1])
        return _COMMAND.sub(lambda found: f"rerail{options(found[1])} {found[1]}", text)

    def told(self, text: str) -> str:
        """Translate a sentence of another process or a history into the user's language."""
        return retold(text, self.lang)

    def print(self, *lines: Text | str) -> None:
        """Print lines of the answer; under `--json` to stderr, for people."""
        self._print(self.out, lines)

    def note(self, *lines: Text | str) -> None:
        """Print lines beside the answer: progress and remarks."""
        self._print(self.err, lines)

    @staticmethod
    def _print(screen: Console, lines: Iterable[Text | str]) -> None:
        for line in lines:
            screen.print(line, soft_wrap=True)

    def listing(self, names: Sequence[str], rows: Sequence[Sequence[Cell]]) -> list[Text]:
        """Return rows in columns with titles, as wide as the screen."""
        return table([self.say(f"cli.head.{name}") for name in names], rows, self.out.width)

    def hint(self, words: str) -> Text:
        return Text.assemble((self.say("cli.hint"), "cyan"), " ", clean(words))

    def suggest(self, command: str) -> None:
        """Print a command to type next."""
        self.note(Text("  " + self.typed(command), "cyan"))

    def done(self, document: Any, words: str, command: str) -> int:
        """Print what was done: the document, or the words and a command to type next; return exit code 0."""
        if self.json:
            self.document(document)
        else:
            self.print(words)
            self.suggest(command)
        return 0

    def notice(self, told: str) -> None:
        self.noticed.append(str(told))
        self.note(Text(clean(self.typed(retold(told, self.lang))), "yellow"))

    def raw(self, content: str | bytes) -> None:
        """Print a text or a file for another program, unchanged."""
        try:
            sys.stdout.buffer.write(content) if isinstance(content, bytes) else sys.stdout.write(content)
            sys.stdout.flush()
        except BrokenPipeError:
            self.out.on_broken_pipe()
        except OSError as problem:
            self.out.failure = problem
            self.out.on_broken_pipe()

    def document(self, value: Any) -> None:
        """Print the one JSON document; only under `--json`, and once: later errors go to stderr."""
        assert self._document is not None
        if self._told:
            return
        self._told = True
        data = json_shown(msgspec.json.format(msgspec.json.encode(value, enc_hook=as_text), indent=2)) + b"\n"
        try:
            while data:
                data = data[os.write(self._document, data) :]
        except BrokenPipeError:
            pass
        except OSError as problem:
            self._lost = problem

    def checked(self, code: int) -> int:
        """Report output that could not be written, on the stream that is left; return the exit code."""
        lost = self._lost or (None if self.json else self.out.failure)
        problem = lost or self.err.failure
        if problem is not None:
            screen = self.err if lost is not None or self.json else self.out
            words = self.say("cli.error.unwritten", reason=problem.strerror)
            screen.print(Text.assemble((self.say("cli.error"), "bold red"), " ", words), soft_wrap=True)
        return code or int(lost is not None)

    # -- Problems -----------------------------------------------------------------------------------------------------

    def usage(self, message: str, hint: str) -> int:
        self.problem("USAGE", message, hint)
        return USAGE

    def fail(self, error: RerailError, instead: Sequence[Text] = ()) -> int:
        """Print the refusal and what is possible, or these lines ``instead``; return the exit code."""
        document, message, hint, code = self.said(error)
        if self.json:
            self.document(document)
        if instead:
            self.note(*instead)
        else:
            self._tell(message, hint)
        return code

    def said(self, error: RerailError) -> tuple[dict[str, Any], str, str, int]:
        """Print an error: the document, the message, the hint; return the exit code."""
        code = 1 if isinstance(error, StoreError) and not isinstance(error, CannotOpen) else USAGE
        error.hint = error.hint or self._hint(error)
        hint = self.told(error.hint)
        message = error.message_in(self.lang)
        ours = isinstance(error.message, Told)  # any other text may be a user's
        return error.to_dict(), self.typed(message) if ours else message, hint, code

    def problem(self, code: str, message: str, hint: str) -> None:
        """Print a problem that is no `RerailError`."""
        if self.json:
            self.document({"error": {"code": code, "message": str(message), "hint": str(hint)}})
        self._tell(self.told(message), self.told(hint))

    def _tell(self, message: str, hint: str) -> None:
        self.note(Text.assemble((self.say("cli.error"), "bold red"), " ", clean(message, lines=True)))
        if hint:
            self.note(self.hint(self.typed(hint)))

    def _hint(self, error: RerailError) -> str:
        if isinstance(error, PlanError) and any(fault.code == "UNKNOWN_TOOL" for fault in error.faults):
            return tell("cli.hint.tools_given" if self.tools_loaded else "cli.hint.tools")
        if isinstance(error, StoreError) and self.driving:
            return f"rerail resume {self.driving[0]}"
        return ""
