"""Completion: commands, runs, stages, steps, options and their values, files (contract T11).

Rules of this file:
- The parser knows a command's arguments, as for the help; this file only knows the meaning of an argument's name.
- The store is asked through its view: a missing, busy or broken store offers no words, and no message.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
import threading
from collections.abc import AsyncGenerator, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document

from rerail.cli.app import options_last, parser
from rerail.cli.command_table import COMMANDS, FLAGS, VALUED, unslashed
from rerail.cli.input_files import PLAN_ENDINGS
from rerail.cli.options import arguments, meaning_of, takes, word_of
from rerail.cli.output import Output, one_line
from rerail.cli.shell.command_lines import HERE, NAMES, split
from rerail.cli.shell.store_view import Window
from rerail.i18n import languages
from rerail.kernel.stages import stages
from rerail.kernel.verdict import status_of

if TYPE_CHECKING:
    from cyclopts.argument import Argument

# Arguments that are files, and how the names of these end.
FILES: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("plan", "fallback", "steps_file", "run_or_plan"), PLAN_ENDINGS),
    "tools": (".py",),
    "store": ("",),
    "edit": ("",),
}
MANY = 200  # words offered, at most


@dataclass(frozen=True, slots=True)
class Offer:
    text: str
    meaning: str = ""
    goes_on: bool = False  # incomplete on its own: a folder


Offers = Iterable[Offer]


class ShellCompleter(Completer):
    """Completes the line of the shell, in a thread of its own."""

    def __init__(self, window: Window, out: Output) -> None:
        self._window, self._out = window, out
        self._described = cache(self._describe)

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterator[Completion]:
        line = document.text_before_cursor
        found = split(line)
        if found.comment:
            return
        for at, offer in enumerate(self.offers(found.before, found.last)):
            if at == MANY:
                return
            text = shlex.quote(offer.text)
            if offer.goes_on and text != offer.text:
                text = text[:-1]  # the quotation stays open
            shown = offer.text if not offer.goes_on else os.path.basename(offer.text.rstrip("/")) + "/"
            yield Completion(text, found.start - len(line), display=shown, display_meta=offer.meaning)

    async def get_completions_async(
        self, document: Document, complete_event: CompleteEvent
    ) -> AsyncGenerator[Completion, None]:
        """Yield the words once they are found.

        Their thread may be abandoned: the library waits for its own when the line is finished, however long they take.
        """
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[list[Completion]] = loop.create_future()

        def deliver(found: list[Completion]) -> None:
            if not answer.done():
                answer.set_result(found)

        def work() -> None:
            found: list[Completion] = []
            try:
                found += self.get_completions(document, complete_event)
            finally:
                with contextlib.suppress(RuntimeError):  # the line was finished meanwhile
                    loop.call_soon_threadsafe(deliver, found)

        threading.Thread(target=work, daemon=True).start()
        for one in await answer:
            yield one

    def offers(self, before: list[str], word: str) -> Offers:
        """Return completions of a word after others."""
        if before[:1] == ["rerail"]:
            before = before[1:]
        rest = _behind_options(before)
        if rest is None:
            return self._values(before[-1], word, [], None)
        if not rest:
            return self._commands(word) if not word.startswith("-") else self._options("ls", word, common=True)
        if rest[0].removeprefix("/") == "help":
            return self._commands(word, slash=False)
        words = unslashed(options_last(before))
        if rest[0].removeprefix("/") == "status":
            words[0] = "show"  # the next word may be a run
        if words[0] not in COMMANDS or words[0] not in NAMES or words[0] == "demo":
            return ()
        return self._arguments(words[0], words[1:], word)

    # -- Commands and options -----------------------------------------------------------------------------------------

    def _commands(self, word: str, *, slash: bool = True) -> Iterator[Offer]:
        sign = "/" if slash and (word.startswith("/") or not word) else ""
        for name in NAMES:
            if name != "exit" and f"{sign}{name}".startswith(word):
                key = f"cli.shell.word.{name}" if name in HERE else f"cli.command.{name}"
                yield Offer(f"{sign}{name}", self._out.say(key))

    def _describe(self, command: str) -> tuple[list[Argument], dict[str, Argument], list[str]]:
        """Return a command's positional arguments, its options by name, and the offered names, its own first."""
        places, own, common = arguments(parser(COMMANDS[command]), COMMANDS[command])
        named = {name: one for one in (*own, *common) for name in one.names}
        return places, named, [name for one in (*own, *common) for name in one.names if name.startswith("--")]

    def _options(self, command: str, word: str, *, common: bool = False) -> Iterator[Offer]:
        _, named, offered = self._described(command)
        for name in offered:
            if name.startswith(word) and (not common or name in (*FLAGS, *VALUED)):
                yield Offer(name, meaning_of(self._out, COMMANDS[command], named[name]))

    def _arguments(self, command: str, words: list[str], word: str) -> Offers:
        places, named, _ = self._described(command)
        placed: list[str] = []
        waiting = ""  # the option that waits for its value
        for one in words:
            if waiting:
                waiting = ""
            elif one.startswith("-") and one != "-":
                waiting = one if one in named and takes(named[one]) else ""
            else:
                placed.append(one)
        if waiting:
            return self._values(word_of(named[waiting]), word, placed, named[waiting])
        name, equals, value = word.partition("=")
        if equals and name in named:
            offers = self._values(word_of(named[name]), value, placed, named[name])
            return (Offer(f"{name}={one.text}", one.meaning, one.goes_on) for one in offers)
        if word.startswith("-"):
            return self._options(command, word)
        if len(placed) < len(places):
            return self._values(word_of(places[len(placed)]), word, placed, places[len(placed)])
        return ()

    # -- Values -------------------------------------------------------------------------------------------------------

    def _values(self, name: str, word: str, placed: list[str], argument: Argument | None) -> Offers:
        """Return the possible values of an argument of that name."""
        choices = (argument.get_choices() or ()) if argument is not None else {"--lang": languages()}.get(name, ())
        if choices:
            return [Offer(str(one)) for one in choices if str(one).startswith(word)]
        name, found = name.lstrip("-"), list[Offer]()
        if name in ("run", "parent", "run_or_plan"):
            found += self._runs(word)
        if name in ("step", "name", "needs", "output"):
            found += self._steps(placed, word)
        if name == "stage":
            found += self._stages(placed, word)
        return found + _files(word, FILES[name]) if name in FILES else found

    def _runs(self, word: str) -> Iterator[Offer]:
        for head in self._window.runs(word):
            yield Offer(head.run, one_line(f"{self._out.say(f'status.{head.status}')}  {head.objective}", 80))

    def _steps(self, placed: list[str], word: str) -> Iterator[Offer]:
        for picture in self._window.pictures(placed[0])[:1] if placed else ():
            for track in list(picture.state.tracks.values()):
                if track.id.startswith(word):
                    status = self._out.say(f"status.{status_of(picture.state, track)[0]}")
                    yield Offer(track.id, one_line(f"{status}  {track.step.title or track.step.tool}", 80))

    def _stages(self, placed: list[str], word: str) -> Iterator[Offer]:
        pictures: list[Any] = self._window.pictures(placed[0]) if placed else []
        names = dict.fromkeys(stage for picture in pictures for stage in stages(picture.state))
        yield from (Offer(name) for name in names if name.startswith(word))


def _behind_options(words: list[str]) -> list[str] | None:
    """Return the words after leading options; None if the last option waits for its value."""
    at = 0
    while at < len(words) and words[at].startswith("-"):
        at += 2 if words[at] in VALUED else 1
    return words[at:] if at <= len(words) else None


def _files(word: str, endings: tuple[str, ...]) -> list[Offer]:
    """Return files with these endings, and folders, that continue a path."""
    folder, name = os.path.split(word)
    try:
        with os.scandir(folder or ".") as entries:
            found = sorted(entries, key=lambda entry: entry.name)
            hidden = name.startswith(".")
            fitting = [one for one in found if one.name.startswith(name) and one.name.startswith(".") <= hidden]
            folders = [one for one in fitting if one.is_dir()]
            files = [one for one in fitting if one.name.lower().endswith(endings) and one not in folders]
    except OSError:
        return []
    offers = [Offer(os.path.join(folder, one.name)) for one in files]
    return offers + [Offer(os.path.join(folder, one.name, ""), goes_on=True) for one in folders]
