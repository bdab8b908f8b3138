"""The command line: thin. It parses, calls the façade, and renders a view; it adds no rule of its own."""

from __future__ import annotations

from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code."""
    from rerail.cli.app import run

    return run(argv)
