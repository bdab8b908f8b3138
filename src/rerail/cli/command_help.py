"""The help of one command: what it does, what it takes, and the options of every command, in the user's language.

Which options there are is the parser's to say; what they mean is in the catalogue, under `cli.arg.COMMAND.NAME`, or
under `cli.arg.NAME` where it is the same for all commands.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from rich.cells import cell_len
from rich.text import Text

from rerail.cli.catalogue import Command
from rerail.cli.output import Output
from rerail.i18n import has

if TYPE_CHECKING:
    from cyclopts import App
    from cyclopts.argument import Argument

WIDTH = 100  # of the help, where the screen is wider or is none
FEW = 3  # choices that are shown in place of a value


def show_help(out: Output, app: App, command: Command) -> None:
    """Print the help of a command."""
    places, own, common = arguments(app, command)
    usage = " ".join(["rerail", command.name, *map(_place, places), out.say("cli.help.options_here")])
    out.print(out.say("cli.help.command_usage", usage=usage), "", out.say(f"cli.about.{command.name}"))
    for title, rows in (("arguments", places), ("options", own), ("common", common)):
        if rows:
            out.print("", out.say(f"cli.help.{title}"))
            _list(out, command, rows)


def arguments(app: App, command: Command) -> tuple[list[Argument], list[Argument], list[Argument]]:
    """What a command takes: by its place, by options of its own, and by those of every command."""
    known = [one for one in app[command.name].assemble_argument_collection() if one.parameter.parse is not False]
    places = [one for one in known if _is_place(one)]
    common = [one for one in known if one.keys]
    return places, [one for one in known if not _is_place(one) and not one.keys and "*" not in one.names], common


def _list(out: Output, command: Command, rows: Iterable[Argument]) -> None:
    told = [(_spelt(one), Text(meaning_of(out, command, one))) for one in rows]
    left = max(cell_len(name) for name, _ in told) + 4
    for name, meaning in told:
        first, *rest = meaning.wrap(out.out, max(20, min(WIDTH, out.out.width) - left))
        out.print(Text.assemble("  ", (name, "bold"), " " * (left - 2 - cell_len(name)), first))
        out.print(*(Text(" " * left).append_text(line) for line in rest))


def _is_place(one: Argument) -> bool:
    return one.field_info.kind is one.field_info.POSITIONAL_ONLY


def word_of(one: Argument) -> str:
    """The name that an argument has in the code, and in the catalogue."""
    return one.field_info.names[0] if _is_place(one) else (one.keys or one.field_info.names)[0]


def _place(one: Argument) -> str:
    name = word_of(one).upper()
    return name if one.required else f"[{name}]"


def _spelt(one: Argument) -> str:
    """An argument as it is typed."""
    if _is_place(one):
        return word_of(one).upper()
    return " ".join([", ".join(one.names), *takes(one)])


def takes(one: Argument) -> list[str]:
    """What stands for an option's value: its choices if they are few, else the kind of it."""
    kinds = [kind for kind in (one.hint, *get_args(one.hint)) if isinstance(kind, type)]
    if bool in kinds:
        return []
    choices = one.get_choices() or ()
    kind = "INT" if int in kinds else "FILE" if Path in kinds or "list[pathlib" in str(one.hint) else "TEXT"
    shown = "|".join(choices) if 0 < len(choices) <= FEW else kind
    return [f"[{shown}]" if "list[" in str(one.hint) else f"{shown} …" if "tuple[" in str(one.hint) else shown]


def meaning_of(out: Output, command: Command, one: Argument) -> str:
    """What an argument means."""
    own, shared = f"cli.arg.{command.name}.{word_of(one)}", f"cli.arg.{word_of(one)}"
    words = [out.say(own if has(own) and not one.keys else shared)]
    choices = one.get_choices() or ()
    if len(choices) > FEW:
        words.append(out.say("cli.help.choices", choices=", ".join(choices)))
    default: Any = one.field_info.default
    if isinstance(default, int | str) and not isinstance(default, bool) and default and not one.required:
        words.append(out.say("cli.help.default", value=default))
    return " ".join(words)
