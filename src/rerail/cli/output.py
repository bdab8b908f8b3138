"""Where text goes: the answer on stdout, progress and problems on stderr, and under `--json` one document alone.

Rules of this file:
- What tools say is untrusted: it reaches a terminal only through `clean`, and never as markup.
- Under `--json` nothing but the document may reach stdout, not even what a tool prints: the descriptor itself is
  turned to stderr while the command runs, and a copy is kept for the document.
- A reader that went away (`| head`) ends the text, never the run.
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

from rerail.cli.catalogue import COMMANDS
from rerail.core.lines import clean, one_line
from rerail.errors import PlanError, RerailError, StoreError
from rerail.i18n import Told, as_text, catalogue, retold, say, tell

USAGE = 2
STORELESS = ("check", "config", "crashtest", "demo", "plan", "prompts", "tools")
DRIVING = ("add", "confirm", "replay", "resolve", "resume", "retry", "repair", "skip")  # with the tools of a run
_COMMAND = re.compile(rf"(?<![\w/.-])rerail ({'|'.join(COMMANDS)})\b")
_SENTENCE = re.compile(r" \| |[,;] |[、；，]")
_QUOTED = re.compile(
    r"'[^']*'|\"[^\"]*\""
)  # somebody's value: what stands in it is neither a sentence nor a suggestion

__all__ = ["CannotOpen", "Output", "clean", "one_line"]


class CannotOpen(StoreError):
    """The store could not be opened, so nothing was begun."""


class _Screen(Console):
    """A console whose reader may go away without anybody being hurt."""

    def on_broken_pipe(self) -> None:
        """Fall silent; rich's own answer would end the program, and the run with it."""
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
        self.verbose = False  # `log.verbose`: the retry chain, and each skip with its failed needs
        self.where = ""  # options that a suggested command needs to find the same store
        self.tools = ""  # and to have the same tools, where the run does not know of them
        self.tools_loaded = False  # some were named, so that to name some is no advice
        self._document: int | None = None
        self._told = False
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
            screen.width = 100_000  # nobody's screen: nothing is cut off, lines can be searched
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
        """Whether signs beyond ASCII can be shown."""
        return _knows_all(self.err)

    @property
    def closed(self) -> bool:
        """Whether the reader of the answer went away."""
        return self.out.quiet

    def say(self, key: str, **values: Any) -> str:
        """A sentence of the catalogue in the user's language."""
        said = say(key, self.lang, **values)
        return self.typed(said) if "rerail " in catalogue(self.lang)[key] else said  # values may hold such words, too

    def work_on(self, store: str) -> None:
        """Remember which store was named; without its password, for hints end up in logs and in chats."""
        from rerail.adapters.stores.remote import shown

        self.where = f" --store {shlex.quote(shown(store))}"

    def typed(self, text: str) -> str:
        """A suggested command, or a sentence with some, with the options without which it would not work here.

        Those of a command alone come last; within a sentence nobody knows where a command ends, so they come first.
        """
        if not (self.where or self.tools) or "--store" in text or "--tools" in text:
            return text

        def options(command: str) -> str:
            return (self.where if command not in STORELESS else "") + (self.tools if command in DRIVING else "")

        if text.startswith("rerail ") and not _SENTENCE.search(_QUOTED.sub("", text)):
            return text + options(text.split()[1])
        return _COMMAND.sub(lambda found: f"rerail{options(found[1])} {found[1]}", text)

    def told(self, text: str) -> str:
        """A sentence that was made elsewhere, or read from a history, in the user's language."""
        return retold(text, self.lang)

    def print(self, *lines: Text | str) -> None:
        """Lines of the answer; under `--json` they are for people, so they go to stderr."""
        self._print(self.out, lines)

    def note(self, *lines: Text | str) -> None:
        """Lines beside the answer: progress and remarks."""
        self._print(self.err, lines)

    @staticmethod
    def _print(screen: Console, lines: Iterable[Text | str]) -> None:
        for line in lines:
            screen.print(line, soft_wrap=True)

    def notice(self, told: str) -> None:
        """Something that happened on the way, and that people should know."""
        self.note(Text(clean(self.typed(retold(told, self.lang))), "yellow"))

    def raw(self, text: str) -> None:
        """A text for another program, exactly as it is."""
        try:
            sys.stdout.write(text)
            sys.stdout.flush()
        except BrokenPipeError:
            self.out.on_broken_pipe()

    def document(self, value: Any) -> None:
        """The one JSON document; only under `--json`, and only once: what goes wrong after it is for people."""
        assert self._document is not None
        if self._told:
            return
        self._told = True
        data = msgspec.json.format(msgspec.json.encode(value, enc_hook=as_text), indent=2) + b"\n"
        with contextlib.suppress(BrokenPipeError):
            while data:
                data = data[os.write(self._document, data) :]

    # -- Problems -----------------------------------------------------------------------------------------------------

    def usage(self, message: str, hint: str) -> int:
        """A mistake in what was typed; returns the exit code."""
        self.problem("USAGE", message, hint)
        return USAGE

    def fail(self, error: RerailError, instead: Sequence[Text] = ()) -> int:
        """Tell what cannot be done, and what can, or these lines ``instead``; returns the exit code."""
        document, message, hint, code = self.said(error)
        return self.refuse_with(document, instead, code) if instead else self.refuse(document, message, hint, code)

    def refuse_with(self, document: Any, lines: Sequence[Text], code: int) -> int:
        """Tell an error in words of its own; returns the exit code."""
        if self.json:
            self.document(document)
        self.note(*lines)
        return code

    def said(self, error: RerailError) -> tuple[dict[str, Any], str, str, int]:
        """An error as it is told: the document, the sentence, what to do, and the exit code."""
        code = 1 if isinstance(error, StoreError) and not isinstance(error, CannotOpen) else USAGE
        error.hint = error.hint or self._hint(error)
        hint = self.told(error.hint)
        message = error.message_in(self.lang)
        ours = isinstance(error.message, Told)  # else it may be somebody's words
        return error.to_dict(), self.typed(message) if ours else message, hint, code

    def refuse(self, document: Any, message: str, hint: str, code: int) -> int:
        """Tell an error that somebody else met; returns the exit code."""
        if self.json:
            self.document(document)
        self._tell(message, hint)
        return code

    def problem(self, code: str, message: str, hint: str) -> None:
        """A problem that is no exception of ours."""
        if self.json:
            self.document({"error": {"code": code, "message": str(message), "hint": str(hint)}})
        self._tell(self.told(message), self.told(hint))

    def _tell(self, message: str, hint: str) -> None:
        self.note(Text.assemble((self.say("cli.error"), "bold red"), " ", clean(message, lines=True)))
        if hint:
            self.note(Text.assemble((self.say("cli.hint"), "cyan"), " ", clean(self.typed(hint))))

    def _hint(self, error: RerailError) -> str:
        if isinstance(error, PlanError) and any(fault.code == "UNKNOWN_TOOL" for fault in error.faults):
            return tell("cli.hint.tools_given" if self.tools_loaded else "cli.hint.tools")
        if isinstance(error, StoreError) and self.driving:
            return f"rerail resume {self.driving[0]}"
        return ""
