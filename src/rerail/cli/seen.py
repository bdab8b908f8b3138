"""What people at this terminal have seen of a run already: the shell does not tell it a second time (SPEC T11).

One for the process: commands come and go in a shell, and the screen stays.
"""

from __future__ import annotations

_seen: dict[str, int] = {}


def saw(run: str, seq: int) -> None:
    """A run was followed on the screen as far as this event."""
    _seen[run] = max(seq, _seen.get(run, 0))


def has_seen(run: str, seq: int) -> bool:
    """Whether an event was on the screen."""
    return seq <= _seen.get(run, 0)
