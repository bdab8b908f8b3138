"""What `rerail demo` shows: a plan that fails in five ways, is killed in the middle, and finishes all the same."""

from __future__ import annotations

from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Play the demo; 0 only if everything it claims was found to hold."""
    from rerail.demo.stage import main as play

    return play(argv)
