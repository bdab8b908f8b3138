"""Options and arguments: the common ones, their help, and mistakes in them.

The parser knows a command's options. The catalogue has their meaning, under `cli.arg.COMMAND.NAME`, or under
`cli.arg.NAME` where it is the same for all commands.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args

from cyclopts import (
    CoercionError,
    CycloptsError,
    MissingArgumentError,
    Parameter,
    UnknownOptionError,
    UnusedCliTokensError,
)
from rich.cells import cell_len
from rich.text import Text

from rerail.cli.command_table import CommandEntry
from rerail.cli.output import Output
from rerail.i18n import Language, has, tell
from rerail.values.names import nearest

if TYPE_CHECKING:
    from cyclopts import App
    from cyclopts.argument import Argument


# A flag is given or not: no --no-json. A list is given item by item.
FLAG = Parameter(negative="", show_default=False)
JOBS = Parameter(name=["--jobs", "-j"])

# Kinds of arguments that several commands take.
Flag = Annotated[bool, FLAG]
Listed = Annotated[tuple[str, ...], FLAG]
Yes = Annotated[bool, Parameter(name=["--yes", "-y"], negative="", show_default=False)]
Every = Annotated[bool, Parameter(name="--all", negative="", show_default=False)]
Detached = Annotated[bool, Parameter(name="--detach", negative="", show_default=False)]
Target = Annotated[Path | None, Parameter(name=["--output", "-o"])]
Out = Annotated[Output, Parameter(parse=False)]  # not typed: the command's output


@Parameter(name="*")
@dataclass(frozen=True)
class Common:
    """The common options; the catalogue describes them under `cli.arg.`."""

    store: str | None = None
    tools: Listed = ()
    json: Flag = False
    lang: Language | None = None
    set: Listed = ()
    no_color: Flag = False
    quiet: Annotated[bool, Parameter(name=["--quiet", "-q"], negative="", show_default=False)] = False


PLAIN = Common()


WIDTH = 100  # of the help, where the screen is wider or is none
FEW = 3  # choices that are shown in place of a value


def show_help(out: Output, app: App, command: CommandEntry) -> None:
    places, own, common = arguments(app, command)
    usage = " ".join(["rerail", command.name, *map(_place, places), out.say("cli.help.options_here")])
    out.print(out.say("cli.help.command_usage", usage=usage), "", out.say(f"cli.about.{command.name}"))
    for title, rows in (("arguments", places), ("options", own), ("common", common)):
        if rows:
            out.print("", out.say(f"cli.help.{title}"))
            _list(out, command, rows)


def arguments(app: App, command: CommandEntry) -> tuple[list[Argument], list[Argument], list[Argument]]:
    """Return a command's arguments: positional, its own options, and common ones."""
    known = [one for one in app[command.name].assemble_argument_collection() if one.parameter.parse is not False]
    places = [one for one in known if _is_place(one)]
    common = [one for one in known if one.keys]
    return places, [one for one in known if not _is_place(one) and not one.keys and "*" not in one.names], common


def _list(out: Output, command: CommandEntry, rows: Iterable[Argument]) -> None:
    told = [(_spelt(one), Text(meaning_of(out, command, one))) for one in rows]
    left = max(cell_len(name) for name, _ in told) + 4
    for name, meaning in told:
        first, *rest = meaning.wrap(out.out, max(20, min(WIDTH, out.out.width) - left))
        out.print(Text.assemble("  ", (name, "bold"), " " * (left - 2 - cell_len(name)), first))
        out.print(*(Text(" " * left).append_text(line) for line in rest))


def _is_place(one: Argument) -> bool:
    return one.field_info.kind is one.field_info.POSITIONAL_ONLY


def word_of(one: Argument) -> str:
    return one.field_info.names[0] if _is_place(one) else (one.keys or one.field_info.names)[0]


def _place(one: Argument) -> str:
    name = word_of(one).upper()
    return name if one.required else f"[{name}]"


def _spelt(one: Argument) -> str:
    if _is_place(one):
        return word_of(one).upper()
    return " ".join([", ".join(one.names), *takes(one)])


def takes(one: Argument) -> list[str]:
    """Return an option's placeholder: its choices if they are few, else its kind."""
    kinds = [kind for kind in (one.hint, *get_args(one.hint)) if isinstance(kind, type)]
    if bool in kinds:
        return []
    choices = one.get_choices() or ()
    kind = "INT" if int in kinds else "FILE" if Path in kinds or "list[pathlib" in str(one.hint) else "TEXT"
    shown = "|".join(choices) if 0 < len(choices) <= FEW else kind
    return [f"[{shown}]" if "list[" in str(one.hint) else f"{shown} …" if "tuple[" in str(one.hint) else shown]


def meaning_of(out: Output, command: CommandEntry, one: Argument) -> str:
    own, shared = f"cli.arg.{command.name}.{word_of(one)}", f"cli.arg.{word_of(one)}"
    words = [out.say(own if has(own) and not one.keys else shared)]
    choices = one.get_choices() or ()
    if len(choices) > FEW:
        words.append(out.say("cli.help.choices", choices=", ".join(choices)))
    default: Any = one.field_info.default
    if isinstance(default, int | str) and not isinstance(default, bool) and default and not one.required:
        words.append(out.say("cli.help.default", value=default))
    return " ".join(words)


# Options of earlier versions, each with its message and its hint.
GONE = {"--on": ("refuse.ray.coordinator", "hint.ray.coordinator"), "--svg": ("cli.graph.svg", "cli.graph.mermaid")}


def mistake(error: CycloptsError) -> str:
    """Return the error as a sentence; an unknown one in the parser's words."""
    match error:
        case UnusedCliTokensError():
            return tell("cli.error.too_many", words=" ".join(error.unused_tokens or ()))
        case UnknownOptionError():
            return _unknown(error)
        case MissingArgumentError():
            return _missing(error)
        case CoercionError() if error.argument is not None:
            return _odd(error)
    error.verbose = False
    said = str(error)
    return tell("cli.error.usage", message=said[:1].lower() + said[1:].removesuffix("."))


def way_on(error: CycloptsError, command: str) -> str:
    """Return the hint: for a removed option its successor, else the command's help."""
    if isinstance(error, UnknownOptionError) and (gone := GONE.get(_word(error))):
        return tell(gone[1])
    return tell("cli.error.see_command_help", command=command)


def _word(error: UnknownOptionError) -> str:
    return error.token.keyword or error.token.value


def _unknown(error: UnknownOptionError) -> str:
    word = _word(error)
    if gone := GONE.get(word):
        return tell(gone[0], what=word)
    known = [name for argument in error.argument_collection for name in argument.names if name.startswith("--")]
    near = nearest(word, known)
    return tell("cli.error.unknown_option_near" if near else "cli.error.unknown_option", word=word, near=near)


def _missing(error: MissingArgumentError) -> str:
    argument = error.argument
    if error.keyword or argument is None:
        return tell("cli.error.missing_value", name=error.keyword or "")
    return tell("cli.error.missing", name=argument.names[0].lstrip("-").upper())


def _odd(error: CoercionError) -> str:
    argument, token = error.argument, error.token
    assert argument is not None
    value = token.value if token is not None else ""
    name = (token.keyword if token is not None else None) or argument.name
    choices = [str(choice) for choice in argument.get_choices() or ()]
    if near := nearest(value, choices):
        return tell("cli.error.bad_choice_near", value=value, name=name, near=near)
    key = "cli.error.bad_choice" if choices else "cli.error.bad_value"
    return tell(key, value=value, name=name, choices=", ".join(choices))
