"""A line as words, as a shell splits it: quotes, backslashes, comments (SPEC T11).

Unlike `shlex` it also says where the last word begins and whether it is still open: completion needs that.
"""

from __future__ import annotations

from dataclasses import dataclass, field

BLANKS = " \t\r\n"


@dataclass(slots=True)
class Split:
    """A line in words."""

    words: list[str] = field(default_factory=list)
    start: int = 0  # where the word at the end of the line begins
    inside: bool = False  # the line ends inside of a word: no blank stands behind it
    open: str = ""  # the quote that is not closed, or a backslash with nothing behind it
    comment: bool = False  # the line ends with a comment

    @property
    def before(self) -> list[str]:
        """The words before the one at the end of the line."""
        return self.words[:-1] if self.inside else self.words

    @property
    def last(self) -> str:
        """The word at the end of the line, so far."""
        return self.words[-1] if self.inside else ""


def split(line: str) -> Split:
    """The words of a line; what is open at its end is said, and counts as closed."""
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
