"""What a terminal shows: as much of a VT100 as the prompt and the tables use."""

from __future__ import annotations

import re

SEQUENCE = re.compile(r"\x1b\[(?P<given>[0-9;?]*)[ -/]*(?P<kind>[@-~])|\x1b[()][A-Z0-9]|\x1b\][^\x07]*\x07|\x1b[=>]")
UNFINISHED = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*|[()]|\][^\x07]*)?$")


class Screen:
    """Lines of characters, those that were scrolled away included; row 0 is the first that was ever there."""

    def __init__(self, rows: int, columns: int) -> None:
        self._rows, self._columns = rows, columns
        self._lines: list[list[str]] = [[]]
        self._row = self._column = 0
        self._rest = ""

    @property
    def lines(self) -> list[str]:
        """What is there, line by line."""
        return ["".join(line).rstrip() for line in self._lines]

    def feed(self, text: str) -> None:
        """Write to it."""
        text, at = self._rest + text, 0
        unfinished = UNFINISHED.search(text)
        self._rest = unfinished[0] if unfinished else ""
        text = text[: len(text) - len(self._rest)]
        while at < len(text):
            found = SEQUENCE.match(text, at)
            if found is not None:
                self._obey(found["kind"] or "", found["given"] or "")
                at = found.end()
            else:
                self._put(text[at])
                at += 1

    def _put(self, sign: str) -> None:
        if sign == "\n":
            self._row += 1
        elif sign == "\r":
            self._column = 0
        elif sign == "\b":
            self._column = max(0, self._column - 1)
        elif sign >= " ":
            if self._column >= self._columns:
                self._row, self._column = self._row + 1, 0
            line = self._line()
            line += [" "] * (self._column + 1 - len(line))
            line[self._column] = sign
            self._column += 1
        self._line()

    def _line(self) -> list[str]:
        while self._row >= len(self._lines):
            self._lines.append([])
        return self._lines[self._row]

    def _obey(self, kind: str, given: str) -> None:
        number = int(given) if given.isdigit() else 0
        top = max(0, len(self._lines) - self._rows)
        match kind:
            case "A":
                self._row = max(top, self._row - (number or 1))
            case "B":
                self._row += number or 1
            case "C":
                self._column += number or 1
            case "D":
                self._column = max(0, self._column - (number or 1))
            case "J":
                del self._line()[self._column :]
                del self._lines[self._row + 1 :]
            case "K":
                line = self._line()
                del line[0 if number == 2 else self._column :]
        self._line()
