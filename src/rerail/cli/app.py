"""From typed words to a command and its exit code (SPEC T4).

Rules of this file:
- A user's mistake is one sentence and what to type next, never a traceback (RERAIL_DEBUG=1 shows it).
- The bare help is printed without loading anything; it is what people wait for most often.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rerail.cli.catalogue import COMMANDS, FLAGS, GROUPS, READS_STDIN, STDIN, VALUED
from rerail.cli.slash import unslashed
from rerail.core.nearest import nearest
from rerail.i18n import languages, say, tell
from rerail.version import __version__

if TYPE_CHECKING:
    from inspect import BoundArguments

    from cyclopts import App

    from rerail.cli.catalogue import Command
    from rerail.cli.options import Common
    from rerail.cli.output import Output

USAGE = 2
INTERRUPTED, TERMINATED = 130, 143


def run(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code."""
    words = options_last(list(sys.argv[1:] if argv is None else argv))
    if words and words[0].startswith("/"):
        words = unslashed(words)
    if not words or words[0] in ("--help", "-h", "help"):
        return _help(words[1:])
    if words[0] == "--version":
        _write(f'{{"version": "{__version__}"}}\n' if "--json" in words else f"{__version__}\n")
        return 0
    if _takes(words, 0) and "--json" not in words and set(_langs(words)) <= set(languages()):
        return _help(words)  # options alone, and nothing to do
    if words[0] == "demo":  # it reads its own options
        from rerail.cli.commands_setup import run_demo

        return run_demo(words[1:])
    if words[0] not in COMMANDS:
        return _unknown_command(words)
    return _parsed(words)


def options_last(words: list[str]) -> list[str]:
    """The words with the options that stand before the command moved behind it."""
    at = 0
    while at < len(words) and (taken := _takes(words, at)):
        at += taken
    return words[at : at + 1] + words[:at] + words[at + 1 :] if at < len(words) else words


def _takes(words: list[str], at: int) -> int:
    """How many words the option there takes up; 0 if it is none of those that may stand before a command."""
    if words[at] in FLAGS or words[at].split("=")[0] in VALUED:
        return 2 if words[at] in VALUED else 1
    return 0


# -- Help and mistakes --------------------------------------------------------------------------------------------


def _help(words: list[str]) -> int:
    if words and words[0] in COMMANDS:
        return run([words[0], "--help", *words[1:]])
    _write(help_text(_lang(words)))
    return 0


def _lang(words: list[str]) -> str:
    """The language to speak before the options are read: the one that was asked for, if it is one."""
    from rerail.cli.language import chosen_lang

    return chosen_lang(next((lang for lang in _langs(words) if lang in languages()), None))


def _langs(words: list[str]) -> list[str]:
    """The languages that were asked for."""
    asked = [words[at + 1] for at, word in enumerate(words[:-1]) if word == "--lang"]
    return asked + [word.partition("=")[2] for word in words if word.startswith("--lang=")]


def help_text(lang: str = "en") -> str:
    """The bare help: every command in one line."""
    lines = [say("cli.help.usage", lang), "", say("cli.help.about", lang)]
    width = max(len(f"{c.name} {c.usage}") for c in COMMANDS.values()) + 2
    for title, commands in GROUPS.items():
        lines += ["", say(title, lang)]
        lines += [f"  {f'{c.name} {c.usage}':<{width}}{_about(c, lang)}" for c in commands]
    lines += ["", say("cli.help.everywhere", lang, langs="|".join(languages())), ""]
    return "\n".join(lines)


def _about(command: Command, lang: str) -> str:
    return say(f"cli.command.{command.name}", lang)


def _write(text: str) -> None:
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _unknown_command(words: list[str]) -> int:
    from rerail.cli.output import Output

    if words[0] == "store":  # a command of earlier versions
        with Output(json="--json" in words, lang=_lang(words)) as out:
            return out.usage(tell("cli.store.gone"), tell("cli.store.instead"))
    near = nearest(words[0], COMMANDS)
    hint = tell("cli.error.did_you_mean", near=f"rerail {near}") if near else tell("cli.error.see_help")
    with Output(json="--json" in words, lang=_lang(words)) as out:
        what = "cli.error.unknown_option" if words[0].startswith("-") else "cli.error.unknown_command"
        return out.usage(tell(what, word=words[0]), hint)


# -- Parsing and running ------------------------------------------------------------------------------------------


def parser(command: Command) -> App:
    """What reads the words of a command, and knows its options."""
    from cyclopts import App

    app = App("rerail", version_flags=[], result_action="return_value")
    app.command(command.path, name=command.name)
    return app


def _parsed(words: list[str]) -> int:
    from cyclopts import CycloptsError

    from rerail.cli.output import Output

    command = COMMANDS[words[0]]
    if command.name in READS_STDIN:
        words = [STDIN if word == "-" else word for word in words]
    app = parser(command)
    try:
        function, bound, hidden, *_ = app.parse_args(words, exit_on_error=False, print_error=False)
    except CycloptsError as error:
        from rerail.cli.mistakes import mistake, way_on

        with Output(json="--json" in words, lang=_lang(words)) as out:
            return out.usage(mistake(error), way_on(error, command.name))
    if "out" not in hidden:
        from rerail.cli.command_help import show_help

        with Output(lang=_lang(words), color="--no-color" not in words) as out:
            show_help(out, app, command)
        return 0
    return _run(function, bound)


def _run(function: Any, bound: BoundArguments) -> int:
    from inspect import iscoroutinefunction

    from rerail.cli.language import chosen_lang
    from rerail.cli.options import Common
    from rerail.cli.output import Output

    common: Common = bound.arguments.get("common") or Common()
    lang = chosen_lang(common.lang)
    json = common.json and iscoroutinefunction(function)  # the shell prints no document, each of its lines does
    with Output(json=json, lang=lang, color=not common.no_color, quiet=common.quiet) as out:
        if common.store is not None:
            out.work_on(common.store)
        return _guarded(function, bound, out)


def _guarded(function: Any, bound: BoundArguments, out: Output) -> int:
    """Run the command; what goes wrong is told in one sentence."""
    import asyncio
    import contextlib
    import inspect
    import signal

    from rerail.errors import RerailError

    told: list[int] = []  # to stop, by somebody who has no keyboard

    async def whole() -> int:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None

        def stop() -> None:
            told.append(signal.SIGTERM)
            task.cancel()

        with contextlib.suppress(NotImplementedError):  # not on every system
            loop.add_signal_handler(signal.SIGTERM, stop)
        code: int = await function(*bound.args, **{**bound.kwargs, "out": out})
        return code

    try:
        if not inspect.iscoroutinefunction(function):  # the shell, which runs other commands
            return int(function(*bound.args, **{**bound.kwargs, "out": out}))
        code: int = asyncio.run(whole())
    except KeyboardInterrupt:
        return _interrupted(out)
    except asyncio.CancelledError:
        if not told:
            raise
        return _interrupted(out, TERMINATED)
    except RerailError as error:
        if os.environ.get("RERAIL_DEBUG"):
            raise
        return out.fail(error)
    return code


def _interrupted(out: Output, code: int = INTERRUPTED) -> int:
    """Ctrl-C, or SIGTERM: the runs of this process are left as a crash would leave them, and can be resumed."""
    hints = [f"rerail resume {run}{out.where}" for run in out.driving]
    message = tell("cli.interrupted.run" if hints else "cli.interrupted", runs=", ".join(out.driving))
    out.problem("INTERRUPTED", message, " ; ".join(hints))
    return code
