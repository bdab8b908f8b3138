"""What is wrong with a command line, in words of ours: the parser's own are English alone."""

from __future__ import annotations

from cyclopts import (
    CoercionError,
    CycloptsError,
    MissingArgumentError,
    UnknownOptionError,
    UnusedCliTokensError,
)

from rerail.core.nearest import nearest
from rerail.i18n import tell

# Options of earlier versions, each with the texts that say so and what to do now.
GONE = {
    "--on": ("refuse.ray.coordinator", "hint.ray.coordinator"),
    "--svg": ("cli.graph.svg", "cli.graph.mermaid"),
}


def mistake(error: CycloptsError) -> str:
    """The mistake as a sentence; one that is not known is told as the parser tells it."""
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
    """What to do about a mistake: for a removed option its successor, else the command's help."""
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
