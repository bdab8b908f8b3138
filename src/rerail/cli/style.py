"""Styles: icons, colours, durations, times, and tables that never wrap by surprise."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from rich.cells import cell_len
from rich.text import Text

ICONS: dict[str, tuple[str, str, str]] = {
    # status: icon, the same in ASCII, style
    "pending": ("·", ".", "dim"),
    "unplanned": ("↯", "!", "bold yellow"),
    "ready": ("○", "o", ""),
    "running": ("▸", ">", "bold cyan"),
    "waiting": ("◷", "~", "yellow"),
    "succeeded": ("✓", "+", "green"),
    "degraded": ("◐", "%", "yellow"),
    "failed": ("✗", "x", "bold red"),
    "skipped": ("⊘", "-", "magenta"),
    "in_doubt": ("?", "?", "bold yellow"),
    "cancelled": ("■", "#", "dim red"),
    "completed": ("✓", "+", "bold green"),
    "interrupted": ("↯", "!", "bold yellow"),
    # lines of a log
    "retry": ("↻", "r", "yellow"),
    "heal": ("✚", "*", "cyan"),
    "say": ("│", "|", "dim"),
    "act": ("◆", "@", "bold"),
    "round": ("⟳", "=", "bold"),
}


def icon(status: str, *, fancy: bool = True) -> Text:
    sign, plain, style = ICONS.get(status, ("·", ".", ""))
    return Text(sign if fancy else plain, style)


def style_of(status: str) -> str:
    return ICONS[status][2] if status in ICONS else ""


def moment(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).astimezone().strftime("%Y-%m-%d %H:%M:%S")


Cell = Text | str


def table(head: Sequence[str], rows: Sequence[Sequence[Cell]], width: int) -> list[Text]:
    """Align columns; the last one takes the remaining width and is cut there."""
    cells = [[cell if isinstance(cell, Text) else Text(cell) for cell in row] for row in rows]
    if any(head):
        cells.insert(0, [Text(title, "dim") for title in head])
    count = max((len(row) for row in cells), default=0)
    widths = [max((row[at].cell_len for row in cells if at < len(row)), default=0) for at in range(count)]
    return [_row(row, widths, width) for row in cells]


def _row(row: list[Text], widths: list[int], width: int) -> Text:
    line = Text()
    for at, cell in enumerate(row):
        if at < len(row) - 1:
            padded = cell.copy()
            padded.append(" " * (widths[at] - cell.cell_len + 2))
            line.append_text(padded)
        else:
            line.append_text(cell)
    line.rstrip()
    if line.cell_len > width:
        line.truncate(width, overflow="ellipsis")
    return line


def fitted(text: str, width: int) -> str:
    """Cut a text to so many cells of a terminal."""
    if cell_len(text) <= width:
        return text
    kept = ""
    for sign in text:
        if cell_len(kept) + cell_len(sign) > width - 1:
            break
        kept += sign
    return kept + "…"
