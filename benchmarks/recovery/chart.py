"""The chart of the docs: how each contender's cases ended, as bars. Plain SVG, readable on light and on dark."""

from __future__ import annotations

from html import escape
from typing import Any

COLOURS = {
    "correct": ("#2f9e6e", "correct"),
    "waiting": ("#4c8fd6", "stops and asks"),
    "honest_failure": ("#9aa1ab", "says that it failed"),
    "false_failure": ("#d9a13b", "says failed, was done"),
    "false_success": ("#d64545", "says success, is not"),
}
LEFT, WIDTH, ROW, TOP = 190, 560, 24, 56
STYLE = (
    "text{font:13px system-ui,sans-serif;fill:#1f2328}.small{font-size:11px}.in{fill:#fff;font-size:11px}"
    "@media (prefers-color-scheme:dark){text{fill:#e6edf3}.in{fill:#fff}}"
)


def chart(found: dict[str, Any], title: str) -> str:
    """The whole picture."""
    height = TOP + ROW * len(found) + 12
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {LEFT + WIDTH + 20} {height}" role="img">',
        f"<style>{STYLE}</style><title>{escape(title)}</title>",
        f'<text x="10" y="20">{escape(title)}</text>',
        _legend(),
    ]
    for number, (name, row) in enumerate(found.items()):
        parts.append(_bar(name, row["all"], TOP + ROW * number))
    return "\n".join([*parts, "</svg>"]) + "\n"


def _legend() -> str:
    parts, x = [], 10
    for colour, words in COLOURS.values():
        parts.append(f'<rect x="{x}" y="31" width="11" height="11" fill="{colour}"/>')
        parts.append(f'<text class="small" x="{x + 16}" y="41">{words}</text>')
        x += 26 + 6 * len(words) + 14
    return "".join(parts)


def _bar(name: str, row: dict[str, Any], top: int) -> str:
    parts = [f'<text x="{LEFT - 8}" y="{top + 14}" text-anchor="end">{escape(name)}</text>']
    x = float(LEFT)
    for outcome, (colour, words) in COLOURS.items():
        share = row[outcome]["share"]
        width = share * WIDTH
        if not width:
            continue
        shown = f"{100 * share:.1f} %"
        parts.append(
            f'<rect x="{x:.1f}" y="{top}" width="{width:.1f}" height="{ROW - 6}" fill="{colour}">'
            f"<title>{escape(name)}: {words} {shown}</title></rect>"
        )
        if width > 34:
            parts.append(f'<text class="in" x="{x + 4:.1f}" y="{top + 13}">{100 * share:.0f}</text>')
        x += width
    return "".join(parts)
