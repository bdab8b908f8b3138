"""From typed words to a command and its exit code (contract T4).

Rules of this file:
- A usage error is one sentence and a next command, never a traceback (RERAIL_DEBUG=1 shows it).
- The bare help is printed without loading anything; it is the most frequent output.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rerail.cli.command_table import COMMANDS, FLAGS, GROUPS, READS_STDIN, STDIN, VALUED, unslashed
from rerail.i18n import SOURCE, languages, nearest_language, say, tell
from rerail.values.names import nearest
from rerail.version import __version__

if TYPE_CHECKING:
    from inspect import BoundArguments

    from cyclopts import App

    from rerail.cli.command_table import CommandEntry
    from rerail.cli.options import Common
    from rerail.cli.output import Output

USAGE = 2
INTERRUPTED, TERMINATED = 130, 143


def run(argv: Sequence[str] | None = None) -> int:
    """Run one command; return its exit code."""
    words = options_last(list(sys.argv[1:] if argv is None else argv))
    if words and words[0].startswith("/"):
        words = unslashed(words)
    if not words or words[0] in ("--help", "-h", "help"):
        return _help(words[1:])
    if words[0] == "--version":
        return _write(f'{{"version": "{__version__}"}}\n' if "--json" in words else f"{__version__}\n")
    if _takes(words, 0) and "--json" not in words and set(_langs(words)) <= set(languages()):
        return _help(words)  # options alone, without a command
    if words[0] not in COMMANDS:
        return _unknown_command(words)
    return _parsed(words)


def options_last(words: list[str]) -> list[str]:
    """Move the options before the command behind it."""
    at = 0
    while at < len(words) and (taken := _takes(words, at)):
        at += taken
    return words[at : at + 1] + words[:at] + words[at + 1 :] if at < len(words) else words


def _takes(words: list[str], at: int) -> int:
    """Return the number of words of the option there; 0 if it may not stand before a command."""
    if words[at] in FLAGS or words[at].split("=")[0] in VALUED:
        return 2 if words[at] in VALUED else 1
    return 0


# -- Help and mistakes --------------------------------------------------------------------------------------------


def _help(words: list[str]) -> int:
    if words and words[0] in COMMANDS:
        return run([words[0], "--help", *words[1:]])
    return _write(help_text(_lang(words)))


def _lang(words: list[str]) -> str:
    """Return the requested language if it exists, before the options are parsed."""
    return chosen_lang(next((lang for lang in _langs(words) if lang in languages()), None))


def chosen_lang(given: str | None) -> str:
    """Return the user's language: `--lang`, else `RERAIL_LANG`, else the locale (contract T12)."""
    if given is not None:
        return given
    for name in ("RERAIL_LANG", "LC_ALL", "LC_MESSAGES", "LANG"):
        if value := os.environ.get(name, "").strip():
            return nearest_language(value) or SOURCE
    return SOURCE


def _langs(words: list[str]) -> list[str]:
    asked = [words[at + 1] for at, word in enumerate(words[:-1]) if word == "--lang"]
    return asked + [word.partition("=")[2] for word in words if word.startswith("--lang=")]


def help_text(lang: str = "en") -> str:
    """Return the bare help: every command in one line."""
    lines = [say("cli.help.usage", lang), "", say("cli.help.about", lang)]
    width = max(len(f"{c.name} {c.usage}") for c in COMMANDS.values()) + 2
    for title, commands in GROUPS.items():
        lines += ["", say(title, lang)]
        lines += [f"  {f'{c.name} {c.usage}':<{width}}{_about(c, lang)}" for c in commands]
    lines += ["", say("cli.help.everywhere", lang, langs="|".join(languages())), ""]
    return "\n".join(lines)


def _about(command: CommandEntry, lang: str) -> str:
    return say(f"cli.command.{command.name}", lang)


def _write(text: str) -> int:
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except OSError as problem:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(problem, BrokenPipeError):
            sys.stderr.write(say("cli.error.unwritten", reason=problem.strerror) + "\n")
            return 1
    return 0


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


def parser(command: CommandEntry) -> App:
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
        from rerail.cli.options import mistake, way_on

        with Output(json="--json" in words, lang=_lang(words)) as out:
            return out.usage(mistake(error), way_on(error, command.name))
    if "out" not in hidden:
        from rerail.cli.options import show_help

        with Output(lang=_lang(words), color="--no-color" not in words) as out:
            show_help(out, app, command)
        return out.checked(0)
    return _run(function, bound)


def _run(function: Any, bound: BoundArguments) -> int:
    from inspect import iscoroutinefunction

    from rerail.cli.options import Common
    from rerail.cli.output import Output

    common: Common = bound.arguments.get("common") or Common()
    lang = chosen_lang(common.lang)
    json = common.json and iscoroutinefunction(function)  # the shell prints no document, each of its lines does
    with Output(json=json, lang=lang, color=not common.no_color, quiet=common.quiet) as out:
        if common.store is not None:
            out.work_on(common.store)
        return out.checked(_guarded(function, bound, out))


def _guarded(function: Any, bound: BoundArguments, out: Output) -> int:
    """Run the command; report an error in one sentence."""
    import asyncio
    import contextlib
    import inspect
    import signal

    from rerail.errors import RerailError

    told: list[int] = []  # requests to stop, as signals without a keyboard

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
    """Handle Ctrl-C or SIGTERM: runs of this process end as in a crash, and can be resumed."""
    hints = [f"rerail resume {run}{out.where}" for run in out.driving]
    message = tell("cli.interrupted.run" if hints else "cli.interrupted", runs=", ".join(out.driving))
    out.problem("INTERRUPTED", message, " ; ".join(hints))
    return code
